"""Charges as rows of a plain table, for spreadsheets and columnar files: exact numbers, one row per charge."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Final, Literal

from .focus import Charge

Kind = Literal["text", "integer", "money"]
PLACES = 12
"""Decimal places of money."""
COLUMNS: Final[Mapping[str, Kind]] = {
    "day": "text", "period_state": "text", "organisation": "text", "tenant": "text", "cluster": "text", "flavor": "text",
    "capacity_type": "text", "gpu_model": "text", "sharing": "text", "user": "text", "user_id": "text", "job": "text",
    "job_name": "text", "price_id": "text", "unit_price": "money", "cpu_price": "money", "memory_price": "money",
    "gpu_milliseconds": "integer", "physical_gpu_numerator": "integer", "physical_gpu_denominator": "integer",
    "cpu_millicore_milliseconds": "integer", "memory_mib_milliseconds": "integer", "cost": "money", "currency": "text",
    "is_correction": "text", "is_credit": "text",
}  # fmt: skip
"""The columns in order. GPU milliseconds count units; `physical_gpu_…` is the same time in physical GPUs, as a fraction."""
Value = str | int | Decimal | None


def row(charge: Charge, period_state: str) -> tuple[Value, ...]:
    """A charge in the order of COLUMNS. `period_state` is the state of its organisation's month in the ledger."""
    gpus = charge.gpu_milliseconds
    return (
        charge.day.isoformat(), period_state, charge.organisation, charge.tenant, charge.cluster, charge.flavor,
        charge.capacity_type, charge.gpu_model, charge.sharing, charge.user_name, str(charge.user_id), str(charge.job_id),
        charge.job_name, str(charge.price_id or ""), charge.unit_price, charge.cpu_price, charge.memory_price,
        charge.unit_milliseconds, gpus.numerator, gpus.denominator, charge.cpu_millicore_milliseconds,
        charge.memory_mib_milliseconds, charge.cost, charge.currency, "true" if charge.is_correction else "false",
        "true" if charge.is_credit else "false",
    )  # fmt: skip


def text(value: Value) -> str:
    """The value as every format shows it; money has its twelve decimals."""
    if isinstance(value, Decimal):
        return f"{value:.{PLACES}f}"
    return "" if value is None else str(value)
