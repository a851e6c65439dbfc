"""Ended days are posted once, by tenant, cluster and flavor, and add up exactly to what their segments cost."""

from datetime import timedelta
from decimal import Decimal

import pytest
from django.db import transaction
from django.db.models import Sum

from billing.engine.ledger import Entry, Line
from billing.models import LedgerEntry, LedgerLine, LedgerPeriod, PostingConflict, TenantDay, UsageSegment
from billing.operations import posting, record_runs
from billing.queries import discrepancies
from foundation.clock import database_now
from foundation.ids import new_id
from tests.builders import make_run, make_tenant

from .ledgers import at, expense, priced_cluster, settle_pending_checks

pytestmark = pytest.mark.django_db


def test_the_ledger_adds_up_to_the_segments_by_tenant_cluster_flavor_and_day():
    north, south = priced_cluster(amount="2.333333"), priced_cluster("south", amount="3.777777")
    runs = [
        make_run(
            (north, south)[number % 2], f"acme/{('one', 'two')[number % 3 == 0]}", gpu_units=1 + number % 3,
            started_at=at(1, 20) + timedelta(hours=7 * number, milliseconds=number),
            until_at=at(1, 20) + timedelta(hours=7 * number + 9, milliseconds=37 * number),
        )
        for number in range(12)
    ]  # fmt: skip
    record_runs(runs)

    posting.post_days()
    settle_pending_checks()

    assert expense() == UsageSegment.objects.aggregate(sum=Sum("cost"))["sum"] > 100
    assert LedgerLine.objects.aggregate(sum=Sum("amount"))["sum"] == 0
    keys = TenantDay.objects.count()
    assert LedgerEntry.objects.count() == keys > 10
    assert not TenantDay.objects.filter(is_due=True).exists()
    assert discrepancies() == ()


def test_posting_again_changes_nothing_and_a_late_pod_is_a_supplement():
    north = priced_cluster()
    record_runs([make_run(north, started_at=at(5, 10), until_at=at(5, 11))])
    for _ in range(3):
        posting.post_days()
    assert [str(entry.charge_day) for entry in LedgerEntry.objects.all()] == ["2026-10-05"]

    record_runs([make_run(north, started_at=at(5, 12), until_at=at(5, 14))])
    posting.post_days()
    settle_pending_checks()

    assert expense() == Decimal("7.5")
    assert LedgerEntry.objects.count() == 2
    assert LedgerPeriod.objects.get().month == at(1).date()


def test_a_day_waits_until_its_runs_are_metered_past_its_end_and_until_it_is_over():
    north = priced_cluster()
    run = {"source_uid": "a", "run_id": new_id(), "workload_id": new_id(), "user_id": new_id(), "started_at": at(5, 10)}
    record_runs([make_run(north, until_at=at(5, 20), is_final=False, **run)])
    today = database_now()
    record_runs([make_run(north, "acme/today", started_at=today - timedelta(seconds=1), until_at=today)])
    assert posting.post_days() == 0

    record_runs([make_run(north, until_at=at(6, 1), is_final=False, **run)])
    assert posting.post_days() == 1
    assert expense() == Decimal(35)


def test_unpriced_time_moves_no_money():
    record_runs([make_run(priced_cluster(), flavor="a100", started_at=at(5, 10), until_at=at(5, 11))])
    assert posting.post_days() == 1
    assert not LedgerEntry.objects.exists()
    assert discrepancies() == ()


def test_a_moved_team_changes_no_past_day():
    north = priced_cluster()
    record_runs([make_run(north, "acme/one", started_at=at(5, 10), until_at=at(5, 11))])
    posting.post_days()
    make_tenant("acme/two")
    team = make_tenant("acme/one")
    type(team).objects.filter(id=team.id).update(path="acme/two/one", parent=make_tenant("acme/two"), depth=2)
    record_runs([make_run(north, "acme/two/one", started_at=at(5, 12), until_at=at(5, 14))])
    posting.post_days()
    settle_pending_checks()
    entries = LedgerEntry.objects.order_by("id").values_list("tenant_id", "tenant_path", "lines__amount")
    assert [(path, amount) for tenant, path, amount in entries if amount > 0 and tenant == team.id] == [
        ("acme/one", Decimal("2.5")),
        ("acme/two/one", Decimal(5)),
    ]
    assert discrepancies() == ()


def test_pods_of_the_same_uid_in_two_clusters_are_two():
    north, south = priced_cluster(), priced_cluster("south")
    for cluster in (north, south):
        record_runs([make_run(cluster, source_uid="same", started_at=at(5, 10), until_at=at(5, 11))])
    posting.post_days()
    assert expense() == Decimal(5)


def test_an_interrupted_step_posts_nothing_and_is_done_again(monkeypatch):
    record_runs([make_run(priced_cluster(), started_at=at(5, 10), until_at=at(5, 11))])

    def dies(_entry):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(posting, "post", dies)
        with pytest.raises(KeyboardInterrupt), transaction.atomic():
            posting.post_days()
    assert not LedgerEntry.objects.exists()
    assert posting.post_days() == 1
    assert expense() == Decimal("2.5")


def test_the_same_key_with_another_payload_is_kept_for_people():
    acme = make_tenant("acme")

    def entry(amount):
        lines = (Line("rounding", "USD", Decimal(amount)), Line("adjustments", "USD", -Decimal(amount)))
        return Entry("adjustment/1", "adjustment", acme.id, at(5).date(), lines, reason="a test")

    assert [posting.post(entry(amount)) for amount in ("1", "1", "2", "2", "1")] == [True] + 4 * [False]
    settle_pending_checks()
    assert sorted(LedgerLine.objects.values_list("amount", flat=True)) == [-1, 1]
    conflict = PostingConflict.objects.get()
    assert (conflict.key, conflict.offered_digest) == ("adjustment/1", entry("2").digest)
    assert "rounding\tUSD\t2.000000000000" in conflict.offered
