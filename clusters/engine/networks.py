"""The network attachments of a cluster that jobs may name: NetworkAttachmentDefinitions of Multus, by their names.

A name is a DNS label, as Multus itself accepts it. So no text that is joined from names contains a separator of more attachments,
of an interface, or the beginning of Multus's JSON form.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from .declared import is_for

MOST_NETWORKS = 8
"""Of one pod."""


@dataclass(frozen=True, slots=True)
class KnownNetwork:
    """A network of a registered cluster, as jobs of `tenant_path` and of the tenants below it see it. Without a namespace, each
    tenant's own namespace has the definition.
    """

    cluster_id: UUID
    cluster_owner_path: str
    tenant_path: str
    name: str
    definition: str
    namespace: str

    def serves(self, tenant_path: str) -> bool:
        """Whether a tenant's jobs may use it there."""
        return is_for(self, tenant_path)


def attachment_of(namespace: str, definition: str) -> str:
    """How Multus names a definition, for pods of any namespace."""
    return f"{namespace}/{definition}" if namespace else definition


Networks = Mapping[str, Mapping[UUID, KnownNetwork]]
"""Networks by name, then by cluster."""
