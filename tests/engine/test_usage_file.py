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


def test_a_row_has_these_columns_of_these_kinds():
    expected = {
        "day": ("text", "2026-12-31"), "period_state": ("text", "open"), "organisation": ("text", "Acme"),
        "tenant": ("text", "ML"), "cluster": ("text", "north"), "flavor": ("text", "h100"),
        "capacity_type": ("text", "on_demand"), "gpu_model": ("text", "H100"), "sharing": ("text", ""),
        "user": ("text", "Ada"), "user_id": ("text", str(CHARGE.user_id)), "job": ("text", str(CHARGE.job_id)),
        "job_name": ("text", "train"), "price_id": ("text", str(CHARGE.price_id)), "unit_price": ("money", Decimal("2.5")),
        "cpu_price": ("money", None), "memory_price": ("money", None), "gpu_milliseconds": ("integer", 7_200_000),
        "physical_gpu_numerator": ("integer", 1_800_000), "physical_gpu_denominator": ("integer", 1),
        "cpu_millicore_milliseconds": ("integer", 14_400_000_000), "memory_mib_milliseconds": ("integer", 11_059_200_000),
        "cost": ("money", Decimal("5.5")), "currency": ("text", "USD"), "is_correction": ("text", "false"), "is_credit": ("text", "false"),
    }  # fmt: skip
    assert dict(COLUMNS) == {name: kind for name, (kind, _) in expected.items()}
    assert row(CHARGE, "open") == tuple(value for _, value in expected.values())
