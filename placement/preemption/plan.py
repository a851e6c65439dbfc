"""The decision of a cycle to stop running jobs for a waiting one, after all placements.

A waiting job may replace running ones of its organisation for two reasons. Its priority class says so, and they are of
strictly lower priority. Or its tenant reclaims quota, and they borrowed it (`loans`). They must have run longer than
their class shields them, and have been stopped for others fewer than `MOST_TIMES_PREEMPTED` times. A job is never
stopped for one that was stopped for it. One job per cycle gets a decision: of those that may by their class the most
urgent one for which there is one, else the first one that reclaims. The next cycle then sees what it claims.

On each cluster, in the order of the job's ranking, the cheapest victims are searched (`search`), and each set is judged
by the trial of placement on a copy (`trial`). Those on the cluster free nodes. Those elsewhere count only where a quota
limit is short. Nothing is stopped unless the job then fits.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
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

from .loans import Debt, Loans, as_many_as_may_end, is_below_one, may_end_together, reclaiming_tenants
from .search import EXACT, Chosen, Problem, cheapest, shortlist
from .shrinking import smaller_places
from .trial import Trial

MOST_CONSIDERED = 8
"""The most waiting jobs of different kinds that one cycle looks for victims for: by class, and as many to reclaim."""
MOST_CLUSTERS = 8
"""The most clusters that are searched for one job, the best ranked first."""
MOST_CANDIDATES = 40
"""The most jobs on a cluster among which a search chooses, as far as it may stop them all."""
MOST_AREAS = 24
"""The most nodes and domains for which it is tried whether stopping jobs there first suffices."""
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
    if not snapshot.running or snapshot.allowance.most_victims < 1:
        return Plan()
    waiting = {wait.job_id: wait.code for wait in waits if wait.code in REPLACES_WHILE}
    for claim in snapshot.claims:
        waiting.pop(claim.job_id, None)
    requests = {job.id: job for job in snapshot.queue}
    urgent = [requests[job_id] for job_id in snapshot.preemptors if job_id in waiting]
    why_not: dict[UUID, str] = {}
    for jobs in urgent, _reclaiming(snapshot, [requests[job_id] for job_id in waiting]):
        decision = _first(snapshot, cycle, jobs, exact, why_not)
        if decision is not None:
            return Plan(decision, why_not)
    return Plan(None, why_not)


def _reclaiming(snapshot: Snapshot, jobs: Iterable[JobRequest]) -> Iterator[JobRequest]:
    """Those of the jobs whose tenants reclaim quota and that are not considered by their class."""
    tenants, others = reclaiming_tenants(snapshot.limits), set(snapshot.preemptors)
    return (job for job in jobs if tenants and job.id not in others and is_below_one(job.tenant_path, tenants))


def _first(
    snapshot: Snapshot, cycle: Cycle, jobs: Iterable[JobRequest], exact: int, why_not: dict[UUID, str]
) -> Preemption | None:
    """The decision for the first of the jobs for which there is one. Adds why there is none for those before it."""
    seen: dict[tuple[str, str, int, UUID | None, str], str] = {}
    for job in jobs:
        own = job.user if snapshot.user_limits else None, job.class_name if snapshot.class_limits else ""
        kind = (job.tenant_path, job.shape or str(job.id), job.priority, *own)
        if kind not in seen:
            if len(seen) == MOST_CONSIDERED:
                break
            found = _Planner(snapshot, cycle, job, exact).decide()
            if isinstance(found, Preemption):
                return found
            seen[kind] = found
        if seen[kind]:
            why_not[job.id] = seen[kind]
    return None


def explained(
    waits: Sequence[Wait], claims: Iterable[RoomClaim], why_not: Mapping[UUID, str], snapshot: Snapshot
) -> tuple[Wait, ...]:
    """The waits with what preemption does for them, or why it does nothing."""
    by_job = {claim.job_id: claim for claim in claims if claim.kind == "preemption"}
    if not by_job and not why_not:
        return tuple(waits)
    return tuple(_explained(wait, by_job.get(wait.job_id), why_not.get(wait.job_id), snapshot) for wait in waits)


def _explained(wait: Wait, claim: RoomClaim | None, why_not: str | None, snapshot: Snapshot) -> Wait:
    if claim is not None:
        return wait._replace(code=ReasonCode.WAITING_FOR_PREEMPTION, message=claim_text(claim, snapshot))
    return wait._replace(message=f"{wait.message}; {why_not}") if why_not else wait


def claim_text(claim: RoomClaim, snapshot: Snapshot) -> str:
    """`2 less urgent jobs are being stopped for it (1 of them ended); 4 nodes of c1 are kept for it until 14:20 UTC`."""
    if claim.borrowers == claim.victims:
        stopped = _count(claim.victims, "job that borrowed its quota is", "jobs that borrowed its quota are")
    elif claim.borrowers:
        stopped = f"{claim.victims} jobs, {claim.borrowers} of which borrowed its quota, are"
    else:
        stopped = _count(claim.victims, "less urgent job is", "less urgent jobs are")
    ended = f" ({claim.ended} of them ended)" if claim.ended else ""
    nodes = _count(len(claim.nodes), f"node of {claim.cluster} is", f"nodes of {claim.cluster} are")
    until = instant_text(claim.until_at, snapshot.now)
    return f"{stopped} being stopped for it{ended}; {nodes} kept for it until {until}"


class _Pool(NamedTuple):
    """The jobs whose end could help on a cluster, the cheapest first, and what those owe that are not less urgent."""

    runs: tuple[RunningJob, ...]
    debts: Mapping[UUID, Debt]


class _Found(NamedTuple):
    cost: float
    cluster: int
    victims: tuple[RunningJob, ...]
    pool: _Pool
    is_exact: bool


class _Planner:
    """Looks for victims for one job."""

    def __init__(self, snapshot: Snapshot, cycle: Cycle, job: JobRequest, exact: int) -> None:
        self._snapshot, self._cycle, self._job, self._exact = snapshot, cycle, job, exact
        self._now = snapshot.now
        self._trial = Trial(snapshot, cycle, job)
        self._loans = Loans(snapshot, self._trial.book)
        self._is_urgent = job.id in snapshot.preemptors
        self._organisation = organisation_of(job.tenant_path)
        self._domains: Mapping[tuple[UUID, str], tuple[str, ...]] = {
            (cluster.id, node.name): node.domain for cluster in snapshot.clusters for node in cluster.nodes
        }
        self._running = [
            run
            for run in snapshot.running
            if organisation_of(run.tenant_path) == self._organisation
            and job.id not in run.replaced
            and self._trial.number_of(run) is not None
        ]

    def decide(self) -> Preemption | str:
        """The decision, or the sentence why there is none; empty if no job could ever be stopped for it."""
        known: dict[UUID, RunningJob] = {}
        found: list[_Found] = []
        is_braked = False
        for cluster in self._trial.clusters[:MOST_CLUSTERS]:
            if found and self._trial.count > MOST_TRIALS:
                break
            debts = self._debts(cluster)
            candidates = [run for run in self._running if self._is_less_urgent(run) or run.attempt_id in debts]
            known.update((run.attempt_id, run) for run in candidates)
            pool = self._pool(cluster, [run for run in candidates if is_preemptible(run, self._now)], debts)
            if not pool.runs:
                continue
            if self._trial.fits(cluster, ()):
                return "it fits without preemption"
            problem = self._problem(cluster, pool)
            chosen = cheapest(problem, exact=self._exact)
            if chosen is not None:
                victims = tuple(pool.runs[one] for one in chosen)
                is_exact = len(pool.runs) <= self._exact
                found.append(_Found(problem.cost(chosen), cluster, victims, pool, is_exact))
            elif problem.fits(everything := tuple(range(len(pool.runs)))):
                is_braked |= problem.is_lawful is None or problem.is_lawful(everything)
        return self._decision(found) if found else self._why_none(list(known.values()), is_braked=is_braked)

    def _is_less_urgent(self, run: RunningJob) -> bool:
        return self._is_urgent and run.priority < self._job.priority

    def _debts(self, cluster: int) -> Mapping[UUID, Debt]:
        """What running jobs owe to the job if it goes to this cluster, of those that are not less urgent."""
        path, name, amounts = self._job.tenant_path, self._trial.name_of(cluster), self._trial.most_amounts(cluster)
        owed = {
            run.attempt_id: self._loans.debt(path, name, amounts, run)
            for run in self._running
            if not self._is_less_urgent(run)
        }
        return {attempt: debt for attempt, debt in owed.items() if debt is not None}

    def _pool(self, cluster: int, eligible: Sequence[RunningJob], debts: Mapping[UUID, Debt]) -> _Pool:
        """The jobs whose end could help the job on this cluster."""
        short = self._trial.short_limits()
        helping = [
            run
            for run in eligible
            if self._trial.number_of(run) == cluster or (short and self._trial.holds(run, short))
        ]
        ordered = sorted(helping, key=lambda run: (self._counted(run, debts), run.attempt_id))
        if debts and len(ordered) > self._exact:
            ordered = self._lawful(cluster, ordered, debts)
        if len(ordered) > MOST_CANDIDATES:
            kept = shortlist(self._problem(cluster, _Pool(tuple(ordered), {})), MOST_CANDIDATES)
            ordered = [ordered[one] for one in kept]
        return _Pool(tuple(ordered), debts)

    def _lawful(self, cluster: int, ordered: list[RunningJob], debts: Mapping[UUID, Debt]) -> list[RunningJob]:
        """Those of the jobs that may all be stopped together; if possible, so that the job fits then. By cost first; else
        those in the cheapest domains and on the cheapest nodes first.
        """
        areas = sorted(self._areas(ordered), key=lambda area: sum(self._counted(ordered[one], debts) for one in area))
        everything = range(len(ordered))
        by_area = [one for area in areas for one in area]
        found: list[RunningJob] = []
        for order in (everything, by_area, *([*area, *everything] for area in areas[:MOST_AREAS])):
            runs = [ordered[one] for one in dict.fromkeys(order)]
            found = as_many_as_may_end(self._loans, debts, runs)
            if self._trial.fits(cluster, found):
                break
        return sorted(found, key=lambda run: (self._counted(run, debts), run.attempt_id))

    def _counted(self, run: RunningJob, debts: Mapping[UUID, Debt]) -> float:
        """What of the run's cost counts in the choice."""
        debt = debts.get(run.attempt_id)
        return run.cost(self._now) * (1 if debt is None else debt.loan.weight)

    def _problem(self, cluster: int, pool: _Pool) -> Problem:
        allowance = self._snapshot.allowance
        known: dict[Chosen, bool] = {}

        def fits(chosen: Chosen) -> bool:
            if chosen not in known:
                known[chosen] = self._trial.fits(cluster, [pool.runs[one] for one in chosen])
            return known[chosen]

        def is_lawful(chosen: Chosen) -> bool:
            return may_end_together(self._loans, pool.debts, [pool.runs[one] for one in chosen])

        return Problem(
            costs=[self._counted(run, pool.debts) for run in pool.runs],
            sizes=[run.gpu_milli for run in pool.runs],
            fits=fits,
            most=allowance.most_victims,
            most_size=allowance.left(self._organisation),
            areas=self._areas(pool.runs),
            is_lawful=is_lawful if pool.debts else None,
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
            seat = self._trial.seat(best.victims)
            if seat is None:
                continue
            place, kept = seat[0], smaller_places(self._snapshot, self._cycle, self._trial, seat, best.victims)
            others = [run for run in best.pool.runs if run not in best.victims]
            debts = best.pool.debts
            return Preemption(
                job_id=self._job.id,
                cluster_id=place.cluster_id,
                cluster=place.cluster,
                nodes=tuple(sorted({name for pod_set in place.pod_sets for name in pod_set.nodes})),
                victims=tuple(replace(self._victim(run, debts), kept=kept.get(run.attempt_id)) for run in best.victims),
                considered=tuple(self._victim(run, debts) for run in others[:MOST_SHOWN]),
                alternatives=tuple(
                    Alternative(self._trial.name_of(one.cluster), len(one.victims), self._cost(one.victims))
                    for one in found
                    if one is not best
                ),
                is_exact=best.is_exact,
                amounts=place.amounts,
            )
        return "no place would remain for it after running jobs are stopped"

    def _cost(self, runs: Iterable[RunningJob]) -> float:
        return sum(run.cost(self._now) for run in runs)

    def _victim(self, run: RunningJob, debts: Mapping[UUID, Debt]) -> Victim:
        debt = debts.get(run.attempt_id)
        return Victim(run, run.lost_seconds(self._now), run.cost(self._now), None if debt is None else debt.loan)

    def _why_none(self, known: Sequence[RunningJob], *, is_braked: bool) -> str:
        """Why none of the jobs that are less urgent, or borrowed, is stopped."""
        if not known:
            lacking = "no running job of its organisation that could be stopped has a lower priority"
            return lacking if self._is_urgent else ""
        eligible = [run for run in known if is_preemptible(run, self._now)]
        if not eligible:
            return self._all_protected(known)
        return self._none_fits(len(eligible), len(known), is_braked=is_braked)

    @property
    def _which(self) -> str:
        return "of lower priority" if self._is_urgent else "that borrowed its quota"

    def _all_protected(self, known: Sequence[RunningJob]) -> str:
        shielded = [run.shield_until for run in known if run.shield_until > self._now]
        jobs = _count(len(known), f"running job {self._which}", f"running jobs {self._which}")
        if not shielded:
            return f"{jobs} cannot be stopped, after being stopped {MOST_TIMES_PREEMPTED} times for others"
        return f"{jobs} cannot be stopped yet: the first is shielded until {instant_text(min(shielded), self._now)}"

    def _none_fits(self, eligible: int, known: int, *, is_braked: bool) -> str:
        jobs = _count(eligible, "running job", "running jobs")
        if is_braked:
            most = self._snapshot.allowance.most_victims
            return f"enough of the {jobs} {self._which} cannot be stopped now: at most {most} in a cycle, and a share an hour"
        protected = f" ({known - eligible} more are protected)" if known > eligible else ""
        return f"it would not fit even if the {jobs} {self._which} that may be stopped{protected} had ended"


def is_preemptible(run: RunningJob, now: datetime) -> bool:
    """Whether it has run long enough, and has not been stopped for others too often."""
    return run.shield_until <= now and run.times_preempted < MOST_TIMES_PREEMPTED


def _count(number: int, one: str, more: str) -> str:
    return f"{number} {one if number == 1 else more}"
