"""Invoices of providers that come while their month closes, with real commits."""

import threading
from datetime import date

import pytest
from django.db import transaction
from psycopg.types.range import TimestamptzRange

from billing.models import LedgerPeriod, ProviderInvoiceLine, ReconciledCluster
from billing.operations import periods, posting, record_runs
from billing.operations.reconciliation import ImportedInvoices, import_provider_invoices
from billing.queries import discrepancies
from clusters.models import NodeOffer, NodeSpan
from foundation.problems import Conflict
from tenancy.queries import SYSTEM
from tests.builders import make_run
from tests.concurrency.test_quota_races import at_once
from tests.kept_sessions import end_sessions
from tests.rooms.billing.ledgers import OCTOBER, at, priced_cluster

pytestmark = pytest.mark.django_db(transaction=True)
MONTH = date(2026, 10, 1)
HEAD = "cluster,month,reference,amount,currency\n"


@pytest.fixture
def north():
    """A GPU at 2.50 in October, 1860 in all, and four hours of it used."""
    cluster = priced_cluster()
    offer = NodeOffer.objects.create(cluster=cluster, node="n1", flavor="h100")
    NodeSpan.objects.create(
        offer=offer, period=TimestamptzRange(OCTOBER, at(1, month=11)), units=1, uid="u", capacity_type="on_demand",
        gpu_model="H100-80GB", sharing="whole", cpu_millicores=64_000, memory_mib=1024, is_available=True, is_assumed=False,
    )  # fmt: skip
    record_runs([make_run(cluster, "acme/one", started_at=at(5), until_at=at(5, 4))])
    return cluster


def send(*rows):
    """What an import did; or the code of its refusal."""
    try:
        return import_provider_invoices(SYSTEM, "acme", HEAD + "\n".join(rows))
    except Conflict as refused:
        return refused.code


def close():
    period = LedgerPeriod.objects.get(month=MONTH)
    try:
        periods.begin_closing(SYSTEM, period.id)
    except Conflict as refused:
        return refused.code
    return periods.finish_closing(period.id)


def test_a_line_is_in_the_close_or_refused(north):
    """In each round, a line that breaks the tolerance meets the close: it keeps the month open, or comes too late."""
    posting.post_days()
    send("north,2026-10,A,1860,USD")
    outcomes = at_once(
        [close, *(lambda number=number: send(f"north,2026-10,B{number},500,USD") for number in range(4))]
    )
    closed, *sent = outcomes
    added = ProviderInvoiceLine.objects.count() - 1
    assert sorted(map(str, sent)) == sorted(
        map(str, [ImportedInvoices(1, 0, 0)] * added + ["month_is_closed"] * (4 - added))
    )
    is_closed = LedgerPeriod.objects.get(month=MONTH).state == "closed"
    assert is_closed == (closed is True) == (added == 0)
    assert ReconciledCluster.objects.filter(invoiced=1860).count() == is_closed
    assert discrepancies() == ()


def test_a_close_waits_for_an_import_that_has_begun(north):
    """The import holds its lines back while the close begins: the close sees them."""
    posting.post_days()
    has_written, outcome = threading.Event(), []

    def close_then():
        has_written.wait(30)
        outcome.append(close())
        end_sessions()

    thread = threading.Thread(target=close_then)
    thread.start()
    with transaction.atomic():
        send("north,2026-10,A,5000,USD")
        has_written.set()
        thread.join(1)
        assert thread.is_alive(), "the close did not wait for the import"
    thread.join(30)
    assert outcome == ["period_not_ready"]


def test_a_month_begins_after_the_imports_that_found_it_not_begun(north):
    has_written, begun = threading.Event(), []

    def post():
        has_written.wait(30)
        posting.post_days()
        begun.append(LedgerPeriod.objects.get(month=MONTH).state)
        end_sessions()

    thread = threading.Thread(target=post)
    thread.start()
    with transaction.atomic():
        send("north,2026-10,A,5000,USD")
        has_written.set()
        thread.join(1)
        assert thread.is_alive(), "the month began beside the import"
    thread.join(30)
    assert begun == ["open"]
    assert close() == "period_not_ready"


def test_of_equal_imports_one_adds_the_lines(north):
    outcomes = at_once([lambda: send("north,2026-10,A,5,USD", "north,2026-10,B,6,USD")] * 6)
    assert sorted(outcomes, key=lambda one: one.added) == [ImportedInvoices(0, 0, 2)] * 5 + [ImportedInvoices(2, 0, 0)]
