"""Why a job does not run on a cluster: codes for programs, sentences with numbers for users.

The codes are `reason_codes`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from clusters.engine.health import OPEN_STATES
from placement.fleet.amounts import USUAL_VENDOR, is_wanted
from placement.fleet.budgets import Unaffordable, budget_message
from placement.fleet.eligibility import (
    ELSEWHERE,
    NOT_REACHED,
    OUTSIDE,
    exclusion,
    image_on,
    missing_network,
    missing_storage,
    opening,
    tier_of,
)
from placement.fleet.fleet_state import FleetState
from placement.fleet.limits import Refusal
from placement.fleet.policies import NO_POLICY, Policy
from placement.fleet.pools import Pool
from placement.values.decisions import Closure, Reason
from placement.values.model import FleetCluster, JobRequest, PodSetRequest
from placement.values.quantities import memory_text
from placement.values.reason_codes import ReasonCode
from placement.values.storages import StorageNeed

from .reason_words import kind_of, quantity
from .shortages import Shortage, shortage_in, taint_shortage, unfit

KEPT_FOR_RESERVATION = ReasonCode.KEPT_FOR_RESERVATION
_STATE_MESSAGES: Mapping[str, str] = {
    ReasonCode.CORDONED: "an administrator has cordoned it: it takes no new jobs",
    ReasonCode.DRAINING: "it is being drained: it takes no new jobs",
    ReasonCode.UNREACHABLE: "it does not answer",
    ReasonCode.AUTH_FAILED: "it refuses the gateway's credential",
}
_NEAREST_FIRST = (
    ReasonCode.RESERVED_FOR_GANG,
    ReasonCode.KEPT_FOR_URGENT,
    KEPT_FOR_RESERVATION,
    ReasonCode.MAINTENANCE,
    ReasonCode.TOPOLOGY_NOT_MET,
    ReasonCode.NOT_ENOUGH_FREE,
    ReasonCode.TAINTED,
    ReasonCode.NEVER_FITS,
    ReasonCode.NO_SUCH_RESOURCE,
)
_WITHOUT_FIGURES = frozenset(
    {ReasonCode.RESERVED_FOR_GANG, ReasonCode.KEPT_FOR_URGENT, KEPT_FOR_RESERVATION, ReasonCode.MAINTENANCE}
)
_LEFT_OUT: Mapping[str, str] = {
    ReasonCode.REFUSED_BY_CLUSTER: "refused the job's object",
    ReasonCode.LATELY_INTERRUPTED: "interrupted the job",
    ReasonCode.LATELY_FAILED: "could not start the job",
    ReasonCode.AVOIDED_BY_RULE: "failed the job",
    ReasonCode.RETRIES_WAIT: "gets no retries now",
}
MOVED = frozenset({ReasonCode.MOVED_AWAY, ReasonCode.MOVED_ELSEWHERE})
"""Of clusters that a job avoids for a while because it was moved."""


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
    closure = state.closures.get(number)
    for pod_set in job.pod_sets:
        shortage = _shortage(job, pod_set, number, state, policy)
        if shortage is not None and (closure is None or shortage.is_for_good):
            is_for_good = shortage.is_for_good or state.is_empty
            return Reason(cluster.name, shortage.code, shortage.message, is_for_good), shortage.is_about_devices
    if closure is None:
        code = ReasonCode.NEVER_FITS if state.is_empty else ReasonCode.NOT_ENOUGH_FREE
        closure = Closure(code, "has room for each pod set alone, but not for all together")
    return Reason(cluster.name, *closure, is_for_good=state.is_empty), False


def _opens_later(
    job: JobRequest, number: int, state: FleetState, policy: Policy, not_reached: Reason
) -> tuple[Reason, bool]:
    """The reason that the tier of cluster `number` is not reached, or the reason that remains after it is reached."""
    patient = replace(job, constraints=replace(job.constraints, tiers_reached=None))
    reason, is_about_devices = reason_on(patient, number, state, policy)
    stays = reason.is_for_good or reason.code == ReasonCode.EXCLUDED_BY_POLICY
    return (reason if stays else not_reached), is_about_devices


def quota_reason(cluster: str, refusal: Refusal) -> Reason:
    """The reason if only quota refuses the job."""
    limit, code = refusal.line.limit, ReasonCode.QUOTA_REACHED
    if limit.class_name:
        code = ReasonCode.CLASS_LIMIT_REACHED
    elif limit.user is not None:
        code = ReasonCode.USER_LIMIT_REACHED
    return Reason(cluster, code, quota_message(refusal))


def budget_reason(cluster: str, refusal: Unaffordable) -> Reason:
    """The reason if only a budget refuses the job."""
    return Reason(cluster, ReasonCode.BUDGET_REACHED, budget_message(*refusal))


def quota_message(refusal: Refusal) -> str:
    limit, held = refusal.line.limit, refusal.line.held
    amounts = (max(0, limit.cap - held), limit.cap, refusal.rise)
    left, cap, asked = (quantity(limit.resource, number) for number in amounts)
    if refusal.rise < refusal.asked:
        asked = f"{asked} more than is guaranteed"
    scope = f" on {', '.join(limit.clusters)}" if limit.clusters else ""
    kind, _, model = limit.resource.partition(":")
    of_what = f" of {model or kind}" if model or kind == "memory" else ""
    if limit.class_name:
        place = f" in {limit.tenant_path}" if limit.tenant_path else ""
        most = f"all jobs of the priority class {limit.class_name}{place} together may hold {cap}"
        if place:
            most = f"{most} and hold {quantity(limit.resource, held)}"
        return f"needs {asked}{of_what}; {most}, {left} left"
    if limit.user is not None:
        each = quantity(limit.resource, limit.nominal or 0)
        return f"needs {asked}{of_what}; each user in {limit.tenant_path} may hold {each}, its user has {left} left"
    borrowing = ""
    if refusal.borrowing_helps:
        borrowing = (
            f"; it would fit if {limit.tenant_path} could borrow {quantity(limit.resource, refusal.lacking)} more"
        )
    elif refusal.is_borrowing:
        borrowing = "; too little is left to borrow"
    reserved = ""
    if refusal.line.reserved_from is not None:
        amount = quantity(limit.resource, refusal.line.reserved)
        reserved = f", {amount} of it reserved from {refusal.line.reserved_from:%d %b %H:%M} UTC on"
    return f"needs {asked}{of_what}; {limit.tenant_path} has {left} left of its {cap}{scope}{reserved}{borrowing}"


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
    if code in _LEFT_OUT or code in MOVED:
        said = next(refusal.message for refusal in job.constraints.refusals if refusal.cluster_id == cluster.id)
        return Reason(
            cluster.name, code, said if code in MOVED else f"it {_LEFT_OUT[code]} and is skipped for a while: {said}"
        )
    number = tier_of(job.constraints, cluster)
    if code == NOT_REACHED and number is not None:
        return Reason(cluster.name, code, f"opens to the job {opening(job.constraints.overflow[number])}")
    if code:
        return Reason(cluster.name, code, _lacks(job, cluster, code) or "the job's constraints exclude it", True)
    return None


def _lacks(job: JobRequest, cluster: FleetCluster, code: str) -> str:
    """What the job needs and cannot have on the cluster, besides room; empty if the code is another."""
    if code == ReasonCode.SIDECARS_MISSING:
        return "its Kubernetes is too old for the job's sidecars"
    if code == ReasonCode.SECRET_MISSING:
        return f"the job's tenant has no secret {job.constraints.lacks_secret} of the kind that the job uses"
    if code == ReasonCode.NETWORK_MISSING:
        return f"has no network {missing_network(job.constraints, cluster)} that the job's tenant may use"
    if code == ReasonCode.IMAGE_VOLUMES_MISSING:
        return f"its Kubernetes is too old to mount images, as the storage {image_on(job.constraints, cluster)} is one"
    missing = missing_storage(job.constraints, cluster) if code == ReasonCode.STORAGE_MISSING else None
    return "" if missing is None else _lacks_storage(missing)


def _lacks_storage(missing: StorageNeed) -> str:
    if missing.size_bytes:
        size = memory_text(missing.size_bytes)
        return f"has no storage {missing.name} of which the job's tenant may have a volume of {size}"
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
        return unfit(pod_set, state, number) or _not_served(pod_set, fleet.clusters[number])
    types = job.constraints.capacity_types
    allowed = [n for n in pools if not types or fleet.pools[n].flavor.capacity_type in types]
    if not allowed:
        offered = ", ".join(sorted({fleet.pools[n].flavor.capacity_type for n in pools}))
        message = f"offers {kind_of(pod_set)} only as {offered}; the job wants {', '.join(types)}"
        if job.constraints.is_patient:
            message = f"{message} while it has time to wait for that"
        return Shortage(ReasonCode.CAPACITY_TYPE_EXCLUDED, message, is_for_good=not job.constraints.is_patient)
    permitted = [n for n in allowed if not policy.flavor_fault(fleet.pools[n].flavor)]
    if not permitted:
        return Shortage(ReasonCode.EXCLUDED_BY_POLICY, policy.flavor_fault(fleet.pools[allowed[0]].flavor))
    found: dict[Pool, Shortage] = {}
    for n in permitted:
        shortage = None if state.is_empty else taint_shortage(fleet.pools[n], pod_set)
        shortage = shortage or shortage_in(state, n, pod_set, (int(units[n]), int(parts[n])), job.topology)
        if shortage is None:
            return None
        found[fleet.pools[n]] = shortage
    return _told_of_one(found)


def _told_of_one(found: Mapping[Pool, Shortage]) -> Shortage:
    """The shortage of the pool that is nearest to having room. Its figures are of that pool's nodes, so the pool is named
    if there are others with nodes.
    """
    pool = min(found, key=lambda one: _distance(found[one]))
    nearest = found[pool]
    if len(found) == 1:
        return nearest
    if nearest.code not in _WITHOUT_FIGURES and any(one is not pool and one.node_names for one in found):
        nearest = replace(nearest, message=f"{nearest.message} (flavor {pool.flavor.name})")
    nearest = replace(nearest, is_about_devices=all(one.is_about_devices for one in found.values()))
    closed = next((one for one in found.values() if one.code == ReasonCode.TAINTED), None)
    if closed is None or nearest.code == ReasonCode.TAINTED:
        return nearest
    return replace(nearest, message=f"{nearest.message}; elsewhere {closed.message}")


def _distance(shortage: Shortage) -> tuple[int, int, int, bool]:
    """Less if the pool is nearer to having room."""
    is_fragmented = shortage.code == ReasonCode.FRAGMENTED
    rank = _NEAREST_FIRST.index(ReasonCode.NOT_ENOUGH_FREE if is_fragmented else shortage.code)
    pods, block = shortage.room
    return rank, -pods, -block, not is_fragmented


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
