"""A month beside invoices of providers: what is imported, what it differs by, and when the month closes with it."""

from datetime import date
from decimal import Decimal
from fractions import Fraction

import pytest
from django.db import IntegrityError, connection, transaction

from billing.engine.reconciliation import USUAL_TOLERANCE
from billing.models import AcceptedVariance, ConversionDay, PoolDay, ProviderInvoiceLine, ReconciledCluster
from billing.operations import periods, posting
from billing.operations.conversion import convert_days
from billing.operations.reconciliation import (
    ImportedInvoices,
    accept_variance,
    record_reconciliation,
    set_variance_tolerance,
)
from billing.queries import discrepancies
from billing.queries.reconciliation import reconciliation, reconciliation_of
from billing.queries.sharing_report import sharing_report
from foundation.problems import Conflict, Invalid, NotFound
from tenancy.models import AuditEntry
from tenancy.queries import SYSTEM, NotAllowedHere, actor_for
from tests.builders import bind, make_cluster, make_user
from tests.refusals import constraint_of

from .exchanging import billed_in, imported
from .ledgers import at, priced_cluster, settle_pending_checks
from .reconciling import billed, closes, period, reconciled_item
from .test_idle import MONTH, close, offered, policy, used

pytestmark = pytest.mark.django_db
UNIT = 10**12
OF_RATES = "Date,USD\n" + "".join(f"2026-10-{day:02},{1 + day / 100:.2f}\n" for day in range(31, 0, -1))


@pytest.fixture
def north():
    """One GPU at 2.50 in October: 60 a day, 1860 in the month."""
    cluster = priced_cluster()
    offered(cluster)
    return cluster


def person(path="acme", role="finance"):
    user = make_user()
    bind(user, path, role)
    return actor_for(user)


def october():
    return reconciliation(SYSTEM, "acme", MONTH)


def row(name="north"):
    (found,) = [one for one in october().rows if one.cluster == name]
    return found


def accept(variance, note="agreed with the provider", actor=SYSTEM, cluster="north"):
    made = accept_variance(actor, "acme", MONTH, cluster, variance=Decimal(variance), note=note)
    settle_pending_checks()
    return made


def test_a_cluster_costs_what_its_pools_cost_and_the_variance_is_the_rest(north):
    used(north, one=4)
    posting.post_days()
    assert billed("north,2026-10,INV-1,1900,USD,", "north,2026-10,CREDIT,-12.5,USD,late") == ImportedInvoices(2, 0, 0)
    its = row().compared
    assert (its.charged, its.overhead, its.idle) == (10 * UNIT, 0, 1850 * UNIT)
    assert (its.cost, its.invoiced, its.variance) == (1860 * UNIT, 1887.5 * UNIT, 27.5 * UNIT)
    (bridge,) = sharing_report(SYSTEM, "acme", MONTH).bridges
    (total,) = october().totals
    assert (total.charged, total.idle, total.overhead) == (
        bridge.charged,
        bridge.idle_shared + bridge.idle_central,
        bridge.overhead,
    )
    assert total.cost + total.variance == total.invoiced


def test_clusters_without_an_invoice_and_invoices_without_a_cost_are_shown(north):
    make_cluster(name="south")
    west = priced_cluster("west", "a100", "1")
    offered(west, flavor="a100")
    used(north, one=4)
    posting.post_days()
    billed("north,2026-10,A,1860,USD,", "south,2026-10,A,5,USD,")
    rows = {one.cluster: one.compared for one in october().rows}
    assert {name: (its.cost / UNIT, its.invoiced) for name, its in rows.items()} == {
        "north": (1860, 1860 * UNIT), "south": (0, 5 * UNIT), "west": (744, None),
    }  # fmt: skip
    (total,) = october().totals
    assert [one / UNIT for one in (total.cost, total.not_invoiced, total.variance, total.invoiced)] == [
        2604,
        744,
        5,
        1865,
    ]
    assert reconciled_item().detail == "Invoices of providers differ from the ledger: south (no cost)."


def test_what_was_charged_outside_the_history_of_the_fleet_is_a_cost():
    used(priced_cluster(), one=4)
    posting.post_days()
    billed("north,2026-10,A,10,USD,")
    its = row().compared
    assert (its.charged, its.idle, its.variance) == (10 * UNIT, 0, 0)


def test_the_report_is_an_independent_sum_of_the_pools_days_in_the_billing_currency(north):
    """Each day at its own rate; the invoice at the rate of the last day."""
    billed_in("EUR")
    imported(OF_RATES)
    used(north, one=4, two=7)
    posting.post_days()
    convert_days()
    assert not ConversionDay.objects.exists()
    billed("north,2026-10,A,1500,USD,", "north,2026-10,B,31,EUR,")
    found = row().compared
    rates = {day: Fraction(100, 100 + day) for day in range(1, 32)}
    charged = Fraction(5, 2) * 11 * rates[5]
    cost = sum(60 * rate for rate in rates.values())
    invoiced = 1500 * rates[31] + 31
    for amount, exact in ((found.charged, charged), (found.cost, cost), (found.invoiced, invoiced)):
        assert abs(Fraction(amount, UNIT) - exact) < Fraction(1, 10**11)
    assert found.currency == october().currency == "EUR"
    assert abs(found.percent - 100 * (invoiced - cost) / cost) < Fraction(1, 10**9)


def test_a_missing_rate_is_said_and_keeps_the_month_open(north):
    billed_in("EUR")
    imported()
    used(north, one=4)
    billed("north,2026-10,A,1500,USD,")
    assert row().compared.fault == "No exchange rate for USD to EUR on 2026-10-01 and 19 more."
    item = reconciled_item()
    assert not item.is_fulfilled
    assert "No exchange rate for USD to EUR" in item.detail
    with pytest.raises(Conflict) as refused:
        accept("1")
    assert refused.value.code == "nothing_to_accept"


def test_the_same_file_again_changes_nothing_and_another_amount_replaces_it(north):
    before = AuditEntry.objects.count()
    assert billed("north,2026-10,A,10,USD,", "north,2026-10,B,5,USD,") == ImportedInvoices(2, 0, 0)
    assert AuditEntry.objects.count() == before + 1
    was = list(ProviderInvoiceLine.objects.order_by("id").values())
    assert billed("north,2026-10,A,10.000,USD,", "north,2026-10,B,5,USD,") == ImportedInvoices(0, 0, 2)
    assert list(ProviderInvoiceLine.objects.order_by("id").values()) == was
    assert AuditEntry.objects.count() == before + 1
    teller = person()
    assert billed("north,2026-10,A,11,USD,", "north,2026-10,B,5,USD,", actor=teller) == ImportedInvoices(0, 1, 1)
    line = ProviderInvoiceLine.objects.get(reference="A")
    assert (line.amount, line.recorded_by_name) == (11, teller.name)
    entry = AuditEntry.objects.get(action="provider_invoice.change")
    assert (entry.detail["before"], entry.detail["after"]) == ("10 USD", "11 USD")


def test_a_file_is_imported_as_a_whole_or_not_at_all(north):
    make_cluster("other", name="theirs")
    with pytest.raises(Invalid) as foreign:
        billed("north,2026-10,A,10,USD,", "theirs,2026-10,A,10,USD,")
    assert [(one.field, one.code) for one in foreign.value.errors] == [("file", "unknown_cluster")]
    assert "line 3" in foreign.value.errors[0].detail
    with pytest.raises(Invalid):
        billed("north,2026-10,A,10,USD,", "north,2026-10,A,11,USD,")
    with pytest.raises(Invalid) as later:
        billed("north,2026-10,A,10,USD,", "north,2199-01,A,10,USD,")
    assert later.value.errors[0].code == "in_the_future"
    assert not ProviderInvoiceLine.objects.exists()


def test_who_may_not_close_months_imports_and_accepts_nothing(north):
    viewer, stranger = person(role="viewer"), person("other")
    for act in (
        lambda who: billed("north,2026-10,A,10,USD,", actor=who),
        lambda who: set_variance_tolerance(who, "acme", MONTH, Decimal(5)),
        lambda who: accept("1", actor=who),
    ):
        with pytest.raises(NotAllowedHere):
            act(viewer)
        with pytest.raises(NotFound):
            act(stranger)
    assert reconciliation(viewer, "acme", MONTH).organisation == "acme"
    for who in (stranger, person("acme/one", "admin")):
        with pytest.raises(NotFound):
            reconciliation(who, "acme", MONTH)


def test_without_invoices_a_month_closes_as_before(north):
    used(north, one=4)
    assert reconciled_item().is_fulfilled
    assert close()
    assert not ReconciledCluster.objects.exists()


def test_a_month_closes_with_invoices_within_the_tolerance_and_keeps_the_amounts(north):
    policy("central")
    used(north, one=4)
    posting.post_days()
    billed("north,2026-10,A,1890,USD,")
    before = october()
    assert (before.tolerance, before.is_final) == (2, False)
    assert close()
    after = october()
    assert after.is_final
    assert (after.rows, after.totals) == (before.rows, before.totals)
    kept = ReconciledCluster.objects.get()
    assert (kept.revision, kept.charged, kept.idle, kept.invoiced) == (1, 10, 1850, 1890)
    assert PoolDay.objects.count() == 31
    assert discrepancies() == ()


def test_beyond_the_tolerance_a_person_decides_and_another_amount_voids_it(north):
    used(north, one=4)
    posting.post_days()
    billed("north,2026-10,A,2000,USD,")
    item = reconciled_item()
    assert (item.is_fulfilled, item.detail) == (False, "Invoices of providers differ from the ledger: north (+7.53 %).")
    with pytest.raises(Conflict) as open_:
        close()
    assert open_.value.code == "period_not_ready"
    with pytest.raises(Conflict) as other:
        accept("139")
    assert other.value.code == "variance_changed"
    teller = person()
    assert accept("140", actor=teller).accepted_by_name == teller.name
    assert AuditEntry.objects.get(action="variance.accept").detail["variance"] == "140 USD"
    assert reconciled_item().is_fulfilled
    with pytest.raises(Conflict) as twice:
        accept("140")
    assert twice.value.code == "variance_accepted"
    billed("north,2026-10,A,2001,USD,")
    assert not reconciled_item().is_fulfilled
    assert row().note == ""
    billed("north,2026-10,A,2000,USD,")
    assert reconciled_item().is_fulfilled
    assert close()
    assert row().note == "agreed with the provider"


def test_a_cost_that_changes_voids_the_acceptance_too(north):
    used(north, one=4)
    posting.post_days()
    billed("north,2026-10,A,2000,USD,")
    accept("140")
    offered(north, "n2", start=at(9), until=at(10))
    assert row().compared.variance == 80 * UNIT
    assert not reconciled_item().is_fulfilled


def test_a_month_that_is_closing_waits_for_the_decision(north):
    used(north, one=4)
    billed("north,2026-10,A,1860,USD,")
    posting.post_days()
    periods.begin_closing(SYSTEM, period().id)
    offered(north, "n2", start=at(9), until=at(20))
    assert not closes()
    assert period().state == "closing"
    accept("-660")
    assert closes()
    with pytest.raises(Conflict) as refused:
        accept("-660")
    assert refused.value.code == "month_is_closed"


def test_a_closed_or_closing_month_takes_no_invoices(north):
    used(north, one=4)
    posting.post_days()
    billed("north,2026-10,A,1860,USD,")
    periods.begin_closing(SYSTEM, period().id)
    for lines in (["north,2026-10,A,1861,USD,"], ["north,2026-11,A,5,USD,", "north,2026-10,B,1,USD,"]):
        with pytest.raises(Conflict) as closing:
            billed(*lines)
        assert closing.value.code == "month_is_closed"
    assert closes()
    with pytest.raises(Conflict):
        billed("north,2026-10,A,1861,USD,")
    assert billed("north,2026-10,A,1860,USD,") == ImportedInvoices(0, 0, 1)
    assert ProviderInvoiceLine.objects.count() == 1
    with pytest.raises(Conflict) as policy_refused:
        set_variance_tolerance(SYSTEM, "acme", MONTH, Decimal(5))
    assert policy_refused.value.code == "month_is_closed"


def test_the_tolerance_of_the_month_counts(north):
    used(north, one=4)
    posting.post_days()
    billed("north,2026-10,A,2000,USD,")
    set_variance_tolerance(SYSTEM, "acme", MONTH, Decimal("7.5"))
    set_variance_tolerance(SYSTEM, "acme", date(2026, 11, 1), Decimal(50))
    assert not reconciled_item().is_fulfilled
    set_variance_tolerance(SYSTEM, "acme", MONTH, Decimal("7.527"))
    assert reconciled_item().is_fulfilled
    assert close()
    for wrong in ("-1", "100.001", "1.0001", "NaN"):
        with pytest.raises(Invalid):
            set_variance_tolerance(SYSTEM, "acme", date(2026, 11, 1), Decimal(wrong))


def test_a_month_that_is_reopened_is_compared_again(north):
    used(north, one=4)
    billed("north,2026-10,A,1860,USD,")
    assert close()
    periods.request_reopening(person(), period().id, "a late invoice")
    periods.approve_reopening(person(), period().id)
    settle_pending_checks()
    assert not october().is_final
    billed("north,2026-10,B,2,USD,")
    assert close()
    assert list(ReconciledCluster.objects.order_by("id").values_list("revision", "invoiced")) == [(1, 1860), (2, 1862)]
    assert row().compared.variance == 2 * UNIT


def test_the_database_closes_no_month_whose_invoices_are_not_reconciled(north, monkeypatch):
    used(north, one=4)
    billed("north,2026-10,A,1860,USD,")
    monkeypatch.setattr("billing.operations.periods.record_reconciliation", lambda *_: None)
    posting.post_days()
    periods.begin_closing(SYSTEM, period().id)
    with pytest.raises(IntegrityError) as refused, transaction.atomic():
        periods.finish_closing(period().id)
    assert constraint_of(refused.value) == "period_closes_reconciled"


def test_a_variance_that_no_person_accepted_is_not_recorded_as_reconciled(north):
    used(north, one=4)
    posting.post_days()
    billed("north,2026-10,A,1860,USD,")
    periods.begin_closing(SYSTEM, period().id)
    offered(north, "n2", start=at(9), until=at(20))
    with pytest.raises(IntegrityError) as refused, transaction.atomic():
        record_reconciliation(period(), reconciliation_of(period().organisation, MONTH))
    assert constraint_of(refused.value) == "reconciled_cluster_is_within_tolerance"
    assert not AcceptedVariance.objects.exists()


def test_the_usual_tolerance_is_the_databases():
    with connection.cursor() as cursor:
        cursor.execute("SELECT billing_variance_tolerance(gen_random_uuid(), '2026-10-01')")
        assert cursor.fetchone()[0] == USUAL_TOLERANCE
