"""The memory that values from clusters take, in estimated bytes, with a bias to overestimate."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from .claimable import DeviceSeen
from .resource_slices import ClaimSeen, SliceSeen

OBJECT = 700
"""A value of the port with its short strings: name, uid, namespace, node, times."""
ENTRY = 150
"""An entry of a mapping, without the characters of key and value."""
PLACED_POD = 400
KNOWN_UID = 200


def weight_of_mapping(mapping: Mapping[str, str]) -> int:
    """The weight of a mapping of texts."""
    return sum(len(key) + len(value) for key, value in mapping.items()) + ENTRY * len(mapping)


def weight_of_slice(seen: SliceSeen) -> int:
    """The weight of a ResourceSlice, with the values read from it."""
    words = len(seen.name) + len(seen.driver) + len(seen.pool) + len(seen.node)
    return OBJECT + words + sum(map(_weight_of_device, seen.devices))


def _weight_of_device(device: DeviceSeen) -> int:
    """Doubled, because the values read from devices repeat them once or twice."""
    words = len(device.name) + len(device.node) + len(device.memory) + sum(map(len, device.counters))
    return 2 * (OBJECT + words + weight_of_mapping(device.attributes))


def weight_of_claim(seen: ClaimSeen) -> int:
    """The weight of a ResourceClaim."""
    return weight_of_labelled(seen) + sum(ENTRY + sum(map(len, device)) for device in seen.devices)


class Labelled(Protocol):
    """A pod, a Job or a claim as a driver reports it."""

    @property
    def labels(self) -> Mapping[str, str]: ...


class Node(Labelled, Protocol):
    """A node as a driver reports it."""

    @property
    def taints(self) -> Sequence[Mapping[str, str]]: ...
    @property
    def allocatable(self) -> Mapping[str, str]: ...
    @property
    def images(self) -> bytes: ...


def weight_of_labelled(seen: Labelled) -> int:
    """The weight of a pod, Job or claim; foreign labels are not kept, and requests are shared."""
    return OBJECT + weight_of_mapping(seen.labels) if seen.labels else OBJECT


def weight_of_node(seen: Node) -> int:
    """The weight of a node, with the values stored of it. The node that is kept may have older images than those kept."""
    taints = sum(map(weight_of_mapping, seen.taints))
    words = weight_of_mapping(seen.labels) + weight_of_mapping(seen.allocatable) + taints
    return 2 * OBJECT + words + 2 * len(seen.images)
