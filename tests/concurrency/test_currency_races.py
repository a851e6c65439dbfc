"""Rates that come while days are posted and converted, with real commits."""

import threading
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from django.db import IntegrityError, transaction
from psycopg.types.range import TimestamptzRange

from billing.engine.ledger import Entry, Line
from billing.models import Budget, ConversionDay, LedgerEntry, LedgerLine, Price, Rate
from billing.operations import conversion, create_price, periods, posting, record_runs
from billing.operations.conversion import convert_day, convert_days
from billing.operations.corrections import NewCorrection, correct_price
from billing.operations.exchange import NewRate, set_billing_currency, set_exchange_rate
from billing.operations.prices import NewPrice
from billing.queries import discrepancies, exchange
from foundation.problems import Invalid
from tenancy.queries import SYSTEM
from tests.builders import make_budget, make_cluster, make_flavor, make_run
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


def test_a_charge_without_a_rate_waits_although_its_day_is_converted_meanwhile(monkeypatch):
    """The worker has read the day's charges when one in another currency comes: removing the row must not remove its mark."""
    cluster = priced_cluster()
    record_runs([make_run(cluster, "acme/one", started_at=at(5, 10), until_at=at(5, 11))])
    set_billing_currency(SYSTEM, "acme", OCTOBER, "EUR")
    posting.post_days()
    agreed("0.9")
    row = ConversionDay.objects.get()
    late = Entry(
        "adjustment/late", "adjustment", cluster.owner_id, row.day,
        (Line(f"tenant_expense:{cluster.owner_id}", "JPY", Decimal(5)), Line("adjustments", "JPY", Decimal(-5))), reason="late",
    )  # fmt: skip
    has_read, has_posted = threading.Event(), threading.Event()
    read = exchange.charges_of_day

    def read_and_wait(*given):
        found = read(*given)
        has_read.set()
        has_posted.wait(1)
        return found

    def post():
        has_read.wait(30)
        with transaction.atomic():
            posting.post(late)
        has_posted.set()

    monkeypatch.setattr(conversion, "charges_of_day", read_and_wait)
    assert at_once([lambda: convert_day(row.id), post])[0]
    assert ConversionDay.objects.get().day == row.day
    assert not discrepancies()


def test_a_day_whose_price_was_corrected_is_converted_again_when_it_is_posted():
    """Another worker posts the correction a moment later: the conversion before it fails nothing, and the day waits."""
    cluster = priced_cluster(amount="2")
    record_runs([make_run(cluster, "acme/one", started_at=at(5, 10), until_at=at(5, 11))])
    set_billing_currency(SYSTEM, "acme", OCTOBER, "EUR")
    posting.post_days()
    agreed("0.9")
    convert_days()
    correct_price(SYSTEM, NewCorrection(Price.objects.get().id, Decimal(4), "USD", at(5), at(6), "as agreed"))
    agreed("0.5")
    assert convert_days() == 0
    assert ConversionDay.objects.exists()
    posting.post_days()
    convert_days()
    assert not ConversionDay.objects.exists()
    converted = LedgerLine.objects.filter(account__kind="tenant_converted", currency="EUR")
    assert sum(converted.values_list("amount", flat=True)) == 2
    assert not discrepancies()


def outcome(work):
    """Whether it was done, rather than refused by an operation or by the database."""
    try:
        work()
    except (Invalid, IntegrityError):
        return False
    return True


def priced_raw(rate, currency):
    valid = TimestamptzRange(datetime(2026, 10, 1, tzinfo=UTC), None)
    return Price.objects.create(rate=rate, unit_price=1, currency=currency, valid=valid)


def race(turn, is_raw):
    """Two prices and a budget of a new organisation, each in another currency: which were done, and what stands."""
    path = f"org{turn}"
    rates = []
    for name in ("a", "b"):
        cluster = make_cluster(path, f"{name}{turn}")
        make_flavor(cluster, "h100")
        rates.append(Rate.objects.create(cluster=cluster, flavor="h100", capacity_type="on_demand"))

    def price(rate, currency):
        if is_raw:
            return priced_raw(rate, currency)
        return create_price(SYSTEM, NewPrice(rate.cluster.name, "h100", Decimal(1), currency))

    works = [
        lambda: price(rates[0], "USD"),
        lambda: price(rates[1], "EUR"),
        lambda: make_budget(path, "10", currency="CHF"),
    ]
    done = at_once([lambda work=work: outcome(work) for work in works])
    prices = Price.objects.filter(rate__in=rates).values_list("currency", flat=True)
    return done, {*prices, *Budget.objects.filter(tenant__path=path).values_list("currency", flat=True)}


@pytest.mark.parametrize("is_raw", [True, False], ids=["past the operations", "by operations"])
def test_of_prices_and_a_budget_in_three_currencies_at_the_same_moment_one_stands(is_raw):
    """The first one; the others find it, although it had not committed when they began."""
    for turn in range(4):
        done, currencies = race(turn, is_raw)
        assert (sum(done), len(currencies)) == (1, 1)
