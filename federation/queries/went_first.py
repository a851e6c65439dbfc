"""Why jobs wait, in the words of a user who sees only some tenants: the tenant whose turn came first is stored by its id."""

from collections.abc import Iterable, Mapping
from uuid import UUID

from federation.models import Job
from placement.cycle.share_reasons import ANOTHER_TENANT
from placement.values.reason_codes import ReasonCode
from tenancy.queries import Actor, visible_tenants


def reason_texts(actor: Actor, jobs: Iterable[Job]) -> Mapping[UUID, str]:
    """By job, the text of its reason, with the name of the other tenant if the actor may see it. No query unless some job
    waits for its share.
    """
    found = list(jobs)
    first = {job.id: UUID(named) for job in found if (named := _went_first(job))}
    ids = sorted(set(first.values()))
    paths = dict(visible_tenants(actor).filter(id__in=ids).values_list("id", "path")) if ids else {}
    return {
        job.id: job.reason_message.replace(ANOTHER_TENANT, path, 1)
        if (path := paths.get(first[job.id]) if job.id in first else None)
        else job.reason_message
        for job in found
    }


def reason_text(actor: Actor, job: Job) -> str:
    """Likewise, of one job."""
    return reason_texts(actor, [job])[job.id]


def _went_first(job: Job) -> str:
    if job.reason_code != ReasonCode.WAITING_FOR_SHARE or not isinstance(job.explanation, dict):
        return ""
    return str(job.explanation.get("went_first", ""))
