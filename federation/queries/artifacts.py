"""The artifacts of jobs: what they declare, with what their runs announced."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from django.db.models import OuterRef, QuerySet, Subquery

from federation.engine.artifacts import base_of, unannounced
from federation.models import Artifact, Attempt, Job
from federation.queries.jobs import visible_jobs
from foundation.problems import NotFound
from tenancy.queries import Actor


@dataclass(frozen=True, slots=True)
class ArtifactLine:
    """A declared artifact. `reference` is a path below the tenant's part of the storage, or a URL if there is none."""

    name: str
    is_required: bool
    storage: str
    reference: str
    announced: Artifact | None
    """With its attempt and cluster loaded; None if no run that counts announced it."""


def artifacts_of(jobs: Sequence[Job]) -> Mapping[UUID, tuple[ArtifactLine, ...]]:
    """The artifacts of each job that declares any, in the order of its spec. At most one query."""
    declaring = [job for job in jobs if job.spec.get("artifacts")]
    if not declaring:
        return {}
    known = {(row.attempt.job_id, row.name): row for row in _of_jobs([job.id for job in declaring])}
    return {
        job.id: tuple(
            ArtifactLine(
                one["name"], one["required"], one.get("storage", ""), base_of(one), known.get((job.id, one["name"]))
            )
            for one in job.spec["artifacts"]
        )
        for job in declaring
    }


def _of_jobs(job_ids: Sequence[UUID]) -> QuerySet[Artifact]:
    """The artifacts of the newest attempt of each job that announced any: later attempts may have overwritten what earlier ones
    announced, so those of two attempts are never mixed.
    """
    newest = (
        Artifact.objects.filter(attempt__job=OuterRef("attempt__job"))
        .order_by("-attempt__number")
        .values("attempt__number")[:1]
    )
    rows = Artifact.objects.filter(attempt__job__in=job_ids, attempt__number=Subquery(newest))
    return rows.select_related("attempt__cluster")


def announced_artifacts(actor: Actor, job_id: UUID, number: int | None = None) -> QuerySet[Artifact]:
    """The artifacts of a visible job; with a number, what that attempt announced. NotFound without such an attempt."""
    if not visible_jobs(actor).filter(id=job_id).exists():
        raise NotFound
    if number is None:
        return _of_jobs([job_id])
    if not Attempt.objects.filter(job=job_id, number=number).exists():
        raise NotFound("The job has no attempt of this number.")
    rows = Artifact.objects.filter(attempt__job=job_id, attempt__number=number)
    return rows.select_related("attempt__cluster")


def missing_artifacts(succeeded: Iterable[tuple[Job, Attempt]]) -> Mapping[UUID, Sequence[str]]:
    """The required artifacts that each of these attempts did not announce itself, by attempt. At most one query."""
    asked = {
        attempt.id: job.spec["artifacts"]
        for job, attempt in succeeded
        if any(one["required"] for one in job.spec.get("artifacts", ()))
    }
    if not asked:
        return {}
    known: dict[UUID, set[str]] = {id_: set() for id_ in asked}
    for id_, name in Artifact.objects.filter(attempt__in=asked).values_list("attempt_id", "name"):
        known[id_].add(name)
    return {id_: names for id_, declared in asked.items() if (names := unannounced(declared, known[id_]))}
