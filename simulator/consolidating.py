"""Consolidation in a replay: which running jobs the gateway moves so that a larger one fits, and what it keeps for them.

A moved job stops at the same time, loses what it did since its last checkpoint and the time of a restart, and waits again with
its place in the queue.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import count
from uuid import UUID

from placement.cycle.cycle import Cycle
from placement.preemption.consolidation import consolidate
from placement.preemption.consolidation_texts import claims_of
from placement.values.consolidation import Consolidating, Consolidation, Movable, MovedForOthers
from placement.values.decisions import Wait
from placement.values.model import JobRequest, Snapshot, TenantPolicy
from placement.values.preemption import HeldPods, RoomClaim, RunningJob, organisation_of

from .values import EPOCH, TraceJob
from .world import Layout

EVERY = timedelta(minutes=1)
"""How long no plan is searched after a search in vain."""
KEPT_FOR = timedelta(minutes=10)
"""How long nodes are kept for the jobs of a plan."""
REST = timedelta(minutes=30)
"""How long a job is left alone after a move, and a job gets no second plan."""
A_DAY = timedelta(days=1)
AN_HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class ConsolidationRule:
    """The settings of a replay. `policy` is that of all tenants (`placement.values.consolidation.CONSOLIDATION`)."""

    share: float = 0.2
    most_moves: int = 8
    most_an_hour: int = 24
    policy: str = "any"


class Consolidator:
    """What one gateway moved and keeps."""

    def __init__(self, rule: ConsolidationRule) -> None:
        self._rule = rule
        self._claims: tuple[RoomClaim, ...] = ()
        self._ids = (UUID(int=number) for number in count(1))
        self._moved: dict[int, list[datetime]] = defaultdict(list)
        self._from: dict[UUID, list[datetime]] = defaultdict(list)
        self._for_others: dict[str, list[datetime]] = defaultdict(list)
        """By tenant, when its jobs were moved so that jobs of other tenants fit."""
        self._planned: dict[UUID, datetime] = {}
        self._again_at = EPOCH
        self.plans: list[Consolidation] = []
        """All decisions, in order."""

    def given(
        self,
        snapshot: Snapshot,
        running: Iterable[tuple[int, int, TraceJob, tuple[int, ...], float]],
        requests: Mapping[int, JobRequest],
        layout: Layout,
    ) -> Snapshot:
        """The snapshot with the rules. `running` has the number, cluster, job, nodes and start of what runs."""
        at = snapshot.now
        waiting = {job.id for job in snapshot.queue}
        self._claims = tuple(one for one in self._claims if one.job_id in waiting and one.until_at > at)
        since = at - timedelta(seconds=snapshot.patience_seconds)
        if at < self._again_at or all((job.submitted_at or at) >= since for job in snapshot.queue):
            return replace(snapshot, claims=self._claims)
        movable = [self._movable(one, at, layout) for one in running]
        returning = sorted(
            (requests[one.run.job_id.int] for one in movable),
            key=lambda job: (-job.priority, job.submitted_at or at, job.id),
        )
        tenants = sorted({organisation_of(job.tenant_path) for job in (*snapshot.queue, *returning)})
        busy = frozenset(claim.cluster_id for claim in self._claims)
        rules = Consolidating(
            self._rule.share,
            self._rule.most_moves,
            tuple(movable),
            busy,
            {cluster: self._rule.most_an_hour - _within(times, at, AN_HOUR) for cluster, times in self._from.items()},
            frozenset(job for job, until in self._planned.items() if until > at),
            moved_for_others=MovedForOthers(
                tenants={path: _within(times, at, A_DAY) for path, times in self._for_others.items()}
            ),
        )
        return replace(
            snapshot,
            consolidation=rules,
            returning=tuple(returning),
            claims=self._claims,
            policies=tuple(TenantPolicy(path, consolidation=self._rule.policy) for path in tenants),
        )

    def _movable(self, one: tuple[int, int, TraceJob, tuple[int, ...], float], at: datetime, layout: Layout) -> Movable:
        number, _, job, *_ = one
        times = self._moved.get(number, [])
        rests = times[-1] + REST if times else None
        saves = job.checkpoint_seconds is not None
        run = running_job(one, layout)
        return Movable(run, is_willing=True, saves_work=saves, moves_today=_within(times, at, A_DAY), rests_until=rests)

    def decide(self, snapshot: Snapshot, final: Cycle, waits: Sequence[Wait]) -> tuple[int, ...]:
        """The numbers of the jobs that are moved now."""
        found = consolidate(snapshot, final, waits).decision
        at = snapshot.now
        if found is None:
            if snapshot.consolidation is not None:
                self._again_at = at + EVERY
            return ()
        self.plans.append(found)
        self._claims += claims_of(found, self._ids, at + KEPT_FOR)
        self._planned[found.job_id] = at + REST
        numbers = tuple(one.movable.run.job_id.int for one in found.moves)
        tenants = {job.id: job.tenant_path for job in snapshot.queue}
        for one in found.moves:
            self._moved[one.movable.run.job_id.int].append(at)
            self._from[one.movable.run.cluster_id].append(at)
            if one.movable.run.tenant_path != tenants[found.job_id]:
                self._for_others[one.movable.run.tenant_path].append(at)
        return numbers


def running_job(one: tuple[int, int, TraceJob, tuple[int, ...], float], layout: Layout) -> RunningJob:
    """A run as the engine knows it, from its number, cluster, job, nodes and start."""
    number, cluster, job, nodes, started = one
    machines = [layout.machines[node] for node in nodes]
    began = EPOCH + timedelta(seconds=started)
    return RunningJob(
        attempt_id=UUID(int=number),
        job_id=UUID(int=number),
        tenant_path=job.tenant,
        priority=job.priority,
        cluster_id=UUID(int=cluster),
        cluster=layout.plans[cluster].name,
        pods=(
            HeldPods(
                machines[0].flavor,
                job.gpus,
                job.cpu_millicores,
                job.memory_mib,
                Counter(machine.name for machine in machines),
            ),
        ),
        amounts={"gpu": job.milli, "cpu": job.cpu_millicores * job.pods},
        started_at=began,
        shield_until=began,
        checkpoint_seconds=job.checkpoint_seconds,
        estimated_seconds=job.estimated_seconds,
    )


def _within(times: Sequence[datetime], at: datetime, span: timedelta) -> int:
    return sum(one > at - span for one in times)
