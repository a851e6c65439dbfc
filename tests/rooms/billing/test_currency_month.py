"""A month of three organisations with prices in three currencies, billed in three others, against a computation in fractions."""

from collections import defaultdict
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction
from random import Random

import pytest

from billing.engine.currencies import minor_digits
from billing.models import LedgerLine, LedgerPeriod, Price
from billing.operations import create_price, periods, posting, record_runs
from billing.operations.conversion import convert_days
from billing.operations.corrections import NewCorrection, correct_price
from billing.operations.prices import NewPrice
from billing.queries import discrepancies
from tenancy.queries import SYSTEM
from tests.builders import make_cluster, make_flavor, make_run

from .exchanging import NOVEMBER, OCTOBER, billed_in, imported, override
from .invoicing import closed, issued
from .ledgers import SEPTEMBER, at, settle_pending_checks

pytestmark = pytest.mark.django_db
ORGANISATIONS = {
    "acme": ("USD", "EUR", "2.333333"),
    "bolt": ("EUR", "JPY", "1.070707"),
    "core": ("JPY", "KWD", "391.5"),
}
DAYS = 31


@pytest.fixture
def month():
    """The clusters, and what each tenant used each day, in quarters of an hour."""
    chance = Random(18)
    used: dict[tuple[str, str, int], int] = {}
    for path, (priced, _, amount) in ORGANISATIONS.items():
        cluster = make_cluster(path, f"of-{path}")
        make_flavor(cluster, "h100")
        create_price(SYSTEM, NewPrice(f"of-{path}", "h100", Decimal(amount), priced, effective_from=SEPTEMBER))
        runs = []
        for tenant in ("one", "two"):
            for day in chance.sample(range(1, 31), 6):
                quarters = chance.randint(1, 40)
                used[path, f"{path}/{tenant}", day] = quarters
                until = at(day, 1) + timedelta(minutes=15 * quarters)
                runs.append(make_run(cluster, f"{path}/{tenant}", started_at=at(day, 1), until_at=until))
        record_runs(runs)
    return used


def published():
    """Rates for each working day, which all differ, and the text of their file."""
    chance = Random(81)
    rates, lines = {}, ["Date,USD,JPY,KWD,"]
    for day in (date(2026, 9, 25) + timedelta(days=number) for number in range(DAYS + 6)):
        if day.isoweekday() <= 5:
            found = [
                f"1.{chance.randint(1000, 1999)}",
                f"{chance.randint(15000, 17999)}.5",
                f"0.3{chance.randint(100, 999)}",
            ]
            rates[day] = dict(zip(("USD", "JPY", "KWD"), map(Fraction, found), strict=True)) | {"EUR": Fraction(1)}
            lines.append(",".join([day.isoformat(), *found, ""]))
    return rates, "\n".join([lines[0], *reversed(lines[1:])])


def away(value, places):
    """Rounded half away from zero."""
    sign = -1 if value < 0 else 1
    return Fraction(sign * int(abs(value) * 10**places + Fraction(1, 2)), 10**places)


def rate_of(rates, base, quote, day):
    while day not in rates:
        day -= timedelta(days=1)
    return away(rates[day][quote] / rates[day][base], 18)


def owed(path, month):
    sums = defaultdict(Decimal)
    lines = LedgerLine.objects.filter(entry__organisation__path=path, entry__period__month=month)
    for line in lines.filter(account__kind__in=["tenant_expense", "tenant_converted"]).select_related(
        "account__tenant"
    ):
        sums[line.account.tenant.path, line.currency] += line.amount
    return {key: Fraction(amount) for key, amount in sums.items() if amount}


def expected(used, path, worth):
    found = defaultdict(Fraction)
    for (organisation, tenant, day), quarters in used.items():
        if organisation == path:
            found[tenant, ORGANISATIONS[path][1]] += worth(date(2026, 10, day), Fraction(quarters, 4))
    return {key: amount for key, amount in found.items() if amount}


def test_bills_are_what_an_independent_computation_says(month):
    rates, text = published()
    for path, (_, billed, _) in ORGANISATIONS.items():
        billed_in(billed, path=path)
    posting.post_days()
    assert all(currency == ORGANISATIONS[path][0] for path in ORGANISATIONS for _, currency in owed(path, OCTOBER))
    settle_pending_checks()
    imported(text, path="")
    converted = {}
    for path, (priced, billed, price) in ORGANISATIONS.items():
        converted[path] = lambda day, hours, of=(priced, billed, price): away(
            hours * Fraction(of[2]) * rate_of(rates, of[0], of[1], day), 12
        )
        assert owed(path, OCTOBER) == expected(month, path, converted[path])
    closed()
    checksums = dict(LedgerPeriod.objects.filter(month=OCTOBER).values_list("organisation__path", "checksum"))
    for path, (_, billed, _) in ORGANISATIONS.items():
        invoice, step = issued(path), Fraction(1, 10 ** minor_digits(billed))
        whole = sum(owed(path, OCTOBER).values())
        assert (invoice.currency, Fraction(invoice.exact)) == (billed, whole)
        assert (
            Fraction(invoice.total)
            == round(whole / step) * step
            == sum(Fraction(line.amount) for line in invoice.lines.all())
        )

    # A rate of one organisation, and a price of another one, were wrong; both months are closed.
    override("0.5", start=date(2026, 10, 8), until=date(2026, 10, 20))
    wrong = Price.objects.get(rate__cluster__name="of-bolt")
    correct_price(SYSTEM, NewCorrection(wrong.id, Decimal(2), "EUR", at(10), at(21), "as agreed"))
    posting.post_days()
    convert_days()
    periods.keep_ledger()
    settle_pending_checks()

    def by_rate(day, hours):
        is_wrong = date(2026, 10, 8) <= day < date(2026, 10, 20)
        cost = hours * Fraction("2.333333")
        return away(cost * Fraction(1, 2), 12) - converted["acme"](day, hours) if is_wrong else Fraction(0)

    def by_price(day, hours):
        is_wrong = date(2026, 10, 10) <= day < date(2026, 10, 21)
        rate = rate_of(rates, "EUR", "JPY", day)
        return away(hours * 2 * rate, 12) - converted["bolt"](day, hours) if is_wrong else Fraction(0)

    assert owed("acme", NOVEMBER) == expected(month, "acme", by_rate)
    assert owed("bolt", NOVEMBER) == expected(month, "bolt", by_price)
    assert owed("core", NOVEMBER) == {}
    assert dict(LedgerPeriod.objects.filter(month=OCTOBER).values_list("organisation__path", "checksum")) == checksums
    assert not discrepancies()
