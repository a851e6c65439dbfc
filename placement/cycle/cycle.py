"""One scheduling cycle: the queue in order, each job on the best cluster that holds it now, or the reasons why it
waits.

A cycle is greedy and deterministic: it considers each job once, in the order of turns, against what earlier jobs left. Jobs of
one tenant and shape share one verdict, because within a cycle room and quota only shrink.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import cached_property
from typing import NamedTuple
from uuid import UUID

from placement.fleet.amounts import amounts_of
from placement.fleet.budgets import BudgetBook
from placement.fleet.fleet import Fleet, FleetIndex
from placement.fleet.fleet_state import FleetState
from placement.fleet.limits import LimitBook, keep_claimed, limit_book
from placement.fleet.siting import Site
from placement.ranking.pulls import Pulls
from placement.ranking.runtimes import runtime_of
from placement.values.advance import AdvanceReservation
from placement.values.decisions import Decisions, KeptRoom, Placement, PodSetPlacement, Reason, Wait
from placement.values.model import JobRequest, LimitState, Release, Snapshot
from placement.values.reason_codes import ReasonCode
from placement.values.sizes import largest, pace_of_size
from quotas.engine.borrowing import obstacle
from quotas.engine.origin import Lenders, Origin, origins

from .fair_share import Turns
from .garbage import collector_paused
from .holdings import Holdings
from .kept_room import Keeping
from .scopes import Choice, Scope, Scopes
from .share_reasons import ShareReasons
from .timeline import STEP, Candidate, Seeker, Timeline, release_of, start_text
from .verdicts import WAITING_FOR_ROOM
from .visibility import Visibility, VisibleFleet

MOST_OFFERS_PER_CLUSTER = 4


def decide(snapshot: Snapshot, index: FleetIndex | None = None) -> Decisions:
    """Places the jobs that fit now and returns why the others wait; placements and waits are each in the order of turns."""
    return run(snapshot, index)[0]


def run(snapshot: Snapshot, index: FleetIndex | None = None) -> tuple[Decisions, "Cycle"]:
    """Likewise, and also returns the cycle in its final state. Pass an `index` to keep the fleet's arrays between
    cycles.
    """
    placements: list[Placement] = []
    waits: list[Wait] = []
    with collector_paused():
        cycle = Cycle(snapshot, index or FleetIndex())
        for job in cycle.turns:
            outcome = cycle.settle(job)
            if isinstance(outcome, Placement):
                placements.append(outcome)
            else:
                waits.append(outcome)
    return Decisions(tuple(placements), tuple(waits), cycle.kept_rooms()), cycle


class Bench(NamedTuple):
    """What a trial of a waiting job starts from (`placement.preemption`): the fleet that it sees, which is to be copied, the
    quota limits and the budgets.
    """

    job: JobRequest
    state: FleetState
    scopes: Scopes
    book: LimitBook
    budgets: BudgetBook
    kept: tuple[tuple[int, tuple[int, ...]], ...]
    """The nodes that the cycle keeps for it, by pool."""
    is_closed: bool
    """Whether it cannot run at all now, for example before its reservation begins."""
    counted: tuple[AdvanceReservation, ...]
    """The reservations whose quota is kept from it."""


class Cycle:
    """The state of one cycle. `consider` takes the jobs in the order of `turns`."""

    def __init__(self, snapshot: Snapshot, index: FleetIndex) -> None:
        self._snapshot, self._index = snapshot, index
        self._fleet: Fleet = index.fleet(snapshot.clusters)
        self._book = limit_book(snapshot)
        self._budgets = BudgetBook(snapshot.budgets, snapshot.now)
        self._pulls = Pulls(self._fleet, snapshot)
        self._visibility = Visibility(snapshot, self._fleet, self._book, self._budgets)
        self._placed: list[tuple[JobRequest, Placement]] = []
        self._holdings = Holdings(snapshot)
        """What is kept for jobs that have waited too long."""
        self._claimed = keep_claimed(self._book, snapshot)
        """By job the quota that is kept for it, because others are being stopped for it, and where."""

    @cached_property
    def turns(self) -> Turns:
        """The queue in the order in which the jobs' turns come."""
        of_clusters = list(zip(self._fleet.clusters, self._fleet.totals, strict=True))
        return Turns(self._snapshot.queue, self._snapshot.fair_share, of_clusters)

    @cached_property
    def _explained(self) -> ShareReasons:
        return ShareReasons(self.turns, Cycle(self._snapshot, self._index).place_for)

    def settle(self, job: JobRequest) -> Placement | Wait:
        """Considers the job whose turn it is, charges its tenant for what it takes, and says whether a turn was why it
        waits.
        """
        outcome = self.consider(job)
        if isinstance(outcome, Placement):
            self.turns.charge(outcome)
            return outcome
        return self.explained(job, outcome)

    def explained(self, job: JobRequest, wait: Wait) -> Wait:
        """The wait, with the shares if the room went to a tenant whose turn came first."""
        return wait if self._snapshot.fair_share is None else self._explained.of(job, wait)

    def place_for(self, job: JobRequest) -> Placement | None:
        """Where the job would go now; None if it would wait. Deducts nothing."""
        job, visible = self._visibility.of(job)
        scope = visible.scope(job)
        found = self._first(job, scope, visible) if scope.verdict is None else None
        return None if found is None else self._placement(*found)

    def consider(self, job: JobRequest) -> Placement | Wait:
        """Places the job and deducts what it takes, or says why it waits.

        The numbers are the sections of docs/explanation/how-a-cycle-reads.md.
        """
        # 4. What may the job use?
        self._holdings.reached(job)
        if job.awaits_on is not None:
            return self._await_data(job, job.awaits_on)
        job, visible = self._visibility.of(job)
        # 5. What is known of jobs like it?
        scope = visible.scope(job)
        is_first = scope.verdict is None
        if scope.verdict is None:
            # 6. Take the best place that has room, quota and budget
            found = self._first(job, scope, visible)
            if found is not None:
                return self._take(*found)
            # 7. Say why there is none
            scope.verdict = visible.verdict(job, scope)
        # 8. Borrow nodes that are kept for others
        borrowed = visible.lender.borrow(job, scope)
        if borrowed is not None:
            with visible.lender.lending(borrowed.end):
                return self._take(job, borrowed.choice)
        # 9. Keep room, if it has waited too long
        kept = self._keep_room(job, scope) if is_first or self._holdings.had(job) else None
        # 10. Wait, with the reasons
        return kept or Wait(job.id, *scope.verdict)

    def _first(self, job: JobRequest, scope: Scope, visible: VisibleFleet) -> tuple[JobRequest, Choice] | None:
        """The place that is kept for the job where it failed, if it can start there again; else the best candidate."""
        there = self._visibility.kept_place(job)
        found = None if there is None or there.scope(job).verdict else self._best(job, there.scope(job), there)
        return found or self._best(job, scope, visible)

    def _best(self, job: JobRequest, scope: Scope, visible: VisibleFleet) -> tuple[JobRequest, Choice] | None:
        """The best candidate that has room, quota and budget, for the largest size of the job that has one."""
        with self._own_quota(job):
            if job.elastic is not None:
                return largest(job, lambda sized: self._choose(sized, visible.scope(sized)))
            choice = self._choose(job, scope)
            return None if choice is None else (job, choice)

    def _choose(self, job: JobRequest, scope: Scope) -> Choice | None:
        """The best candidate that has room, quota and budget."""
        contest, counted = scope.contest, self._visibility.counted(job)
        while (candidate := contest.best(scope.left_out)) is not None:
            terms = contest.terms(job, candidate)
            sites = contest.site(candidate, terms)
            if sites is None:
                continue
            limits = self._book.open_to(job, self._fleet.clusters[terms.cluster].name, counted)
            refusal = obstacle(limits, terms.amounts) or self._budgets.refusing(job, terms.flavors)
            if refusal is None:
                return Choice(candidate, terms, sites, limits)
            scope.refuse(candidate, terms.cluster, refusal)
        return None

    @contextmanager
    def _own_quota(self, job: JobRequest) -> Iterator[None]:
        """Makes the quota that is kept for the job available to it."""
        kept = self._claimed.get(job.id)
        if kept is None:
            yield
            return
        limits, claim = kept
        self._book.give_back(limits, claim.amounts, job.constraints.reservation)
        yield
        self._book.take(limits, claim.amounts, job.constraints.reservation)

    def _take(self, job: JobRequest, choice: Choice) -> Placement:
        for pool, need, found in zip(choice.terms.pools, choice.terms.needs, choice.sites, strict=True):
            self._visibility.take(pool, need, found)
        if (kept := self._claimed.pop(job.id, None)) is not None:
            self._book.give_back(kept[0], kept[1].amounts, job.constraints.reservation)
        self._book.take(choice.limits, choice.terms.amounts, job.constraints.reservation)
        self._budgets.charge(job, choice.terms.flavors)
        placement = self._placement(job, choice)
        self._placed.append((job, placement))
        return placement

    def _placement(self, job: JobRequest, choice: Choice) -> Placement:
        terms = choice.terms
        cluster = self._fleet.clusters[terms.cluster]
        parts = zip(job.pod_sets, terms.flavors, terms.pools, choice.sites, strict=True)
        placed = [
            PodSetPlacement(
                pod_set.name, flavor.name, found.path, found.named(self._fleet.pools[pool].node_names), found.level
            )
            for pod_set, flavor, pool, found in parts
        ]
        pulling = self._pulls.of(job)
        return Placement(
            job_id=job.id,
            cluster_id=cluster.id,
            cluster=cluster.name,
            pod_sets=tuple(placed),
            amounts=terms.amounts,
            unit_price=terms.unit_price,
            currency=terms.flavors[0].currency,
            hourly_cost=terms.hourly_cost,
            risk=terms.stakes.risk,
            egress=terms.stakes.egress,
            pace=terms.stakes.pace * pace_of_size(job),
            pull=None if pulling is None else pulling.at(terms.pools),
            emitted=terms.emitted,
        )

    def _keep_room(self, job: JobRequest, scope: Scope) -> Wait | None:
        """Keeps room for a job that has waited too long, while few jobs have room kept (`holdings`). Returns the job's wait.

        It keeps nothing where quota or a budget would not let the job start, and never nodes that are reserved for later, because they might be closed to the job when they come free;
        and none for a job that avoids some, because it soon avoids fewer. A job that others are stopped for has its nodes already.
        """
        if scope.verdict is None or scope.verdict.code not in WAITING_FOR_ROOM:
            return None
        if job.constraints.avoid_nodes or self._visibility.holds_claim(job):
            return None
        code, message, per_cluster = scope.verdict
        if not self._holdings.may_keep(job):
            rest = self._holdings.resting(job)
            if rest is None:
                return None
            return Wait(job.id, code, f"{message}; {self._holdings.rest_text(rest)}", per_cluster)
        seeker, state = self.seeker(job), self._visibility.strictest.state
        seeker.ranked = [number for number in seeker.ranked if self._lets_start(job, seeker, number)]
        kept = self._kept_by(job, seeker)
        if kept is None:
            return None
        told = f"nodes that become free on {self._fleet.clusters[kept.cluster].name} are kept for it"
        told += self._holdings.kept_text(job, state)
        if kept.start is not None:
            told = f"{told}; {start_text(kept.start, self._snapshot.now)}"
        return Wait(job.id, code, f"{message}; {told}", per_cluster, kept.start)

    def _kept_by(self, job: JobRequest, seeker: Seeker) -> Keeping | None:
        """What is kept for the job from now on, at the places of the seeker; None if nothing is."""
        kept = self._holdings.find(seeker, self._visibility.strictest.state, self._releases(self._snapshot))
        if kept is not None:
            for pool, nodes in kept.nodes:
                self._visibility.hide(pool, nodes, None if kept.start is None else kept.start.at)
            self._holdings.keep(job, kept)
        return kept

    def _await_data(self, job: JobRequest, cluster_id: UUID) -> Wait:
        """Keeps for a job that waits for data what was kept for it before, where its data is being copied. Its quota is held
        already. It begins to keep nothing.
        """
        wait = Wait(job.id, ReasonCode.WAITING_FOR_DATA, "it waits for data")
        if self._holdings.had(job) and not self._visibility.holds_claim(job) and self._holdings.may_keep(job):
            seeker = self.seeker(job)
            numbers = {number for number, one in enumerate(self._fleet.clusters) if one.id == cluster_id}
            seeker.ranked = [one for one in seeker.ranked if seeker.cluster_of[one] in numbers]
            self._kept_by(job, seeker)
        return wait

    def _lets_start(self, job: JobRequest, seeker: Seeker, candidate: int) -> bool:
        """Whether quota and budgets would let the job start there now."""
        given = self._snapshot
        if not (given.limits or given.user_limits or given.class_limits or given.budgets):
            return True
        pools = [self._fleet.pools[pool] for pool in seeker.ask.pools[candidate].tolist()]
        flavors = tuple([pool.flavor for pool in pools])
        named = {pods.name: flavor for pods, flavor in zip(job.pod_sets, flavors, strict=True)}
        with self._own_quota(job):
            limits = self._book.open_to(job, pools[0].cluster.name, self._visibility.counted(job))
            return (obstacle(limits, amounts_of(job, named)) or self._budgets.refusing(job, flavors)) is None

    def kept_rooms(self) -> tuple[KeptRoom, ...]:
        """What is kept for jobs that have waited too long, after the last job."""
        return self._holdings.rooms(self._visibility.strictest.state) if self._holdings.kept else ()

    def idle_places(self) -> dict[UUID, dict[str, int]]:
        """What is free, by claim, on nodes that are kept for jobs that start again where they failed, after the last job."""
        return self._visibility.idle_places({job.id for job, _ in self._placed})

    def _releases(self, snapshot: Snapshot) -> tuple[Release, ...]:
        """The expected ends of jobs that ran before this cycle, and of those that it has placed."""
        now, found = snapshot.now, list(snapshot.releases)
        for job, placement in self._placed:
            runtime = runtime_of(job, snapshot.runtimes, placement.pace)
            if runtime is not None:
                found += release_of(placement, job, self._fleet, now + timedelta(seconds=runtime.p50_seconds))
        return tuple(found)

    def offers(self, job: JobRequest) -> tuple[tuple[Placement, ...], tuple[Reason, ...], Wait | None]:
        """Every placement the job could get now, best first, and why each other cluster gives none. Deducts nothing.

        The first is what `consider` would decide; without any, the wait is what it would return. The result has at most
        the best MOST_OFFERS_PER_CLUSTER of each cluster. All are for the size with which the job would start.
        """
        job, visible = self._visibility.of(job)
        scope = visible.scope(job)
        if job.elastic is not None and scope.verdict is None and (best := self._best(job, scope, visible)) is not None:
            job, scope = best[0], visible.scope(best[0])
        found: list[tuple[int, Placement]] = []
        if scope.verdict is None:
            trial = scope.trial()
            found = self._looked_through(job, trial)
            if found:
                contest, offering = scope.contest, {cluster for cluster, _ in found}
                others = [number for number in contest.audience.clusters if number not in offering]
                return tuple(placed for _, placed in found), contest.reasons(job, trial.refusals, others), None
            scope.verdict = visible.verdict(job, trial)
        borrowed = visible.lender.borrow(job, scope)
        if borrowed is not None:
            placed = self._placement(job, borrowed.choice)
            return (placed,), tuple(r for r in scope.verdict.per_cluster if r.cluster != placed.cluster), None
        return (), scope.verdict.per_cluster, Wait(job.id, *scope.verdict)

    def _looked_through(self, job: JobRequest, trial: Scope) -> list[tuple[int, Placement]]:
        """The placements with their clusters' numbers, by trying one after the other."""
        found: list[tuple[int, Placement]] = []
        offers: Counter[int] = Counter()
        while (choice := self._choose(job, trial)) is not None:
            cluster = choice.terms.cluster
            found.append((cluster, self._placement(job, choice)))
            offers[cluster] += 1
            trial.leave_out(choice.candidate)
            if offers[cluster] == MOST_OFFERS_PER_CLUSTER and trial.left_out is not None:
                trial.left_out |= self._fleet.cluster_of_pool[trial.contest.ask.lead] == cluster
        return found

    def origins(self, job: JobRequest, placement: Placement) -> tuple[Origin, ...]:
        """Whose quota the job would take at this place, by what earlier jobs left."""
        with self._own_quota(job):
            chains = self._book.open_to(
                replace(job, user=None, class_name=""), placement.cluster, self._visibility.counted(job)
            )
            return origins(chains, placement.amounts, self._lenders)

    @cached_property
    def _lenders(self) -> Lenders[LimitState]:
        return Lenders(self._snapshot.limits, self._book)

    def bench(self, job: JobRequest) -> Bench:
        """What a trial of the job starts from, after the last job of the queue."""
        job, visible = self._visibility.of(job)
        keeping, gate = self._holdings.kept.get(job.id), visible.sight.gate
        kept = () if keeping is None else keeping.nodes
        counted = visible.sight.counted
        return Bench(job, visible.state, visible.scopes, self._book, self._budgets, kept, gate is not None, counted)

    def placed_in(self, job: JobRequest, scopes: Scopes) -> Placement | None:
        """The place that `consider` would take in the state of these scopes; None if there is none. Deducts nothing."""
        seat = self.seat(job, scopes)
        return None if seat is None else seat[0]

    def seat(self, job: JobRequest, scopes: Scopes) -> tuple[Placement, Choice] | None:
        """Likewise, with the choice that it is made from."""
        choice = self._choose(job, scopes.of(job))
        return None if choice is None else (self._placement(job, choice), choice)

    def timeline(self, snapshot: Snapshot) -> Timeline:
        """The time after this cycle, by the run times in `snapshot`. The cycle itself does not change."""
        return Timeline(self._visibility.strictest.state.copy(), self._releases(snapshot), snapshot.now, STEP)

    def seeker(self, job: JobRequest) -> Seeker:
        """The job with all places that could ever hold it, ranked as its contest ranks them by price."""
        return self._visibility.strictest.scopes.seeker(job)

    def placement_at(self, job: JobRequest, candidate: Candidate, sites: list[Site]) -> Placement:
        """The job placed there, whether there is room now or not. Deducts nothing."""
        terms = self._visibility.strictest.scopes.terms(job, candidate)
        limits = self._book.chains(job.tenant_path, self._fleet.clusters[terms.cluster].name, job.user, job.class_name)
        return self._placement(job, Choice(candidate.number, terms, sites, limits))
