"""What would happen to a job, without submitting it: ranked offers, the reasons against the rest, and how many would fit.

A quote is the cycle itself, run up to where the job would stand in the queue: the first offer is what it would get.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from uuid import UUID

import numpy as np

from .amounts import amounts_of
from .candidates import Ask, ask_of
from .cycle import Cycle
from .fleet import Fleet, FleetIndex
from .ledger import FleetState
from .limits import LimitBook
from .model import JobRequest, Placement, Reason, Snapshot
from .reasons import reason_on

SECONDS_PER_HOUR = 3600
MOST_COUNTED = 10_000
"""A count of gangs, and of pods on nodes that several flavors share, stops there."""


@dataclass(frozen=True, slots=True)
class Offer:
    """One way to run the job: `placement` as the cycle would decide it, best first.

    `expected_start` is the snapshot's instant: offers are for what has room now. `estimated_cost` is over the job's own
    estimate of its run time, None without one or without a price.
    """

    placement: Placement
    expected_start: datetime
    estimated_cost: Decimal | None


@dataclass(frozen=True, slots=True)
class Quote:
    """Offers in the order in which the cycle would take them, and why each other cluster makes none."""

    offers: tuple[Offer, ...]
    why_not: tuple[Reason, ...]


@dataclass(frozen=True, slots=True)
class ClusterRoom:
    """How many more jobs of a shape a cluster has room for now; `why_none` if it has none."""

    cluster_id: UUID
    cluster: str
    count: int
    why_none: Reason | None


@dataclass(frozen=True, slots=True)
class Capacity:
    """How many more jobs of a shape fit, and where. `within_quota` is what quota leaves of `total` at most."""

    total: int
    within_quota: int
    clusters: tuple[ClusterRoom, ...]


def quote(job: JobRequest, snapshot: Snapshot, index: FleetIndex | None = None) -> Quote:
    """What the next cycle would do with `job` if it stood at the end of the snapshot's queue."""
    cycle = Cycle(replace(snapshot, queue=(*snapshot.queue, job)), index or FleetIndex())
    for ahead in snapshot.queue:
        cycle.consider(ahead)
    placements, why_not = cycle.offers(job)
    offers = tuple(Offer(placement, snapshot.now, _cost(job, placement)) for placement in placements)
    return Quote(offers, why_not)


def _cost(job: JobRequest, placement: Placement) -> Decimal | None:
    if job.estimated_seconds is None or placement.hourly_cost is None:
        return None
    return placement.hourly_cost * job.estimated_seconds / SECONDS_PER_HOUR


def capacity(job: JobRequest, snapshot: Snapshot, index: FleetIndex | None = None) -> Capacity:
    """How many more jobs like `job` the fleet has room for, as it is: the queue is not looked at."""
    fleet = (index or FleetIndex()).fleet(snapshot.clusters)
    audience = fleet.audience(job.tenant_path)
    ask = ask_of(fleet, job.pod_sets, job.topology, fleet.largest_free)
    usable = np.all((fleet.lawful(audience, job.constraints) & fleet.is_open)[ask.pools], axis=1)
    state = FleetState(fleet)
    rooms = []
    for number in audience.clusters:
        candidates = np.flatnonzero(usable & (fleet.cluster_of_pool[ask.lead] == number)).tolist()
        count = sum(_count(ask, candidate, state) for candidate in candidates)
        cluster = fleet.clusters[number]
        why_none = None if count else reason_on(job, number, state)[0]
        rooms.append(ClusterRoom(cluster.id, cluster.name, count, why_none))
    total = sum(room.count for room in rooms)
    return Capacity(total, min(total, _within_quota(job, snapshot, fleet, ask, total)), tuple(rooms))


def _count(ask: Ask, candidate: int, state: FleetState) -> int:
    """How many jobs fit there one after another; they are taken from the state."""
    pools, needs = ask.pools[candidate].tolist(), ask.needs(candidate)
    if len(pools) == 1 and needs[0].count == 1 and not state.fleet.pools[pools[0]].siblings:
        return int(state.pool(pools[0]).room(needs[0]).sum())
    for count in range(MOST_COUNTED):
        sites = state.site(pools, needs)
        if sites is None:
            return count
        for pool, need, found in zip(pools, needs, sites, strict=True):
            state.take(pool, need, found)
    return MOST_COUNTED


def _within_quota(job: JobRequest, snapshot: Snapshot, fleet: Fleet, ask: Ask, most: int) -> int:
    """The most that any candidate's limits leave room for: what the tenant could have if it chose well."""
    book = LimitBook(snapshot.limits)
    best = 0
    for pools in ask.pools.tolist():
        flavors = {p.name: fleet.pools[pool].flavor for p, pool in zip(job.pod_sets, pools, strict=True)}
        cluster = fleet.pools[pools[0]].cluster.name
        charges = book.charges(job.tenant_path, cluster, amounts_of(job, flavors))
        best = max(best, min((max(0, line.left) // amount for line, amount in charges), default=most))
    return best
