"""The decision of a cycle to move running jobs so that a larger waiting one fits: the room is there, but in pieces.

Nothing is lost but time: every job that moves has another place now, which is kept for it (`rehearsal`). The policy of its
tenant allows it, and that of the waiting job's tenant. A job moves only for one of its organisation that has waited longer
than the patience of its cycle, is at least as urgent, and strictly larger. Sizes are constants of jobs: so along any chain
of moves they grow, and two jobs, or more, never move each other in turn. It must have run longer than its class shields it,
and not have moved too often or recently. Nor do those of its user and tenant move again and again for others (`sparing`).

The moves may cost at most a share of the gain: what the waiting job does earlier, by the time at which it is expected to
start without them, and by its run time. On each cluster the cheapest set of moves is searched, exactly among a few jobs;
among more, on the nodes that are cheapest to clear.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import NamedTuple
from uuid import UUID

from placement.cycle.cycle import Cycle
from placement.cycle.timeline import first_fit
from placement.cycle.verdicts import WAITING_FOR_ROOM
from placement.cycle.visibility import sight_of
from placement.fleet.policies import PolicyBook
from placement.ranking.runtimes import runtime_of
from placement.values.consolidation import Consolidating, Consolidation, Movable, PlannedMove
from placement.values.decisions import Placement, Wait
from placement.values.model import JobRequest, Snapshot
from placement.values.preemption import MILLI, RESTART_SECONDS, organisation_of
from placement.values.reason_codes import ReasonCode

from .rehearsal import Rehearsal
from .search import EXACT, Chosen, Problem, exactly, pruned, shortest
from .sparing import Brake, is_movable

MOST_CONSIDERED = 4
"""The most waiting jobs of different kinds for which one cycle searches moves."""
MOST_CLUSTERS = 8
"""The most clusters that are searched for one job, the best ranked first."""
MOST_CANDIDATES = 60
"""The most jobs on a cluster among which a search chooses."""
MOST_TRIALS = 600
"""After this many trials in a cycle, no further job or cluster is searched, and no further set tried. Each cluster gets an equal part
of what the ones before it left.
"""
MOST_MORE = 50
"""The number of further ones, where the part did not suffice for an exact search: the nodes that are cheapest to clear are tried then."""
MOST_REPAIRS = 4
"""How often a set is searched again without a job that has no other place."""
LONGEST_GAIN = 24 * 3600
"""What a job gains by starting earlier counts up to this time."""
UNKNOWN_GAIN = 3600
"""The time that it gains if neither its start without moves nor its run time is known."""
WAITS_FOR_SHAPE = WAITING_FOR_ROOM | {ReasonCode.RESERVED_FOR_GANG, ReasonCode.WAITING_FOR_SHARE}


@dataclass(frozen=True, slots=True)
class ConsolidationPlan:
    """The decision, if any, and why there is none for other jobs that may have one."""

    decision: Consolidation | None = None
    why_not: Mapping[UUID, str] = field(default_factory=dict)


def consolidate(snapshot: Snapshot, cycle: Cycle, waits: Iterable[Wait], *, exact: int = EXACT) -> ConsolidationPlan:
    """What to move after this cycle, which ended in the state of `cycle` with these waits. Changes nothing."""
    rules = snapshot.consolidation
    if rules is None or not rules.movable or not rules.share or rules.most_moves < 1:
        return ConsolidationPlan()
    requests = {job.id: job for job in snapshot.queue}
    returning = {job.id: job for job in snapshot.returning}
    given = _Given(snapshot, cycle, rules, PolicyBook(snapshot.policies), returning, exact)
    claimed = {claim.job_id for claim in snapshot.claims}
    seen: dict[object, str] = {}
    why_not: dict[UUID, str] = {}
    searched, tried = 0, 0
    for wait in waits:
        job = requests[wait.job_id]
        if wait.code not in WAITS_FOR_SHAPE or job.id in claimed or job.id in rules.resting:
            continue
        if not _has_waited(job, snapshot) or given.policies.of(job.tenant_path).consolidation == "never":
            continue
        own = job.user if snapshot.user_limits else None, job.class_name if snapshot.class_limits else ""
        kind = (job.tenant_path, job.shape or job.id, job.priority, *own)
        if kind not in seen:
            if searched == MOST_CONSIDERED or tried >= MOST_TRIALS:
                break
            planner = _Planner(given, job, wait, MOST_TRIALS - tried)
            found = planner.decide()
            if isinstance(found, Consolidation):
                return ConsolidationPlan(found, why_not)
            searched, tried = searched + bool(planner.trials), tried + planner.trials
            seen[kind] = found
        if seen[kind]:
            why_not[job.id] = seen[kind]
    return ConsolidationPlan(None, why_not)


def size_of(job: JobRequest) -> int:
    """The size of a job in thousandths of a GPU; slices count as GPUs. A constant of the job, wherever it runs."""
    return sum(
        one.count * (one.gpu.fraction_milli or one.gpu.count * MILLI) for one in job.pod_sets if one.gpu is not None
    )


def _has_waited(job: JobRequest, snapshot: Snapshot) -> bool:
    since = job.submitted_at
    return since is not None and (snapshot.now - since).total_seconds() > snapshot.patience_seconds


class _Given(NamedTuple):
    """What the search for moves for any job is given. `returning` are requests by job."""

    snapshot: Snapshot
    cycle: Cycle
    rules: Consolidating
    policies: PolicyBook
    returning: Mapping[UUID, JobRequest]
    exact: int


class _Gain(NamedTuple):
    """The work that a job does earlier if it starts now, in GPU-seconds, and when it would start otherwise."""

    gpu_seconds: float
    otherwise_at: datetime | None


class _Found(NamedTuple):
    cost: float
    cluster: int
    moved: tuple[Movable, ...]
    is_exact: bool


class _Planner:
    """Looks for moves for one job."""

    def __init__(self, given: _Given, job: JobRequest, wait: Wait, most_trials: int) -> None:
        self._most_trials = most_trials
        self._snapshot, self._cycle, self._rules, self._policies, self._returning, self._exact = given
        self._job, self._wait = job, wait
        self._now, self._size = self._snapshot.now, size_of(job)
        self._brake = Brake(self._rules, job)
        self._spared: list[Movable] = []
        """What could be moved, but for the brake."""
        self._last_trial = most_trials
        """The number of the last one on the cluster that is being searched."""

    @property
    def _is_exhausted(self) -> bool:
        return self.trials >= self._last_trial

    @property
    def trials(self) -> int:
        """How many sets of jobs were tried."""
        return self._rehearsal.count

    @cached_property
    def _rehearsal(self) -> Rehearsal:
        return Rehearsal(self._snapshot, self._cycle, self._job, self._returning)

    @cached_property
    def _domains(self) -> Mapping[tuple[UUID, str], tuple[str, ...]]:
        return {(one.id, node.name): node.domain for one in self._snapshot.clusters for node in one.nodes}

    def decide(self) -> Consolidation | str:
        """The decision, or the sentence why there is none; empty if no job could be moved for it."""
        could = [one for one in self._rules.movable if self._may_move(one)]
        if not could or not self._stays_open(self._job) or not self._rehearsal.has_enough_free():
            return ""
        movable = [one for one in could if self._brake.allows([one])]
        self._spared = [one for one in could if one not in movable]
        pools = self._pools(movable) if movable else {}
        if not pools:
            return self._brake.text(self._spared)
        gain = self._gain()
        budget = self._rules.share * gain.gpu_seconds
        found: list[_Found] = []
        for number, (cluster, pool) in enumerate(pools.items()):
            self._last_trial = self.trials + max(0, self._most_trials - self.trials) // (len(pools) - number)
            most = min([budget, *(one.cost for one in found)])
            found += self._cheapest(cluster, [one for one in pool if one.cost(self._now) <= most], most)
        for best in sorted(found, key=lambda one: (one.cost, one.cluster)):
            decision = self._decision(best, gain)
            if decision is not None:
                return decision
        return self._why_none(budget)

    def _pools(self, movable: Sequence[Movable]) -> Mapping[int, list[Movable]]:
        """The jobs by cluster, where the job would have a place if all of them stopped."""
        found: dict[int, list[Movable]] = {}
        for cluster in self._rehearsal.trial.clusters[:MOST_CLUSTERS]:
            pool = [one for one in movable if self._rehearsal.runs_on(cluster, one.run)]
            if not pool or pool[0].run.cluster_id in self._rules.busy or self.trials > self._most_trials:
                continue
            if self._rehearsal.frees(cluster, pool):
                found[cluster] = pool
        return found

    def _may_move(self, one: Movable) -> bool:
        """Whether the job may be moved for this one."""
        request = self._returning.get(one.run.job_id)
        if request is None or request.id == self._job.id or not self._is_allowed(one):
            return False
        if organisation_of(one.run.tenant_path) != organisation_of(self._job.tenant_path):
            return False
        if one.run.priority > self._job.priority or size_of(request) >= self._size:
            return False
        return is_movable(one, self._now) and self._stays_open(request)

    def _stays_open(self, job: JobRequest) -> bool:
        """Whether no further reservation or maintenance window is closed to the job if it starts as late as its place is kept."""
        if not self._snapshot.reservations and not self._snapshot.windows:
            return True
        now, then = sight_of(job, self._snapshot), sight_of(job, self._later)
        closed = *now.closed, *now.others, *now.windows
        more = *then.closed, *then.others, *then.windows
        return all(one in closed for one in more) and (then.gate is None or now.gate is not None)

    @cached_property
    def _later(self) -> Snapshot:
        return replace(self._snapshot, now=self._now + timedelta(seconds=self._rules.keep_seconds))

    def _is_allowed(self, one: Movable) -> bool:
        """Whether the policy of its tenant allows that it moves."""
        match self._policies.of(one.run.tenant_path).consolidation:
            case "willing":
                return one.is_willing and one.saves_work
            case "resumable":
                return one.saves_work
            case "any":
                return True
        return False

    def _gain(self) -> _Gain:
        start = self._wait.start
        if start is None:
            timeline, seeker = self._cycle.timeline(self._snapshot), self._cycle.seeker(self._job)
            fit = first_fit(timeline, seeker)
            start = None if fit is None else timeline.start_of(*fit)
        runtime = runtime_of(self._job, self._snapshot.runtimes)
        known: list[float] = [LONGEST_GAIN]
        if start is not None:
            known.append(max(0.0, (start.at - self._now).total_seconds() - RESTART_SECONDS))
        if runtime is not None:
            known.append(runtime.p50_seconds)
        seconds = min(known) if len(known) > 1 else UNKNOWN_GAIN
        return _Gain(seconds * self._size / MILLI, None if start is None else start.at)

    def _cheapest(self, cluster: int, pool: list[Movable], budget: float) -> list[_Found]:
        """The cheapest sets on a cluster that were found, if any."""
        most = 0 if not pool else self._rules.most_from(pool[0].run.cluster_id)
        if not pool or not most or not self._rehearsal.frees(cluster, pool):
            return []
        pool.sort(key=lambda one: (one.cost(self._now), one.run.attempt_id))
        is_exact = len(pool) <= self._exact
        if is_exact:
            chosen = exactly(self._problem(cluster, pool, most, budget, combined=True))
            sets = [] if chosen is None else [tuple(pool[one] for one in chosen)]
            if chosen is None and self._is_exhausted:
                self._last_trial, is_exact = self.trials + MOST_MORE, False
                sets = self._boundedly(cluster, pool, most, budget)
        else:
            sets = self._boundedly(cluster, self._shortlist(cluster, pool), most, budget)
        return [_Found(sum(one.cost(self._now) for one in moved), cluster, moved, is_exact) for moved in sets if moved]

    def _problem(self, cluster: int, pool: Sequence[Movable], most: int, budget: float, *, combined: bool) -> Problem:
        """`combined`: the moved jobs must have places too."""
        costs = [one.cost(self._now) for one in pool]
        known: dict[Chosen, bool] = {}

        def fits(chosen: Chosen) -> bool:
            if chosen not in known:
                if self._is_exhausted:
                    return False
                moved = [pool[one] for one in chosen]
                known[chosen] = self._rehearsal.frees(cluster, moved) and (
                    not combined or self._rehearsal.stuck(cluster, moved) == []
                )
            return known[chosen]

        return Problem(
            costs=costs,
            sizes=[one.run.gpu_milli for one in pool],
            fits=fits,
            most=most,
            is_lawful=lambda chosen: (
                sum(costs[one] for one in chosen) <= budget and self._brake.allows([pool[one] for one in chosen])
            ),
        )

    def _shortlist(self, cluster: int, pool: list[Movable]) -> list[Movable]:
        """Those of the jobs on the nodes that are cheapest to clear, so that the job fits if all of them stop."""
        if len(pool) <= MOST_CANDIDATES:
            return pool
        ordered = [pool[one] for one in dict.fromkeys(one for area in self._nodes(pool) for one in area)]
        kept = ordered[:MOST_CANDIDATES]
        kept = kept if self._rehearsal.frees(cluster, kept) else pool[:MOST_CANDIDATES]
        return sorted(kept, key=lambda one: (one.cost(self._now), one.run.attempt_id))

    def _boundedly(self, cluster: int, pool: list[Movable], most: int, budget: float) -> list[tuple[Movable, ...]]:
        """Sets that are minimal by inclusion, found from the nodes that are cheapest to clear: of all, and if the job must keep to
        a domain, of each.
        """
        left = pool
        found: dict[tuple[UUID, ...], tuple[Movable, ...]] = {}
        for _ in range(MOST_REPAIRS):
            problem = self._problem(cluster, left, most, budget, combined=False)
            if not left or not problem.fits(tuple(range(len(left)))):
                break
            sets = sorted({pruned(problem, seed) for seed in self._seeds(problem, left)}, key=problem.cost)
            misfits: set[UUID] = set()
            for chosen in sets:
                if not problem.allows(chosen) or self._is_exhausted:
                    continue
                moved = tuple(left[one] for one in chosen)
                stuck = self._rehearsal.stuck(cluster, moved)
                if stuck == []:
                    found[tuple(one.run.attempt_id for one in moved)] = moved
                    break
                misfits |= {one.run.attempt_id for one in stuck or ()}
            if found or not misfits:
                break
            left = [one for one in left if one.run.attempt_id not in misfits]
        return list(found.values())

    def _seeds(self, problem: Problem, pool: Sequence[Movable]) -> Iterator[Chosen]:
        orders = [[one for area in self._nodes(pool) for one in area], list(range(len(pool)))]
        if self._job.topology.mode == "required":
            orders += [[one for area in self._nodes(pool, domain) for one in area] for domain in self._areas(pool)]
        for order in orders:
            if self._is_exhausted:
                return
            unique = list(dict.fromkeys(order))
            if problem.fits(tuple(sorted(unique))):
                yield shortest(problem, unique)

    def _areas(self, pool: Sequence[Movable]) -> list[tuple[str, ...]]:
        """The domains in which some of the jobs run."""
        found: set[tuple[str, ...]] = set()
        for one in pool:
            for name in _nodes_of(one):
                domain = self._domains.get((one.run.cluster_id, name), ())
                found |= {domain[:depth] for depth in range(1, len(domain) + 1)}
        return sorted(found)

    def _nodes(self, pool: Sequence[Movable], within: tuple[str, ...] = ()) -> list[Chosen]:
        """The jobs on each node of a domain, the cheapest to clear first."""
        on: dict[str, list[int]] = {}
        for position, one in enumerate(pool):
            for name in _nodes_of(one):
                domain = self._domains.get((one.run.cluster_id, name), ())
                if domain[: len(within)] == within:
                    on.setdefault(name, []).append(position)
        costs = {name: sum(pool[one].cost(self._now) for one in own) for name, own in on.items()}
        return [tuple(on[name]) for name in sorted(on, key=lambda name: (costs[name], name))]

    def _decision(self, best: _Found, gain: _Gain) -> Consolidation | None:
        """The decision, if the trial of placement confirms all places."""
        confirmed = self._rehearsal.placements(best.moved)
        if confirmed is None:
            return None
        place, places = confirmed
        nodes = _names(place)
        moves = tuple(self._planned(one, places[one.run.job_id]) for one in best.moved)
        return Consolidation(
            job_id=self._job.id,
            size_milli=self._size,
            cluster_id=place.cluster_id,
            cluster=place.cluster,
            nodes=nodes,
            amounts=place.amounts,
            moves=moves,
            gain=gain.gpu_seconds,
            otherwise_at=gain.otherwise_at,
            is_exact=best.is_exact,
        )

    def _planned(self, one: Movable, place: Placement) -> PlannedMove:
        lost, cost = one.lost_seconds(self._now), one.cost(self._now)
        return PlannedMove(one, lost, cost, place.cluster_id, place.cluster, _names(place), place.amounts)

    def _why_none(self, budget: float) -> str:
        share = f"{self._rules.share:.0%} of what it would gain"
        told = (
            f"running jobs could be moved so that it fits, but not at most {self._rules.most_moves} of them, each with another"
            f" place now, that together cost {budget / 3600:.1f} GPU-hours or less ({share})"
        )
        return "; ".join(filter(None, (told, self._brake.text(self._spared))))


def _names(place: Placement) -> tuple[str, ...]:
    return tuple(sorted({name for pod_set in place.pod_sets for name in pod_set.nodes}))


def _nodes_of(one: Movable) -> set[str]:
    return {name for held in one.run.pods for name in held.nodes}
