"""Limits that lend to each other, on PostgreSQL: what counts where, when limits come, change, go and move, and raw SQL
against each of its constraints.
"""

import pytest
from django.db import IntegrityError, connection, transaction

from foundation.ids import new_id
from foundation.problems import Conflict, Invalid
from quotas.engine.holds import Borrowing
from quotas.models import HoldMovement, QuotaLimit
from quotas.operations import delete_limit, end_holds, put_limit, take_holds
from quotas.queries import discrepancies, refusal_for_good, standings
from tenancy.operations import change_tenant
from tenancy.queries import SYSTEM
from tests.builders import hold_request, make_tenant
from tests.refusals import constraint_of

pytestmark = pytest.mark.django_db


def put(path, gpus, borrow=0, lend=None):
    make_tenant(path)
    bounds = Borrowing(*(None if amount is None else amount * 1000 for amount in (borrow, lend)))
    return put_limit(SYSTEM, path, "gpu", nominal=gpus * 1000, borrowing=bounds)[0]


def takes(path, gpus):
    """The hold of so many GPUs, or the refusal."""
    asked = hold_request(path, {"gpu": gpus * 1000})
    return take_holds([asked])[asked.holder_id] or asked.holder_id


def held():
    rows = QuotaLimit.objects.filter(removed_at=None).order_by("tenant__path").values_list("tenant__path", "held")
    return {path: amount / 1000 for path, amount in rows}


def settle():
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("SET CONSTRAINTS ALL DEFERRED")
    assert discrepancies() == ()


def lines(limit):
    return HoldMovement.objects.filter(limit=limit).count()


def test_a_guarantee_counts_above_from_the_start_and_work_inside_it_adds_nothing():
    root, team = put("acme", 8), put("acme/a", 4, lend=1)
    assert held() == {"acme": 3, "acme/a": 0}
    takes("acme/a", 2)
    assert held() == {"acme": 3, "acme/a": 2}
    takes("acme/a/deep", 2)
    assert held() == {"acme": 4, "acme/a": 4}
    assert (lines(root), lines(team)) == (0, 2)
    settle()


def test_a_team_borrows_what_others_lend_and_no_more():
    put("acme", 8)
    put("acme/a", 4, borrow=3)
    put("acme/b", 4, lend=2)
    assert takes("acme/a", 8).message.startswith("acme has a limit of 8 gpu: 2 held, 8 requested")
    first = takes("acme/a", 6)
    refused = takes("acme/a", 1)
    assert refused.message == "acme has a limit of 8 gpu: 8 held, 1 requested; too little is left to borrow"
    takes("acme/b", 2)
    assert takes("acme/b", 1).tenant_path == "acme"
    end_holds({first: "posted"})
    takes("acme/b", 2)
    assert held() == {"acme": 4, "acme/a": 0, "acme/b": 4}
    settle()


def test_a_batch_is_decided_in_order_over_all_levels():
    put("acme", 6)
    put("acme/a", 2, borrow=None)
    put("acme/b", 3, lend=0)
    asked = [
        hold_request(f"acme/{team}", {"gpu": gpus * 1000}) for team, gpus in [("a", 3), ("a", 1), ("b", 3), ("b", 1)]
    ]
    outcomes = take_holds(asked)
    assert [outcomes[one.holder_id] is None for one in asked] == [True, False, True, False]
    assert held() == {"acme": 6, "acme/a": 3, "acme/b": 3}


def test_a_limit_cut_below_use_takes_nothing_new_also_if_its_guarantee_is_lent():
    put("acme", 8)
    put("acme/a", 4, borrow=4)
    put("acme/b", 2, lend=0)
    running = takes("acme/a", 6)
    put("acme/a", 1, borrow=1)
    put("acme", 4)
    assert held() == {"acme": 8, "acme/a": 6, "acme/b": 0}
    assert takes("acme/a", 1).code == takes("acme", 1).code == "quota_exceeded"
    takes("acme/b", 2)  # the guarantee is counted already
    assert held()["acme"] == 8
    assert takes("acme/b", 1).code == "quota_exceeded"
    end_holds({running: "posted"})
    assert held() == {"acme": 2, "acme/a": 0, "acme/b": 2}
    takes("acme/a", 2)
    settle()


def test_no_limit_guarantees_more_than_it_has():
    put("acme", 4)
    put("acme/a", 3, lend=0)
    with pytest.raises(Invalid) as too_much:
        put("acme/b", 2, lend=0)
    with pytest.raises(Invalid) as too_low:
        put("acme", 2)
    assert [(error.field, error.code) for error in too_much.value.errors] == [("lending_limit", "guarantees_too_much")]
    assert [(error.field, error.code) for error in too_low.value.errors] == [("nominal", "below_guarantees")]
    put("acme/b", 2, lend=1)
    settle()


def test_what_others_hold_is_not_guaranteed_until_it_is_back():
    put("acme", 4)
    running = takes("acme/a", 3)
    with pytest.raises(Conflict) as refused:
        put("acme/b", 2, lend=0)
    assert refused.value.code == "guarantee_not_free"
    assert held() == {"acme": 3}
    end_holds({running: "posted"})
    put("acme/b", 2, lend=0)
    assert held() == {"acme": 2, "acme/b": 0}
    settle()


@pytest.mark.parametrize("bounds", [{}, {"borrow": 2}, {"borrow": None, "lend": 1}])
def test_a_limit_in_the_middle_takes_over_what_is_held_below_it(bounds):
    put("acme", 8)
    put("acme/dept/a", 2, borrow=1, lend=1)
    own, below, beside = takes("acme/dept", 1), takes("acme/dept/a", 3), takes("acme/other", 1)
    before = held()["acme"]

    middle = put("acme/dept", 5, **bounds)

    assert held() == {"acme": before, "acme/dept": 4, "acme/dept/a": 3}
    settle()
    end_holds({below: "posted"})
    kept = max(2, 4 if bounds.get("lend") else 0)
    assert held() == {"acme": 1 + kept, "acme/dept": 2, "acme/dept/a": 0}
    delete_limit(SYSTEM, middle.id)
    assert held() == {"acme": 3, "acme/dept/a": 0}
    settle()
    end_holds({own: "posted", beside: "voided"})
    assert held() == {"acme": 1, "acme/dept/a": 0}
    settle()


def test_a_limit_removed_and_put_again_counts_each_hold_once():
    put("acme", 8)
    limit = put("acme/a", 4)
    first = takes("acme/a/deep", 2)
    delete_limit(SYSTEM, limit.id)
    assert held() == {"acme": 2}
    second = takes("acme/a", 1)
    put("acme/a", 1)
    assert held() == {"acme": 3, "acme/a": 3}
    settle()
    put("acme/a/deep", 1)
    assert held() == {"acme": 3, "acme/a": 3, "acme/a/deep": 2}
    settle()
    end_holds({first: "posted", second: "posted"})
    assert held() == {"acme": 0, "acme/a": 0, "acme/a/deep": 0}
    assert not QuotaLimit.objects.exclude(held=0).exists()
    settle()


def test_an_unused_limit_between_others_leaves_without_trace():
    put("acme", 8)
    middle = put("acme/dept", 6, lend=0)
    put("acme/dept/a", 2, lend=0)
    assert held() == {"acme": 6, "acme/dept": 2, "acme/dept/a": 0}
    delete_limit(SYSTEM, middle.id)
    assert held() == {"acme": 2, "acme/dept/a": 0}
    assert QuotaLimit.objects.count() == 2
    settle()


def test_a_moved_tenant_takes_its_guarantee_along_if_there_is_room():
    put("acme", 20)
    put("acme/x", 4)
    put("acme/y", 4)
    put("acme/x/team", 3, lend=0)
    team = make_tenant("acme/x/team")
    running = takes("acme/y", 2)
    with pytest.raises(Conflict) as refused:
        change_tenant(SYSTEM, team.id, parent_id=make_tenant("acme/y").id)
    assert refused.value.code == "guarantee_not_free"
    end_holds({running: "posted"})
    change_tenant(SYSTEM, team.id, parent_id=make_tenant("acme/y").id)
    assert held() == {"acme": 3, "acme/x": 0, "acme/y": 3, "acme/y/team": 0}
    settle()


def test_a_job_that_only_fits_in_what_is_guaranteed_to_others_is_refused_for_good():
    put("acme", 8)
    put("acme/a", 2, borrow=None)
    put("acme/b", 5, lend=0)
    assert refusal_for_good("acme/a", [("north", {"gpu": 3000})]) is None
    (refused,) = refusal_for_good("acme/a", [("north", {"gpu": 4000})])
    assert refused.message.startswith("acme has a limit of 8 gpu, 5 guaranteed to others, 4 requested")


def test_a_limit_shows_what_is_borrowed_lent_and_free():
    put("acme", 8)
    a, b = put("acme/a", 4, borrow=3), put("acme/b", 4, lend=3)
    takes("acme/a", 6)
    a, b = (QuotaLimit.objects.select_related("tenant").get(id=one.id) for one in (a, b))
    stand = standings([a, b])
    assert stand[a.id]._asdict() == {
        "borrowed": 2000, "lent": 0, "guaranteed": 0, "guaranteed_unused": 0, "free": 1000,
        "reserved": 0, "reserved_most": 0,
    }  # fmt: skip
    assert stand[b.id]._asdict() == {
        "borrowed": 0, "lent": 2000, "guaranteed": 1000, "guaranteed_unused": 1000, "free": 2000,
        "reserved": 0, "reserved_most": 0,
    }  # fmt: skip


def test_work_inside_a_guarantee_locks_no_limit_above(django_assert_num_queries):
    put("acme", 8)
    put("acme/a", 4, lend=0)
    asked = hold_request("acme/a")
    with django_assert_num_queries(8) as inside:
        take_holds([asked])
    locked = [
        one["sql"]
        for one in inside.captured_queries
        if "quotas_quotalimit" in one["sql"] and "FOR NO KEY" in one["sql"]
    ]
    assert len(locked) == 1


@pytest.fixture
def tree():
    """acme has 8; a borrows up to 2 and keeps 2 of 4; a hold of 3 GPUs counts at a."""
    root, team = put("acme", 8), put("acme/a", 4, borrow=2, lend=2)
    holder = takes("acme/a", 3)
    settle()
    tenant = make_tenant("acme/a").id
    return {"root": root.id, "team": team.id, "hold": holder, "tenant": tenant, "fresh": new_id(), "limit": new_id()}


HOLD = (
    "WITH held AS (INSERT INTO quotas_hold (holder_id, tenant_id, cluster_name, amounts, state)"
    " VALUES (%(fresh)s, %(tenant)s, 'north', '{{\"gpu\": {0}}}', 'pending'))"
    " INSERT INTO quotas_holdmovement (hold_id, limit_id, kind, amount) VALUES (%(fresh)s, %({1})s, 'take', {0})"
)
ATTACKS = {
    "more than may be borrowed": (HOLD.format(3001, "team"), "quota_is_never_exceeded"),
    "a line above the nearest limit": (HOLD.format(1000, "root"), "take_is_what_was_asked"),
    "lines at every limit": (
        HOLD.format(1000, "team") + ", (%(fresh)s, %(root)s, 'take', 1000)",
        "take_is_what_was_asked",
    ),
    "another parent": (
        "UPDATE quotas_quotalimit SET parent_id = NULL WHERE id = %(team)s",
        "quota_parent_is_the_nearest",
    ),
    "itself as parent": (
        "UPDATE quotas_quotalimit SET parent_id = id WHERE id = %(team)s",
        "quota_parent_is_the_nearest",
    ),
    "a negative borrowing limit": (
        "UPDATE quotas_quotalimit SET borrowing_limit = -1 WHERE id = %(team)s",
        "quota_borrowing_limit_is_in_range",
    ),
    "a negative lending limit": (
        "UPDATE quotas_quotalimit SET lending_limit = -1 WHERE id = %(team)s",
        "quota_lending_limit_is_in_range",
    ),
    "a lending limit beyond any fleet": (
        "UPDATE quotas_quotalimit SET lending_limit = 1000000000000001 WHERE id = %(team)s",
        "quota_lending_limit_is_in_range",
    ),
    "a guarantee that is not free": (
        "UPDATE quotas_quotalimit SET nominal = 9000, lending_limit = 0 WHERE id = %(team)s",
        "quota_is_never_exceeded",
    ),
    "a new guarantee that is not free": (
        (
            "INSERT INTO quotas_quotalimit (id, tenant_id, resource, clusters, nominal, lending_limit, cap, held, updated_at)"
            " SELECT %(limit)s, id, 'gpu', '{}', 6000, 0, 6000, 0, now() FROM tenancy_tenant WHERE path = 'acme/b'"
        ),
        "quota_is_never_exceeded",
    ),
    "a cap of what could be borrowed without a parent": (
        "UPDATE quotas_quotalimit SET borrowing_limit = 5000, cap = 13000 WHERE id = %(root)s",
        "quota_held_moves_by_journal",
    ),
    "a line moved up": (
        (
            "INSERT INTO quotas_holdmovement (hold_id, limit_id, kind, amount)"
            " VALUES (%(hold)s, %(team)s, 'end', -3000), (%(hold)s, %(root)s, 'take', 3000)"
        ),
        "take_is_what_was_asked",
    ),
    "a line returned without another": (
        ("INSERT INTO quotas_holdmovement (hold_id, limit_id, kind, amount) VALUES (%(hold)s, %(team)s, 'end', -3000)"),
        "pending_hold_gave_nothing_back",
    ),
    "a limit in the middle that counts nothing": (
        (
            "INSERT INTO quotas_quotalimit (id, tenant_id, resource, clusters, nominal, cap, held, updated_at)"
            " SELECT %(limit)s, id, 'gpu', '{}', 6000, 6000, 0, now() FROM tenancy_tenant WHERE path = 'acme/a/deep'"
        ),
        "limit_counts_what_is_held",
    ),
}


def attack(statement, values):
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement, values)
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")


@pytest.mark.parametrize(("statement", "constraint"), ATTACKS.values(), ids=ATTACKS.keys())
def test_the_database_refuses(tree, statement, constraint):
    make_tenant("acme/b")
    if "deep" in statement:
        takes("acme/a/deep", 1)
    with pytest.raises(IntegrityError) as refused:
        attack(statement, tree)
    assert constraint_of(refused.value) == constraint
    settle()


def test_a_claim_is_generated(tree):
    with pytest.raises(Exception, match="claim") as refused, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("UPDATE quotas_quotalimit SET claim = 0 WHERE id = %(team)s", tree)
    assert "generated" in str(refused.value)


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("UPDATE quotas_quotalimit SET lending_limit = 0 WHERE id = %(team)s", {"acme": 4, "acme/a": 3}),
        ("UPDATE quotas_quotalimit SET nominal = nominal + 2000, lending_limit = 0", {"acme": 6, "acme/a": 3}),
        ("UPDATE quotas_quotalimit SET removed_at = now() WHERE id = %(team)s", {"acme": 3}),
        ("UPDATE quotas_quotalimit SET removed_at = now()", {}),
        (
            (
                "INSERT INTO quotas_quotalimit (id, tenant_id, resource, clusters, nominal, lending_limit, cap, held, updated_at)"
                " SELECT gen_random_uuid(), id, 'gpu', '{}', 3000, 1000, 3000, 0, now() FROM tenancy_tenant"
                " WHERE path IN ('acme/b', 'acme/b/c')"
            ),
            {"acme": 5, "acme/a": 3, "acme/b": 2, "acme/b/c": 0},
        ),
    ],
)
def test_the_database_counts_right_whoever_writes(tree, statement, expected):
    make_tenant("acme/b/c")
    with connection.cursor() as cursor:
        cursor.execute(statement, tree)
    assert held() == expected
    settle()
