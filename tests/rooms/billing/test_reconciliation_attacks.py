"""Raw SQL against invoices of providers and what was reconciled with them, as the role that the processes run as."""

from decimal import Decimal

import pytest

from billing.models import LedgerPeriod
from billing.operations import periods, posting
from billing.operations.reconciliation import accept_variance, set_variance_tolerance
from tenancy.queries import SYSTEM
from tests.builders import make_cluster, make_tenant
from tests.kept_rows import written_once
from tests.processes_role import as_processes
from tests.refusals import NO_RIGHT, refusal_of

from .ledgers import priced_cluster, settle_pending_checks
from .reconciling import billed
from .test_idle import MONTH, offered, used

pytestmark = pytest.mark.django_db
TABLES = ("providerinvoiceline", "variancetolerance", "acceptedvariance", "reconciledcluster")
APPEND_ONLY = TABLES[1:]
LINE = (
    "INSERT INTO billing_providerinvoiceline (organisation_id, cluster_id, month, reference, amount, currency, recorded_by_name)"
    " SELECT t.id, c.id, {}, 'x' FROM tenancy_tenant AS t, clusters_cluster AS c WHERE t.path = '{}' AND c.name = '{}'"
)
ACCEPTED = (
    "INSERT INTO billing_acceptedvariance (organisation_id, cluster_id, month, currency, cost, invoiced, note, accepted_by_name)"
    " SELECT t.id, c.id, {}, 'x' FROM tenancy_tenant AS t, clusters_cluster AS c WHERE t.path = '{}' AND c.name = '{}'"
)
TOLERANCE = (
    "INSERT INTO billing_variancetolerance (organisation_id, effective_from, percent, made_by_name)"
    " SELECT id, {}, 'x' FROM tenancy_tenant WHERE path = '{}'"
)
RECONCILED = (
    "INSERT INTO billing_reconciledcluster (period_id, revision, cluster_id, currency, charged, overhead, idle, invoiced)"
    " SELECT p.id, {}, c.id, {} FROM billing_ledgerperiod AS p, clusters_cluster AS c WHERE p.month = '{}' AND c.name = 'north'"
)
ATTACKS = {
    **{f"{table} rewritten": (f"UPDATE billing_{table} SET id = id", NO_RIGHT) for table in APPEND_ONLY},
    **{f"{table} struck out": (f"DELETE FROM billing_{table}", NO_RIGHT) for table in TABLES},
    "line into a closed month": (LINE.format("'2026-10-01', 'B', 5, 'USD'", "acme", "north"), "provider_invoices_change_no_closed_month"),
    "amount of a closed month": (
        "UPDATE billing_providerinvoiceline SET amount = 1 WHERE month = '2026-10-01'", "provider_invoices_change_no_closed_month",
    ),
    "line moved out of a closed month": (
        "UPDATE billing_providerinvoiceline SET month = '2026-11-01'", "provider_invoice_keeps_its_reference",
    ),
    "line of another reference": ("UPDATE billing_providerinvoiceline SET reference = 'Z'", "provider_invoice_keeps_its_reference"),
    "line that is there already": (LINE.format("'2026-11-01', 'N', 5, 'USD'", "acme", "north"), "one_line_per_provider_reference"),
    "line of nothing": (LINE.format("'2026-11-01', 'B', 0, 'USD'", "acme", "north"), "provider_invoice_line_is_whole"),
    "line of no currency": (LINE.format("'2026-11-01', 'B', 1, 'us'", "acme", "north"), "provider_invoice_line_is_whole"),
    "line of a day": (LINE.format("'2026-11-02', 'B', 1, 'USD'", "acme", "north"), "provider_invoice_line_is_whole"),
    "line without a reference": (LINE.format("'2026-11-01', '', 1, 'USD'", "acme", "north"), "provider_invoice_line_is_whole"),
    "line of a team": (LINE.format("'2026-11-01', 'B', 1, 'USD'", "acme/one", "north"), "provider_invoice_is_of_own_cluster"),
    "line for another's cluster": (LINE.format("'2026-11-01', 'B', 1, 'USD'", "acme", "theirs"), "provider_invoice_is_of_own_cluster"),
    "acceptance in a closed month": (
        ACCEPTED.format("'2026-10-01', 'USD', 1, 2, 'x'", "acme", "north"), "variance_is_accepted_before_the_close",
    ),
    "acceptance without a note": (ACCEPTED.format("'2026-11-01', 'USD', 1, 2, ''", "acme", "north"), "accepted_variance_says_why"),
    "acceptance of nothing": (ACCEPTED.format("'2026-11-01', 'USD', 2, 2, 'x'", "acme", "north"), "accepted_variance_says_why"),
    "acceptance for another's cluster": (
        ACCEPTED.format("'2026-11-01', 'USD', 1, 2, 'x'", "acme", "theirs"), "accepted_variance_is_of_own_cluster",
    ),
    "tolerance of a closed month": (TOLERANCE.format("'2026-10-01', 5", "acme"), "policy_changes_no_closed_month"),
    "tolerance of a team": (TOLERANCE.format("'2026-11-01', 5", "acme/one"), "policy_is_of_an_organisation"),
    "tolerance beyond all": (TOLERANCE.format("'2026-11-01', 100.001", "acme"), "tolerance_is_a_percentage"),
    "tolerance below nothing": (TOLERANCE.format("'2026-11-01', -1", "acme"), "tolerance_is_a_percentage"),
    "tolerance from a day": (TOLERANCE.format("'2026-11-02', 1", "acme"), "tolerance_is_a_percentage"),
    "reconciled after the close": (
        RECONCILED.format("2", "'USD', 0, 0, 2000, 2000", "2026-10-01"), "clusters_are_reconciled_at_a_close",
    ),
    "reconciled before the close": (
        RECONCILED.format("1", "'USD', 0, 0, 9, 9", "2026-11-01"), "clusters_are_reconciled_at_a_close",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def closed(processes_role, django_db_setup, django_db_blocker):
    """October is closed with an accepted variance; November is open with a line."""
    with written_once(django_db_blocker, _closed) as found:
        yield found


def _closed():
    cluster = priced_cluster()
    offered(cluster)
    make_tenant("acme/one")
    make_cluster("other", name="theirs")
    used(cluster, one=4)
    posting.post_days()
    set_variance_tolerance(SYSTEM, "acme", MONTH, Decimal(1))
    billed("north,2026-10,A,2000,USD,", "north,2026-11,N,9,USD,")
    accept_variance(SYSTEM, "acme", MONTH, "north", variance=Decimal(140), note="agreed")
    period = LedgerPeriod.objects.get(month=MONTH)
    periods.begin_closing(SYSTEM, period.id)
    assert periods.finish_closing(period.id)
    LedgerPeriod.objects.create(organisation=cluster.owner, month="2026-11-01")
    settle_pending_checks()


@pytest.mark.parametrize("name", ATTACKS)
def test_the_database_refuses_the_processes_role(closed, db, name):
    statement, constraint = ATTACKS[name]
    with as_processes():
        assert refusal_of(statement) == constraint


@pytest.mark.parametrize("table", TABLES)
def test_the_owner_himself_is_refused_to_rewrite_it(closed, db, table):
    rewriting = [f"UPDATE billing_{table} SET id = id"] if table in APPEND_ONLY else []
    for statement in (*rewriting, f"DELETE FROM billing_{table}", f"TRUNCATE billing_{table} CASCADE"):
        assert refusal_of(statement) == "ledger_is_append_only"


@pytest.mark.parametrize(
    ("numbers", "constraint"),
    [
        ("'USD', 0, 0, 9, 10", "reconciled_cluster_has_its_lines"),
        ("'USD', 0, 0, 9, NULL", "reconciled_cluster_has_its_lines"),
        ("'USD', 0, 0, 5, 9", "reconciled_cluster_is_within_tolerance"),
        ("'EUR', 0, 0, 5, 7", "reconciled_cluster_is_within_tolerance"),
        ("'U', 0, 0, 9, 9", "reconciled_cluster_has_a_currency"),
    ],
)
def test_what_closes_is_what_was_billed(closed, db, numbers, constraint):
    """November begins to close without the checklist, which its end would refuse."""
    LedgerPeriod.objects.filter(month="2026-11-01").update(state="closing", closing_at="2026-12-01T00:00Z")
    with as_processes():
        assert refusal_of(RECONCILED.format("1", numbers, "2026-11-01")) == constraint


def test_a_closing_month_takes_no_lines_either(closed, db):
    LedgerPeriod.objects.filter(month="2026-11-01").update(state="closing", closing_at="2026-12-01T00:00Z")
    with as_processes():
        assert refusal_of("UPDATE billing_providerinvoiceline SET amount = 1 WHERE month = '2026-11-01'") == (
            "provider_invoices_change_no_closed_month"
        )
