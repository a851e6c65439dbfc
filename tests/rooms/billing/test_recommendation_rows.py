"""Recommendations as rows: the same from day to day, decided by people, opened again by the routine, and guarded by the database."""

from datetime import UTC, date, timedelta
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest
from django.db import DatabaseError, connection, transaction

from billing.engine.recommendations import Finding, Kind
from billing.models import Recommendation, RequiredLabels
from billing.operations import recommendations as operations
from billing.operations.recommendations import accept, dismiss, record_findings, reopen, require_labels
from billing.queries.recommendations import decidable, required_keys, visible_recommendations
from foundation.clock import now
from foundation.problems import Conflict, Invalid, NotFound
from tenancy.models import AuditEntry
from tenancy.queries import SYSTEM, NotAllowedHere, actor_for
from tests.builders import bind, make_tenant, make_user

pytestmark = pytest.mark.django_db
TODAY = now().astimezone(UTC).date()
ONE_DAY = timedelta(days=1)
STATES = list(Recommendation.State.values)


def finding(tenant, high=10, subject="train-#", kind=Kind.CHEAPER, currency="USD"):
    facts = {"name": subject, "jobs": 3, "last_job": None}
    return Finding(kind, tenant.id, subject, currency, Decimal(1), Decimal(high), Decimal("0.5"), facts)


@pytest.fixture
def team():
    make_tenant("acme")
    return make_tenant("acme/one")


def organisation_of(team):
    return team.__class__.objects.get(path="acme")


def find(team, *found, day=TODAY):
    record_findings(organisation_of(team).id, found, day)
    return {row.subject: row for row in Recommendation.objects.all()}


def raw(row, **fields):
    """What only the owner of the tables can do: time passes."""
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
    Recommendation.objects.filter(id=row.id).update(**fields)
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = origin")
    row.refresh_from_db()
    return row


def person(path="acme", role="finance"):
    user = make_user()
    bind(user, path, role)
    return actor_for(user)


def test_a_finding_is_the_same_row_from_day_to_day(team):
    first = find(team, finding(team), day=TODAY - ONE_DAY)["train-#"]
    again = find(team, finding(team, 12))["train-#"]
    assert (again.id, again.high, again.found_on, again.last_found_on) == (first.id, 12, TODAY - ONE_DAY, TODAY)
    assert find(team, finding(team, 12))["train-#"].state == "open"
    others = [finding(team, subject="x"), finding(team, kind=Kind.SPOT), finding(team, currency="EUR")]
    find(team, finding(team), *others)
    assert Recommendation.objects.count() == 4


def test_what_is_not_found_expires_and_opens_again_when_it_is(team):
    find(team, finding(team), day=TODAY - ONE_DAY)
    assert find(team)["train-#"].state == "expired"
    assert find(team, finding(team))["train-#"].state == "open"


def test_an_earlier_day_changes_nothing(team):
    find(team, finding(team, 12))
    assert find(team, finding(team, 99), day=TODAY - ONE_DAY)["train-#"].high == 12


def test_only_the_largest_are_kept(team, monkeypatch):
    monkeypatch.setattr(operations, "MOST_FINDINGS", 2)
    assert set(find(team, *(finding(team, n, subject=f"s{n}") for n in (1, 3, 2)))) == {"s3", "s2"}


@pytest.mark.parametrize(
    ("until", "high", "state"),
    [
        (TODAY + ONE_DAY, "14.999999", "dismissed"),
        (TODAY + ONE_DAY, 15, "open"),
        (TODAY, 10, "open"),
        (TODAY - ONE_DAY, 10, "open"),
        (TODAY + ONE_DAY, None, "dismissed"),
        (TODAY, None, "expired"),
    ],
)
def test_a_dismissed_one_comes_back_only_after_its_day_or_when_it_grew_by_half(team, until, high, state):
    row = find(team, finding(team), day=TODAY - ONE_DAY)["train-#"]
    raw(row, state="dismissed", until=until, decided_high=10, decided_by_name="ada", decided_at=now(), reason="known")
    found = [] if high is None else [finding(team, high)]
    row = find(team, *found)["train-#"]
    assert row.state == state
    if state == "open":
        assert (row.reason, row.until, row.decided_high, row.decided_by_name, row.decided_at) == (
            "",
            None,
            None,
            "",
            None,
        )


@pytest.mark.parametrize(("ago", "state"), [(13, "accepted"), (14, "done")])
def test_an_accepted_one_is_done_after_two_weeks_without_it(team, ago, state):
    row = find(team, finding(team), day=TODAY - timedelta(days=20))["train-#"]
    raw(
        row, state="accepted", decided_high=10, decided_by_name="ada", decided_at=now(),
        last_found_on=TODAY - timedelta(days=ago),
    )  # fmt: skip
    assert find(team)["train-#"].state == state
    assert find(team, finding(team))["train-#"].state == ("accepted" if state == "accepted" else "open")


def test_decisions_say_who_and_why_and_are_audited_once(team):
    row, ada = find(team, finding(team))["train-#"], person()
    for _ in range(2):
        row = accept(ada, row.id, "agreed")
        assert (row.state, row.reason, row.decided_high, row.decided_by_name) == ("accepted", "agreed", 10, ada.name)
    with pytest.raises(Conflict, match="open recommendation"):
        dismiss(ada, row.id, "no")
    for _ in range(2):
        assert reopen(ada, row.id).state == "open"
    for _ in range(2):
        row = dismiss(ada, row.id, "no")
        assert (row.state, row.until) == ("dismissed", TODAY + timedelta(days=90))
    with pytest.raises(Conflict):
        accept(ada, row.id)
    assert reopen(ada, row.id).reason == ""
    actions = AuditEntry.objects.filter(object_id=str(row.id)).order_by("id").values_list("action", flat=True)
    names = ("accept", "reopen", "dismiss", "reopen")
    assert list(actions) == [f"recommendation.{name}" for name in names]


@pytest.mark.parametrize("until", [TODAY, TODAY - ONE_DAY, TODAY + timedelta(days=367), date.max, date.min])
def test_a_dismissal_ends_within_a_year(team, until):
    row = find(team, finding(team))["train-#"]
    with pytest.raises(Invalid):
        dismiss(person(), row.id, "no", until)


def test_what_ended_is_not_opened(team):
    row = find(team, finding(team), day=TODAY - ONE_DAY)["train-#"]
    find(team)
    for act in (lambda: reopen(SYSTEM, row.id), lambda: accept(SYSTEM, row.id), lambda: dismiss(SYSTEM, row.id, "no")):
        with pytest.raises(Conflict):
            act()


@pytest.mark.parametrize(
    ("path", "role", "sees", "decides"),
    [
        ("acme", "finance", True, True),
        ("acme/one", "manager", True, True),
        ("acme/one", "admin", True, True),
        ("acme/one", "viewer", True, False),
        ("acme/one", "submitter", True, False),
        ("acme/two", "admin", False, False),
        ("globex", "admin", False, False),
    ],
)
def test_only_the_own_subtree_is_seen_and_decided(team, path, role, sees, decides):
    row = find(team, finding(team))["train-#"]
    make_tenant(path)
    actor = person(path, role)
    assert list(visible_recommendations(actor)) == ([row] if sees else [])
    assert decidable(actor, [row]) == (frozenset({row.id}) if decides else frozenset())
    for act in (accept, reopen, lambda who, id_: dismiss(who, id_, "no")):
        if not decides:
            with pytest.raises(NotAllowedHere if sees else NotFound):
                act(actor, row.id)
    assert Recommendation.objects.get().state == "open"
    with pytest.raises(NotFound):
        accept(actor, uuid4())


OPEN: dict[str, Any] = {"reason": "", "until": None, "decided_high": None}
ACCEPTED: dict[str, Any] = {"state": "accepted", "decided_high": 10, "decided_by_name": "ada", "decided_at": now()}
DISMISSED: dict[str, Any] = {**ACCEPTED, "state": "dismissed", "reason": "no", "until": TODAY + ONE_DAY}
BEGINNINGS: dict[str, dict[str, Any]] = {
    "open": {},
    "accepted": ACCEPTED,
    "dismissed": DISMISSED,
    "done": {**ACCEPTED, "state": "done"},
    "expired": {"state": "expired"},
}
LATER = now() + timedelta(minutes=1)


@pytest.mark.parametrize(
    ("state", "fields", "is_allowed"),
    [
        ("open", ACCEPTED, True), ("open", {**ACCEPTED, "decided_high": 9}, False), ("open", DISMISSED, True),
        ("open", {**DISMISSED, "until": TODAY}, False), ("open", {**DISMISSED, "reason": ""}, False), ("open", {**ACCEPTED, "decided_by_name": ""}, False),
        ("open", {"state": "expired"}, False), ("open", {"state": "done", **{k: v for k, v in ACCEPTED.items() if k != "state"}}, False),
        ("accepted", {"state": "open", **OPEN}, False), ("accepted", {"state": "open", **OPEN, "decided_at": LATER}, True),
        ("accepted", DISMISSED, False), ("accepted", {"state": "done"}, False), ("accepted", {"reason": "other"}, False),
        ("accepted", {"decided_by_name": "eve"}, False), ("accepted", {"high": 20}, True),
        ("dismissed", {"state": "open", **OPEN}, False), ("dismissed", {"state": "open", **OPEN, "decided_by_name": "", "decided_at": None}, False),
        ("dismissed", {"state": "open", **OPEN, "decided_by_name": "", "decided_at": None, "high": 15}, True),
        ("dismissed", {"state": "open", **OPEN, "decided_at": LATER}, True), ("dismissed", {"until": TODAY + 9 * ONE_DAY}, False),
        ("dismissed", {"state": "expired", "until": None, "decided_high": None}, False), ("dismissed", {**ACCEPTED, "until": None}, False),
        ("done", {"state": "open", **OPEN}, False), ("done", {"state": "accepted"}, False), ("expired", {"state": "open"}, False),
        ("expired", ACCEPTED, False), ("open", {"subject": "other"}, False), ("open", {"kind": "spot"}, False), ("open", {"kind": "none"}, False),
        ("open", {"found_on": TODAY - ONE_DAY}, False), ("open", {"last_found_on": TODAY + ONE_DAY}, False),
        ("open", {"last_found_on": TODAY - ONE_DAY}, False), ("open", {"low": -1}, False), ("open", {"low": 11}, False),
        ("open", {"confidence": Decimal("1.0001")}, False), ("open", {"currency": "usd"}, False),
    ],
)  # fmt: skip
def test_no_writer_changes_a_row_otherwise(team, state, fields, is_allowed):
    row = find(team, finding(team))["train-#"]
    if state != "open":
        raw(row, **BEGINNINGS[state])
    if is_allowed:
        Recommendation.objects.filter(id=row.id).update(**fields)
        return
    with pytest.raises(DatabaseError), transaction.atomic():
        Recommendation.objects.filter(id=row.id).update(**fields)


@pytest.mark.parametrize("state", [state for state in STATES if state != "open"])
def test_every_row_begins_open(team, state):
    fields = (
        {"decided_high": 10, "decided_by_name": "ada", "decided_at": now(), "reason": "r"} if state != "expired" else {}
    )
    with pytest.raises(DatabaseError, match="begins open"):
        Recommendation.objects.create(
            organisation=organisation_of(team), tenant=team, tenant_path=team.path, kind="spot", subject="s", currency="USD", low=1,
            high=10, confidence=1, evidence={}, found_on=TODAY, last_found_on=TODAY, state=state,
            until=TODAY + ONE_DAY if state == "dismissed" else None, **fields,
        )  # fmt: skip


@pytest.mark.parametrize("statement", ["DELETE FROM billing_recommendation", "TRUNCATE billing_recommendation"])
def test_rows_are_kept(team, statement):
    find(team, finding(team))
    with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)


def test_labels_are_required_from_a_day_on(team):
    organisation, finance = organisation_of(team), person()
    require_labels(finance, "acme", TODAY, ["team", "stage", "team"])
    require_labels(finance, "acme", TODAY + ONE_DAY, [])
    assert required_keys(organisation.id, TODAY - ONE_DAY) == ()
    assert required_keys(organisation.id, TODAY) == ("stage", "team")
    assert required_keys(organisation.id, TODAY + ONE_DAY) == ()
    require_labels(finance, "acme", TODAY, ["stage"])
    assert required_keys(organisation.id, TODAY) == ("stage",)
    assert AuditEntry.objects.filter(action="required_labels.set").count() == 3


@pytest.mark.parametrize(
    ("who", "path", "day", "keys", "error"),
    [
        (("acme", "viewer"), "acme", TODAY, ["a"], NotAllowedHere),
        (("acme/one", "admin"), "acme", TODAY, ["a"], NotFound),
        (("acme", "admin"), "acme/one", TODAY, ["a"], NotFound),
        (("acme", "admin"), "acme", TODAY - ONE_DAY, ["a"], Invalid),
        (("acme", "admin"), "acme", TODAY, [f"k{n}" for n in range(11)], Invalid),
    ],
)
def test_who_may_not_require_labels_and_which(team, who, path, day, keys, error):
    with pytest.raises(error):
        require_labels(person(*who), path, day, keys)


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO billing_requiredlabels (organisation_id, effective_from, keys, made_by_name) SELECT id, now() + interval '1 day', '{b,a}', 'x' FROM tenancy_tenant WHERE path = 'acme'",
        "INSERT INTO billing_requiredlabels (organisation_id, effective_from, keys, made_by_name) SELECT id, now() + interval '1 day', '{a,a}', 'x' FROM tenancy_tenant WHERE path = 'acme'",
        "INSERT INTO billing_requiredlabels (organisation_id, effective_from, keys, made_by_name) SELECT id, now() - interval '2 days', '{a}', 'x' FROM tenancy_tenant WHERE path = 'acme'",
        "INSERT INTO billing_requiredlabels (organisation_id, effective_from, keys, made_by_name) SELECT id, now() + interval '1 day', '{a}', 'x' FROM tenancy_tenant WHERE path = 'acme/one'",
        "UPDATE billing_requiredlabels SET keys = '{}'",
        "DELETE FROM billing_requiredlabels",
    ],
)
def test_required_labels_only_grow(team, statement):
    require_labels(SYSTEM, "acme", TODAY, ["a"])
    with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)
    assert RequiredLabels.objects.count() == 1
