"""The scale of a forecast's chart: round amounts up to at least the highest, and days that fit on a phone."""

from datetime import date, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.web.forecast_chart import scale_of
from tests.laws import examples

FIRST = date(2026, 11, 1)


def days(count):
    return [FIRST + timedelta(days=number) for number in range(count)]


@pytest.mark.parametrize(
    ("highest", "amounts"),
    [
        ("3210.55", ("4,000", "3,000", "2,000", "1,000", "0")),
        ("4000", ("4,000", "3,000", "2,000", "1,000", "0")),
        ("4000.01", ("8,000", "6,000", "4,000", "2,000", "0")),
        ("0.9", ("1", "0.75", "0.5", "0.25", "0")),
        ("0.000001", ("0.000001", "0.00000075", "0.0000005", "0.00000025", "0")),
        ("0", ("1", "0.75", "0.5", "0.25", "0")),
        ("-5", ("1", "0.75", "0.5", "0.25", "0")),
        ("1234567890", ("2,000,000,000", "1,500,000,000", "1,000,000,000", "500,000,000", "0")),
    ],
)
def test_amounts_are_round(highest, amounts):
    assert scale_of(Decimal(highest), days(30)).amounts == amounts


@given(st.decimals("0.000000000001", "1e24", allow_nan=False))
@examples(60)
def test_the_highest_amount_is_within_the_picture_and_uses_most_of_it(highest):
    scale = scale_of(highest, [])
    assert highest <= scale.top <= highest * Decimal("2.5")
    assert scale.dates == ()


@pytest.mark.parametrize(
    ("count", "marks"),
    [
        (30, ["6 Nov", "14 Nov", "22 Nov", "30 Nov"]),
        (31, ["7 Nov", "15 Nov", "23 Nov", "1 Dec"]),
        (3, ["1 Nov", "2 Nov", "3 Nov"]),
        (1, ["1 Nov"]),
        (365, ["May 2027", "Oct 2027"]),
    ],
)
def test_days_are_marked_at_equal_distances_up_to_the_last(count, marks):
    found = scale_of(Decimal(1), days(count)).dates
    assert [mark.text for mark in found] == marks
    assert (found[-1].percent, found[-1].x, found[-1].anchor) == ("100.00", "240.0", "end")
