"""Writes jobs that ended before this installation started, as if it had observed them.

Used for the demo's seeded history. Such a job has its attempt, objects, pods, timeline and usage. Quota does not
change, because ended attempts hold none.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import chain
from uuid import uuid4

from django.db import transaction

from billing.operations import ObservedRun, record_runs
from clusters.models import Cluster, Flavor
from federation.engine import names
from federation.engine.failures.rules import FailureClass, Step
from federation.engine.intake.normal_form import shape_of, spec_json
from federation.engine.intake.spec import JobSpec
from federation.engine.lifecycle import AttemptState, JobState
from federation.engine.objects import rendering
from federation.models import Attempt, Diagnosis, Job, JobEvent, PodRun, PriorityClass, RemoteObject
from foundation.ids import id_at
from placement.values.reason_codes import ReasonCode
from tenancy.models import Tenant, User

from .lost_work import record_lost_work

HANDED_OVER = timedelta(seconds=2)
"""The time from placement to the first pod's start."""


@dataclass(frozen=True, slots=True)
class PastFailure:
    """A device of a node that failed, with what the log says."""

    node: str
    text: str


@dataclass(frozen=True, slots=True)
class PastJob:
    """A job with one pod set that ran on `nodes` (one pod each, in order) from `started_at` until `ended_at`."""

    tenant: Tenant
    user: User
    spec: JobSpec
    cluster: Cluster
    flavor: Flavor
    nodes: Sequence[str]
    unit_price: Decimal | None
    gpu_units: int
    submitted_at: datetime
    started_at: datetime
    ended_at: datetime
    exit_code: int
    is_cancelled: bool = False
    devices: Sequence[Sequence[str]] = ()
    """The devices of each of its pods, as driver/pool/name; empty if they are not known."""
    failed_device: PastFailure | None = None

    @property
    def outcome(self) -> str:
        """The final state of job and attempt, which have the same names."""
        if self.is_cancelled:
            return JobState.CANCELLED
        return JobState.FAILED if self.exit_code else JobState.SUCCEEDED

    @property
    def reason(self) -> ReasonCode:
        """Why the attempt ended."""
        if self.is_cancelled:
            return ReasonCode.CANCELLED
        return ReasonCode.PROGRAM_FAILED if self.exit_code else ReasonCode.COMPLETED


def record_past_jobs(past: Sequence[PastJob]) -> None:
    """Writes these jobs with all their rows and their usage, in one transaction."""
    classes = {one.name: one for one in PriorityClass.objects.all()}
    jobs = [_job(one, classes[one.spec.priority_class]) for one in past]
    attempts = [_attempt(one, job) for one, job in zip(past, jobs, strict=True)]
    remotes = [_remote(one, attempt) for one, attempt in zip(past, attempts, strict=True)]
    pods = [_pods(one, remote) for one, remote in zip(past, remotes, strict=True)]
    whole = list(zip(past, jobs, attempts, pods, strict=True))
    with transaction.atomic():
        Job.objects.bulk_create(jobs)
        Attempt.objects.bulk_create(attempts)
        RemoteObject.objects.bulk_create(remotes)
        PodRun.objects.bulk_create(chain.from_iterable(pods))
        JobEvent.objects.bulk_create(event for one, job, attempt, _ in whole for event in _events(one, job, attempt))
        record_runs([_run(one, job, attempt, pod) for one, job, attempt, ran in whole for pod in ran])
        Diagnosis.objects.bulk_create(_diagnosis(one, attempt) for one, _, attempt, _ in whole if one.failed_device)
        record_lost_work([attempt.id for one, _, attempt, _ in whole if one.failed_device])


def _job(past: PastJob, priority_class: PriorityClass) -> Job:
    stored = spec_json(past.spec)
    return Job(
        id=id_at(past.submitted_at),
        tenant=past.tenant,
        created_by=past.user,
        name=past.spec.name,
        spec=stored,
        shape=shape_of(stored, priority_class.value),
        labels=stored["labels"],
        priority=priority_class.value,
        priority_class=priority_class,
        state=past.outcome,
        reason_code=past.reason if past.outcome != JobState.SUCCEEDED else "",
        reason_message=_last_words(past),
        reason_at=past.ended_at,
        attempts_made=1,
        exit_code=None if past.is_cancelled else past.exit_code,
        created_at=past.submitted_at,
        started_at=past.started_at,
        finished_at=past.ended_at,
    )


def _attempt(past: PastJob, job: Job) -> Attempt:
    placed_at = past.started_at - HANDED_OVER
    return Attempt(
        id=id_at(placed_at),
        job=job,
        number=1,
        cluster=past.cluster,
        state=AttemptState(past.outcome),
        flavor=past.flavor.name,
        unit_price=past.unit_price,
        namespace=names.namespace_of(past.tenant.path, past.tenant.id),
        spec_hash=rendering.spec_hash(job.spec),
        next_action_at=None,
        reserved_at=placed_at,
        sent_at=placed_at,
        created_at=placed_at,
        starting_at=placed_at,
        released_at=placed_at,
        started_at=past.started_at,
        finished_at=past.ended_at,
        end_reason=past.reason,
        settled_at=past.ended_at,
        removed_at=past.ended_at,
    )


def _remote(past: PastJob, attempt: Attempt) -> RemoteObject:
    pod_set = past.spec.pod_sets[0]
    return RemoteObject(
        attempt=attempt,
        cluster_id=attempt.cluster_id,
        position=0,
        name=names.object_name(attempt.id, 0),
        flavor=past.flavor.name,
        capacity_type=past.flavor.capacity_type,
        pods=pod_set.count,
        gpu_units=past.gpu_units,
        cpu_millicores=pod_set.cpu_millicores,
        memory_mib=pod_set.memory_bytes // 2**20,
        uid=str(uuid4()),
        outcome="succeeded" if past.outcome == JobState.SUCCEEDED else "failed",
        ended_at=past.ended_at,
    )


def _pods(past: PastJob, remote: RemoteObject) -> list[PodRun]:
    return [
        PodRun(
            attempt=remote.attempt,
            cluster_id=remote.attempt.cluster_id,
            remote_object=remote,
            index=index,
            place=index,
            uid=str(uuid4()),
            name=f"{remote.name}-{index}-{remote.attempt.id.hex[-5:]}",
            node=node,
            started_at=past.started_at,
            phase="Failed" if past.exit_code else "Succeeded",
            finished_at=past.ended_at,
            exit_code=past.exit_code,
            is_gone=True,
            devices=list(past.devices[index]) if past.devices else [],
            first_seen_at=past.started_at,
            observed_at=past.ended_at,
        )
        for index, node in enumerate(past.nodes)
    ]


def _diagnosis(past: PastJob, attempt: Attempt) -> Diagnosis:
    failure = past.failed_device
    assert failure is not None
    return Diagnosis(
        attempt=attempt,
        failure_class=FailureClass.DEVICE,
        own_class=FailureClass.DEVICE,
        text=failure.text,
        rule="Default: device",
        step=Step.STOP,
        node=failure.node,
        asked_at=past.ended_at,
        judged_at=past.ended_at,
    )


def _events(past: PastJob, job: Job, attempt: Attempt) -> list[JobEvent]:
    placed = f"Attempt 1 on {past.cluster.name}, flavor {past.flavor.name}."
    told = [
        (past.submitted_at, None, "submitted", f"Submitted by {past.user.email}."),
        (attempt.reserved_at, attempt, "placed", placed),
        (past.started_at, attempt, "running", "Attempt 1 is running."),
        (past.ended_at, attempt, f"attempt_{past.outcome}", ""),
        (past.ended_at, None, f"job_{past.outcome}", _last_words(past)),
    ]
    return [JobEvent(job=job, at=at, attempt=of, kind=kind, message=message) for at, of, kind, message in told]


def _run(past: PastJob, job: Job, attempt: Attempt, pod: PodRun) -> ObservedRun:
    return ObservedRun(
        cluster_id=past.cluster.id,
        source_uid=pod.uid,
        tenant_id=past.tenant.id,
        user_id=past.user.id,
        workload_id=job.id,
        run_id=attempt.id,
        flavor=past.flavor.name,
        capacity_type=past.flavor.capacity_type,
        gpu_units=past.gpu_units,
        cpu_millicores=past.spec.pod_sets[0].cpu_millicores,
        memory_mib=past.spec.pod_sets[0].memory_bytes // 2**20,
        started_at=past.started_at,
        until_at=past.ended_at,
        is_final=True,
        workload_name=job.name,
        user_name=past.user.email,
        gpu_model=past.flavor.gpu_model,
        sharing=past.flavor.sharing,
        node=pod.node,
    )


def _last_words(past: PastJob) -> str:
    if past.is_cancelled:
        return f"Cancelled by {past.user.email}."
    return f"Its pods ended with exit code {past.exit_code}." if past.exit_code else "All pods succeeded."
