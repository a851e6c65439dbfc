"""Raw SQL against every promise of the ledger of money, as the role that the processes run as."""

import hashlib
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection, transaction

from billing.models import LedgerEntry, LedgerLine, LedgerPeriod
from billing.operations import posting, record_runs
from billing.queries import discrepancies
from foundation.ids import new_id
from tests.builders import make_run, make_tenant
from tests.processes_role import as_processes
from tests.refusals import constraint_of

from .ledgers import at, priced_cluster, settle_pending_checks

pytestmark = pytest.mark.django_db
NO_RIGHT = "no right"
ENTRY = (
    "INSERT INTO billing_ledgerentry (organisation_id, period_id, key, kind, tenant_id, tenant_path, cluster_id, flavor,"
    " charge_day, reverses_id, correction_id, reason, line_count, digest) SELECT organisation_id, {period}, '{key}', '{kind}',"
    " tenant_id, tenant_path, cluster_id, flavor, {day}, {reverses}, NULL, '', {count}, '{digest}' FROM billing_ledgerentry"
    " WHERE id = %(entry)s;"
)
LINES = (
    "INSERT INTO billing_ledgerline (entry_id, account_id, amount, currency) SELECT e.id, l.account_id, {amount}, {currency}"
    " FROM billing_ledgerentry e, billing_ledgerline l WHERE e.key = '{key}' AND l.entry_id = %(entry)s"
)


def entry(
    key="forged", kind="usage", *, day="charge_day", reverses="NULL", count=2, digest="0" * 64, period="period_id"
):
    return ENTRY.format(key=key, kind=kind, day=day, reverses=reverses, count=count, digest=digest, period=period)


def lines(amount="l.amount", currency="l.currency", key="forged"):
    return LINES.format(amount=amount, currency=currency, key=key)


ATTACKS = {
    "entry rewritten": ("UPDATE billing_ledgerentry SET reason = 'x'", NO_RIGHT),
    "entry struck out": ("DELETE FROM billing_ledgerentry", NO_RIGHT),
    "line rewritten": ("UPDATE billing_ledgerline SET amount = 1", NO_RIGHT),
    "line struck out": ("DELETE FROM billing_ledgerline", NO_RIGHT),
    "ledger emptied": ("TRUNCATE billing_ledgerline CASCADE", NO_RIGHT),
    "account given away": ("UPDATE billing_ledgeraccount SET tenant_id = %(other)s", NO_RIGHT),
    "sum of a day forged": ("UPDATE billing_tenantday SET cost = 0", NO_RIGHT),
    "day hidden": ("DELETE FROM billing_tenantday", NO_RIGHT),
    "step undone": ("DELETE FROM billing_ledgerstep", NO_RIGHT),
    "period deleted": ("DELETE FROM billing_ledgerperiod", NO_RIGHT),
    "close invented": ("INSERT INTO billing_periodclose DEFAULT VALUES", NO_RIGHT),
    "conflict deleted": ("DELETE FROM billing_postingconflict", NO_RIGHT),
    "entry without lines": (entry(), "entry_is_what_its_digest_says"),
    "one-sided entry": (entry(count=1) + lines() + " AND l.amount > 0", "entry_has_two_sides"),
    "unbalanced entry": (entry() + lines("l.amount + 1"), "entry_adds_up_to_zero"),
    "balanced across currencies only": (
        entry() + lines(currency="CASE WHEN l.amount > 0 THEN 'USD' ELSE 'EUR' END"),
        "entry_adds_up_to_zero",
    ),
    "line of nothing": (entry() + lines("0"), "line_moves_money"),
    "forged digest": (entry() + lines(), "entry_is_what_its_digest_says"),
    "line added to an old entry": (lines(currency="'EUR'", key="{standing}"), "entry_is_what_its_digest_says"),
    "line added twice": (lines(key="{standing}"), "one_line_per_account"),
    "usage posted twice": (entry(digest="{digest}") + lines(), "ledger_is_what_segments_cost"),
    "key used twice": (entry(key="{standing}"), "key"),
    "reversal without its original": (entry(kind="reversal"), "only_a_reversal_reverses"),
    "usage that reverses": (entry(reverses="id"), "only_a_reversal_reverses"),
    "entry of a later period": (entry(period="%(november)s"), "entry_is_in_its_period"),
    "entry of an earlier period": (entry(day="'2026-11-05'::date"), "entry_is_in_its_period"),
    "second account": (
        ("INSERT INTO billing_ledgeraccount (organisation_id, kind, tenant_id) SELECT organisation_id, kind, tenant_id"
        " FROM billing_ledgeraccount WHERE kind = 'tenant_expense'"),
        "one_account_of_a_kind",
    ),
    "expense of a cluster": (
        ("INSERT INTO billing_ledgeraccount (organisation_id, kind, cluster_id) SELECT organisation_id, 'tenant_expense',"
        " cluster_id FROM billing_ledgeraccount WHERE kind = 'cluster_pool'"),
        "account_is_of_what_its_kind_says",
    ),
    "period born closed": (
        ("INSERT INTO billing_ledgerperiod (id, organisation_id, month, state) SELECT %(other)s, organisation_id, '2026-08-01',"
        " 'closing' FROM billing_ledgerperiod LIMIT 1"),
        "period_begins_open",
    ),
    "period of a half month": (
        ("INSERT INTO billing_ledgerperiod (id, organisation_id, month) SELECT %(other)s, organisation_id, '2026-08-02'"
        " FROM billing_ledgerperiod LIMIT 1"),
        "period_begins_with_its_month",
    ),
    "period closed without closing": (
        "UPDATE billing_ledgerperiod SET state = 'closed' WHERE id = %(october)s",
        "period_goes_its_way",
    ),
    "period of another month": ("UPDATE billing_ledgerperiod SET month = '2026-07-01'", "period_goes_its_way"),
}  # fmt: skip


@pytest.fixture
def books(processes_role):
    """A posted hour of October, an open period of November, and the session as the processes' role."""
    record_runs([make_run(priced_cluster(), started_at=at(5, 10), until_at=at(5, 11))])
    posting.post_days()
    settle_pending_checks()
    october, standing = LedgerPeriod.objects.get(), LedgerEntry.objects.get()
    november = LedgerPeriod.objects.create(organisation=october.organisation, month="2026-11-01")
    with as_processes():
        yield {
            "entry": standing.id, "standing": standing.key, "october": october.id, "november": november.id, "other": new_id(),
        }  # fmt: skip


def attack(statements, values):
    with transaction.atomic(), connection.cursor() as cursor:
        for statement in statements.rstrip(";").split(";"):
            cursor.execute(statement, values)
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")


def refusal_of(statements, values):
    with pytest.raises(DatabaseError) as refused:
        attack(statements, values)
    cause: Any = refused.value.__cause__
    return NO_RIGHT if cause.sqlstate == "42501" else constraint_of(refused.value)


def test_the_database_refuses_the_processes_role(books):
    text = f"forged\tusage\t{digest_of_standing(books)}"
    books["digest"] = hashlib.sha256(text.encode()).hexdigest()
    for name, (statements, constraint) in ATTACKS.items():
        filled = statements.replace("{standing}", books["standing"]).replace("{digest}", books["digest"])
        assert constraint in refusal_of(filled, books), name
    assert discrepancies() == ()


def digest_of_standing(books):
    """The canonical text of the standing entry after its key and kind."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT billing_entry_text(%s)", [books["entry"]])
        return cursor.fetchone()[0].split("\t", 2)[2]


def test_the_owner_himself_is_refused_to_rewrite_what_is_posted(books):
    with connection.cursor() as cursor:
        cursor.execute("RESET ROLE")
    tables = ("ledgerentry", "ledgerline", "ledgeraccount", "ledgerstep", "pricecorrection", "periodclose")
    for table in tables:
        for statement in (
            f"UPDATE billing_{table} SET id = 1",
            f"DELETE FROM billing_{table}",
            f"TRUNCATE billing_{table} CASCADE",
        ):
            assert refusal_of(statement, {}) == "ledger_is_append_only"
    for table in ("tenantday", "ledgerperiod", "periodreopening", "postingconflict"):
        assert refusal_of(f"DELETE FROM billing_{table}", {}) == "ledger_is_append_only"


def test_the_entry_of_another_organisation_is_refused(books):
    other = make_tenant("other").id
    period = LedgerPeriod.objects.create(organisation_id=other, month="2026-10-01")
    assert refusal_of(entry(period=f"'{period.id}'"), books) == "entry_is_in_its_period"


FORGERIES = {
    "UPDATE billing_ledgerline SET amount = amount * 2": "by its segments, but the ledger posted 5.000000000000",
    "UPDATE billing_ledgerline SET amount = 3 WHERE amount > 0": "add up to 0.500000000000 USD",
    "UPDATE billing_ledgerentry SET reason = 'x'": "is not what its digest says",
    "DELETE FROM billing_ledgerline": "the ledger posted 0",
    "UPDATE billing_tenantday SET cost = 1": "is 1.000000000000 USD of 1 segments",
    "UPDATE billing_ledgerperiod SET state = 'closed', checksum = repeat('0', 64), closed_at = now(), closing_at = now(),"
    " revision = 1": "was closed with the checksum 000",
}


def test_the_proof_finds_what_was_forged_past_the_triggers(books, capsys):
    for forgery, said in FORGERIES.items():
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("RESET ROLE; SET LOCAL session_replication_role = replica")
            cursor.execute(forgery)
            with pytest.raises(CommandError):
                call_command("prove_ledger")
            assert said in capsys.readouterr().err, forgery
            transaction.set_rollback(True)
    assert LedgerLine.objects.count() == 2
