"""Work that infrastructure lost is credited as the policy says: to the last digit, once, and for as long as it counts as lost."""

from datetime import date, timedelta
from decimal import Decimal

import pytest
from django.db.models import Sum

from billing.engine.credits import LossCause
from billing.models import (
    BudgetPeriod,
    CreditPolicy,
    InvoiceLine,
    LedgerEntry,
    LedgerLine,
    LedgerPeriod,
    LostWork,
    Price,
)
from billing.operations import periods, posting, record_lost_work, record_runs
from billing.operations.corrections import NewCorrection, correct_price
from billing.operations.credits import NewCreditPolicy, set_credit_policy
from billing.queries import costs_of, discrepancies, runs_not_charged, usage_report
from billing.queries.credits import lost_work_report
from billing.queries.focus import charges_of
from billing.queries.periods import checksum_of
from billing.queries.sharing_report import sharing_report
from foundation.problems import Conflict, Invalid, NotFound
from tenancy.models import AuditEntry, Tenant
from tenancy.operations import change_tenant
from tenancy.queries import SYSTEM, NotAllowedHere, actor_for
from tests.builders import bind, make_budget, make_run, make_tenant, make_user

from .invoicing import issued
from .ledgers import OCTOBER, at, expense, priced_cluster, settle_pending_checks
from .test_idle import NOVEMBER, offered
from .test_idle import policy as share

pytestmark = pytest.mark.django_db
MONTH = date(2026, 10, 1)
FIFTH = date(2026, 10, 5)


@pytest.fixture
def north():
    return priced_cluster()


def waive(*causes, start=MONTH, path="acme"):
    make_tenant(path)
    return set_credit_policy(SYSTEM, NewCreditPolicy(path, start, causes))


def ran(cluster, path="acme/one", *, start=None, hours=4, **more):
    start = start or at(5)
    run = make_run(cluster, path, started_at=start, until_at=start + timedelta(hours=hours), **more)
    record_runs([run])
    return run


def lose(run, cause="node_lost", after=1):
    """The run lost its work from so many hours after its start on."""
    return record_lost_work({run.run_id: (cause, run.started_at + timedelta(hours=after))})


def post():
    posting.post_days()
    settle_pending_checks()


def balances():
    rows = (
        LedgerLine.objects.values_list("account__kind", "account__tenant__path").annotate(sum=Sum("amount")).order_by()
    )
    return {path or kind: float(amount) for kind, path, amount in rows}


def close(month=MONTH):
    post()
    period = LedgerPeriod.objects.get(month=month)
    periods.begin_closing(SYSTEM, period.id)
    assert periods.finish_closing(period.id)
    settle_pending_checks()
    return LedgerPeriod.objects.get(id=period.id)


def test_lost_work_is_charged_in_full_and_credited(north):
    waive("node_lost")
    run = ran(north)
    lose(run)
    post()
    assert balances() == {"acme/one": 2.5, "cluster_pool": -10, "infrastructure": 7.5}
    usage, credit = LedgerEntry.objects.order_by("id")
    assert (usage.kind, credit.kind, credit.charge_day) == ("usage", "credit", FIFTH)
    assert credit.reason == f"work lost, node_lost: policy {CreditPolicy.objects.get().id}"
    report = usage_report(SYSTEM, "acme", OCTOBER, NOVEMBER, ["job"]).total
    assert (report.cost, report.credits, report.corrections) == (Decimal("2.5"), Decimal("-7.5"), 0)
    cost = costs_of([run.workload_id])[run.workload_id]
    assert (cost.amount, cost.not_charged) == (Decimal("2.5"), Decimal("7.5"))
    assert runs_not_charged([run.run_id]) == {run.run_id: {"USD": Decimal("7.5")}}
    assert discrepancies() == ()


def test_posting_again_and_recording_again_change_nothing(north):
    waive("node_lost")
    run = ran(north)
    assert (lose(run), lose(run)) == (1, 0)
    post()
    before = LedgerEntry.objects.count()
    LostWork.objects.create(run_id=run.run_id, cause="node_lost", lost_from=at(5, 1))
    post()
    assert LedgerEntry.objects.count() == before


@pytest.mark.parametrize("causes", [(), ("spot", "device")])
def test_without_a_policy_or_for_another_cause_all_is_charged(north, causes):
    if causes:
        waive(*causes)
    lose(ran(north))
    post()
    assert balances() == {"acme/one": 10, "cluster_pool": -10}
    (line,) = lost_work_report(SYSTEM, "acme", MONTH).lines
    assert (line.cause, line.runs, line.gpu_hours, line.cost, line.credits) == ("node_lost", 1, 3, Decimal("7.5"), 0)


def test_a_policy_that_is_set_later_and_changed_again_applies_to_its_open_months(north):
    lose(ran(north))
    lose(ran(north, start=at(5, month=9)))
    post()
    for causes, credited in ((("node_lost",), 7.5), ((), 0), (("spot", "node_lost"), 7.5), (("node_lost",), 7.5)):
        waive(*causes)
        post()
        assert balances().get("infrastructure", 0) == credited
        assert discrepancies() == ()
    # each change reverses what it replaces, by its own version
    assert LedgerEntry.objects.filter(kind="credit").count() == 3
    assert LedgerEntry.objects.filter(reverses__kind="credit").count() == 2
    waive("node_lost", start=date(2026, 9, 1))
    post()
    assert balances() == {"acme/one": 5, "cluster_pool": -20, "infrastructure": 15}


def test_late_truth_takes_the_credit_back(north):
    waive("node_lost", "cluster_lost")
    run = ran(north)
    lose(run, "cluster_lost", after=0)
    post()
    assert balances()["acme/one"] == 0
    lose(run, "cluster_lost", after=3)  # a checkpoint turned up
    post()
    assert balances()["acme/one"] == 7.5
    record_lost_work({run.run_id: ("", None)})  # its program had ended on its own
    post()
    assert (balances()["acme/one"], balances()["infrastructure"]) == (10, 0)
    assert usage_report(SYSTEM, "acme", OCTOBER, NOVEMBER).total.credits == 0
    assert discrepancies() == ()


def test_what_is_known_after_the_close_is_in_the_next_open_month(north):
    waive("node_lost")
    run = ran(north)
    lose(run)
    other = ran(north, "acme/two")
    closed = close()
    lose(run, after=3)
    lose(other)
    post()
    late = LedgerEntry.objects.exclude(period=closed)
    assert {(entry.charge_day, f"{entry.period.month:%Y-%m}") for entry in late} == {(FIFTH, "2026-11")}
    assert expense(entry__period=closed) == Decimal("12.5")
    assert expense() == Decimal("7.5") + Decimal("2.5")
    closed.refresh_from_db()
    assert checksum_of(closed.id) == closed.checksum
    assert discrepancies() == ()


def test_a_policy_changes_no_closed_month(north):
    lose(ran(north))
    close()
    with pytest.raises(Conflict) as refused:
        waive("node_lost")
    assert refused.value.code == "month_is_closed"
    waive("node_lost", start=date(2026, 11, 1))
    post()
    assert balances() == {"acme/one": 10, "cluster_pool": -10}


def test_credits_follow_corrections_of_prices(north):
    waive("spot")
    lose(ran(north), "spot")
    post()
    correct_price(SYSTEM, NewCorrection(Price.objects.get().id, Decimal(1), "USD", at(5, 2), at(5, 3), "contract"))
    post()
    assert balances() == {"acme/one": 2.5, "cluster_pool": -8.5, "infrastructure": 6}
    report = usage_report(SYSTEM, "acme", OCTOBER, NOVEMBER).total
    assert (report.cost, report.corrections, report.credits) == (Decimal("2.5"), Decimal("-1.5"), Decimal(-6))
    assert discrepancies() == ()


def test_each_day_of_a_long_run_is_credited_by_its_months_policy(north):
    waive("device", start=date(2026, 9, 1))
    waive()
    run = ran(north, start=at(30, 22, month=9), hours=4, gpu_units=3)
    lose(run, "device", after=0.51)
    post()
    seconds = Decimal(7200 - 1836)
    credit = LedgerEntry.objects.get(kind="credit")
    assert credit.charge_day == date(2026, 9, 30)
    assert balances()["infrastructure"] == float(seconds * 3 * Decimal("2.5") / 3600)
    assert discrepancies() == ()


def test_late_pods_of_a_lost_run_are_credited_too(north):
    waive("node_lost")
    run = ran(north)
    lose(run)
    post()
    ran(north, run_id=run.run_id, workload_id=run.workload_id, start=at(6), hours=2)
    post()
    assert balances() == {"acme/one": 2.5, "cluster_pool": -15, "infrastructure": 12.5}
    assert discrepancies() == ()


def test_a_moved_tenant_keeps_the_credits_of_its_former_place(north):
    waive("node_lost")
    run = ran(north)
    post()
    change_tenant(SYSTEM, Tenant.objects.get(path="acme/one").id, parent_id=make_tenant("acme/dept").id)
    lose(run)
    post()
    assert LedgerEntry.objects.get(kind="credit").tenant_path == "acme/one"
    (line,) = lost_work_report(SYSTEM, "acme", MONTH).lines
    assert (line.tenant, line.credits) == ("acme/one", Decimal("-7.5"))
    assert discrepancies() == ()


def test_budgets_follow_credits(north):
    waive("node_lost")
    make_budget("acme", "100", starts_at=OCTOBER)
    run = ran(north)
    lose(run)
    post()
    assert BudgetPeriod.objects.get().spent == Decimal("2.5")
    record_lost_work({run.run_id: ("", None)})
    post()
    assert BudgetPeriod.objects.get().spent == 10
    assert discrepancies() == ()


def test_an_invoice_has_credits_as_a_line_of_its_own(north):
    waive("node_lost")
    lose(ran(north))
    close()
    invoice = issued(month=MONTH)
    settle_pending_checks()
    lines = InvoiceLine.objects.filter(invoice=invoice).values_list("flavor", "amount").order_by("flavor")
    assert list(lines) == [("h100", 10), ("infrastructure credit", Decimal("-7.5"))]
    assert invoice.total == Decimal("2.5")
    assert discrepancies() == ()


def test_exports_carry_credits(north):
    waive("node_lost")
    lose(ran(north))
    found = list(charges_of(SYSTEM, "acme", OCTOBER, NOVEMBER))
    assert [(one.cost, one.is_credit) for one in found] == [(10, False), (Decimal("-7.5"), True)]


def test_the_bridge_shows_credits_and_adds_up_before_and_after_the_close(north):
    offered(north)
    share()
    waive("node_lost")
    lose(ran(north))
    ran(north, "acme/two")
    before = sharing_report(SYSTEM, "acme", MONTH)
    close()
    after = sharing_report(SYSTEM, "acme", MONTH)
    assert (before.bridges, before.tenants) == (after.bridges, after.tenants)
    (bridge,) = after.bridges
    assert (bridge.charged, bridge.credits, bridge.infrastructure) == (20 * 10**12, -75 * 10**11, 75 * 10**11)
    parts = (
        bridge.charged,
        bridge.credits,
        bridge.infrastructure,
        bridge.idle_shared,
        bridge.idle_central,
        bridge.overhead,
    )
    assert sum(parts) == bridge.total
    # idle capacity is shared by what was used, as if nothing had been lost
    shares = {one.tenant: (one.credits / 10**12, one.idle) for one in after.tenants}
    assert shares["acme/one"] == (-7.5, shares["acme/two"][1])
    assert discrepancies() == ()


def test_only_those_who_close_months_set_a_policy_and_it_is_audited(north):
    make_tenant("acme/one")
    for path, role, error in (("acme/one", "finance", NotFound), ("acme", "viewer", NotAllowedHere)):
        user = make_user()
        bind(user, path, role)
        with pytest.raises(error):
            set_credit_policy(actor_for(user), NewCreditPolicy("acme", MONTH, ["spot"]))
    with pytest.raises(Invalid):
        waive("bad luck")
    waive("spot", "spot", "device")
    assert CreditPolicy.objects.get().causes == ["device", "spot"]
    audit = AuditEntry.objects.get(action="credit_policy.set")
    assert audit.detail == {"from": "2026-10", "causes": "device, spot"}


def test_a_run_without_a_price_has_nothing_to_credit():
    cluster = priced_cluster(since=at(20))
    waive(*LossCause)
    lose(ran(cluster))
    post()
    assert not LedgerEntry.objects.exists()
    (line,) = lost_work_report(SYSTEM, "acme", MONTH).lines
    assert (line.currency, line.cost, line.credits) == ("", 0, 0)
