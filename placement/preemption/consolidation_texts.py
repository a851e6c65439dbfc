"""What a consolidation keeps for its jobs, and what is said of it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from placement.cycle.timeline import instant_text
from placement.values.consolidation import Consolidation, PlannedMove
from placement.values.decisions import Wait
from placement.values.model import Snapshot
from placement.values.preemption import RoomClaim
from placement.values.reason_codes import ReasonCode

OF_PLANS = ("consolidation", "moved")
"""The kinds of claims that are about moves for larger jobs."""


def claims_of(found: Consolidation, claim_ids: Iterator[UUID], until: datetime) -> tuple[RoomClaim, ...]:
    """What a decision keeps for the job, and for each job that moves, until a time."""
    place = found.job_id, found.cluster_id, found.cluster, found.nodes, until
    lost = round(found.lost)
    own = RoomClaim(
        next(claim_ids), *place, len(found.moves), amounts=found.amounts, lost_seconds=lost, kind="consolidation"
    )
    moved = (_new_place(next(claim_ids), one, until) for one in found.moves)
    return (own, *moved)


def _new_place(claim_id: UUID, one: PlannedMove, until: datetime) -> RoomClaim:
    place = one.movable.run.job_id, one.cluster_id, one.cluster, one.nodes, until
    return RoomClaim(claim_id, *place, 0, amounts=one.amounts, kind="moved")


def explained(
    waits: Sequence[Wait], claims: Iterable[RoomClaim], why_not: Mapping[UUID, str], snapshot: Snapshot
) -> tuple[Wait, ...]:
    """The waits with what consolidation does for them, or why it does nothing."""
    by_job = {claim.job_id: claim for claim in claims if claim.kind in OF_PLANS}
    if not by_job and not why_not:
        return tuple(waits)
    return tuple(_explained(wait, by_job.get(wait.job_id), why_not.get(wait.job_id), snapshot) for wait in waits)


def _explained(wait: Wait, claim: RoomClaim | None, why_not: str | None, snapshot: Snapshot) -> Wait:
    if claim is not None:
        return wait._replace(code=ReasonCode.WAITING_FOR_CONSOLIDATION, message=plan_text(claim, snapshot))
    return wait._replace(message=f"{wait.message}; {why_not}") if why_not else wait


def plan_text(claim: RoomClaim, snapshot: Snapshot) -> str:
    """`2 running jobs are moving so that it fits (1 of them stopped), and repeat about 0.4 GPU-hours of work; 8 nodes of c1 are
    kept for it until 14:20 UTC`.
    """
    nodes = _count(len(claim.nodes), f"node of {claim.cluster} is", f"nodes of {claim.cluster} are")
    kept = f"{nodes} kept for it until {instant_text(claim.until_at, snapshot.now)}"
    if claim.kind == "moved":
        return f"it was moved so that a larger job fits; {kept}"
    moving = _count(claim.victims, "running job is moving", "running jobs are moving")
    ended = f" ({claim.ended} of them stopped)" if claim.ended else ""
    lost = f", and about {claim.lost_seconds / 3600:.2f} GPU-hours of work are repeated"
    return f"{moving} so that it fits{ended}{lost}; {kept}"


def _count(number: int, one: str, more: str) -> str:
    return f"{number} {one if number == 1 else more}"
