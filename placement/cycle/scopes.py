"""What jobs share in a cycle: those of one tenant and shape a scope, those of one shape a contest, those of equal pods
an ask.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from typing import NamedTuple, TypeAlias

import numpy as np

from placement.fleet.budgets import Unaffordable
from placement.fleet.eligibility import as_of
from placement.fleet.fleet import Audience
from placement.fleet.fleet_state import FleetState
from placement.fleet.limits import Lines, Refusal
from placement.fleet.policies import Policy, PolicyBook, prefixes_of
from placement.fleet.pools import Mask
from placement.fleet.siting import Site
from placement.ranking.candidates import Ask, ask_of
from placement.ranking.contest import Contest, Terms, Verdict, Viewpoint
from placement.ranking.floors import Floors
from placement.ranking.fragmentation import Fragmentation, typical_of
from placement.ranking.node_table import NodeTable
from placement.ranking.pulls import Pulls
from placement.ranking.strategies import weights_of
from placement.ranking.work import Works
from placement.values.model import JobRequest, PodSetRequest, Snapshot, Topology

from .timeline import Candidate, Seeker


class Choice(NamedTuple):
    """A candidate with room and quota."""

    candidate: int
    terms: Terms
    sites: list[Site]
    limits: Lines


@dataclass(slots=True)
class Scope:
    """The jobs of one tenant and shape in a cycle; of one user, where limits on users apply."""

    contest: Contest
    left_out: Mask | None = None
    """Per candidate, whether it is closed to this tenant's jobs."""
    refusals: dict[int, Refusal | Unaffordable] = field(default_factory=dict)
    """By cluster number, the quota limit or the budget that refuses the job."""
    verdict: Verdict | None = None
    """Why they wait for the rest of the cycle; None while they still find places."""
    seeker: Seeker | None = None
    too_long: float = inf
    """Jobs that run this long or longer do not fit on lent nodes."""

    def refuse(self, candidate: int, cluster: int, refusal: Refusal | Unaffordable) -> None:
        """Leaves a candidate out because of a quota limit or a budget."""
        self.leave_out(candidate)
        self.refusals.setdefault(cluster, refusal)

    def leave_out(self, candidate: int) -> None:
        """Leaves a candidate out for the rest of the cycle."""
        if self.left_out is None:
            self.left_out = np.zeros(len(self.contest.ask.pools), dtype=np.bool_)
        self.left_out[candidate] = True

    def trial(self) -> "Scope":
        """A copy to try candidates on: what the copy leaves out remains in the original."""
        left_out = None if self.left_out is None else self.left_out.copy()
        return Scope(self.contest, left_out, dict(self.refusals))


ShapeKey: TypeAlias = object


class _Desk(NamedTuple):
    """What the scopes of one tenant share; `contests` are those of all tenants with its audience and policy."""

    audience: Audience
    policy: Policy
    contests: dict[ShapeKey, Contest]
    scopes: dict[ShapeKey, Scope]
    has_budgets: bool
    """Then what a job uses at most, and so its deadline, decides where it may go."""
    has_user_limits: bool
    """Then whose job it is decides whether it may go anywhere: another user's jobs of the same shape may."""


class Scopes:
    """All scopes of a cycle, each made for its first job."""

    def __init__(self, snapshot: Snapshot, state: FleetState) -> None:
        self._snapshot = snapshot
        self._state = state
        self._fleet = state.fleet
        self._policies = PolicyBook(snapshot.policies)
        self._budgeted = {budget.tenant_path for budget in snapshot.budgets}
        self._user_limited = {limit.tenant_path for limit in snapshot.user_limits}
        self._limited_classes = {limit.class_name for limit in snapshot.class_limits}
        self._works = Works(self._fleet, snapshot)
        self._pulls = Pulls(self._fleet, snapshot)
        self._asks: dict[tuple[tuple[PodSetRequest, ...], Topology], Ask] = {}
        self._contests: dict[tuple[Audience, Policy], dict[ShapeKey, Contest]] = {}
        self._desks: dict[str, _Desk] = {}

    def of(self, job: JobRequest) -> Scope:
        """The job's scope."""
        desk = self._desks.get(job.tenant_path) or self._new_desk(job.tenant_path)
        shape: ShapeKey = job.shape or (job.pod_sets, job.constraints, job.topology, job.strategy)
        work = self._works.key(job)
        if work is not None:
            shape = (shape, work)
        if desk.has_budgets:
            shape = (shape, job.deadline_seconds)
        pulling = self._pulls.of(job)
        if pulling is not None and pulling.key:
            shape = (shape, pulling.key)
        own = (shape, job.user) if desk.has_user_limits else shape
        if job.class_name in self._limited_classes:
            own = (own, job.class_name)
        scope = desk.scopes.get(own)
        if scope is None:
            contest = desk.contests.get(shape)
            if contest is None:
                contest = desk.contests[shape] = Contest(self._ask(job), job, self._viewpoint(job), self._state)
            scope = desk.scopes[own] = Scope(contest)
        return scope

    def _new_desk(self, tenant_path: str) -> _Desk:
        audience, policy = self._fleet.audience(tenant_path), self._policies.of(tenant_path)
        contests = self._contests.setdefault((audience, policy), {})
        above = prefixes_of(tenant_path)
        limited = (not self._budgeted.isdisjoint(above), not self._user_limited.isdisjoint(above))
        desk = self._desks[tenant_path] = _Desk(audience, policy, contests, {}, *limited)
        return desk

    def _ask(self, job: JobRequest) -> Ask:
        key = (job.pod_sets, job.topology)
        ask = self._asks.get(key)
        if ask is None:
            ask = self._asks[key] = ask_of(self._fleet, job.pod_sets, job.topology, self._state.bounds)
        return ask

    def _viewpoint(self, job: JobRequest) -> Viewpoint:
        audience, policy, *_ = self._desks.get(job.tenant_path) or self._new_desk(job.tenant_path)
        weights = weights_of(policy.strategy_for(job.strategy), policy)
        floors = self._floors if weights.stranding else None
        return Viewpoint(audience, policy, weights, floors, self._works.of(job), self._table, self._pulls.of(job))

    @cached_property
    def _table(self) -> NodeTable:
        return NodeTable(self._state)

    @cached_property
    def _floors(self) -> Floors:
        typical = self._snapshot.typical_pods or typical_of(self._snapshot.queue)
        return Floors(self._table, Fragmentation(self._fleet, typical))

    def seeker(self, job: JobRequest) -> Seeker:
        """The job with all places that could ever hold it, ranked as its contest ranks them by price."""
        return Seeker(as_of(job, self._snapshot.now), self._fleet, self._viewpoint(job))

    def seeker_now(self, job: JobRequest) -> Seeker:
        """Likewise with the places that could hold it in the fleet as it was before the cycle."""
        return Seeker(job, self._fleet, self._viewpoint(job), self._fleet.largest_free)

    def terms(self, job: JobRequest, candidate: Candidate) -> Terms:
        """What a place that a seeker found means for the job."""
        viewpoint = replace(self._viewpoint(job), floors=None, table=None)
        return Contest(candidate.ask, job, viewpoint, self._state).terms(job, candidate.number)
