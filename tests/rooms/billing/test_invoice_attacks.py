"""Raw SQL against every promise of invoices, as the role that the processes run as."""

import json
from decimal import Decimal
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction

from billing.engine.invoices import Terms, digest_of
from billing.models import Invoice, LedgerPeriod
from billing.operations.invoices import put_terms
from foundation.ids import new_id
from tenancy.queries import SYSTEM
from tests.builders import make_tenant
from tests.kept_rows import written_once
from tests.processes_role import as_processes
from tests.refusals import constraint_of

from .invoicing import closed_month, issued
from .ledgers import priced_cluster

pytestmark = pytest.mark.django_db
NO_RIGHT = "no right"
COLUMNS = (
    "id", "organisation_id", "kind", "sequence", "number", "tenant_id", "tenant_path", "period_id", "revision", "edition", "currency",
    "exact", "subtotal", "tax", "total", "tax_rate", "reference_id", "reason", "line_count", "document", "digest", "issued_by_name", "issued_at",
)  # fmt: skip
LINES = (
    "number", "kind", "tenant_path", "cluster_id", "cluster_name", "flavor", "month", "quantity", "exact", "amount", "tax", "credits_id",
)  # fmt: skip


def copy(lines: dict[str, str] | None = None, **changes: str) -> str:
    """A second invoice like the one that is there, with these columns changed."""
    next_one = {"id": "%(new)s", "sequence": "2", "number": "'INV-000002'", "edition": "2"} | changes
    head = ", ".join(next_one.get(name, name) for name in COLUMNS)
    rest = ", ".join((lines or {}).get(name, name) for name in LINES)
    return (
        f"INSERT INTO billing_invoice ({', '.join(COLUMNS)}) SELECT {head} FROM billing_invoice WHERE id = %(invoice)s;"
        f"INSERT INTO billing_invoiceline (invoice_id, {', '.join(LINES)}) SELECT {next_one['id']}, {rest} FROM billing_invoiceline"
        " WHERE invoice_id = %(invoice)s"
    )


CREDIT: dict[str, Any] = {
    "kind": "'credit_note'",
    "sequence": "1",
    "number": "'CN-000001'",
    "edition": "1",
    "reference_id": "id",
    "reason": "'x'",
}
CREDITED = {"kind": "'credit'", "credits_id": "id"}
ATTACKS = {
    "document rewritten": ("UPDATE billing_invoice SET total = 0", NO_RIGHT),
    "document struck out": ("DELETE FROM billing_invoice", NO_RIGHT),
    "line rewritten": ("UPDATE billing_invoiceline SET amount = 0", NO_RIGHT),
    "lines emptied": ("TRUNCATE billing_invoiceline CASCADE", NO_RIGHT),
    "balance forged": ("UPDATE billing_invoicebalance SET credited = amount", NO_RIGHT),
    "balance invented": ("INSERT INTO billing_invoicebalance VALUES (1, 1, 1, 1, 1)", NO_RIGHT),
    "number skipped": (copy(sequence="3", number="'INV-000003'"), "numbers_have_no_gaps"),
    "number used twice": (copy(sequence="1", number="'INV-000001'"), "numbers_have_no_gaps"),
    "negative number": (copy(sequence="-1", number="'INV-0000-1'"), "numbers_have_no_gaps"),
    "another text for the number": (copy(number="'INV-2'"), "numbers_have_no_gaps"),
    "a second invoice": (copy(), "edition_follows_a_credit"),
    "the same edition": (copy(edition="1"), "one_invoice_per_close_and_edition"),
    "an edition skipped": (copy(edition="3"), "edition_follows_a_credit"),
    "invoice of a team": (copy(tenant_id="%(team)s", edition="1"), "invoice_is_of_its_organisation"),
    "invoice of another organisation": (copy(organisation_id="%(other)s", sequence="1", number="'INV-000001'"), "invoice_is_of_its_organisation"),
    "invoice of an open month": (copy(period_id="%(november)s", edition="1"), "invoice_is_of_a_closed_period"),
    "invoice of another close": (copy(revision="2", edition="1"), "invoice_is_of_a_closed_period"),
    "total that is no sum": (copy(total="total + 1", edition="1"), "total_is_subtotal_and_tax"),
    "line added": (
        (f"INSERT INTO billing_invoiceline (invoice_id, {', '.join(LINES)}) SELECT invoice_id, 3, {', '.join(LINES[1:])}"
        " FROM billing_invoiceline WHERE number = 1"),
        "document_has_its_lines",
    ),
    "credit without its invoice": (copy(**{**CREDIT, "reference_id": "NULL"}), "credit_note_is_of_an_invoice"),
    "credit without a reason": (copy(**{**CREDIT, "reason": "''"}), "only_a_credit_note_has_a_reference"),
    "credit in another currency": (copy(**CREDIT, currency="'EUR'"), "credit_note_is_of_an_invoice"),
    "credit that adds": (copy(CREDITED, **CREDIT), "credit_is_at_most_what_was_invoiced"),
    "credit of more than was invoiced": (
        copy(CREDITED | {"amount": "-amount - 0.01"}, **CREDIT), "credit_is_at_most_what_was_invoiced",
    ),
    "credit of more tax": (copy(CREDITED | {"amount": "-amount", "tax": "-tax - 0.01"}, **CREDIT), "credit_is_at_most_what_was_invoiced"),
    "credit of nothing": (copy(CREDITED | {"amount": "0"}, **CREDIT), "only_a_credit_credits"),
    "credit with the invoice's document": (copy(CREDITED | {"amount": "-amount", "tax": "-tax", "exact": "-amount"}, **CREDIT), "document_is_what_its_digest_says"),
    "month reopened": (
        ("INSERT INTO billing_periodreopening (id, period_id, revision, reason, requested_by_id, requested_by_name) VALUES"
        " (%(new)s, %(october)s, 1, 'x', %(new)s, '');"
        "UPDATE billing_periodreopening SET approved_by_id = %(other)s, approved_at = now();"
        "UPDATE billing_ledgerperiod SET state = 'open', checksum = '', closed_at = NULL, closing_at = NULL WHERE id = %(october)s"),
        "invoiced_period_stays_closed",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def closed_once(processes_role, django_db_setup, django_db_blocker):
    """October, closed, to be invoiced with tax."""
    with written_once(django_db_blocker, _closed_once) as period:
        yield period


def _closed_once():
    period = closed_month(priced_cluster())
    put_terms(SYSTEM, "acme", Terms(tax_rate=Decimal(19)))
    return period


@pytest.fixture
def october(closed_once, db):
    return closed_once


@pytest.fixture
def values(october):
    """An invoice of October with tax; the session is the processes' role."""
    invoice = issued()
    november = LedgerPeriod.objects.create(organisation=october.organisation, month="2026-11-01")
    given = {
        "invoice": invoice.id, "october": october.id, "november": november.id, "new": new_id(), "other": make_tenant("other").id,
        "team": make_tenant("acme/one").id,
    }  # fmt: skip
    with as_processes():
        yield given


def attack(statements, values):
    with transaction.atomic(), connection.cursor() as cursor:
        for statement in statements.split(";"):
            cursor.execute(statement, values)
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")


def refusal_of(statements, values):
    with pytest.raises(DatabaseError) as refused:
        attack(statements, values)
    cause: Any = refused.value.__cause__
    return NO_RIGHT if cause.sqlstate == "42501" else constraint_of(refused.value)


def test_the_database_refuses_the_processes_role(values):
    for name, (statements, constraint) in ATTACKS.items():
        assert refusal_of(statements, values) == constraint, name


FORGERIES = {
    "another total": (
        {"total": "99.00", "subtotal": "96.15"},
        {"total": "99", "subtotal": "96.15"},
        {},
        "invoice_lines_add_up",
    ),
    "document of another total": ({"total": "99.00"}, {}, {}, "document_is_what_its_digest_says"),
    "another digest": ({}, {"digest": "repeat('0', 64)"}, {}, "document_is_what_its_digest_says"),
    "fewer lines than the document": ({}, {"line_count": "1"}, {"filter": "number = 1"}, "document_has_its_lines"),
    "another amount": ({}, {}, {"amount": "amount + 1"}, "document_has_its_lines"),
    "another tenant's line": ({}, {}, {"tenant_path": "'acme/three'"}, "document_has_its_lines"),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_document_says_what_its_rows_say_and_rows_add_up(october, name):
    """A first invoice that the attacker writes entirely: as issued, with one thing changed."""
    written, columns, lines, constraint = FORGERIES[name]
    row = template_of(issued_and_withdrawn())
    content = json.loads(row["document"]) | written
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    row |= {"document": text, "digest": digest_of(text)}
    with as_processes():
        assert refusal_of_row(row, columns, dict(lines)) == constraint


def issued_and_withdrawn():
    """What an invoice would be, of which nothing remains."""
    with transaction.atomic():
        invoice = issued()
        kept = (
            Invoice.objects.filter(id=invoice.id).values(*COLUMNS).get(),
            list(invoice.lines.order_by("number").values(*LINES)),
        )
        transaction.set_rollback(True)
    return kept


def template_of(kept):
    return kept[0] | {"lines": kept[1]}


def insert_document(head, row, inserts):
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(head, row)
        for rest, given in inserts:
            cursor.execute(
                f"INSERT INTO billing_invoiceline (invoice_id, {', '.join(LINES)}) VALUES (%s, {rest})",
                [row["id"], *given],
            )
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")


def refusal_of_row(row, columns, lines):
    where = lines.pop("filter", "true")
    head = ", ".join(columns.get(name, f"%({name})s") for name in COLUMNS)
    inserts = []
    for line in row["lines"]:
        if where == "true" or line["number"] == 1:
            rest = ", ".join(lines.get(name, "%s").replace("amount", str(line["amount"])) for name in LINES)
            inserts.append((rest, [line[name] for name in LINES if name not in lines]))
    with pytest.raises(DatabaseError) as refused:
        insert_document(f"INSERT INTO billing_invoice ({', '.join(COLUMNS)}) VALUES ({head})", row, inserts)
    return constraint_of(refused.value)


def test_the_owner_himself_is_refused_to_rewrite_a_document(values):
    with connection.cursor() as cursor:
        cursor.execute("RESET ROLE")
    for table in ("invoice", "invoiceline"):
        for statement in (f"UPDATE billing_{table} SET number = number", f"DELETE FROM billing_{table}"):
            assert refusal_of(statement, {}) == "ledger_is_append_only"
    assert refusal_of("DELETE FROM billing_invoicebalance", {}) == "ledger_is_append_only"
