"""When waiting jobs are expected to start, from the cycle's own state and a timeline of expected ends."""

from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from placement.cycle.backfill import MAY_BORROW
from placement.cycle.cycle import Cycle
from placement.cycle.timeline import Waiting, later_fits, starts
from placement.ranking.runtimes import runtime_of
from placement.values.decisions import Placement, Start, Wait
from placement.values.model import JobRequest, Snapshot

MOST_FOLLOWED = 32
"""The number of waiting jobs that are followed; the expected starts of those behind them are unknown."""


def expected_starts(cycle: Cycle, snapshot: Snapshot, waits: Sequence[Wait]) -> Mapping[UUID, Start]:
    """The expected starts by job, as far as they are known. `cycle` has decided `waits`; `snapshot`
    has the run times.
    """
    kept = {wait.job_id: wait.start for wait in waits if wait.start is not None}
    if not snapshot.releases:
        return kept
    jobs = {job.id: job for job in snapshot.queue}
    followed = _for_room(jobs, waits)[:MOST_FOLLOWED]
    timeline = cycle.timeline(snapshot)
    return {**starts(timeline, _waiting(followed, cycle, snapshot)), **kept}


def later_placements(
    cycle: Cycle, snapshot: Snapshot, job: JobRequest, ahead: Sequence[Wait], clusters: Iterable[str]
) -> list[tuple[Start, Placement]]:
    """Where the job could start later on these clusters, and when; the earliest first. `ahead` wait before it."""
    jobs = {one.id: one for one in snapshot.queue}
    followed = _for_room(jobs, ahead)
    if not snapshot.releases or len(followed) > MOST_FOLLOWED:
        return []
    timeline = cycle.timeline(snapshot)
    names = set(clusters)
    numbers = {number for number, one in enumerate(timeline.fleet.clusters) if one.name in names}
    found = later_fits(timeline, _waiting(followed, cycle, snapshot), cycle.seeker(job), numbers)
    return [(start, cycle.placement_at(job, candidate, sites)) for start, candidate, sites in found]


def _for_room(jobs: Mapping[UUID, JobRequest], waits: Sequence[Wait]) -> list[JobRequest]:
    """The jobs that wait only for room, and have none kept for them."""
    return [jobs[wait.job_id] for wait in waits if wait.code in MAY_BORROW and wait.start is None]


def _waiting(jobs: Iterable[JobRequest], cycle: Cycle, snapshot: Snapshot) -> Waiting:
    def seconds_of(job: JobRequest, pace: float) -> int | None:
        runtime = runtime_of(job, snapshot.runtimes, pace)
        return None if runtime is None else runtime.p50_seconds

    return Waiting(map(cycle.seeker, jobs), seconds_of)
