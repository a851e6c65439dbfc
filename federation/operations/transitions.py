"""The only writer of the states of jobs and attempts: no other module writes them (a test enforces this).

Each function is one kind of transition. Its statements change sets of rows, name the states they may leave
(`engine.lifecycle`), and write the event, the reason and the wake-up. Rows in any other state do not change: another
writer was faster.

Callers hold a transaction, and the locks that make the transition certain. All code locks these rows in one order:
advisory locks, jobs by id, attempts by id, tenants, holds, limits. A transaction takes them once (`federation.locks`).
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import Case, F, Q, When
from django.db.models.functions import Now

from federation.engine.lifecycle import ATTEMPT_MOVES, AttemptState, JobState
from federation.models import (
    ATTEMPT_LIFECYCLE,
    DISPATCH_IS_OPEN,
    JOB_LIFECYCLE,
    LIVE_ATTEMPT_STATES,
    Attempt,
    Job,
    JobEvent,
    RemoteObject,
)
from foundation.outbox import announce
from foundation.pipelines import one_round_trip
from foundation.rows import insert_like, insert_rows
from foundation.states import advance
from placement.values.maintenance import STOPPING
from placement.values.reason_codes import ReasonCode

from .consequences import Consequence, Ended

Rows = Sequence[Mapping[str, object]]

REFUTABLE = (
    ReasonCode.DID_NOT_START,
    ReasonCode.CLUSTER_DRAINING,
    ReasonCode.MAINTENANCE_AHEAD,
    ReasonCode.CANNOT_START,
    ReasonCode.PODS_GONE,
    ReasonCode.STARTED_IN_PART,
    ReasonCode.BLOCKED_IN_PART,
)
"""Reasons to stop an attempt that its pods may refute; then its stop request is revoked (`calls.look`)."""


def place(attempts: Rows, objects: Rows, events: Rows) -> None:
    """`queued` → `dispatching`, each job with its new attempt. PostgreSQL executes one statement while the next is
    sent.
    """
    with one_round_trip():
        insert_like(Attempt(), attempts)
        insert_like(RemoteObject(), objects)
        advance(
            Job.objects.filter(id__any_of=[row["job_id"] for row in attempts]),
            JOB_LIFECYCLE,
            JobState.DISPATCHING,
            attempts_made=F("attempts_made") + 1,
            reason_code=ReasonCode.DISPATCHING,
            reason_message="Placed; being sent to its cluster.",
            reason_at=Now(),
            explanation={},
        )
        insert_like(JobEvent(kind="placed"), events)
        announce("dispatch")


STORE_UIDS = """
UPDATE federation_remoteobject AS object
   SET uid = seen.uid, cluster_id = attempt.cluster_id
  FROM unnest(%s::bigint[], %s::text[]) AS seen(id, uid), federation_attempt AS attempt
 WHERE object.id = seen.id AND object.uid = '' AND attempt.id = object.attempt_id AND attempt.claim_token = %s
"""


def mark_created(token: int, uids: Mapping[UUID, Mapping[int, str]]) -> None:
    """`reserved` → `created`: all objects of these attempts exist, with these uids (by attempt and object)."""
    if not uids:
        return
    pairs = [pair for of_attempt in uids.values() for pair in of_attempt.items()]
    with connection.cursor() as cursor:
        cursor.execute(STORE_UIDS, [[object_id for object_id, _ in pairs], [uid for _, uid in pairs], token])
    ours = Attempt.objects.filter(id__any_of=list(uids), claim_token=token)
    advance(ours, ATTEMPT_LIFECYCLE, AttemptState.CREATED, created_at=Now())


_MOVED = f"""wanted AS MATERIALIZED (SELECT unnest(%(ids)s::uuid[]) AS id), moved AS (
    UPDATE federation_attempt AS attempt SET state = 'starting', starting_at = now()
     WHERE id IN (SELECT id FROM wanted) AND claim_token = %(token)s AND stop_requested_at IS NULL AND state = 'created'
       AND {DISPATCH_IS_OPEN}
"""
_READY = """
    RETURNING id
), ready AS (
    SELECT id FROM moved UNION ALL
    SELECT id FROM federation_attempt
     WHERE id IN (SELECT id FROM wanted) AND claim_token = %(token)s AND stop_requested_at IS NULL
       AND state IN ('starting', 'running') AND released_at IS NULL
)
SELECT object.attempt_id, object.id, object.uid
  FROM federation_remoteobject AS object JOIN ready ON ready.id = object.attempt_id
"""
COMMIT_TO_START = f"""
WITH {_MOVED}
       AND NOT EXISTS (SELECT FROM clusters_maintenancewindow AS planned
                        WHERE planned.cluster_id = attempt.cluster_id AND cancelled_at IS NULL AND ends_at > now())
{_READY}"""
COMMIT_BESIDE_WINDOWS = f"""
WITH {_MOVED}
       AND NOT EXISTS (SELECT FROM federation_windows_met(attempt.id, now(), %(stopping)s))
{_READY}"""
"""Separate, because few clusters have windows, and planning the function costs more than the rest of the statement."""


def commit_to_start(token: int, attempt_ids: Sequence[UUID]) -> dict[UUID, dict[int, str]]:
    """`created` → `starting`: uids by attempt and object of the attempts that may be released now.

    This commits the gateway to run them, unless a stop was requested, or they could run into a maintenance window: those
    are recalled (`operations.maintenance`). Attempts already `starting` come from a worker that died, or from a cluster that
    released only some of their objects, whose pods may already run (`running`). They are released again, harmlessly. One
    that was `unknown` keeps the time of its first commitment.
    """
    with connection.cursor() as cursor:
        cursor.execute(COMMIT_TO_START, {"ids": list(attempt_ids), "token": token})
        rows = cursor.fetchall()
        if left := set(attempt_ids).difference(row[0] for row in rows):
            asked: dict[str, Any] = {"ids": sorted(left), "token": token, "stopping": STOPPING.total_seconds()}
            cursor.execute(COMMIT_BESIDE_WINDOWS, asked)
            rows += cursor.fetchall()
    found: dict[UUID, dict[int, str]] = {}
    for attempt_id, object_id, uid in rows:
        found.setdefault(attempt_id, {})[object_id] = uid
    return found


def catch_up(attempt: Attempt, uids: Mapping[int, str]) -> None:
    """`reserved` → `created` → `starting`: for an attempt whose objects, with these uids, were released in lost
    commits.

    The exact time of the release is unknown, but it is not before the attempt was made. A requested stop keeps its
    wake-up.
    """
    itself = Attempt.objects.filter(id=attempt.id)
    mark_created(attempt.claim_token, {attempt.id: uids})
    visit = Case(When(stop_requested_at__isnull=False, then=Now()), default=None)
    when = {"starting_at": F("reserved_at"), "released_at": F("reserved_at"), "next_action_at": visit}
    advance(itself, ATTEMPT_LIFECYCLE, AttemptState.STARTING, **when)


START_ATTEMPTS = """
UPDATE federation_attempt AS attempt
   SET state = 'running', state_before_unknown = '', started_at = first.at
  FROM (SELECT attempt_id, min(started_at) AS at FROM federation_podrun WHERE attempt_id = ANY(%s) GROUP BY attempt_id) AS first
 WHERE attempt.id = first.attempt_id AND attempt.state = ANY(%s)
RETURNING attempt.id, attempt.job_id, attempt.number
"""
START_JOBS = """
UPDATE federation_job AS job
   SET state = 'running', started_at = coalesce(job.started_at, attempt.started_at),
       reason_code = CASE WHEN job.suspend_requested_at IS NULL THEN '' ELSE job.reason_code END,
       reason_message = CASE WHEN job.suspend_requested_at IS NULL THEN '' ELSE job.reason_message END,
       reason_at = statement_timestamp()
  FROM federation_attempt AS attempt
 WHERE attempt.id = ANY(%s) AND job.id = attempt.job_id AND job.state = ANY(%s)
"""


def start(attempt_ids: Sequence[UUID]) -> None:
    """`starting`, `unknown` → `running`, from their first pod's start; also their jobs, unless they are being
    cancelled.
    """
    if not attempt_ids:
        return
    with connection.cursor() as cursor:
        cursor.execute(START_ATTEMPTS, [list(attempt_ids), sorted(ATTEMPT_LIFECYCLE.sources(AttemptState.RUNNING))])
        started = cursor.fetchall()
        cursor.execute(START_JOBS, [[row[0] for row in started], sorted(JOB_LIFECYCLE.sources(JobState.RUNNING))])
    tell("running", {(job_id, attempt_id): f"Attempt {number} is running." for attempt_id, job_id, number in started})


def lose_sight(attempts: Collection[Attempt], message: str) -> int:
    """`starting`, `running` → `unknown`: the number of attempts that may still run on unreachable clusters. Their holds
    remain.
    """
    lost = _doubt(attempts)
    _say(lost, ReasonCode.CLUSTERS_UNREACHABLE, message)
    tell("cluster_silent", {(one.job_id, one.id): message for one in lost})
    return len(lost)


def give_up(attempts: Collection[Attempt]) -> list[UUID]:
    """`starting`, `running` → `unknown`, on the way to `lost`: attempts attested as dead. The caller ends them next."""
    _doubt(attempts)
    return [one.id for one in attempts if one.state in ATTEMPT_LIFECYCLE.sources(AttemptState.UNKNOWN) | {"unknown"}]


def _doubt(attempts: Collection[Attempt]) -> list[Attempt]:
    doubted = [one for one in attempts if one.state in ATTEMPT_LIFECYCLE.sources(AttemptState.UNKNOWN)]
    ours = Attempt.objects.filter(id__any_of=[one.id for one in doubted])
    advance(ours, ATTEMPT_LIFECYCLE, AttemptState.UNKNOWN, state_before_unknown=F("state"))
    return doubted


def regain_sight(attempts: Collection[Attempt], message: str) -> int:
    """`unknown` → `starting`, `running`: the number of attempts that return to their earlier states."""
    back = [one for one in attempts if one.state == AttemptState.UNKNOWN]
    moved = Attempt.objects.filter(
        id__any_of=[one.id for one in back],
        state=AttemptState.UNKNOWN,
        state_before_unknown__in=ATTEMPT_MOVES[AttemptState.UNKNOWN],
    ).update(state=F("state_before_unknown"), state_before_unknown="")
    _say(back, "", message)
    tell("cluster_back", {(one.job_id, one.id): message for one in back})
    return moved


def _say(attempts: Collection[Attempt], reason: str, message: str) -> None:
    """Writes the reason that their jobs show, unless those are ending, being suspended, or have ended."""
    live = Job.objects.filter(id__any_of=[one.job_id for one in attempts], state__in=JOB_LIFECYCLE.live)
    shown = live.filter(suspend_requested_at=None)
    shown.exclude(state=JobState.CANCELLING).update(reason_code=reason, reason_message=message, reason_at=Now())


def tell(kind: str, messages: Mapping[tuple[UUID, UUID], str]) -> None:
    """Writes an event to the timeline of each job, by job and attempt."""
    rows = [JobEvent(job_id=j, attempt_id=a, kind=kind, message=message) for (j, a), message in messages.items()]
    insert_rows(rows)


def ask_to_stop(attempts: Collection[UUID], reason: str, message: str = "") -> int:
    """The number of live attempts with a new stop request for this reason; an earlier request keeps its reason.

    The state does not change yet: dispatch first stops them on their cluster. The request wakes it, and is the
    tombstone.
    """
    ours = Attempt.objects.filter(id__any_of=list(attempts), state__in=LIVE_ATTEMPT_STATES, stop_requested_at=None)
    asked = ours.update(stop_requested_at=Now(), stop_reason=reason, stop_message=message, next_action_at=Now())
    if asked:
        announce("dispatch")
    return asked


def interrupt(attempts: Collection[Attempt], reason: str, message: str, told: str) -> None:
    """Requests the stop of interrupted live attempts, and adds an event. Their jobs continue when nothing of the attempts
    is left.
    """
    ask_to_stop([one.id for one in attempts], reason, message)
    _say(attempts, ReasonCode.INTERRUPTED, told)
    tell("interrupted", {(one.job_id, one.id): told for one in attempts})


def stop_the_rest(attempts: Collection[UUID]) -> None:
    """Makes dispatch stop the rest of live attempts of which an object was deleted, or that already have a stop
    request.
    """
    ask_to_stop(attempts, ReasonCode.OBJECT_DELETED, "One of its objects was deleted on the cluster.")
    visit_again(attempts)


def visit_again(attempts: Collection[UUID]) -> None:
    """Makes dispatch visit these live attempts immediately."""
    if Attempt.objects.filter(id__any_of=list(attempts), state__in=LIVE_ATTEMPT_STATES).update(next_action_at=Now()):
        announce("dispatch")


def cancel(job: Job, by: str) -> None:
    """`queued`, `dispatching`, `running`, `suspended` → `cancelling`, and on to `cancelled` if nothing of the locked job
    is on any cluster.
    """
    was_suspended = job.state == JobState.SUSPENDED
    live = Attempt.objects.filter(job=job, state__in=LIVE_ATTEMPT_STATES)
    has_attempt = live.update(
        stop_requested_at=Now(), stop_reason=ReasonCode.CANCELLED, stop_message="", next_action_at=Now()
    )
    itself = Job.objects.filter(id=job.id)
    waits = {
        "reason_code": ReasonCode.CANCELLING,
        "reason_message": "Waiting for its cluster to confirm.",
        "reason_at": Now(),
    }
    advance(itself, JOB_LIFECYCLE, JobState.CANCELLING, **waits)
    if not has_attempt:
        ends = {
            "reason_code": ReasonCode.CANCELLED,
            "reason_message": f"Cancelled {'while it was suspended' if was_suspended else 'before it was placed'}.",
            "reason_at": Now(),
        }
        advance(itself, JOB_LIFECYCLE, JobState.CANCELLED, finished_at=Now(), **ends)
    job.refresh_from_db(fields=["state", "reason_code", "reason_message", "reason_at", "finished_at"])
    insert_rows([JobEvent(job_id=job.id, kind=f"job_{job.state}", message=f"Cancelled by {by}.")])
    announce("dispatch" if has_attempt else "cycle")


def suspend(job: Job, by: str) -> None:
    """`queued` → `suspended`. A locked `dispatching` or `running` job keeps its state until its live attempt, which has to
    stop, has ended.

    The attempt's earlier stop request keeps its reason, unless its pods may still refute it: suspension is not refuted.
    """
    live = Attempt.objects.filter(job=job, state__in=LIVE_ATTEMPT_STATES)
    asked = live.filter(Q(stop_requested_at=None) | Q(stop_reason__in=REFUTABLE))
    told = f"Suspended by {by}"
    asked.update(stop_requested_at=Now(), stop_reason=ReasonCode.SUSPENDED, stop_message=told, next_action_at=Now())
    has_attempt = live.exists()
    waits = {
        "reason_code": ReasonCode.SUSPENDING if has_attempt else ReasonCode.SUSPENDED,
        "reason_message": f"{told}. Its attempt is being stopped." if has_attempt else f"{told}.",
        "reason_at": Now(),
        "suspend_requested_at": Now(),
    }
    if has_attempt:
        Job.objects.filter(id=job.id).update(**waits)
    else:
        advance(Job.objects.filter(id=job.id), JOB_LIFECYCLE, JobState.SUSPENDED, explanation={}, **waits)
    job.refresh_from_db(fields=["state", "reason_code", "reason_message", "reason_at", "suspend_requested_at"])
    kind = "job_suspending" if has_attempt else "job_suspended"
    insert_rows([JobEvent(job_id=job.id, kind=kind, message=f"{told}.")])
    announce("dispatch" if has_attempt else "cycle")


def resume(job: Job, by: str) -> None:
    """`suspended` → `queued`. A locked job whose attempt is still being stopped is queued when that has ended."""
    told = f"Resumed by {by}"
    itself = Job.objects.filter(id=job.id)
    if job.state == JobState.SUSPENDED:
        waits = {"reason_code": ReasonCode.RESUMED, "reason_message": f"{told}. Waiting for a new placement."}
        advance(itself, JOB_LIFECYCLE, JobState.QUEUED, suspend_requested_at=None, reason_at=Now(), **waits)
    else:
        words = f"{told}. It continues when its attempt has stopped."
        itself.update(suspend_requested_at=None, reason_code=ReasonCode.INTERRUPTED, reason_message=words)
    job.refresh_from_db(fields=["state", "reason_code", "reason_message", "reason_at", "suspend_requested_at"])
    insert_rows([JobEvent(job_id=job.id, kind="job_resumed", message=f"{told}.")])
    announce("cycle")


def end(ended: Sequence[Ended]) -> None:
    """Moves each attempt to its terminal state, and its job to the consequence: a terminal state, or back to the queue."""
    _end_attempts(ended)
    concluded = [one for one in ended if one.job.state in JOB_LIFECYCLE.sources(one.consequence.state)]
    _conclude_jobs(concluded)
    told = {one.job.id for one in concluded}
    events = []
    for one in ended:
        message = f"Attempt {one.attempt.number}: {one.ending.message or one.ending.reason.replace('_', ' ')}"
        events.append(_line(one, f"attempt_{one.ending.state}", message))
        if one.job.id in told:
            events.append(_line(one, f"job_{one.consequence.state}", one.consequence.message))
    insert_rows(events)
    announce("settle", "cycle")


def _line(one: Ended, kind: str, message: str) -> JobEvent:
    return JobEvent(job_id=one.job.id, attempt_id=one.attempt.id, kind=kind, message=message)


def _end_attempts(ended: Sequence[Ended]) -> None:
    alike: dict[tuple[AttemptState, str, str], list[UUID]] = defaultdict(list)
    for attempt, ending, *_ in ended:
        alike[ending.state, ending.reason, ending.message].append(attempt.id)
    for (state, reason, message), ids in alike.items():
        advance(
            Attempt.objects.filter(id__any_of=ids),
            ATTEMPT_LIFECYCLE,
            state,
            state_before_unknown="",
            finished_at=Now(),
            end_reason=reason,
            end_message=message,
            next_action_at=None,
            claim_expires_at=None,
        )


def _conclude_jobs(ended: Sequence[Ended]) -> None:
    alike: dict[Consequence, list[UUID]] = defaultdict(list)
    for one in ended:
        alike[one.consequence].append(one.job.id)
    for (state, reason, message, exit_code, wait_seconds), ids in alike.items():
        retry_at = Now() + timedelta(seconds=wait_seconds) if wait_seconds else None
        changes: dict[str, Any] = {"started_at": None, "retry_at": retry_at}
        if state in JOB_LIFECYCLE.terminal:
            changes = {"finished_at": Now(), "retry_at": None}
        advance(
            Job.objects.filter(id__any_of=ids),
            JOB_LIFECYCLE,
            state,
            reason_code=reason,
            reason_message=message,
            reason_at=Now(),
            exit_code=exit_code,
            **changes,
        )
