"""The judges of money object to what must not be, and to nothing else; the files that simulated people write are what they
are meant to be.
"""

import json
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from devtools.simulation.requests.tree_files import Author
from federation.engine.intake.reading import Refused
from federation.engine.tree.reading import read_tree

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
JUNE, DAY = date(2026, 6, 1), "2026-06-01"
PLACES = {"acme/lab": [], "acme/research": ["acme/research/vision", "acme/research/speech"]}


def world(rows, **more):
    """A world whose books were kept, in which statements find these rows."""
    given: dict[str, Any] = {"are_books_kept": True, "decided": []}
    return SimpleNamespace(watch=SimpleNamespace(rows=lambda statement, *_: rows.get(statement, [])), **(given | more))


def judges():
    # Django must be set up before the gateway is imported, so this is not at the top.
    from devtools.simulation.judges import finance as finance_judges  # noqa: PLC0415

    return finance_judges


@pytest.mark.parametrize(
    ("corrections", "charged", "is_right"),
    [
        ([], 8, True),
        ([], 7, False),
        ([(1, 0, 1, 5)], 14, True),  # the first of two hours
        ([(1, 0, 1, 5)], 8, False),
        ([(2, 0, 1, 5)], 8, True),  # of another rate
        ([(1, 0, 2, 5), (1, 1, 3, 1)], 12, True),  # the later one replaces the earlier one
        ([(1, 0, 2, 5), (1, 1, 3, 1)], 20, False),
    ],
)
def test_the_bill_is_what_ran_at_the_agreed_prices(corrections, charged, is_right):
    """Two units ran for two hours at a price of 2."""
    agreed = [(rate, NOON + start * HOUR, NOON + end * HOUR, Decimal(price)) for rate, start, end, price in corrections]
    rows = {
        judges().SEGMENTS: [("acme", 1, 2, NOON, NOON + 2 * HOUR, Decimal(2), "run", JUNE)],
        judges().CORRECTIONS: agreed,
        judges().CHARGED: [("acme", Decimal(charged))],
    }
    said = judges().promise_16_the_bill_is_what_ran_at_the_agreed_prices(world(rows))
    assert (said == []) == is_right


def ended(**changes):
    """A run of two hours that a lost node ended, as its rows say."""
    given = {
        "attempt": "run", "state": "preempted", "reason": "node_lost", "own_class": "node", "moved_for": "", "began": NOON,
        "ended": NOON + 2 * HOUR, "on_their_own": False, "written_at": None, "interval": None, "bad": False,
    }  # fmt: skip
    return tuple((given | changes).values())


@pytest.mark.parametrize(
    ("changes", "causes", "credited"),
    [
        ({}, ["node_lost"], 8),
        ({}, ["spot"], 0),
        ({}, None, 0),
        ({"written_at": NOON + HOUR}, ["node_lost"], 4),
        ({"written_at": NOON + 9 * HOUR}, ["node_lost"], 0),
        ({"interval": 5400}, ["node_lost"], 2),
        ({"state": "succeeded"}, ["node_lost"], 0),
        ({"state": "lost", "reason": "run_dead"}, ["cluster_lost"], 8),
        ({"state": "lost", "reason": "run_dead", "on_their_own": True}, ["cluster_lost"], 0),
        ({"reason": "started_in_part", "on_their_own": True}, ["infrastructure"], 8),
        ({"reason": "pods_gone", "on_their_own": True}, ["infrastructure"], 0),
        ({"reason": "infrastructure"}, ["evicted"], 8),
        ({"reason": "program_failed", "own_class": "device"}, ["device"], 8),
        ({"reason": "program_failed", "own_class": "program"}, ["bad_node", "device"], 0),
        ({"reason": "program_failed", "own_class": "program", "bad": True}, ["bad_node"], 8),
        ({"reason": "migrated", "moved_for": "drain"}, ["maintenance"], 8),
        ({"reason": "migrated", "moved_for": "consolidation"}, ["maintenance"], 8),
        ({"reason": "migrated", "moved_for": "user"}, ["maintenance", "spot"], 0),
    ],
)
def test_lost_work_is_charged_as_the_policies_say(changes, causes, credited):
    """Two units ran for two hours at a price of 2; the policy of May counts no more."""
    newer = [] if causes is None else [("acme", JUNE, causes), ("acme", date(2026, 5, 1), ["node_lost", "spot"])]
    rows = {
        judges().ENDED: [ended(**changes)],
        judges().SEGMENTS: [("acme", 1, 2, NOON, NOON + 2 * HOUR, Decimal(2), "run", JUNE)],
        judges().CREDIT_POLICIES: newer,
        judges().CREDITED: [("acme", Decimal(credited))],
    }
    judge = judges().promise_16_lost_work_is_charged_as_the_policies_say
    assert judge(world(rows)) == []
    assert judge(world({**rows, judges().CREDITED: [("acme", Decimal(credited) + 1)]}))


@pytest.mark.parametrize(
    ("borne", "is_right"),
    [
        ({}, False),
        ({"idle": 3}, True),
        ({"idle": 3, "platform": 10}, True),
        ({"idle": 3, "platform": 9}, False),
        ({"idle": 6}, False),
    ],
)
def test_what_is_shared_adds_up(borne, is_right):
    """Pools share 3, and the platform costs 10."""
    rows = {
        judges().SHARED: [(JUNE, "USD", 3)],
        judges().PLATFORM: [(JUNE, "USD", 10)],
        judges().BORNE: [(JUNE, kind, "USD", amount) for kind, amount in borne.items()],
    }
    assert (judges().promise_16_what_is_shared_adds_up(world(rows)) == []) == is_right


def test_shares_of_a_month_without_a_policy_and_undecided_idle_are_objected_to():
    rows = {judges().BORNE: [(JUNE, "idle", "USD", 1)], judges().UNDECIDED: [(DAY, "open")]}
    assert len(judges().promise_16_what_is_shared_adds_up(world(rows))) == 2


@pytest.mark.parametrize(
    ("decided", "state", "is_right"),
    [
        ([("day", "explained")], "explained", True),
        ([("day", "explained")], "closed", False),
        ([("day", "explained"), ("day", "explained")], "explained", False),
    ],
)
def test_what_people_decided_stands(decided, state, is_right):
    one = world({judges().ANOMALIES: [("day", state, "ada")]}, decided=decided)
    assert (judges().what_people_decided_of_unusual_days_stands(one) == []) == is_right


def test_drafts_can_be_read_and_files_with_faults_cannot():
    for seed in range(200):
        author = Author(random.Random(seed), PLACES)
        text, _ = author.draft()
        read_tree(text)
        with pytest.raises(Refused):
            read_tree(author.faulty())


def test_edited_files_can_be_read_and_some_are_others():
    limits = [{"resource": "gpu", "nominal": "12"}, {"resource": "memory", "nominal": "4Gi"}]
    tenants = [{"path": "acme", "kind": "organisation", "limits": limits}]
    text = json.dumps({"apiVersion": "switchyard/v1", "kind": "TenantTree", "tenants": tenants}).replace('"', "")
    edited = {Author(random.Random(seed), PLACES).edited(text) for seed in range(20)}
    assert len(edited) > 2
    for one in edited:
        read_tree(one)
