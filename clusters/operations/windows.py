"""Makes and cancels maintenance windows. They begin and end by their times; the room above stops what has to stop."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models.functions import Now

from clusters.locks import lock_cluster, lock_window
from clusters.models import Cluster, Flavor, MaintenanceWindow, Node
from clusters.queries.visible import cluster_by_id, require_at_owner
from clusters.queries.windows import scope_text, window_by_id
from foundation.clock import database_now
from foundation.outbox import announce
from foundation.plain_json import instant
from foundation.problems import Conflict, FieldError, Invalid, NotFound
from tenancy.operations import record_audit
from tenancy.queries import Actor

from .health import record_event

MOST_NODES = 500
"""The most nodes of a window that does not concern the whole cluster: their names go into every object there."""
MOST_OPEN = 100
"""The most windows of a cluster that have not ended."""
SHORTEST, LONGEST, FURTHEST = timedelta(minutes=1), timedelta(days=90), timedelta(days=366)
MOST_UNKNOWN_TOLD = 10


@dataclass(frozen=True, slots=True)
class WantedWindow:
    """A window to make: of the whole cluster, of `nodes`, or of the nodes that offer a `flavor`. Without `starts_at` it
    begins now.
    """

    ends_at: datetime
    reason: str
    starts_at: datetime | None = None
    nodes: tuple[str, ...] = ()
    flavor: str = ""
    drain: bool = False


def make_window(actor: Actor, cluster_id: UUID, wanted: WantedWindow) -> MaintenanceWindow:
    """The new window. The actor must manage the cluster.

    Raises NotFound and NotAllowedHere (cluster), Invalid with every field at fault, Conflict `too_many_windows`.
    """
    cluster = cluster_by_id(actor, cluster_id)
    require_at_owner(actor, cluster)
    now = database_now()
    starts_at = wanted.starts_at or now
    errors = [*_faults_of_times(starts_at, wanted.ends_at, now), *_faults_of_scope(cluster, wanted)]
    if errors:
        raise Invalid(errors=errors)
    with transaction.atomic():
        if lock_cluster(cluster_id) is None:
            raise NotFound
        kept = MaintenanceWindow.objects.filter(cluster_id=cluster_id, cancelled_at=None, ends_at__gt=Now())
        if kept.count() >= MOST_OPEN:
            told = f"{cluster.name} has {MOST_OPEN} maintenance windows that have not ended. Cancel one first."
            raise Conflict(told, code="too_many_windows")
        row = MaintenanceWindow.objects.create(
            cluster_id=cluster_id,
            starts_at=starts_at,
            ends_at=wanted.ends_at,
            nodes=sorted(set(wanted.nodes)),
            flavor=wanted.flavor,
            reason=wanted.reason,
            drain=wanted.drain,
            created_by=actor.name[:300],
        )
        _record(actor, "maintenance.create", cluster, row)
        until = f"from {_minute(starts_at)} until {_minute(row.ends_at)}"
        told = f"Maintenance of {scope_text(row.nodes, row.flavor)} {until}, by {actor.name}: {row.reason}"
        record_event(cluster_id, "cluster.maintenance_planned", told)
    return window_by_id(actor, cluster_id, row.id)


def cancel_window(actor: Actor, cluster_id: UUID, window_id: UUID) -> MaintenanceWindow:
    """The window, cancelled: jobs use its nodes again. Harmless if it is cancelled already.

    Raises NotFound, NotAllowedHere, and Conflict `state_conflict` if it has ended.
    """
    cluster = cluster_by_id(actor, cluster_id)
    require_at_owner(actor, cluster)
    with transaction.atomic():
        row = lock_window(cluster_id, window_id)
        if row is None:
            raise NotFound
        if row.cancelled_at is None:
            still = MaintenanceWindow.objects.filter(id=window_id, cancelled_at=None, ends_at__gt=Now())
            if not still.update(cancelled_at=Now(), cancelled_by=actor.name[:300]):
                raise Conflict("The maintenance window has ended.", code="state_conflict")
            _record(actor, "maintenance.cancel", cluster, row)
            told = f"Maintenance of {scope_text(row.nodes, row.flavor)} is cancelled, by {actor.name}."
            record_event(cluster_id, "cluster.maintenance_cancelled", told)
    return window_by_id(actor, cluster_id, window_id)


def _faults_of_times(starts_at: datetime, ends_at: datetime, now: datetime) -> list[FieldError]:
    if starts_at < now:
        return [FieldError("starts_at", "in_the_past", "is in the past; leave it out to begin now")]
    if starts_at > now + FURTHEST:
        return [FieldError("starts_at", "out_of_range", f"can be at most {FURTHEST.days} days ahead")]
    if not SHORTEST <= ends_at - starts_at <= LONGEST:
        return [FieldError("ends_at", "out_of_range", f"must be 1 minute to {LONGEST.days} days after starts_at")]
    return []


def _faults_of_scope(cluster: Cluster, wanted: WantedWindow) -> list[FieldError]:
    if wanted.nodes and wanted.flavor:
        return [FieldError("flavor", "conflict", "give nodes or a flavor, not both")]
    if wanted.flavor:
        return _faults_of_flavor(cluster, wanted.flavor)
    names = sorted(set(wanted.nodes))
    if len(names) > MOST_NODES:
        return [FieldError("nodes", "too_many_nodes", f"at most {MOST_NODES}; leave it out for the whole cluster")]
    known = set(Node.objects.filter(cluster=cluster, name__in=names).values_list("name", flat=True))
    unknown = [name for name in names if name not in known][:MOST_UNKNOWN_TOLD]
    return [FieldError("nodes", "not_found", f"the cluster has no node {name[:100]}") for name in unknown]


def _faults_of_flavor(cluster: Cluster, flavor: str) -> list[FieldError]:
    if not Flavor.objects.filter(cluster=cluster, name=flavor).exists():
        return [FieldError("flavor", "unknown_flavor", f"the cluster has no flavor {flavor[:100]}")]
    offering = Node.objects.filter(cluster=cluster, devices__contains=[{"flavor": flavor}])
    if offering[: MOST_NODES + 1].count() > MOST_NODES:
        told = f"more than {MOST_NODES} nodes offer it; leave it out for the whole cluster"
        return [FieldError("flavor", "too_many_nodes", told)]
    return []


def _minute(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"


def _record(actor: Actor, action: str, cluster: Cluster, row: MaintenanceWindow) -> None:
    """The audit entry; and a wake-up: rounds place by other windows, and sweeps stop what has to stop."""
    detail: dict[str, Any] = {
        "cluster": cluster.name,
        "starts_at": instant(row.starts_at),
        "ends_at": instant(row.ends_at),
        "nodes": row.nodes,
        "flavor": row.flavor,
        "reason": row.reason,
        "drain": row.drain,
    }
    owner_id = cluster.owner_id
    record_audit(actor, action, object_kind="maintenance_window", object_id=row.id, tenant_id=owner_id, detail=detail)
    announce("cycle", "sweep")
