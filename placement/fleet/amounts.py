"""The units of a flavor that a pod uses, and the quota that a placed job uses."""

from collections.abc import Mapping

from clusters.engine.gpu_share import gpu_per_unit
from placement.values.gpu_names import means
from placement.values.model import FleetFlavor, GpuRequest, JobRequest, PodSetRequest
from quotas.engine.amounts import JOBS

MILLI = 1000
USUAL_VENDOR = "nvidia"
"""The vendor of a request that names neither vendor nor model."""


def units_per_pod(gpu: GpuRequest | None, flavor: FleetFlavor) -> int | None:
    """The units of `flavor` that one pod uses, or None if this flavor cannot serve the request.

    A request without a GPU uses 0 units of any flavor. A fraction uses the fewest shares that cover it, and one unit of
    a divisible flavor.
    """
    portion = portion_of(gpu, flavor)
    if portion is None:
        return None
    units, part_milli = portion
    return units or (1 if part_milli else 0)


def portion_of(gpu: GpuRequest | None, flavor: FleetFlavor) -> tuple[int, int] | None:
    """What one pod uses of `flavor`: whole units, and thousandths of one more unit that it shares; None
    if not served.
    """
    if gpu is None:
        return 0, 0
    if flavor.unplaceable or not is_wanted(gpu, flavor):
        return None
    if gpu.mig:
        return (gpu.count, 0) if flavor.sharing == f"mig:{gpu.mig}" else None
    if gpu.fraction_milli:
        if flavor.sharing == "divisible":
            return 0, gpu.fraction_milli
        shares = shares_per_gpu(flavor)
        return (-(-gpu.fraction_milli * shares // MILLI), 0) if shares else None
    return (gpu.count, 0) if flavor.sharing in ("whole", "divisible") else None


def is_wanted(gpu: GpuRequest, flavor: FleetFlavor) -> bool:
    """Whether a flavor has devices of a model and vendor that the request means, whatever their sharing."""
    if not flavor.gpu_model or (gpu.models and not any(means(name, flavor.gpu_model) for name in gpu.models)):
        return False
    vendor = gpu.vendor or ("" if gpu.models else USUAL_VENDOR)
    return not vendor or flavor.vendor == vendor


def shares_per_gpu(flavor: FleetFlavor) -> int:
    """The number of shares per GPU of a time-sliced flavor; 0 for every other flavor."""
    kind, _, number = flavor.sharing.partition(":")
    return int(number) if kind == "timeslice" else 0


def milli_gpu_per_unit(flavor: FleetFlavor) -> tuple[int, int]:
    """A unit of `flavor` in thousandths of a GPU, as (numerator, denominator): a third of a GPU is (1000, 3)."""
    share = gpu_per_unit(flavor.sharing, flavor.gpu_model)
    return share.numerator * MILLI, share.denominator


def amounts_of(job: JobRequest, flavor_by_pod_set: Mapping[str, FleetFlavor]) -> dict[str, int]:
    """What a job's quota hold takes, by resource, in base units: `gpu` and `gpu:MODEL` in milli-GPU, `cpu` in
    millicores, `memory` in MiB, each over all pods, and one of `jobs`. A unit counts as its share of a GPU (`clusters.engine.gpu_share`).
    """
    amounts = {"cpu": 0, "memory": 0, JOBS: 1}
    for pod_set in job.pod_sets:
        amounts["cpu"] += pod_set.cpu_millicores * pod_set.count
        amounts["memory"] += pod_set.memory_mib * pod_set.count
        flavor = flavor_by_pod_set[pod_set.name]
        milli = milli_gpu_of(pod_set, flavor)
        if milli:
            for resource in ("gpu", f"gpu:{flavor.gpu_model}"):
                amounts[resource] = amounts.get(resource, 0) + milli
    return amounts


def milli_gpu_of(pod_set: PodSetRequest, flavor: FleetFlavor) -> int:
    """What all pods of the set use of `flavor`, in milli-GPU, rounded down once: seven pods with a seventh each use one
    GPU.

    Raises ValueError if the flavor cannot serve the pod set.
    """
    portion = portion_of(pod_set.gpu, flavor)
    if portion is None:
        raise ValueError(f"flavor {flavor.name} cannot serve pod set {pod_set.name}")
    units, part_milli = portion
    milli, parts = milli_gpu_per_unit(flavor)
    return units * pod_set.count * milli // parts + part_milli * pod_set.count
