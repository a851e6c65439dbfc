"""Commitments in the ledger: every hour is used or unused, to the last digit, whatever comes late, twice or corrected."""

from datetime import date, timedelta
from decimal import Decimal

import pytest
from django.db import connection, transaction

from billing.models import (
    CommitmentDay,
    CommitmentDueDay,
    CommitmentHour,
    LedgerEntry,
    LedgerLine,
    LedgerPeriod,
    PeriodReopening,
    Price,
)
from billing.operations import commitment_days, periods, posting, record_lost_work, record_runs
from billing.operations.commitment_days import MARK_ENDED, split_commitments, split_due_day
from billing.operations.commitments import apply_commitments, plan_commitments
from billing.operations.corrections import NewCorrection, correct_price
from billing.operations.credits import NewCreditPolicy, set_credit_policy
from billing.queries import discrepancies
from billing.queries.commitment_report import Borne, commitment_report
from billing.queries.periods import checklist
from billing.queries.sharing_report import sharing_report
from foundation.problems import Conflict, Invalid, NotFound
from tenancy.queries import SYSTEM, NotAllowedHere, actor_for
from tests.builders import bind, make_run, make_user

from .committing import DAYS, HOURS, MONTH, balances, committed, file_of, split
from .exchanging import billed_in, imported
from .invoicing import issued
from .ledgers import at, priced_cluster, settle_pending_checks
from .test_idle import offered, policy

pytestmark = pytest.mark.django_db
E12 = 10**12


@pytest.fixture
def north():
    return priced_cluster()


def used(cluster, day=5, **hours):
    """Runs of `acme/NAME` on one GPU for so many hours."""
    for name, count in hours.items():
        record_runs([make_run(cluster, f"acme/{name}", started_at=at(day), until_at=at(day) + timedelta(hours=count))])


def close():
    periods.keep_ledger()
    period = LedgerPeriod.objects.get(month=MONTH)
    periods.begin_closing(SYSTEM, period.id)
    is_closed = periods.finish_closing(period.id)
    settle_pending_checks()
    return is_closed


def test_what_was_paid_is_used_by_tenants_or_unused_and_covered_usage_is_taken_back(north):
    used(north, one=4)
    committed({"until": "2026-11-01T00:00:00Z", "upfront": 744})
    # One of two units for four hours at one an hour: 2 is used, and the 10 that the usage cost is taken back.
    assert balances() == {
        "acme/one": 2, "cluster_pool": -10, "commitment_covered": 10, "commitment_unused": 742, "purchases": -744,
    }  # fmt: skip
    assert CommitmentDay.objects.count() == 31
    assert CommitmentHour.objects.count() == 744
    assert not CommitmentDueDay.objects.exists()
    assert discrepancies() == ()


def test_splitting_again_changes_nothing(north):
    used(north, one=4)
    committed()
    before = LedgerEntry.objects.count(), CommitmentDay.objects.count()
    CommitmentDueDay.objects.create(organisation_id=LedgerPeriod.objects.first().organisation_id, day=date(2026, 10, 5))
    assert split() == 1
    assert (LedgerEntry.objects.count(), CommitmentDay.objects.count()) == before


def test_late_usage_is_split_again_by_reversal_and_reentry(north):
    used(north, one=4)
    committed()
    used(north, two=4)
    assert split() == 1
    found = balances()
    assert (found["acme/one"], found["acme/two"], found["commitment_unused"]) == (2, 2, HOURS - 4)
    used(north, three=2)
    split()
    # In two of the hours three share two units: two thirds each.
    found = balances()
    assert found["acme/one"] - found["acme/two"] == Decimal("2e-12")
    assert found["commitment_unused"] == HOURS - 4
    assert LedgerEntry.objects.filter(kind="reversal", reverses__kind="commitment").exists()
    assert CommitmentDay.objects.filter(day=date(2026, 10, 5)).count() == 2
    assert discrepancies() == ()


def test_the_order_of_reports_does_not_matter(north):
    committed()
    for name in ("b", "a", "c"):
        used(north, **{name: 5})
        split()
    expected = balances()
    with transaction.atomic():
        other = priced_cluster("south")
        committed({"name": "two", "clusters": "[south]"})
        used(other, c=5, a=5, b=5)
        split()
        found = balances(entry__cluster=other)
        transaction.set_rollback(True)
    assert {name: found[name] for name in ("acme/a", "acme/b", "acme/c")} == {
        name: expected[name] for name in ("acme/a", "acme/b", "acme/c")
    }


def test_a_corrected_price_takes_back_what_is_charged_now(north):
    used(north, one=4)
    committed()
    price = Price.objects.get()
    correct_price(SYSTEM, NewCorrection(price.id, Decimal("3.000001"), "USD", at(5, 1), at(5, 3), reason="typo"))
    assert split() == 1
    assert balances()["acme/one"] == 2
    assert balances()["commitment_covered"] == Decimal("11.000002")
    assert discrepancies() == ()


def test_a_month_closes_with_its_commitments_split_and_late_usage_goes_into_the_next(north):
    used(north, one=4)
    committed()
    assert close()
    checksum = LedgerPeriod.objects.get(month=MONTH).checksum
    used(north, two=4)
    split()
    assert LedgerPeriod.objects.get(month=MONTH).checksum == checksum
    november = {"entry__period__month": date(2026, 11, 1)}
    assert balances(**november) == {
        "acme/two": 2, "cluster_pool": -10, "commitment_covered": 10, "commitment_unused": -2,
    }  # fmt: skip
    kinds = {"commitment", "reversal"}
    assert set(
        LedgerEntry.objects.filter(period__month=date(2026, 11, 1), kind__in=kinds).values_list("charge_day", flat=True)
    ) == {date(2026, 10, 5)}
    assert discrepancies() == ()


def test_a_month_does_not_close_while_a_day_is_not_split(north):
    used(north, one=4)
    committed()
    period = LedgerPeriod.objects.get(month=MONTH)
    CommitmentDueDay.objects.create(organisation_id=period.organisation_id, day=date(2026, 10, DAYS))
    assert [item.name for item in checklist(period) if not item.is_fulfilled] == ["split"]
    with pytest.raises(Conflict, match="not split"):
        periods.begin_closing(SYSTEM, period.id)
    assert split() == 1
    periods.begin_closing(SYSTEM, period.id)
    CommitmentDueDay.objects.create(organisation_id=period.organisation_id, day=date(2026, 10, DAYS))
    assert not periods.finish_closing(period.id)


def test_ended_days_are_marked_in_months_that_are_not_closed(north):
    """A closed month has no day that is not split, so the statement does not read its days again."""
    committed({"until": "2026-11-08T00:00:00Z"})
    assert close()
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")  # past the triggers, as no process may
        cursor.execute("UPDATE billing_commitmentversion SET created_at = '2026-10-25 12:00Z'")
        cursor.execute("DELETE FROM billing_commitmenthour")
        cursor.execute("DELETE FROM billing_commitmentday")
        cursor.execute(MARK_ENDED)
        marked = set(CommitmentDueDay.objects.values_list("day", flat=True))
        assert marked == {date(2026, 11, day) for day in range(1, 8)}
        cursor.execute(
            "UPDATE billing_ledgerperiod SET state = 'closing', closed_at = NULL, checksum = '' WHERE month = '2026-10-01'"
        )
        cursor.execute(MARK_ENDED)
        assert CommitmentDueDay.objects.count() == 7 + 8
        cursor.execute("SET LOCAL session_replication_role = origin")


def test_a_reopened_month_closes_again_with_what_came_late(north):
    used(north, one=4)
    committed()
    assert close()
    people = [make_user() for _ in range(2)]
    for person in people:
        bind(person, "acme", "finance")
    period = LedgerPeriod.objects.get(month=MONTH)
    periods.request_reopening(actor_for(people[0]), period.id, "late")
    periods.approve_reopening(actor_for(people[1]), period.id)
    assert PeriodReopening.objects.count() == 1
    used(north, two=4)
    assert close()
    assert balances(entry__period__month=MONTH)["commitment_unused"] == HOURS - 4


@pytest.mark.parametrize(("how", "account"), [("central", "commitment_unused"), ("proportional", "idle")])
def test_the_unused_part_stands_where_the_policy_on_idle_capacity_says(north, how, account):
    offered(north)
    committed()
    used(north, one=4)
    policy(how)
    split()
    assert balances()[account] == HOURS - 2
    assert close()
    assert discrepancies() == ()


def test_a_new_version_splits_its_days_again_and_a_withdrawn_one_leaves_nothing(north):
    used(north, one=4)
    committed()
    committed({"upfront": 2 * HOURS, "units": 4})
    assert (balances()["acme/one"], balances()["purchases"]) == (2, -2 * HOURS)
    committed({"upfront": 2 * HOURS, "units": 4, "withdrawn": "true"})
    assert balances() == {"acme/one": 10, "cluster_pool": -10}
    assert discrepancies() == ()


def test_lost_work_that_is_credited_leaves_the_commitment_unused(north):
    set_credit_policy(SYSTEM, NewCreditPolicy("acme", MONTH, ["node_lost"]))
    run = make_run(north, "acme/one", started_at=at(5), until_at=at(5, 4))
    record_runs([run])
    committed()
    record_lost_work({run.run_id: ("node_lost", at(5, 1))})
    split()
    assert balances() == {
        "acme/one": Decimal("0.5"), "infrastructure": Decimal("7.5"), "cluster_pool": -10, "commitment_covered": Decimal("2.5"),
        "commitment_unused": HOURS - Decimal("0.5"), "purchases": -HOURS,
    }  # fmt: skip
    assert discrepancies() == ()


def test_recurring_payments_are_posted_on_their_days_and_the_asset_ends_at_zero(north):
    committed({"upfront": 0, "recurring": 100, "until": "2026-11-05T00:00:00Z"})
    paid = LedgerLine.objects.filter(entry__kind="purchase", account__kind="commitment")
    assert list(paid.order_by("entry__charge_day").values_list("entry__charge_day", "amount")) == [
        (MONTH, 100), (date(2026, 11, 1), 100),
    ]  # fmt: skip
    assert "commitment" not in balances()
    assert balances()["commitment_unused"] == 200


def test_documents_have_the_commitment_and_what_it_covers(north):
    used(north, one=4)
    committed()
    assert close()
    invoice = issued()
    lines = {row.flavor: (row.exact, row.quantity) for row in invoice.lines.all()}
    assert lines["h100"][0] == 10
    assert lines["covered by commitment"][0] == -10
    assert lines["used commitment"][0] == 2
    assert invoice.exact == 2


def test_in_another_billing_currency_commitments_are_converted_like_charges(north):
    used(north, one=4)
    billed_in("EUR")
    committed()
    imported()
    converted = LedgerLine.objects.filter(account__kind="tenant_converted", currency="EUR")
    assert {line.priced_amount for line in converted} == {10, -10, 2}


def test_a_day_waits_for_the_ledger_to_count_its_usage(north):
    committed()
    used(north, one=4)
    organisation_id = LedgerPeriod.objects.first().organisation_id
    row = CommitmentDueDay.objects.create(organisation_id=organisation_id, day=date(2026, 10, 5))
    assert not split_due_day(row.id)
    assert split() == 1
    assert not split_due_day(row.id)


def test_the_report_has_coverage_and_utilisation_and_what_tenants_bear(north):
    used(north, one=4, two=2)
    committed({"units": 1})
    report = commitment_report(SYSTEM, "acme", MONTH)
    (row,) = report.commitments
    assert (row.amortised, row.used, row.unused) == (HOURS * E12, 4 * E12, (HOURS - 4) * E12)
    (flavor,) = report.coverage
    assert (flavor.quantity, flavor.covered) == (6 * 3_600_000_000, 4 * 3_600_000_000)
    assert report.tenants[("acme/one", "USD")].used + report.tenants[("acme/two", "USD")].used == row.used
    assert report.tenants[("acme/one", "USD")] == Borne(3 * E12, 7_500_000_000_000)
    assert report.unsplit == 0
    assert not report.is_closed


def test_the_bridge_adds_up_to_what_the_ledger_has(north):
    offered(north)
    policy("proportional")
    used(north, one=4, two=2)
    committed()
    for _ in range(2):
        report = sharing_report(SYSTEM, "acme", MONTH)
        (bridge,) = report.bridges
        assert bridge.commitment == -12 * E12
        assert bridge.commitment_unused == (HOURS - 3) * E12
        assert bridge.total == bridge.cost + bridge.commitment + bridge.commitment_unused
        assert {one.tenant: one.commitment for one in report.tenants} == {"acme/one": -8 * E12, "acme/two": -4 * E12}
        if not report.is_final:
            assert close()
    found = balances()
    assert {one.tenant: one.total for one in report.tenants} == {
        name: int(found[name] * E12) for name in ("acme/one", "acme/two")
    }


def test_a_plan_says_what_it_would_change_and_apply_does_exactly_that(north):
    used(north, one=4)
    committed()
    assert plan_commitments(SYSTEM, "acme", file_of({})).changes == ()
    plan = plan_commitments(SYSTEM, "acme", file_of({"units": 1}, {"name": "two"}))
    assert [(one.action, one.name) for one in plan.changes] == [("change", "one"), ("create", "two")]
    with pytest.raises(Conflict) as refused:
        apply_commitments(SYSTEM, "acme", file_of({"units": 3}), expected=plan.digest)
    assert refused.value.code == "commitments_changed"
    assert (
        apply_commitments(SYSTEM, "acme", file_of({"units": 1}, {"name": "two"}), expected=plan.digest).digest
        == plan.digest
    )
    assert plan_commitments(SYSTEM, "acme", file_of({"name": "two"})).changes == ()


def test_a_plan_shows_what_it_would_have_done_last_month(north, monkeypatch):
    used(north, one=4)
    committed()
    monkeypatch.setattr("billing.operations.commitments.database_now", lambda: at(20, month=11))
    plan = plan_commitments(SYSTEM, "acme", file_of({"units": 1}))
    assert plan.month == MONTH
    (effect,) = plan.effects
    assert (effect.tenant, effect.before, effect.after) == (
        "acme/one", Borne(2 * E12, 10 * E12), Borne(4 * E12, 10 * E12),
    )  # fmt: skip
    assert plan.unused == ((HOURS - 2) * E12, (HOURS - 4) * E12)


@pytest.mark.parametrize(
    ("given", "field", "code"),
    [
        ({"clusters": "[south]"}, "clusters", "unknown_cluster"),
        ({"clusters": "[]"}, "clusters", "out_of_range"),
        ({"flavor": "a100"}, "flavor", "unknown_flavor"),
        ({"capacity_type": "spot"}, "flavor", "unknown_flavor"),
        ({"currency": "EUR"}, "currency", "mixed_currencies"),
        ({"start": "2026-09-30T00:00:00Z"}, "start", "before_the_ledger"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_by_field(north, given, field, code):
    LedgerPeriod.objects.get_or_create(organisation=north.owner, month=MONTH)
    with pytest.raises(Invalid) as refused:
        plan_commitments(SYSTEM, "acme", file_of(given))
    (error,) = refused.value.errors
    assert error.code == code
    assert field in error.field


def test_only_who_may_close_months_plans_and_only_who_sees_all_reads(north):
    committed()
    team, viewer = make_user(), make_user()
    bind(team, "acme/one", "finance")
    bind(viewer, "acme", "viewer")
    with pytest.raises(NotFound):
        plan_commitments(actor_for(team), "acme", file_of({}))
    with pytest.raises(NotFound):
        commitment_report(actor_for(team), "acme", MONTH)
    with pytest.raises(NotAllowedHere):
        apply_commitments(actor_for(viewer), "acme", file_of({}))


def test_a_failed_day_keeps_no_other_from_being_split(north, monkeypatch):
    used(north, one=4)
    known = commitment_days.split_due_day
    bad = {}

    def failing(id_):
        if CommitmentDueDay.objects.get(id=id_).day == date(2026, 10, 2):
            bad["id"] = id_
            raise ValueError("broken")
        return known(id_)

    monkeypatch.setattr(commitment_days, "split_due_day", failing)
    with pytest.raises(ValueError, match="broken"):
        committed()
    assert CommitmentDueDay.objects.get().id == bad["id"]
    assert CommitmentDay.objects.count() == DAYS - 1
    monkeypatch.undo()
    assert split_commitments() == 1


def test_nothing_happens_without_commitments(north):
    used(north, one=4)
    posting.post_days()
    assert split() == 0
    assert close()
    assert not LedgerEntry.objects.filter(kind__in=["commitment", "purchase"]).exists()
