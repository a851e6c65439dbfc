"""Charges in the currency of prices become charges in the currency that an organisation is billed in."""

from collections import defaultdict
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction

import pytest

from billing.models import ConversionDay, ExchangeRate, LedgerEntry, LedgerLine, LedgerPeriod
from billing.operations import periods, posting, record_runs
from billing.operations.conversion import convert_days
from billing.operations.corrections import NewCorrection, correct_price
from billing.operations.exchange import (
    Imported,
    NewRate,
    import_reference_rates,
    set_billing_currency,
    set_exchange_rate,
)
from billing.queries import discrepancies
from billing.queries.exchange import exchange_rate
from billing.queries.ledger_proof import money_discrepancies
from billing.queries.periods import checklist
from foundation.problems import Conflict, Invalid, NotFound
from tenancy.models import AuditEntry, Tenant
from tenancy.queries import SYSTEM, NotAllowedHere
from tests.builders import actor_for, bind, make_run, make_tenant, make_user

from .exchanging import NOVEMBER, OCTOBER, RATES, billed_in, imported, override
from .invoicing import closed, issued
from .ledgers import at, priced_cluster, settle_pending_checks

pytestmark = pytest.mark.django_db


@pytest.fixture
def north():
    return priced_cluster(amount="2.333333")


def used(cluster, day=5, hours=3, tenant="acme/one", month=10):
    """Meters and posts one run."""
    record_runs([make_run(cluster, tenant, started_at=at(day, 10, month), until_at=at(day, 10 + hours, month))])
    posting.post_days()
    settle_pending_checks()


def balances(**which):
    """What tenants owe by currency, without zeros."""
    sums: dict[str, Decimal] = defaultdict(Decimal)
    for line in LedgerLine.objects.filter(account__kind__in=["tenant_expense", "tenant_converted"], **which):
        sums[line.currency] += line.amount
    return {currency: amount for currency, amount in sums.items() if amount}


def exact(amount, rate):
    """An amount at a rate, by an independent rule: to 10**-12, half away from zero."""
    scaled = Fraction(amount) * Fraction(rate) * 10**12
    below = scaled.numerator // scaled.denominator
    rest = scaled - below
    up = rest > Fraction(1, 2) or (rest == Fraction(1, 2) and scaled > 0)
    return Decimal(below + up).scaleb(-12)


def item(name="converted", period=None):
    return next(one for one in checklist(period or LedgerPeriod.objects.get(month=OCTOBER)) if one.name == name)


def test_a_charge_is_converted_at_the_rate_of_its_day(north):
    billed_in("EUR")
    imported()
    used(north)
    rate = Fraction(1) / Fraction("1.1")
    line = LedgerLine.objects.get(account__kind="tenant_converted", currency="EUR")
    assert (line.priced_amount, line.priced_currency) == (Decimal("6.999999"), "USD")
    assert (line.rate, line.rate_day, line.rate_source) == (Decimal("0.909090909090909091"), date(2026, 10, 5), "ECB")
    assert line.amount == exact("6.999999", line.rate)
    assert abs(Fraction(line.rate) - rate) <= Fraction(1, 2 * 10**18)
    assert balances() == {"EUR": line.amount}
    assert line.quantity == 3 * 3_600_000_000
    assert not discrepancies()


def test_without_a_billing_currency_nothing_is_converted(north):
    imported()
    used(north)
    assert balances() == {"USD": Decimal("6.999999")}
    assert not LedgerEntry.objects.filter(kind="conversion").exists()
    closed()
    assert issued().currency == "USD"


def test_in_its_own_currency_an_organisation_has_the_same_ledger(north):
    used(north)
    before = list(LedgerEntry.objects.values_list("key", "digest"))
    billed_in("USD")
    convert_days()
    assert list(LedgerEntry.objects.values_list("key", "digest")) == before
    used(north, day=6)
    assert not LedgerEntry.objects.filter(kind="conversion").exists()
    closed()
    assert issued().total == Decimal("14.00")


@pytest.mark.parametrize(
    ("day", "base", "quote", "rate", "of"),
    [
        (2, "USD", "EUR", 1 / Fraction("1.12"), 2),
        (4, "USD", "EUR", 1 / Fraction("1.12"), 2),
        (5, "EUR", "USD", Fraction("1.1"), 5),
        (5, "JPY", "KWD", Fraction("0.339") / Fraction("170.1"), 5),
        (6, "USD", "CHF", Fraction("0.9312") / Fraction("1.105"), 6),
        (6, "KWD", "CHF", Fraction("0.9312") / Fraction("0.339"), 5),
        (12, "USD", "CHF", Fraction("0.9312") / Fraction("1.105"), 6),
    ],
)
def test_a_rate_is_of_the_last_day_that_has_one_at_most_a_week_before(north, day, base, quote, rate, of):
    imported()
    found = exchange_rate(Tenant.objects.get(path="acme").id, base, quote, date(2026, 10, day))
    assert abs(Fraction(found.rate) - rate) <= Fraction(1, 2 * 10**18)
    assert (found.day, found.source) == (date(2026, 10, of), "ECB")


@pytest.mark.parametrize(("day", "base"), [(1, "USD"), (13, "USD"), (5, "GBP"), (5, "EUR")])
def test_there_is_no_older_earlier_or_other_rate(north, day, base):
    imported()
    assert exchange_rate(Tenant.objects.get(path="acme").id, base, "EUR", date(2026, 10, day)) is None


def test_a_missing_rate_keeps_the_month_open_and_says_what_to_do(north):
    billed_in("EUR")
    used(north, day=20)
    assert balances() == {"USD": Decimal("6.999999")}
    assert item().detail == (
        "No exchange rate for USD to EUR on 2026-10-20: import reference rates of that week, or set a rate for these days."
    )
    with pytest.raises(Conflict, match="No exchange rate for USD to EUR"):
        periods.begin_closing(SYSTEM, LedgerPeriod.objects.get().id)
    override("0.9")
    assert item().is_fulfilled
    assert balances() == {"EUR": exact("6.999999", "0.9")}
    closed()
    assert not discrepancies()


def test_a_rate_corrected_in_an_open_month_is_reversed_and_entered_again(north):
    billed_in("EUR")
    imported()
    used(north)
    override("0.5", start=date(2026, 10, 5), until=date(2026, 10, 6))
    assert balances() == {"EUR": exact("6.999999", "0.5")}
    assert list(LedgerEntry.objects.order_by("id").values_list("kind", flat=True)) == [
        "usage", "conversion", "reversal", "conversion",
    ]  # fmt: skip
    convert_days()
    assert LedgerEntry.objects.count() == 4
    assert not ConversionDay.objects.exists()
    assert not money_discrepancies()


def test_a_rate_corrected_after_the_close_is_a_correction_in_the_next_month(north):
    billed_in("EUR")
    imported()
    used(north)
    closed()
    before = LedgerPeriod.objects.get(month=OCTOBER).checksum
    invoice = issued()
    override("0.5")
    assert balances(entry__period__month=NOVEMBER) == {
        "EUR": exact("6.999999", "0.5") - exact("6.999999", "0.909090909090909091")
    }
    assert LedgerPeriod.objects.get(month=OCTOBER).checksum == before
    assert invoice.total == Decimal("6.36")
    assert not discrepancies()


def test_a_price_corrected_after_the_close_is_converted_at_the_rate_of_its_day(north):
    billed_in("EUR")
    imported()
    used(north)
    closed()
    price = north.rates.get().prices.get()
    correct_price(SYSTEM, NewCorrection(price.id, Decimal(1), "USD", at(5), at(6), "the contract says so"))
    posting.post_days()
    settle_pending_checks()
    rate = "0.909090909090909091"
    assert balances(entry__period__month=NOVEMBER) == {"EUR": exact(3, rate) - exact("6.999999", rate)}
    days = LedgerEntry.objects.filter(period__month=NOVEMBER).values_list("charge_day", flat=True)
    assert set(days) == {date(2026, 10, 5)}


def test_late_use_of_a_day_is_converted_like_the_rest(north):
    billed_in("EUR")
    imported()
    used(north)
    used(north, hours=1)
    rate = "0.909090909090909091"
    assert balances() == {"EUR": exact("6.999999", rate) + exact("2.333333", rate)}


def test_a_currency_may_change_at_the_beginning_of_an_open_month_that_is_not_converted(north):
    billed_in("EUR")
    imported()
    used(north)
    with pytest.raises(Conflict) as refused:
        billed_in("CHF")
    assert refused.value.code == "month_is_converted"
    billed_in("CHF", NOVEMBER)
    closed()
    assert issued().currency == "EUR"
    with pytest.raises(Conflict) as refused:
        billed_in("CHF", OCTOBER)
    assert refused.value.code == "month_is_closed"
    override("0.5")  # the closed month was converted into another currency: it stays
    assert balances(entry__period__month=NOVEMBER) == {}
    override("0.8", quote="CHF", start=NOVEMBER, until=date(2026, 12, 1))
    used(north, month=11)
    assert balances(entry__period__month=NOVEMBER) == {"CHF": exact("6.999999", "0.8")}
    assert not discrepancies()


def test_a_currency_set_late_converts_what_is_posted(north):
    used(north)
    imported()
    billed_in("EUR")
    convert_days()
    settle_pending_checks()
    assert list(balances()) == ["EUR"]
    assert not discrepancies()


@pytest.mark.parametrize(
    ("currency", "rate", "total"), [("JPY", "150.5", "1053"), ("KWD", "0.307", "2.149"), ("CHF", "0.9", "6.30")]
)
def test_documents_are_rounded_in_the_minor_unit_when_their_lines_are_made(north, currency, rate, total):
    billed_in(currency)
    override(rate, quote=currency)
    used(north, hours=1)
    used(north, day=6, hours=2, tenant="acme/two")
    closed()
    invoice = issued()
    assert (invoice.currency, invoice.total) == (currency, Decimal(total))
    parts = [exact(amount, rate) for amount in ("2.333333", "4.666666")]
    assert [line.exact for line in invoice.lines.order_by("number")] == parts
    assert invoice.exact == sum(parts)
    assert [line.quantity for line in invoice.lines.order_by("number")] == [3_600_000_000, 7_200_000_000]
    with pytest.raises(Invalid):
        issued(path="acme/one", currency="USD")


def test_a_known_rate_is_left_and_another_one_needs_a_word(north):
    assert imported() == imported_as(11, 0, 0)
    assert imported() == imported_as(0, 0, 11)
    other = RATES.replace("1.1000", "1.2000")
    with pytest.raises(Conflict) as refused:
        imported(other)
    assert refused.value.code == "rate_differs"
    assert imported(other, corrects=True) == imported_as(0, 1, 10)
    assert exchange_rate(Tenant.objects.get(path="acme").id, "EUR", "USD", date(2026, 10, 5)).rate == Decimal("1.2")
    assert imported(other) == imported_as(0, 0, 11)
    assert AuditEntry.objects.filter(action="exchange_rates.import").count() == 2


def imported_as(*numbers):
    return Imported(*numbers)


@pytest.mark.parametrize(
    "text",
    [
        "", "Date\n", "Day,USD\n", "Date,USD,USD\n", "Date,usd\n", "Date,USD\n2026-13-01,1\n", "Date,USD\n2026-10-01,-1\n",
        "Date,USD\n2026-10-01,0\n", "Date,USD\n2026-10-01,1e3\n", "Date,USD\n2026-10-01,NaN\n", "Date,USD,JPY\n2026-10-01,1\n",
        "Date,USD\n2026-10-01,1\n2026-10-01,2\n", "Date,USD\n2999-01-01,1\n", "\x00",
    ],
)  # fmt: skip
def test_a_broken_file_is_refused_as_a_whole(north, text):
    with pytest.raises(Invalid):
        imported(text)
    assert not ExchangeRate.objects.exists()


def test_rates_of_one_organisation_are_nothing_to_another(north):
    make_tenant("other")
    imported(path="other")
    assert exchange_rate(Tenant.objects.get(path="acme").id, "EUR", "USD", date(2026, 10, 5)) is None
    imported(RATES.replace("1.1000", "3.0000"), path="")
    assert exchange_rate(Tenant.objects.get(path="acme").id, "EUR", "USD", date(2026, 10, 5)).rate == 3
    assert exchange_rate(Tenant.objects.get(path="other").id, "EUR", "USD", date(2026, 10, 5)).rate == Decimal("1.1")


def test_only_those_who_close_periods_set_currencies_and_rates(north):
    team, other = make_user(), make_user()
    bind(team, "acme/one", "manager")
    make_tenant("other")
    bind(other, "other", "admin")
    one_day = NewRate("acme", "USD", "EUR", Decimal(1), OCTOBER, OCTOBER + timedelta(days=1), "x")
    for user in (team, other):
        for attempt in (
            lambda user=user: set_billing_currency(actor_for(user), "acme", OCTOBER, "EUR"),
            lambda user=user: set_exchange_rate(actor_for(user), one_day),
            lambda user=user: import_reference_rates(actor_for(user), "acme", RATES, "ECB"),
            lambda user=user: import_reference_rates(actor_for(user), "", RATES, "ECB"),
        ):
            with pytest.raises((NotFound, NotAllowedHere)):
                attempt()


def test_what_no_currency_or_rate_is_refused(north):
    with pytest.raises(Invalid) as refused:
        billed_in("XAU")
    assert refused.value.errors[0].code == "unknown_currency"
    for wrong in ({"rate": "0"}, {"rate": "-1"}, {"rate": "1.0000000000001"}, {"rate": "1", "quote": "USD"},
                  {"rate": "1", "until": OCTOBER}, {"rate": "1", "until": date(2028, 1, 1)}):  # fmt: skip
        with pytest.raises(Invalid):
            override(**wrong)
