"""Commitments in FOCUS: the columns of rows that are of a commitment, and the dataset Contract Commitment.

Jobs' rows remain at their price. Beside them, a row `Used` has what tenants bear of a commitment, one without a status takes back
what the covered usage was charged, and `Unused` has what no tenant used. So EffectiveCost of Used and Unused adds up, over a
term, to BilledCost of Purchase.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final, Literal

from .ledger import money

COLUMNS: Final = (
    "CommitmentDiscountCategory", "CommitmentDiscountId", "CommitmentDiscountName", "CommitmentDiscountQuantity",
    "CommitmentDiscountStatus", "CommitmentDiscountType", "CommitmentDiscountUnit",
)  # fmt: skip
TYPES: Mapping[str, str] = {
    "reserved_instance": "Reserved Instance", "own_purchase": "Own Purchase", "savings_plan": "Savings Plan",
}  # fmt: skip
PLAN = "savings_plan"
PLACES = 12
QUANTITY_AN_HOUR = 3_600_000_000
Part = Literal["used", "covered", "unused", "purchase"]


@dataclass(frozen=True, slots=True)
class Applied:
    """Which part of which commitment a row is of. `quantity` in thousandths of a unit times milliseconds; of a savings plan, in
    10**-12 of `unit`, its currency.

    `is_recurring`: of a purchase that is paid each month.
    """

    part: Part
    id: str
    name: str
    kind: str
    unit: str
    quantity: int | None = None
    is_recurring: bool = False


@dataclass(frozen=True, slots=True)
class Contract:
    """A commitment for the dataset Contract Commitment; amounts and quantities over its whole term."""

    id: str
    name: str
    kind: str
    unit: str
    units: int
    clusters: Sequence[str]
    flavor: str
    start: datetime
    until: datetime
    upfront: Decimal
    recurring: Decimal
    total: Decimal
    currency: str
    issuer: str
    provider: str
    created_at: datetime
    updated_at: datetime
    is_withdrawn: bool = False
    rates: Sequence[tuple[str, str, str]] = ()
    hourly: Decimal = Decimal(0)

    @property
    def flavors(self) -> list[str]:
        """Those that it covers."""
        return sorted({flavor for flavor, _, _ in self.rates}) or [self.flavor]

    @property
    def quantity(self) -> Decimal:
        """All of it: unit-hours, or money."""
        hours_ = (self.until - self.start) // timedelta(hours=1)
        return self.total if self.kind == PLAN else Decimal(self.units) * hours_

    @property
    def words(self) -> str:
        """What it is."""
        clusters = ", ".join(self.clusters)
        if self.kind == PLAN:
            return f"{self.hourly:f} {self.currency} an hour for {', '.join(self.flavors)} on {clusters}"
        return f"{self.units} of {self.flavor} on {clusters}"


def columns_of(applied: Applied, amount: Decimal) -> dict[str, str]:
    """The columns in which a row of a commitment differs from other money that is posted."""
    found = {
        "CommitmentDiscountCategory": category_of(applied.kind),
        "CommitmentDiscountId": applied.id,
        "CommitmentDiscountName": applied.name,
        "CommitmentDiscountType": TYPES[applied.kind],
        "ListCost": _text(Decimal(0)),
        "ContractedCost": _text(Decimal(0)),
    }
    if applied.part != "covered":
        found["PricingCategory"] = "Committed"
    if applied.part in {"used", "unused"}:
        found["CommitmentDiscountStatus"] = applied.part.capitalize()
    if applied.part == "unused":
        found["BilledCost"] = _text(Decimal(0))
    if applied.part == "purchase":
        found |= {
            "EffectiveCost": _text(Decimal(0)),
            "ListCost": _text(amount),
            "ContractedCost": _text(amount),
            "ChargeFrequency": "Recurring" if applied.is_recurring else "One-Time",
        }
    if applied.quantity is not None:
        is_plan = applied.kind == PLAN
        found["CommitmentDiscountQuantity"] = _text(money(applied.quantity) if is_plan else hours(applied.quantity))
        found["CommitmentDiscountUnit"] = applied.unit
    return found


def category_of(kind: str) -> str:
    """Whether a commitment is of usage or of money."""
    return "Spend" if kind == PLAN else "Usage"


def hours(quantity: int) -> Decimal:
    """Unit-hours, to twelve decimals."""
    whole, rest = divmod(abs(quantity) * 10**PLACES, QUANTITY_AN_HOUR)
    found = Decimal(whole + (2 * rest >= QUANTITY_AN_HOUR)).scaleb(-PLACES)
    return found if quantity >= 0 else -found


def contract_row(one: Contract, now: datetime) -> dict[str, str]:
    """A commitment as FOCUS describes contracts: the whole term is one contract."""
    begins, ends = _time(one.start), _time(one.until)
    is_recurring = one.upfront < one.total if one.kind == PLAN else bool(one.recurring)
    model = "All Upfront" if not is_recurring else "Partial Upfront" if one.upfront else "No Upfront"
    state = (
        "Canceled"
        if one.is_withdrawn
        else "Pending"
        if now < one.start
        else "Expired"
        if now >= one.until
        else "Active"
    )
    rules = {
        "InclusionOperator": "And",
        "Inclusions": [
            {"Dimension": "x_ClusterName", "Operator": "In", "Values": list(one.clusters)},
            {"Dimension": "x_Flavor", "Operator": "In", "Values": one.flavors},
        ],
    }
    return {
        "BillingCurrency": one.currency,
        "ContractCommitmentApplicability": json.dumps(rules),
        "ContractCommitmentBenefitCategory": "Discount",
        "ContractCommitmentCategory": category_of(one.kind),
        "ContractCommitmentCost": _text(one.total),
        "ContractCommitmentCreated": _time(one.created_at),
        "ContractCommitmentDescription": one.words,
        "ContractCommitmentDurationType": f"{(one.until - one.start).days or 1} Days",
        "ContractCommitmentFulfillmentInterval": "Hourly",
        "ContractCommitmentId": one.id,
        "ContractCommitmentLastUpdated": _time(one.updated_at),
        "ContractCommitmentLifecycleStatus": state,
        "ContractCommitmentModel": "Continuous",
        "ContractCommitmentOfferCategory": "Negotiated",
        "ContractCommitmentPaymentInterval": "Monthly" if is_recurring else "One-Time",
        "ContractCommitmentPaymentModel": model,
        "ContractCommitmentPeriodEnd": ends,
        "ContractCommitmentPeriodStart": begins,
        "ContractCommitmentQuantity": _text(one.quantity),
        "ContractCommitmentType": TYPES[one.kind],
        "ContractCommitmentUnit": one.unit,
        "ContractId": one.id,
        "ContractPeriodEnd": ends,
        "ContractPeriodStart": begins,
        "InvoiceIssuerName": one.issuer,
        "ServiceProviderName": one.provider,
    }


def _time(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _text(amount: Decimal) -> str:
    return format(amount, f".{PLACES}f")
