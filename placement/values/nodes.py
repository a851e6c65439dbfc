"""Builds a node from its capacity and what uses it. Every node that placement sees is built here."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple, Required, TypedDict, Unpack

from clusters.engine.gpu_facts import GpuFacts

from .model import FleetNode


class NodeResources(NamedTuple):
    """Resources of a node, or the use of them: pods, millicores, MiB, units of devices by flavor, and amounts of other
    resources by name.
    """

    pods: int = 0
    cpu_millicores: int = 0
    memory_mib: int = 0
    units: Mapping[str, int] = MappingProxyType({})
    others: Mapping[str, int] = MappingProxyType({})


NO_RESOURCES = NodeResources()


class NodeTraits(TypedDict, total=False):
    """What a node is beside its resources; see `FleetNode`. A node is usable if `why_unusable` is empty."""

    domain: Required[tuple[str, ...]]
    clique: str
    why_unusable: str
    repels: Mapping[str, str]
    device_free_milli: Mapping[str, tuple[int, ...]]
    gpu_facts: Mapping[str, GpuFacts]


def fleet_node(name: str, total: NodeResources, *used: NodeResources, **traits: Unpack[NodeTraits]) -> FleetNode:
    """The node with what is free of it: its total less each use, and never less than nothing."""
    return FleetNode(
        name=name,
        total=total.units,
        free={
            flavor: max(0, units - sum([use.units.get(flavor, 0) for use in used]))
            for flavor, units in total.units.items()
        },
        cpu_millicores=total.cpu_millicores,
        memory_mib=total.memory_mib,
        pods=total.pods,
        free_cpu_millicores=max(0, total.cpu_millicores - sum([use.cpu_millicores for use in used])),
        free_memory_mib=max(0, total.memory_mib - sum([use.memory_mib for use in used])),
        free_pods=max(0, total.pods - sum([use.pods for use in used])),
        is_usable=not traits.get("why_unusable"),
        resources=total.others,
        free_resources={
            name: max(0, amount - sum([use.others.get(name, 0) for use in used]))
            for name, amount in total.others.items()
        },
        **traits,
    )
