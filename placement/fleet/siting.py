"""Where in one pool the pods of one set go: the smallest domain that holds them all, then as few nodes as possible.

A pod set keeps to one domain if its topology requires it. Among domains of the same level, the fullest that holds the
set is chosen, so that large free domains stay whole for large gangs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from placement.values.model import PodSetRequest, Topology

from .pools import BARE, CPU, MEMORY, PART, PODS, RESOURCES, UNITS, WHOLE, WIDTH_OF_LEVEL, Domains, Ints, Mask, Pool

Pods: TypeAlias = list[tuple[int, int]]
"""(position of a node in its pool, pods there)."""

TIGHTNESS_OF_A_UNIT = 2**31
"""More than the millicores of any node, so that a node with fewer free devices is always the tighter one."""
NOT_A_CHOICE = np.iinfo(np.int64).max
_LAST = np.array(NOT_A_CHOICE)
"""The same as an array, because numpy is faster with an array than with a number."""
PERCENT = 100


@dataclass(frozen=True, slots=True)
class Need:
    """What each of `count` equal pods needs of one pool: units, a part of one more, cores and memory."""

    units: int
    part_milli: int
    cpu_millicores: int
    memory_mib: int
    count: int
    widest: int
    """The widest level allowed, as in WIDTH_OF_LEVEL."""
    per_pod: Ints
    """The amounts as a column, in the order of a pool's rows."""
    rows: slice | list[int]
    """The resources that it needs, without parts of devices."""
    checked: slice | list[int]
    """The resources that it needs."""
    others: tuple[tuple[int, int], ...] = ()
    """The row and the amount of each other resource that it needs."""
    admitted: Mask | None = None
    """Per node of the pool whether its devices are what the pods need; None if they need nothing."""

    @property
    def is_bare(self) -> bool:
        """True if its pods use no device, so that they tolerate no taint that marks nodes with devices."""
        return not self.units and not self.part_milli


class Site(NamedTuple):
    """The nodes chosen for a pod set, and the smallest domain around them."""

    pods: Pods
    level: str
    path: tuple[str, ...]

    def named(self, names: Sequence[str]) -> dict[str, int]:
        """The number of pods on each node, by its name."""
        return {names[node]: pods for node, pods in self.pods}


def within_slice(topology: Topology, slice_hosts: int) -> Topology:
    """The topology of pods on an accelerator of `slice_hosts` hosts: they keep to it, even if the job allows a wider
    domain.
    """
    is_narrow = topology.mode == "required" and WIDTH_OF_LEVEL[topology.level] <= WIDTH_OF_LEVEL["clique"]
    return topology if slice_hosts <= 1 or is_narrow else Topology("clique", "required")


def need_of(
    pod_set: PodSetRequest,
    portion: tuple[int, int],
    topology: Topology,
    slice_hosts: int = 1,
    resources: Sequence[str] = (),
    admitted: Mask | None = None,
) -> Need:
    """What `pod_set` needs in a pool whose flavor serves each pod with `portion`: units and thousandths.

    `resources` are those of the pool's further rows, among which are all that the pods need; `admitted` as in `Need`.
    """
    units, part = portion
    kept = within_slice(topology, slice_hosts if units else 1)
    bare = 0 if units or part else 1
    amounts = [units, pod_set.cpu_millicores, pod_set.memory_mib, 1, bare, part, *(0 for _ in resources)]
    others = tuple((len(RESOURCES) + resources.index(name), amount) for name, amount in pod_set.resources)
    for row, amount in others:
        amounts[row] = amount
    rows = [row for row in (UNITS, CPU, MEMORY, PODS, BARE) if amounts[row]] + [row for row, _ in others]
    return Need(
        units=units,
        part_milli=part,
        cpu_millicores=pod_set.cpu_millicores,
        memory_mib=pod_set.memory_mib,
        count=pod_set.count,
        widest=WIDTH_OF_LEVEL[kept.level if kept.mode == "required" else "cluster"],
        per_pod=np.array(amounts, dtype=np.int64)[:, None],
        rows=_as_slice(rows),
        checked=_as_slice([*rows, PART] if part else rows),
        others=others,
        admitted=admitted,
    )


def _as_slice(rows: list[int]) -> slice | list[int]:
    """Adjacent rows as a slice, which numpy reads without a copy."""
    return slice(rows[0], rows[-1] + 1) if rows == list(range(rows[0], rows[-1] + 1)) else rows


def has_room(free: Ints, need: Need, nodes: Ints | None = None) -> Mask:
    """Per node whether it has room for one pod. `nodes` are the positions of the columns if these are not all nodes."""
    mask: Mask = np.logical_and.reduce(free[need.checked] >= need.per_pod[need.checked])
    if need.admitted is not None:
        mask &= need.admitted if nodes is None else need.admitted[nodes]
    return mask


def room_for(free: Ints, devices: Ints | None, need: Need, nodes: Ints | None = None) -> Ints:
    """The number of pods of this kind that each node has room for; `nodes` as in `has_room`."""
    room: Ints = (free[need.rows] // need.per_pod[need.rows]).min(axis=0)
    if need.part_milli and devices is not None:
        room = np.minimum(room, (devices // need.part_milli).sum(axis=0))
    if need.admitted is not None:
        room = np.where(need.admitted if nodes is None else need.admitted[nodes], room, 0)
    return room


def tightness(free: Ints, devices: Ints | None) -> Ints:
    """The order in which hinted nodes are filled: fewest free devices first, then fewest free cores."""
    idle = free[UNITS] * WHOLE if devices is None else devices.sum(axis=0)
    order: Ints = idle * TIGHTNESS_OF_A_UNIT + free[CPU]
    return order


def spread_order(capacity: Ints, free: Ints, need: Need) -> Ints:
    """The order in which kube-scheduler's LeastAllocated fills nodes: most CPU and memory left (in percent) first."""
    rows = [CPU, MEMORY]
    left = (free[rows] - need.per_pod[rows]) * PERCENT // np.maximum(capacity[rows], 1)
    order: Ints = -(left.sum(axis=0) // 2)
    return order


def site_one(pool: Pool, free: Ints, order: Ints, need: Need) -> Site | None:
    """The place of a single pod: the first node with room by `order`, then by position."""
    if not order.size:
        return None
    node = None
    if need.units:  # then it uses no part of a device
        # a node with the devices nearly always has the rest too: then one comparison is enough
        node = _first(np.where(free[UNITS] >= need.per_pod[UNITS], order, _LAST))
        if node is None:
            return None
    if node is None or not _has_the_rest(free, node, need):
        node = _first(np.where(has_room(free, need), order, _LAST))
    return None if node is None else _on_node(pool, node, 1)


def _has_the_rest(free: Ints, node: int, need: Need) -> bool:
    """Whether a node with enough free units also has the cores, the memory, the other resources and the pod slot for one
    pod, and the devices that it needs.
    """
    if need.admitted is not None and not need.admitted[node]:
        return False
    has_both = free[CPU, node] >= need.cpu_millicores and free[MEMORY, node] >= need.memory_mib
    has_others = not need.others or all(free[row, node] >= amount for row, amount in need.others)
    return bool(has_both and has_others and free[PODS, node])


def site_gang(pool: Pool, room: Ints, order: Ints, need: Need) -> Site | None:
    """The places of several pods together, given the room on each node; None if they do not fit."""
    if int(room.sum()) < need.count:
        return None
    node = _first(np.where(room >= need.count, order, NOT_A_CHOICE))
    if node is not None:
        return _on_node(pool, node, need.count)
    return _site_of_many(pool, room, need)


def _first(order: Ints) -> int | None:
    best = int(order.argmin())
    return None if order[best] == NOT_A_CHOICE else best


def _on_node(pool: Pool, node: int, count: int) -> Site:
    return Site([(node, count)], "node", (*pool.node_domains[node], pool.node_names[node]))


def _site_of_many(pool: Pool, room: Ints, need: Need) -> Site | None:
    narrower: list[Domains] = []
    for domains in pool.domains:
        if WIDTH_OF_LEVEL[domains.level] > need.widest:
            break
        held = domain_room(domains, room)
        domain = _first(np.where(held >= need.count, held, NOT_A_CHOICE))
        if domain is not None:
            members = np.flatnonzero(domains.code_of_node == domain)
            return Site(_fill(room, members, need.count, narrower), domains.level, domains.paths[domain])
        narrower.append(domains)
    if need.widest < WIDTH_OF_LEVEL["cluster"]:
        return None
    return Site(_fill(room, np.arange(room.size), need.count, narrower), "cluster", ())


def domain_room(domains: Domains, room: Ints) -> Ints:
    """The number of pods that each domain has room for."""
    held = np.bincount(domains.code_of_node + 1, weights=room)  # each domain is that of some node
    return held[1:].astype(np.int64)


def _fill(room: Ints, members: Ints, count: int, levels: Sequence[Domains]) -> Pods:
    """`count` pods on `members`, in the fewest domains of the widest given level, then likewise at each
    narrower level.
    """
    if not levels:
        shares = in_fewest(room[members], count)
        return [(int(members[position]), pods) for position, pods in shares]
    *inner, outer = levels
    codes = outer.code_of_node[members] + 1
    held = np.bincount(codes, weights=room[members], minlength=len(outer.paths) + 1).astype(np.int64)
    placed: Pods = []
    for code, pods in in_fewest(held, count):
        placed += _fill(room, members[codes == code], pods, inner)
    return placed


def in_fewest(room: Ints, count: int) -> Pods:
    """`count` split over the fewest places: the roomiest first, the rest where it fits most tightly."""
    order = np.argsort(-room, kind="stable")
    filled = np.cumsum(room[order])
    whole = int(np.searchsorted(filled, count))
    rest = count - (int(filled[whole - 1]) if whole else 0)
    tail = order[whole:]
    last = int(tail[np.where(room[tail] >= rest, room[tail], NOT_A_CHOICE).argmin()])
    shares = [(int(place), int(room[place])) for place in order[:whole].tolist()]
    return sorted([*shares, (last, rest)])
