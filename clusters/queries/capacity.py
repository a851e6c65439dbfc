"""What clusters have and what of it is free, by flavor, from what was last observed."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.conf import settings

from clusters.engine.health import TOO_LARGE, Freshness, freshness, stale_findings
from clusters.engine.taints import Standing, standing
from clusters.models import Cluster, Flavor, Node

_READ = ("cluster_id", "devices", "used_devices", "taints", "is_ready", "is_schedulable")


@dataclass(frozen=True, slots=True)
class FlavorSummary:
    """A flavor of a cluster in numbers. Units are devices (GPUs, slices, shares); a CPU-only flavor has none.

    `free` counts nodes only that take pods on these devices: ready, schedulable, and without a taint that such pods do
    not tolerate. `largest_free_block` is the most free on one node.
    """

    id: UUID
    name: str
    vendor: str
    gpu_model: str
    gpu_memory_mib: int
    sharing: str
    capacity_type: str
    slice_hosts: int
    unplaceable: str
    nodes: int
    total: int
    free: int
    largest_free_block: int


def flavor_summary(cluster_ids: Collection[UUID]) -> Mapping[UUID, Sequence[FlavorSummary]]:
    """For each cluster its flavors in order of name; clusters without flavors have an empty sequence. Two queries."""
    offered: dict[tuple[UUID, str], list[int]] = defaultdict(list)
    totals: dict[tuple[UUID, str], int] = defaultdict(int)
    flavors = list(Flavor.objects.filter(cluster_id__in=cluster_ids).order_by("cluster_id", "name"))
    known = {(flavor.cluster_id, flavor.name): flavor for flavor in flavors}
    for node in Node.objects.filter(cluster_id__in=cluster_ids).only(*_READ).iterator():
        units_of = {name: units for name, units in _entries(node.devices) if (node.cluster_id, name) in known}
        own = {name: known[node.cluster_id, name] for name in units_of}
        stands = node_standing(node, own)
        for name, units in units_of.items():
            taken = int(node.used_devices.get(own[name].resource_name, 0))
            totals[node.cluster_id, name] += units
            is_open = not stands.why_unusable and name not in stands.repels
            offered[node.cluster_id, name].append(max(0, units - taken) if is_open else 0)
    result: dict[UUID, list[FlavorSummary]] = {cluster_id: [] for cluster_id in cluster_ids}
    for flavor in flavors:
        free = offered[flavor.cluster_id, flavor.name]
        result[flavor.cluster_id].append(_summary(flavor, free, totals[flavor.cluster_id, flavor.name]))
    return result


def freshness_of(cluster: Cluster, now: datetime) -> Freshness:
    """How far what is known of a cluster can be trusted."""
    return freshness(now, cluster.last_seen_at, cluster.observed_at, settings.STALE_SECONDS)


def fleet_freshness(now: datetime) -> Mapping[UUID, Freshness]:
    """Of every registered cluster. One query."""
    rows = Cluster.objects.values_list("id", "last_seen_at", "observed_at", "reasons")
    return {
        id_: _judged(freshness(now, seen_at, observed_at, settings.STALE_SECONDS), reasons)
        for id_, seen_at, observed_at, reasons in rows
    }


def _judged(found: Freshness, reasons: Iterable[Mapping[str, str]]) -> Freshness:
    """What is known of a cluster that is too large to be observed cannot be trusted, however lately it was known."""
    is_too_large = any(reason["code"] == TOO_LARGE for reason in reasons)
    return Freshness(max(found.minutes, 1), is_stale=True) if is_too_large else found


def shown_reasons(cluster: Cluster, now: datetime) -> list[Mapping[str, str]]:
    """What is held against a cluster, with its staleness, which no report brings but only time."""
    return [*cluster.reasons, *(reason.as_json() for reason in stale_findings(freshness_of(cluster, now)))]


def node_standing(node: Node, flavors: Mapping[str, Flavor]) -> Standing:
    """Which of our pods a node takes, given the flavors that it offers by name."""
    return standing(
        is_ready=node.is_ready,
        is_schedulable=node.is_schedulable,
        taints=node.taints,
        flavors={name: (flavor.vendor, flavor.capacity_type) for name, flavor in flavors.items()},
    )


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
        slice_hosts=flavor.slice_hosts,
        unplaceable=flavor.unplaceable,
        nodes=len(free),
        total=total,
        free=sum(free),
        largest_free_block=max(free, default=0),
    )
