"""Why a job does not run on a cluster: codes for programs, sentences with numbers for users.

The codes are `reason_codes`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from clusters.engine.health import OPEN_STATES
from clusters.engine.resources import amount_text, told
from placement.fleet.amounts import USUAL_VENDOR, is_wanted, portion_of
from placement.fleet.eligibility import ELSEWHERE, NOT_REACHED, OUTSIDE, exclusion, missing_storage, opening, tier_of
from placement.fleet.fleet_state import FleetState, PoolState
from placement.fleet.limits import LimitLine
from placement.fleet.policies import NO_POLICY, Policy
from placement.fleet.pools import BARE, CPU, MEMORY, PART, RESOURCES, UNITS, WIDTH_OF_LEVEL, Ints, Mask, Pool
from placement.fleet.siting import Need, domain_room, need_of
from placement.values.decisions import Reason
from placement.values.gpu_needs import Lack, lack_of
from placement.values.model import FleetCluster, JobRequest, PodSetRequest, Topology
from placement.values.reason_codes import ReasonCode

from .reason_words import asked_of, kind_of, quantity

KEPT_FOR_RESERVATION = ReasonCode.KEPT_FOR_RESERVATION
_STATE_MESSAGES: Mapping[str, str] = {
    ReasonCode.CORDONED: "an administrator has cordoned it: it takes no new jobs",
    ReasonCode.DRAINING: "it is being drained: it takes no new jobs",
    ReasonCode.UNREACHABLE: "it does not answer",
    ReasonCode.AUTH_FAILED: "it refuses the gateway's credential",
}
_NEAREST_FIRST = (
    ReasonCode.RESERVED_FOR_GANG,
    KEPT_FOR_RESERVATION,
    ReasonCode.TOPOLOGY_NOT_MET,
    ReasonCode.FRAGMENTED,
    ReasonCode.NOT_ENOUGH_FREE,
    ReasonCode.TAINTED,
    ReasonCode.NEVER_FITS,
    ReasonCode.NO_SUCH_RESOURCE,
)
REASONS_NAMED = 4
"""Every node may have its own taint; a sentence names the most frequent ones."""
TAINT = "with taint "
"""The prefix of a reason against a node that is a taint."""
_LEFT_OUT: Mapping[str, str] = {
    ReasonCode.REFUSED_BY_CLUSTER: "refused the job's object",
    ReasonCode.LATELY_INTERRUPTED: "interrupted the job",
    ReasonCode.LATELY_FAILED: "could not start the job",
    ReasonCode.AVOIDED_BY_RULE: "failed the job",
    ReasonCode.RETRIES_WAIT: "gets no retries now",
}


@dataclass(frozen=True, slots=True)
class Shortage:
    """What is missing in one pool."""

    code: str
    message: str
    is_for_good: bool = False
    is_about_devices: bool = True
    """True if jobs with the same device request lack the same here, whatever cores and memory they need."""


def reason_on(job: JobRequest, number: int, state: FleetState, policy: Policy = NO_POLICY) -> tuple[Reason, bool]:
    """Why the job is not placed on cluster `number` as `state` is, and whether `is_about_devices` holds for it.

    Call it only when the job is not placed. It ignores quota: see `quota_reason`. A fleet state with `is_empty` gives
    the permanent reasons.
    """
    cluster = state.fleet.clusters[number]
    ruled_out = _ruled_out(job, cluster)
    if ruled_out is not None and ruled_out.code == NOT_REACHED:
        return _opens_later(job, number, state, policy, ruled_out)
    if ruled_out is not None:
        return ruled_out, True
    if fault := policy.cluster_fault(cluster):
        return Reason(cluster.name, ReasonCode.EXCLUDED_BY_POLICY, fault, state.is_empty), True
    if cluster.state not in OPEN_STATES and not state.is_empty:
        message = _STATE_MESSAGES.get(cluster.state, f"it is {cluster.state}")
        if cluster.state == ReasonCode.STALE:
            message = f"it was last observed {cluster.minutes_unseen} min ago, so its free capacity is unknown"
        return Reason(cluster.name, cluster.state, message), True
    for pod_set in job.pod_sets:
        shortage = _shortage(job, pod_set, number, state, policy)
        if shortage is not None:
            is_for_good = shortage.is_for_good or state.is_empty
            return Reason(cluster.name, shortage.code, shortage.message, is_for_good), shortage.is_about_devices
    code = ReasonCode.NEVER_FITS if state.is_empty else ReasonCode.NOT_ENOUGH_FREE
    return Reason(
        cluster.name, code, "has room for each pod set alone, but not for all together", state.is_empty
    ), False


def _opens_later(
    job: JobRequest, number: int, state: FleetState, policy: Policy, not_reached: Reason
) -> tuple[Reason, bool]:
    """The reason that the tier of cluster `number` is not reached, or the reason that remains after it is reached."""
    patient = replace(job, constraints=replace(job.constraints, tiers_reached=None))
    reason, is_about_devices = reason_on(patient, number, state, policy)
    stays = reason.is_for_good or reason.code == ReasonCode.EXCLUDED_BY_POLICY
    return (reason if stays else not_reached), is_about_devices


def quota_reason(cluster: str, line: LimitLine, amount: int) -> Reason:
    """The reason if only quota refuses the job."""
    return Reason(cluster, ReasonCode.QUOTA_REACHED, quota_message(line, amount))


def quota_message(line: LimitLine, amount: int) -> str:
    limit = line.limit
    left, cap, asked = (quantity(limit.resource, number) for number in (max(0, line.left), limit.cap, amount))
    scope = f" on {', '.join(limit.clusters)}" if limit.clusters else ""
    kind, _, model = limit.resource.partition(":")
    of_what = f" of {model or kind}" if model or kind == "memory" else ""
    return f"needs {asked}{of_what}; {limit.tenant_path} has {left} left of its {cap}{scope}"


def nearest_message(reasons: Sequence[Reason]) -> str:
    """The first reason, for all clusters."""
    first = reasons[0]
    return (
        f"{first.cluster}: {first.message}"
        if len(reasons) == 1
        else f"no cluster has room now; {first.cluster}: {first.message}"
    )


def _ruled_out(job: JobRequest, cluster: FleetCluster) -> Reason | None:
    code = exclusion(job.constraints, cluster)
    if code == ReasonCode.REGION_EXCLUDED:
        wanted = ", ".join(job.constraints.regions)
        return Reason(cluster.name, code, f"is in region {cluster.region or 'unknown'}; the job wants {wanted}", True)
    if code == OUTSIDE:
        return Reason(cluster.name, code, ELSEWHERE, True)
    if code in _LEFT_OUT:
        said = next(refusal.message for refusal in job.constraints.refusals if refusal.cluster_id == cluster.id)
        return Reason(cluster.name, code, f"it {_LEFT_OUT[code]} and is skipped for a while: {said}")
    number = tier_of(job.constraints, cluster)
    if code == NOT_REACHED and number is not None:
        return Reason(cluster.name, code, f"opens to the job {opening(job.constraints.overflow[number])}")
    if code:
        return Reason(cluster.name, code, _lacks(job, cluster, code) or "the job's constraints exclude it", True)
    return None


def _lacks(job: JobRequest, cluster: FleetCluster, code: str) -> str:
    """The secret or the storage that the job names and cannot have on the cluster; empty if the code is another."""
    if code == ReasonCode.SECRET_MISSING:
        return f"the job's tenant has no secret {job.constraints.lacks_secret} of the kind that the job uses"
    missing = missing_storage(job.constraints, cluster) if code == ReasonCode.STORAGE_MISSING else None
    if missing is None:
        return ""
    what = "write to" if missing.is_written else "mount"
    return f"has no storage {missing.name} that the job's tenant may {what}"


def _shortage(
    job: JobRequest, pod_set: PodSetRequest, number: int, state: FleetState, policy: Policy
) -> Shortage | None:
    """What is missing for this pod set in the pool that is nearest to having room; None if some pool has room."""
    fleet = state.fleet
    units, parts = fleet.serving(pod_set.gpu)
    pools = [n for n in range(*fleet.first_pool_of_cluster[number : number + 2]) if units[n] >= 0]
    if not pools:
        return _unfit(pod_set, state, number) or _not_served(pod_set, fleet.clusters[number])
    types = job.constraints.capacity_types
    allowed = [n for n in pools if not types or fleet.pools[n].flavor.capacity_type in types]
    if not allowed:
        offered = ", ".join(sorted({fleet.pools[n].flavor.capacity_type for n in pools}))
        message = f"offers {kind_of(pod_set)} only as {offered}; the job wants {', '.join(types)}"
        return Shortage(ReasonCode.CAPACITY_TYPE_EXCLUDED, message, is_for_good=True)
    permitted = [n for n in allowed if not policy.flavor_fault(fleet.pools[n].flavor)]
    if not permitted:
        return Shortage(ReasonCode.EXCLUDED_BY_POLICY, policy.flavor_fault(fleet.pools[allowed[0]].flavor))
    found: list[Shortage] = []
    for n in permitted:
        shortage = None if state.is_empty else _closed(fleet.pools[n], pod_set)
        shortage = shortage or _shortage_in(state, n, pod_set, (int(units[n]), int(parts[n])), job.topology)
        if shortage is None:
            return None
        found.append(shortage)
    nearest = min(found, key=lambda one: _NEAREST_FIRST.index(one.code))
    closed = next((one for one in found if one.code == ReasonCode.TAINTED), nearest)
    return nearest if closed is nearest else replace(nearest, message=f"{nearest.message}; elsewhere {closed.message}")


def _not_served(pod_set: PodSetRequest, cluster: FleetCluster) -> Shortage:
    """Why no flavor of a cluster serves the pod set: it has none of the kind, or no job can be started on them."""
    gpu = pod_set.gpu
    flavors = [cluster.flavors[name] for name in sorted(cluster.flavors)]
    why = next((one.unplaceable for one in flavors if gpu and one.unplaceable and is_wanted(gpu, one)), "")
    if why:
        return Shortage(ReasonCode.NOT_PLACEABLE, f"has {kind_of(pod_set)}, but {why}", is_for_good=True)
    others = sorted({one.vendor for one in flavors if one.gpu_model and one.vendor != USUAL_VENDOR})
    if gpu is None or gpu.models or gpu.vendor or not others:
        return Shortage(ReasonCode.NO_SUCH_MODEL, f"has no {kind_of(pod_set)}", is_for_good=True)
    message = (
        f"has no {kind_of(pod_set)} of {USUAL_VENDOR}; to use those of {', '.join(others)}, name the vendor or model"
    )
    return Shortage(ReasonCode.NO_SUCH_MODEL, message, is_for_good=True)


def _unfit(pod_set: PodSetRequest, state: FleetState, number: int) -> Shortage | None:
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


def _closed(pool: Pool, pod_set: PodSetRequest) -> Shortage | None:
    """The shortage if taints keep these pods off every node that is otherwise usable; else None."""
    is_open, reasons = (pool.is_open_bare, pool.unusable_bare) if pod_set.gpu is None else (pool.is_open, pool.unusable)
    if is_open.any() or not any(reason.startswith(TAINT) for reason in reasons):
        return None
    what = "without a GPU" if pod_set.gpu is None else f"of {asked_of(pod_set)}"
    return Shortage(ReasonCode.TAINTED, f"no node accepts pods {what}: {_told(reasons)}")


def _shortage_in(
    fleet_state: FleetState, number: int, pod_set: PodSetRequest, portion: tuple[int, int], topology: Topology
) -> Shortage | None:
    """What is missing in one pool. A shortage of devices has the same text for every job with the
    same device request.
    """
    units, part = portion
    state, names = fleet_state.pool(number), fleet_state.fleet.resources
    hosts = state.pool.flavor.slice_hosts
    if missing := _missing_resource(state, pod_set, names):
        return missing
    need = need_of(pod_set, portion, topology, hosts, names, fleet_state.fleet.admitted(number, pod_set.gpu))
    if state.hidden and (kept := _kept_for_others(state, need)):
        return kept
    if state.lacks_devices(units, part, pod_set.count):
        key = (pod_set.gpu, pod_set.count)
        note = state.notes.get(key)
        if note is None:
            note = state.notes[key] = _devices_short(state, pod_set, units, part)
        return note
    if state.site(need) is not None:
        return None
    return _too_big_for_every_node(state, pod_set) or _pods_short(
        state, pod_set, need, "slice" if hosts > 1 and need.units else topology.level
    )


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
    """The shortage if there is room only on nodes that are kept for a large job, or reserved; else None."""
    if state.had_hidden(need, reserved=False):
        message = "has room, but keeps it for a larger job that has waited longer"
        return Shortage(ReasonCode.RESERVED_FOR_GANG, message, is_about_devices=False)
    if state.reserved and state.had_hidden(need, reserved=True):
        words = next(iter(state.reserved.values()))
        return Shortage(KEPT_FOR_RESERVATION, f"has room, but it is reserved {words}", is_about_devices=False)
    return None


def _devices_short(state: PoolState, pod_set: PodSetRequest, units: int, part: int) -> Shortage:
    """No node has enough free devices for one pod, or too few nodes have enough for all pods."""
    largest = int(state.pool.largest_capacity[UNITS])
    if largest < units:
        message = f"needs {asked_of(pod_set)} on one node; the largest node has {largest}"
        return Shortage(ReasonCode.NEVER_FITS, message, is_for_good=True)
    code = _code(state, units, pod_set.count)
    free = state.free[PART if part else UNITS]
    node = int(free.argmax()) if free.size else 0
    if free.size and free[node] >= (part or units):
        return Shortage(code, _too_few_places(state, pod_set, state.unit_room(units)))
    block = quantity("gpu", int(free[node])) if part else int(free[node])
    where = f"largest free block is {block} on {state.pool.node_names[node]}" if free[node] else "none is free"
    return Shortage(code, f"needs {asked_of(pod_set)} on one node; {where}{_unusable(state, pod_set)}")


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
        code = _code(state, need.units, need.count)
        return Shortage(code, _too_few_places(state, pod_set, total), is_about_devices=False)
    message = _roomiest_domain(state, room, need, level) + _unusable(state, pod_set)
    return Shortage(ReasonCode.TOPOLOGY_NOT_MET, message, is_about_devices=False)


def _code(state: PoolState, units: int, count: int) -> str:
    return (
        ReasonCode.FRAGMENTED if units and int(state.free[UNITS].sum()) >= units * count else ReasonCode.NOT_ENOUGH_FREE
    )


def _too_big_for_every_node(state: PoolState, pod_set: PodSetRequest) -> Shortage | None:
    largest = state.pool.largest_capacity
    for resource, row, wanted in (("cpu", CPU, pod_set.cpu_millicores), ("memory", MEMORY, pod_set.memory_mib)):
        if largest[row] < wanted:
            most = quantity(resource, int(largest[row]))
            return Shortage(
                ReasonCode.NEVER_FITS, f"needs {quantity(resource, wanted)} on one node; the largest has {most}", True
            )
    return None


def _not_on_one_node(state: PoolState, pod_set: PodSetRequest, need: Need) -> Shortage:
    is_suited = (state.free[UNITS] >= need.units) & (state.free[PART] >= need.part_milli)
    is_suited &= state.free[BARE] >= (1 if need.is_bare else 0)
    if need.admitted is not None:
        is_suited &= need.admitted
    if short := _resource_short(state, pod_set, need, is_suited):
        return short
    cpu, memory = (int(np.where(is_suited, state.free[row], 0).max(initial=0)) for row in (CPU, MEMORY))
    wants = f"{quantity('cpu', pod_set.cpu_millicores)} and {quantity('memory', pod_set.memory_mib)}"
    beside = f" with {asked_of(pod_set)}" if pod_set.gpu is not None else ""
    most = f"{quantity('cpu', cpu)} and {quantity('memory', memory)}"
    message = f"needs {wants}{beside} on one node; at most {most} are free there{_unusable(state, pod_set)}"
    return Shortage(ReasonCode.NOT_ENOUGH_FREE, message, is_about_devices=False)


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
            return Shortage(ReasonCode.NOT_ENOUGH_FREE, f"{message}{closed}", is_about_devices=False)
    return None


def _roomiest_domain(state: PoolState, room: Ints, need: Need, level: str) -> str:
    best, name = int(room.max()), ""
    for domains in state.pool.domains:
        held = domain_room(domains, room)
        if WIDTH_OF_LEVEL[domains.level] <= need.widest and int(held.max(initial=0)) > best:
            best, name = int(held.max()), " " + "/".join(domains.paths[int(held.argmax())])
    return f"needs {need.count} pods inside one {level}; the roomiest{name} has room for {best}"


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
