"""Jobs and attempts as the API writes them."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from billing.queries import CostView
from federation.engine.lifecycle import JobState
from federation.models import TERMINAL_JOB_STATES, Attempt, Job, JobEvent, RemoteObject
from federation.queries.artifacts import ArtifactLine
from federation.queries.failures import diagnosis_of
from federation.queries.jobs import expected_start, newest_attempt
from federation.queries.kept_places import PlaceView
from federation.queries.logs import JobLogs
from federation.queries.pending_stops import pending_stop
from federation.queries.reports import progress_view
from foundation import clock
from foundation.plain_json import instant
from placement.ranking.runtimes import runtime_text
from placement.values.decisions import Reason
from placement.values.model import Runtime

from .artifacts import job_artifact_json
from .estimates import estimate_json, money_json
from .pending_stops import pending_stop_json
from .reports import progress_json

BASE = "/api/v1/jobs"


def job_json(
    job: Job, cost: CostView | None = None, artifacts: Sequence[ArtifactLine] = (), why: str | None = None
) -> dict[str, Any]:
    """A job in full, with its newest attempt, its artifacts and what it has cost so far. `why` is the text of its reason for
    this reader.
    """
    attempt = newest_attempt(job)
    return {
        "id": str(job.id),
        "tenant": job.tenant.path,
        "name": job.name,
        "state": str(job.state),
        "reason": {"code": job.reason_code, "message": job.reason_message if why is None else why},
        "labels": job.labels,
        "spec": {"tenant": job.tenant.path, **job.spec},
        "created_by": job.created_by.email,
        "created_at": instant(job.created_at),
        "started_at": instant(job.started_at),
        "finished_at": instant(job.finished_at),
        "suspend_requested_at": instant(job.suspend_requested_at),
        "pending_stop": pending_stop_json(pending_stop(job)),
        "exit_code": job.exit_code,
        "progress": None if attempt is None else progress_json(progress_view(attempt, job.spec, clock.now())),
        "artifacts": [job_artifact_json(one) for one in artifacts],
        "failure": failure_json(attempt),
        "attempt": None if attempt is None else attempt_json(attempt),
        "cost": cost_json(job, cost),
        "links": links_of(job.id),
    }


def job_line_json(job: Job) -> dict[str, Any]:
    """A job that was just accepted, in short."""
    return {
        "id": str(job.id),
        "tenant": job.tenant.path,
        "name": job.name,
        "state": str(job.state),
        "created_at": instant(job.created_at),
        "links": {"self": f"{BASE}/{job.id}"},
    }


def links_of(job_id: UUID) -> dict[str, str]:
    """Links to the job's other resources."""
    here = f"{BASE}/{job_id}"
    return {
        "self": here,
        **{
            name: f"{here}/{name}"
            for name in (
                "attempts",
                "events",
                "explanation",
                "logs",
                "cancel",
                "suspend",
                "resume",
                "reports",
                "artifacts",
            )
        },
    }


NOTHING = "0.000000"


def cost_json(job: Job, cost: CostView | None) -> dict[str, Any]:
    """What a job has cost so far; provisional until it has ended and all of it is metered."""
    if cost is None:
        newest = newest_attempt(job)
        # What ran for less than a second has no cost to show, settled or not.
        is_metered = job.started_at is None or newest is None or newest.settled_at is not None
        is_over = job.state in TERMINAL_JOB_STATES and is_metered
        nothing = {**money_json(Decimal(0), "USD"), "not_charged": NOTHING, "beside": []}
        return {**nothing, "provisional": not is_over, "unpriced": False}
    return {
        **_charged(cost.amount, cost.currency, cost.not_charged),
        "provisional": cost.is_provisional,
        "unpriced": cost.is_unpriced,
        "beside": [_charged(one.amount, one.currency, one.not_charged) for one in cost.beside],
    }


def _charged(amount: Decimal, currency: str, not_charged: Decimal) -> dict[str, str]:
    return {**money_json(amount, currency), "not_charged": money_json(not_charged, currency)["amount"]}


def attempt_json(attempt: Attempt) -> dict[str, Any]:
    """An attempt with its objects; `object` is the first pod set's."""
    objects = [_object_json(attempt, item) for item in attempt.remote_objects.all()]
    price = attempt.unit_price
    return {
        "id": str(attempt.id),
        "number": attempt.number,
        "job": str(attempt.job_id),
        "cluster": attempt.cluster.name,
        "state": str(attempt.state),
        "object": objects[0] if objects else None,
        "objects": objects,
        "placement": {"flavor": attempt.flavor, "domain": attempt.domain},
        "unit_price": None if price is None else money_json(price, attempt.currency),
        "estimate": estimate_json(attempt),
        "reserved_at": instant(attempt.reserved_at),
        "created_at": instant(attempt.created_at),
        "started_at": instant(attempt.started_at),
        "finished_at": instant(attempt.finished_at),
        "end_reason": attempt.end_reason or None,
        "end_message": attempt.end_message or None,
        "lost_seconds": attempt.lost_seconds,
        "failure": failure_json(attempt),
    }


def failure_json(attempt: Attempt | None) -> dict[str, Any] | None:
    """Why the attempt failed, and what follows; null if it did not fail."""
    found = None if attempt is None else diagnosis_of(attempt)
    if found is None:
        return None
    return {
        "class": found.failure_class,
        "text": found.text,
        "rule": found.rule,
        "next_step": found.step,
        "next_step_text": found.next_step,
        "retry": found.retry,
        "retries": found.most,
        "retry_at": instant(found.retry_at),
        "node": found.node,
        "is_infrastructure": found.is_infrastructure,
        "kept_place": place_json(found.kept_place),
    }


def place_json(place: PlaceView | None) -> dict[str, Any] | None:
    """The place that is or was kept for a retry; null if none was."""
    if place is None:
        return None
    return {
        "cluster": place.cluster,
        "nodes": list(place.nodes),
        "until": instant(place.until),
        "is_kept": place.is_kept,
        "outcome": place.outcome or None,
    }


def _object_json(attempt: Attempt, item: RemoteObject) -> dict[str, Any]:
    return {
        "api_version": "batch/v1",
        "kind": "Job",
        "namespace": attempt.namespace,
        "name": item.name,
        "uid": item.uid or None,
        "pods": item.pods,
    }


def event_json(event: JobEvent) -> dict[str, Any]:
    """A line of the timeline."""
    return {
        "id": event.id,
        "at": instant(event.at),
        "kind": event.kind,
        "message": event.message,
        "attempt": None if event.attempt_id is None else str(event.attempt_id),
    }


def explanation_json(
    job: Job, why: str, runtime: Runtime | None, now: datetime, quota: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Why a job waits, overall and per cluster, as of the last cycle that considered it; its expected start and run time.
    `why` is the text of its reason for this reader, `quota` are the limits that it waits for now.
    """
    per_cluster: list[Mapping[str, Any]] = job.explanation.get("clusters", []) if job.state == JobState.QUEUED else []
    return {
        "job": str(job.id),
        "state": str(job.state),
        "reason": {"code": job.reason_code, "message": why},
        "considered_at": instant(job.reason_at),
        "expected_start": expected_start(job, now),
        "runtime": None if runtime is None else runtime_json(runtime),
        "clusters": [
            {
                "cluster": reason["cluster"],
                "code": reason["code"],
                "message": reason["message"],
                "for_good": reason["is_for_good"],
            }
            for reason in per_cluster
        ],
        "quota": list(quota),
    }


def runtime_json(runtime: Runtime) -> dict[str, Any]:
    """How long a job is expected to run."""
    return {
        "p10_seconds": runtime.p10_seconds,
        "p50_seconds": runtime.p50_seconds,
        "p90_seconds": runtime.p90_seconds,
        "runs": runtime.runs,
        "basis": runtime.basis,
        "message": runtime_text(runtime),
    }


def logs_json(logs: JobLogs) -> dict[str, Any]:
    """The ends of an attempt's logs."""
    return {
        "attempt": None if logs.attempt_id is None else str(logs.attempt_id),
        "attempt_number": logs.number,
        "cluster": logs.cluster or None,
        "pods": logs.pods_in_all,
        "containers": list(logs.containers),
        "items": [
            {
                "pod": log.pod,
                "container": log.container,
                "pod_set": log.position,
                "node": log.node or None,
                "phase": log.phase,
                "text": log.text,
                "truncated": log.is_cut,
                "unavailable": log.trouble or None,
            }
            for log in logs.pods
        ],
    }


def why_not_json(reason: Reason) -> dict[str, Any]:
    """Why a cluster does not take a job."""
    return {
        "cluster": reason.cluster,
        "code": reason.code,
        "message": reason.message,
        "for_good": reason.is_for_good,
    }
