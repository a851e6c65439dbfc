"""What of the recorded usage commitments can cover: a run's segments, without the part that is credited as lost work.

What infrastructure lost is not charged, so no tenant used a commitment for it: the organisation bears that part of the
commitment as unused, as it bears the lost work.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from uuid import UUID

from .commitments import Run, User, Worth
from .credits import Loss
from .ledger import Books, RatedSegment, corrected_pieces, units
from .rating import Load


def run_of(
    user: User, segment: RatedSegment, books: Books, losses: Mapping[UUID, Loss], causes: Collection[str]
) -> Iterator[Run]:
    """The segment as usage of one day, by the corrected prices; none if it uses no units, or if all of it is credited."""
    rate = _rate(segment.load)
    loss = losses.get(segment.run_id) if segment.run_id else None
    until = segment.until
    if loss is not None and loss.cause in causes:
        until = max(segment.start, min(until, loss.lost_from))
    if not rate or segment.start >= until:
        return
    pieces = corrected_pieces(replace(segment, until=until), books)
    worth = [
        Worth(each.start, each.until, each.currency, units(each.cost)) for each in pieces if each.price_id is not None
    ]
    yield Run(user, segment.flavor, segment.capacity_type, segment.start, until, rate, worth)


def _rate(load: Load) -> int:
    """Thousandths of the units that it has at any time; 0 for a pod without GPUs on a flavor that is sold by the GPU."""
    return load.gpu_units * 1000 if load.unit == "gpu" else load.cpu_millicores
