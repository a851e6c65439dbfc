"""Maintenance windows as placement sees them, and the attempts that have to stop for them."""

from collections.abc import Collection
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from django.db import connection

from clusters.queries.windows import open_windows, windowed_clusters
from federation.engine.lifecycle import AttemptState
from federation.models import IS_LIVE
from federation.queries.attested import LACKS_MANY
from placement.cycle.timeline import instant_text
from placement.values.maintenance import STOPPING, MaintenanceWindow
from placement.values.reason_codes import ReasonCode

NEVER_RELEASED = [AttemptState.RESERVED.value, AttemptState.CREATED.value]
UNSTARTED = [*NEVER_RELEASED, AttemptState.STARTING.value]


def load_windows(now: datetime) -> tuple[MaintenanceWindow, ...]:
    """The maintenance windows that have not ended, the earliest first. One query."""
    return tuple(MaintenanceWindow(*row) for row in open_windows(now))


class Meeting(NamedTuple):
    """An attempt that has to stop for a maintenance window: it has not started, or the window stops what runs."""

    attempt_id: UUID
    has_begun: bool
    """Whether it may run: else it is a recall, which its pods may refute."""
    cluster: str
    starts_at: datetime
    ends_at: datetime
    why: str
    now: datetime

    @property
    def reason(self) -> ReasonCode:
        """With which it is stopped."""
        return ReasonCode.MAINTENANCE_BEGAN if self.has_begun else ReasonCode.MAINTENANCE_AHEAD

    @property
    def message(self) -> str:
        """`Maintenance on north lasts until 14:20 UTC: kernel update`."""
        if self.starts_at > self.now:
            when = f"begins {instant_text(self.starts_at, self.now)}"
        else:
            when = f"lasts until {instant_text(self.ends_at, self.now)}"
        return f"Maintenance on {self.cluster} {when}: {self.why.rstrip('.')}"


MEETINGS = f"""
SELECT DISTINCT ON (attempt.id) attempt.id, has.begun, cluster.name, planned.starts_at, planned.ends_at, planned.reason, now()
  FROM federation_attempt AS attempt
  JOIN clusters_cluster AS cluster ON cluster.id = attempt.cluster_id
 CROSS JOIN LATERAL (SELECT attempt.state <> ALL(%(unstarted)s)
                            OR EXISTS (SELECT FROM federation_podrun AS pod
                                        WHERE pod.attempt_id = attempt.id AND pod.started_at IS NOT NULL)) AS has(begun)
 CROSS JOIN LATERAL federation_windows_met(
           attempt.id, now(), CASE WHEN attempt.state = ANY(%(unreleased)s) THEN %(stopping)s::double precision END) AS met
  JOIN clusters_maintenancewindow AS planned ON planned.id = met.window_id
 WHERE (attempt.cluster_id = ANY(%(draining)s::uuid[]) AND attempt.state {IS_LIVE}
        OR attempt.cluster_id = ANY(%(windowed)s::uuid[]) AND attempt.state = ANY(%(unstarted)s))
   AND attempt.stop_requested_at IS NULL AND (attempt.state = ANY(%(unreleased)s) OR NOT {LACKS_MANY})
   AND (%(only)s::uuid[] IS NULL OR attempt.id = ANY(%(only)s::uuid[]))
   AND (NOT has.begun OR planned.drain AND planned.starts_at <= now())
 ORDER BY attempt.id, planned.starts_at, planned.id
"""


def meetings(only: Collection[UUID] | None = None) -> list[Meeting]:
    """The live attempts, or those of `only`, that have to stop for a window and have no stop request yet. Nothing released on a
    cluster that lacks too many objects.

    One query while no cluster has a window, else two.
    """
    clusters = windowed_clusters()
    if not clusters:
        return []
    asked: dict[str, Any] = {
        "unstarted": UNSTARTED,
        "unreleased": NEVER_RELEASED,
        "windowed": list(clusters),
        "draining": [cluster_id for cluster_id, drains in clusters.items() if drains],
        "stopping": STOPPING.total_seconds(),
        "only": None if only is None else list(only),
    }
    with connection.cursor() as cursor:
        cursor.execute(MEETINGS, asked)
        return [Meeting(*row) for row in cursor.fetchall()]
