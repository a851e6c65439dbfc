"""A charge as a row of a table: exact numbers, empty where there is none."""

from dataclasses import replace
from decimal import Decimal

import pytest

from billing.engine.usage_file import COLUMNS, row, text

from .test_focus import CHARGE


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, ""),
        ("acme/ml", "acme/ml"),
        (3_600_000, "3600000"),
        (Decimal("2.5"), "2.500000000000"),
        (Decimal("1e-12"), "0.000000000001"),
        (Decimal(0), "0.000000000000"),
    ],
)
def test_money_has_twelve_decimals_and_what_is_missing_is_empty(value, shown):
    assert text(value) == shown


def test_a_row_says_whether_it_is_a_correction_and_leaves_out_a_price_that_is_not_known():
    usual, other = (
        dict(zip(COLUMNS, row(charge, "open"), strict=True))
        for charge in (CHARGE, replace(CHARGE, price_id=None, is_correction=True))
    )
    assert (usual["price_id"], usual["is_correction"]) == (str(CHARGE.price_id), "false")
    assert (other["price_id"], other["is_correction"]) == ("", "true")
