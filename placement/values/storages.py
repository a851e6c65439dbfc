"""The storages that a job mounts, and the clusters where its tenant may. Frozen values without a database."""

from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, slots=True)
class StorageNeed:
    """A storage that a job mounts, to write to it if `is_written`. `clusters` are those where its tenant may."""

    name: str
    is_written: bool = False
    clusters: tuple[UUID, ...] = ()
    size_bytes: int = 0
    """Of the new volume that each pod wants of it; 0 for a storage that has its data."""
    as_image: tuple[UUID, ...] = ()
    """Those of the clusters where it is an image, which not every version of Kubernetes mounts."""
