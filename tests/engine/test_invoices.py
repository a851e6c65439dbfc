"""Invoices as values: amounts in the minor unit add up, taxes and credits stay within what was invoiced, bytes are stable."""

import json
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.engine.currencies import minor_digits
from billing.engine.invoices import (
    Charge,
    Heading,
    Invoiced,
    NotCreditable,
    Sums,
    Terms,
    charged_lines,
    credit_lines,
    digest_of,
    document,
    hours,
    sums_of,
)
from tests.laws import examples

OCTOBER = date(2026, 10, 1)
NOON = datetime(2026, 11, 5, 12, tzinfo=UTC)


def charge(amount, tenant="acme/one", flavor="h100", month=OCTOBER, quantity=3_600_000_000):
    return Charge(tenant, "north", flavor, month, "gpu", quantity, Decimal(amount))


def lines_of(*charges, currency="USD", rate=None):
    return charged_lines(charges, OCTOBER, currency, None if rate is None else Decimal(rate))


def invoiced(lines, credited=None):
    known = credited or {}
    return [Invoiced(line, *known.get(line.number, (Decimal(0), Decimal(0)))) for line in lines]


def test_the_sums_of_a_document_are_those_of_its_lines_and_nothing_without_lines():
    assert sums_of(()) == Sums(Decimal(0), Decimal(0), Decimal(0))
    lines = lines_of(charge(Decimal("1.25"), "a"), charge(Decimal("2.50"), "b"))
    assert (sums_of(lines).exact, sums_of(lines).total) == (Decimal("3.75"), Decimal("3.75"))


@pytest.mark.oracle
def test_a_hundred_in_three_is_one_cent_apart_and_adds_up():
    third = Decimal("33.333333333333")
    lines = lines_of(charge(third, "a"), charge(third, "b"), charge(Decimal("33.333333333334"), "c"))
    assert [str(line.amount) for line in lines] == ["33.33", "33.33", "33.34"]
    assert sums_of(lines).subtotal == Decimal("100.00")
    assert sums_of(lines).exact == 100


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("currency", "shown", "tax"),
    [("JPY", ["33", "67"], "19"), ("KWD", ["33.333", "66.667"], "19.000"), ("USD", ["33.33", "66.67"], "19.00")],
)
def test_the_minor_unit_is_that_of_the_currency(currency, shown, tax):
    lines = lines_of(charge("33.333333", "a"), charge("66.666667", "b"), currency=currency, rate="19")
    content = json.loads(document(heading(currency=currency, terms=Terms(tax_rate=Decimal(19), tax_name="VAT")), lines))
    assert [line["amount"] for line in content["lines"]] == shown
    assert content["tax"] == {"name": "VAT", "rate": "19", "amount": tax}


def heading(**more):
    given: dict[str, Any] = {
        "kind": "invoice", "sequence": 7, "organisation": "acme", "tenant": "acme", "month": OCTOBER, "revision": 1,
        "checksum": "c" * 64, "edition": 1, "currency": "USD", "issued_at": NOON,
    }  # fmt: skip
    return Heading(**(given | more))


def test_use_of_an_earlier_month_is_a_correction_after_the_months_own_lines():
    lines = lines_of(
        charge("1", month=date(2026, 9, 1)),
        charge("-2", "b", month=date(2026, 9, 1)),
        charge("5"),
        charge("3", flavor=""),
    )
    assert [(line.kind, str(line.charge.month), line.amount) for line in lines] == [
        ("adjustment", "2026-10-01", 3), ("charge", "2026-10-01", 5), ("correction", "2026-09-01", 1), ("correction", "2026-09-01", -2),
    ]  # fmt: skip


def test_the_document_is_canonical_and_says_number_days_and_unit_price():
    lines = lines_of(charge("10", quantity=4 * 3_600_000_000), charge("0"), charge("1", "b", quantity=None))
    text = document(heading(terms=Terms(payment_days=14, remark="grüße")), lines)
    assert text == document(heading(terms=Terms(payment_days=14, remark="grüße")), tuple(lines))
    content = json.loads(text)
    assert text == json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    assert (content["number"], content["due_on"], content["issuer"]) == ("INV-000007", "2026-11-19", "acme")
    one, other = content["lines"]
    assert (one["quantity"], one["unit_price"]) == ("4.000000", "2.500000")
    assert (other["quantity"], other["unit_price"]) == (None, None)
    assert digest_of(text) != digest_of(text + " ")
    assert heading(kind="statement").due_on is None
    assert [heading(kind=kind).number for kind in ("statement", "credit_note")] == ["STM-000007", "CN-000007"]
    plain = json.loads(document(heading(), lines))
    assert {plain[name] for name in ("remark", "cost_centre", "gl_account") if name in plain} <= {"", None}
    assert hours(1_800_000_000) == Decimal("0.5")


def test_a_line_is_credited_at_most_once_over_and_its_tax_in_proportion():
    lines = lines_of(charge("10"), charge("-4", "b"), rate="10")
    notes = credit_lines(invoiced(lines), {1: Decimal("2.50")}, "USD")
    assert [(note.amount, note.tax, note.credits) for note in notes] == [(Decimal("-2.50"), Decimal("-0.25"), 1)]
    rest = credit_lines(invoiced(lines, {1: (Decimal("2.50"), Decimal("0.25"))}), None, "USD")
    assert [(note.amount, note.tax) for note in rest] == [
        (Decimal("-7.50"), Decimal("-0.75")),
        (Decimal(4), Decimal("0.40")),
    ]
    for number, amount in ((1, "10.01"), (1, "0"), (1, "-1"), (2, "1"), (2, "-4.01"), (3, "1")):
        with pytest.raises(NotCreditable):
            credit_lines(invoiced(lines), {number: Decimal(amount)}, "USD")


amounts = st.decimals(min_value=-(10**9), max_value=10**9, places=12).filter(bool)


@pytest.mark.law
@examples(150)
@given(
    st.lists(amounts, min_size=1, max_size=12), st.sampled_from(["USD", "JPY", "KWD"]),
    st.one_of(st.none(), st.decimals(min_value=Decimal("0.001"), max_value=100, places=3)),
    st.lists(st.integers(min_value=1, max_value=100), max_size=5),
)  # fmt: skip
def test_lines_add_up_to_the_rounded_total_and_any_credits_end_at_zero(values, currency, rate, percentages):
    lines = charged_lines([charge(value, f"t{number}") for number, value in enumerate(values)], OCTOBER, currency, rate)
    step = Decimal(1).scaleb(-minor_digits(currency))
    sums = sums_of(lines)
    assert sums.exact == sum(values)
    assert abs(sums.exact - sums.subtotal) <= step / 2
    assert abs(sums.subtotal * (rate or 0) / 100 - sums.tax) <= step / 2
    assert all(abs(line.exact - line.amount) < step for line in lines)
    assert all(line.tax * line.amount >= 0 for line in lines)

    credited = {line.number: (Decimal(0), Decimal(0)) for line in lines}
    wanted = [
        {
            number: (one.rest * percent / 100).quantize(step)
            for number, one in ((o.line.number, o) for o in invoiced(lines))
        }
        for percent in percentages
    ]
    for amounts_of_note in [*wanted, None]:
        state = invoiced(lines, credited)
        if amounts_of_note is not None:
            rests = {one.line.number: one.rest for one in state}
            amounts_of_note = {  # noqa: PLW2901 - only what is still left
                number: amount
                for number, amount in amounts_of_note.items()
                if amount * rests[number] > 0 and abs(amount) <= abs(rests[number])
            }
        for note in credit_lines(state, amounts_of_note, currency):
            amount, tax = credited[note.credits]
            credited[note.credits] = (amount - note.amount, tax - note.tax)
            line = lines[note.credits - 1]
            assert 0 <= abs(credited[note.credits][1]) <= abs(line.tax)
    assert credited == {line.number: (line.amount, line.tax) for line in lines}


def test_lines_come_by_month_tenant_cluster_and_flavor_this_month_first():
    ordered = [
        charge(1, "a", "h100"), charge(1, "a", "l4"), charge(1, "b", "h100"), charge(1, "z", "h100", date(2026, 8, 1)),
        charge(1, "a", "h100", date(2026, 9, 1)), charge(1, "b", "h100", date(2026, 9, 1)),
    ]  # fmt: skip
    ordered.insert(2, replace(ordered[0], cluster="south"))
    for shuffled in (ordered, ordered[::-1], ordered[3:] + ordered[:3]):
        assert [line.charge for line in lines_of(*shuffled)] == ordered
    assert [line.number for line in lines_of(*ordered)] == list(range(1, 8))


def test_an_invoice_says_all_of_this_and_nothing_else():
    lines = lines_of(
        charge("10", quantity=4 * 3_600_000_000),
        charge("-2.5", "acme/two", flavor=""),
        charge("1", month=date(2026, 9, 1)),
        rate="19",
    )
    terms = Terms("Acme Ltd", Decimal(19), "VAT", 14, "cc-7", "6000", "thanks")
    head = heading(terms=terms, reference="INV-000001", reason="why", revision=2, edition=3)

    def line(number, kind, amount, tax, **more):
        return {
            "number": number, "kind": kind, "tenant": "acme/one", "cluster": "north", "flavor": "h100", "month": "2026-10",
            "exact": f"{amount}0000000000", "amount": amount, "tax": tax, "unit": "gpu",
        } | more  # fmt: skip

    expected: dict[str, Any] = {
        "schema": "switchyard.invoice/1", "kind": "invoice", "number": "INV-000007", "issuer": "Acme Ltd",
        "organisation": "acme", "tenant": "acme", "month": "2026-10", "revision": 2, "checksum": "c" * 64, "edition": 3,
        "currency": "USD", "issued_at": "2026-11-05T12:00:00.000Z", "due_on": "2026-11-19", "payment_days": 14,
        "cost_centre": "cc-7", "gl_account": "6000", "remark": "thanks", "reference": "INV-000001", "reason": "why",
        "lines": [
            line(1, "charge", "10.00", "1.90", quantity="4.000000", unit_price="2.500000"),
            line(2, "adjustment", "-2.50", "-0.47", tenant="acme/two", flavor="", unit=None, quantity=None, unit_price=None),
            line(3, "correction", "1.00", "0.19", month="2026-09", quantity="1.000000", unit_price="1.000000"),
        ],
        "exact": "8.500000000000", "subtotal": "8.50", "tax": {"name": "VAT", "rate": "19", "amount": "1.62"},
        "total": "10.12",
    }  # fmt: skip
    assert json.loads(document(head, lines)) == expected

    taken_back = credit_lines(invoiced(lines), {1: Decimal(5)}, "USD")
    note = json.loads(
        document(replace(head, kind="credit_note", terms=Terms(tax_name="VAT"), reference=""), taken_back)
    )
    taken = {"number": 1, "kind": "credit", "amount": "-5.00", "tax": "-0.95", "exact": "-5.000000000000", "credits": 1}
    kept = {name: expected["lines"][0][name] for name in ("tenant", "cluster", "flavor", "month")}
    assert note == expected | {
        "kind": "credit_note", "number": "CN-000007", "issuer": "acme", "due_on": None, "payment_days": None,
        "cost_centre": "", "gl_account": "", "remark": "", "reference": None, "lines": [taken | kept],
        "exact": "-5.000000000000", "subtotal": "-5.00", "tax": {"name": "", "rate": None, "amount": "-0.95"},
        "total": "-5.95",
    }  # fmt: skip


def test_a_credit_is_in_the_minor_unit_and_at_most_the_rest():
    lines = lines_of(charge("10"), charge("-4", "b"))
    for number, amount in ((1, "10"), (1, "0.01"), (2, "-4"), (2, "-0.01")):
        [note] = credit_lines(invoiced(lines), {number: Decimal(amount)}, "USD")
        assert (note.number, note.credits, note.amount, note.exact) == (1, number, -Decimal(amount), -Decimal(amount))
    with pytest.raises(NotCreditable) as refused:
        credit_lines(invoiced(lines, {1: (Decimal(3), Decimal(0))}), {1: Decimal("0.001")}, "USD")
    assert refused.value.args == (1, Decimal(7))
    with pytest.raises(NotCreditable) as refused:
        credit_lines(invoiced(lines), {9: Decimal(1)}, "USD")
    assert refused.value.args == (9, Decimal(0))
    both = credit_lines(invoiced(lines), {2: Decimal(-1), 1: Decimal(1)}, "USD")
    assert [(note.number, note.credits) for note in both] == [(1, 1), (2, 2)]
    assert credit_lines(invoiced(lines, {1: (Decimal(10), Decimal(0))}), None, "USD")[0].credits == 2


def test_what_rounds_a_document_is_the_minor_unit_of_its_currency():
    known = {"USD": 2, "EUR": 2, "JPY": 0, "KRW": 0, "ISK": 0, "KWD": 3, "TND": 3, "CLF": 4, "UYW": 4, "UYI": 0}
    assert {code: minor_digits(code) for code in known} == known
    assert {minor_digits(code) for code in ("BHD", "IQD", "JOD", "LYD", "OMR")} == {3}
    without = ["BIF", "CLP", "DJF", "GNF", "KMF", "PYG", "RWF", "UGX", "VND", "VUV", "XAF", "XOF", "XPF"]
    assert {minor_digits(code) for code in without} == {0}


def test_hours_and_unit_prices_have_six_decimals():
    assert str(hours(1)) == "0.000000"
    assert str(hours(3600)) == "0.000001"
    assert str(hours(10 * 3_600_000_000)) == "10.000000"
