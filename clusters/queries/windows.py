"""Maintenance windows: for placement, for those who read the API, and for the page of their cluster."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from django.db import connection
from django.db.models import F, QuerySet

from clusters.models import MaintenanceWindow
from foundation.clock import database_now
from foundation.problems import Invalid, NotFound
from tenancy.queries import Actor

from .visible import cluster_by_id

STATES = ("scheduled", "active", "ended", "cancelled")
PAST_SHOWN = 10
MOST_NAMED = 4
"""Of more nodes than these, only the number is shown."""


class OpenWindow(NamedTuple):
    """A window that has not ended. Of a part of its cluster it has the names of the nodes; those of a flavor as they are
    now.
    """

    id: UUID
    cluster_id: UUID
    cluster: str
    starts_at: datetime
    until_at: datetime
    is_whole: bool
    nodes: tuple[str, ...]


OPEN = """
SELECT planned.id, planned.cluster_id, cluster.name, planned.starts_at, planned.ends_at,
       planned.nodes = '[]' AND planned.flavor = '',
       ARRAY(SELECT jsonb_array_elements_text(planned.nodes)),
       ARRAY(SELECT node.name FROM clusters_node AS node
              WHERE planned.flavor <> '' AND node.cluster_id = planned.cluster_id
                AND node.devices @> jsonb_build_array(jsonb_build_object('flavor', planned.flavor))
              ORDER BY node.name)
  FROM clusters_maintenancewindow AS planned
  JOIN clusters_cluster AS cluster ON cluster.id = planned.cluster_id AND cluster.removed_at IS NULL
 WHERE planned.cancelled_at IS NULL AND planned.ends_at > %s
 ORDER BY planned.starts_at, planned.id
"""


def open_windows(now: datetime) -> list[OpenWindow]:
    """The windows that have not ended, the earliest first. One query."""
    with connection.cursor() as cursor:
        cursor.execute(OPEN, [now])
        return [OpenWindow._make((*row, (*named, *offering))) for *row, named, offering in cursor.fetchall()]


WINDOWED = """
SELECT cluster_id, bool_or(drain AND starts_at <= now()) FROM clusters_maintenancewindow
 WHERE cancelled_at IS NULL AND ends_at > now() GROUP BY cluster_id
"""


def windowed_clusters() -> Mapping[UUID, bool]:
    """The clusters with windows that have not ended; whether one has begun that drains."""
    with connection.cursor() as cursor:
        cursor.execute(WINDOWED)
        return dict(cursor.fetchall())


def windows_of(actor: Actor, cluster_id: UUID) -> QuerySet[MaintenanceWindow]:
    """The windows of a cluster that the actor may see; else NotFound."""
    return MaintenanceWindow.objects.filter(cluster=cluster_by_id(actor, cluster_id)).select_related("cluster")


def window_by_id(actor: Actor, cluster_id: UUID, window_id: UUID) -> MaintenanceWindow:
    """The window; NotFound if the cluster has none of this id, or the actor may not see the cluster."""
    found = windows_of(actor, cluster_id).filter(id=window_id).first()
    if found is None:
        raise NotFound
    return found


def in_state(rows: QuerySet[MaintenanceWindow], state: str) -> QuerySet[MaintenanceWindow]:
    """The windows in one of STATES; Invalid for another word."""
    now, kept = database_now(), rows.filter(cancelled_at=None)
    if state == "scheduled":
        return kept.filter(starts_at__gt=now)
    if state == "active":
        return kept.filter(starts_at__lte=now, ends_at__gt=now)
    if state == "ended":
        return kept.filter(ends_at__lte=now)
    if state == "cancelled":
        return rows.exclude(cancelled_at=None)
    raise Invalid.field("state", "unknown_value", f"one of: {', '.join(STATES)}")


def state_of(window: MaintenanceWindow, now: datetime) -> str:
    """One of STATES: it follows from the times, so a window begins and ends automatically."""
    if window.cancelled_at is not None:
        return "cancelled"
    if window.ends_at <= now:
        return "ended"
    return "scheduled" if window.starts_at > now else "active"


def scope_text(nodes: list[str], flavor: str) -> str:
    """What a window concerns: `the whole cluster`, `nodes with h100`, `n1, n2`, `40 nodes`."""
    if flavor:
        return f"nodes with {flavor}"
    if not nodes:
        return "the whole cluster"
    return ", ".join(nodes) if len(nodes) <= MOST_NAMED else f"{len(nodes)} nodes"


@dataclass(frozen=True, slots=True)
class WindowLine:
    """A window as its cluster's page shows it."""

    id: UUID
    state: str
    scope: str
    nodes: tuple[str, ...]
    starts_at: datetime
    ends_at: datetime
    reason: str
    drain: bool
    created_by: str
    cancelled_at: datetime | None
    cancelled_by: str

    @property
    def is_open(self) -> bool:
        """Whether it has not ended: it can be cancelled."""
        return self.state in ("scheduled", "active")


def window_lines(cluster_id: UUID) -> tuple[WindowLine, ...]:
    """The windows of a cluster: of now and to come, the earliest first, then the newest of the past."""
    now, rows = database_now(), MaintenanceWindow.objects.filter(cluster_id=cluster_id)
    to_come = rows.filter(cancelled_at=None, ends_at__gt=now).order_by("starts_at", "id")
    past = rows.exclude(cancelled_at=None, ends_at__gt=now).order_by(F("starts_at").desc(), "-id")[:PAST_SHOWN]
    return tuple(_line(one, now) for one in (*to_come, *past))


def _line(one: MaintenanceWindow, now: datetime) -> WindowLine:
    return WindowLine(
        id=one.id,
        state=state_of(one, now),
        scope=scope_text(one.nodes, one.flavor),
        nodes=tuple(one.nodes),
        starts_at=one.starts_at,
        ends_at=one.ends_at,
        reason=one.reason,
        drain=one.drain,
        created_by=one.created_by,
        cancelled_at=one.cancelled_at,
        cancelled_by=one.cancelled_by,
    )
