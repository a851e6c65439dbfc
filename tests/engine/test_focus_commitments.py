"""Commitments in FOCUS: what each part of one is written as, and how far its contract is."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

import pytest

from billing.engine.focus_commitments import (
    PLACES,
    QUANTITY_AN_HOUR,
    Applied,
    Contract,
    columns_of,
    contract_row,
    hours,
)

START = datetime(2026, 1, 1, tzinfo=UTC)
CONTRACT = Contract(
    "id", "reserved", "own_purchase", "H100", 4, ["north", "south"], "h100", START, START + timedelta(days=10),
    Decimal(0), Decimal(30), Decimal(30), "USD", "Platform", "acme", START, START,
)  # fmt: skip
NOTHING = "0.000000000000"
OF_ALL = {
    "CommitmentDiscountCategory": "Usage", "CommitmentDiscountId": "id", "CommitmentDiscountName": "reserved",
    "CommitmentDiscountType": "Reserved Instance", "ListCost": NOTHING, "ContractedCost": NOTHING,
}  # fmt: skip
PAID = {
    "PricingCategory": "Committed", "EffectiveCost": NOTHING, "ListCost": "3.500000000000",
    "ContractedCost": "3.500000000000", "ChargeFrequency": "One-Time",
}  # fmt: skip


@pytest.mark.parametrize(
    ("part", "own"),
    [
        ("used", {"PricingCategory": "Committed", "CommitmentDiscountStatus": "Used"}),
        ("covered", {}),
        ("unused", {"PricingCategory": "Committed", "CommitmentDiscountStatus": "Unused", "BilledCost": NOTHING}),
        ("purchase", PAID),
    ],
)
def test_each_part_of_a_commitment_has_its_columns(part, own):
    applied = Applied(part, "id", "reserved", "reserved_instance", "H100")
    assert columns_of(applied, Decimal("3.5")) == OF_ALL | own
    of_hours = {"CommitmentDiscountQuantity": "2.000000000000", "CommitmentDiscountUnit": "H100"}
    assert columns_of(replace(applied, quantity=2 * QUANTITY_AN_HOUR), Decimal("3.5")) == OF_ALL | own | of_hours


def test_a_purchase_that_is_paid_each_month_recurs():
    monthly = Applied("purchase", "id", "reserved", "reserved_instance", "H100", is_recurring=True)
    assert columns_of(monthly, Decimal("3.5")) == OF_ALL | PAID | {"ChargeFrequency": "Recurring"}


@pytest.mark.parametrize("quantity", [0, 1, 7, 1_799_999, QUANTITY_AN_HOUR - 1, QUANTITY_AN_HOUR, 12_345_678_901_234])
def test_hours_are_the_nearest_to_twelve_decimals_and_those_taken_back_are_as_many(quantity):
    found = hours(quantity)
    assert abs(Fraction(found) - Fraction(quantity, QUANTITY_AN_HOUR)) <= Fraction(1, 2 * 10**PLACES)
    assert hours(-quantity) == -found
    assert found.as_tuple().exponent == -PLACES


@pytest.mark.parametrize(
    ("days", "is_withdrawn", "state"),
    [(-1, False, "Pending"), (0, False, "Active"), (9, False, "Active"), (10, False, "Expired"), (-1, True, "Canceled"),
     (10, True, "Canceled")],
)  # fmt: skip
def test_a_contract_is_active_from_its_start_to_its_end(days, is_withdrawn, state):
    row = contract_row(replace(CONTRACT, is_withdrawn=is_withdrawn), START + timedelta(days=days))
    assert row["ContractCommitmentLifecycleStatus"] == state


@pytest.mark.parametrize(
    ("upfront", "recurring", "model", "interval"),
    [(0, 30, "No Upfront", "Monthly"), (5, 30, "Partial Upfront", "Monthly"), (5, 0, "All Upfront", "One-Time")],
)
def test_a_contract_says_how_it_is_paid(upfront, recurring, model, interval):
    row = contract_row(replace(CONTRACT, upfront=Decimal(upfront), recurring=Decimal(recurring)), START)
    assert (row["ContractCommitmentPaymentModel"], row["ContractCommitmentPaymentInterval"]) == (model, interval)
    assert row["ContractCommitmentDescription"] == "4 of h100 on north, south"
    assert (row["ContractCommitmentQuantity"], row["ContractCommitmentUnit"]) == ("960.000000000000", "H100")
