"""Nodes, as a cluster's API server shows them."""

from typing import Annotated

import msgspec

from clusters.drivers.port import NodeSeen
from clusters.engine.images import NO_IMAGES, NodeImages, packed

from .shapes import Condition, Key, Many, Meta, Quantities, Struct, Value

MOST_IMAGE_BYTES = 512 * 1024
"""A longer list of images counts as none. Kubernetes' own, of 50 images with 5 names each, is shorter."""


class Taint(Struct):
    key: Key = ""
    value: Value = ""
    effect: Value = ""


class _NodeSpec(Struct):
    taints: Annotated[list[Taint], msgspec.Meta(max_length=256)] | None = None
    unschedulable: bool = False


class _Image(Struct):
    names: list[str] | None = None
    size_bytes: int = 0


class _NodeStatus(Struct):
    allocatable: Quantities | None = None
    conditions: Annotated[list[Condition], Many] | None = None
    images: msgspec.Raw = msgspec.Raw()


class Node(Struct):
    metadata: Meta
    spec: _NodeSpec = msgspec.field(default_factory=_NodeSpec)
    status: _NodeStatus = msgspec.field(default_factory=_NodeStatus)


def node_seen(node: Node) -> NodeSeen:
    """The port's view of a Node."""
    conditions = node.status.conditions or ()
    return NodeSeen(
        name=node.metadata.name,
        uid=node.metadata.uid,
        labels=node.metadata.labels or {},
        taints=[{"key": taint.key, "value": taint.value, "effect": taint.effect} for taint in node.spec.taints or ()],
        allocatable=node.status.allocatable or {},
        is_ready=any(condition.type == "Ready" and condition.status == "True" for condition in conditions)
        and node.metadata.deletion_timestamp is None,
        is_schedulable=not node.spec.unschedulable,
        images=_images(node.status.images),
    )


_images_decoder = msgspec.json.Decoder(list[_Image] | None)


def _images(listed: msgspec.Raw) -> NodeImages:
    """The node's images; none if it does not list them as Kubernetes does. Nothing else about it depends on them."""
    if not 0 < len(memoryview(listed)) <= MOST_IMAGE_BYTES:
        return NO_IMAGES
    try:
        images = _images_decoder.decode(listed) or ()
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return NO_IMAGES
    return packed((image.names or (), image.size_bytes) for image in images)
