"""What would happen to a job, without submitting it: ranked offers, the reasons against the rest, and how many would
fit.

A quote is the cycle itself, run until the job's turn comes: the first offer is what the job would get.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import NamedTuple, TypeAlias
from uuid import UUID

import numpy as np

from placement.cycle.cycle import Cycle
from placement.cycle.visibility import gate_reason, horizon, seen_through, sight_of, state_seen
from placement.fleet.amounts import amounts_of
from placement.fleet.budgets import BudgetBook
from placement.fleet.fleet import Fleet, FleetIndex
from placement.fleet.fleet_state import FleetState
from placement.fleet.limits import LimitBook, Lines, keep_claimed, limit_book
from placement.fleet.policies import PolicyBook
from placement.fleet.siting import Need
from placement.preemption.trial import Trial
from placement.ranking.candidates import Ask, ask_of
from placement.ranking.fragmentation import typical_of
from placement.ranking.reasons import reason_on
from placement.ranking.runtimes import runtime_of
from placement.ranking.strategies import weights_of
from placement.values.advance import AdvanceReservation
from placement.values.decisions import Placement, Reason, Wait
from placement.values.images import KnownImage
from placement.values.model import JobRequest, LimitState, Runtime, Snapshot, TypicalPod
from placement.values.preemption import RunningJob
from placement.values.reason_codes import ReasonCode
from placement.values.sizes import placed_size, size_text
from quotas.engine.borrowing import Chain, left
from quotas.engine.origin import Lenders, Origin

from .estimates import Estimate, at_start, estimate_of
from .expected_starts import later_placements
from .quota_rooms import FlavorRoom, flavor_room

MOST_COUNTED = 10_000
"""The most jobs, over all clusters, that are put in one by one because counting on nodes alone is not enough."""
FEWEST_COUNTED = 20
"""The number that is always tried in one cluster."""
UNLIMITED = 2**62
MOST_RANKS = 16
"""The number of ranks whose cycles are kept."""
_NOT_ABOUT_ROOM = frozenset(("quota_reached", "user_limit_reached", "class_limit_reached", "budget_reached"))

Rank: TypeAlias = tuple[int, str, tuple[TypicalPod, ...], datetime | None]
"""The place in the queue, whose turn it is (empty without fair share), the pods that packing leaves room for, and until
when maintenance windows count."""


class Reached(NamedTuple):
    """A cycle when a job's turn comes: what the jobs ahead of it wait for, and their number."""

    cycle: Cycle
    waits: list[Wait]
    ahead: int


@dataclass(frozen=True, slots=True)
class Offer:
    """One way to run the job: `placement` as the cycle would decide it, best first.

    `expected_start` is the snapshot's time if there is room now, else the time at which room is expected; later by the
    pull of its images. `quota` says whose quota it takes; None if there is no room now. `estimate` is for a run from when there is room that takes
    the median of the quote's `runtime`, at the pace there. `size` says how many of an elastic job's pods it is for.
    """

    placement: Placement
    expected_start: datetime
    estimate: Estimate
    quota: tuple[Origin, ...] | None = None
    size: str = ""

    @property
    def estimated_cost(self) -> Decimal | None:
        """The expected total cost; None if part of it is unknown."""
        return self.estimate.total


@dataclass(frozen=True, slots=True)
class Quote:
    """Offers in the order in which the cycle would take them, and why each other cluster makes none.

    Without offers, `wait` is what the cycle would return. `ahead` is the number of jobs considered before this one.
    `later` has offers of clusters without room now, the earliest first, each with the time at which room is expected.
    `runtime` is the expected run time, None if unknown.
    """

    offers: tuple[Offer, ...]
    why_not: tuple[Reason, ...]
    wait: Wait | None
    ahead: int
    runtime: Runtime | None = None
    later: tuple[Offer, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterRoom:
    """The number of further jobs of a shape that a cluster has room for now; `why_none` if it has none.

    `within_quota` is the most of `count` that quota and budgets allow. `is_at_least`: counting stopped there. `flavors` says
    what quota leaves of each flavor that the shape can use.
    """

    cluster_id: UUID
    cluster: str
    count: int
    within_quota: int
    why_none: Reason | None
    is_at_least: bool = False
    flavors: tuple[FlavorRoom, ...] = ()


@dataclass(frozen=True, slots=True)
class Capacity:
    """The number of further jobs of a shape that fit, and where. `within_quota` is the most of `total` that quota
    and budgets allow.
    """

    total: int
    within_quota: int
    clusters: tuple[ClusterRoom, ...]

    @property
    def is_at_least(self) -> bool:
        """Whether more than `total` may fit."""
        return any(room.is_at_least for room in self.clusters)


class Quoter:
    """Quotes on one snapshot. The jobs ahead are decided once, and the result is reused for the next job at that
    position.

    `depth` is the number of jobs that a cycle considers. Not safe for concurrent use by several threads.
    """

    def __init__(self, snapshot: Snapshot, index: FleetIndex | None = None, *, depth: int | None = None) -> None:
        self._runtimes, self._images = dict(snapshot.runtimes), dict(snapshot.images)
        self.snapshot = replace(snapshot, runtimes=self._runtimes, images=self._images)
        self._index = index or FleetIndex()
        self._clusters = {cluster.id: cluster for cluster in snapshot.clusters}
        self._depth = depth
        self._urgency = [-job.priority for job in snapshot.queue]
        self._policies = PolicyBook(snapshot.policies)
        self._cycles: dict[Rank, Reached] = {}

    def quote(
        self,
        job: JobRequest,
        runtimes: Mapping[str, Runtime] | None = None,
        images: Mapping[str, KnownImage] | None = None,
    ) -> Quote:
        """What the next cycle would do with `job` if it were submitted now, behind all jobs of the same or a higher
        priority.

        `runtimes` are run times of the job's kind, and `images` what is known of its images, in addition to the snapshot's.
        """
        self._runtimes.update(runtimes or {})
        self._images.update({key: known for key, known in (images or {}).items() if key not in self._images})
        place = bisect_right(self._urgency, -job.priority)
        is_fair = self.snapshot.fair_share is not None
        if not is_fair and self._is_too_deep(place):
            return self._behind_all(job, place)
        cycle, waits, ahead = self._cycle(job, place)
        if self._is_too_deep(ahead):
            return self._behind_all(job, ahead)
        placements, why_not, wait = cycle.offers(job)
        if wait is not None:
            wait = cycle.explained(job, wait)
        runtime = runtime_of(job, self._runtimes)
        now = self.snapshot.now
        offers = tuple(
            replace(self._offer(job, placed, now), quota=cycle.origins(job, placed)) for placed in placements
        )
        full = [reason.cluster for reason in why_not if not reason.is_for_good and reason.code not in _NOT_ABOUT_ROOM]
        # no other job gives back what it needs of its reservation
        outside = not job.constraints.reservation
        found = later_placements(cycle, self.snapshot, job, waits, full) if outside else []
        later = tuple(self._offer(job, placed, start.at) for start, placed in found)
        return Quote(offers, why_not, wait, ahead, runtime, later)

    def move(self, job: JobRequest, run: RunningJob, overdrawn: Mapping[UUID, int]) -> Placement | Wait:
        """The place that a running job would get when its turn came if its run had ended, by the trial of preemption; else
        why there is none. `overdrawn` is as in a snapshot.
        """
        cycle, _, ahead = self._cycle(job, bisect_right(self._urgency, -job.priority))
        if self._is_too_deep(ahead):
            found = self._behind_all(job, ahead).wait
            assert found is not None
            return found
        trial = Trial(replace(self.snapshot, overdrawn=overdrawn), cycle, job)
        placed = trial.widest_place([run]) if trial.clusters else None
        if placed is not None:
            return placed
        return cycle.offers(job)[2] or Wait(job.id, ReasonCode.WAITING_FOR_CAPACITY, "no other cluster has room for it")

    def _is_too_deep(self, ahead: int) -> bool:
        return self._depth is not None and ahead >= self._depth

    def _behind_all(self, job: JobRequest, ahead: int) -> Quote:
        message = f"a scheduling round considers only the first {self._depth} jobs of the queue, and all of them are ahead of it"
        return Quote((), (), Wait(job.id, ReasonCode.BEHIND_IN_QUEUE, message), ahead)

    def _offer(self, job: JobRequest, placement: Placement, at: datetime) -> Offer:
        """The offer of a run that starts at `at`."""
        cluster, job = self._clusters[placement.cluster_id], placed_size(job, placement)
        placed = at_start(job, placement, cluster, self.snapshot.egress, at)
        runtime = runtime_of(job, self._runtimes, placed.pace)
        pull = timedelta(seconds=0 if placed.pull is None else placed.pull.seconds)
        return Offer(placed, at + pull, estimate_of(job, placed, cluster, runtime, at), size=size_text(job))

    def _cycle(self, job: JobRequest, place: int) -> Reached:
        """The cycle when the job's turn comes, if it is put in at this place of the queue."""
        queue = (*self.snapshot.queue[:place], job, *self.snapshot.queue[place:])
        is_fair = self.snapshot.fair_share is not None
        considered = queue if is_fair else queue[: place + 1]
        queue = queue if is_fair else queue[: self._depth]
        kinds = {(one.tenant_path, one.strategy) for one in considered}
        packs = any(self._counts_stranding(path, strategy) for path, strategy in kinds)
        until = horizon(queue, self.snapshot.now) if self.snapshot.windows else None
        typical = (self.snapshot.typical_pods or typical_of(queue)) if packs else ()
        rank = (place, job.tenant_path if is_fair else "", typical, until)
        known = self._cycles.get(rank)
        if known is None:
            known = self._reached(job, Cycle(replace(self.snapshot, queue=queue, typical_pods=typical), self._index))
            if len(self._cycles) >= MOST_RANKS:
                del self._cycles[next(iter(self._cycles))]
            self._cycles[rank] = known
        return known

    def _reached(self, job: JobRequest, cycle: Cycle) -> Reached:
        waits, ahead = [], 0
        for other in cycle.turns:
            if other is job:
                break
            outcome = cycle.settle(other)
            ahead += 1
            if isinstance(outcome, Wait):
                waits.append(outcome)
        return Reached(cycle, waits, ahead)

    def _counts_stranding(self, tenant_path: str, strategy: str) -> bool:
        policy = self._policies.of(tenant_path)
        return bool(weights_of(policy.strategy_for(strategy), policy).stranding)


def quote(job: JobRequest, snapshot: Snapshot, index: FleetIndex | None = None) -> Quote:
    """What the next cycle would do with `job` if it were submitted now."""
    return Quoter(snapshot, index).quote(job)


def capacity(job: JobRequest, snapshot: Snapshot, index: FleetIndex | None = None) -> Capacity:
    """The number of further jobs like `job` that the fleet has room for now; the queue is ignored."""
    sight = sight_of(job, snapshot)
    job = seen_through(sight, job, snapshot.now)
    fleet = (index or FleetIndex()).fleet(snapshot.clusters)
    audience = fleet.audience(job.tenant_path)
    ask = ask_of(fleet, job.pod_sets, job.topology, fleet.largest_free)
    policy = PolicyBook(snapshot.policies).of(job.tenant_path)
    usable = np.all((fleet.lawful(audience, job.constraints, policy) & fleet.is_open)[ask.pools], axis=1)
    state = state_seen(fleet, sight, snapshot.now)
    counter = _Counter(ask, state, most=max(FEWEST_COUNTED, MOST_COUNTED // (len(audience.clusters) or 1)))
    books = limit_book(snapshot), BudgetBook(snapshot.budgets, snapshot.now)
    keep_claimed(books[0], snapshot)
    allowance = _Allowance(job, *books, fleet, ask, sight.counted)
    lenders = Lenders(snapshot.limits, books[0])
    rooms = []
    for number in audience.clusters:
        candidates = np.flatnonzero(usable & (fleet.cluster_of_pool[ask.lead] == number)).tolist()
        count, is_at_least = counter.count(candidates) if sight.gate is None else (0, False)
        cluster = fleet.clusters[number]
        within = allowance.most(cluster.name, candidates, count)
        why_none = None
        if not count:
            gated = sight.gate is not None
            why_none = gate_reason(sight, fleet, number) if gated else reason_on(job, number, state, policy)[0]
        flavors = allowance.rooms(cluster.name, candidates, lenders)
        rooms.append(ClusterRoom(cluster.id, cluster.name, count, within, why_none, is_at_least, flavors))
    total, within = sum(room.count for room in rooms), sum(room.within_quota for room in rooms)
    return Capacity(total, min(within, allowance.overall), tuple(rooms))


class _Counter:
    """Counts the jobs that fit in clusters; it puts in at most `most` per cluster one by one."""

    def __init__(self, ask: Ask, state: FleetState, most: int) -> None:
        self.state = state
        self._ask = ask
        self._most = most

    def count(self, candidates: list[int]) -> tuple[int, bool]:
        """The number of jobs that fit on the candidates of one cluster, and whether counting stopped there."""
        found, left = 0, self._most
        for candidate in candidates:
            pools, needs = self._ask.pools[candidate].tolist(), self._ask.needs(candidate)
            if self._is_plain(pools, needs):
                found += int(self.state.pool(pools[0]).room(needs[0]).sum()) // needs[0].count
                continue
            put_in = self._put_in(pools, needs, left)
            found, left = found + put_in, left - put_in
            if not left:
                return found, True
        return found, False

    def _is_plain(self, pools: list[int], needs: tuple[Need, ...]) -> bool:
        """Whether the pods fill nodes on which nothing else is counted, so that the choice of node does not matter."""
        if len(pools) > 1 or self.state.fleet.pools[pools[0]].siblings:
            return False
        return needs[0].count == 1 or self._ask.topology.mode == "preferred" or self._ask.topology.level == "cluster"

    def _put_in(self, pools: list[int], needs: tuple[Need, ...], most: int) -> int:
        """The number of jobs that fit there one after another; they are deducted from the state."""
        for count in range(most):
            sites = self.state.site(pools, needs)
            if sites is None:
                return count
            for pool, need, found in zip(pools, needs, sites, strict=True):
                self.state.take(pool, need, found)
        return most


class _Allowance:
    """The most jobs that the limits and budgets on the tenant's path allow, with the candidates that take least."""

    def __init__(
        self,
        job: JobRequest,
        book: LimitBook,
        budgets: BudgetBook,
        fleet: Fleet,
        ask: Ask,
        counted: tuple[AdvanceReservation, ...],
    ) -> None:
        self.anywhere = 0
        """What the limits that apply to all clusters leave."""
        self._job, self._book, self._budgets, self._fleet, self._ask = job, book, budgets, fleet, ask
        self._counted = counted
        self._most_affordable = 0
        self._amounts: dict[tuple[tuple[str, str], ...], dict[str, int]] = {}

    def most(self, cluster: str, candidates: list[int], room: int) -> int:
        """The number of the `room` jobs fitting on a cluster's candidates that quota and budgets allow to start."""
        best = 0
        if room:
            for amounts in {id(one): one for one in map(self._amounts_of, candidates)}.values():
                times = list(_times(self._book.open_to(self._job, cluster, self._counted), amounts))
                best = max(best, min((count for _, count in times), default=UNLIMITED))
                everywhere = min((count for chain, count in times if not chain[0].limit.clusters), default=UNLIMITED)
                self.anywhere = max(self.anywhere, everywhere)
            affordable = max(map(self._affordable, candidates))
            self._most_affordable = max(self._most_affordable, affordable)
            best = min(best, affordable)
        return min(room, best)

    def rooms(self, cluster: str, candidates: list[int], lenders: Lenders[LimitState]) -> tuple[FlavorRoom, ...]:
        """What quota leaves of each flavor of a cluster's candidates, by name."""
        chains = self._book.open_to(self._job, cluster, self._counted)
        found: dict[str, FlavorRoom] = {}
        for candidate in candidates:
            for pods, pool in zip(self._job.pod_sets, self._ask.pools[candidate].tolist(), strict=True):
                flavor = self._fleet.pools[pool].flavor
                if flavor.name not in found:
                    found[flavor.name] = flavor_room(flavor, chains, lenders, has_gpu=pods.gpu is not None)
        return tuple(found[name] for name in sorted(found))

    @property
    def overall(self) -> int:
        """What the limits and budgets that apply to all clusters leave."""
        return min(self.anywhere, self._most_affordable)

    def _affordable(self, candidate: int) -> int:
        flavors = tuple([self._fleet.pools[pool].flavor for pool in self._ask.pools[candidate].tolist()])
        return self._budgets.times(self._job, flavors)

    def _amounts_of(self, candidate: int) -> dict[str, int]:
        """What the job takes there; the identical object for flavors that count alike."""
        flavors = [self._fleet.pools[pool].flavor for pool in self._ask.pools[candidate].tolist()]
        kinds = tuple((flavor.gpu_model, flavor.sharing) for flavor in flavors)
        if kinds not in self._amounts:
            named = {pods.name: flavor for pods, flavor in zip(self._job.pod_sets, flavors, strict=True)}
            self._amounts[kinds] = amounts_of(self._job, named)
        return self._amounts[kinds]


def _times(lines: Lines, amounts: Mapping[str, int]) -> Iterator[tuple[Chain[LimitState], int]]:
    """How many times each chain of limits allows the amounts."""
    for resource, amount in amounts.items():
        if amount:
            for chain in lines.get(resource, ()):
                yield chain, left(chain) // amount
