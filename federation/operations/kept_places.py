"""Keeps the place of a failed attempt for the restart of its job (`then: again_here`), and ends that.

It only keeps others away: the restart still begins only after nothing is left of the failed attempt. A place has a latest end from
its beginning, by the database's clock, whether a process ends it or not (`queries.kept_places`).
"""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from django.db import connection, transaction

import quotas.operations
from federation.models import Job, JobEvent
from federation.models.kept_places import CLEARED_WITHIN_SECONDS
from federation.queries.kept_places import DEVICE_PATTERN, STANDING, load_kept_places
from foundation import clock
from foundation.rows import insert_rows
from placement.cycle.cycle import Cycle
from placement.values.decisions import Placement
from placement.values.model import Snapshot
from quotas.operations import Idle

# Nodes are closed whole. Those of which the attempt used less than half are not: so what a tenant keeps is at most twice what it held.
BEGIN = """
INSERT INTO federation_keptplace (attempt_id, job_id, cluster_id, nodes, amounts, since_at, until_at, outcome)
SELECT attempt.id, attempt.job_id, attempt.cluster_id, place.nodes, coalesce(hold.amounts, '{}'), statement_timestamp(),
       statement_timestamp() + make_interval(secs => %(seconds)s), ''
  FROM federation_attempt AS attempt
  LEFT JOIN quotas_hold AS hold ON hold.holder_id = attempt.id AND hold.state = 'pending'
 CROSS JOIN LATERAL (
    SELECT jsonb_agg(used.node ORDER BY used.node) AS nodes FROM (
        SELECT each.node, sum(each.pods * object.gpu_units) AS units, sum(each.pods * object.cpu_millicores) AS cores
          FROM federation_remoteobject AS object
         CROSS JOIN LATERAL (
            SELECT latest.node, 1 AS pods FROM (
                SELECT DISTINCT ON (pod.index) pod.node, pod.phase FROM federation_podrun AS pod
                 WHERE pod.attempt_id = attempt.id AND pod.position = object.position AND pod.node <> ''
                 ORDER BY pod.index, pod.id DESC) AS latest
             WHERE latest.phase <> 'Succeeded'
             UNION ALL
            SELECT assumed.key, assumed.value::int FROM jsonb_each_text(object.assumed_nodes) AS assumed
             WHERE object.pods > (SELECT count(*) FROM federation_podrun AS pod
                                   WHERE pod.attempt_id = attempt.id AND pod.position = object.position AND pod.node <> '')) AS each
         WHERE object.attempt_id = attempt.id GROUP BY each.node) AS used
      JOIN clusters_node AS node ON node.cluster_id = attempt.cluster_id AND node.name = used.node
     WHERE CASE WHEN used.units = 0 THEN 2 * used.cores >= node.cpu_millicores
                ELSE 2 * used.units >= (SELECT coalesce(sum((device ->> 'units')::int), 0) FROM jsonb_array_elements(node.devices) AS device)
           END) AS place
 WHERE attempt.id = %(attempt)s AND attempt.finished_at IS NULL AND place.nodes IS NOT NULL
ON CONFLICT DO NOTHING
"""
END_EARLIER = """
UPDATE federation_keptplace AS place SET ended_at = greatest(statement_timestamp(), place.since_at), outcome = 'placed'
  FROM federation_attempt AS attempt
 WHERE attempt.id = %(attempt)s AND place.job_id = attempt.job_id AND place.attempt_id <> attempt.id AND place.ended_at IS NULL
RETURNING place.attempt_id
"""
END = f"""
UPDATE federation_keptplace AS place SET ended_at = greatest(statement_timestamp(), place.since_at), outcome = standing.outcome
  FROM ({STANDING}) AS standing
 WHERE place.attempt_id = standing.attempt_id AND place.ended_at IS NULL AND standing.outcome <> ''
RETURNING place.job_id, place.attempt_id, standing.outcome, jsonb_array_length(place.nodes), standing.cluster, standing.until
"""
WHY = {
    "given_up": "was kept for its restart until {until:%d %b %H:%M:%S} UTC; it could not start there in time, and the place is open to others.",
    "unusable": "is not kept for its restart any more: a node of it, or its cluster, does not take the job now.",
}


def keep_places(seconds: Mapping[UUID, int]) -> None:
    """From now on the places of these attempts are kept for their jobs, while the attempts are cleared away and for these
    seconds afterwards. A place that is kept already remains as it is. The caller holds the locks of the attempts.
    """
    with connection.cursor() as cursor:
        for attempt_id, wanted in sorted(seconds.items()):
            asked: dict[str, Any] = {"attempt": attempt_id, "seconds": CLEARED_WITHIN_SECONDS + wanted}
            cursor.execute(END_EARLIER, asked)
            if earlier := [row[0] for row in cursor.fetchall()]:
                quotas.operations.end_idle(earlier)
            cursor.execute(BEGIN, asked)


def end_places() -> int:
    """The number of places that ended: the job was placed or does not start there any more, the time has passed, or a node
    cannot be used.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(END, {"now": clock.database_now(), "devices": DEVICE_PATTERN})
        ended = cursor.fetchall()
        if ended:
            quotas.operations.end_idle([row[1] for row in ended])
        insert_rows(
            [
                JobEvent(
                    job_id=job_id,
                    attempt_id=attempt_id,
                    kind="kept_place_ended",
                    message=f"Its place ({nodes} node{'' if nodes == 1 else 's'} of {cluster}) {WHY[outcome].format(until=until)}",
                )
                for job_id, attempt_id, outcome, nodes, cluster, until in ended
                if outcome in WHY
            ]
        )
    return len(ended)


def beside_new_places(placements: Sequence[Placement], snapshot: Snapshot) -> list[Placement]:
    """Those of the placements that use no node of a place that is kept for another job since the snapshot."""
    known = {claim.id for claim in snapshot.claims}
    new = [one for one in load_kept_places(clock.database_now()) if one.id not in known]
    kept: dict[tuple[UUID, str], UUID] = {(one.cluster_id, node): one.job_id for one in new for node in one.nodes}
    return [
        one
        for one in placements
        if all(
            kept.get((one.cluster_id, node), one.job_id) == one.job_id for pods in one.pod_sets for node in pods.nodes
        )
    ]


def idle_in_places(snapshot: Snapshot, cycle: Cycle) -> dict[UUID, Idle]:
    """What is idle in kept places after a cycle, with the tenants that it counts for, by the ids of the attempts."""
    idle = cycle.idle_places()
    claims = [claim for claim in snapshot.claims if claim.id in idle]
    tenants = dict(Job.objects.filter(id__in=[claim.job_id for claim in claims]).values_list("id", "tenant_id"))
    return {claim.id: Idle(tenants[claim.job_id], idle[claim.id], claim.until_at) for claim in claims}
