"""Which nodes have the images of jobs. Frozen values without a database."""

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, slots=True)
class KnownImage:
    """An image that some nodes have: the class of its size (`clusters.engine.pulls`), and by cluster and flavor the number
    of nodes that have it.
    """

    size_class: int
    nodes: Mapping[UUID, Mapping[str, int]]


def image_key(tenant_path: str, image: str) -> str:
    """Under which the jobs of a tenant find an image in `Snapshot.images`: its organisation and the normal name."""
    return f"{tenant_path.partition('/')[0]} {image}"
