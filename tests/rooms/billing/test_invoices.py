"""Closed months become documents that never change, with numbers without gaps, and credits within what was invoiced."""

import hashlib
import json
from dataclasses import replace
from decimal import Decimal

import pytest
from django.db import connection

from billing.engine import currencies
from billing.engine.invoices import Terms
from billing.models import Invoice, InvoiceBalance, LedgerLine, LedgerPeriod, Price
from billing.operations import create_price, periods, posting, record_runs
from billing.operations.corrections import NewCorrection, correct_price
from billing.operations.invoices import credit_invoice, put_terms
from billing.operations.prices import NewPrice
from billing.queries import discrepancies
from billing.queries.invoices import content_of, credited_of
from foundation.problems import Conflict, Invalid, NotFound, PermissionDenied
from tenancy.models import AuditEntry
from tenancy.queries import SYSTEM, actor_for
from tests.builders import bind, make_cluster, make_flavor, make_run, make_tenant, make_user

from .invoicing import OCTOBER, SEPTEMBER, closed, closed_month, issued
from .ledgers import at, priced_cluster, settle_pending_checks

pytestmark = pytest.mark.django_db
NOVEMBER = OCTOBER.replace(month=11)


@pytest.fixture
def north():
    return priced_cluster()


@pytest.fixture
def october(north):
    return closed_month(north)


def person(role="finance", path="acme"):
    user = make_user()
    bind(user, path, role)
    return actor_for(user)


def test_an_invoice_says_what_the_closed_month_charges(october):
    put_terms(SYSTEM, "acme", Terms("Platform", Decimal(19), "VAT", 14, "CC-1", "4711", "thanks"))
    invoice = issued()
    content = content_of(invoice)
    assert invoice.digest == hashlib.sha256(invoice.document.encode()).hexdigest()
    assert (invoice.number, invoice.kind, content["checksum"]) == ("INV-000001", "invoice", october.checksum)
    assert [
        (line["tenant"], line["quantity"], line["unit_price"], line["amount"], line["tax"]) for line in content["lines"]
    ] == [
        ("acme/one", "4.000000", "2.500000", "10.00", "1.90"),
        ("acme/two", "2.000000", "2.500000", "5.00", "0.95"),
    ]
    assert (content["subtotal"], content["total"], content["exact"]) == ("15.00", "17.85", "15.000000000000")
    assert (content["issuer"], content["cost_centre"], content["gl_account"], content["remark"]) == (
        "Platform", "CC-1", "4711", "thanks",
    )  # fmt: skip
    assert AuditEntry.objects.get(action="invoice.issue").detail["digest"] == invoice.digest
    put_terms(SYSTEM, "acme", Terms())
    assert Invoice.objects.get().document == invoice.document


def test_a_statement_has_only_its_tenants_lines_and_no_tax(october):
    put_terms(SYSTEM, "acme", Terms(tax_rate=Decimal(19), cost_centre="root"))
    put_terms(SYSTEM, "acme/one", replace(Terms(), cost_centre="one"))
    one, two = issued("acme/one"), issued("acme/two")
    assert [(i.number, i.total, content_of(i)["cost_centre"]) for i in (one, two)] == [
        ("STM-000001", 10, "one"), ("STM-000002", 5, "root"),
    ]  # fmt: skip
    assert content_of(one)["tax"]["rate"] is None
    assert content_of(one)["due_on"] is None
    assert issued().total == Decimal("17.85")


def test_only_a_closed_month_that_charges_is_invoiced_once(north, october):
    make_tenant("acme/idle")
    issued()
    for path, month, code in (
        ("acme", NOVEMBER, "period_not_closed"), ("acme/none", OCTOBER, "not_found"), ("acme", OCTOBER, "already_invoiced"),
        ("acme/idle", OCTOBER, "nothing_to_invoice"),
    ):  # fmt: skip
        with pytest.raises((Conflict, NotFound)) as refused:
            issued(path, month)
        assert refused.value.code == code


def test_late_time_and_corrections_are_lines_of_their_own_month(north):
    closed_month(north, 9)
    record_runs([make_run(north, "acme/one", started_at=at(5, 20, 9), until_at=at(5, 22, 9))])
    record_runs([make_run(north, "acme/one", started_at=at(3, 1), until_at=at(3, 2))])
    price = Price.objects.get()
    correct_price(
        SYSTEM, NewCorrection(price.id, Decimal("1.5"), "USD", at(6, 0, 9), at(7, 0, 9), "the contract says 1.50")
    )
    closed(10)
    lines = content_of(issued())["lines"]
    assert [(line["kind"], line["tenant"], line["month"], line["quantity"], line["amount"]) for line in lines] == [
        ("charge", "acme/one", "2026-10", "1.000000", "2.50"),
        ("correction", "acme/one", "2026-09", "2.000000", "5.00"),
        ("correction", "acme/two", "2026-09", None, "-2.00"),
    ]
    assert content_of(issued(month=SEPTEMBER))["total"] == "15.00"
    assert discrepancies() == ()


def test_two_currencies_are_two_documents(north):
    south = make_cluster(name="south", owner="beta")
    make_flavor(south)
    create_price(SYSTEM, NewPrice("south", "h100", Decimal(3), "EUR", effective_from=at(1)))
    record_runs([make_run(each, started_at=at(3, 1), until_at=at(3, 2)) for each in (north, south)])
    closed()
    with pytest.raises(Invalid):
        issued()
    with pytest.raises(Invalid):
        issued(currency="GBP")
    assert [(made.number, made.total) for made in (issued(currency=code) for code in ("EUR", "USD"))] == [
        ("INV-000001", 3), ("INV-000002", Decimal("2.5")),
    ]  # fmt: skip


def test_credits_take_back_at_most_what_was_invoiced_and_then_a_new_edition_follows(october):
    put_terms(SYSTEM, "acme", Terms(tax_rate=Decimal(19)))
    invoice = issued()
    with pytest.raises(Conflict):
        credit_invoice(SYSTEM, issued("acme/one").id, "x", None)
    for amounts in ({1: Decimal("10.01")}, {1: Decimal(-1)}, {9: Decimal(1)}, {1: Decimal(0)}):
        with pytest.raises(Invalid):
            credit_invoice(SYSTEM, invoice.id, "x", amounts)
    first = credit_invoice(SYSTEM, invoice.id, "two hours were free", {1: Decimal("3.33")})
    settle_pending_checks()
    assert (first.number, first.total, content_of(first)["reference"]) == ("CN-000001", Decimal("-3.96"), "INV-000001")
    with pytest.raises(Invalid):
        credit_invoice(SYSTEM, invoice.id, "x", {1: Decimal("6.68")})
    with pytest.raises(Conflict) as refused:
        issued()
    assert refused.value.code == "already_invoiced"
    rest = credit_invoice(SYSTEM, invoice.id, "all of it", None)
    settle_pending_checks()
    assert first.total + rest.total == -invoice.total
    assert credited_of(invoice) == (invoice.total, True)
    with pytest.raises(Conflict) as refused:
        credit_invoice(SYSTEM, invoice.id, "again", None)
    assert refused.value.code == "nothing_to_credit"
    put_terms(SYSTEM, "acme", Terms())
    again = issued()
    assert (again.number, again.edition, again.total) == ("INV-000002", 2, 15)


def test_a_month_with_an_invoice_reopens_only_once_that_is_credited(north, october):
    one, other = person(), person("admin")
    invoice = issued()
    issued("acme/one")
    with pytest.raises(Conflict) as refused:
        periods.request_reopening(one, october.id, "late bill")
    assert refused.value.code == "period_is_invoiced"
    assert invoice.number in refused.value.detail
    credit_invoice(SYSTEM, invoice.id, "the month reopens", None)
    periods.request_reopening(one, october.id, "late bill")
    issued()
    with pytest.raises(Conflict):
        periods.approve_reopening(other, october.id)
    credit_invoice(SYSTEM, Invoice.objects.get(kind="invoice", edition=2).id, "again", None)
    assert periods.approve_reopening(other, october.id).state == "open"
    record_runs([make_run(north, "acme/one", started_at=at(5, 20), until_at=at(5, 22))])
    closed()
    settle_pending_checks()
    again = issued()
    assert (again.revision, again.edition, again.total, again.number) == (2, 1, 20, "INV-000003")


def test_who_may_issue_and_see(october):
    invoice, statement = issued(), issued("acme/one")
    finance_of_one, viewer, stranger = person(path="acme/one"), person("viewer"), person("admin", "other")
    for actor, path, refusal in (
        (viewer, "acme", PermissionDenied), (stranger, "acme", NotFound), (finance_of_one, "acme", (NotFound, PermissionDenied)),
        (finance_of_one, "acme/two", NotFound),
    ):  # fmt: skip
        with pytest.raises(refusal):
            issued(path, actor=actor)
        with pytest.raises(refusal):
            put_terms(actor, path, Terms())
    for actor, refusal in ((viewer, PermissionDenied), (stranger, NotFound), (finance_of_one, NotFound)):
        with pytest.raises(refusal):
            credit_invoice(actor, invoice.id, "x", None)
    assert credit_invoice(person(), invoice.id, "x", None).kind == "credit_note"
    assert statement.number == "STM-000001"


def test_time_that_was_posted_before_quantities_were_known_has_no_quantity(north):
    record_runs([make_run(north, started_at=at(5, 10), until_at=at(5, 14))])
    posting.post_days()
    settle_pending_checks()
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute("UPDATE billing_ledgerline SET quantity = NULL")
        cursor.execute("SET LOCAL session_replication_role = origin")
    record_runs([make_run(north, started_at=at(5, 15), until_at=at(5, 16))])
    closed()
    assert set(LedgerLine.objects.values_list("quantity", flat=True)) == {None}
    line = content_of(issued())["lines"][0]
    assert (line["quantity"], line["unit_price"], line["amount"]) == (None, None, "12.50")


def test_terms_within_bounds_only(october):
    for wrong in (
        Terms(tax_rate=Decimal(0)), Terms(tax_rate=Decimal(-1)), Terms(tax_rate=Decimal("100.001")),
        Terms(tax_rate=Decimal("1.0001")), Terms(payment_days=366), Terms(payment_days=-1),
    ):  # fmt: skip
        with pytest.raises(Invalid):
            put_terms(SYSTEM, "acme", wrong)
    assert InvoiceBalance.objects.count() == 0
    assert LedgerPeriod.objects.get().state == "closed"
    assert json.loads(issued().document)["tax"]["amount"] == "0.00"


FORGERIES = {
    "UPDATE billing_invoice SET document = document || ' '": "is not what its digest says",
    "UPDATE billing_invoiceline SET exact = exact + 1 WHERE number = 1": "but its lines add up to 16.000000000000",
    "UPDATE billing_invoicebalance SET credited = 1": "is credited 1.000000000000, but its credit notes add up to 0",
    "UPDATE billing_ledgerline SET quantity = quantity * 2": "the ledger says that acme/one used 28800000000 on 2026-10-05",
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_the_proof_finds_what_was_forged_past_the_triggers(october, forgery):
    issued()
    assert discrepancies() == ()
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute(forgery)
    assert FORGERIES[forgery] in " ".join(discrepancies())


@pytest.mark.parametrize("currency", ["USD", "EUR", *currencies.DIGITS])
def test_the_database_knows_the_same_minor_units(currency):
    with connection.cursor() as cursor:
        cursor.execute("SELECT billing_minor_digits(%s)", [currency])
        assert cursor.fetchone() == (currencies.minor_digits(currency),)
