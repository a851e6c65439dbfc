"""Chooses the nodes of an advance reservation: the fewest that hold the request, on one cluster, all of them free in
time.

The caller passes the clusters as they are without our jobs. It marks every node that is not free in time as unusable,
with the reason. Copies of the shape are put on the nodes one after the other, as jobs would be. The nodes they land on
are reserved. A gang that fits on one node is not split, so they may land on more nodes than they need. Then the copies are put only on the
roomiest nodes that could hold them, and those are reserved if they hold them all.

For jobs of one pod set without a required topology they always do: each pod takes one place of its node, and a gang is split
where no node holds it, so only the number of places counts.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from placement.cycle.timeline import Candidate, Seeker, take
from placement.fleet.amounts import amounts_of
from placement.fleet.fleet import FleetIndex
from placement.fleet.fleet_state import FleetState
from placement.fleet.policies import NO_POLICY, Policy
from placement.fleet.siting import Site, in_fewest
from placement.ranking.contest import Viewpoint
from placement.ranking.reasons import reason_on
from placement.ranking.strategies import weights_of
from placement.values.decisions import Reason
from placement.values.model import FleetCluster, JobRequest

MOST_NODES = 500
"""The most nodes of a reservation: their names go into every object that must avoid them."""


@dataclass(frozen=True, slots=True)
class Booking:
    """The reserved nodes, by name, and the quota of all jobs together, by resource in base units."""

    cluster_id: UUID
    cluster: str
    nodes: tuple[str, ...]
    amounts: Mapping[str, int]


def book(
    shape: JobRequest, copies: int, clusters: Sequence[FleetCluster], policy: Policy = NO_POLICY
) -> Booking | tuple[Reason, ...]:
    """The nodes for all jobs of the shape at the same time, on the cheapest cluster that holds them; else why none
    does.

    `policy` is the tenant's effective policy. Of clusters that cost the same, the first by id is chosen.
    """
    fleet = FleetIndex().fleet(clusters)
    audience = fleet.audience(shape.tenant_path)
    viewpoint = Viewpoint(audience, policy, weights_of("cheapest", policy), None)
    seeker = Seeker(shape, fleet, viewpoint)
    failed: dict[int, Reason] = {}
    for number in dict.fromkeys(int(seeker.cluster_of[candidate]) for candidate in seeker.ranked):
        state = FleetState(fleet)
        used = _put_in(seeker, state, number, copies)
        if used.copies == copies:
            used = _fewer(seeker, number, copies, used.nodes) or used
        nodes, held, cluster = used.nodes, used.copies, fleet.clusters[number]
        if held == copies and len(nodes) <= MOST_NODES:
            return Booking(cluster.id, cluster.name, tuple(sorted(nodes)), dict(used.amounts))
        failed[number] = _too_large(cluster.name, len(nodes))
        if held < copies:
            reason, _ = reason_on(shape, number, state, policy)
            failed[number] = reason._replace(message=f"has room for {held} of {copies}; for the next: {reason.message}")
    empty = FleetState(fleet)
    return tuple(failed.get(number) or reason_on(shape, number, empty, policy)[0] for number in audience.clusters)


class _Used(NamedTuple):
    """The copies that fit on a cluster: their number, nodes, and quota."""

    copies: int
    nodes: set[str]
    amounts: Counter[str]


def _put_in(seeker: Seeker, state: FleetState, cluster: int, copies: int) -> _Used:
    nodes: set[str] = set()
    amounts: Counter[str] = Counter()
    here = frozenset([cluster])
    for held in range(copies):
        fit = seeker.fit(state, here)
        if fit is None:
            return _Used(held, nodes, amounts)
        take(state, *fit)
        nodes |= _names(*fit, state=state)
        amounts.update(_amounts(seeker, fit[0], state))
    return _Used(copies, nodes, amounts)


def _amounts(seeker: Seeker, candidate: Candidate, state: FleetState) -> dict[str, int]:
    """The quota that one copy takes there."""
    pools = candidate.ask.pools[candidate.number].tolist()
    flavors = (state.fleet.pools[pool].flavor for pool in pools)
    return amounts_of(seeker.job, dict(zip((pods.name for pods in seeker.job.pod_sets), flavors, strict=True)))


def _fewer(seeker: Seeker, cluster: int, copies: int, than: set[str]) -> _Used | None:
    """Fewer nodes of a cluster that hold all copies of a job of one pod set, if there are such; else None."""
    if len(seeker.ask.pod_sets) > 1:
        return None
    state = FleetState(seeker.fleet)
    chosen = _roomiest(seeker, state, cluster, copies)
    if len(chosen) >= len(than):
        return None
    for number in range(*seeker.fleet.first_pool_of_cluster[cluster : cluster + 2]):
        names = seeker.fleet.pools[number].node_names
        state.close(number, [node for node, name in enumerate(names) if name not in chosen])
    used = _put_in(seeker, state, cluster, copies)
    return used if used.copies == copies else None


def _roomiest(seeker: Seeker, state: FleetState, cluster: int, copies: int) -> set[str]:
    """The fewest nodes of a cluster with places for all copies, those of the cheapest pool first."""
    chosen: set[str] = set()
    left = copies
    for candidate in seeker.ranked:
        if not left or seeker.cluster_of[candidate] != cluster:
            continue
        (number,), (need,) = seeker.ask.pools[candidate].tolist(), seeker.ask.needs(candidate)
        room = state.pool(number).room(need)
        held = min(left, int(room.sum()) // need.count)
        if held:
            chosen |= {state.fleet.pools[number].node_names[node] for node, _ in in_fewest(room, held * need.count)}
        left -= held
    return chosen


def _names(candidate: Candidate, sites: Sequence[Site], *, state: FleetState) -> set[str]:
    pools = candidate.ask.pools[candidate.number].tolist()
    return {
        state.fleet.pools[pool].node_names[node]
        for pool, site in zip(pools, sites, strict=True)
        for node, _ in site.pods
    }


def _too_large(cluster: str, nodes: int) -> Reason:
    return Reason(cluster, "too_many_nodes", f"would need {nodes} nodes; a reservation can have {MOST_NODES}", True)
