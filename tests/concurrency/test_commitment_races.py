"""Usage that comes while commitments are split, with real commits: no mark is lost, and no hour is split twice."""

from datetime import date, timedelta
from decimal import Decimal

import pytest

from billing.models import CommitmentDueDay, LedgerEntry, LedgerPeriod, Price
from billing.operations import periods, posting, record_runs
from billing.operations.commitment_days import split_commitments
from billing.operations.commitments import apply_commitments
from billing.operations.corrections import NewCorrection, correct_price
from billing.queries import discrepancies
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
