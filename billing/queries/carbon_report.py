"""Energy and emissions as reports show them: the rows add up to the totals."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from billing.engine.carbon import MILLISECONDS, NANOJOULES_A_KWH, Basis, Footprint
from billing.engine.shares import shown_parts

PLACES = 6
MILLIGRAMS_A_GRAM = 1000


@dataclass(frozen=True, slots=True)
class CarbonRow:
    """What a row of a report used and emitted; `basis` says whether its energy is measured. Emissions are CO2 equivalents.

    The `measured` figures are included in the others. So is the energy `without_intensity`: its emissions are not known. Embodied
    emissions come in addition, and are always estimated. The `unrated` time has no energy.
    """

    basis: Basis
    energy_kwh: Decimal
    measured_energy_kwh: Decimal
    energy_without_intensity_kwh: Decimal
    emissions_g: Decimal
    measured_emissions_g: Decimal
    embodied_emissions_g: Decimal
    unrated_gpu_hours: Decimal
    unrated_core_hours: Decimal


def carbon_rows(footprints: Sequence[Footprint]) -> tuple[tuple[CarbonRow, ...], CarbonRow]:
    """The rows in the same order, and their total."""
    grams = NANOJOULES_A_KWH * MILLIGRAMS_A_GRAM
    exact: dict[str, tuple[list[Fraction], int]] = {
        "energy_kwh": ([one.estimated + one.measured for one in footprints], NANOJOULES_A_KWH),
        "measured_energy_kwh": ([one.measured for one in footprints], NANOJOULES_A_KWH),
        "energy_without_intensity_kwh": ([one.dark for one in footprints], NANOJOULES_A_KWH),
        "emissions_g": ([one.estimated_emissions + one.measured_emissions for one in footprints], grams),
        "measured_emissions_g": ([one.measured_emissions for one in footprints], grams),
        "embodied_emissions_g": ([one.embodied for one in footprints], MILLIGRAMS_A_GRAM),
        "unrated_gpu_hours": ([one.unrated_gpus for one in footprints], MILLISECONDS),
        "unrated_core_hours": ([one.unrated_cores for one in footprints], MILLISECONDS),
    }
    shown = {name: shown_parts(parts, PLACES, per=per) for name, (parts, per) in exact.items()}
    rows = tuple(
        CarbonRow(one.basis, **{name: parts[number] for name, (parts, _) in shown.items()})
        for number, one in enumerate(footprints)
    )
    total = sum(footprints, Footprint())
    return rows, CarbonRow(total.basis, **{name: whole for name, (_, whole) in shown.items()})
