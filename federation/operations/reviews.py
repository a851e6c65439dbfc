"""What a review by policy hooks was based on is read again in the transaction that stores its jobs: hooks take their time."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from uuid import UUID

from django.db import IntegrityError

from federation.engine.intake.spec import JobSpec
from federation.queries.priority_classes import TenantRules, rules_at
from foundation.problems import Conflict, Invalid, Problem
from tenancy.engine.roles import Permission
from tenancy.locks import keep_tenants_in_place
from tenancy.models import Tenant
from tenancy.queries import Actor, tenant_by_path


def keep_reviewed(actor: Actor, tenants: Collection[Tenant]) -> dict[UUID, TenantRules | Problem]:
    """For each tenant that was reviewed: its rules now, or why the actor may not submit to it any more.

    Until the caller's transaction ends, none of them is moved, renamed or removed.
    """
    keep_tenants_in_place([tenant.path for tenant in tenants])
    return {tenant.id: _now(actor, tenant) for tenant in tenants}


def check_reviewed(now: TenantRules | Problem, spec: JobSpec) -> TenantRules:
    """The rules now, if they allow the reviewed spec. Raises the Problem given, or Invalid."""
    if isinstance(now, Problem):
        raise now
    now.chosen(spec.priority_class)
    if fault := now.policy.strategy_fault(spec.strategy):
        raise Invalid.field("strategy", "not_allowed", fault)
    return now


@contextmanager
def while_tenants_exist() -> Iterator[None]:
    """Makes Conflict `tenant_changed` of a commit for a tenant that was removed meanwhile."""
    try:
        yield
    except IntegrityError as error:
        if 'is not present in table "tenancy_tenant"' in str(error):
            raise Conflict("The tenant was removed meanwhile.", code="tenant_changed") from error
        raise


def _now(actor: Actor, tenant: Tenant) -> TenantRules | Problem:
    try:
        found = tenant_by_path(actor, tenant.path, Permission.SUBMIT)
    except Problem as problem:
        return problem
    if found.id != tenant.id:
        return Conflict(
            f"Another tenant took the place of {tenant.path} while the job was reviewed. Submit it again.",
            code="tenant_changed",
        )
    return rules_at(actor, found)
