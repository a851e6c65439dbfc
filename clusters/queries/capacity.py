"""What clusters have and what of it is free, by flavor, from what was last observed."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from clusters.models import Flavor, Node


@dataclass(frozen=True, slots=True)
class FlavorSummary:
    """A flavor of a cluster in numbers. Units are devices (GPUs, slices, shares); a CPU-only flavor has none.

    `free` counts usable nodes only (ready and schedulable); `largest_free_block` is the most free on one node.
    """

    id: UUID
    name: str
    vendor: str
    gpu_model: str
    gpu_memory_mib: int
    sharing: str
    capacity_type: str
    nodes: int
    total: int
    free: int
    largest_free_block: int


def flavor_summary(cluster_ids: Collection[UUID]) -> Mapping[UUID, Sequence[FlavorSummary]]:
    """For each cluster its flavors in order of name; clusters without flavors have an empty sequence. Two queries."""
    offered: dict[tuple[UUID, str], list[int]] = defaultdict(list)
    totals: dict[tuple[UUID, str], int] = defaultdict(int)
    flavors = list(Flavor.objects.filter(cluster_id__in=cluster_ids).order_by("cluster_id", "name"))
    resources = {(flavor.cluster_id, flavor.name): flavor.resource_name for flavor in flavors}
    nodes = Node.objects.filter(cluster_id__in=cluster_ids).values_list(
        "cluster_id", "devices", "used_devices", "is_ready", "is_schedulable"
    )
    for cluster_id, devices, used, is_ready, is_schedulable in nodes.iterator():
        for flavor_name, units in _entries(devices):
            key = (cluster_id, flavor_name)
            taken = int(used.get(resources.get(key, ""), 0))
            totals[key] += units
            offered[key].append(max(0, units - taken) if is_ready and is_schedulable else 0)
    result: dict[UUID, list[FlavorSummary]] = {cluster_id: [] for cluster_id in cluster_ids}
    for flavor in flavors:
        free = offered[flavor.cluster_id, flavor.name]
        result[flavor.cluster_id].append(_summary(flavor, free, totals[flavor.cluster_id, flavor.name]))
    return result


def _entries(devices: Iterable[Mapping[str, Any]]) -> Iterable[tuple[str, int]]:
    return ((str(entry["flavor"]), int(entry["units"])) for entry in devices)


def _summary(flavor: Flavor, free: Sequence[int], total: int) -> FlavorSummary:
    return FlavorSummary(
        id=flavor.id,
        name=flavor.name,
        vendor=flavor.vendor,
        gpu_model=flavor.gpu_model,
        gpu_memory_mib=flavor.gpu_memory_mib,
        sharing=flavor.sharing,
        capacity_type=flavor.capacity_type,
        nodes=len(free),
        total=total,
        free=sum(free),
        largest_free_block=max(free, default=0),
    )
