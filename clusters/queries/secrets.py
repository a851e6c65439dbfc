"""Queries on secrets: their names for users and placement, and their values for dispatch alone."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias
from uuid import UUID

from django.db.models import QuerySet

from clusters.drivers.resolve import key_ring
from clusters.engine.sealing import CannotUnseal, Sealed, unseal_bound
from clusters.engine.secrets import Keyring, KnownSecret, binding_of, keyring_of
from clusters.models import TenantSecret
from tenancy.models import Tenant
from tenancy.queries import Actor, tenant_by_id

SecretVersion: TypeAlias = tuple[UUID, int]
"""A secret's id and one of its versions."""


def secrets_of(actor: Actor, tenant_id: UUID) -> QuerySet[TenantSecret]:
    """The secrets that the tenant's jobs may name: its own, and those of the tenants above. NotFound for a tenant that
    the actor may not see.
    """
    tenant = tenant_by_id(actor, tenant_id)
    found = TenantSecret.objects.filter(tenant__path__in=tenant.path_prefixes)
    return found.select_related("tenant").defer("sealed")


@dataclass(frozen=True, slots=True)
class SecretLine:
    """A secret as a tenant's page shows it."""

    name: str
    kind: str
    registry: str
    version: int
    changed_at: datetime
    tenant: str
    is_own: bool
    is_hidden: bool
    """Whether a nearer secret of the same name is used instead."""


def secret_lines(actor: Actor, tenant: Tenant) -> tuple[SecretLine, ...]:
    """The secrets that the tenant's jobs can name, by name and then the nearest first."""
    rows = sorted(secrets_of(actor, tenant.id), key=lambda row: (row.name, -len(row.tenant.path)))
    lines, seen = [], set()
    for row in rows:
        is_own = row.tenant_id == tenant.id
        lines.append(
            SecretLine(
                row.name, row.kind, row.registry, row.version, row.changed_at, row.tenant.path, is_own, row.name in seen
            )
        )
        seen.add(row.name)
    return tuple(lines)


def known_secrets(names: Collection[str]) -> Keyring:
    """The secrets of these names, of every tenant, without their values. No query without names."""
    if not names:
        return {}
    rows = TenantSecret.objects.filter(name__in=list(names)).order_by("id")
    columns = rows.values_list("id", "tenant__path", "name", "kind", "version")
    return keyring_of(KnownSecret(*row) for row in columns)


def signing_keys() -> tuple[bytes, ...]:
    """The installation's keys, the current one first."""
    ring = key_ring()
    return (ring.keys[ring.current], *(key for name, key in ring.keys.items() if name != ring.current))


def opened_secrets(
    versions: Collection[SecretVersion],
) -> tuple[Mapping[SecretVersion, bytes], Collection[SecretVersion]]:
    """The values of these versions, and those that the key ring cannot open. A version that is no longer the current
    one is in neither.
    """
    values: dict[SecretVersion, bytes] = {}
    closed: set[SecretVersion] = set()
    for row in TenantSecret.objects.filter(id__in=[secret_id for secret_id, _ in versions]):
        if (row.id, row.version) in versions:
            binding = binding_of(row.id, row.tenant_id, row.name, row.version)
            try:
                value = unseal_bound(key_ring(), binding, Sealed(row.key_id, bytes(row.sealed)))
            except CannotUnseal:
                closed.add((row.id, row.version))
            else:
                values[row.id, row.version] = value
    return values, closed
