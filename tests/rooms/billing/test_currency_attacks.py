"""Raw SQL against every promise of currencies, as the role that the processes run as."""

from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction

from billing.engine.conversion import Rate, conversion_of
from billing.engine.ledger import Entry, Line, ShareOf, reversal_of
from billing.models import LedgerEntry, LedgerLine, LedgerPeriod
from billing.operations import posting, record_runs
from billing.operations.entries import write
from billing.queries.charges import entry_of
from billing.queries.ledger_proof import money_discrepancies
from tests.builders import make_run
from tests.kept_rows import written_once
from tests.processes_role import as_processes
from tests.refusals import constraint_of

from .exchanging import billed_in, imported, override
from .invoicing import closed, issued
from .ledgers import at, priced_cluster, settle_pending_checks

pytestmark = pytest.mark.django_db
NO_RIGHT = "no right"
RIGHT_RATE = Rate(Decimal("0.909090909090909091"), date(2026, 10, 5), "ECB")
RATE = (
    "INSERT INTO billing_exchangerate (organisation_id, kind, base, quote, rate, valid_from, valid_until, source, reason, made_by_name)"
    " SELECT id, {} FROM tenancy_tenant WHERE path = 'acme'"
)
CURRENCY = (
    "INSERT INTO billing_billingcurrency (organisation_id, effective_from, currency, made_by_name)"
    " SELECT id, {}, 'x' FROM tenancy_tenant WHERE path = '{}'"
)
ATTACKS = {
    "rate rewritten": ("UPDATE billing_exchangerate SET rate = 1", NO_RIGHT),
    "rate struck out": ("DELETE FROM billing_exchangerate", NO_RIGHT),
    "currency rewritten": ("UPDATE billing_billingcurrency SET currency = 'USD'", NO_RIGHT),
    "currency struck out": ("DELETE FROM billing_billingcurrency", NO_RIGHT),
    "rate of nothing": (
        RATE.format("'override', 'USD', 'EUR', 0, '2026-10-01', '2026-10-02', 'x', 'x', 'x'"), "exchange_rate_is_of_two_currencies",
    ),
    "rate of one currency": (
        RATE.format("'override', 'EUR', 'EUR', 1, '2026-10-01', '2026-10-02', 'x', 'x', 'x'"), "exchange_rate_is_of_two_currencies",
    ),
    "rate from nowhere": (
        RATE.format("'override', 'USD', 'EUR', 1, '2026-10-01', '2026-10-02', '', 'x', 'x'"), "exchange_rate_is_of_two_currencies",
    ),
    "override without a reason": (
        RATE.format("'override', 'USD', 'EUR', 1, '2026-10-01', '2026-10-02', 'x', '', 'x'"), "exchange_rate_counts_for_its_days",
    ),
    "override without an end": (
        RATE.format("'override', 'USD', 'EUR', 1, '2026-10-01', NULL, 'x', 'x', 'x'"), "exchange_rate_counts_for_its_days",
    ),
    "override of all organisations": (
        ("INSERT INTO billing_exchangerate (kind, base, quote, rate, valid_from, valid_until, source, reason, made_by_name)"
        " VALUES ('override', 'USD', 'EUR', 1, '2026-10-01', '2026-10-02', 'x', 'x', 'x')"),
        "exchange_rate_counts_for_its_days",
    ),
    "reference that is not of the euro": (
        RATE.format("'reference', 'USD', 'EUR', 1, '2026-10-01', NULL, 'x', '', 'x'"), "exchange_rate_counts_for_its_days",
    ),
    "currency within a month": (CURRENCY.format("'2026-11-02', 'EUR'", "acme"), "billing_currency_begins_with_a_month"),
    "currency of small letters": (CURRENCY.format("'2026-11-01', 'eur'", "acme"), "billing_currency_is_three_letters"),
    "currency of a team": (CURRENCY.format("'2026-11-01', 'EUR'", "acme/one"), "policy_is_of_an_organisation"),
    "currency of a converted month": (CURRENCY.format("'2026-10-01', 'CHF'", "acme"), "currency_changes_no_converted_month"),
    "converted amount rewritten": ("UPDATE billing_ledgerline SET amount = 1 WHERE priced_currency <> ''", NO_RIGHT),
    "line at a rate that it does not have": (
        ("INSERT INTO billing_ledgerline (entry_id, account_id, amount, currency, priced_amount, priced_currency, rate, rate_day, rate_source)"
        " SELECT entry_id, account_id, amount + 1, 'CHF', priced_amount, priced_currency, rate, rate_day, rate_source"
        " FROM billing_ledgerline WHERE priced_currency <> '' LIMIT 1"),
        "line_says_what_it_was_converted_from",
    ),
    "line with half of its rate": (
        ("INSERT INTO billing_ledgerline (entry_id, account_id, amount, currency, priced_currency)"
        " SELECT entry_id, account_id, amount, 'CHF', 'USD' FROM billing_ledgerline WHERE priced_currency <> '' LIMIT 1"),
        "line_says_what_it_was_converted_from",
    ),
    "line without its rate": (
        ("INSERT INTO billing_ledgerline (entry_id, account_id, amount, currency, priced_amount, priced_currency, rate_day, rate_source)"
        " SELECT entry_id, account_id, amount, 'CHF', priced_amount, priced_currency, rate_day, rate_source"
        " FROM billing_ledgerline WHERE priced_currency <> '' LIMIT 1"),
        "line_says_what_it_was_converted_from",
    ),
    "entry that converts and is none": (
        ("INSERT INTO billing_ledgerentry (organisation_id, period_id, key, kind, tenant_path, flavor, charge_day, reason, line_count,"
        " digest, converts_id) SELECT organisation_id, period_id, 'forged', 'adjustment', '', '', charge_day, 'x', 2, '', id"
        " FROM billing_ledgerentry LIMIT 1"),
        "only_a_conversion_converts",
    ),
    "conversion of nothing": (
        ("INSERT INTO billing_ledgerentry (organisation_id, period_id, key, kind, tenant_path, flavor, charge_day, reason, line_count,"
        " digest) SELECT organisation_id, period_id, 'forged', 'conversion', '', '', charge_day, '', 2, ''"
        " FROM billing_ledgerentry LIMIT 1"),
        "only_a_conversion_converts",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def converted(processes_role, django_db_setup, django_db_blocker):
    """A converted hour of October."""
    with written_once(django_db_blocker, _converted) as found:
        yield found


def _converted():
    cluster = priced_cluster()
    billed_in("EUR")
    imported()
    record_runs([make_run(cluster, started_at=at(5, 10), until_at=at(5, 11), tenant_path="acme/one")])
    posting.post_days()
    settle_pending_checks()
    return own()


def own(**which):
    """The entry of usage."""
    row = LedgerEntry.objects.select_related("reverses", "converts").get(kind="usage", **which)
    return entry_of(row, ShareOf(row.cluster_id, row.flavor, row.tenant_path, row.tenant_id))


@pytest.fixture
def usage(converted, db):
    """It, and the session as the processes' role."""
    with as_processes():
        yield converted


def committed(attack):
    """Does what an attacker would, up to the checks of commit."""
    with transaction.atomic(), connection.cursor() as cursor:
        if callable(attack):
            attack()
        else:
            cursor.execute(attack)
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")


def refusal_of(attack):
    """The constraint that refuses a statement, or what a function writes."""
    with pytest.raises(DatabaseError) as refused:
        committed(attack)
    cause: Any = refused.value.__cause__
    return NO_RIGHT if cause.sqlstate == "42501" else constraint_of(refused.value)


@pytest.mark.parametrize("name", ATTACKS)
def test_the_database_refuses_the_processes_role(usage, name):
    statement, constraint = ATTACKS[name]
    assert refusal_of(statement) == constraint


def conversion(usage, number=2, **rate):
    return conversion_of(usage, "EUR", {"USD": replace(RIGHT_RATE, **rate)}, number)


def first(usage):
    return conversion(usage, 1)


@pytest.mark.parametrize(
    ("forged", "constraint"),
    [
        (lambda usage: [reversal_of(first(usage)), conversion(usage, rate=Decimal("0.1"))], "conversion_is_at_the_rate_of_its_day"),
        (lambda usage: [reversal_of(first(usage)), conversion(usage, source="me")], "conversion_is_at_the_rate_of_its_day"),
        (lambda usage: [reversal_of(first(usage)), conversion(usage, day=date(2026, 10, 6))], "conversion_is_at_the_rate_of_its_day"),
        (lambda usage: [reversal_of(first(usage)), replace(conversion(usage), lines=(*conversion(usage).lines[:1], Line("exchange", "USD", Decimal("2.5"))))], "conversion_is_at_the_rate_of_its_day"),
        (lambda usage: [conversion(usage)], "one_conversion_counts"),
        (lambda usage: [replace(conversion(usage), day=replace(usage.day, flavor="other"))], "conversion_is_of_its_entry"),
        (lambda usage: [conversion_of(replace(first(usage), lines=usage.lines), "EUR", {"USD": RIGHT_RATE}, 1)],
         "conversion_is_of_its_entry"),
        (lambda usage: [replace(conversion(usage), kind="adjustment", converts="", reason="x", day=None)], "only_conversions_exchange"),
        (lambda usage: [Entry("forged", "adjustment", usage.organisation_id, usage.charge_day, (
            Line("exchange", "EUR", Decimal(1)), Line("adjustments", "EUR", Decimal(-1))), reason="x")], "only_conversions_exchange"),
        (lambda usage: [replace(conversion(usage), lines=(
            Line(usage.lines[0].account, "USD", Decimal(1)), Line("exchange", "USD", Decimal(-1))))], "only_conversions_exchange"),
        (lambda usage: [replace(reversal_of(first(usage)), lines=reversal_of(usage).lines)], "only_conversions_exchange"),
    ],
)  # fmt: skip
def test_a_conversion_that_is_none_is_refused(usage, forged, constraint):
    assert refusal_of(lambda: [write(entry) for entry in forged(usage)]) == constraint
    assert LedgerLine.objects.filter(priced_currency="USD").count() == 1


def test_a_conversion_is_only_of_an_organisation_with_a_currency(usage):
    record_runs([make_run(priced_cluster("south"), "other/one", started_at=at(5, 10), until_at=at(5, 11))])
    posting.post_days()
    its = own(organisation__path="other")
    assert refusal_of(lambda: write(first(its))) == "conversion_is_of_its_entry"


def closing(period):
    """Closes a period as its own operations would, without their checklist."""
    with connection.cursor() as cursor:
        cursor.execute("UPDATE billing_ledgerperiod SET state = 'closing', closing_at = now() WHERE id = %s", [period])
        cursor.execute(
            "UPDATE billing_ledgerperiod SET state = 'closed', closed_at = now(), checksum = billing_period_checksum(id),"
            " revision = revision + 1 WHERE id = %s",
            [period],
        )


def test_a_month_with_mixed_sums_does_not_close(usage):
    october = LedgerPeriod.objects.get().id
    assert refusal_of(lambda: (write(reversal_of(first(usage))), closing(october))) == "closed_period_has_one_currency"
    closing(october)
    settle_pending_checks()
    assert LedgerPeriod.objects.get().state == "closed"
    assert refusal_of(CURRENCY.format("'2026-10-01', 'CHF'", "acme")) == "policy_changes_no_closed_month"


def test_a_document_in_another_currency_is_refused(usage):
    closed()
    issued()
    copied = (
        "INSERT INTO billing_invoice SELECT (jsonb_populate_record(i, jsonb_build_object('id', gen_random_uuid(), 'currency', 'USD',"
        " 'sequence', 2, 'number', 'INV-000002'))).* FROM billing_invoice AS i"
    )
    assert refusal_of(copied) == "document_is_in_the_billing_currency"


def test_the_owner_himself_is_refused_to_rewrite_rates_and_currencies(usage):
    override("0.9")
    with connection.cursor() as cursor:
        cursor.execute("RESET ROLE")
    for table in ("exchangerate", "billingcurrency"):
        for statement in (
            f"UPDATE billing_{table} SET id = 1",
            f"DELETE FROM billing_{table}",
            f"TRUNCATE billing_{table} CASCADE",
        ):
            assert refusal_of(statement) == "ledger_is_append_only"


FORGERIES = {
    "UPDATE billing_ledgerline SET rate = 0.5, amount = round(priced_amount * 0.5, 12) WHERE priced_currency <> ''": "the rate that counts is 0.909090909090909091",
    "UPDATE billing_exchangerate SET rate = 2": "the rate that counts is 0.5",
    "DELETE FROM billing_ledgerline WHERE account_id IN (SELECT id FROM billing_ledgeraccount WHERE kind = 'tenant_converted')":
        "was closed with charges of 2026-10-05 in USD that are not converted",
}  # fmt: skip


def test_the_proof_finds_what_was_forged_past_the_triggers(usage):
    october = LedgerPeriod.objects.get().id
    for forgery, said in FORGERIES.items():
        with transaction.atomic(), connection.cursor() as cursor:
            if "closed" in said:
                closing(october)
            cursor.execute("RESET ROLE; SET LOCAL session_replication_role = replica")
            cursor.execute(forgery)
            assert any(said in found for found in money_discrepancies()), forgery
            transaction.set_rollback(True)
    assert not money_discrepancies()


def test_no_conversion_is_judged_before_it_has_its_lines(usage):
    """Of an entry without foreign amounts, one without lines is right, and could get any afterwards."""

    def attack():
        with connection.cursor() as cursor:
            cursor.execute("SET CONSTRAINTS billing_judge_conversion IMMEDIATE")
        its = own()
        of_nothing = Entry(
            "adjustment/euro",
            "adjustment",
            its.organisation_id,
            its.charge_day,
            (Line("adjustments", "EUR", Decimal(-1)), Line("rounding", "EUR", Decimal(1))),
            reason="x",
        )
        write(of_nothing)
        write(
            Entry(
                "conversion/early",
                "conversion",
                its.organisation_id,
                its.charge_day,
                (
                    Line(f"tenant_converted:{its.day.tenant_id}", "EUR", Decimal(-5)),
                    Line("exchange", "EUR", Decimal(5)),
                ),
                converts="adjustment/euro",
            )
        )

    assert refusal_of(attack) == "entry_is_judged_with_its_lines"
