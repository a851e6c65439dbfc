"""The fleet as placement needs it: frozen values, cached per process until a cluster's inventory or state changes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from clusters.engine.gpu_facts import GpuFacts, facts_of
from clusters.engine.taints import standing
from clusters.engine.versions import mounts_images, runs_sidecars
from clusters.models import Cluster, Flavor, Node
from foundation.caches import cached_all

from .avoided import avoided_on


@dataclass(frozen=True, slots=True)
class FlavorView:
    """A flavor of a cluster. `clusters.engine.flavors.match_expressions` reads `node_selector`."""

    id: UUID
    name: str
    vendor: str
    gpu_model: str
    gpu_memory_mib: int
    sharing: str
    capacity_type: str
    resource_name: str
    node_selector: Mapping[str, str]
    slice_hosts: int = 1
    unplaceable: str = ""


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node: all its allocatable capacity, and the use by foreign pods.

    `devices` and `foreign_devices` are units by flavor name; a CPU-only node has its flavor with 0 units. `domain` is
    (zone, block, rack), empty where unknown. `labels` are those that select domains and flavors.
    """

    name: str
    domain: tuple[str, str, str]
    clique: str
    labels: Mapping[str, str]
    devices: Mapping[str, int]
    foreign_devices: Mapping[str, int]
    cpu_millicores: int
    memory_mib: int
    pods: int
    foreign_cpu_millicores: int
    foreign_memory_mib: int
    foreign_pods: int
    is_usable: bool
    why_unusable: str
    repels: Mapping[str, str]
    """See `clusters.engine.taints.Standing`."""
    resources: Mapping[str, int]
    """The amounts of the resources that jobs may request besides CPU, memory and GPUs."""
    foreign_resources: Mapping[str, int]
    gpu_facts: Mapping[str, GpuFacts]
    """What is known of its devices, by flavor."""


@dataclass(frozen=True, slots=True)
class ClusterView:
    """A registered cluster. It accepts new work only if `state` is ready or degraded."""

    id: UUID
    name: str
    owner_path: str
    region: str
    provider: str
    state: str
    inventory_version: int
    has_sidecars: bool
    """Whether its version of Kubernetes runs sidecars."""
    has_image_volumes: bool
    """Whether pods can mount images on its version of Kubernetes."""
    flavors: Mapping[str, FlavorView]
    nodes: tuple[NodeView, ...]


class _Registered(NamedTuple):
    """A registered cluster without its inventory. The rows of nodes and flavors are those of `inventory_version`."""

    id: UUID
    name: str
    owner_path: str
    region: str
    provider: str
    state: str
    inventory_version: int
    has_sidecars: bool
    has_image_volumes: bool


def fleet() -> tuple[ClusterView, ...]:
    """Every registered cluster by name and id. One query, plus three if some clusters' inventories have changed."""
    columns = ("id", "name", "region", "provider", "health", "wish", "inventory_version", "kubernetes_version")
    clusters = Cluster.objects.select_related("owner").only(*columns, "owner__path").order_by("name", "id")
    return tuple(_views([_registered(cluster) for cluster in clusters]))


def _registered(cluster: Cluster) -> _Registered:
    return _Registered(
        id=cluster.id,
        name=cluster.name,
        owner_path=cluster.owner.path,
        region=cluster.region,
        provider=cluster.provider,
        state=cluster.state,
        inventory_version=cluster.inventory_version,
        has_sidecars=runs_sidecars(cluster.kubernetes_version),
        has_image_volumes=mounts_images(cluster.kubernetes_version),
    )


@cached_all("id")
def _views(clusters: Sequence[_Registered]) -> list[ClusterView]:
    """Reads these clusters' inventories. They may be newer than the versions read before; the next round reads them
    again.
    """
    ids = [cluster.id for cluster in clusters]
    flavors: dict[UUID, dict[str, FlavorView]] = {cluster_id: {} for cluster_id in ids}
    for flavor in Flavor.objects.filter(cluster_id__in=ids).order_by("name"):
        flavors[flavor.cluster_id][flavor.name] = _flavor_view(flavor)
    nodes: dict[UUID, list[NodeView]] = {cluster_id: [] for cluster_id in ids}
    avoided = avoided_on(ids)
    for node in Node.objects.filter(cluster_id__in=ids).order_by("name").iterator(chunk_size=2000):
        why_avoided = avoided.get(node.cluster_id, {}).get(node.uid, "")
        nodes[node.cluster_id].append(_node_view(node, flavors[node.cluster_id], why_avoided))
    return [
        ClusterView(**cluster._asdict(), flavors=flavors[cluster.id], nodes=tuple(nodes[cluster.id]))
        for cluster in clusters
    ]


def _flavor_view(flavor: Flavor) -> FlavorView:
    return FlavorView(
        id=flavor.id,
        name=flavor.name,
        vendor=flavor.vendor,
        gpu_model=flavor.gpu_model,
        gpu_memory_mib=flavor.gpu_memory_mib,
        sharing=flavor.sharing,
        capacity_type=flavor.capacity_type,
        resource_name=flavor.resource_name,
        node_selector=flavor.node_selector,
        slice_hosts=flavor.slice_hosts,
        unplaceable=flavor.unplaceable,
    )


def _node_view(node: Node, flavors: Mapping[str, FlavorView], why_avoided: str) -> NodeView:
    devices = {entry["flavor"]: int(entry["units"]) for entry in node.devices if entry["flavor"] in flavors}
    offered = [flavors[name] for name in devices]
    stands = standing(
        is_ready=node.is_ready,
        is_schedulable=node.is_schedulable,
        taints=node.taints,
        flavors={flavor.name: (flavor.vendor, flavor.capacity_type) for flavor in offered},
    )
    why_unusable = stands.why_unusable or ("avoided, because it made jobs fail" if why_avoided else "")
    zone, block, rack, _, clique = (*node.domain, "", "", "", "", "")[:5]
    return NodeView(
        name=node.name,
        domain=(zone, block, rack),
        clique=clique,
        labels=node.labels,
        devices=devices,
        foreign_devices={
            flavor.name: int(node.foreign_devices[flavor.resource_name])
            for flavor in offered
            if flavor.resource_name in node.foreign_devices
        },
        cpu_millicores=node.cpu_millicores,
        memory_mib=node.memory_mib,
        pods=node.pods,
        foreign_cpu_millicores=node.foreign_cpu_millicores,
        foreign_memory_mib=node.foreign_memory_mib,
        foreign_pods=node.foreign_pods,
        is_usable=not why_unusable,
        why_unusable=why_unusable,
        repels=stands.repels,
        resources=node.resources,
        foreign_resources={
            name: int(node.foreign_devices[name]) for name in node.resources if name in node.foreign_devices
        },
        gpu_facts={flavor: facts_of(facts) for flavor, facts in node.gpu_facts.items()},
    )
