"""What must hold of moves: a job does not return immediately, goes where its user asked, and the gateway moves only what it may,
for a reason, and seldom.
"""

from typing import TYPE_CHECKING

from .promises import judging

if TYPE_CHECKING:
    from devtools.simulation.worlds.world import World


@judging
def a_moved_job_goes_where_it_was_asked_to_go(world: "World") -> list[str]:
    """For ten minutes after its run has ended, a moved job is not placed where it was (unless a larger job was to fit there, or that is the
    cheapest place again), nor on a cluster that its user did
    not name.
    """
    return [
        f"attempt {attempt} was placed on {cluster}, though the job was moved away from {left} to {named}"
        for attempt, cluster, left, named in world.watch.rows(WRONGLY_PLACED)
    ]


WRONGLY_PLACED = """
SELECT next.id, cluster.name, origin.name, move.clusters::text
  FROM federation_move AS move
  JOIN federation_attempt AS attempt ON attempt.id = move.attempt_id AND attempt.end_reason = 'migrated'
  JOIN clusters_cluster AS origin ON origin.id = attempt.cluster_id
  JOIN federation_attempt AS next ON next.job_id = move.job_id AND next.number = attempt.number + 1
  JOIN clusters_cluster AS cluster ON cluster.id = next.cluster_id
 WHERE next.reserved_at < attempt.finished_at + interval '590 seconds'
   AND (next.cluster_id = attempt.cluster_id AND move.cause NOT IN ('consolidation', 'growth', 'price', 'deadline')
        OR move.clusters <> '{}' AND NOT next.cluster_id = ANY(move.clusters))
 ORDER BY 1
"""


@judging
def each_move_gets_one_event(world: "World") -> list[str]:
    """A run that was stopped to be moved has one decision, and the timeline of its job one event about it. One that
    was withdrawn has both events.
    """
    return [f"attempt {attempt} has {count} events" for attempt, count in world.watch.rows(EVENTS)]


EVENTS = """
SELECT attempt_id, events FROM (
    SELECT attempt.id AS attempt_id, move.attempt_id IS NULL AS has_none,
           (SELECT count(*) FILTER (WHERE kind = 'interrupted' AND message LIKE 'Moved %%') - count(*) FILTER (WHERE kind = 'stays')
              FROM federation_jobevent AS event WHERE event.attempt_id = attempt.id) AS events
      FROM federation_attempt AS attempt
      LEFT JOIN federation_move AS move ON move.attempt_id = attempt.id
     WHERE attempt.stop_reason = 'migrated' OR move.attempt_id IS NOT NULL) AS stopped
 WHERE events <> 1 OR has_none ORDER BY 1
"""


@judging
def the_gateway_moves_only_jobs_that_allow_it_and_for_a_reason(world: "World") -> list[str]:
    """Each of its own moves is of a job with `moves` other than `never`, costs less than staying, and its cause was there: its cluster
    was drained, or a window that drains was planned there.
    """
    return [
        f"the gateway moved attempt {attempt} ({cause}), without a right to"
        for attempt, cause in world.watch.rows(UNWANTED)
    ]


UNWANTED = """
SELECT move.attempt_id, move.cause
  FROM federation_move AS move
  JOIN federation_job AS job ON job.id = move.job_id
  JOIN federation_attempt AS attempt ON attempt.id = move.attempt_id
 WHERE move.cause NOT IN ('user', 'consolidation', 'growth')
   AND (coalesce(job.spec->>'moves', 'never') = 'never' OR move.stay_seconds <= move.cost_seconds
        OR move.cause = 'price' AND (job.spec->>'moves' <> 'when_cheaper' OR move.saving <= move.price_of_move)
        OR move.cause = 'deadline' AND move.late_at <= move.finish_by
        OR move.cause = 'drain' AND NOT EXISTS (
           SELECT FROM tenancy_auditentry AS entry
            WHERE entry.action = 'cluster.drain' AND entry.object_id = attempt.cluster_id::text)
        OR move.cause = 'maintenance' AND NOT EXISTS (
           SELECT FROM clusters_maintenancewindow AS planned
            WHERE planned.cluster_id = attempt.cluster_id AND planned.drain AND planned.starts_at > move.created_at))
 ORDER BY 1
"""


@judging
def the_gateway_lets_a_moved_job_rest(world: "World") -> list[str]:
    """Between any move of a job and the gateway's next one are thirty minutes."""
    return [
        f"attempt {attempt} was moved {seconds} s after another one" for attempt, seconds in world.watch.rows(RESTLESS)
    ]


RESTLESS = """
SELECT move.attempt_id, extract(epoch FROM move.created_at - earlier.created_at)
  FROM federation_move AS move
  JOIN federation_move AS earlier ON earlier.job_id = move.job_id AND earlier.created_at < move.created_at
 WHERE move.cause <> 'user' AND move.created_at < earlier.created_at + interval '30 minutes'
 ORDER BY 1
"""
