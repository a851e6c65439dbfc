"""Reports of observers and probes about a cluster: each is one short transaction, and writes an event only
on change.
"""

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
    services_findings,
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
    observed_seconds_ago: float | None = None,
) -> bool:
    """Records that the cluster responded with its own identity, which ends any silence. `clock_skew_ms` is its clock
    minus ours, None if not measured, and `origin` is our clock's `monotonic_origin` at that time, None for now.
    `has_kueue` is None if not checked. `observed_seconds_ago`: the seconds at this call since the watches of nodes and pods
    last both returned data; a time on the caller's own clock, which may be wrong, would say nothing.

    Returns whether its health changed. Unknown or removed clusters are ignored.
    """
    called_at = monotonic()
    with transaction.atomic(savepoint=False):  # the observer's pulse of each cluster: every round trip counts
        cluster = lock_cluster(cluster_id)
        if cluster is None:
            return False
        at = database_now()
        reasons = merged(cluster.reasons, "contact", [])
        changes: dict[str, Any] = {"last_seen_at": Now(), "silent_since": None}
        if clock_skew_ms is not None:
            reasons = merged(reasons, "clock", clock_findings(clock_skew_ms))
            changes["clock_skew_ms"] = clock_skew_ms
            changes["clock_eras"] = _eras_after(cluster, clock_skew_ms, origin or monotonic_origin(), at)
        if observed_seconds_ago is not None:
            # The wait for the lock counts: what changed in the cluster since the call is not known here.
            changes["observed_at"] = at - timedelta(seconds=observed_seconds_ago + monotonic() - called_at)
        if kubernetes_version:
            changes["kubernetes_version"] = kubernetes_version[:40]
        if has_kueue is not None:
            changes["has_kueue"] = has_kueue
        return _settle(cluster, answering_health(reasons), reasons, changes)


def _eras_after(cluster: Cluster, clock_skew_ms: int, origin: datetime, at: datetime) -> list[Mapping[str, Any]]:
    """The eras with this measurement against the database's clock, on which it is now `at`: the measuring process' own
    clock may be wrong, and may have been set since.
    """
    here = origin + timedelta(seconds=monotonic())
    against_ours = clock_skew_ms + round((here - at).total_seconds() * 1000)
    return [era.as_json() for era in measured(eras_of(cluster.clock_eras), against_ours, at)]


def record_silence(cluster_id: UUID, reason: str, *, code: str = "unreachable") -> bool:
    """Records that the cluster did not respond, or (code `identity_changed`) that another one responded in its place.

    Returns whether its health changed.
    """
    return _record_loss(cluster_id, Health.UNREACHABLE, Reason(code, reason))


def record_auth_failure(cluster_id: UUID, reason: str) -> bool:
    """Records that the cluster no longer accepts our credential. Returns whether its health changed."""
    return _record_loss(cluster_id, Health.AUTH_FAILED, Reason("auth_failed", reason))


def record_findings(cluster_id: UUID, origin: str, found: Sequence[Reason]) -> bool:
    """Replaces all findings of `origin` (`inventory`, `access`) against the cluster.

    A silent cluster remains silent. Returns whether its health changed.
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
    """Records whether the cluster allows access to its claimable devices (empty), or its refusal message.

    Returns whether its health changed.
    """
    return record_findings(cluster_id, "devices", device_findings(refusal))


def record_size(cluster_id: UUID, told: str) -> bool:
    """Records whether the cluster's data is within the gateway's limit per cluster (empty), or how it exceeds it.

    Returns whether its health changed.
    """
    return record_findings(cluster_id, "size", size_findings(told))


def record_creates(cluster_id: UUID, refusal: str) -> bool:
    """Records whether the cluster creates what jobs need (empty), or the message of its repeated failure.

    Returns whether its health changed.
    """
    return record_findings(cluster_id, "creates", creates_findings(refusal))


def record_services(cluster_id: UUID, refusal: str) -> bool:
    """Records whether the cluster lets the gateway make the Services of gangs (empty), or how it denies them.

    Returns whether its health changed.
    """
    return record_findings(cluster_id, "services", services_findings(refusal))


def record_comparison(cluster_id: UUID, found: Sequence[Reason]) -> bool:
    """Replaces what the comparison of the cluster's objects with the rows found suspicious, each also one line in the
    cluster's history in an hour.

    Returns whether its health changed.
    """
    for reason in found:
        record_limited(cluster_id, reason.code, reason.message)
    return record_findings(cluster_id, "comparison", found)


def record_event(cluster_id: UUID, kind: str, message: str) -> None:
    """One line in the cluster's history."""
    told = "".join(letter if letter.isprintable() else " " for letter in message[:2000])
    ClusterEvent.objects.create(cluster_id=cluster_id, at=Now(), kind=kind, message=told)


def record_lie(cluster_id: UUID, fault: str, message: str) -> None:
    """A security event: the cluster reported something impossible. At most one per kind of fault and hour."""
    record_limited(cluster_id, f"security.{fault}", message)


def record_limited(cluster_id: UUID, kind: str, message: str) -> None:
    """One line in the cluster's history, unless the last hour already has one of this kind."""
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
    """Writes the new state of a locked cluster; an event only if its health or the kinds of reasons changed."""
    changed = health != cluster.health
    codes_changed = {reason["code"] for reason in reasons} != {reason["code"] for reason in cluster.reasons}
    Cluster.objects.filter(id=cluster.id).update(health=health, reasons=list(reasons), updated_at=Now(), **changes)
    if changed or codes_changed:
        told = " ".join(reason["message"] for reason in reasons)
        record_event(cluster.id, f"health.{health}", told or "The cluster answers and has no problems.")
    if changed:
        announce("cycle", "observe")
    return changed
