"""One scheduling cycle: the queue in order, each job on the best cluster that holds it now, or the reasons why it waits.

Greedy and deterministic: a job is looked at once, in queue order, against what its predecessors left. Jobs of one tenant
and shape share one verdict, because within a cycle room and quota only shrink.
"""

from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from math import inf
from typing import NamedTuple, TypeAlias

import numpy as np

from .candidates import Ask, ask_of
from .contest import Contest, Terms, Verdict, Viewpoint
from .eligibility import NOT_REACHED, as_of, next_opening
from .fleet import Audience, Fleet, FleetIndex, Mask
from .fragmentation import Fragmentation, typical_of
from .garbage import collector_paused
from .interruptions import Exposures
from .ledger import FleetState
from .limits import Charges, LimitBook, Refusal, charge, refusing
from .model import (
    Decisions,
    JobRequest,
    Placement,
    PodSetPlacement,
    PodSetRequest,
    Reason,
    Release,
    Snapshot,
    Topology,
    Wait,
)
from .policies import Policy, PolicyBook
from .reasons import nearest_message, quota_message
from .reservations import MOST_AT_ONCE, keep_room
from .runtimes import longest_seconds, runtime_of
from .siting import Site
from .strategies import weights_of
from .timeline import STEP, Candidate, Seeker, Timeline, release_of, start_text

WAITING_FOR_ROOM = frozenset({"waiting_for_capacity", "behind_in_queue"})
MAY_BORROW = WAITING_FOR_ROOM | {"reserved_for_gang"}
MOST_OFFERS_PER_CLUSTER = 4
_NOT_ANSWERING = frozenset({"unreachable", "auth_failed", "stale"})


def decide(snapshot: Snapshot, index: FleetIndex | None = None) -> Decisions:
    """Places what can be placed now and says why the rest waits; placements and waits each in queue order."""
    return run(snapshot, index)[0]


def run(snapshot: Snapshot, index: FleetIndex | None = None) -> tuple[Decisions, "Cycle"]:
    """The same, with the cycle as it then stands. Pass an `index` to keep the fleet's arrays between cycles."""
    placements: list[Placement] = []
    waits: list[Wait] = []
    with collector_paused():
        cycle = Cycle(snapshot, index or FleetIndex())
        for job in snapshot.queue:
            outcome = cycle.consider(job)
            if isinstance(outcome, Placement):
                placements.append(outcome)
            else:
                waits.append(outcome)
    return Decisions(tuple(placements), tuple(waits)), cycle


@dataclass(slots=True)
class _Scope:
    """The jobs of one tenant and shape in a cycle."""

    contest: Contest
    charges: dict[int, Charges] = field(default_factory=dict)
    """By candidate."""
    left_out: Mask | None = None
    """Per candidate, whether this tenant's jobs cannot take it."""
    refusals: dict[int, Refusal] = field(default_factory=dict)
    """By cluster number, the quota limit in the way."""
    verdict: Verdict | None = None
    seeker: Seeker | None = None
    too_long: float = inf
    """Jobs that run so long or longer do not fit on what others lend."""

    def leave_out(self, candidate: int) -> None:
        """Leaves a candidate out for the rest of the cycle."""
        if self.left_out is None:
            self.left_out = np.zeros(len(self.contest.ask.pools), dtype=np.bool_)
        self.left_out[candidate] = True

    def trial(self) -> "_Scope":
        """The same as it stands, for looking around: what is left out there stays in here."""
        left_out = None if self.left_out is None else self.left_out.copy()
        return _Scope(self.contest, self.charges, left_out, dict(self.refusals))


class _Choice(NamedTuple):
    """A candidate with room and quota."""

    candidate: int
    terms: Terms
    sites: list[Site]


class _Borrowed(NamedTuple):
    """A candidate with room on nodes that are kept for others until later than `end`."""

    choice: _Choice
    charges: Charges
    end: datetime


ShapeKey: TypeAlias = object


class Cycle:
    """The state of one cycle. `consider` takes the jobs in queue order."""

    def __init__(self, snapshot: Snapshot, index: FleetIndex) -> None:
        self._fleet: Fleet = index.fleet(snapshot.clusters)
        self._state = FleetState(self._fleet)
        self._book = LimitBook(snapshot.limits)
        self._asks: dict[tuple[tuple[PodSetRequest, ...], Topology], Ask] = {}
        self._policies = PolicyBook(snapshot.policies)
        self._contests: dict[tuple[Audience, Policy, ShapeKey], Contest] = {}
        self._scopes: dict[tuple[str, ShapeKey], _Scope] = {}
        self._beginning = FleetState(self._fleet)
        self._exposures = Exposures(self._fleet, snapshot.runtimes)
        self._snapshot = snapshot
        self._placed: list[tuple[JobRequest, Placement]] = []
        self._kept = 0
        """For how many jobs nodes are kept."""

    @cached_property
    def _meter(self) -> Fragmentation:
        typical = self._snapshot.typical_pods or typical_of(self._snapshot.queue)
        return Fragmentation(self._fleet, typical)

    def consider(self, job: JobRequest) -> Placement | Wait:
        """Places the job and deducts what it takes, or says why it waits."""
        job = as_of(job, self._snapshot.now)
        scope = self._scope(job)
        if scope.verdict is None:
            placement = self._place(job, scope)
            if placement is not None:
                return placement
            scope.verdict = self._verdict(job, scope)
            placement = self._backfill(job, scope)
            return placement or self._keep_room(job, scope) or Wait(job.id, *scope.verdict)
        return self._backfill(job, scope) or Wait(job.id, *scope.verdict)

    def _keep_room(self, job: JobRequest, scope: _Scope) -> Wait | None:
        """Keeps room for a job that has waited too long for it, while few have any kept; what to tell the job."""
        if scope.verdict is None or scope.verdict.code not in WAITING_FOR_ROOM or self._kept >= MOST_AT_ONCE:
            return None
        now = self._snapshot.now
        waited = now - (job.submitted_at or now)
        if waited.total_seconds() <= self._snapshot.patience_seconds:
            return None
        kept = keep_room(self.seeker(job), self._state, self._releases(self._snapshot), now)
        if kept is None:
            return None
        self._kept += 1
        told = f"nodes of {self._fleet.clusters[kept.cluster].name} that come free are kept for it"
        if kept.start is not None:
            told = f"{told}; {start_text(kept.start, now)}"
        code, message, per_cluster = scope.verdict
        return Wait(job.id, code, f"{message}; {told}", per_cluster, kept.start)

    def lookout(self, snapshot: Snapshot) -> Timeline:
        """What comes after this cycle, by what `snapshot` tells of run times. The cycle itself stays as it is."""
        return Timeline(self._state.copy(), self._releases(snapshot), snapshot.now, STEP)

    def seeker(self, job: JobRequest) -> Seeker:
        """The job with all places that could ever hold it, ranked as its contest ranks them by price."""
        return Seeker(as_of(job, self._snapshot.now), self._fleet, self._viewpoint(job))

    def placement_at(self, job: JobRequest, candidate: Candidate, sites: list[Site]) -> Placement:
        """The job placed there, whether there is room now or not. Takes nothing."""
        return self._placement(job, _Choice(candidate.number, self._terms(candidate, job), sites))

    def _releases(self, snapshot: Snapshot) -> tuple[Release, ...]:
        """What is expected to end: of what ran before this cycle, and of what it has placed."""
        now, found = snapshot.now, list(snapshot.releases)
        for job, placement in self._placed:
            runtime = runtime_of(job, snapshot.runtimes)
            if runtime is not None:
                found += release_of(placement, job, self._fleet, now + timedelta(seconds=runtime.p50_seconds))
        return tuple(found)

    def _backfill(self, job: JobRequest, scope: _Scope) -> Placement | None:
        """Places the job on nodes that are kept for others, if it ends before those need them."""
        borrowed = self._borrow(job, scope)
        if borrowed is None:
            return None
        with self._lending(borrowed.end):
            return self._take(job, borrowed.choice, borrowed.charges)

    def _borrow(self, job: JobRequest, scope: _Scope) -> _Borrowed | None:
        """Where the job could go on nodes that are kept for others, if it ends before those need them. Takes nothing."""
        if not self._state.lendable or scope.verdict is None or scope.verdict.code not in MAY_BORROW:
            return None
        seconds = longest_seconds(job, self._snapshot.runtimes)
        if seconds is None or seconds >= scope.too_long:
            return None
        end = self._snapshot.now + timedelta(seconds=seconds)
        with self._lending(end) as pools:
            clusters = {int(self._fleet.cluster_of_pool[number]) for number in pools}
            choice = self._choose_among(job, scope, clusters)
        if choice is None:
            scope.too_long = seconds
            return None
        return _Borrowed(*choice, end)

    @contextmanager
    def _lending(self, end: datetime) -> Iterator[Collection[int]]:
        """The pools that lend nodes to what ends by then, while they do."""
        lent = self._state.lend(end)
        try:
            yield lent
        finally:
            self._state.take_back(lent)

    def _choose_among(self, job: JobRequest, scope: _Scope, clusters: set[int]) -> tuple[_Choice, Charges] | None:
        """The cheapest place on one of the clusters that has room and quota."""
        if clusters and scope.seeker is None:
            scope.seeker = Seeker(job, self._fleet, self._viewpoint(job), self._fleet.largest_free)
        while clusters and scope.seeker is not None:
            fit = scope.seeker.fit(self._state, frozenset(clusters))
            if fit is None:
                return None
            candidate, sites = fit
            terms = self._terms(candidate, job)
            charges = self._book.charges(job.tenant_path, self._fleet.clusters[terms.cluster].name, terms.amounts)
            if refusing(charges) is None:
                return _Choice(candidate.number, terms, sites), charges
            clusters.discard(terms.cluster)
        return None

    def _terms(self, candidate: Candidate, job: JobRequest) -> Terms:
        viewpoint = replace(self._viewpoint(job), meter=None)
        return Contest(candidate.ask, job, viewpoint, self._state).terms(job, candidate.number)

    def _scope(self, job: JobRequest) -> _Scope:
        shape = (job.shape or (job.pod_sets, job.constraints, job.topology, job.strategy), self._exposures.seconds(job))
        key = (job.tenant_path, shape)
        scope = self._scopes.get(key)
        if scope is None:
            scope = self._scopes[key] = _Scope(self._contest(job, shape))
        return scope

    def _contest(self, job: JobRequest, shape: ShapeKey) -> Contest:
        audience, policy = self._fleet.audience(job.tenant_path), self._policies.of(job.tenant_path)
        key = (audience, policy, shape)
        if key not in self._contests:
            self._contests[key] = Contest(self._ask(job), job, self._viewpoint(job), self._state)
        return self._contests[key]

    def _viewpoint(self, job: JobRequest) -> Viewpoint:
        audience, policy = self._fleet.audience(job.tenant_path), self._policies.of(job.tenant_path)
        weights = weights_of(policy.strategy_for(job.strategy), policy)
        return Viewpoint(audience, policy, weights, self._meter if weights.stranding else None, self._exposures.of(job))

    def _ask(self, job: JobRequest) -> Ask:
        key = (job.pod_sets, job.topology)
        ask = self._asks.get(key)
        if ask is None:
            ask = self._asks[key] = ask_of(self._fleet, job.pod_sets, job.topology, self._state.bounds)
        return ask

    def offers(self, job: JobRequest) -> tuple[tuple[Placement, ...], tuple[Reason, ...], Wait | None]:
        """Every placement the job could get now, best first, and why each other cluster gives none. Takes nothing.

        The first is what `consider` would decide, and without any the wait is what it would say. Of one cluster the best
        MOST_OFFERS_PER_CLUSTER are named.
        """
        job = as_of(job, self._snapshot.now)
        scope = self._scope(job)
        found: list[tuple[int, Placement]] = []
        if scope.verdict is None:
            trial = scope.trial()
            found = self._looked_through(job, trial)
            if found:
                contest, offering = scope.contest, {cluster for cluster, _ in found}
                others = [number for number in contest.audience.clusters if number not in offering]
                return tuple(placed for _, placed in found), contest.reasons(job, trial.refusals, others), None
            scope.verdict = self._verdict(job, trial)
        borrowed = self._borrow(job, scope)
        if borrowed is not None:
            placed = self._placement(job, borrowed.choice)
            return (placed,), tuple(r for r in scope.verdict.per_cluster if r.cluster != placed.cluster), None
        return (), scope.verdict.per_cluster, Wait(job.id, *scope.verdict)

    def _looked_through(self, job: JobRequest, trial: _Scope) -> list[tuple[int, Placement]]:
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

    def _place(self, job: JobRequest, scope: _Scope) -> Placement | None:
        choice = self._choose(job, scope)
        if choice is None:
            return None
        return self._take(job, choice, scope.charges[choice.candidate])

    def _take(self, job: JobRequest, choice: _Choice, charges: Charges) -> Placement:
        for pool, need, found in zip(choice.terms.pools, choice.terms.needs, choice.sites, strict=True):
            self._state.take(pool, need, found)
        charge(charges)
        placement = self._placement(job, choice)
        self._placed.append((job, placement))
        return placement

    def _choose(self, job: JobRequest, scope: _Scope) -> _Choice | None:
        """The best candidate that has room and quota."""
        contest = scope.contest
        while (candidate := contest.best(scope.left_out)) is not None:
            terms = contest.terms(job, candidate)
            sites = contest.site(candidate, terms)
            if sites is None:
                continue
            charges = scope.charges.get(candidate)
            if charges is None:
                cluster = self._fleet.clusters[terms.cluster].name
                charges = scope.charges[candidate] = self._book.charges(job.tenant_path, cluster, terms.amounts)
            refusal = refusing(charges)
            if refusal is None:
                return _Choice(candidate, terms, sites)
            scope.leave_out(candidate)
            scope.refusals.setdefault(terms.cluster, refusal)
        return None

    def _placement(self, job: JobRequest, choice: _Choice) -> Placement:
        terms = choice.terms
        cluster = self._fleet.clusters[terms.cluster]
        parts = zip(job.pod_sets, terms.flavors, terms.pools, choice.sites, strict=True)
        placed = [
            PodSetPlacement(
                pod_set.name, flavor.name, found.path, found.named(self._fleet.pools[pool].node_names), found.level
            )
            for pod_set, flavor, pool, found in parts
        ]
        return Placement(
            job_id=job.id,
            cluster_id=cluster.id,
            cluster=cluster.name,
            pod_sets=tuple(placed),
            amounts=terms.amounts,
            unit_price=terms.unit_price,
            currency=terms.flavors[0].currency,
            hourly_cost=terms.hourly_cost,
            risk=terms.risk,
        )

    def _verdict(self, job: JobRequest, scope: _Scope) -> Verdict:
        verdict, later = self._verdict_now(job, scope), next_opening(job.constraints)
        return verdict._replace(message=f"{verdict.message}; {later}") if later else verdict

    def _verdict_now(self, job: JobRequest, scope: _Scope) -> Verdict:
        contest = scope.contest
        if scope.refusals:
            message = quota_message(*scope.refusals[min(scope.refusals)])
            return Verdict("waiting_for_quota", message, contest.reasons(job, scope.refusals))
        if contest.verdict is None:
            contest.verdict = self._room_verdict(job, contest)
        return contest.verdict

    def _room_verdict(self, job: JobRequest, contest: Contest) -> Verdict:
        reasons = contest.reasons(job, {})
        if not reasons:
            return Verdict("waiting_for_capacity", "there is no cluster yet that its tenant may use", ())
        possible = [reason for reason in reasons if not reason.is_for_good] or list(reasons)
        hopeful = [reason for reason in possible if reason.code != "excluded_by_policy"]
        open_now = [reason for reason in hopeful if reason.code != NOT_REACHED]
        if not open_now:
            held = ("held_by_policy", nearest_message(possible))
            early = ("waiting_for_capacity", "no cluster that is open to it so far can run it")
            return Verdict(*(early if hopeful else held), reasons)
        codes = {reason.code for reason in open_now}
        if codes <= _NOT_ANSWERING:
            names = ", ".join(reason.cluster for reason in open_now)
            return Verdict("clusters_unreachable", f"could run only on clusters that do not answer: {names}", reasons)
        if "reserved_for_gang" in codes:
            message = "there is room, but it is kept for a larger job that has waited longer"
            return Verdict("reserved_for_gang", message, reasons)
        if contest.had_room(self._beginning):
            message = f"jobs ahead of it take the room there was; {nearest_message(open_now)}"
            return Verdict("behind_in_queue", message, reasons)
        return Verdict("waiting_for_capacity", nearest_message(open_now), reasons)
