"""A charge as a row of a table: exact numbers, empty where there is none."""

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import pytest

from billing.engine.carbon import NANOJOULES_A_KWH, Footprint
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


FIGURES = (
    "energy_kwh", "measured_energy_kwh", "energy_without_intensity_kwh", "emissions_g", "measured_emissions_g", "embodied_emissions_g",
)  # fmt: skip


def test_a_row_has_the_energy_and_emissions_of_its_charge():
    one = Footprint(estimated=Fraction(NANOJOULES_A_KWH, 3), dark=Fraction(NANOJOULES_A_KWH), embodied=Fraction(2500))
    found = dict(zip(COLUMNS, row(replace(CHARGE, footprint=one), "open"), strict=True))
    assert (found["energy_basis"], found["energy_kwh"]) == ("estimated", Decimal("0.333333333333"))
    assert (found["energy_without_intensity_kwh"], found["embodied_emissions_g"]) == (1, Decimal("2.5"))
    assert row(replace(CHARGE, footprint=Footprint()), "open") == row(CHARGE, "open")


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
        "energy_basis": ("text", ""), **dict.fromkeys(FIGURES, ("money", None)),
    }  # fmt: skip
    assert dict(COLUMNS) == {name: kind for name, (kind, _) in expected.items()}
    assert row(CHARGE, "open") == tuple(value for _, value in expected.values())
