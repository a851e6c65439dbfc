"""Sets and removes limits on submission."""

from collections.abc import Mapping
from uuid import UUID

from django.db import transaction
from django.db.models.functions import Now

from foundation.problems import FieldError, Invalid, NotFound
from quotas.models import MOST_PER_MINUTE, MOST_WAITING, SubmissionLimit
from quotas.queries import submission_limit_by_id
from tenancy.operations import record_audit
from tenancy.queries import Actor, tenant_by_path

from .limits import require_from_above


def put_submission_limit(
    actor: Actor, tenant_path: str, *, most_waiting: int | None, jobs_per_minute: int | None
) -> tuple[SubmissionLimit, bool]:
    """The limit after the change, and whether it is new. None sets no limit; one of the two must be set.

    Jobs that wait already stay. The actor must manage quotas one level above the tenant. Raises NotFound, NotAllowedHere
    and Invalid.
    """
    tenant = tenant_by_path(actor, tenant_path)
    require_from_above(actor, tenant)
    _check(most_waiting, jobs_per_minute)
    with transaction.atomic():
        was = SubmissionLimit.objects.filter(tenant=tenant).first()
        limit, is_new = SubmissionLimit.objects.get_or_create(
            tenant=tenant, defaults={"most_waiting": most_waiting, "jobs_per_minute": jobs_per_minute}
        )
        if not is_new:
            SubmissionLimit.objects.filter(id=limit.id).update(
                most_waiting=most_waiting, jobs_per_minute=jobs_per_minute, updated_at=Now()
            )
        detail = {"most_waiting": most_waiting, "jobs_per_minute": jobs_per_minute, "was": _shown(was)}
        _record(actor, "submission_limit.put", limit, detail)
    return SubmissionLimit.objects.select_related("tenant").get(id=limit.id), is_new


def delete_submission_limit(actor: Actor, limit_id: UUID) -> None:
    """Removes a limit on submission. Raises NotFound and NotAllowedHere."""
    found = submission_limit_by_id(actor, limit_id)
    require_from_above(actor, found.tenant)
    with transaction.atomic():
        deleted, _ = SubmissionLimit.objects.filter(id=limit_id).delete()
        if not deleted:
            raise NotFound
        _record(actor, "submission_limit.delete", found, {"was": _shown(found)})


def _check(most_waiting: int | None, jobs_per_minute: int | None) -> None:
    errors = []
    if most_waiting is None and jobs_per_minute is None:
        errors.append(FieldError("jobs_per_minute", "required", "set this, or most_waiting, or both"))
    if most_waiting is not None and not 0 <= most_waiting <= MOST_WAITING:
        errors.append(FieldError("most_waiting", "out_of_range", f"from 0 to {MOST_WAITING}"))
    if jobs_per_minute is not None and not 1 <= jobs_per_minute <= MOST_PER_MINUTE:
        errors.append(FieldError("jobs_per_minute", "out_of_range", f"from 1 to {MOST_PER_MINUTE}"))
    if errors:
        raise Invalid(errors=errors)


def _shown(limit: SubmissionLimit | None) -> dict[str, int | None] | None:
    return None if limit is None else {"most_waiting": limit.most_waiting, "jobs_per_minute": limit.jobs_per_minute}


def _record(actor: Actor, action: str, limit: SubmissionLimit, detail: Mapping[str, object]) -> None:
    record_audit(
        actor,
        action,
        object_kind="submission_limit",
        object_id=limit.id,
        tenant_id=limit.tenant_id,
        detail=dict(detail),
    )
