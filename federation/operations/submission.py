"""Submission: one transaction stores the job, its first event, the answer to its key, the audit entry and the wake-up.

The reply is sent after the commit, so an acknowledged job is never lost. A job that could never run is refused here,
with the reasons. Every other job is queued, and the cycle explains why it waits.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec
from django.db import connection

from federation.engine.intake.normal_form import request_of, shape_of, spec_json
from federation.engine.intake.priority_classes import ClassHere
from federation.engine.intake.spec import JobSpec
from federation.engine.lifecycle import JobState
from federation.models import Job
from federation.queries.feasibility import refuse_hopeless
from federation.queries.policy_hooks import Draft, Reviewed, has_hooks, review
from federation.queries.priority_classes import TenantRules, rules_at
from federation.queries.queue import refuse_when_full
from federation.queries.reservations import with_reservation
from federation.queries.submissions import Submission, read_submission
from foundation import clock
from foundation.ids import new_id
from foundation.outbox import ANNOUNCING
from foundation.problems import PermissionDenied
from foundation.rows import columns_of
from placement.values.model import JobRequest
from placement.values.reason_codes import ReasonCode
from tenancy.engine.roles import Permission
from tenancy.models import Tenant, User
from tenancy.operations import ADD_ENTRY, Answer, answer_once, entry_values, given_answer
from tenancy.queries import Actor, tenant_by_path

from .figures import SUBMITTED
from .priority_classes import while_classes_exist
from .reviews import check_reviewed, keep_reviewed, while_tenants_exist
from .submission_limits import within_submission_limits

ROUTE = "jobs"
NEW = ReasonCode.NEW
JOB_COLUMNS = columns_of(Job)
INSERT_JOB = f"""
    WITH audited AS ({ADD_ENTRY}), job AS (
        INSERT INTO federation_job ({", ".join(JOB_COLUMNS)})
        VALUES ({", ".join(f"%({column})s" for column in JOB_COLUMNS)}) RETURNING id, created_at
    ), event AS (
        INSERT INTO federation_jobevent (job_id, at, kind, message)
        SELECT id, created_at, 'submitted', %(message)s FROM job
    ), {ANNOUNCING}
"""
"""One statement, because it is the most frequent change: the job, its first event, the audit entry and the wake-up.

PostgreSQL runs parts that nothing reads from the last to the first, so the audit entry is written last, and its link of the
chain is locked at the commit after the rows that the job refers to: as by all who change those rows and then record it.
"""


def submit_job(
    actor: Actor, body: object, *, show: Callable[[Job], dict[str, Any]], key: str = "", raw: bytes = b""
) -> Answer:
    """201 and the new job as rendered by `show`, or the first answer to this key again.

    `body` is `{"tenant": path, …spec}` or `{"tenant": path, "manifest": {…}}`; `raw` is the same as sent. Raises
    Invalid with every field at fault, NotFound or PermissionDenied for the tenant, and what `refuse_when_full`,
    `review`, `refuse_hopeless` and `within_submission_limits` raise. Policy hooks are called before the transaction, and not again once the key has
    its answer. Tenant, permission and rules that they took for granted are then read again in it: Conflict `tenant_changed`,
    or as at first.
    """
    submitter, submission = submitter_of(actor), read_submission(body)
    tenant = tenant_by_path(actor, submission.tenant_path, Permission.SUBMIT)
    reviewed: tuple[Reviewed, TenantRules] | None = None
    if has_hooks():
        given = given_answer(actor, tenant_id=tenant.id, route=ROUTE, key=key, body=raw)
        if given is not None:
            return given
        rules = rules_at(actor, tenant)
        reviewed = review(actor, Draft(tenant.path, submission.under(rules), rules)), rules

    def drafted() -> tuple[Job, Reviewed]:
        refuse_when_full(tenant)
        final, rules = reviewed or _completed(actor, tenant, submission)
        chosen = rules.classes.named(final.spec.priority_class)
        job = new_job(submitter, tenant, with_reservation(final.spec, tenant), chosen, clock.now())
        refuse_hopeless(request_for(job), tenant.id)
        return job, final

    # Policy hooks are called before the transaction, unless the key may already have an answer.
    draft = None if key else drafted()

    def produce() -> tuple[int, dict[str, Any]]:
        if reviewed:
            check_reviewed(keep_reviewed(actor, [tenant])[tenant.id], reviewed[0].spec)
        job, final = draft or drafted()
        _insert(actor, job, final)
        return 201, show(job)

    with while_classes_exist(), while_tenants_exist(), within_submission_limits():
        answer = answer_once(actor, tenant_id=tenant.id, route=ROUTE, key=key, body=raw, produce=produce)
    if not answer.replayed:
        SUBMITTED.labels("single").inc()
    return answer


def submitter_of(actor: Actor) -> User:
    """The actor's user, who can be named; PermissionDenied for the platform itself, which submits nothing."""
    if actor.user_id is None:
        raise PermissionDenied("Only users can submit jobs and reserve nodes.")
    return User(id=actor.user_id, email=actor.name)


def _completed(actor: Actor, tenant: Tenant, submission: Submission) -> tuple[Reviewed, TenantRules]:
    rules = rules_at(actor, tenant)
    return Reviewed(submission.under(rules)), rules


def request_for(job: Job) -> JobRequest:
    """A job as placement sees it before it waits."""
    return request_of(job.spec, job_id=job.id, tenant_path=job.tenant.path, shape=job.shape, priority=job.priority)


def new_job(submitter: User, tenant: Tenant, spec: JobSpec, chosen: ClassHere, at: datetime) -> Job:
    """The unsaved row of a job of a priority class."""
    stored = spec_json(spec)
    return Job(
        id=new_id(),
        tenant=tenant,
        created_by=submitter,
        name=spec.name,
        spec=stored,
        shape=shape_of(stored, chosen.value),
        labels=stored["labels"],
        priority=chosen.value,
        priority_class_id=chosen.id,
        state=JobState.QUEUED,
        reason_code=NEW,
        reason_message="Not yet considered.",
        reason_at=at,
        created_at=at,
    )


def values_of(job: Job) -> dict[str, Any]:
    """A new job's values by column, in the order of JOB_COLUMNS."""
    values = ((column, getattr(job, column)) for column in JOB_COLUMNS)
    return {name: msgspec.json.encode(value).decode() if isinstance(value, dict) else value for name, value in values}


def _insert(actor: Actor, job: Job, final: Reviewed) -> None:
    detail = {"name": job.name, **final.detail}
    given = {
        **values_of(job),
        **entry_values(actor, "job.submit", "job", job.id, job.tenant_id, detail),
        "message": f"Submitted by {actor.name}.{final.sentence}",
        "topics": ["cycle"],
    }
    with connection.cursor() as cursor:
        cursor.execute(INSERT_JOB, given)
