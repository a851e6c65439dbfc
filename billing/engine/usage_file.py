"""Charges as rows of a plain table, for spreadsheets and columnar files: exact numbers, one row per charge."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Final, Literal

from .carbon import Footprint
from .focus import Charge
from .focus_carbon import FIGURES, figure, has_figures

Kind = Literal["text", "integer", "money"]
PLACES = 12
"""Decimal places of money."""
COLUMNS: Final[Mapping[str, Kind]] = {
    "day": "text", "period_state": "text", "organisation": "text", "tenant": "text", "cluster": "text", "flavor": "text",
    "capacity_type": "text", "gpu_model": "text", "sharing": "text", "user": "text", "user_id": "text", "job": "text",
    "job_name": "text", "price_id": "text", "unit_price": "money", "cpu_price": "money", "memory_price": "money",
    "gpu_milliseconds": "integer", "physical_gpu_numerator": "integer", "physical_gpu_denominator": "integer",
    "cpu_millicore_milliseconds": "integer", "memory_mib_milliseconds": "integer", "cost": "money", "currency": "text",
    "is_correction": "text", "is_credit": "text", "energy_basis": "text", "energy_kwh": "money", "measured_energy_kwh": "money",
    "energy_without_intensity_kwh": "money", "emissions_g": "money", "measured_emissions_g": "money", "embodied_emissions_g": "money",
}  # fmt: skip
"""The columns in order; energy and emissions have twelve decimals, as money has. GPU milliseconds count units; `physical_gpu_…` is the same time in physical GPUs, as a fraction."""
OF_FIGURES = (
    "x_EnergyKwh", "x_MeasuredEnergyKwh", "x_EnergyWithoutIntensityKwh", "x_EmissionsGramsCo2e", "x_MeasuredEmissionsGramsCo2e",
    "x_EmbodiedGramsCo2e",
)  # fmt: skip
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
        *_figures(charge.footprint),
    )  # fmt: skip


def _figures(footprint: Footprint | None) -> tuple[Value, ...]:
    """The energy and emissions of a charge; nothing if no figure is known, or they are in another row of it."""
    if not has_figures(footprint):
        return "", *(None,) * 6
    return footprint.basis, *(figure(FIGURES[name], footprint) for name in OF_FIGURES)


def text(value: Value) -> str:
    """The value as every format shows it; money has its twelve decimals."""
    if isinstance(value, Decimal):
        return f"{value:.{PLACES}f}"
    return "" if value is None else str(value)
