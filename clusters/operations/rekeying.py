"""Moves every sealed credential to the current key of the ring, while everything runs."""

from dataclasses import dataclass

from clusters.drivers.resolve import key_ring
from clusters.engine.sealing import CannotUnseal, Sealed, seal, unseal
from clusters.models import ClusterCredential


@dataclass(frozen=True, slots=True)
class Rekeying:
    """How many credentials moved to the current key, already had it, or could not be opened."""

    moved: int
    already_current: int
    failed: tuple[str, ...]


def rekey_credentials() -> Rekeying:
    """Seals each credential again under the current key, with one guarded UPDATE per row. You can stop and start it at
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
    return Rekeying(moved, already, tuple(failed))
