"""Charges as rows for finance tools: parts, prices, and costs that add up."""

import json
from dataclasses import replace
from datetime import date
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

import pytest

from billing.engine.focus import DECIMALS, INSTANTS, VERSIONS, Charge, columns, rows, schema

HOUR = 3_600_000
CHARGE = Charge(
    day=date(2026, 12, 31), organisation_id=UUID(int=1), organisation="Acme", tenant_id=UUID(int=2), tenant="ML",
    job_id=UUID(int=3), job_name="train", user_id=UUID(int=4), user_name="Ada", cluster="north", region="eu",
    provider="", owner="Acme", flavor="h100", capacity_type="on_demand", gpu_model="H100", sharing="", currency="USD",
    cost=Decimal("5.5"), price_id=UUID(int=5), unit_price=Decimal("2.5"), unit_milliseconds=2 * HOUR,
    gpu_milliseconds=Fraction(HOUR, 2), cpu_millicore_milliseconds=4000 * HOUR, memory_mib_milliseconds=3072 * HOUR,
)  # fmt: skip


def made(charge=CHARGE, version="1.4", **more):
    return list(rows(replace(charge, **more), version))


def parts(charge=CHARGE, **more):
    return [(row["SkuMeter"], row["BilledCost"].rstrip("0"), row["ListUnitPrice"].rstrip("0"),
             row["PricingQuantity"].rstrip("0")) for row in made(charge, **more)]  # fmt: skip


def test_each_part_with_a_price_is_a_row_and_the_first_takes_what_is_left():
    assert parts() == [("GPU time", "5.5", "2.5", "2.")]
    found = parts(cpu_price=Decimal("0.03"), memory_price=Decimal("0.004"))
    assert found == [
        ("GPU time", "5.368", "2.5", "2."), ("CPU time", "0.12", "0.03", "4."), ("Memory time", "0.012", "0.004", "3."),
    ]  # fmt: skip
    # Costs are rounded down, and the first row has the rest.
    third = parts(cpu_price=Decimal("0.03"), cpu_millicore_milliseconds=1)
    assert third[1][1] == "0.000000000008"
    assert third[0][1] == "5.499999999992"


def test_a_price_by_the_core_is_of_the_cores():
    found = parts(is_by_core=True, unit_milliseconds=0, unit_price=Decimal("0.05"))
    assert found == [("CPU time", "5.5", "0.05", "4.")]
    guest = parts(is_by_core=True, unit_price=Decimal("0.05"))
    assert guest == [("GPU time", "5.3", "0.", "2."), ("CPU time", "0.2", "0.05", "4.")]
    assert parts(unit_milliseconds=0, memory_price=Decimal("0.004"), unit_price=None) == [
        ("CPU time", "5.488", "0.", "4."), ("Memory time", "0.012", "0.004", "3."),
    ]  # fmt: skip


def test_the_quantities_of_the_whole_charge_are_on_its_first_row_only():
    first, second = made(cpu_price=Decimal("0.03"))
    assert [first[name].rstrip("0") for name in ("x_GpuHours", "x_CpuCoreHours", "x_MemoryGibHours")] == [
        "0.5",
        "4.",
        "3.",
    ]
    assert not {"x_GpuHours", "x_CpuCoreHours", "x_MemoryGibHours"} & second.keys()
    for row in (first, second):
        assert row["BilledCost"] == row["EffectiveCost"] == row["ListCost"] == row["ContractedCost"]
        assert len(row["BilledCost"].partition(".")[2]) == 12


def test_a_charge_is_of_its_day_and_month_in_utc():
    (row,) = made()
    assert (row["ChargePeriodStart"], row["ChargePeriodEnd"]) == ("2026-12-31T00:00:00Z", "2027-01-01T00:00:00Z")
    assert (row["BillingPeriodStart"], row["BillingPeriodEnd"]) == ("2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z")


def test_unpriced_usage_has_quantities_and_no_price():
    (row,) = made(price_id=None, unit_price=None, cost=Decimal(0))
    assert (row["x_IsUnpriced"], row["ConsumedQuantity"], row["ConsumedUnit"]) == (
        "true",
        "2.000000000000",
        "GPU-Hours",
    )
    assert not {"ListUnitPrice", "SkuId", "SkuPriceId", "PricingQuantity"} & row.keys()
    (row,) = made()
    assert (row["x_IsUnpriced"], row["SkuId"]) == ("false", "north/h100/on_demand/gpu")
    assert row["SkuPriceId"] == f"{UUID(int=5)}/gpu"
    assert json.loads(row["SkuPriceDetails"]) == {"x_CapacityType": "on_demand", "x_GpuModel": "H100"}


def test_a_correction_is_one_row_of_cost_without_quantities():
    (row,) = made(is_correction=True, price_id=None, cost=Decimal("-1.5"))
    assert (row["ChargeClass"], row["BilledCost"], row["x_IsUnpriced"]) == ("Correction", "-1.500000000000", "false")
    assert row["BillingCurrency"] == "USD"
    assert not {"ConsumedQuantity", "SkuId", "x_GpuHours"} & row.keys()


def test_a_credit_is_one_row_of_negative_cost_without_a_price():
    (row,) = made(is_credit=True, price_id=None, cost=Decimal("-1.5"))
    assert (row["ChargeCategory"], row["BilledCost"], row["x_IsUnpriced"]) == ("Credit", "-1.500000000000", "false")
    assert row["ChargeDescription"].startswith("Infrastructure credit for lost work of ")
    assert not {"ConsumedQuantity", "SkuId", "x_GpuHours", "PricingCategory", "ChargeClass"} & row.keys()


def test_spot_is_dynamic_and_a_cluster_without_a_provider_is_hosted_by_its_owner():
    assert [made(capacity_type=kind)[0]["PricingCategory"] for kind in ("spot", "on_demand")] == ["Dynamic", "Standard"]
    for provider, expected in (("", "Acme"), ("AWS", "AWS")):
        (new,), (old,) = (made(version=version, provider=provider) for version in VERSIONS)
        assert (new["HostProviderName"], new["ServiceProviderName"]) == (expected, "Acme")
        assert (old["PublisherName"], old["ProviderName"]) == (expected, "Acme")


@pytest.mark.parametrize("version", VERSIONS)
def test_the_columns_are_those_of_the_rows_with_their_types(version):
    names = columns(version)
    assert names.index("BilledCost") == 0
    assert len(set(names)) == len(names)
    used = set().union(*made(version=version), *made(version=version, is_correction=True))
    assert used <= set(names)
    definitions: Any = schema(version)["ColumnDefinition"]
    types = {one["ColumnName"]: one for one in definitions}
    assert {name for name, one in types.items() if one["DataType"] == "Decimal"} == DECIMALS
    assert {name for name, one in types.items() if one["DataType"] == "DateTime"} == INSTANTS
    assert {one["NumericPrecision"] for one in types.values() if "NumericPrecision" in one} == {38}
    assert {one["NumberScale"] for one in types.values() if "NumberScale" in one} == {12}
