"""The storages that a job mounts, and the clusters where its tenant may. Frozen values without a database."""

from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, slots=True)
class StorageNeed:
    """A storage that a job mounts, to write to it if `is_written`. `clusters` are those where its tenant may."""

    name: str
    is_written: bool = False
    clusters: tuple[UUID, ...] = ()
