"""Moves every sealed credential and secret to the current key of the ring, while everything runs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.db.models import QuerySet
from django.utils.module_loading import import_string

from clusters.drivers.resolve import key_ring
from clusters.engine.sealing import CannotUnseal, KeyRing, Sealed, seal, seal_bound, unseal, unseal_bound
from clusters.engine.secrets import binding_of
from clusters.engine.telemetry import token_binding
from clusters.models import ClusterCredential, ClusterPrometheus, TenantSecret


@dataclass(frozen=True, slots=True)
class Rekeying:
    """How many credentials and secrets moved to the current key, already had it, or could not be opened."""

    moved: int
    already_current: int
    failed: tuple[str, ...]


def rekey_credentials() -> Rekeying:
    """Seals each credential of a cluster and each secret of a tenant again under the current key, with one guarded UPDATE per row. You can stop and start it at
    any time.

    A credential replaced meanwhile has the current key already and does not change. Once no credential fails, you can
    remove the other keys from the ring.
    """
    ring = key_ring()
    moved, failed = 0, []
    already = ClusterCredential.objects.filter(key_id=ring.current).count()
    for row in ClusterCredential.objects.exclude(key_id=ring.current).select_related("cluster").order_by("cluster_id"):
        held = bytes(row.sealed)
        try:
            sealed = seal(ring, row.cluster_id, unseal(ring, row.cluster_id, Sealed(row.key_id, held)))
        except CannotUnseal as error:
            failed.append(f"{row.cluster.name}: {error}")
            continue
        moved += ClusterCredential.objects.filter(cluster_id=row.cluster_id, key_id=row.key_id, sealed=held).update(
            key_id=sealed.key_id, sealed=sealed.box
        )
    for rekey in (_rekey_secrets, _rekey_prometheus, *map(import_string, settings.REKEYED_ABOVE)):
        also = rekey(ring)
        moved, already, failed = moved + also.moved, already + also.already_current, [*failed, *also.failed]
    return Rekeying(moved, already, tuple(failed))


def rekeyed(ring: KeyRing, rows: QuerySet[Any], binding: Callable[[Any], str], name: Callable[[Any], str]) -> Rekeying:
    """Seals what rows keep in `key_id` and `sealed` again under the current key. `name` is what an error calls a row."""
    moved, failed = 0, []
    already = rows.filter(key_id=ring.current).count()
    for row in rows.exclude(key_id=ring.current).order_by("id"):
        held = bytes(row.sealed)
        try:
            sealed = seal_bound(ring, binding(row), unseal_bound(ring, binding(row), Sealed(row.key_id, held)))
        except CannotUnseal as error:
            failed.append(f"{name(row)}: {error}")
            continue
        moved += rows.filter(id=row.id, key_id=row.key_id, sealed=held).update(key_id=sealed.key_id, sealed=sealed.box)
    return Rekeying(moved, already, tuple(failed))


def _rekey_secrets(ring: KeyRing) -> Rekeying:
    """The same for the secrets of tenants."""
    return rekeyed(
        ring,
        TenantSecret.objects.select_related("tenant"),
        lambda row: binding_of(row.id, row.tenant_id, row.name, row.version),
        lambda row: f"secret {row.name} of {row.tenant.path}",
    )


def _rekey_prometheus(ring: KeyRing) -> Rekeying:
    """The same for the tokens of Prometheus."""
    return rekeyed(
        ring,
        ClusterPrometheus.objects.filter(sealed__isnull=False).select_related("cluster"),
        lambda row: token_binding(row.cluster_id),
        lambda row: f"token of the Prometheus of {row.cluster.name}",
    )
