"""Quota in a replay: each tenant has its part of the fleet by weight, lends what it does not use, and takes it back.

Lent quota is taken back by the engine's own plan (`placement.preemption.plan`): a waiting job of a tenant within its part stops
jobs of tenants beyond theirs. These stop at the same time, lose what they did since their last checkpoint and the time of a
restart, and wait again with their place in the queue. The nodes are kept for the job for which they stopped.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import count
from uuid import UUID

from placement.cycle.cycle import Cycle
from placement.preemption.plan import plan
from placement.values.decisions import Wait
from placement.values.limits import LimitState
from placement.values.model import JobRequest, Snapshot
from placement.values.preemption import MILLI, Allowance, Preemption, RoomClaim, organisation_of

from .consolidating import AN_HOUR, EVERY, KEPT_FOR, running_job
from .values import TraceJob
from .world import Layout

ROOT = UUID(int=1)


@dataclass(frozen=True, slots=True)
class ReclaimRule:
    """The settings of a replay, and the weights of the tenants by path: all below one organisation."""

    weights: Mapping[str, float] = field(default_factory=dict)
    most_victims: int = 16
    hourly_share: float = 0.5
    """How much may be stopped within an hour, as a part of what runs."""
    shield: timedelta = timedelta(minutes=10)
    """How long a run is not stopped after its start."""


class Reclaimer:
    """What one gateway took back."""

    def __init__(self, rule: ReclaimRule) -> None:
        self._rule = rule
        self._organisation = organisation_of(next(iter(rule.weights)))
        self._claims: tuple[RoomClaim, ...] = ()
        self._ids = (UUID(int=number) for number in count(1))
        self._times: Counter[UUID] = Counter()
        self._replaced: dict[UUID, frozenset[UUID]] = defaultdict(frozenset)
        self._stopped: list[tuple[datetime, int]] = []
        self._again_at: datetime | None = None
        self.decisions: list[Preemption] = []
        """All, in order."""

    @property
    def stopped(self) -> int:
        """How many runs were stopped so far."""
        return self._times.total()

    def given(
        self,
        snapshot: Snapshot,
        running: Iterable[tuple[int, int, TraceJob, tuple[int, ...], float]],
        requests: Mapping[int, JobRequest],
        layout: Layout,
    ) -> Snapshot:
        """The snapshot with the limits, and with what runs unless a plan was searched in vain just now."""
        waiting = {job.id for job in snapshot.queue}
        self._claims = tuple(one for one in self._claims if one.job_id in waiting and one.until_at > snapshot.now)
        snapshot = replace(snapshot, claims=(*snapshot.claims, *self._claims))
        if self._again_at is not None and snapshot.now < self._again_at:
            return snapshot
        runs = list(running)
        held: Counter[str] = Counter()
        for _, _, job, _, _ in runs:
            held[job.tenant] += job.milli
        limits = self._limits(held, layout.capacity * MILLI)
        if not any(_is_within(requests[job.id.int], limits) for job in snapshot.queue):
            return snapshot
        found = (running_job(one, layout) for one in runs)
        return replace(
            snapshot,
            limits=limits,
            running=tuple(
                replace(
                    run,
                    shield_until=run.started_at + self._rule.shield,
                    times_preempted=self._times[run.job_id],
                    replaced=self._replaced[run.job_id],
                )
                for run in found
            ),
            allowance=self._allowance(snapshot.now, held.total()),
        )

    def _limits(self, held: Mapping[str, int], whole: int) -> tuple[LimitState, ...]:
        weights = self._rule.weights
        parts = {path: int(whole * weight / sum(weights.values())) for path, weight in weights.items()}
        root = LimitState(ROOT, self._organisation, "gpu", (), whole, sum(held.values()), nominal=whole)
        above = () if self._organisation in parts else (root,)
        own = (
            LimitState(UUID(int=number), path, "gpu", (), whole, held.get(path, 0), nominal=part, reclaims=True)
            for number, (path, part) in enumerate(parts.items(), 2)
        )
        return (*above, *own)

    def _allowance(self, now: datetime, held: int) -> Allowance:
        self._stopped = [one for one in self._stopped if one[0] > now - AN_HOUR]
        spent = sum(milli for _, milli in self._stopped)
        left = {self._organisation: max(0, int(held * self._rule.hourly_share) - spent)} if spent else {}
        return Allowance(self._rule.most_victims, left)

    def decide(self, snapshot: Snapshot, final: Cycle, waits: Sequence[Wait]) -> tuple[int, ...]:
        """The numbers of the jobs that stop now."""
        if not snapshot.running:
            return ()
        found = plan(snapshot, final, waits).decision
        self._again_at = snapshot.now + EVERY if found is None else None
        if found is None:
            return ()
        self.decisions.append(found)
        runs = [one.run for one in found.victims]
        self._claims += (
            RoomClaim(
                next(self._ids),
                found.job_id,
                found.cluster_id,
                found.cluster,
                found.nodes,
                snapshot.now + KEPT_FOR,
                len(runs),
                ended=len(runs),
                borrowers=len(runs),
                amounts=found.amounts,
            ),
        )
        self._replaced[found.job_id] |= {run.job_id for run in runs}
        self._times.update(run.job_id for run in runs)
        self._stopped += [(snapshot.now, run.gpu_milli) for run in runs]
        return tuple(run.job_id.int for run in runs)


def _is_within(job: JobRequest, limits: Iterable[LimitState]) -> bool:
    """Whether the tenant's own part has room for the job: it can take back only then."""
    gpus = [(one.count * one.gpu.count, one.gpu.fraction_milli or MILLI) for one in job.pod_sets if one.gpu is not None]
    asked = sum(count * milli for count, milli in gpus)
    own = (one for one in limits if one.tenant_path == job.tenant_path)
    return any(one.nominal is not None and one.held + asked <= one.nominal for one in own)
