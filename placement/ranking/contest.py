"""The candidates of one shape in a cycle, ranked: shared by every tenant that sees the same clusters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

import numpy as np

from placement.fleet.amounts import amounts_of
from placement.fleet.budgets import Unaffordable
from placement.fleet.emissions import emitted_by
from placement.fleet.fleet import Audience, Fleet
from placement.fleet.fleet_state import FleetState
from placement.fleet.limits import Refusal
from placement.fleet.policies import Policy
from placement.fleet.pools import Floats, Ints, Mask
from placement.fleet.prices import Rates, cost_of
from placement.fleet.siting import Need, Site
from placement.values.decisions import Reason
from placement.values.emissions import Emitted
from placement.values.model import Constraints, FleetFlavor, JobRequest
from placement.values.strategies import Weights

from .candidates import Ask
from .floors import Floors
from .landing import Landings
from .node_table import NodeTable
from .preference import preference_of
from .pulls import Pulling
from .reasons import budget_reason, quota_reason, reason_on
from .strategies import price_terms
from .work import Stakes, Work

_OUT = np.inf
_NOTHING_MORE = Stakes()
_ROUNDING = 1e-9
_A_MINUTE = 1e-9
"""The weight of a minute since a cluster was last observed: it only decides between equals."""
_MOST_MINUTES = 1440
_UNKNOWN = (0, None)
_A_MILLIGRAM = Decimal("0.001")


class Terms(NamedTuple):
    """What placing a job of this shape on a candidate means."""

    cluster: int
    pools: tuple[int, ...]
    needs: tuple[Need, ...]
    flavors: tuple[FleetFlavor, ...]
    amounts: dict[str, int]
    unit_price: Decimal | None
    """Of the first pod set: per unit, or per core if it uses none."""
    hourly_cost: Decimal | None
    stakes: Stakes
    emitted: Emitted | None = None
    """None unless carbon counts."""


class Verdict(NamedTuple):
    """Why every job of a shape waits for the rest of the cycle."""

    code: str
    message: str
    per_cluster: tuple[Reason, ...]


@dataclass(frozen=True, slots=True)
class Viewpoint:
    """The view of a contest's tenants: the clusters they may see, the policy that applies to them, and how they rank.

    `floors` is set if the weights count stranding, `work` if more than the hourly price counts.
    """

    audience: Audience
    policy: Policy
    weights: Weights
    floors: Floors | None
    work: Work | None = None
    table: NodeTable | None = None
    """Set if gangs are to keep to the domains that they prefer."""
    pulling: Pulling | None = None
    """Set if something is known of the job's images."""

    def allowed(self, ask: Ask, constraints: Constraints, fleet: Fleet) -> Mask:
        """Per candidate whether it is open, and neither the policy nor the job's constraints exclude it."""
        usable = fleet.lawful(self.audience, constraints, self.policy) & fleet.is_open
        mask: Mask = np.all(usable[ask.pools], axis=1)
        return mask


class Contest:
    """Which candidate is best now. A candidate that does not fit drops out for the rest of the cycle."""

    def __init__(self, ask: Ask, job: JobRequest, viewpoint: Viewpoint, state: FleetState) -> None:
        fleet = state.fleet
        self.ask = ask
        self.audience = viewpoint.audience
        self._policy = viewpoint.policy
        self._state = state
        self._weights = viewpoint.weights
        self._free_weight: Floats = np.array(viewpoint.weights.free)
        self._work = viewpoint.work
        self._allowed = viewpoint.allowed(ask, job.constraints, fleet)
        self._base: Floats = price_terms(self._weights, ask, self._allowed, self._work)
        """Per candidate the part of its score that does not change; infinite after it has dropped out."""
        self._base = self._base + _A_MINUTE * np.minimum(fleet.minutes_unseen[ask.lead], _MOST_MINUTES)
        self._base[~(self._allowed & ask.is_alive)] = _OUT
        self._cluster: Ints = fleet.cluster_of_pool[ask.lead]
        self._landings = _landings_of(ask, state, viewpoint.floors)
        self._preference = None if viewpoint.table is None else preference_of(ask, viewpoint.table)
        self._pulls: Ints | None = None if viewpoint.pulling is None else viewpoint.pulling.steps(ask)
        """Per candidate how long pulling the images is expected to take, in steps."""
        self._terms: dict[int, Terms] = {}
        self._amounts: dict[tuple[tuple[str, str], ...], dict[str, int]] = {}
        self._reasons: tuple[Reason, ...] | None = None
        self._had_room: bool | None = None
        self.is_over = not self._base.size
        """True if no candidate can hold the job, whichever tenant submits it."""
        self.verdict: Verdict | None = None
        """The cycle's verdict on all jobs of this shape that quota does not stop."""

    def best(self, left_out: Mask | None = None) -> int | None:
        """The number of the best candidate that may still fit and is not `left_out`; None if there is none."""
        if self._preference is not None:
            self._preference.look()
        if self._landings is not None:
            self._landings.look(self._base < _OUT)
        tries = 0
        while not self.is_over:
            free = self._state.free_share.take(self.ask.lead)
            score = self._score(free)
            if left_out is not None:
                score[left_out] = _OUT
            candidate = self._first(score)
            if score.item(candidate) == _OUT:
                self.is_over = left_out is None
                break
            if free.item(candidate) + _ROUNDING < self.ask.lead_share.item(candidate):
                self._base[free + _ROUNDING < self.ask.lead_share] = _OUT
            elif self._preference is not None and not self._preference.is_known(candidate):
                self._preference.learn(candidate, score)
            elif self._landings is None or self._landings.is_settled(candidate):
                return candidate
            else:
                tries += 1
                self._landings.approach(candidate, score, tries)
        return None

    def _first(self, score: Floats) -> int:
        """The candidate with the lowest score. Of several, those with the shortest pull; of these, the one whose cluster
        was given least so far, so that what waits to be dispatched does not all wait for one cluster; then the first.
        """
        lowest = int(score.argmin())
        equal = np.flatnonzero(score == score[lowest])
        if equal.size == 1:
            return lowest
        if self._pulls is not None:
            pulls = self._pulls[equal]
            equal = equal[pulls == pulls.min()]
        return int(equal[self._state.placed[self._cluster[equal]].argmin()])

    def _score(self, free: Floats) -> Floats:
        score = free * self._free_weight
        score += self._base
        if self._weights.cluster_free:
            score += self._weights.cluster_free * self._state.cluster_free[self._cluster]
        if self._preference is not None:
            score += self._preference.cost
        if self._landings is not None:
            score += self._weights.stranding * self._landings.stranding
            score[self._landings.is_masked] = _OUT
        return score

    def terms(self, job: JobRequest, candidate: int) -> Terms:
        """What the candidate means for jobs of this shape."""
        terms = self._terms.get(candidate)
        if terms is None:
            terms = self._terms[candidate] = self._terms_of(job, candidate)
        return terms

    def _terms_of(self, job: JobRequest, candidate: int) -> Terms:
        fleet = self._state.fleet
        pools = tuple(self.ask.pools[candidate].tolist())
        flavors = tuple([fleet.pools[pool].flavor for pool in pools])
        needs = self.ask.needs(candidate)
        asked = [fleet.asked(pool)[pods.gpu is not None] for pool, pods in zip(pools, job.pod_sets, strict=True)]
        cost = _hourly_cost(job, asked, needs)
        first = asked[0]
        return Terms(
            cluster=fleet.cluster_of_pool.item(pools[0]),
            pools=pools,
            needs=needs,
            flavors=flavors,
            amounts=self._amounts_of(job, flavors),
            unit_price=None if first is None else first.unit if job.pod_sets[0].gpu is not None else first.cpu,
            hourly_cost=cost,
            stakes=_NOTHING_MORE if self._work is None else self._work.stakes(self.ask, candidate, cost),
            emitted=self._emitted(job, flavors, needs) if self._weights.carbon else None,
        )

    def _emitted(self, job: JobRequest, flavors: Sequence[FleetFlavor], needs: Sequence[Need]) -> Emitted:
        pairs = zip(flavors, job.pod_sets, strict=True)
        rates = [emitted_by(flavor, with_gpu=pods.gpu is not None) for flavor, pods in pairs]
        grams = _hourly_cost(job, rates, needs)
        return Emitted(None if grams is None else grams.quantize(_A_MILLIGRAM))

    def _amounts_of(self, job: JobRequest, flavors: tuple[FleetFlavor, ...]) -> dict[str, int]:
        """What a hold takes; the identical object for flavors that count alike."""
        kinds = tuple([(flavor.gpu_model, flavor.sharing) for flavor in flavors])
        amounts = self._amounts.get(kinds)
        if amounts is None:
            named = {pod_set.name: flavor for pod_set, flavor in zip(job.pod_sets, flavors, strict=True)}
            amounts = self._amounts[kinds] = amounts_of(job, named)
        return amounts

    def site(self, candidate: int, terms: Terms) -> list[Site] | None:
        """Where the pods would go there; if they do not fit, the candidate drops out."""
        if self.ask.is_alive[candidate]:
            sites = self._landing(candidate, terms)
            if sites is not None:
                return sites
            self.ask.is_alive[candidate] = False
        self._base[candidate] = _OUT
        return None

    def _landing(self, candidate: int, terms: Terms) -> list[Site] | None:
        if self._landings is None:
            return self._state.site(terms.pools, terms.needs)
        landing = self._landings.sites[candidate]
        return None if landing is None else [landing]

    def reasons(
        self, job: JobRequest, refusals: Mapping[int, Refusal | Unaffordable], clusters: Sequence[int] | None = None
    ) -> tuple[Reason, ...]:
        """Why `clusters` (all that the audience may see) do not take it now; `refusals` are the quota limits and
        the budgets that refused it.
        """
        if refusals or clusters is not None:
            asked = self.audience.clusters if clusters is None else clusters
            return tuple(self._reason(job, number, refusals.get(number)) for number in asked)
        if self._reasons is None:
            self._reasons = self._capacity_reasons(job)
        return self._reasons

    def _reason(self, job: JobRequest, number: int, refusal: Refusal | Unaffordable | None) -> Reason:
        if refusal is None:
            return reason_on(job, number, self._state, self._policy)[0]
        name = self._state.fleet.clusters[number].name
        return budget_reason(name, refusal) if isinstance(refusal, Unaffordable) else quota_reason(name, refusal)

    def _capacity_reasons(self, job: JobRequest) -> tuple[Reason, ...]:
        """The reasons of capacity. Shapes that differ only in cores and memory often lack the same devices and share
        the reasons.
        """
        wanted = tuple((pod_set.gpu, pod_set.count) for pod_set in job.pod_sets)
        key = (self.audience, self._policy, job.constraints, wanted, job.topology)
        known = self._state.shared_reasons.setdefault(key, {})
        versions = self._state.cluster_versions()
        found: list[Reason] = []
        for number in self.audience.clusters:
            version, reason = known.get(number, _UNKNOWN)
            if reason is None or version != versions[number]:
                reason, is_about_devices = reason_on(job, number, self._state, self._policy)
                if is_about_devices:
                    known[number] = versions[number], reason
            found.append(reason)
        return tuple(found)

    def had_room(self, beginning: FleetState) -> bool:
        """True if some candidate had room as the fleet was at the `beginning` of the cycle."""
        if self._had_room is None:
            self._had_room = self._find_room(beginning)
        return self._had_room

    def _find_room(self, beginning: FleetState) -> bool:
        touched = self._state.versions[self.ask.pools].any(axis=1)
        return any(
            beginning.site(self.ask.pools[candidate].tolist(), self.ask.needs(candidate)) is not None
            for candidate in np.flatnonzero(touched & self._allowed).tolist()
        )


def _hourly_cost(job: JobRequest, asked: Sequence[Rates | None], needs: Sequence[Need]) -> Decimal | None:
    """The hourly cost of all pods; None if a pod set has no known price."""
    cost = Decimal(0)
    for pods, rates, need in zip(job.pod_sets, asked, needs, strict=True):
        if rates is None:
            return None
        cost += cost_of(pods, rates, need.units, need.part_milli)
    return cost


def _landings_of(ask: Ask, state: FleetState, floors: Floors | None) -> Landings | None:
    """The landings, for jobs of one pod set: if the strategy counts stranding, or for single pods if a cluster's own
    scheduler picks nodes.
    """
    if len(ask.pod_sets) > 1:
        return None
    is_wanted = floors is not None or (ask.pod_sets[0].count == 1 and state.fleet.has_spreading)
    return Landings(ask, state, floors) if is_wanted else None
