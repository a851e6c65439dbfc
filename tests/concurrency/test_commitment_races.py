"""Usage that comes while commitments are split, with real commits: no mark is lost, and no hour is split twice."""

import threading
from datetime import date, timedelta
from decimal import Decimal

import pytest

from billing.models import CommitmentDueDay, LedgerEntry, LedgerPeriod, Price
from billing.operations import commitment_days, periods, posting, record_runs
from billing.operations.commitment_days import split_commitments
from billing.operations.commitments import apply_commitments
from billing.operations.corrections import NewCorrection, correct_price
from billing.operations.sharing import NewPolicy, set_policy
from billing.queries import discrepancies, sharing
from tenancy.queries import SYSTEM
from tests.builders import make_run
from tests.concurrency.test_quota_races import at_once
from tests.rooms.billing.committing import balances, file_of
from tests.rooms.billing.ledgers import at, priced_cluster

pytestmark = pytest.mark.django_db(transaction=True)


def test_usage_prices_and_versions_that_come_meanwhile_are_split_in_the_end():
    cluster = priced_cluster()
    LedgerPeriod.objects.create(organisation=cluster.owner, month=date(2026, 10, 1))
    price = Price.objects.get()

    def use(name):
        for number in range(3):
            start = at(5 + number, 3)
            record_runs([make_run(cluster, f"acme/{name}", started_at=start, until_at=start + timedelta(hours=2))])
            posting.post_days()

    def commit(units):
        apply_commitments(SYSTEM, "acme", file_of({"units": units, "until": "2026-10-09T00:00:00Z", "upfront": 192}))

    def correct():
        correct_price(SYSTEM, NewCorrection(price.id, Decimal(4), "USD", at(6), at(7), reason="typo"))

    commit(2)
    work = [split_commitments, periods.keep_ledger, posting.post_days]
    at_once([*work, *(lambda name=name: use(name) for name in "abc"), correct, lambda: commit(4), *work])
    posting.post_days()
    while CommitmentDueDay.objects.exists():
        split_commitments()
    found = balances()
    # On each of three days, three GPUs of four for two hours, at a quarter of one an hour each.
    assert [found[f"acme/{name}"] for name in "abc"] == [Decimal("1.5")] * 3
    assert found["commitment_unused"] == Decimal("187.5")
    assert found["commitment_covered"] == 6 * (Decimal("2.5") + Decimal(4) + Decimal("2.5"))
    standing = LedgerEntry.objects.filter(kind="commitment", reversed_by=None)
    assert standing.count() == standing.values("charge_day", "flavor", "tenant_path").distinct().count()
    assert not discrepancies()


def test_a_policy_that_comes_while_a_day_is_split_for_the_first_time_says_where_its_unused_part_stands(monkeypatch):
    cluster = priced_cluster()
    month = date(2026, 10, 1)
    LedgerPeriod.objects.create(organisation=cluster.owner, month=month)
    apply_commitments(SYSTEM, "acme", file_of({"until": "2026-10-02T00:00:00Z", "upfront": 24}))
    has_read, is_set = threading.Event(), threading.Event()
    read = sharing.policy_for

    def read_and_wait(*given):
        found = read(*given)
        has_read.set()
        is_set.wait(1)
        return found

    def set_it():
        has_read.wait(30)
        set_policy(SYSTEM, NewPolicy("acme", month, "proportional"))
        is_set.set()

    monkeypatch.setattr(commitment_days, "policy_for", read_and_wait)
    at_once([split_commitments, set_it])
    monkeypatch.undo()
    split_commitments()
    assert balances() == {"idle": 24, "purchases": -24}
    assert not discrepancies()
