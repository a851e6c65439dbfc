"""Conversions of what tenants are charged, against an independent computation in fractions."""

import contextlib
import json
from collections import defaultdict
from dataclasses import replace
from datetime import date
from decimal import Decimal
from fractions import Fraction
from importlib.resources import files
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.engine.conversion import Rate, conversion_of, converted, foreign_currencies
from billing.engine.currencies import CURRENCIES, DIGITS, minor_digits
from billing.engine.focus_exchange import Shares
from billing.engine.invoices import Charge, charged_lines
from billing.engine.ledger import Entry, Line, ShareOf, money, reversal_of
from billing.engine.reference_rates import NotReferenceRates, ReferenceRate, read_reference_rates

DAY = date(2026, 10, 5)
ORGANISATION = UUID(int=1)
CODES = ["EUR", "USD", "JPY", "KWD"]
AMOUNTS = st.integers(-(10**18), 10**18).filter(bool).map(money)
RATES = st.decimals(Decimal("0.000000000001"), Decimal(999999), places=18)


@st.composite
def entries(draw):
    """An entry that charges up to four tenants in up to four currencies."""
    places = st.tuples(st.integers(1, 4), st.sampled_from(CODES))
    charged = draw(
        st.dictionaries(places, st.tuples(AMOUNTS, st.none() | st.integers(0, 10**15)), min_size=1, max_size=8)
    )
    lines = [Line(f"tenant_expense:{UUID(int=who)}", code, *what) for (who, code), what in charged.items()]
    sums: dict[str, Decimal] = defaultdict(Decimal)
    for line in lines:
        sums[line.currency] += line.amount
    lines += [Line("adjustments", code, -amount) for code, amount in sums.items() if amount]
    return Entry("adjustment/1", "adjustment", ORGANISATION, DAY, tuple(lines), ShareOf(tenant_path="acme"), reason="x")


def rounded(value):
    """To 10**-12, half away from zero, by another way than the engine's."""
    sign, scaled = (-1 if value < 0 else 1), abs(value) * 10**12
    return Fraction(sign * int(scaled + Fraction(1, 2)), 10**12)


@given(entries(), st.fixed_dictionaries(dict.fromkeys(CODES, RATES)))
def test_a_conversion_empties_every_other_currency_and_adds_up_in_each(entry, values):
    rates = {code: Rate(value, DAY, "ECB") for code, value in values.items()}
    if not foreign_currencies(entry, "EUR"):
        return
    conversion = conversion_of(entry, "EUR", rates, 1)
    both: dict[tuple[str, str], Fraction] = defaultdict(Fraction)
    sums: dict[str, Fraction] = defaultdict(Fraction)
    for line in (*entry.lines, *conversion.lines):
        if line.account.startswith("tenant_"):
            both[line.account.partition(":")[2], line.currency] += Fraction(line.amount)
    for line in conversion.lines:
        sums[line.currency] += Fraction(line.amount)
        assert line.amount
    assert not any(sums.values())
    due: dict[str, Fraction] = defaultdict(Fraction)
    for line in entry.lines:
        if line.account.startswith("tenant_expense:"):
            own = Fraction(line.amount)
            who = line.account.partition(":")[2]
            due[who] += own if line.currency == "EUR" else rounded(own * Fraction(values[line.currency]))
    assert {who: amount for (who, code), amount in both.items() if code == "EUR" and amount} == {
        who: amount for who, amount in due.items() if amount
    }
    assert not any(amount for (_, code), amount in both.items() if code != "EUR")
    back = reversal_of(conversion)
    assert conversion_of(replace(reversal_of(entry), key=entry.key), "EUR", rates, 1).lines == back.lines


@given(AMOUNTS, RATES)
def test_an_amount_is_rounded_once_half_away_from_zero(amount, rate):
    assert Fraction(converted(amount, rate)) == rounded(Fraction(amount) * Fraction(rate))
    assert converted(-amount, rate) == -converted(amount, rate)


@given(st.lists(AMOUNTS, min_size=1, max_size=30), RATES)
def test_parts_of_a_converted_sum_add_up_to_it(amounts, rate):
    shares = Shares()
    parts = [shares.next("key", amount, rate) for amount in amounts]
    assert sum(parts) == converted(money(sum(int(Fraction(one) * 10**12) for one in amounts)), rate)


@given(
    st.lists(AMOUNTS.filter(lambda one: one > 0), min_size=1, max_size=12),
    RATES,
    st.sampled_from(["JPY", "KWD", "CHF"]),
)
def test_lines_of_a_document_are_rounded_so_that_they_add_up(amounts, rate, currency):
    exact = [converted(amount, rate) for amount in amounts]
    charges = [Charge(f"acme/{n}", "north", "h100", date(2026, 10, 1), "gpu", None, one) for n, one in enumerate(exact)]
    lines = charged_lines(charges, date(2026, 10, 1), currency, None)
    step = Fraction(1, 10 ** minor_digits(currency))
    whole = sum(map(Fraction, exact), Fraction(0))
    assert sum(Fraction(line.amount) for line in lines) == round(whole / step) * step
    assert all(abs(Fraction(line.amount) - Fraction(line.exact)) < step for line in lines)


def test_a_missing_rate_is_no_conversion():
    entry = Entry("x", "adjustment", ORGANISATION, DAY, (Line(f"tenant_expense:{UUID(int=1)}", "USD", Decimal(1)),))
    with pytest.raises(KeyError):
        conversion_of(entry, "EUR", {}, 1)


def test_an_entry_without_a_conversion_has_the_text_that_it_had():
    entry = Entry("k", "usage", ORGANISATION, DAY, (Line("adjustments", "USD", Decimal(1)),))
    assert entry.text == f"k\tusage\t{ORGANISATION}\t\t\t\t\t2026-10-05\t\t\t\nadjustments\tUSD\t1.000000000000"


def test_the_currencies_are_those_of_iso_4217():
    text = files("focus_data_toolkit.model").joinpath("iso_4217_currencies.json").read_text(encoding="utf-8")
    known = set(json.loads(text)["codes"])
    special = {code for code in known if code.startswith("X")} - {"XAF", "XCD", "XCG", "XOF", "XPF"}
    assert known - special - {"ANG"} == CURRENCIES  # replaced by XCG in 2025
    assert set(DIGITS) <= CURRENCIES


def test_a_file_of_the_european_central_bank_is_read():
    text = "\ufeffDate,USD,CYP,\r\n2026-10-05,1.1000,N/A,\r\n\r\n2026-10-02,1.12,0.5,\r\n"
    assert list(read_reference_rates(text)) == [
        ReferenceRate(date(2026, 10, 5), "USD", Decimal("1.1000")),
        ReferenceRate(date(2026, 10, 2), "USD", Decimal("1.12")),
        ReferenceRate(date(2026, 10, 2), "CYP", Decimal("0.5")),
    ]
    assert len(list(read_reference_rates(text, since=date(2026, 10, 3)))) == 1


@given(st.text(max_size=200))
def test_any_text_is_rates_or_refused(text):
    for start in ("", "Date,USD\n"):
        with contextlib.suppress(NotReferenceRates):
            assert all(one.rate > 0 for one in read_reference_rates(start + text))
