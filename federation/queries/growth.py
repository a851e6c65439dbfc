"""What the growth of running elastic jobs reads: which may grow, who waits, and where they would continue with more pods."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import connection

from federation.engine.relocation import MOST_MOVES_A_DAY, REST
from federation.models import Attempt, Job
from federation.queries.attested import LACKS_MANY
from federation.queries.preemption import load_overdrawn, load_run
from federation.queries.queue import QUEUE_DEPTH, requests_again
from federation.queries.quotes import load_state
from federation.queries.reports import progress_view
from federation.queries.runtimes import runtime_of_job
from foundation.clock import database_now
from foundation.host import host
from placement.answers.quotes import Quoter
from placement.fleet.fleet import FleetIndex
from placement.ranking.runtimes import expected_end
from placement.values.decisions import Placement
from placement.values.preemption import RunningJob
from placement.values.reason_codes import ReasonCode
from placement.values.sizes import resized

MOST_RUNS = 50
AGE = timedelta(minutes=30)
"""How long a run lasts at least before it is stopped to grow."""
UNSURE = timedelta(seconds=10)
"""For how long after a job was placed on a cluster no run grows there: what growth was tried on may be older, and the room gone."""
NOT_FOR_ROOM = (
    ReasonCode.WAITING_FOR_QUOTA,
    ReasonCode.WAITING_FOR_USER_LIMIT,
    ReasonCode.WAITING_FOR_CLASS_LIMIT,
    ReasonCode.WAITING_FOR_BUDGET,
    ReasonCode.WAITING_FOR_DATA,
    ReasonCode.WAITING_FOR_RESERVATION,
    ReasonCode.RESERVATION_FULL,
    ReasonCode.RESERVATION_TOO_SHORT,
    ReasonCode.RESERVATION_OVER,
    ReasonCode.HELD_BY_POLICY,
    ReasonCode.SECRET_MISSING,
    ReasonCode.STORAGE_MISSING,
    ReasonCode.NETWORK_MISSING,
)
"""Why jobs wait that could not use free room. In their own organisation they may wait for what a larger run would take."""

HOPELESS = """(job.reason_code = 'waiting_for_capacity' AND jsonb_path_exists(job.explanation, '$.clusters[*]')
    AND NOT jsonb_path_exists(job.explanation, '$.clusters[*] ? (@.is_for_good == false)'))"""
"""The last round found no cluster that could run it, even if it were empty. It waits for other nodes, not for room."""
WANTED = f"""
SELECT EXISTS (SELECT FROM federation_job AS job WHERE state = 'queued' AND reason_code <> ALL(%s) AND {HOPELESS} IS NOT TRUE)
"""
WAITING = f"""
SELECT DISTINCT split_part(tenant.path, '/', 1)
  FROM federation_job AS job JOIN tenancy_tenant AS tenant ON tenant.id = job.tenant_id
 WHERE job.state = 'queued' AND {HOPELESS} IS NOT TRUE
"""
GROWING = f"""
SELECT attempt.id, job.id, split_part(tenant.path, '/', 1), object.pods
  FROM federation_attempt AS attempt
  JOIN federation_job AS job ON job.id = attempt.job_id
  JOIN tenancy_tenant AS tenant ON tenant.id = job.tenant_id
  JOIN clusters_cluster AS cluster ON cluster.id = attempt.cluster_id AND cluster.wish = 'open'
  JOIN federation_remoteobject AS object ON object.attempt_id = attempt.id
 CROSS JOIN LATERAL (SELECT job.spec -> 'pod_sets' -> object.position::int AS asked) AS its
 CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE cause <> 'user' AND created_at > now() - interval '1 day') AS today, max(created_at) AS last_at
      FROM federation_move AS move WHERE move.job_id = job.id) AS moved
 WHERE attempt.state = 'running' AND attempt.stop_requested_at IS NULL AND attempt.started_at < now() - %(age)s::interval
   AND NOT {LACKS_MANY} AND (%(only)s::uuid IS NULL OR attempt.id = %(only)s)
   AND job.state = 'running' AND job.suspend_requested_at IS NULL AND job.stop_wish IS NULL AND job.spec @> '{{"elastic": {{"grow": true}}}}'
   AND its.asked ->> 'name' = job.spec -> 'elastic' ->> 'pod_set' AND object.pods < (its.asked ->> 'count')::int
   AND moved.today < %(often)s AND (moved.last_at IS NULL OR moved.last_at < now() - %(rest)s::interval)
   AND NOT EXISTS (SELECT FROM federation_attempt AS fresh
                    WHERE fresh.cluster_id = attempt.cluster_id AND fresh.finished_at IS NULL AND fresh.id <> attempt.id
                      AND fresh.reserved_at > now() - %(unsure)s::interval)
 ORDER BY md5(attempt.id || %(salt)s) LIMIT %(most)s
"""


@dataclass(frozen=True, slots=True)
class GrowingRun:
    """A run with fewer pods than its job may have, of a job that asks to grow."""

    attempt_id: UUID
    job_id: UUID
    organisation: str
    pods: int


def growing_runs(only: UUID | None = None) -> list[GrowingRun]:
    """The runs, or that of the attempt `only`, that may grow now, in an order by chance: some for which there is no place
    do not keep others from being tried. None while a job waits that could use the room, and
    none of an organisation in which any job waits. One query while one waits.
    """
    with connection.cursor() as cursor:
        cursor.execute(WANTED, [list(NOT_FOR_ROOM)])
        if cursor.fetchone() == (True,):
            return []
        asked: dict[str, Any] = {
            "age": AGE,
            "rest": REST,
            "unsure": UNSURE,
            "often": MOST_MOVES_A_DAY,
            "most": MOST_RUNS,
            "only": only,
        }
        cursor.execute(GROWING, {**asked, "salt": str(host().chance().random())})
        rows = [GrowingRun(*row) for row in cursor.fetchall()]
        if not rows:
            return []
        cursor.execute(WAITING)
        waiting = {organisation for (organisation,) in cursor.fetchall()}
    return [one for one in rows if one.organisation not in waiting]


def larger_place(one: GrowingRun) -> tuple[RunningJob, Placement, int] | None:
    """The run, the largest place with more pods on its cluster as the next round would decide if it had ended now, and its pods; None if
    there is none.
    """
    run, job = load_run(one.job_id), Job.objects.get(id=one.job_id)
    if run is None or run.attempt_id != one.attempt_id:
        return None
    [request] = requests_again(database_now(), [one.job_id])
    fewest = one.pods + 1
    if request.elastic is None or fewest > request.elastic.most:
        return None
    larger = replace(
        resized(request, fewest),
        elastic=replace(request.elastic, fewest=fewest),
        constraints=replace(request.constraints, clusters=(run.cluster,)),
        shape=f"{request.shape} grows on {run.cluster}",
    )
    quoter = Quoter(load_state([]), FleetIndex(), depth=QUEUE_DEPTH)
    found = quoter.move(larger, replace(run, user=job.created_by_id), load_overdrawn())
    if not isinstance(found, Placement):
        return None
    return run, found, sum(found.pod_sets[request.elastic.position].nodes.values())


def left_seconds(job: Job, attempt: Attempt, now: datetime) -> int | None:
    """How long the run would still take, as it reports, else by its job's run time; None if that is not known."""
    assert attempt.started_at is not None
    told = progress_view(attempt, job.spec, now)
    end = told.expected_end_at if told is not None else None
    end = end or expected_end(attempt.started_at, now, runtime_of_job(job))
    return None if end is None else int((end - now).total_seconds())
