"""What must hold of moves: a job does not return immediately, and goes where its user asked."""

from typing import TYPE_CHECKING

from .judges import judging

if TYPE_CHECKING:
    from .world import World


@judging
def a_moved_job_goes_where_it_was_asked_to_go(world: "World") -> list[str]:
    """For ten minutes after its run has ended, a moved job is not placed where it was, nor on a cluster that its user did
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
   AND (next.cluster_id = attempt.cluster_id
        OR move.clusters <> '{}' AND NOT next.cluster_id = ANY(move.clusters))
 ORDER BY 1
"""


@judging
def each_move_gets_one_event(world: "World") -> list[str]:
    """A run that was stopped to be moved has one decision, and the timeline of its job one event about it."""
    return [f"attempt {attempt} has {count} events" for attempt, count in world.watch.rows(EVENTS)]


EVENTS = """
SELECT attempt.id, count(event.id)
  FROM federation_attempt AS attempt
  LEFT JOIN federation_move AS move ON move.attempt_id = attempt.id
  LEFT JOIN federation_jobevent AS event
    ON event.attempt_id = attempt.id AND event.kind = 'interrupted' AND event.message LIKE 'Moved %%'
 WHERE attempt.stop_reason = 'migrated' OR move.attempt_id IS NOT NULL
 GROUP BY attempt.id, move.attempt_id HAVING count(event.id) <> 1 OR move.attempt_id IS NULL ORDER BY 1
"""
