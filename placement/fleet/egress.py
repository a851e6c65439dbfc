"""The cost of moving a job's data to each cluster: each dataset comes from its cheapest source.

Within a region, and on the cluster that stores it, data is not moved. A missing price is unknown, not zero.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from decimal import Decimal

from billing.engine.egress import EgressRate, rate_between
from clusters.engine.datasets import Place
from placement.values.datasets import DataNeed, Egress, Move
from placement.values.model import FleetCluster, JobRequest
from placement.values.quantities import memory_text

from .fleet import sees

BYTES_PER_GIB = 2**30
_STEP = Decimal("0.000001")


def egress_to(job: JobRequest, cluster: FleetCluster, rates: Sequence[EgressRate], at: datetime) -> Egress | None:
    """The cost of moving the job's data there at a time; None if the job names no data."""
    if not job.data:
        return None
    own = [rate for rate in rates if sees(job.tenant_path, rate.owner_path)]
    moves = tuple(
        cheapest_move(need, cluster.region, own, at)
        for need in job.data
        if not any(_is_at(s, cluster) for s in need.sources)
    )
    costs = [move.cost for move in moves]
    return Egress(sum((cost for cost in costs if cost is not None), Decimal(0)) if None not in costs else None, moves)


def _is_at(source: Place, cluster: FleetCluster) -> bool:
    return source.cluster_id == cluster.id or (source.region != "" and source.region == cluster.region)


def cheapest_move(need: DataNeed, region: str, rates: Sequence[EgressRate], at: datetime) -> Move:
    """The move to a region from the source with the lowest price; from the first source if no price is known."""
    best = Move(need.name, need.sources[0].region if need.sources else "", need.size_bytes, None)
    for source in need.sources:
        rate = rate_between(rates, source.region, region, at)
        if rate is None or need.size_bytes is None:
            continue
        cost = (rate.price_per_gib * need.size_bytes / BYTES_PER_GIB).quantize(_STEP)
        if best.cost is None or cost < best.cost:
            best = Move(need.name, source.region, need.size_bytes, cost)
    return best


def egress_text(moves: Iterable[Move], currency: str) -> str:
    """The text for users, `150Gi of imagenet from eu-west-1 for 3.00 USD`; empty if nothing moves."""
    return "; ".join(_move_text(move, currency) for move in moves)


def _move_text(move: Move, currency: str) -> str:
    if not move.from_region and move.cost is None:
        return f"the location of {move.data} is unknown" if move.size_bytes is None else f"{move.data}: cost unknown"
    size = "" if move.size_bytes is None else f"{memory_text(move.size_bytes)} of "
    price = "at an unknown price" if move.cost is None else f"for {move.cost:.2f} {currency}"
    return f"{size}{move.data} from {move.from_region or 'an unnamed region'} {price}"
