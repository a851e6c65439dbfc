"""What observers and probes report about a cluster: each report is one short transaction, and an event only on change."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models.functions import Now

from clusters.engine.clocks import eras_of, measured
from clusters.engine.health import (
    Reason,
    answering_health,
    clock_findings,
    creates_findings,
    device_findings,
    merged,
    size_findings,
)
from clusters.locks import lock_cluster
from clusters.models import Cluster, ClusterEvent
from foundation.clock import database_now, monotonic, monotonic_origin
from foundation.outbox import announce

Health = Cluster.Health
LIMITED_TO_ONE_IN = timedelta(hours=1)


def record_contact(
    cluster_id: UUID,
    *,
    clock_skew_ms: int | None = None,
    origin: datetime | None = None,
    kubernetes_version: str = "",
    has_kueue: bool | None = None,
    observed_at: datetime | None = None,
) -> bool:
    """The cluster answered as itself: ends any silence. `clock_skew_ms` is its clock minus ours, None if not measured, and
    `origin` what our clock's `monotonic_origin` was then, None for now. `has_kueue` is None where nobody asked. `observed_at` is when the watches of its nodes and pods last both
    showed life.

    Returns whether its health changed. Unknown or removed clusters are left alone.
    """
    with transaction.atomic():
        cluster = lock_cluster(cluster_id)
        if cluster is None:
            return False
        reasons = merged(cluster.reasons, "contact", [])
        changes: dict[str, Any] = {"last_seen_at": Now(), "silent_since": None}
        if clock_skew_ms is not None:
            reasons = merged(reasons, "clock", clock_findings(clock_skew_ms))
            changes["clock_skew_ms"] = clock_skew_ms
            changes["clock_eras"] = _eras_after(cluster, clock_skew_ms, origin or monotonic_origin())
        if observed_at is not None:
            changes["observed_at"] = observed_at
        if kubernetes_version:
            changes["kubernetes_version"] = kubernetes_version[:40]
        if has_kueue is not None:
            changes["has_kueue"] = has_kueue
        return _settle(cluster, answering_health(reasons), reasons, changes)


def _eras_after(cluster: Cluster, clock_skew_ms: int, origin: datetime) -> list[Mapping[str, Any]]:
    """With this measurement, against the database's clock: the clock of the process that measured may be wrong, and may have
    been set since.
    """
    at = database_now()
    here = origin + timedelta(seconds=monotonic())
    against_ours = clock_skew_ms + round((here - at).total_seconds() * 1000)
    return [era.as_json() for era in measured(eras_of(cluster.clock_eras), against_ours, at)]


def record_silence(cluster_id: UUID, reason: str, *, code: str = "unreachable") -> bool:
    """The cluster did not answer, or (code `identity_changed`) another one answered in its place.

    Returns whether its health changed.
    """
    return _record_loss(cluster_id, Health.UNREACHABLE, Reason(code, reason))


def record_auth_failure(cluster_id: UUID, reason: str) -> bool:
    """The cluster no longer accepts our credential. Returns whether its health changed."""
    return _record_loss(cluster_id, Health.AUTH_FAILED, Reason("auth_failed", reason))


def record_findings(cluster_id: UUID, origin: str, found: Sequence[Reason]) -> bool:
    """What `origin` (`inventory`, `access`) holds against the cluster now, in place of all it held before.

    A silent cluster stays silent. Returns whether its health changed.
    """
    with transaction.atomic():
        cluster = lock_cluster(cluster_id)
        if cluster is None:
            return False
        reasons = merged(cluster.reasons, origin, found)
        if reasons == cluster.reasons:
            return False
        silent = cluster.health in (Health.UNREACHABLE, Health.AUTH_FAILED)
        return _settle(cluster, cluster.health if silent else answering_health(reasons), reasons, {})


def record_device_access(cluster_id: UUID, refusal: str) -> bool:
    """The cluster lets us see its devices that are claimed (empty), or in what words it does not.

    Returns whether its health changed.
    """
    return record_findings(cluster_id, "devices", device_findings(refusal))


def record_size(cluster_id: UUID, told: str) -> bool:
    """The cluster says no more than the gateway keeps of one (empty), or in what way it does.

    Returns whether its health changed.
    """
    return record_findings(cluster_id, "size", size_findings(told))


def record_creates(cluster_id: UUID, refusal: str) -> bool:
    """The cluster creates what jobs need (empty), or in what words it fails to, again and again.

    Returns whether its health changed.
    """
    return record_findings(cluster_id, "creates", creates_findings(refusal))


def record_event(cluster_id: UUID, kind: str, message: str) -> None:
    """One line in the cluster's history."""
    told = "".join(letter if letter.isprintable() else " " for letter in message[:2000])
    ClusterEvent.objects.create(cluster_id=cluster_id, at=Now(), kind=kind, message=told)


def record_lie(cluster_id: UUID, fault: str, message: str) -> None:
    """An event of security: the cluster reported what cannot be. At most one of a fault an hour, however much it reports."""
    record_limited(cluster_id, f"security.{fault}", message)


def record_limited(cluster_id: UUID, kind: str, message: str) -> None:
    """One line in the cluster's history, unless it has one of this kind of the last hour."""
    known = ClusterEvent.objects.filter(cluster_id=cluster_id, kind=kind, at__gt=Now() - LIMITED_TO_ONE_IN)
    if not known.exists():
        record_event(cluster_id, kind, message)


def _record_loss(cluster_id: UUID, health: str, reason: Reason) -> bool:
    with transaction.atomic():
        cluster = lock_cluster(cluster_id)
        if cluster is None:
            return False
        reasons = merged(cluster.reasons, "contact", [reason])
        if health == cluster.health and reasons == cluster.reasons:
            return False
        return _settle(cluster, health, reasons, {"silent_since": cluster.silent_since or Now()})


def _settle(cluster: Cluster, health: str, reasons: Sequence[Mapping[str, str]], changes: Mapping[str, Any]) -> bool:
    """Writes the new state of a locked cluster; an event only when its health or the kinds of reasons changed."""
    changed = health != cluster.health
    codes_changed = {reason["code"] for reason in reasons} != {reason["code"] for reason in cluster.reasons}
    Cluster.objects.filter(id=cluster.id).update(health=health, reasons=list(reasons), updated_at=Now(), **changes)
    if changed or codes_changed:
        told = " ".join(reason["message"] for reason in reasons)
        record_event(cluster.id, f"health.{health}", told or "The cluster answers and has no problems.")
    if changed:
        announce("cycle", "observe")
    return changed
