"""The expected cost of a run, split into its parts for users."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from billing.engine.egress import EgressRate
from placement.fleet.egress import egress_to
from placement.fleet.prices import cost_over
from placement.values.datasets import Egress, Move
from placement.values.decisions import InterruptionRisk, Placement
from placement.values.model import FleetCluster, JobRequest, Runtime

_STEP = Decimal("0.000001")
PARTS = ("run", "interruptions", "egress")


@dataclass(frozen=True, slots=True)
class Estimate:
    """The cost of a run: `run` for its expected duration there, `interruptions` for the work that they are expected to
    lose, `egress` for moving its data there. None is unknown; a part that does not arise is 0. `seconds` is without
    interruptions.
    """

    seconds: int | None
    run: Decimal | None
    interruptions: Decimal | None
    egress: Decimal | None

    @property
    def total(self) -> Decimal | None:
        """The sum of the parts; None if one is unknown."""
        if self.run is None or self.interruptions is None or self.egress is None:
            return None
        return self.run + self.interruptions + self.egress


def estimate_of(
    job: JobRequest, placement: Placement, cluster: FleetCluster, runtime: Runtime | None, at: datetime
) -> Estimate:
    """The expected cost of a run that starts then, at the prices of that time as far as they are announced.

    `runtime` is its expected duration there.
    """
    egress = Decimal(0) if placement.egress is None else placement.egress.cost
    if runtime is None:
        return Estimate(None, None, None, egress)
    flavors = tuple(cluster.flavors[placed.flavor] for placed in placement.pod_sets)
    run = cost_over(job.pod_sets, flavors, at, runtime.p50_seconds)
    return Estimate(runtime.p50_seconds, run, None if run is None else _lost(run, placement.risk), egress)


def _lost(run: Decimal, risk: InterruptionRisk | None) -> Decimal:
    """The cost of the work that is repeated."""
    if risk is None:
        return Decimal(0)
    share = Decimal(str(risk.lost_share))
    return (run * share / (1 - share)).quantize(_STEP)


def at_start(
    job: JobRequest, placement: Placement, cluster: FleetCluster, rates: Sequence[EgressRate], at: datetime
) -> Placement:
    """The placement with the cost of its data at the time it starts."""
    return placement._replace(egress=egress_to(job, cluster, rates, at)) if job.data else placement


def record_of(estimate: Estimate, egress: Egress | None) -> dict[str, Any]:
    """The estimate as an attempt stores it: amounts as text, with the data moves."""
    return {
        "seconds": estimate.seconds,
        **{name: _text(getattr(estimate, name)) for name in PARTS},
        "moves": [
            {
                "data": move.data,
                "from_region": move.from_region,
                "size_bytes": move.size_bytes,
                "cost": _text(move.cost),
            }
            for move in (egress.moves if egress else ())
        ],
    }


def estimate_in(record: Mapping[str, Any]) -> tuple[Estimate, tuple[Move, ...]]:
    """The inverse of `record_of`."""
    run, interruptions, egress = (_amount(record[name]) for name in PARTS)
    moves = tuple(
        Move(one["data"], one["from_region"], one["size_bytes"], _amount(one["cost"])) for one in record["moves"]
    )
    return Estimate(record["seconds"], run, interruptions, egress), moves


def _text(amount: Decimal | None) -> str | None:
    return None if amount is None else format(amount.quantize(_STEP), "f")


def _amount(text: str | None) -> Decimal | None:
    return None if text is None else Decimal(text)
