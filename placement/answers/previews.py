"""What a change of limits, shares or budgets does to the next cycle: the same decisions as that cycle, without and with it.

Both rounds start from one state of queue and fleet. Each decides as a cycle does: what lowered limits take back, then who
starts, then who is stopped for jobs that wait. Moves that only consolidate are not part of it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from placement.cycle import cycle
from placement.fleet.fleet import FleetIndex
from placement.preemption.plan import explained, plan
from placement.preemption.surplus import Beyond, reduce
from placement.values.decisions import Placement, Wait
from placement.values.model import Snapshot
from placement.values.preemption import Allowance, Leaving, Preemption, RoomClaim, Surplus, Victim, organisation_of

MOST_TIMES = 16
"""The number of later times at which limits take back that a preview follows."""


@dataclass(frozen=True, slots=True)
class State:
    """All that the next cycle decides from. `beyond` are organisations with lowered limits, also those whose delay has not
    passed; `hourly` is how much of each may be stopped in an hour, in thousandths of a GPU.
    """

    snapshot: Snapshot
    beyond: tuple[Beyond, ...] = ()
    hourly: Mapping[str, int] | None = None
    keep_seconds: int = 0
    """How long the place of a job is kept for which others are stopped."""


class Stop(NamedTuple):
    """A running job that is stopped: in the next cycle, or from `at` on for a limit whose delay has not passed.
    `beneficiary` is the job that gets its place, if one does.
    """

    victim: Victim
    at: datetime
    beneficiary: UUID | None = None


@dataclass(frozen=True, slots=True)
class Round:
    """What the next cycle does, by job."""

    placements: Mapping[UUID, Placement]
    waits: Mapping[UUID, Wait]
    stops: Mapping[UUID, Stop]


@dataclass(frozen=True, slots=True)
class Preview:
    """What differs in the next cycle. `stops` are all that are stopped with the change; those in `anyway` are without it too."""

    starts: tuple[Placement, ...]
    """Jobs that start with the change only."""
    waits: tuple[Wait, ...]
    """Jobs that would start without it, and wait."""
    otherwise: tuple[Wait, ...]
    """Jobs that wait either way, and now for another reason."""
    stops: tuple[Stop, ...]
    anyway: frozenset[UUID]
    spared: tuple[Stop, ...]
    """Jobs that are stopped without it only."""


def preview(before: State, after: State, index: FleetIndex) -> Preview:
    """The difference between the next cycle without and with a change. Changes nothing."""
    without, changed = next_round(before, index), next_round(after, index)
    starts = [one for job, one in changed.placements.items() if job not in without.placements]
    waits = [one for job, one in changed.waits.items() if job in without.placements]
    otherwise = [
        one
        for job, one in changed.waits.items()
        if (was := without.waits.get(job)) is not None and was.code != one.code
    ]
    return Preview(
        starts=tuple(starts),
        waits=tuple(waits),
        otherwise=tuple(otherwise),
        stops=tuple(changed.stops.values()),
        anyway=frozenset(changed.stops.keys() & without.stops.keys()),
        spared=tuple(one for job, one in without.stops.items() if job not in changed.stops),
    )


def next_round(state: State, index: FleetIndex) -> Round:
    """What the next cycle decides in this state."""
    now, taken = state.snapshot.now, _taken_back(state.beyond, state.snapshot.now)
    snapshot = _after(state, [one.victim for one in taken])
    decisions, final = cycle.run(snapshot, index)
    planned = plan(snapshot, final, decisions.waits)
    made = planned.decision
    claims = snapshot.claims if made is None else (*snapshot.claims, _claim(made, now, state.keep_seconds))
    waits = explained(decisions.waits, claims, planned.why_not, snapshot)
    stops = {one.victim.run.job_id: one for one in taken}
    if made is not None:
        stops.update((one.run.job_id, Stop(one, now, made.job_id)) for one in made.victims)
    for one in _later(state.beyond, now, [stop.victim for stop in stops.values()]):
        stops.setdefault(one.victim.run.job_id, one)
    return Round({one.job_id: one for one in decisions.placements}, {one.job_id: one for one in waits}, stops)


def _taken_back(beyond: Iterable[Beyond], now: datetime) -> list[Stop]:
    """What the next cycle stops for limits whose delay has passed."""
    return [
        Stop(victim, now)
        for one in beyond
        if (due := _due_at(one, now)) and (found := reduce(replace(one, due=due))) is not None
        for victim in found.victims
    ]


def _later(beyond: Iterable[Beyond], now: datetime, stopped: Sequence[Victim]) -> list[Stop]:
    """What is stopped from later times on, as far as what runs now still runs. Without the brake: it only takes longer."""
    found: list[Stop] = []
    for one in beyond:
        for at in sorted({limit.due_at for limit in one.due if limit.due_at > now})[:MOST_TIMES]:
            gone = [*stopped, *(stop.victim for stop in found)]
            left = _without(one, gone, at)
            made = reduce(replace(left, due=_due_at(left, at), allowance=Allowance(len(left.running))))
            found += [] if made is None else [Stop(victim, at) for victim in made.victims]
    return found


def _due_at(beyond: Beyond, at: datetime) -> tuple[Surplus, ...]:
    return tuple(limit for limit in beyond.due if limit.due_at <= at)


def _without(beyond: Beyond, victims: Sequence[Victim], at: datetime) -> Beyond:
    gone = {one.run.attempt_id: one.run for one in victims}
    left = [run for run in beyond.running if run.attempt_id not in gone]
    going = [Leaving(run.tenant_path, run.cluster, run.amounts) for run in beyond.running if run.attempt_id in gone]
    return replace(beyond, now=at, running=tuple(left), going=(*beyond.going, *going))


def _after(state: State, victims: Sequence[Victim]) -> Snapshot:
    """The snapshot as the cycle loads it when these jobs are being stopped."""
    snapshot = state.snapshot
    if not victims or not snapshot.running:
        return snapshot
    gone = {one.run.attempt_id for one in victims}
    leaving = [Leaving(one.run.tenant_path, one.run.cluster, one.run.amounts) for one in victims]
    left = dict(snapshot.allowance.gpu_milli or {})
    for one in victims:
        name = organisation_of(one.run.tenant_path)
        left[name] = max(0, left.get(name, (state.hourly or {}).get(name, 0)) - one.run.gpu_milli)
    return replace(
        snapshot,
        running=tuple(run for run in snapshot.running if run.attempt_id not in gone),
        leaving=(*snapshot.leaving, *leaving),
        allowance=replace(snapshot.allowance, gpu_milli=left),
    )


def _claim(made: Preemption, now: datetime, seconds: int) -> RoomClaim:
    """What the cycle keeps for the job for which it stops others."""
    return RoomClaim(
        id=made.job_id,
        job_id=made.job_id,
        cluster_id=made.cluster_id,
        cluster=made.cluster,
        nodes=made.nodes,
        until_at=now + timedelta(seconds=seconds),
        victims=len(made.victims),
        borrowers=sum(one.loan is not None for one in made.victims),
        amounts=made.amounts,
    )
