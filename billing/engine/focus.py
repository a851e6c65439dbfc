"""Charges in the columns of FOCUS, the FinOps Open Cost and Usage Specification (https://focus.finops.org).

A charge is the usage of one job on one flavor, at one price, on one UTC day. Each part of it that has a separate price
is a row: GPUs, cores and memory. The rows' costs add up exactly to the charge's recorded cost. Money that is not the
usage of the month's jobs (`Posted`) is a row without quantities.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import ROUND_DOWN, ROUND_HALF_EVEN, Decimal, localcontext
from fractions import Fraction
from typing import Final, Literal
from uuid import UUID

from . import focus_carbon, focus_commitments, focus_exchange
from .carbon import Footprint
from .focus_commitments import Applied
from .focus_exchange import Exchanged
from .months import midnight, next_month

Version = Literal["1.2", "1.4"]
VERSIONS: Final[tuple[Version, ...]] = ("1.4", "1.2")
"""The first is the default."""
PLACES = 12
"""Decimal places of costs and quantities."""
ZERO = Decimal(0)
MILLISECONDS_AN_HOUR = 3_600_000
SPOT = "spot"

SHARED_COLUMNS = (
    "BilledCost", "BillingAccountId", "BillingAccountName", "BillingCurrency", "BillingPeriodEnd", "BillingPeriodStart",
    "ChargeCategory", "ChargeClass", "ChargeDescription", "ChargeFrequency", "ChargePeriodEnd", "ChargePeriodStart",
    "ConsumedQuantity", "ConsumedUnit", "ContractedCost", "ContractedUnitPrice", "EffectiveCost", "InvoiceId", "InvoiceIssuerName",
    "ListCost", "ListUnitPrice", "PricingCategory", "PricingQuantity", "PricingUnit", "RegionId", "RegionName",
    "ResourceId", "ResourceName", "ResourceType", "ServiceCategory", "ServiceName", "ServiceSubcategory", "SkuId",
    "SkuMeter", "SkuPriceDetails", "SkuPriceId", "SubAccountId", "SubAccountName",
)  # fmt: skip
COLUMNS_OF_VERSION: Mapping[Version, tuple[str, ...]] = {
    "1.2": ("ProviderName", "PublisherName"),
    "1.4": ("HostProviderName", "InvoiceDetailId", "ServiceProviderName"),
}
OWN_COLUMNS = (
    "x_CapacityType", "x_ClusterName", "x_CpuCoreHours", "x_Flavor", "x_GpuHours", "x_GpuModel", "x_GpuSharing",
    "x_IsUnpriced", "x_LedgerEntryId", "x_MemoryGibHours", "x_UserId", "x_UserName",
)  # fmt: skip
"""Columns of ours. The quantities are those of the whole charge, on the first of its rows."""
DECIMALS = frozenset(
    {
        "BilledCost", "CommitmentDiscountQuantity", "ConsumedQuantity", "ContractedCost", "ContractedUnitPrice", "EffectiveCost", "ListCost",
        "ListUnitPrice", "PricingQuantity", "x_CpuCoreHours", "x_GpuHours", "x_MemoryGibHours", *focus_carbon.DECIMALS,
    }
)  # fmt: skip
INSTANTS = frozenset({"BillingPeriodEnd", "BillingPeriodStart", "ChargePeriodEnd", "ChargePeriodStart"})


Category = Literal["Usage", "Credit", "Adjustment", "Tax", "Purchase"]


@dataclass(frozen=True, slots=True)
class OnInvoice:
    """The document that a row is billed with, and the `InvoiceDetailId` of its line; empty if the rows of that line add
    up to zero, because documents have no such lines.
    """

    number: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Posted:
    """Money without quantities, of use in [start, until): an entry of the ledger, or what a document adds to its lines.

    `month` is the billing period. A `tenant` and a `cluster` are named if there is one; `entry_id` is the ledger's entry.
    """

    month: date
    start: date
    until: date
    organisation_id: UUID
    organisation: str
    issuer: str
    currency: str
    amount: Decimal
    description: str
    category: Category = "Usage"
    is_correction: bool = False
    tenant_id: UUID | None = None
    tenant: str = ""
    cluster: str = ""
    region: str = ""
    provider: str = ""
    owner: str = ""
    flavor: str = ""
    entry_id: int | None = None
    invoice: OnInvoice | None = None
    exchanged: Exchanged | None = None
    commitment: Applied | None = None


@dataclass(frozen=True, slots=True)
class Charge:
    """What one job used on one flavor, at one price, on one UTC day. Without a price `price_id` is None, and it costs
    nothing.

    A correction is the difference that corrected prices make to such a charge: a cost without quantities. So is a credit, which
    is negative: what is not charged because infrastructure lost the work.

    Quantities are in milliseconds: of units (GPUs, slices or shares), of physical GPUs, of millicores and of MiB.
    `is_by_core`: the unit's price is for a core. `owner` is the organisation that provides the cluster, `issuer` the name
    on the invoices of the organisation that pays (empty: its own).
    """

    day: date
    organisation_id: UUID
    organisation: str
    tenant_id: UUID
    tenant: str
    job_id: UUID
    job_name: str
    user_id: UUID
    user_name: str
    cluster: str
    region: str
    provider: str
    owner: str
    flavor: str
    capacity_type: str
    gpu_model: str
    sharing: str
    currency: str
    cost: Decimal
    is_by_core: bool = False
    price_id: UUID | None = None
    unit_price: Decimal | None = None
    cpu_price: Decimal | None = None
    memory_price: Decimal | None = None
    unit_milliseconds: int = 0
    gpu_milliseconds: Fraction = Fraction(0)
    cpu_millicore_milliseconds: int = 0
    memory_mib_milliseconds: int = 0
    is_correction: bool = False
    cluster_id: UUID | None = None
    issuer: str = ""
    invoice: OnInvoice | None = None
    is_credit: bool = False
    exchanged: Exchanged | None = None
    footprint: Footprint | None = None

    @property
    def core_hours(self) -> Fraction:
        """The cores that were requested, by hours."""
        return Fraction(self.cpu_millicore_milliseconds, MILLISECONDS_AN_HOUR * 1000)

    @property
    def gib_hours(self) -> Fraction:
        """The memory that was requested, in GiB by hours."""
        return Fraction(self.memory_mib_milliseconds, MILLISECONDS_AN_HOUR * 1024)


def columns(version: Version, *, in_two: bool = False) -> tuple[str, ...]:
    """The columns of a file, in its order: those of the specification, then ours, each alphabetically. `in_two`: also those of
    rows that are billed in another currency than their prices have.
    """
    more, own = (focus_exchange.COLUMNS, focus_exchange.OWN_COLUMNS) if in_two else ((), ())
    of_version = COLUMNS_OF_VERSION[version] + focus_commitments.COLUMNS
    return (*sorted(SHARED_COLUMNS + of_version + more), *sorted(OWN_COLUMNS + focus_carbon.COLUMNS + own))


def schema(version: Version, *, in_two: bool = False) -> dict[str, object]:
    """The specification's metadata of a file: its columns with their types."""
    return {
        "FocusVersion": version,
        "SchemaId": f"switchyard-cost-and-usage-{version}-1",
        "DataGenerator": "Switchyard",
        "ColumnDefinition": [definition(name) for name in columns(version, in_two=in_two)],
    }


def rows(charge: Charge | Posted, version: Version, *, in_two: bool = False) -> Iterator[dict[str, str]]:
    """The rows of a charge, as text by column; an absent column is null. `in_two` as for `columns`."""
    found = _priced_rows(charge, version)
    if charge.exchanged is not None:
        yield from focus_exchange.in_both(found, charge.currency, charge.exchanged)
    else:
        yield from map(focus_exchange.in_one, found) if in_two else found


def _priced_rows(charge: Charge | Posted, version: Version) -> Iterator[dict[str, str]]:
    """The rows in the currency of the price."""
    if isinstance(charge, Posted):
        yield _posted(charge, version)
        return
    shared = _shared(charge, version)
    if charge.is_correction:
        yield shared | _costs(charge.cost) | _correction(charge)
        return
    if charge.is_credit:
        yield (
            {name: text for name, text in shared.items() if name != "PricingCategory"}
            | _costs(charge.cost)
            | _credit(charge)
        )
        return
    parts = _parts(charge)
    left = charge.cost
    for part in reversed(parts[1:]):
        part.cost = _exact(part.hours * Fraction(part.price), rounding=ROUND_DOWN)
        left -= part.cost
    parts[0].cost = left
    for number, part in enumerate(parts):
        yield shared | _priced(charge, part) | (_whole_charge(charge) if not number else {})


@dataclass(slots=True)
class _Part:
    """What a charge has of one thing, with its price per hour; `hours` are of its `unit`."""

    meter: str
    unit: str
    hours: Fraction
    price: Decimal
    cost: Decimal = ZERO


def _parts(charge: Charge) -> list[_Part]:
    """The parts that have a price, or the one that stands for all without a price: at least one."""
    gpus = Fraction(charge.unit_milliseconds, MILLISECONDS_AN_HOUR)
    unit, cpu = charge.unit_price or ZERO, charge.cpu_price
    if charge.is_by_core:
        unit, cpu = ZERO, charge.unit_price
    parts = [_Part("GPU time", "GPU-Hours", gpus, unit)] if gpus else []
    if not parts or cpu is not None:
        parts.append(_Part("CPU time", "Core-Hours", charge.core_hours, cpu or ZERO))
    if charge.memory_price is not None:
        parts.append(_Part("Memory time", "GiB-Hours", charge.gib_hours, charge.memory_price))
    return parts


def _providers(owner: str, provider: str, version: Version) -> dict[str, str]:
    names = ("ProviderName", "PublisherName") if version == "1.2" else ("ServiceProviderName", "HostProviderName")
    return dict(zip(names, (owner, provider or owner), strict=True))


def _billed(invoice: OnInvoice | None, version: Version) -> dict[str, str]:
    if invoice is None:
        return {}
    on_line = {"InvoiceDetailId": invoice.detail} if version != "1.2" and invoice.detail else {}
    return {"InvoiceId": invoice.number} | on_line


def _posted(posted: Posted, version: Version) -> dict[str, str]:
    found = {
        **_providers(posted.owner or posted.organisation, posted.provider, version),
        **_billed(posted.invoice, version),
        **_costs(posted.amount),
        "BillingAccountId": str(posted.organisation_id),
        "BillingAccountName": posted.organisation,
        "BillingCurrency": posted.currency,
        "BillingPeriodStart": instant(posted.month),
        "BillingPeriodEnd": instant(next_month(posted.month)),
        "ChargeCategory": posted.category,
        "ChargeClass": "Correction" if posted.is_correction else "",
        "ChargeDescription": posted.description,
        "ChargeFrequency": "Usage-Based",
        "ChargePeriodStart": instant(posted.start),
        "ChargePeriodEnd": instant(posted.until),
        "InvoiceIssuerName": posted.issuer,
        "RegionId": posted.region,
        "RegionName": posted.region,
        "ServiceCategory": "Compute",
        "ServiceName": "Switchyard jobs",
        "ServiceSubcategory": "Containers",
        "SubAccountId": str(posted.tenant_id or ""),
        "SubAccountName": posted.tenant,
        "x_ClusterName": posted.cluster,
        "x_Flavor": posted.flavor,
        "x_IsUnpriced": "false",
        "x_LedgerEntryId": str(posted.entry_id or ""),
    }
    if posted.commitment:
        found |= focus_commitments.columns_of(posted.commitment, posted.amount)
    return {name: value for name, value in found.items() if value}


def _shared(charge: Charge, version: Version) -> dict[str, str]:
    month = charge.day.replace(day=1)
    of_version = _providers(charge.owner, charge.provider, version)
    return {
        **of_version,
        **_billed(charge.invoice, version),
        "BillingAccountId": str(charge.organisation_id),
        "BillingAccountName": charge.organisation,
        "BillingCurrency": charge.currency,
        "BillingPeriodStart": instant(month),
        "BillingPeriodEnd": instant(next_month(month)),
        "ChargeCategory": "Usage",
        "ChargeFrequency": "Usage-Based",
        "ChargePeriodStart": instant(charge.day),
        "ChargePeriodEnd": instant(charge.day + timedelta(days=1)),
        "InvoiceIssuerName": charge.issuer or charge.organisation,
        "PricingCategory": "Dynamic" if charge.capacity_type == SPOT else "Standard",
        "RegionId": charge.region,
        "RegionName": charge.region,
        "ResourceId": str(charge.job_id),
        "ResourceName": charge.job_name,
        "ResourceType": "Job",
        "ServiceCategory": "Compute",
        "ServiceName": "Switchyard jobs",
        "ServiceSubcategory": "Containers",
        "SubAccountId": str(charge.tenant_id),
        "SubAccountName": charge.tenant,
        "x_CapacityType": charge.capacity_type,
        "x_ClusterName": charge.cluster,
        "x_Flavor": charge.flavor,
        "x_GpuModel": charge.gpu_model,
        "x_GpuSharing": charge.sharing,
        "x_IsUnpriced": "false" if charge.price_id or charge.is_correction or charge.is_credit else "true",
        "x_UserId": str(charge.user_id),
        "x_UserName": charge.user_name,
    }


def _priced(charge: Charge, part: _Part) -> dict[str, str]:
    quantity = decimal_text(_exact(part.hours))
    used = _costs(part.cost) | {
        "ChargeDescription": f"{part.meter} of {charge.job_name} on {charge.flavor} of {charge.cluster}",
        "ConsumedQuantity": quantity,
        "ConsumedUnit": part.unit,
    }
    if charge.price_id is None:
        return used
    kind = f"{charge.cluster}/{charge.flavor}/{charge.capacity_type}/{part.meter.split()[0].lower()}"
    details = {"x_CapacityType": charge.capacity_type, "x_GpuModel": charge.gpu_model, "x_GpuSharing": charge.sharing}
    return used | {
        "ListUnitPrice": decimal_text(part.price),
        "ContractedUnitPrice": decimal_text(part.price),
        "PricingQuantity": quantity,
        "PricingUnit": part.unit,
        "SkuId": kind,
        "SkuMeter": part.meter,
        "SkuPriceDetails": json.dumps({name: value for name, value in details.items() if value}),
        "SkuPriceId": f"{charge.price_id}/{part.meter.split()[0].lower()}",
    }


def _costs(amount: Decimal) -> dict[str, str]:
    return dict.fromkeys(("BilledCost", "EffectiveCost", "ListCost", "ContractedCost"), decimal_text(amount))


def _correction(charge: Charge) -> dict[str, str]:
    return {
        "ChargeClass": "Correction",
        "ChargeDescription": f"Corrected prices of {charge.job_name} on {charge.flavor} of {charge.cluster}",
    }


def _credit(charge: Charge) -> dict[str, str]:
    return {
        "ChargeCategory": "Credit",
        "ChargeDescription": f"Infrastructure credit for lost work of {charge.job_name} on {charge.flavor} of {charge.cluster}",
    }


def _whole_charge(charge: Charge) -> dict[str, str]:
    return {
        "x_CpuCoreHours": decimal_text(_exact(charge.core_hours)),
        "x_GpuHours": decimal_text(_exact(charge.gpu_milliseconds / MILLISECONDS_AN_HOUR)),
        "x_MemoryGibHours": decimal_text(_exact(charge.gib_hours)),
        **focus_carbon.columns_of(charge.footprint),
    }


def definition(name: str) -> dict[str, object]:
    """A column with its type."""
    if name in DECIMALS or name in focus_exchange.DECIMALS:
        places = 18 if name == "x_ExchangeRate" else PLACES
        return {"ColumnName": name, "DataType": "Decimal", "NumericPrecision": 38, "NumberScale": places}
    return {"ColumnName": name, "DataType": "DateTime" if name in INSTANTS else "String"}


def _exact(value: Fraction, rounding: str = ROUND_HALF_EVEN) -> Decimal:
    """The value to twelve decimals."""
    with localcontext(prec=60):
        return (Decimal(value.numerator) / value.denominator).quantize(Decimal(1).scaleb(-PLACES), rounding=rounding)


def decimal_text(amount: Decimal) -> str:
    """Always with decimals: some readers take a column of whole numbers for integers and then refuse it."""
    return format(amount, f".{PLACES}f")


def instant(day: date) -> str:
    """The beginning of a day in UTC, as the specification writes it."""
    return midnight(day).strftime("%Y-%m-%dT%H:%M:%SZ")
