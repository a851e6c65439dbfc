"""The places of failed attempts that are kept for a restart of their jobs: as a cycle reads them, and as people see them."""

import json
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import connection

from federation.engine.failures.facts import DEVICE_TEXTS
from foundation import clock
from placement.values.preemption import Leaving, RoomClaim

AGAIN_HERE = "again_here"
"""The kind of their claims."""
DEVICE_PATTERN = "|".join(DEVICE_TEXTS)
STANDING = """
SELECT place.attempt_id, place.job_id, place.cluster_id, cluster.name AS cluster, place.nodes::text AS nodes, kept.until,
       place.amounts::text AS amounts, tenant.path, tenant.id AS tenant_id, hold.cluster_name AS held_on, hold.amounts::text AS held,
       place.since_at, attempt.finished_at + make_interval(secs => diagnosis.wait_seconds) AS needed_at,
       CASE WHEN job.attempts_made > attempt.number THEN 'placed'
            WHEN job.state IN ('cancelling', 'cancelled', 'suspended', 'succeeded', 'failed') OR job.suspend_requested_at IS NOT NULL
                 OR diagnosis.attempt_id IS NULL
                 OR diagnosis.judged_at IS NOT NULL AND diagnosis.step <> 'again_here' THEN 'withdrawn'
            WHEN kept.until <= %(now)s THEN 'given_up'
            WHEN cluster.wish <> 'open' OR cluster.removed_at IS NOT NULL
                 OR EXISTS (SELECT FROM federation_retrybrake AS brake
                             WHERE brake.ended_at IS NULL AND coalesce(brake.cluster_id, place.cluster_id) = place.cluster_id)
                 OR EXISTS (
                    SELECT FROM jsonb_array_elements_text(place.nodes) AS wanted(name)
                      LEFT JOIN clusters_node AS node ON node.cluster_id = place.cluster_id AND node.name = wanted.name
                     WHERE node.id IS NULL OR NOT node.is_ready OR NOT node.is_schedulable
                        OR EXISTS (SELECT FROM clusters_avoidednode AS bad
                                    WHERE bad.cluster_id = node.cluster_id AND bad.uid = node.uid
                                      AND bad.ended_at IS NULL AND bad.until_at > %(now)s)
                        OR EXISTS (SELECT FROM jsonb_array_elements(node.taints) AS taint
                                    WHERE concat_ws('=', taint ->> 'key', taint ->> 'value') ~* %(devices)s)) THEN 'unusable'
            ELSE '' END AS outcome
  FROM federation_keptplace AS place
  JOIN federation_attempt AS attempt ON attempt.id = place.attempt_id
  JOIN federation_job AS job ON job.id = place.job_id
  JOIN tenancy_tenant AS tenant ON tenant.id = job.tenant_id
  JOIN clusters_cluster AS cluster ON cluster.id = place.cluster_id
  LEFT JOIN federation_diagnosis AS diagnosis ON diagnosis.attempt_id = place.attempt_id
  LEFT JOIN quotas_hold AS hold ON hold.holder_id = place.attempt_id AND hold.state = 'pending'
 CROSS JOIN LATERAL federation_place_until(place.attempt_id, place.until_at) AS kept(until)
 WHERE place.ended_at IS NULL
"""
PLACES = f"""
SELECT attempt_id, job_id, cluster_id, cluster, nodes, until, amounts, path, coalesce(held_on, cluster), coalesce(held, '{{}}'),
       needed_at FROM ({STANDING}) AS standing WHERE outcome = '' ORDER BY 1
"""
SHOWN = """
SELECT cluster.name, place.nodes::text, federation_place_until(place.attempt_id, place.until_at),
       place.ended_at IS NULL, place.outcome
  FROM federation_keptplace AS place JOIN clusters_cluster AS cluster ON cluster.id = place.cluster_id
 WHERE place.attempt_id = %s
"""


def load_kept_places(now: datetime) -> tuple[RoomClaim, ...]:
    """The places that are kept at this time, as claims whose ids are those of the failed attempts. One query.

    What a place holds of quota counts until its attempt is settled; then what it keeps counts instead.
    """
    with connection.cursor() as cursor:
        cursor.execute(PLACES, {"now": now, "devices": DEVICE_PATTERN})
        return tuple(
            RoomClaim(
                attempt_id,
                job_id,
                cluster_id,
                cluster_name,
                tuple(json.loads(nodes)),
                until,
                0,
                amounts=json.loads(amounts),
                kind=AGAIN_HERE,
                leaving=Leaving(path, held_on, json.loads(held)),
                needed_at=needed_at,
            )
            for attempt_id, job_id, cluster_id, cluster_name, nodes, until, amounts, path, held_on, held, needed_at
            in cursor.fetchall()
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class PlaceView:
    """A kept place as people see it. `outcome` is empty while it is kept."""

    cluster: str
    nodes: tuple[str, ...]
    until: datetime
    is_kept: bool
    outcome: str

    @property
    def nodes_text(self) -> str:
        """Such as `2 nodes of east`."""
        count = len(self.nodes)
        return f"{count} node{'' if count == 1 else 's'} of {self.cluster}"


def place_of(attempt_id: UUID) -> PlaceView | None:
    """What is or was kept of the attempt. A place of which no cycle has written the end yet is not shown as kept."""
    with connection.cursor() as cursor:
        cursor.execute(SHOWN, [attempt_id])
        row = cursor.fetchone()
    if row is None:
        return None
    cluster, nodes, until, is_open, outcome = row
    is_kept = is_open and any(one.id == attempt_id for one in load_kept_places(clock.database_now()))
    return PlaceView(cluster, tuple(json.loads(nodes)), until, is_kept, outcome)
