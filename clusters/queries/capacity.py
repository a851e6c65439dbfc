"""The capacity of clusters and the free part of it, by flavor, as last observed."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.conf import settings

from clusters.engine.health import OPEN_STATES, TOO_LARGE, Freshness, freshness, stale_findings
from clusters.engine.offered import NONE, DeviceCount, count_on_node
from clusters.engine.taints import Standing, standing
from clusters.models import Cluster, Flavor, Node

_READ = ("cluster_id", "devices", "used_devices", "foreign_devices", "taints", "is_ready", "is_schedulable")


@dataclass(frozen=True, slots=True)
class FlavorSummary:
    """A flavor of a cluster in numbers. Units are GPUs or slices of them; a CPU-only flavor has none.

    A node accepts pods on these devices if it is ready, schedulable, and without a taint that such pods do not
    tolerate. `largest_free_block` is the largest number of free units on one node.
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
    count: DeviceCount
    largest_free_block: int

    @property
    def is_sliced(self) -> bool:
        """Whether its units are parts of GPUs."""
        return self.sharing != "whole"

    @property
    def is_gpu(self) -> bool:
        """Whether it has devices."""
        return self.count.total > 0 or bool(self.vendor)


def flavor_summary(clusters: Collection[Cluster], at: datetime) -> Mapping[UUID, Sequence[FlavorSummary]]:
    """For each cluster its flavors by name; clusters without flavors have an empty sequence. Two queries."""
    by_id = {cluster.id: _Reach.of(cluster, at) for cluster in clusters}
    counts: dict[tuple[UUID, str], list[DeviceCount]] = defaultdict(list)
    flavors = list(Flavor.objects.filter(cluster_id__in=by_id).order_by("cluster_id", "name"))
    known = {(flavor.cluster_id, flavor.name): flavor for flavor in flavors}
    for node in Node.objects.filter(cluster_id__in=by_id).only(*_READ).iterator():
        units_of = {name: units for name, units in _entries(node.devices) if (node.cluster_id, name) in known}
        own = {name: known[node.cluster_id, name] for name in units_of}
        for name, count in _counts_on(node, units_of, own, by_id[node.cluster_id]):
            counts[node.cluster_id, name].append(count)
    result: dict[UUID, list[FlavorSummary]] = {cluster_id: [] for cluster_id in by_id}
    for flavor in flavors:
        result[flavor.cluster_id].append(_summary(flavor, counts[flavor.cluster_id, flavor.name]))
    return result


@dataclass(frozen=True, slots=True)
class _Reach:
    """Whether a cluster is observed, and whether it accepts new work."""

    is_seen: bool
    is_open: bool

    @classmethod
    def of(cls, cluster: Cluster, at: datetime) -> "_Reach":
        is_stale = _judged(freshness_of(cluster, at), cluster.reasons).is_stale
        return cls(
            is_seen=not is_stale and cluster.health in OPEN_STATES,
            is_open=cluster.state in OPEN_STATES,
        )


def _counts_on(
    node: Node, units_of: Mapping[str, int], flavors: Mapping[str, Flavor], reach: _Reach
) -> Iterator[tuple[str, DeviceCount]]:
    stands = node_standing(node, flavors)
    for name, units in units_of.items():
        resource = flavors[name].resource_name
        takes_pods = not stands.why_unusable and name not in stands.repels and not flavors[name].unplaceable
        yield (
            name,
            count_on_node(
                units,
                int(node.used_devices.get(resource, 0)),
                int(node.foreign_devices.get(resource, 0)),
                is_seen=reach.is_seen,
                is_open=reach.is_open and takes_pods,
            ),
        )


def freshness_of(cluster: Cluster, now: datetime) -> Freshness:
    """How current a cluster's data is."""
    return freshness(now, cluster.last_seen_at, cluster.observed_at, settings.STALE_SECONDS)


def fleet_freshness(now: datetime) -> Mapping[UUID, Freshness]:
    """The freshness of every registered cluster. One query."""
    rows = Cluster.objects.values_list("id", "last_seen_at", "observed_at", "reasons")
    return {
        id_: _judged(freshness(now, seen_at, observed_at, settings.STALE_SECONDS), reasons)
        for id_, seen_at, observed_at, reasons in rows
    }


def _judged(found: Freshness, reasons: Iterable[Mapping[str, str]]) -> Freshness:
    """The data of a cluster that is too large to observe cannot be trusted, however recent it is."""
    is_too_large = any(reason["code"] == TOO_LARGE for reason in reasons)
    return Freshness(max(found.minutes, 1), is_stale=True) if is_too_large else found


def shown_reasons(cluster: Cluster, now: datetime) -> list[Mapping[str, str]]:
    """The findings against a cluster, with its staleness, which comes from time and not from a report."""
    return [*cluster.reasons, *(reason.as_json() for reason in stale_findings(freshness_of(cluster, now)))]


def node_standing(node: Node, flavors: Mapping[str, Flavor]) -> Standing:
    """Which of our pods a node accepts, given its flavors by name."""
    return standing(
        is_ready=node.is_ready,
        is_schedulable=node.is_schedulable,
        taints=node.taints,
        flavors={name: (flavor.vendor, flavor.capacity_type) for name, flavor in flavors.items()},
    )


def _entries(devices: Iterable[Mapping[str, Any]]) -> Iterable[tuple[str, int]]:
    return ((str(entry["flavor"]), int(entry["units"])) for entry in devices)


def _summary(flavor: Flavor, counts: Sequence[DeviceCount]) -> FlavorSummary:
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
        nodes=len(counts),
        count=sum(counts, NONE),
        largest_free_block=max((count.free for count in counts), default=0),
    )
