"""Jobs, attempts, events and reasons as their viewers may see them. What an actor may not see looks absent."""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Prefetch, QuerySet
from django.utils.dateparse import parse_datetime

from federation.engine.lifecycle import JobState
from federation.models import Attempt, Job, JobEvent, RemoteObject
from foundation.problems import FieldError, Invalid, NotFound
from tenancy.engine.roles import Permission
from tenancy.queries import Actor, tenant_by_path, visible_tenants

JOB_FILTERS = ("tenant", "state", "cluster", "user", "label", "created_after", "created_before")
NEWEST = "newest_attempts"
MAX_IDENTIFIER = 253


def visible_jobs(actor: Actor) -> QuerySet[Job]:
    """Jobs of the tenants that the actor may see, with tenant, submitter and newest attempt loaded."""
    return with_newest_attempt(Job.objects.filter(tenant__in=visible_tenants(actor)))


def with_newest_attempt(jobs: QuerySet[Job]) -> QuerySet[Job]:
    """The jobs, each with a list `newest_attempts` of at most one. Costs two more queries, whatever
    the number of jobs.
    """
    newest = attempts_with_objects(Attempt.objects.order_by("job_id", "-number").distinct("job_id"))
    return jobs.select_related("tenant", "created_by").prefetch_related(Prefetch("attempts", newest, to_attr=NEWEST))


def attempts_with_objects(attempts: QuerySet[Attempt]) -> QuerySet[Attempt]:
    """The attempts with their cluster and their objects in order."""
    objects = RemoteObject.objects.order_by("position")
    return attempts.select_related("cluster", "diagnosis", "progress").prefetch_related(
        Prefetch("remote_objects", objects)
    )


def job_of(actor: Actor, job_id: UUID) -> Job:
    """The job; NotFound if there is none or the actor may not see it."""
    job = visible_jobs(actor).filter(id=job_id).first()
    if job is None:
        raise NotFound
    return job


def permission_to_change(job: Job, actor: Actor) -> Permission:
    """What the actor needs at the job's tenant to cancel, suspend, resume or move it."""
    return Permission.SUBMIT if job.created_by_id == actor.user_id else Permission.MANAGE_JOBS


def filtered_jobs(actor: Actor, query: Mapping[str, str]) -> QuerySet[Job]:
    """Visible jobs narrowed by `JOB_FILTERS`: a tenant with all below it, states (comma-separated), a cluster's name
    (of any attempt), a submitter's email, a label as key:value, and bounds on when it was submitted.
    """
    errors: list[FieldError] = []
    jobs = visible_jobs(actor)
    if "tenant" in query:
        tenant = tenant_by_path(actor, query["tenant"])
        below = visible_tenants(actor).filter(path__startswith=f"{tenant.path}/")
        jobs = jobs.filter(tenant__in=[tenant.id, *below.values_list("id", flat=True)])
    if "state" in query:
        jobs = jobs.filter(state__in=_states(query["state"], errors))
    if "cluster" in query:
        jobs = jobs.filter(id__in=Attempt.objects.filter(cluster__name=query["cluster"]).values("job_id"))
    if "user" in query:
        jobs = jobs.filter(created_by__email=query["user"].lower())
    if "label" in query:
        key, _, value = query["label"].partition(":")
        jobs = jobs.filter(labels__contains={key: value})
    for name, lookup in (("created_after", "created_at__gte"), ("created_before", "created_at__lt")):
        bound = _instant(name, query[name], errors) if name in query else None
        if bound is not None:
            jobs = jobs.filter(**{lookup: bound})
    if errors:
        raise Invalid(errors=errors)
    return jobs


def job_states(text: str) -> list[str]:
    """The comma-separated states of a filter. Invalid for an unknown one."""
    errors: list[FieldError] = []
    states = _states(text, errors)
    if errors:
        raise Invalid(errors[0].detail, errors=errors)
    return states


def _states(text: str, errors: list[FieldError]) -> list[str]:
    states = text.split(",")
    known = {state.value for state in JobState}
    if not known.issuperset(states):
        errors.append(FieldError("state", "unknown_value", f"one or more of: {', '.join(sorted(known))}"))
    return states


def _instant(name: str, text: str, errors: list[FieldError]) -> datetime | None:
    try:
        found = parse_datetime(text.replace(" ", "+"))
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        errors.append(FieldError(name, "bad_format", "a time such as 2026-01-31T12:00:00Z"))
        return None
    return found


def attempts_of(actor: Actor, job_id: UUID) -> QuerySet[Attempt]:
    """All attempts of a visible job."""
    return attempts_with_objects(Attempt.objects.filter(job_id=_visible_id(actor, job_id)))


def events_of(actor: Actor, job_id: UUID) -> QuerySet[JobEvent]:
    """The timeline of a visible job."""
    return JobEvent.objects.filter(job_id=_visible_id(actor, job_id))


def _visible_id(actor: Actor, job_id: UUID) -> UUID:
    if not Job.objects.filter(id=job_id, tenant__in=visible_tenants(actor)).exists():
        raise NotFound
    return job_id


def newest_attempt(job: Job) -> Attempt | None:
    """The newest attempt of a job from `visible_jobs`; a job just submitted has none."""
    attempts: Collection[Attempt] = getattr(job, NEWEST, ())
    return next(iter(attempts), None)


def expected_start(job: Job, now: datetime) -> dict[str, Any] | None:
    """When a waiting job is expected to start: `at`, `cluster`, `message`; None if that is unknown or out of date."""
    start: dict[str, Any] | None = job.explanation.get("start") if job.state == JobState.QUEUED else None
    at = None if start is None else parse_datetime(start["at"])
    return start if at is not None and at > now else None
