"""Sets and removes a tenant's failure rules; the next failure is judged by them."""

from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models.functions import Now

from federation.engine.intake.failure_rules import read_tenants_rules, rules_json
from federation.engine.intake.reading import Refused
from federation.locks import rewrite_failure_rules
from federation.models import TenantFailureRules
from federation.queries.failures import RulesView, rules_at
from federation.queries.submissions import field_errors
from foundation.problems import Conflict, Invalid, NotFound
from tenancy.engine.roles import Permission
from tenancy.models import Tenant
from tenancy.operations import record_audit
from tenancy.queries import Actor


def put_failure_rules(actor: Actor, tenant_id: UUID, body: object, *, version: str = "") -> RulesView:
    """The rules after the change. Managers of the tenant set them; an empty list removes them. Equal rules change nothing.

    With `version`, they change only if the own rules are still those of this version. Raises NotFound, NotAllowedHere,
    Conflict `state_conflict` for another version, or Invalid with every field at fault.
    """
    with transaction.atomic():
        rewrite_failure_rules()
        before = rules_at(actor, tenant_id, Permission.MANAGE_TENANTS)
        if version and version != before.version:
            raise Conflict(
                "The rules have changed meanwhile. Open the page again, and repeat your change.", code="state_conflict"
            )
        try:
            rules = rules_json(read_tenants_rules(body))
        except Refused as refused:
            raise Invalid(errors=field_errors(refused.faults)) from None
        if rules != list(before.own):
            _store(before.tenant, rules)
            _record(actor, "failure_rules.put", before, rules)
    return rules_at(actor, tenant_id)


def remove_failure_rules(actor: Actor, tenant_id: UUID) -> None:
    """Removes the tenant's own rules; those above it still apply. Raises NotFound, also if it has no own rules."""
    with transaction.atomic():
        rewrite_failure_rules()
        before = rules_at(actor, tenant_id, Permission.MANAGE_TENANTS)
        removed, _ = TenantFailureRules.objects.filter(tenant_id=tenant_id).delete()
        if not removed:
            raise NotFound("The tenant does not have its own failure rules.")
        _record(actor, "failure_rules.remove", before, [])


def _store(tenant: Tenant, rules: list[dict[str, Any]]) -> None:
    if rules:
        given = {"rules": rules, "changed_at": Now()}
        TenantFailureRules.objects.update_or_create(tenant=tenant, defaults=given)
    else:
        TenantFailureRules.objects.filter(tenant=tenant).delete()


def _record(actor: Actor, action: str, before: RulesView, after: list[dict[str, Any]]) -> None:
    tenant = before.tenant
    detail = {"before": list(before.own), "after": after}
    record_audit(actor, action, object_kind="failure_rules", object_id=tenant.id, tenant_id=tenant.id, detail=detail)
