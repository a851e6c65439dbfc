"""Idle capacity and the platform in the ledger: posted when a month closes, to the last digit, and never twice."""

from datetime import date, timedelta
from decimal import Decimal

import pytest
from django.db import IntegrityError, connection, transaction
from django.db.models import Sum
from psycopg.types.range import TimestamptzRange

from billing.models import InvoiceLine, LedgerEntry, LedgerLine, LedgerPeriod, NegativeIdle, PoolDay, Price
from billing.operations import create_price, periods, posting, record_runs, sharing
from billing.operations.corrections import NewCorrection, correct_price
from billing.operations.prices import NewPrice
from billing.operations.sharing import NewPolicy, set_policy
from billing.queries import discrepancies
from billing.queries.periods import checklist
from billing.queries.pools import ReservedTime, reservation_sources
from clusters.models import NodeOffer, NodeSpan
from foundation.problems import Conflict, Invalid, NotFound
from tenancy.queries import SYSTEM, actor_for
from tests.builders import bind, make_flavor, make_run, make_tenant, make_user
from tests.refusals import constraint_of

from .invoicing import issued
from .ledgers import OCTOBER, at, priced_cluster, settle_pending_checks

pytestmark = pytest.mark.django_db
MONTH = date(2026, 10, 1)
NOVEMBER = at(1, month=11)


def offered(cluster, node="n1", flavor="h100", units=1, start=OCTOBER, until=NOVEMBER, **more):
    """What the history says of a node."""
    offer, _ = NodeOffer.objects.get_or_create(cluster=cluster, node=node, flavor=flavor)
    given = {
        "uid": f"uid-{node}", "capacity_type": "on_demand", "gpu_model": "H100-80GB", "sharing": "whole", "cpu_millicores": 64_000,
        "memory_mib": 1024, "is_available": True, "is_assumed": False,
    }  # fmt: skip
    NodeSpan.objects.create(offer=offer, period=TimestamptzRange(start, until), units=units, **(given | more))


def policy(idle="proportional", start=MONTH, **more):
    return set_policy(SYSTEM, NewPolicy("acme", start, idle, **more))


def used(cluster, **hours):
    """Runs of `acme/NAME` for so many hours of one GPU, all on the 5th."""
    for name, count in hours.items():
        record_runs([make_run(cluster, f"acme/{name}", started_at=at(5), until_at=at(5) + timedelta(hours=count))])


def close():
    posting.post_days()
    period = LedgerPeriod.objects.get(month=MONTH)
    periods.begin_closing(SYSTEM, period.id)
    is_closed = periods.finish_closing(period.id)
    settle_pending_checks()
    return is_closed


def balances():
    """What each account of the organisation has, without zeros at the end."""
    found = {}
    for kind, path, amount in (
        LedgerLine.objects.values_list("account__kind", "account__tenant__path").annotate(sum=Sum("amount")).order_by()
    ):
        found[path or kind] = float(amount)
    return found


@pytest.fixture
def north():
    """A cluster with one GPU at 2.50 in October: 60 a day, 1860 in the month."""
    cluster = priced_cluster()
    offered(cluster)
    return cluster


def test_idle_follows_use_and_the_pools_account_is_its_whole_cost(north):
    policy()
    used(north, one=4, two=2)
    assert close()
    # On the 5th, 18 of 24 hours are idle: 45, shared 30 and 15. The 30 other days have no user.
    assert balances() == {"acme/one": 40, "acme/two": 20, "idle": 1800, "cluster_pool": -1860}
    assert PoolDay.objects.aggregate(sum=Sum("cost"))["sum"] == 1860
    assert PoolDay.objects.count() == 31
    assert discrepancies() == ()


def test_central_idle_is_visible_and_charged_to_no_tenant(north):
    policy("central")
    used(north, one=4)
    assert close()
    assert balances() == {"acme/one": 10, "idle": 1850, "cluster_pool": -1860}


def test_without_a_policy_a_month_closes_as_before(north):
    used(north, one=4)
    assert close()
    assert balances() == {"acme/one": 10, "cluster_pool": -10}


def test_nodes_that_took_no_jobs_are_overhead_and_assumed_time_is_marked(north):
    offered(north, "n2", is_available=False, start=at(5), until=at(6))
    offered(north, "n3", is_assumed=True, start=at(5), until=at(5, 12))
    policy("central")
    used(north, one=4)
    assert close()
    fifth = PoolDay.objects.get(day=date(2026, 10, 5))
    assert (fifth.cost, fifth.charged, fifth.overhead, fifth.idle, fifth.assumed) == (150, 10, 60, 80, 30)
    assert balances() == {"acme/one": 10, "idle": 1880, "overhead": 60, "cluster_pool": -1950}


@pytest.mark.parametrize(
    ("how", "expected"),
    [("even", (55, 55)), ("proportional", (73.333333333333, 36.666666666667)), ("fixed", (82.5, 27.5))],
)
def test_the_platform_is_shared(north, how, expected):
    for name in ("one", "two"):
        make_tenant(f"acme/{name}")
    weights = {"acme/one": 3, "acme/two": 1} if how == "fixed" else {}
    policy("central", platform=how, platform_cost=Decimal(110), platform_currency="USD", platform_weights=weights)
    used(north, one=4, two=2)
    assert close()
    found = balances()
    assert (found["acme/one"] - 10, found["acme/two"] - 5) == pytest.approx(expected)
    assert found["platform"] == -110
    assert discrepancies() == ()


def test_owners_of_reserved_nodes_bear_what_they_left_unused(north):
    owner = make_tenant("acme/owner")
    times = [ReservedTime(north.id, "n1", owner.id, owner.path, at(5), at(5, 20))]
    policy("reservations")
    used(north, one=2)
    reservation_sources.append(lambda _clusters, _start, _until: times)
    try:
        assert close()
    finally:
        reservation_sources.pop()
    # Idle of the 5th: 22 h = 55. The owner left 20 h = 50 unused; the rest, 5, follows use.
    assert balances() == {"acme/one": 10, "acme/owner": 50, "idle": 1800, "cluster_pool": -1860}


def test_closing_again_after_a_reopening_posts_only_what_differs(north):
    policy()
    used(north, one=4)
    assert close()
    before = LedgerEntry.objects.count()
    period = reopen()
    assert close()
    assert LedgerEntry.objects.count() == before
    assert PoolDay.objects.filter(period=period).count() == 62
    reopen()
    record_runs([make_run(north, "acme/two", started_at=at(5, 4), until_at=at(5, 6))])
    assert close()
    assert balances() == {"acme/one": 40, "acme/two": 20, "idle": 1800, "cluster_pool": -1860}
    assert LedgerEntry.objects.filter(kind="reversal").count() == 2  # of the pool, and of acme/one's share
    assert discrepancies() == ()


def reopen():
    period = LedgerPeriod.objects.get(month=MONTH)
    for step in (
        lambda actor: periods.request_reopening(actor, period.id, "late"),
        lambda actor: periods.approve_reopening(actor, period.id),
    ):
        person = make_user()
        bind(person, "acme", "finance")
        step(actor_for(person))
    return period


def test_a_corrected_price_counts_on_both_sides(north):
    policy()
    used(north, one=4)
    posting.post_days()
    correct_price(SYSTEM, NewCorrection(Price.objects.get().id, Decimal(1), "USD", at(5), at(6), "typo"))
    assert close()
    assert balances() == {"acme/one": 24, "idle": 1800, "cluster_pool": -1824}
    assert discrepancies() == ()


def test_a_guest_pays_beside_the_gpus(north):
    make_flavor(north, "cpu", gpu_model="", vendor="")
    create_price(SYSTEM, NewPrice("north", "cpu", Decimal("0.05"), effective_from=at(1, month=9)))
    policy("central")
    record_runs([
        make_run(north, "acme/one", started_at=at(5), until_at=at(6)),
        make_run(north, "acme/two", gpu_units=0, started_at=at(5), until_at=at(5, 10)),
    ])  # fmt: skip
    assert close()
    fifth = PoolDay.objects.get(day=date(2026, 10, 5), flavor="h100")
    assert (fifth.cost, fifth.charged, fifth.idle) == (61, 61, 0)


def test_days_before_the_history_are_not_judged(north):
    south = priced_cluster("south")
    offered(south, start=at(20))
    policy("central")
    used(south, one=4)
    used(north, one=4)
    assert close()
    assert PoolDay.objects.filter(cluster=south).count() == 12
    assert balances()["acme/one"] == 20


# Negative idle


@pytest.fixture
def overused(north):
    """Two runs at the same time on a pool of one GPU."""
    policy()
    record_runs([make_run(north, f"acme/{name}", started_at=at(5), until_at=at(5, 20)) for name in ("one", "two")])
    return north


def test_negative_idle_waits_for_a_person_and_is_never_clamped(overused):
    assert not close()
    (row,) = NegativeIdle.objects.all()
    assert (row.cost, row.charged, row.flavor, row.day) == (60, 100, "h100", date(2026, 10, 5))
    period = LedgerPeriod.objects.get(month=MONTH)
    assert [item.name for item in checklist(period) if not item.is_fulfilled] == ["no_negative_idle"]
    assert not periods.finish_closing(period.id)
    assert NegativeIdle.objects.count() == 1
    person = make_user()
    bind(person, "acme", "finance")
    sharing.accept_negative_idle(actor_for(person), row.id, "a node that the history lacks")
    assert periods.finish_closing(period.id)
    settle_pending_checks()
    assert balances() == {"acme/one": 50, "acme/two": 50, "idle": 1760, "cluster_pool": -1860}
    assert PoolDay.objects.get(day=date(2026, 10, 5)).idle == -40
    with pytest.raises(Conflict):
        sharing.accept_negative_idle(actor_for(person), row.id, "again")
    assert discrepancies() == ()


def test_numbers_that_no_longer_apply_are_superseded(overused):
    assert not close()
    offered(overused, "n2", start=at(5), until=at(6))
    assert periods.finish_closing(LedgerPeriod.objects.get(month=MONTH).id)
    assert NegativeIdle.objects.get().state == "superseded"


def test_only_who_may_close_months_accepts(overused):
    close()
    row = NegativeIdle.objects.get()
    for path in ("other", "acme/one"):
        person = make_user()
        bind(person, path, "finance")
        with pytest.raises(NotFound):
            sharing.accept_negative_idle(actor_for(person), row.id, "mine")


# Documents


def test_a_share_is_a_line_of_its_own_on_an_invoice(north):
    policy(platform="even", platform_cost=Decimal(10), platform_currency="USD")
    used(north, one=4)
    assert close()
    issued()
    lines = {line.flavor: (line.cluster_name, line.quantity is None, line.amount) for line in InvoiceLine.objects.all()}
    assert lines == {
        "h100": ("north", False, 10), "idle capacity": ("north", True, 50), "shared platform": ("", True, 10),
    }  # fmt: skip
    assert discrepancies() == ()


# Policies


def test_a_policy_changes_no_closed_month_and_the_later_one_applies(north):
    policy("central")
    policy("proportional")
    used(north, one=4)
    assert close()
    assert balances()["acme/one"] == 60
    with pytest.raises(Conflict) as refused:
        policy("central")
    assert refused.value.code == "month_is_closed"
    policy("central", start=date(2026, 11, 1))


@pytest.mark.parametrize(
    "more",
    [
        {"platform": "fixed"},
        {"platform": "fixed", "platform_weights": {"other": 1}},
        {"platform": "even", "platform_weights": {"acme": 1}},
    ],
)
def test_weights_are_of_tenants_of_the_organisation(north, more):
    make_tenant("other")
    with pytest.raises(Invalid):
        policy("central", platform_cost=Decimal(1), platform_currency="USD", **more)


def test_a_team_sets_no_policy(north):
    make_tenant("acme/one")
    person = make_user()
    bind(person, "acme/one")
    with pytest.raises(NotFound):
        set_policy(actor_for(person), NewPolicy("acme", MONTH, "central"))
    with pytest.raises(NotFound):
        set_policy(SYSTEM, NewPolicy("acme/one", MONTH, "central"))


# Attacks


ATTACKS = {
    "pool day rewritten": ("UPDATE billing_poolday SET idle = 0, cost = charged", "ledger_is_append_only"),
    "pool day deleted": ("DELETE FROM billing_poolday", "ledger_is_append_only"),
    "policy rewritten": ("UPDATE billing_sharingpolicy SET idle = 'central'", "ledger_is_append_only"),
    "policy of a closed month": (
        (
            "INSERT INTO billing_sharingpolicy (organisation_id, effective_from, idle, platform, platform_cost, platform_currency,"
            " platform_weights, made_by_name) SELECT organisation_id, effective_from, 'central', 'even', 0, '', '{}', '' FROM"
            " billing_sharingpolicy"
        ),
        "policy_changes_no_closed_month",
    ),
    "pool day after the close": (
        (
            "INSERT INTO billing_poolday (period_id, revision, cluster_id, flavor, day, currency, cost, charged, overhead, idle, shared,"
            " assumed, last_entry, last_correction) SELECT period_id, revision, cluster_id, 'a100', day, currency, cost, charged,"
            " overhead, idle, shared, assumed, last_entry, last_correction FROM billing_poolday LIMIT 1"
        ),
        "pools_are_recorded_at_a_close",
    ),
}


@pytest.mark.parametrize(("statement", "constraint"), ATTACKS.values(), ids=ATTACKS.keys())
def test_the_database_refuses(north, statement, constraint):
    policy()
    used(north, one=4)
    assert close()
    with pytest.raises(IntegrityError) as refused, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)
    assert constraint_of(refused.value) == constraint


def test_a_month_closes_only_with_what_its_pools_left(north, monkeypatch):
    """Shares that differ from the pools are refused at commit."""
    policy()
    used(north, one=4)
    monkeypatch.setattr(sharing, "record_pools", lambda _period, _month: None)
    with pytest.raises(IntegrityError) as refused:
        close()
    assert constraint_of(refused.value) == "ledger_shares_what_pools_left"


def test_a_share_outside_a_close_is_refused(north):
    policy()
    used(north, one=4)
    assert close()
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO billing_ledgerperiod (id, organisation_id, month, state, created_at) SELECT gen_random_uuid(),"
            " organisation_id, '2026-11-01', 'open', now() FROM billing_ledgerperiod"
        )
    with pytest.raises(IntegrityError) as refused:
        forge(
            "INSERT INTO billing_ledgerentry (organisation_id, period_id, key, kind, tenant_path, cluster_id, flavor, charge_day,"
            " reason, line_count, digest) SELECT e.organisation_id, p.id, 'idle/forged', 'idle', '', cluster_id, flavor,"
            " '2026-11-30', 'x', 2, '' FROM billing_ledgerentry AS e, billing_ledgerperiod AS p WHERE e.kind = 'idle' AND"
            " p.month = '2026-11-01' LIMIT 1"
        )
    assert constraint_of(refused.value) == "shares_are_posted_at_a_close"


def forge(statement):
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)
