"""Moves a running job to another cluster, on a user's request.

Before anything is stopped, the trial of placement shows that another cluster has room for the job now. Then its attempt is
stopped like an interrupted one: it ends only when nothing of it is left on its cluster. The job returns to the queue with
its place there, and avoids that cluster for ten minutes (`queries.queue`).
"""

from uuid import UUID

from django.db import transaction
from django.db.models import Q

from federation.engine.intake.reading import Faults, Fields
from federation.engine.lifecycle import AttemptState, JobState
from federation.locks import lock_jobs_and_attempts
from federation.models import Attempt, Checkpoint, Job
from federation.queries.jobs import job_of, permission_to_change
from federation.queries.preemption import load_run
from federation.queries.quotes import place_after_move
from federation.queries.submissions import field_errors
from foundation.clock import database_now
from foundation.problems import Conflict, Invalid
from foundation.transactions import retried
from placement.values.decisions import Placement, Wait
from placement.values.preemption import RunningJob
from placement.values.quantities import duration_text
from placement.values.reason_codes import ReasonCode
from tenancy.operations import record_audit
from tenancy.queries import Actor, require

from . import figures, transitions

MOST_REASON_BYTES = 300


def request_migration(actor: Actor, job_id: UUID, body: object) -> Job:
    """The job, whose attempt is being stopped so that it continues on another cluster. `body` is
    `{"reason": …, "lose_work": true | false}`; both are optional.

    Harmless while an earlier request is carried out. Raises Conflict: `state_conflict` if it does not run or is being
    stopped, `no_place_to_move` if no other cluster would take it now, `cannot_resume` if it has no checkpoint that can be
    resumed there and `lose_work` is not set.
    """
    reason, may_lose = _read(body)
    job = job_of(actor, job_id)
    require(actor, job.tenant, permission_to_change(job, actor))
    if Attempt.objects.filter(job=job, finished_at=None, stop_reason=ReasonCode.MIGRATED).exists():
        return job
    run = load_run(job_id) if job.state == JobState.RUNNING else None
    if run is None:
        raise Conflict(
            "Only a job that runs, and is not being stopped, can be moved. Read it again.", code="state_conflict"
        )
    place = place_after_move(job_id, run, job.created_by_id)
    if isinstance(place, Wait):
        raise Conflict(
            f"The job was not stopped, because no other cluster would take it now: {place.message}.",
            code="no_place_to_move",
        )
    if not may_lose:
        _require_checkpoint(job, place)
    return _stop(actor, job_id, run, place, reason)


def _read(body: object) -> tuple[str, bool]:
    faults = Faults()
    fields = Fields({} if body is None else body, "", faults, frozenset({"reason", "lose_work"}))
    reason = fields.text("reason", default="", most_bytes=MOST_REASON_BYTES)
    may_lose = fields.flag("lose_work", default=False)
    if faults.found:
        raise Invalid(errors=field_errors(faults.found))
    return reason, may_lose


def _require_checkpoint(job: Job, place: Placement) -> None:
    """Conflict `cannot_resume` if the job would start from its beginning there."""
    reported = Checkpoint.objects.filter(attempt__job=job)
    there = Q(flavors=[]) | Q(flavors__contains=[place.pod_sets[0].flavor])
    if reported.filter(there).exists() or (job.spec.get("checkpoint_seconds") and not reported.exists()):
        return
    what = f"none that can be resumed on {place.pod_sets[0].flavor}" if reported.exists() else "no checkpoint"
    raise Conflict(
        f"The job was not stopped: it has reported {what}, so it would start again on {place.cluster} from its beginning. "
        "Send lose_work: true to accept that.",
        code="cannot_resume",
    )


@retried
def _stop(actor: Actor, job_id: UUID, run: RunningJob, place: Placement, reason: str) -> Job:
    lost = run.lost_seconds(database_now())
    with transaction.atomic():
        jobs, attempts = lock_jobs_and_attempts([job_id], [run.attempt_id])
        job, attempt = jobs[job_id], attempts[run.attempt_id]
        if (
            job.state != JobState.RUNNING
            or attempt.state != AttemptState.RUNNING
            or attempt.stop_requested_at is not None
        ):
            if attempt.stop_reason == ReasonCode.MIGRATED:
                return job
            raise Conflict("The job has changed meanwhile and was not moved. Read it again.", code="state_conflict")
        message = f"Moved away from {run.cluster} by {actor.name}"
        why = f" ({reason})" if reason else ""
        work = f"About {duration_text(lost)} of work is repeated" if lost else "No work is repeated"
        told = f"{message}{why}. {place.cluster} has room for it now. {work}. It keeps its place in the queue."
        transitions.interrupt([attempt], ReasonCode.MIGRATED, message, told)
        detail = {"from": run.cluster, "expected": place.cluster, "reason": reason, "lost_seconds": lost}
        record_audit(
            actor, "job.migrate", object_kind="job", object_id=str(job.id), tenant_id=job.tenant_id, detail=detail
        )
    figures.MOVED.inc()
    return job
