"""Sets and removes priority classes. Jobs keep the value that their class had when they were submitted."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import Q
from django.db.models.functions import Now

from federation.engine.intake.priority_classes import WantedClass, class_json, read_class
from federation.engine.intake.reading import Refused
from federation.locks import rewrite_priority_classes
from federation.models import Job, PlacementPolicy, PriorityClass, PriorityClassGrant
from federation.queries.priority_classes import as_wanted, class_by_id, with_limits
from federation.queries.submissions import field_errors
from foundation.problems import Conflict, FieldError, Invalid
from quotas.operations import put_class_limits
from tenancy.models import Tenant
from tenancy.operations import record_audit
from tenancy.queries import Actor, require_operator

ACT = "change priority classes"
MOST_CLASSES = 64


def put_class(actor: Actor, body: object) -> tuple[PriorityClass, bool]:
    """The class after the change, and whether it is new. `body` replaces the class of its name as a whole.

    Raises PermissionDenied for users who do not operate the installation, Invalid with every field at fault, Conflict
    `too_many_priority_classes`.
    """
    require_operator(actor, ACT)
    wanted = _read(body)
    with transaction.atomic():
        rewrite_priority_classes()
        tenants = _tenants_of(wanted)
        row = with_limits(PriorityClass.objects.filter(name=wanted.name)).first()
        before = None if row is None else _shown(row)
        if row is None and PriorityClass.objects.count() >= MOST_CLASSES:
            told = f"There can be at most {MOST_CLASSES} priority classes."
            raise Conflict(told, code="too_many_priority_classes")
        if row is not None and row.is_default and wanted.is_default is False:
            raise Invalid.field("is_default", "not_allowed", "make another class the default instead")
        put_class_limits(wanted.name, wanted.limits)
        _store(row or PriorityClass(name=wanted.name), wanted, tenants)
        stored = with_limits(PriorityClass.objects.filter(name=wanted.name)).get()
        _record(actor, "priority_class.put", stored.id, before, _shown(stored))
    return class_by_id(actor, stored.id), row is None


def remove_class(actor: Actor, class_id: UUID) -> None:
    """Removes a class. Raises NotFound, PermissionDenied, and Conflict `priority_class_in_use` for the default, and for a class
    that a policy or a job names.
    """
    class_by_id(actor, class_id)
    require_operator(actor, ACT)
    try:
        with transaction.atomic():
            rewrite_priority_classes()
            row = class_by_id(actor, class_id)
            if why := _use_of(row):
                raise Conflict(f"The priority class {row.name} {why}.", code="priority_class_in_use")
            before = _shown(row)
            row.delete()
            _record(actor, "priority_class.remove", class_id, before, None)
    except IntegrityError as error:  # a job or a policy was committed since
        raise Conflict("The priority class is in use now.", code="priority_class_in_use") from error


@contextmanager
def while_classes_exist() -> Iterator[None]:
    """Makes a Conflict of a commit with a class that was removed meanwhile."""
    try:
        yield
    except IntegrityError as error:
        if "priority_class_id" in str(error):
            raise Conflict("The priority class was removed meanwhile. Try again.") from error
        raise


def _read(body: object) -> WantedClass:
    try:
        return read_class(body)
    except Refused as refused:
        raise Invalid(errors=field_errors(refused.faults)) from None


def _tenants_of(wanted: WantedClass) -> Mapping[str, Tenant]:
    """The tenants of its grants, by path."""
    paths = {grant.tenant_path for grant in wanted.grants if grant.tenant_path}
    found = {tenant.path: tenant for tenant in Tenant.objects.filter(path__in=paths)}
    if missing := sorted(paths - set(found)):
        told = f"there is no tenant {', '.join(missing)}"
        raise Invalid(told, errors=[FieldError("grants", "unknown_tenant", told)])
    return found


def _store(row: PriorityClass, wanted: WantedClass, tenants: Mapping[str, Tenant]) -> None:
    if wanted.is_default and not row.is_default:
        PriorityClass.objects.filter(is_default=True).update(is_default=False, changed_at=Now())
        row.is_default = True
    row.value, row.description, row.is_open, row.changed_at = wanted.value, wanted.description, wanted.is_open, Now()
    row.preempts, row.shield_seconds = wanted.preempts, wanted.shield_seconds
    row.save()
    row.grants.all().delete()
    PriorityClassGrant.objects.bulk_create(
        PriorityClassGrant(priority_class=row, role=grant.role, tenant=tenants.get(grant.tenant_path))
        for grant in wanted.grants
    )


def _use_of(row: PriorityClass) -> str:
    """What keeps it from being removed; empty if nothing does."""
    if row.is_default:
        return "is the default: make another class the default first"
    policy = PlacementPolicy.objects.filter(default_priority_class=row).select_related("tenant").first()
    if policy is not None:
        return f"is the default of {policy.tenant.path}"
    if Job.objects.filter(Q(priority_class=row) | Q(spec__priority_class=row.name)).exists():
        return "has jobs: take its grants away, and it is used no more"
    return ""


def _shown(row: PriorityClass) -> dict[str, Any]:
    return class_json(as_wanted(row), is_default=row.is_default)


def _record(
    actor: Actor, action: str, class_id: UUID, before: dict[str, Any] | None, after: dict[str, Any] | None
) -> None:
    detail = {"before": before, "after": after}
    record_audit(actor, action, object_kind="priority_class", object_id=class_id, detail=detail)
