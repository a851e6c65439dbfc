"""What declarations of a cluster have in common: the tenants that they serve, and how they are looked up."""

from collections.abc import Iterable
from typing import Protocol, TypeVar
from uuid import UUID


class Declared(Protocol):
    """A storage or a network of a cluster, as jobs of its tenant and of the tenants below that one see it."""

    @property
    def cluster_id(self) -> UUID: ...
    @property
    def cluster_owner_path(self) -> str: ...
    @property
    def tenant_path(self) -> str: ...
    @property
    def name(self) -> str: ...


Known = TypeVar("Known", bound=Declared)


def is_for(declared: Declared, tenant_path: str) -> bool:
    """Whether a tenant's jobs may use it there: the tenant is at or below the one that it serves, and the cluster's owner."""
    return all(
        tenant_path == above or tenant_path.startswith(f"{above}/")
        for above in (declared.tenant_path, declared.cluster_owner_path)
    )


def by_name(declared: Iterable[Known]) -> dict[str, dict[UUID, Known]]:
    """The declarations by name, then by cluster."""
    found: dict[str, dict[UUID, Known]] = {}
    for one in declared:
        found.setdefault(one.name, {})[one.cluster_id] = one
    return found
