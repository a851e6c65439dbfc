"""The decision of a cycle to stop running jobs for a more urgent one, after all placements.

A waiting job may replace running ones if its priority class says so. They must be of the same organisation and of
strictly lower priority, have run longer than their class shields them, and have been stopped for others fewer than
`MOST_TIMES_PREEMPTED` times. So two jobs never replace each other in turn. One job per cycle gets a decision, the most
urgent one for which there is one: the next cycle then sees what it claims.

On each cluster, in the order of the job's ranking, the cheapest victims are searched (`search`), and each set is judged
by the trial of placement on a copy (`trial`). Those on the cluster free nodes. Those elsewhere count only where a quota
limit is short. Nothing is stopped unless the job then fits.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from placement.cycle.cycle import Cycle
from placement.cycle.timeline import instant_text
from placement.cycle.verdicts import WAITING_FOR_ROOM
from placement.values.decisions import Wait
from placement.values.model import JobRequest, Snapshot
from placement.values.preemption import (
    MOST_TIMES_PREEMPTED,
    Alternative,
    Preemption,
    RoomClaim,
    RunningJob,
    Victim,
    organisation_of,
)
from placement.values.reason_codes import ReasonCode

from .search import EXACT, Chosen, Problem, cheapest, shortlist
from .trial import Trial

MOST_CONSIDERED = 8
"""The most waiting jobs of different kinds that one cycle looks for victims for."""
MOST_CLUSTERS = 8
"""The most clusters that are searched for one job, the best ranked first."""
MOST_CANDIDATES = 40
"""The most jobs on a cluster among which a search chooses, as far as it may stop them all."""
MOST_TRIALS = 300
"""After this many trials for a job, no further cluster is searched if one was found."""
MOST_SHOWN = 20
"""The most other candidates that a decision reports."""
REPLACES_WHILE = WAITING_FOR_ROOM | {
    ReasonCode.WAITING_FOR_QUOTA,
    ReasonCode.RESERVED_FOR_GANG,
    ReasonCode.RESERVATION_FULL,
    ReasonCode.WAITING_FOR_SHARE,
}
"""The reasons to wait that stopping others can end."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The decision, if any, and why other jobs that may replace running ones do not."""

    decision: Preemption | None = None
    why_not: Mapping[UUID, str] = field(default_factory=dict)


def plan(snapshot: Snapshot, cycle: Cycle, waits: Iterable[Wait], *, exact: int = EXACT) -> Plan:
    """What to stop after this cycle, which ended in the state of `cycle` with these waits. Changes nothing."""
    if not snapshot.preemptors or snapshot.allowance.most_victims < 1:
        return Plan()
    waiting = {wait.job_id: wait.code for wait in waits}
    served = {claim.job_id for claim in snapshot.claims}
    requests = {job.id: job for job in snapshot.queue}
    why_not: dict[UUID, str] = {}
    seen: dict[tuple[str, str, int, UUID | None], str] = {}
    for job_id in snapshot.preemptors:
        if job_id in served or waiting.get(job_id) not in REPLACES_WHILE:
            continue
        job = requests[job_id]
        kind = (job.tenant_path, job.shape or str(job_id), job.priority, job.user if snapshot.user_limits else None)
        if kind not in seen:
            if len(seen) == MOST_CONSIDERED:
                break
            found = _Planner(snapshot, cycle, job, exact).decide()
            if isinstance(found, Preemption):
                return Plan(found, why_not)
            seen[kind] = found
        why_not[job_id] = seen[kind]
    return Plan(None, why_not)


def explained(
    waits: Sequence[Wait], claims: Iterable[RoomClaim], why_not: Mapping[UUID, str], snapshot: Snapshot
) -> tuple[Wait, ...]:
    """The waits with what preemption does for them, or why it does nothing."""
    by_job = {claim.job_id: claim for claim in claims}
    if not by_job and not why_not:
        return tuple(waits)
    return tuple(_explained(wait, by_job.get(wait.job_id), why_not.get(wait.job_id, ""), snapshot) for wait in waits)


def _explained(wait: Wait, claim: RoomClaim | None, why_not: str, snapshot: Snapshot) -> Wait:
    if claim is not None:
        return wait._replace(code=ReasonCode.WAITING_FOR_PREEMPTION, message=claim_text(claim, snapshot))
    return wait._replace(message=f"{wait.message}; {why_not}") if why_not else wait


def claim_text(claim: RoomClaim, snapshot: Snapshot) -> str:
    """`2 less urgent jobs are being stopped for it (1 of them ended); 4 nodes of c1 are kept for it until 14:20 UTC`."""
    stopped = _count(claim.victims, "less urgent job is", "less urgent jobs are")
    ended = f" ({claim.ended} of them ended)" if claim.ended else ""
    nodes = _count(len(claim.nodes), f"node of {claim.cluster} is", f"nodes of {claim.cluster} are")
    until = instant_text(claim.until_at, snapshot.now)
    return f"{stopped} being stopped for it{ended}; {nodes} kept for it until {until}"


class _Found(NamedTuple):
    cost: float
    cluster: int
    victims: tuple[RunningJob, ...]
    pool: tuple[RunningJob, ...]
    is_exact: bool


class _Planner:
    """Looks for victims for one job."""

    def __init__(self, snapshot: Snapshot, cycle: Cycle, job: JobRequest, exact: int) -> None:
        self._snapshot, self._job, self._exact = snapshot, job, exact
        self._now = snapshot.now
        self._trial = Trial(snapshot, cycle, job)
        self._domains: Mapping[tuple[UUID, str], tuple[str, ...]] = {
            (cluster.id, node.name): node.domain for cluster in snapshot.clusters for node in cluster.nodes
        }

    def decide(self) -> Preemption | str:
        """The decision, or the sentence why there is none."""
        organisation = organisation_of(self._job.tenant_path)
        lower = [
            run
            for run in self._snapshot.running
            if organisation_of(run.tenant_path) == organisation
            and run.priority < self._job.priority
            and self._trial.number_of(run) is not None
        ]
        if not lower:
            return "no running job of its organisation that could be stopped has a lower priority"
        eligible = [one for one in lower if is_preemptible(one, self._snapshot)]
        if not eligible:
            return self._all_protected(lower)
        found: list[_Found] = []
        is_braked = False
        for cluster in self._trial.clusters[:MOST_CLUSTERS]:
            if found and self._trial.count > MOST_TRIALS:
                break
            pool = self._pool(cluster, eligible)
            if not pool:
                continue
            if self._trial.fits(cluster, ()):
                return "it fits without preemption"
            problem = self._problem(cluster, pool, organisation)
            chosen = cheapest(problem, exact=self._exact)
            if chosen is not None:
                victims = tuple(pool[one] for one in chosen)
                is_exact = len(pool) <= self._exact
                found.append(_Found(problem.cost(chosen), cluster, victims, tuple(pool), is_exact))
            elif problem.fits(tuple(range(len(pool)))):
                is_braked = True
        if not found:
            return self._none_fits(len(eligible), len(lower), is_braked=is_braked)
        return self._decision(found)

    def _pool(self, cluster: int, eligible: Sequence[RunningJob]) -> list[RunningJob]:
        """The jobs whose end could help the job on this cluster, the cheapest first."""
        short = self._trial.short_limits()
        helping = [
            run
            for run in eligible
            if self._trial.number_of(run) == cluster or (short and self._trial.holds(run, short))
        ]
        ordered = sorted(helping, key=lambda run: (run.cost(self._now), run.attempt_id))
        if len(ordered) <= MOST_CANDIDATES:
            return ordered
        kept = shortlist(self._problem(cluster, ordered, ""), MOST_CANDIDATES)
        return [ordered[one] for one in kept]

    def _problem(self, cluster: int, pool: Sequence[RunningJob], organisation: str) -> Problem:
        allowance = self._snapshot.allowance
        known: dict[Chosen, bool] = {}

        def fits(chosen: Chosen) -> bool:
            if chosen not in known:
                known[chosen] = self._trial.fits(cluster, [pool[one] for one in chosen])
            return known[chosen]

        return Problem(
            costs=[run.cost(self._now) for run in pool],
            sizes=[run.gpu_milli for run in pool],
            fits=fits,
            most=allowance.most_victims,
            most_size=allowance.left(organisation),
            areas=self._areas(pool),
        )

    def _areas(self, pool: Sequence[RunningJob]) -> list[Chosen]:
        """The jobs on each node, and in each domain."""
        members: dict[tuple[UUID, tuple[str, ...]], set[int]] = defaultdict(set)
        for position, run in enumerate(pool):
            for name in {name for held in run.pods for name in held.nodes}:
                domain = self._domains.get((run.cluster_id, name), ())
                for depth in range(1, len(domain) + 1):
                    members[run.cluster_id, domain[:depth]].add(position)
                members[run.cluster_id, (*domain, "", name)].add(position)
        return sorted({tuple(sorted(area)) for area in members.values()})

    def _decision(self, found: Sequence[_Found]) -> Preemption | str:
        """The cheapest choice that the trial of placement confirms; of equal ones that on the better ranked cluster."""
        for best in sorted(found, key=lambda one: one.cost):
            place = self._trial.place(best.victims)
            if place is None:
                continue
            others = [run for run in best.pool if run not in best.victims]
            return Preemption(
                job_id=self._job.id,
                cluster_id=place.cluster_id,
                cluster=place.cluster,
                nodes=tuple(sorted({name for pod_set in place.pod_sets for name in pod_set.nodes})),
                victims=tuple(self._victim(run) for run in best.victims),
                considered=tuple(self._victim(run) for run in others[:MOST_SHOWN]),
                alternatives=tuple(
                    Alternative(self._trial.name_of(one.cluster), len(one.victims), one.cost)
                    for one in found
                    if one is not best
                ),
                is_exact=best.is_exact,
            )
        return "no place would remain for it after running jobs are stopped"

    def _victim(self, run: RunningJob) -> Victim:
        return Victim(run, run.lost_seconds(self._now), run.cost(self._now))

    def _all_protected(self, lower: Sequence[RunningJob]) -> str:
        shielded = [run.shield_until for run in lower if run.shield_until > self._now]
        jobs = _count(len(lower), "running job of lower priority", "running jobs of lower priority")
        if not shielded:
            return f"{jobs} cannot be stopped, after being stopped {MOST_TIMES_PREEMPTED} times for others"
        return f"{jobs} cannot be stopped yet: the first is shielded until {instant_text(min(shielded), self._now)}"

    def _none_fits(self, eligible: int, lower: int, *, is_braked: bool) -> str:
        jobs = _count(eligible, "running job", "running jobs")
        if is_braked:
            most = self._snapshot.allowance.most_victims
            return f"enough of the {jobs} of lower priority cannot be stopped now: at most {most} in a cycle, and a share an hour"
        protected = f" ({lower - eligible} more are protected)" if lower > eligible else ""
        return f"it would not fit even if the {jobs} of lower priority that may be stopped{protected} had ended"


def is_preemptible(run: RunningJob, snapshot: Snapshot) -> bool:
    """Whether it has run long enough, and has not been stopped for others too often."""
    return run.shield_until <= snapshot.now and run.times_preempted < MOST_TIMES_PREEMPTED


def _count(number: int, one: str, more: str) -> str:
    return f"{number} {one if number == 1 else more}"
