"""Forged days of pools, and shares of idle capacity that are offered before their lines."""

from decimal import Decimal

import pytest
from django.db import IntegrityError, connection, transaction

from billing.engine.ledger import Entry, Line, ShareOf
from billing.models import LedgerPeriod
from billing.operations import posting
from billing.operations.entries import write
from billing.queries import discrepancies
from tests.refusals import constraint_of

from .ledgers import at, priced_cluster
from .test_idle import MONTH, close, offered, policy, used

pytestmark = pytest.mark.django_db


@pytest.fixture
def north():
    cluster = priced_cluster()
    offered(cluster)
    return cluster


def test_the_proof_finds_a_forged_pool_day(north):
    policy()
    used(north, one=4)
    assert close()
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute("UPDATE billing_poolday SET charged = charged + 1, cost = cost + 1 WHERE day = '2026-10-05'")
        cursor.execute("SET LOCAL session_replication_role = origin")
    assert any("charged" in found and "the pools of 2026-10" in found for found in discrepancies())


def test_no_share_is_judged_before_it_has_its_lines(north):
    """Else it could come to accounts that are not those of its kind."""
    policy()
    used(north, one=4)
    posting.post_days()
    LedgerPeriod.objects.filter(month=MONTH).update(state="closing", closing_at=at(1, month=11))
    organisation = LedgerPeriod.objects.get(month=MONTH).organisation_id
    lines = (Line("idle", "USD", Decimal(5)), Line("adjustments", "USD", Decimal(-5)))
    share = Entry("idle/early", "idle", organisation, MONTH, lines, ShareOf(north.id, "h100"), reason="x")

    def offer(when):
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(f"SET CONSTRAINTS {when}")
            write(share)
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")

    with pytest.raises(IntegrityError) as early:
        offer("billing_judge_share IMMEDIATE")
    assert constraint_of(early.value) == "entry_is_judged_with_its_lines"
    with pytest.raises(IntegrityError) as late:
        offer("ALL DEFERRED")
    assert constraint_of(late.value) == "line_is_of_its_entrys_accounts"
