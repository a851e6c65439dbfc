"""What pods on a flavor emit in an hour: the rated power of what they use, at the grid intensity of the cluster's site.

A part without a rating counts as the rating of GPUs says: that can contain the host, so pods with GPUs need only the GPU's rating, and
pods without GPUs that of cores. What is not known is None, never zero.
"""

from decimal import Decimal

from placement.values.model import FleetFlavor

from .prices import Rates


def emitted_by(flavor: FleetFlavor, *, with_gpu: bool) -> Rates | None:
    """Grams an hour of a unit, a core and a GiB, of pods with a GPU or of pods without; None if they are not known."""
    known, zero = flavor.emissions, Decimal(0)
    if known is None:
        return None
    if with_gpu:
        return None if known.unit is None else Rates(known.unit, known.core or zero, known.gib or zero)
    return None if known.core is None else Rates(zero, known.core, known.gib or zero)


def emissions_text(grams: Decimal | None) -> str:
    """The text for users, `about 63.5 g CO2e an hour`."""
    return "what it emits there is not known" if grams is None else f"about {grams:.1f} g CO2e an hour"
