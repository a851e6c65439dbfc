"""What a job's GPUs must be, as a cluster enforces it: requirements on the labels of a pod's node, or on claimed devices."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

from clusters.engine.gpu_facts import (
    COMPUTE_LABELS,
    CUDA_LABELS,
    DRIVER_LABELS,
    FAMILY_LABEL,
    MEMORY_LABEL,
    Version,
    spellings,
)
from placement.values.gpu_needs import GpuNeeds

Expressions = tuple[Mapping[str, Any], ...]
_MIG_RESOURCES = "nvidia.com/mig-"
_PARTS = 3
"""The numbers of a semantic version."""


class NodeNeeds(NamedTuple):
    """What the labels of a pod's node must say. A node is good enough if it meets all of one alternative. `coarse` is a
    single alternative that every good node meets, for nodes that were chosen for what they are.
    """

    alternatives: tuple[Expressions, ...] = ((),)
    coarse: Expressions = ()


ANY_NODE = NodeNeeds()


def node_needs(needs: GpuNeeds, resource: str) -> NodeNeeds:
    """The needs of pods that use the devices of an extended resource."""
    [coarse] = alternatives_of(coarser(needs), resource)
    return NodeNeeds(alternatives_of(needs, resource), coarse)


def enforced(needs: GpuNeeds | None, resource: str, cel: str) -> tuple[NodeNeeds, str]:
    """What pods that use devices of this name need of their node, and the expression that selects devices: claimed ones
    have one, and are narrowed by it.
    """
    if needs is None or not resource:
        return ANY_NODE, cel
    return (ANY_NODE, narrowed(cel, needs, resource)) if cel else (node_needs(needs, resource), cel)


def alternatives_of(needs: GpuNeeds, resource: str) -> tuple[Expressions, ...]:
    """The alternatives: the second number of a version counts only where the first is the least one."""
    memory = f"{resource}.memory" if resource.startswith(_MIG_RESOURCES) else MEMORY_LABEL
    plain: list[Mapping[str, Any]] = []
    if needs.memory_mib:
        plain.append(_above(memory, needs.memory_mib - 1))
    if needs.architectures:
        plain.append({"key": FAMILY_LABEL, "operator": "In", "values": list(needs.architectures)})
    versions = ((COMPUTE_LABELS, needs.compute), (DRIVER_LABELS, needs.driver), (CUDA_LABELS, needs.cuda))
    each = product(*(_at_least(labels, least) for labels, least in versions))
    return tuple((*plain, *(one for expressions in chosen for one in expressions)) for chosen in each)


def coarser(needs: GpuNeeds) -> GpuNeeds:
    """The needs with the first number of each version only, so that they have one alternative."""
    return replace(needs, compute=needs.compute[:1], driver=needs.driver[:1], cuda=needs.cuda[:1])


def narrowed(cel: str, needs: GpuNeeds, resource: str) -> str:
    """The expression that selects claimed devices of a kind, narrowed to those that are known to be what the job needs.

    `resource` is the name that they are counted by, `claim/DRIVER/…`. A missing attribute fails the whole allocation, so
    each is checked first.
    """
    domain = json.dumps(resource.split("/")[1])
    attributes, tests = f"device.attributes[{domain}]", [cel]
    if needs.memory_mib:
        amount = json.dumps(f"{needs.memory_mib}Mi")
        tests += [
            f'"memory" in device.capacity[{domain}]',
            f"device.capacity[{domain}].memory.compareTo(quantity({amount})) >= 0",
        ]
    if needs.architectures:
        names = ", ".join(json.dumps(text) for name in needs.architectures for text in spellings(name))
        tests += [f'"architecture" in {attributes}', f"{attributes}.architecture in [{names}]"]
    for name, least in (
        ("cudaComputeCapability", needs.compute),
        ("driverVersion", needs.driver),
        ("cudaDriverVersion", needs.cuda),
    ):
        if least:
            version = json.dumps(".".join(str(number) for number in (*least, *(0,) * (_PARTS - len(least)))))
            tests += [f'"{name}" in {attributes}', f"{attributes}.{name}.compareTo(semver({version})) >= 0"]
    return " && ".join(tests)


def _at_least(labels: Sequence[str], least: Version) -> list[Expressions]:
    """The alternatives for a version of which each number has a label."""
    while least and not least[-1]:
        least = least[:-1]
    if not least:
        return [()]
    found: list[Expressions] = []
    for position, label in enumerate(labels[: len(least)]):
        same = [one for key, number in zip(labels, least[:position], strict=False) for one in _equal(key, number)]
        is_last = position == len(least) - 1
        found.append((*same, _above(label, least[position] - 1 if is_last else least[position])))
    return found


def _above(label: str, number: int) -> Mapping[str, Any]:
    return {"key": label, "operator": "Gt", "values": [str(number)]}


def _equal(label: str, number: int) -> Expressions:
    """As numbers: a label may have leading zeros. Kubernetes takes no negative bound, and there are no negative numbers."""
    below = {"key": label, "operator": "Lt", "values": [str(number + 1)]}
    return (_above(label, number - 1), below) if number else (below,)
