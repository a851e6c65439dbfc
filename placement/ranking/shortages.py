"""What a pod set lacks in one pool of a cluster, in numbers that a user can check on the pool's nodes."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from clusters.engine.resources import amount_text, told
from placement.fleet.amounts import MILLI, portion_of, shares_per_gpu
from placement.fleet.fleet_state import FleetState, PoolState
from placement.fleet.pools import BARE, CPU, MEMORY, PART, PODS, RESOURCES, UNITS, WIDTH_OF_LEVEL, Ints, Mask, Pool
from placement.fleet.siting import Need, domain_room, need_of
from placement.values.gpu_needs import Lack, lack_of
from placement.values.model import PodSetRequest, Topology
from placement.values.reason_codes import ReasonCode

from .reason_words import asked_of, kind_of, quantity

REASONS_NAMED = 4
"""Every node may have its own taint; a sentence names the most frequent ones."""
TAINT = "with taint "
"""The prefix of a reason against a node that is a taint."""


@dataclass(frozen=True, slots=True)
class Shortage:
    """What is missing in one pool."""

    code: str
    message: str
    is_for_good: bool = False
    is_about_devices: bool = True
    """True if jobs with the same device request lack the same here, whatever cores and memory they need."""
    room: tuple[int, int] = (0, 0)
    """The pods that the pool has room for, and the units that it has on one node: more is nearer to having room."""


def unfit(pod_set: PodSetRequest, state: FleetState, number: int) -> Shortage | None:
    """The shortage if a cluster has such devices, but none that is known to be what the job needs; else None."""
    fleet = state.fleet
    pools = [fleet.pools[n] for n in range(*fleet.first_pool_of_cluster[number : number + 2])]
    lacks = Counter[Lack]()
    for pool in pools:
        if pod_set.gpu is not None and portion_of(pod_set.gpu, pool.flavor) is not None:
            lacks += _lacks_in(pool, pod_set)
    if not lacks:
        return None
    ranked = sorted(lacks.items(), key=lambda item: (-item[1], item[0]))
    named = [f"{lack.message} ({count} node{'s' * (count > 1)})" for lack, count in ranked[:REASONS_NAMED]]
    texts = named if len(ranked) > 1 else [ranked[0][0].message]
    return Shortage(ranked[0][0].code, f"has {kind_of(pod_set)}, but {', '.join(texts)}", is_for_good=True)


def _lacks_in(pool: Pool, pod_set: PodSetRequest) -> Counter[Lack]:
    """The number of nodes of a pool by the first need that their devices do not meet."""
    needs = pod_set.gpu.needs if pod_set.gpu else None
    if needs is None:
        return Counter()
    return Counter(lack for facts in pool.facts if (lack := lack_of(needs, facts)) is not None)


def taint_shortage(pool: Pool, pod_set: PodSetRequest) -> Shortage | None:
    """The shortage if taints keep these pods off every node that is otherwise usable; else None."""
    is_open, reasons = (pool.is_open_bare, pool.unusable_bare) if pod_set.gpu is None else (pool.is_open, pool.unusable)
    if is_open.any() or not any(reason.startswith(TAINT) for reason in reasons):
        return None
    what = "without a GPU" if pod_set.gpu is None else f"of {asked_of(pod_set)}"
    return Shortage(ReasonCode.TAINTED, f"no node accepts pods {what}: {_told(reasons)}")


def shortage_in(
    fleet_state: FleetState, number: int, pod_set: PodSetRequest, portion: tuple[int, int], topology: Topology
) -> Shortage | None:
    """What is missing in one pool. A shortage of devices has the same text for every job with the
    same device request.
    """
    state, names = fleet_state.pool(number), fleet_state.fleet.resources
    hosts = state.pool.flavor.slice_hosts
    if missing := _missing_resource(state, pod_set, names):
        return missing
    need = need_of(pod_set, portion, topology, hosts, names, fleet_state.fleet.admitted(number, pod_set.gpu))
    if state.hidden and (kept := _kept_for_others(state, need)):
        return kept
    if _lacks_devices(state, need):
        key = (pod_set.gpu, pod_set.count)
        note = state.notes.get(key)
        if note is None:
            note = state.notes[key] = _devices_short(state, pod_set, need)
        return note
    if state.site(need) is not None:
        return None
    return _too_big_for_every_node(state, pod_set) or _pods_short(
        state, pod_set, need, "slice" if hosts > 1 and need.units else topology.level
    )


def _lacks_devices(state: PoolState, need: Need) -> bool:
    """Whether there are too few free devices for all pods, whatever else they need."""
    if need.is_bare:
        return False
    # bounds are quick, but lag behind
    return state.lacks_devices(need.units, need.part_milli, need.count) or _device_room(state, need) < need.count


def _device_room(state: PoolState, need: Need) -> int:
    """The number of pods that there are free devices for."""
    if need.part_milli and state.devices is not None:
        return int(_suited((state.devices // need.part_milli).sum(axis=0), need).sum())
    if need.admitted is None:
        return state.unit_room(need.units)
    return int((_suited(state.free[UNITS], need) // need.units).sum())


def _suited(amounts: Ints, need: Need) -> Ints:
    """The amounts of the nodes whose devices are what the job needs; 0 on the others."""
    return amounts if need.admitted is None else np.where(need.admitted, amounts, 0)


def _missing_resource(state: PoolState, pod_set: PodSetRequest, names: Sequence[str]) -> Shortage | None:
    """The shortage if no node of the pool has enough of some other resource even when empty; else None."""
    for name, amount in pod_set.resources:
        most = int(state.pool.largest_capacity[len(RESOURCES) + names.index(name)]) if name in names else 0
        if not most:
            return Shortage(
                ReasonCode.NO_SUCH_RESOURCE, f"no node has {name}", is_for_good=True, is_about_devices=False
            )
        if most < amount:
            message = f"needs {told([(name, amount)])} on one node; the largest has {amount_text(name, most)}"
            return Shortage(ReasonCode.NEVER_FITS, message, is_for_good=True, is_about_devices=False)
    return None


def _kept_for_others(state: PoolState, need: Need) -> Shortage | None:
    """The shortage if there is room only on nodes that are kept for a large job, reserved, or in maintenance; else None."""
    if state.had_hidden(need, reserved=False):
        message = "has room, but keeps it for a larger job that has waited longer"
        return Shortage(ReasonCode.RESERVED_FOR_GANG, message, is_about_devices=False)
    if state.reserved and state.had_hidden(need, reserved=True):
        why = state.why_reserved(need)
        return Shortage(why.code, why.message, is_about_devices=False)
    return None


def _devices_short(state: PoolState, pod_set: PodSetRequest, need: Need) -> Shortage:
    """No node has enough free devices for one pod, or too few nodes have enough for all pods."""
    largest = int(_suited(state.pool.capacity[UNITS], need).max(initial=0))
    if largest < need.units:
        has = _block(state, pod_set, largest)
        message = f"needs {asked_of(pod_set)} on one node; the largest node has {has}"
        return Shortage(ReasonCode.NEVER_FITS, message, is_for_good=True, room=(0, largest))
    code = _code(state, need)
    free = _suited(state.free[PART if need.part_milli else UNITS], need)
    block = int(free.max(initial=0))
    if block >= (need.part_milli or need.units):
        room = _device_room(state, need)
        return Shortage(code, _too_few_places(state, pod_set, room), room=(room, 0))
    where = "none is free"
    if block:
        where = f"largest free block is {_block(state, pod_set, block)} on {state.pool.node_names[int(free.argmax())]}"
    message = f"needs {asked_of(pod_set)} on one node; {where}{_unusable(state, pod_set)}"
    return Shortage(code, message, room=(0, block))


def _block(state: PoolState, pod_set: PodSetRequest, free: int) -> str:
    """An amount in the terms of the request: units, or for a part of a GPU the part that is free."""
    if pod_set.gpu is None or not pod_set.gpu.fraction_milli:
        return str(free)
    shares = shares_per_gpu(state.pool.flavor)
    return quantity("gpu", free * MILLI // shares if shares else free)


def _too_few_places(state: PoolState, pod_set: PodSetRequest, room: int) -> str:
    closed = _unusable(state, pod_set)
    return f"needs {pod_set.count} pods of {asked_of(pod_set)} at the same time; there is room for {room}{closed}"


def _pods_short(state: PoolState, pod_set: PodSetRequest, need: Need, level: str) -> Shortage:
    """There are enough devices, but not enough cores and memory with them for all pods, or not in one domain."""
    room = state.room(need)
    total = int(room.sum())
    if not total:
        return _not_on_one_node(state, pod_set, need)
    if total < need.count:
        message = _too_few_places(state, pod_set, total)
        return Shortage(_code(state, need), message, is_about_devices=False, room=(total, 0))
    most, name = _roomiest_domain(state, room, need)
    message = f"needs {need.count} pods inside one {level}; the roomiest{name} has room for {most}"
    message += _unusable(state, pod_set)
    return Shortage(ReasonCode.TOPOLOGY_NOT_MET, message, is_about_devices=False, room=(most, 0))


def _code(state: PoolState, need: Need) -> str:
    free = int(_suited(state.free[UNITS], need).sum())
    return ReasonCode.FRAGMENTED if need.units and free >= need.units * need.count else ReasonCode.NOT_ENOUGH_FREE


def _too_big_for_every_node(state: PoolState, pod_set: PodSetRequest) -> Shortage | None:
    largest = state.pool.largest_capacity
    for resource, row, wanted in (("cpu", CPU, pod_set.cpu_millicores), ("memory", MEMORY, pod_set.memory_mib)):
        if largest[row] < wanted:
            most = quantity(resource, int(largest[row]))
            message = f"needs {quantity(resource, wanted)} on one node; the largest has {most}"
            return Shortage(ReasonCode.NEVER_FITS, message, is_for_good=True, is_about_devices=False)
    return None


def _not_on_one_node(state: PoolState, pod_set: PodSetRequest, need: Need) -> Shortage:
    is_suited = (state.free[UNITS] >= need.units) & (state.free[PART] >= need.part_milli)
    is_suited &= state.free[BARE] >= (1 if need.is_bare else 0)
    if need.admitted is not None:
        is_suited &= need.admitted
    if short := _resource_short(state, pod_set, need, is_suited):
        return short
    wants = f"{quantity('cpu', pod_set.cpu_millicores)} and {quantity('memory', pod_set.memory_mib)}"
    beside = f" with {asked_of(pod_set)}" if pod_set.gpu is not None else ""
    lack = _cores_memory_or_pods_short(state, pod_set, is_suited)
    message = f"needs {wants}{beside} on one node; {lack}{_unusable(state, pod_set)}"
    return Shortage(ReasonCode.NOT_ENOUGH_FREE, message, is_about_devices=False, room=(0, need.units))


def _cores_memory_or_pods_short(state: PoolState, pod_set: PodSetRequest, is_suited: Mask) -> str:
    """Which of them no suited node has enough of, or not together with the others."""
    has_cpu = is_suited & (state.free[CPU] >= pod_set.cpu_millicores)
    has_memory = is_suited & (state.free[MEMORY] >= pod_set.memory_mib)
    if full := int(np.count_nonzero(has_cpu & has_memory & (state.free[PODS] < 1))):
        nodes = "the one node" if full == 1 else f"the {full} nodes"
        return f"{nodes} with that much free {'has' if full == 1 else 'have'} no room for another pod"
    cpu, memory = (int(np.where(is_suited, state.free[row], 0).max(initial=0)) for row in (CPU, MEMORY))
    most = f"{quantity('cpu', cpu)} and {quantity('memory', memory)}"
    if has_cpu.any() and has_memory.any():
        return f"at most {most} are free there, but not on the same node"
    return f"at most {most} are free there"


def _resource_short(state: PoolState, pod_set: PodSetRequest, need: Need, is_suited: Mask) -> Shortage | None:
    """The shortage if none of the suited nodes has enough free of some other resource; else None."""
    beside = f" with {asked_of(pod_set)}" if pod_set.gpu is not None else ""
    for (name, amount), (row, _) in zip(pod_set.resources, need.others, strict=True):
        most = int(np.where(is_suited, state.free[row], 0).max(initial=0))
        if most < amount:
            message = (
                f"needs {told([(name, amount)])}{beside} on one node; at most {amount_text(name, most)} is free there"
            )
            closed = _unusable(state, pod_set)
            message = f"{message}{closed}"
            return Shortage(ReasonCode.NOT_ENOUGH_FREE, message, is_about_devices=False, room=(0, need.units))
    return None


def _roomiest_domain(state: PoolState, room: Ints, need: Need) -> tuple[int, str]:
    """The number of pods that the domain with most room holds, and its name after a space; a node has none."""
    best, name = int(room.max()), ""
    for domains in state.pool.domains:
        held = domain_room(domains, room)
        if WIDTH_OF_LEVEL[domains.level] <= need.widest and int(held.max(initial=0)) > best:
            best, name = int(held.max()), " " + "/".join(domains.paths[int(held.argmax())])
    return best, name


def _unusable(state: PoolState, pod_set: PodSetRequest) -> str:
    reasons = dict(state.pool.unusable_bare if pod_set.gpu is None else state.pool.unusable)
    reasons |= {f"because {lack.message}": count for lack, count in _lacks_in(state.pool, pod_set).items()}
    return f"; nodes that cannot be used: {_told(reasons)}" if reasons else ""


def _told(reasons: Mapping[str, int]) -> str:
    """Reasons against nodes with the number of nodes, the most frequent first."""
    ranked = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    named = ", ".join(f"{count} {reason}" for reason, count in ranked[:REASONS_NAMED])
    others = sum(count for _, count in ranked[REASONS_NAMED:])
    return f"{named}, {others} for other reasons" if others else named
