"""Many issuers at once, with real commits: numbers have no gaps, a month is invoiced once, credits never exceed it."""

from decimal import Decimal

import pytest
from django.db import connection, transaction

from billing.models import Invoice, LedgerPeriod
from billing.operations import create_price, periods, posting, record_runs
from billing.operations.invoices import WantedInvoice, credit_invoice, issue_invoice
from billing.operations.prices import NewPrice
from billing.queries.invoices import credited_of
from foundation.ids import new_id
from foundation.problems import Conflict, Invalid, Problem
from foundation.rows import columns_of
from tenancy.queries import SYSTEM, actor_for
from tests.builders import bind, make_cluster, make_flavor, make_run, make_tenant, make_user
from tests.rooms.billing.invoicing import OCTOBER
from tests.rooms.billing.ledgers import SEPTEMBER, at

from .test_quota_races import at_once

pytestmark = pytest.mark.django_db(transaction=True)
TEAMS = 12


@pytest.fixture
def october():
    """An hour of each of twelve teams in October, closed."""
    north = make_cluster(name="north")
    make_flavor(north)
    create_price(SYSTEM, NewPrice("north", "h100", Decimal("2.5"), effective_from=SEPTEMBER))
    record_runs([make_run(north, f"acme/t{number}", started_at=at(5, 1), until_at=at(5, 2)) for number in range(TEAMS)])
    posting.post_days()
    period = LedgerPeriod.objects.get()
    periods.begin_closing(SYSTEM, period.id)
    assert periods.finish_closing(period.id)
    return period


def outcome(work):
    try:
        return work().number
    except Problem as refusal:
        return refusal.code


def test_many_issuers_and_rollbacks_between_them_leave_no_gap(october):
    def issue(number):
        return issue_invoice(SYSTEM, WantedInvoice(f"acme/t{number}", OCTOBER))

    def fail(number):
        """Issues, and then its transaction fails."""
        with transaction.atomic():
            made = issue(number)
            transaction.set_rollback(True)
        return made

    works = [lambda n=n, w=w: outcome(lambda: w(n)) for n in range(TEAMS) for w in (issue, issue, fail)]
    outcomes = at_once(works)

    rows = list(Invoice.objects.order_by("sequence").values_list("sequence", "number"))
    assert rows == [(number, f"STM-{number:06d}") for number in range(1, TEAMS + 1)]
    assert outcomes.count("already_invoiced") >= TEAMS


def test_writers_without_the_lock_are_refused_or_take_the_next_number(october):
    """Sessions that skip the gateway's lock: the unique number makes the second wait, then refuses it."""
    first = issue_invoice(SYSTEM, WantedInvoice("acme/t0", OCTOBER))
    own = {"id", "sequence", "number", "tenant_id"}
    columns = ", ".join(column for column in columns_of(Invoice) if column not in own)

    def forge(team, *, commits):
        try:
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute("SET CONSTRAINTS ALL DEFERRED")
                cursor.execute(
                    f"INSERT INTO billing_invoice (id, tenant_id, sequence, number, {columns}) SELECT %s, %s,"
                    f" (SELECT max(sequence) + 1 FROM billing_invoice), 'STM-000002', {columns} FROM billing_invoice WHERE id = %s",
                    [new_id(), make_tenant(team).id, first.id],
                )
                if not commits:
                    transaction.set_rollback(True)
        except Exception as error:  # noqa: BLE001 - whatever it was, nothing may remain
            return type(error).__name__
        return "done"

    outcomes = at_once([lambda n=n: forge(f"acme/t{n}", commits=bool(n % 2)) for n in range(1, 5)])
    assert set(outcomes) == {"done", "IntegrityError"}
    assert list(Invoice.objects.values_list("sequence", flat=True)) == [1]
    assert issue_invoice(SYSTEM, WantedInvoice("acme/t1", OCTOBER)).number == "STM-000002"


def test_of_many_issuers_of_one_month_one_has_it(october):
    outcomes = at_once([lambda: outcome(lambda: issue_invoice(SYSTEM, WantedInvoice("acme", OCTOBER)))] * 8)
    assert sorted(outcomes) == ["INV-000001", *["already_invoiced"] * 7]


def test_many_credits_never_take_back_more_than_was_invoiced(october):
    invoice = issue_invoice(SYSTEM, WantedInvoice("acme", OCTOBER))
    works = [lambda: credit_invoice(SYSTEM, invoice.id, "x", {1: Decimal(1)})] * 6
    outcomes = at_once(
        [lambda w=w: outcome(w) for w in [*works, lambda: credit_invoice(SYSTEM, invoice.id, "x", None)]]
    )
    assert set(outcomes) - {f"CN-{number:06d}" for number in range(1, 9)} <= {"validation_failed", "nothing_to_credit"}
    credited, in_full = credited_of(invoice)
    assert in_full
    assert credited == invoice.total
    notes = list(Invoice.objects.filter(kind="credit_note").order_by("sequence"))
    assert [note.sequence for note in notes] == list(range(1, len(notes) + 1))
    assert sum(note.total for note in notes) == -invoice.total


def test_a_month_is_invoiced_or_reopened_never_both(october):
    one, other = make_user(), make_user()
    for user in (one, other):
        bind(user, "acme", "finance")
    periods.request_reopening(actor_for(one), october.id, "x")

    def reopen():
        try:
            return periods.approve_reopening(actor_for(other), october.id).state
        except Conflict as refusal:
            return refusal.code

    def issue():
        try:
            return issue_invoice(SYSTEM, WantedInvoice("acme", OCTOBER)).number
        except (Conflict, Invalid) as refusal:
            return refusal.code

    assert tuple(at_once([reopen, issue])) in {("open", "period_not_closed"), ("period_is_invoiced", "INV-000001")}
