"""Keeping room for a job that has waited too long.

A gang needs many free nodes at the same time. While smaller jobs take every node that comes free, it would wait for
ever. After `Snapshot.patience_seconds`, nodes are kept from the jobs behind it: the nodes that will hold it first if
running jobs end as expected. If that is unknown, they are the nodes with most free now, so that nodes already emptied
for it remain chosen.

Kept nodes are lent to jobs that end before they are needed, by a pessimistic estimate: conservative backfill (Mu'alem
and Feitelson, "Utilization, Predictability, Workloads, and User Runtime Estimates in Scheduling the IBM SP2 with
Backfilling", IEEE TPDS 12(6), 2001). While runs take as long as expected, lending does not delay the job that they are
kept for. If the time at which they are needed is unknown, they are not lent.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from placement.fleet.fleet_state import FleetState, PoolState
from placement.fleet.pools import UNITS, WIDTH_OF_LEVEL, Domains, Ints
from placement.fleet.siting import Need, room_for
from placement.ranking.candidates import Ask
from placement.values.decisions import Start
from placement.values.model import Release

from .timeline import Seeker, Timeline, first_fit

MOST_AT_ONCE = 4
"""The most jobs at the head of the queue that may have room kept at the same time; each costs the fleet idle nodes."""


@dataclass(frozen=True, slots=True)
class Keeping:
    """The nodes of a cluster to keep for a job, by pool, and when they are expected to hold it, if known."""

    cluster: int
    nodes: tuple[tuple[int, tuple[int, ...]], ...]
    start: Start | None


@dataclass(frozen=True, slots=True)
class _Kept:
    """Nodes of one pool that would hold a pod set if they were empty."""

    nodes: list[int]
    missing: float
    """The part of its pods for which there is no room yet."""


def keep_room(seeker: Seeker, state: FleetState, releases: Iterable[Release], now: datetime) -> Keeping | None:
    """The nodes that will hold the job; None if none could hold it even when empty. Deducts nothing.

    The seeker's ask must be based on the pools' capacity when empty.
    """
    timeline = Timeline(state.copy(), releases, now)
    fit = first_fit(timeline, seeker)
    if fit is None:
        return _keep_nearest(seeker, state)
    candidate, sites = fit
    placed = zip(candidate.ask.pools[candidate.number].tolist(), sites, strict=True)
    nodes = tuple((number, tuple(node for node, _ in site.pods)) for number, site in placed)
    return Keeping(candidate.cluster, nodes, timeline.start_of(candidate, sites))


def _keep_nearest(seeker: Seeker, state: FleetState) -> Keeping | None:
    """The nodes that are nearest to holding the job now."""
    best: tuple[float, int] | None = None
    chosen: list[_Kept] = []
    for candidate in seeker.ranked:
        kept = _nearest(seeker.ask, candidate, state)
        if kept is None:
            continue
        missing = sum(one.missing for one in kept)
        if best is None or missing < best[0]:
            best, chosen = (missing, candidate), kept
    if best is None:
        return None
    kept_nodes = zip(seeker.ask.pools[best[1]].tolist(), chosen, strict=True)
    nodes = tuple((number, tuple(one.nodes)) for number, one in kept_nodes)
    return Keeping(int(seeker.cluster_of[best[1]]), nodes, None)


def _nearest(ask: Ask, candidate: int, state: FleetState) -> list[_Kept] | None:
    kept = []
    for number, need in zip(ask.pools[candidate].tolist(), ask.needs(candidate), strict=True):
        found = _nearest_in(state.pool(number), need)
        if found is None:
            return None
        kept.append(found)
    return kept


def _nearest_in(state: PoolState, need: Need) -> _Kept | None:
    """The nodes to keep in one pool: inside one domain if the job must keep to one, in any number of them if not."""
    pool = state.pool
    is_open = pool.is_open_bare if need.is_bare else pool.is_open
    whole = np.where(is_open, room_for(pool.capacity, pool.whole_devices, need), 0)
    whole[[*state.reserved, *state.closed]] = 0
    now = np.minimum(state.room(need), need.count)
    found = [_fullest(members, whole, now, state, need) for members in _areas(state, need)]
    return min((one for one in found if one is not None), key=lambda one: one.missing, default=None)


def _areas(state: PoolState, need: Need) -> list[Ints]:
    """The sets of nodes of which one must hold all pods."""
    everything = np.arange(state.free.shape[1])
    if need.widest == WIDTH_OF_LEVEL["cluster"]:
        return [everything]
    nodes = [everything[n : n + 1] for n in range(len(everything))]
    levels = [domains for domains in state.pool.domains if WIDTH_OF_LEVEL[domains.level] <= need.widest]
    return nodes + [members for domains in levels for members in _members(domains)]


def _members(domains: Domains) -> list[Ints]:
    return [np.flatnonzero(domains.code_of_node == number) for number in range(len(domains.paths))]


def _fullest(members: Ints, whole: Ints, now: Ints, state: PoolState, need: Need) -> _Kept | None:
    """The fewest members that hold the pods when empty, those with most room now first."""
    order = members[np.lexsort((-state.free[UNITS, members], -now[members]))]
    held = np.cumsum(whole[order])
    if not held.size or held[-1] < need.count:
        return None
    used = order[: int(np.searchsorted(held, need.count)) + 1]
    room = min(need.count, int(np.minimum(now[used], whole[used]).sum()))
    return _Kept([int(node) for node in used if whole[node]], 1 - room / need.count)
