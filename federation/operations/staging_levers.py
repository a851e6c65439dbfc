"""What users do about copies of datasets: start one, start it again, stop it, and let a job run without it."""

from uuid import UUID

from django.db import transaction
from django.db.models.functions import Now

from clusters.models import StagingPlan
from clusters.operations.staging import forget_replica
from clusters.queries.staging import plan_by_id
from federation.engine.lifecycle import JobState
from federation.engine.staging import Outcome
from federation.locks import lock_job, lock_stage_in
from federation.models import Job, StageIn
from federation.queries.jobs import permission_to_change
from federation.queries.stage_places import image_for, keys_for, why_unable
from federation.queries.staging import is_staged, why_forbidden
from foundation.outbox import announce
from foundation.problems import Conflict, NotFound
from foundation.transactions import retried
from tenancy.engine.roles import Permission
from tenancy.operations import record_audit
from tenancy.queries import Actor, require

from .data_waits import skip_wait


@retried
def start_stage_in(actor: Actor, dataset_id: UUID, plan_id: UUID) -> StagingPlan:
    """The plan, whose dataset is copied with the next round, and whose failures no longer count. What was copied before is copied
    again: its replica is forgotten. Harmless while it copies. The actor must manage the dataset's tenant.

    Raises NotFound, NotAllowedHere, Conflict `staging_is_off` without a copy image, `state_conflict` if its storages no longer allow it
    or its access key is missing.
    """
    plan = plan_by_id(actor, dataset_id, plan_id, Permission.MANAGE_TENANTS)
    unable = why_unable(plan, keys_for([plan]))
    if not image_for(plan):
        raise Conflict(unable, code="staging_is_off")
    if told := why_forbidden(plan) or unable:
        raise Conflict(told, code="state_conflict")
    with transaction.atomic():
        StageIn.objects.bulk_create([StageIn(plan_id=plan.id, cluster_id=plan.cluster_id)], ignore_conflicts=True)
        row = _locked(plan)
        if row.phase in (StageIn.Phase.IDLE, StageIn.Phase.ENDING):
            if is_staged(row.plan):
                forget_replica(plan.id)
            again = {"is_wanted": True, "failures": 0, "outcome": "", "ended_at": None, "message": ""}
            StageIn.objects.filter(pk=row.pk).update(**again, changed_at=Now())
        _record(actor, "stage_in.start", plan)
    return plan_by_id(actor, dataset_id, plan_id)


@retried
def cancel_stage_in(actor: Actor, dataset_id: UUID, plan_id: UUID) -> StagingPlan:
    """The plan, whose copy is stopped: jobs no longer wait for it, until a user starts it again. What it has copied stays there.
    Harmless if nothing copies.
    """
    plan = plan_by_id(actor, dataset_id, plan_id, Permission.MANAGE_TENANTS)
    with transaction.atomic():
        if StageIn.objects.filter(plan=plan).exists():
            row = _locked(plan)
            ended = {"outcome": Outcome.CANCELLED, "ended_at": Now(), "message": "A user stopped it."}
            if row.phase in (StageIn.Phase.PLANNED, StageIn.Phase.CREATED, StageIn.Phase.RELEASED):
                StageIn.objects.filter(pk=row.pk).update(is_wanted=False, phase=StageIn.Phase.ENDING, **ended)
            elif row.is_wanted:
                StageIn.objects.filter(pk=row.pk).update(is_wanted=False, **ended)
        _record(actor, "stage_in.cancel", plan)
    return plan_by_id(actor, dataset_id, plan_id)


@retried
def run_without_data(actor: Actor, job_id: UUID) -> Job:
    """The job, which no longer waits for copies of its data. The copies go on. Harmless if it was asked before; Conflict `state_conflict`
    if the job does not wait for data.
    """
    with transaction.atomic():
        job = lock_job(job_id)
        if job is None:
            raise NotFound
        require(actor, job.tenant, permission_to_change(job, actor))
        if not skip_wait(job_id):
            if job.state == JobState.QUEUED and job.data_waits.filter(outcome="skipped").exists():
                return job
            raise Conflict("The job does not wait for data.", code="state_conflict")
        record_audit(actor, "job.run_without_data", object_kind="job", object_id=str(job.id), tenant_id=job.tenant_id)
        announce("cycle")
    return job


def _locked(plan: StagingPlan) -> StageIn:
    row = lock_stage_in(StageIn.objects.values_list("pk", flat=True).get(plan=plan))
    if row is None:
        raise NotFound
    return row


def _record(actor: Actor, action: str, plan: StagingPlan) -> None:
    detail = {"name": plan.dataset.name, "cluster": plan.cluster.name}
    tenant_id = plan.dataset.tenant_id
    record_audit(actor, action, object_kind="dataset", object_id=plan.dataset_id, tenant_id=tenant_id, detail=detail)
    announce("stage")
