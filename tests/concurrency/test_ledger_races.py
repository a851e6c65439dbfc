"""Several sessions post, resolve and close at the same time, with real commits: each day counts once."""

from decimal import Decimal

import pytest
from django.db import transaction
from django.db.models import Sum

from billing.engine.ledger import Entry, Line
from billing.models import LedgerEntry, LedgerLine, LedgerPeriod, PostingConflict
from billing.operations import create_price, periods, posting, record_runs
from billing.operations.conflicts import resolve_conflict
from billing.operations.prices import NewPrice
from billing.queries import discrepancies
from foundation.problems import Conflict
from tenancy.queries import SYSTEM
from tests.builders import make_cluster, make_flavor, make_run, make_tenant
from tests.rooms.billing.ledgers import SEPTEMBER, at

from .test_quota_races import at_once

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def north():
    cluster = make_cluster(name="north")
    make_flavor(cluster)
    create_price(SYSTEM, NewPrice("north", "h100", Decimal("2.5"), effective_from=SEPTEMBER))
    return cluster


def charged():
    return LedgerLine.objects.filter(account__kind="tenant_expense").aggregate(sum=Sum("amount"))["sum"]


def test_two_posters_of_the_same_days_and_late_pods_between_them_count_each_once(north):
    make_tenant("acme/one")
    make_tenant("acme/two")
    for day in range(1, 5):
        record_runs(
            [make_run(north, path, started_at=at(day, 1), until_at=at(day, 2)) for path in ("acme/one", "acme/two")]
        )

    def late():
        for day in range(1, 5):
            record_runs([make_run(north, "acme/one", started_at=at(day, 5), until_at=at(day, 6))])

    at_once([posting.post_days, posting.post_days, posting.post_days, late])
    posting.post_days()

    assert charged() == Decimal("2.5") * 12
    keys = list(LedgerEntry.objects.values_list("key", flat=True))
    assert len(keys) == len(set(keys))
    assert not PostingConflict.objects.exists()
    assert discrepancies() == ()


def test_of_two_contents_under_one_key_one_is_posted_and_one_resolver_decides():
    acme = make_tenant("acme")

    def offer(amount):
        lines = (Line("rounding", "USD", Decimal(amount)), Line("adjustments", "USD", -Decimal(amount)))
        with transaction.atomic():
            return posting.post(Entry("adjustment/1", "adjustment", acme.id, at(5).date(), lines, reason="a test"))

    assert sorted(at_once([lambda n=n: offer(n) for n in (1, 2, 1, 2)])) == [False, False, False, True]
    conflict = PostingConflict.objects.get()

    def resolve(decision):
        try:
            return resolve_conflict(SYSTEM, conflict.id, decision, "x").decision
        except Conflict as refusal:
            return refusal.code

    outcomes = at_once([lambda d=d: resolve(d) for d in ("posted", "offered", "posted", "offered")])
    assert sorted(outcomes)[:2] == ["conflict_resolved"] * 2
    assert len(set(outcomes)) == 2
    decision = PostingConflict.objects.get().decision
    assert LedgerEntry.objects.count() == (3 if decision == "offered" else 1)
    assert LedgerLine.objects.aggregate(sum=Sum("amount"))["sum"] == 0
    assert discrepancies() == ()


def test_a_month_is_closed_once_while_others_close_post_and_stop_it(north):
    record_runs([make_run(north, started_at=at(5, 1), until_at=at(5, 2))])
    posting.post_days()
    october = LedgerPeriod.objects.get()
    periods.begin_closing(SYSTEM, october.id)

    def late():
        record_runs([make_run(north, started_at=at(6, 1), until_at=at(6, 2))])
        posting.post_days()

    def stop():
        try:
            return periods.cancel_closing(SYSTEM, october.id).state
        except Conflict as refusal:
            return refusal.code

    *_, stopped = at_once([*[lambda: periods.finish_closing(october.id)] * 4, late, stop])
    october.refresh_from_db()
    assert (stopped, october.state, october.revision) in {("open", "open", 0), ("period_closed", "closed", 1)}
    posting.post_days()
    assert charged() == 5
    assert discrepancies() == ()
