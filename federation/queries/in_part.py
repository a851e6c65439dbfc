"""Attempts that run and are not whole: which of their pods wait for a node, or were not seen (`engine.in_part`)."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from django.db import connection

from federation.engine.in_part import IN_PART, Absence, Part, Size, Wait
from federation.queries.claimed_attempts import ClaimedAttempt
from foundation.clock import database_now
from placement.values.reason_codes import ReasonCode

MOST = 1000
"""The number of attempts that one sweep reads."""
INCOMPLETE = f"""
WITH found AS (
    SELECT attempt_id AS id FROM federation_podrun
     WHERE node = '' AND started_at IS NULL AND finished_at IS NULL AND NOT is_gone
     UNION
    SELECT attempt.id FROM federation_attempt AS attempt JOIN federation_job AS job ON job.id = attempt.job_id
     WHERE attempt.state = 'running' AND job.reason_code = '{ReasonCode.RUNS_IN_PART.value}'
     UNION
    SELECT attempt.id FROM federation_attempt AS attempt
      JOIN federation_remoteobject AS object ON object.attempt_id = attempt.id AND object.outcome = '' AND object.pods > 1
     CROSS JOIN LATERAL (
           SELECT count(*) FILTER (WHERE pod.finished_at IS NOT NULL OR NOT pod.is_gone) AS pods FROM federation_podrun AS pod
            WHERE pod.attempt_id = attempt.id AND pod.position = object.position) AS known
     WHERE attempt.state = 'running' AND attempt.started_at > now() - interval '1 hour' AND known.pods < object.pods
)
SELECT attempt.id, attempt.job_id, attempt.in_part_asked_at, job.reason_message
  FROM found JOIN federation_attempt AS attempt ON attempt.id = found.id
  JOIN clusters_cluster AS cluster ON cluster.id = attempt.cluster_id AND cluster.silent_since IS NULL
  JOIN federation_job AS job ON job.id = attempt.job_id
 WHERE attempt.state = 'running' AND attempt.stop_requested_at IS NULL
 ORDER BY attempt.id LIMIT %s
"""
"""Pods that were never seen are missed in the first hour or not at all: to count the pods of everything that runs would take seconds."""
OBJECTS = """
SELECT object.attempt_id, object.position, object.pods, coalesce(object.completions, object.pods),
       CASE WHEN job.spec -> 'elastic' ->> 'pod_set' = job.spec -> 'pod_sets' -> object.position ->> 'name'
            THEN (job.spec -> 'elastic' ->> 'min_count')::int END,
       attempt.started_at
  FROM federation_remoteobject AS object
  JOIN federation_attempt AS attempt ON attempt.id = object.attempt_id
  JOIN federation_job AS job ON job.id = attempt.job_id
 WHERE object.attempt_id = ANY(%s) AND object.outcome = ''
 ORDER BY object.attempt_id, object.position
"""
PODS = """
SELECT attempt_id, position, index, uid, node <> '' OR started_at IS NOT NULL, started_at IS NOT NULL, finished_at IS NOT NULL,
       is_gone, first_seen_at, observed_at, reason
  FROM federation_podrun WHERE attempt_id = ANY(%s) ORDER BY id
"""


@dataclass(frozen=True, slots=True)
class Incomplete:
    """An attempt that runs, perhaps not as a whole. `asked_at`: when its cluster was last asked whether it is."""

    attempt_id: UUID
    job_id: UUID
    asked_at: datetime | None
    shown: str
    """What its job says now."""
    parts: tuple[Part, ...]


class _Pod(NamedTuple):
    """The columns of PODS, from the uid on."""

    uid: str
    is_placed: bool
    has_started: bool
    has_ended: bool
    is_gone: bool
    first_seen_at: datetime
    observed_at: datetime
    words: str


def incomplete_attempts() -> list[Incomplete]:
    """Those that run in part, and those whose job says so."""
    with connection.cursor() as cursor:
        cursor.execute(INCOMPLETE, [MOST])
        rows = cursor.fetchall()
    parts = parts_of([row[0] for row in rows]) if rows else {}
    return [Incomplete(id_, job_id, asked_at, shown, parts.get(id_, ())) for id_, job_id, asked_at, shown in rows]


def parts_of(attempt_ids: Collection[UUID]) -> Mapping[UUID, tuple[Part, ...]]:
    """The objects of these attempts that have not ended, with what is known of their pods."""
    ids = list(attempt_ids)
    pods: dict[tuple[UUID, int], dict[int, list[_Pod]]] = defaultdict(lambda: defaultdict(list))
    found: dict[UUID, tuple[Part, ...]] = {}
    with connection.cursor() as cursor:
        cursor.execute(PODS, [ids])
        for attempt_id, position, index, *row in cursor.fetchall():
            pods[attempt_id, position][index].append(_Pod._make(row))
        cursor.execute(OBJECTS, [ids])
        for attempt_id, position, count, indices, fewest, started_at in cursor.fetchall():
            size = Size(count, min(fewest or count, count), indices)
            part = _part(position, size, pods[attempt_id, position], started_at)
            found[attempt_id] = (*found.get(attempt_id, ()), part)
    return found


def with_overdue(claimed: list[ClaimedAttempt]) -> list[ClaimedAttempt]:
    """The attempts; those that were recalled because they started in part with what has waited for too long."""
    in_part = [one.id for one in claimed if one.stop_reason in IN_PART]
    if not in_part:
        return claimed
    now, parts = database_now(), parts_of(in_part)
    found = {id_: {part.position: part.overdue(now) for part in parts.get(id_, ())} for id_ in in_part}
    return [replace(one, overdue=found.get(one.id, {})) for one in claimed]


def _part(position: int, size: Size, by_index: Mapping[int, Sequence[_Pod]], started_at: datetime) -> Part:
    present = {index: pod for index, pods in by_index.items() if (pod := _present(pods)) is not None}
    ended = {index for index, pods in by_index.items() if index not in present and any(pod.has_ended for pod in pods)}
    waiting = [pod for pod in present.values() if not pod.is_placed]
    missing = () if size.is_queue else sorted(set(range(size.pods)) - present.keys() - ended)
    return Part(
        position,
        size,
        running=sum(pod.has_started for pod in present.values()),
        placed=len(present) - len(waiting),
        ended=len(ended),
        waits=tuple(Wait(pod.uid, pod.first_seen_at, pod.words) for pod in waiting),
        absent=tuple(
            Absence(index, max([started_at, *(pod.observed_at for pod in by_index.get(index, ()))]))
            for index in missing
        ),
    )


def _present(pods: Sequence[_Pod]) -> _Pod | None:
    """The pod of an index that exists and has not ended: the newest, if several seem to."""
    return next((pod for pod in reversed(pods) if not pod.has_ended and not pod.is_gone), None)
