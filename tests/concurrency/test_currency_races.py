"""Rates that come while days are posted and converted, with real commits."""

from datetime import date
from decimal import Decimal

import pytest

from billing.models import ConversionDay, LedgerEntry, LedgerLine
from billing.operations import periods, posting, record_runs
from billing.operations.conversion import convert_days
from billing.operations.exchange import NewRate, set_billing_currency, set_exchange_rate
from billing.queries import discrepancies
from tenancy.queries import SYSTEM
from tests.builders import make_run
from tests.concurrency.test_quota_races import at_once
from tests.rooms.billing.ledgers import at, priced_cluster

pytestmark = pytest.mark.django_db(transaction=True)
OCTOBER, NOVEMBER = date(2026, 10, 1), date(2026, 11, 1)


def agreed(rate):
    return set_exchange_rate(SYSTEM, NewRate("acme", "USD", "EUR", Decimal(rate), OCTOBER, NOVEMBER, "agreed"))


def test_of_many_rates_and_workers_one_conversion_counts_at_the_last_rate():
    cluster = priced_cluster()
    record_runs([
        make_run(cluster, f"acme/{number % 3}", started_at=at(5 + number, 10), until_at=at(5 + number, 11)) for number in range(6)
    ])  # fmt: skip
    set_billing_currency(SYSTEM, "acme", OCTOBER, "EUR")
    work = [posting.post_days, convert_days, periods.keep_ledger]
    rates = [lambda number=number: agreed(f"0.{number}") for number in range(1, 5)]
    at_once([*work, *rates, *work])
    while ConversionDay.objects.exists():
        convert_days()
    standing = LedgerEntry.objects.filter(kind="conversion", reversed_by=None)
    assert standing.count() == standing.values("converts").distinct().count() == 6
    last = set(LedgerLine.objects.filter(entry__in=standing).exclude(priced_currency="").values_list("rate", flat=True))
    with_last = agreed("0.9")
    convert_days()
    assert len(last) == 1
    rates_now = LedgerLine.objects.filter(entry__in=LedgerEntry.objects.filter(kind="conversion", reversed_by=None))
    assert set(rates_now.exclude(priced_currency="").values_list("rate", flat=True)) == {with_last.rate}
    assert not discrepancies()
