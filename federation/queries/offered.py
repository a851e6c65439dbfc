"""Converts what the clusters offer to placement's values."""

from collections.abc import Iterable, Mapping

from clusters.engine.health import FRESH, OPEN_STATES, Freshness
from clusters.queries import ClusterView, FlavorView, NodeView
from placement.values.model import FleetCluster, FleetFlavor, FleetNode
from placement.values.nodes import NodeResources, fleet_node


def cluster_of(
    view: ClusterView, flavors: Mapping[str, FleetFlavor], nodes: Iterable[FleetNode] = (), seen: Freshness = FRESH
) -> FleetCluster:
    """The cluster with these flavors and nodes."""
    return FleetCluster(
        id=view.id,
        name=view.name,
        owner_path=view.owner_path,
        region=view.region,
        state="stale" if seen.is_stale and view.state in OPEN_STATES else view.state,
        minutes_unseen=seen.minutes,
        flavors=flavors,
        nodes=tuple(nodes),
        has_sidecars=view.has_sidecars,
        has_image_volumes=view.has_image_volumes,
    )


def offered(flavor: FlavorView) -> FleetFlavor:
    """The flavor without prices."""
    return FleetFlavor(
        name=flavor.name,
        vendor=flavor.vendor,
        gpu_model=flavor.gpu_model,
        gpu_memory_mib=flavor.gpu_memory_mib,
        sharing=flavor.sharing,
        capacity_type=flavor.capacity_type,
        slice_hosts=flavor.slice_hosts,
        unplaceable=flavor.unplaceable,
    )


def node_of(view: NodeView, *used: NodeResources, why_not: str = "") -> FleetNode:
    """The node with what is free beside these uses. `why_not` makes a usable node unusable."""
    return fleet_node(
        view.name,
        NodeResources(view.pods, view.cpu_millicores, view.memory_mib, view.devices, view.resources),
        *used,
        domain=view.domain,
        clique=view.clique,
        why_unusable=view.why_unusable or why_not,
        repels=view.repels,
        gpu_facts=view.gpu_facts,
    )


def foreign_use(view: NodeView) -> NodeResources:
    """What foreign pods use of the node."""
    return NodeResources(
        view.foreign_pods,
        view.foreign_cpu_millicores,
        view.foreign_memory_mib,
        view.foreign_devices,
        view.foreign_resources,
    )
