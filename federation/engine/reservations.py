"""Keeping room for a job that has waited too long.

A gang needs many nodes free at once; while smaller jobs take every node that comes free, it would wait for ever. Once it
has waited for `Snapshot.patience_seconds`, the nodes that are nearest to holding it are kept from the jobs behind it: in
each cycle those where most is free, so that nodes which have been emptied for it stay the ones chosen.
"""

from dataclasses import dataclass

import numpy as np

from .candidates import Ask
from .fleet import UNITS, WIDTH_OF_LEVEL, Domains, Floats, Ints, Mask
from .ledger import FleetState, PoolState
from .siting import Need, room_for

MOST_AT_ONCE = 4
"""So many jobs at the head of the queue may keep room at the same time; each costs the fleet idle nodes."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """Nodes of one pool that would hold a pod set if they were empty."""

    nodes: list[int]
    missing: float
    """The part of its pods for which there is no room yet."""


def keep_room(ask: Ask, is_allowed: Mask, price: Floats, state: FleetState) -> int | None:
    """Hides the nodes that are nearest to holding the job, and returns the candidate they belong to.

    None if no allowed candidate could hold it even when empty.
    `ask` must be made of what the pools hold when empty; `price` has a term per candidate, the lower the better.
    """
    best: tuple[float, float, int] | None = None
    chosen: list[_Kept] = []
    for candidate in np.flatnonzero(is_allowed).tolist():
        kept = _nearest(ask, candidate, state)
        if kept is None:
            continue
        rank = (sum(one.missing for one in kept), float(price[candidate]), candidate)
        if best is None or rank < best:
            best, chosen = rank, kept
    if best is None:
        return None
    for number, kept_nodes in zip(ask.pools[best[2]].tolist(), chosen, strict=True):
        state.hide(number, kept_nodes.nodes)
    return best[2]


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
    """As few of the members as hold the pods when empty, those with most room now first."""
    order = members[np.lexsort((-state.free[UNITS, members], -now[members]))]
    held = np.cumsum(whole[order])
    if not held.size or held[-1] < need.count:
        return None
    used = order[: int(np.searchsorted(held, need.count)) + 1]
    room = min(need.count, int(np.minimum(now[used], whole[used]).sum()))
    return _Kept([int(node) for node in used if whole[node]], 1 - room / need.count)
