"""The network attachments that a job uses, and the clusters where its tenant may. Frozen values without a database."""

from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, slots=True)
class NetworkNeed:
    """A network that a job uses. `clusters` are those where its tenant may."""

    name: str
    clusters: tuple[UUID, ...] = ()
