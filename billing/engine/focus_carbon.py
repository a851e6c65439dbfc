"""Energy and emissions of a charge, in columns of ours."""

from collections.abc import Callable, Mapping
from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from fractions import Fraction
from typing import TypeGuard

from .carbon import NANOJOULES_A_KWH, Footprint

PLACES = 12
GRAMS = NANOJOULES_A_KWH * 1000
FIGURES: Mapping[str, Callable[[Footprint], Fraction]] = {
    "x_EmbodiedGramsCo2e": lambda one: one.embodied / 1000,
    "x_EmissionsGramsCo2e": lambda one: (one.estimated_emissions + one.measured_emissions) / GRAMS,
    "x_EnergyKwh": lambda one: (one.estimated + one.measured) / NANOJOULES_A_KWH,
    "x_EnergyWithoutIntensityKwh": lambda one: one.dark / NANOJOULES_A_KWH,
    "x_MeasuredEmissionsGramsCo2e": lambda one: one.measured_emissions / GRAMS,
    "x_MeasuredEnergyKwh": lambda one: one.measured / NANOJOULES_A_KWH,
}
COLUMNS = ("x_EnergyBasis", *FIGURES)
DECIMALS = frozenset(FIGURES)


def has_figures(footprint: Footprint | None) -> TypeGuard[Footprint]:
    """Whether a charge has any figure."""
    return footprint is not None and any((*footprint.values[:4], footprint.embodied))


def columns_of(footprint: Footprint | None) -> dict[str, str]:
    """The columns of the first row of a charge; nothing if no figure is known."""
    if not has_figures(footprint):
        return {}
    return {"x_EnergyBasis": footprint.basis} | {name: f"{figure(of, footprint):f}" for name, of in FIGURES.items()}


def figure(of: Callable[[Footprint], Fraction], footprint: Footprint) -> Decimal:
    """A figure, to twelve decimals."""
    value = of(footprint)
    with localcontext(prec=60):
        return (Decimal(value.numerator) / value.denominator).quantize(Decimal(1).scaleb(-PLACES), ROUND_HALF_EVEN)
