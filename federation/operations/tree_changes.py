"""Makes one change of a tree file, by the operation that pages and API use for it."""

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from billing.engine.invoices import Terms
from billing.operations.budgets import WantedBudget, delete_budget, put_budget
from billing.operations.invoices import put_terms
from billing.queries.budgets import visible_budgets
from federation.engine.tree.items import Change, Kind
from federation.queries.tree import binding_at, budget_entry
from foundation.problems import Conflict, Invalid, NotFound
from quotas.engine.amounts import parse_amount
from quotas.engine.holds import Borrowing
from quotas.operations import (
    delete_class_limit,
    delete_limit,
    delete_submission_limit,
    delete_user_limit,
    put_limit,
    put_submission_limit,
    put_user_limit,
)
from quotas.queries import visible_class_limits, visible_limits, visible_submission_limits, visible_user_limits
from tenancy.engine.roles import Role
from tenancy.models import Tenant
from tenancy.operations import (
    Until,
    bind_role,
    change_binding,
    change_tenant,
    create_tenant,
    remove_tenant,
    set_weight,
    unbind_role,
)
from tenancy.queries import Actor, tenant_by_path

from .class_limits import put_tenant_class_limit
from .priority_classes import put_class

Value = Mapping[str, Any]
DAY = timedelta(days=1)


def carry_out(actor: Actor, change: Change) -> None:
    """Makes the change as the actor, within the caller's transaction. Raises the Problems of its operation."""
    if change.after is None:
        assert change.before is not None
        REMOVALS[change.key.kind](actor, change.key.tenant, change.before)
    else:
        WRITES[change.key.kind](actor, change.key.tenant, change.after)


def _write_tenant(actor: Actor, path: str, value: Value) -> None:
    above, _, name = path.rpartition("/")
    if Tenant.objects.filter(path=path).exists():
        tenant_by_path(actor, path)
        raise Conflict(f"{path} exists with another kind, which never changes.", code="tenant_exists")
    try:
        parent = tenant_by_path(actor, above) if above else None
    except NotFound:
        raise Invalid.field("path", "unknown_tenant", f"there is no tenant {above}") from None
    create_tenant(actor, name=name, kind=value["kind"], parent_id=parent.id if parent else None)


def _remove_tenant(actor: Actor, path: str, _: Value) -> None:
    remove_tenant(actor, tenant_by_path(actor, path).id)


def _write_labels(actor: Actor, path: str, value: Value) -> None:
    change_tenant(actor, tenant_by_path(actor, path).id, labels=value["labels"])


def _remove_labels(actor: Actor, path: str, _: Value) -> None:
    change_tenant(actor, tenant_by_path(actor, path).id, labels={})


def _write_weight(actor: Actor, path: str, value: Value) -> None:
    set_weight(actor, path, Decimal(value["weight"]))


def _remove_weight(actor: Actor, path: str, _: Value) -> None:
    set_weight(actor, path, Decimal(1))


def _write_limit(actor: Actor, path: str, value: Value) -> None:
    resource = value["resource"]
    nominal, borrow, lend = (
        None if value[name] is None else parse_amount(resource, value[name])
        for name in ("nominal", "borrowing_limit", "lending_limit")
    )
    assert nominal is not None
    borrowing = Borrowing(borrow, lend, reclaims=value["reclaims"])
    put_limit(
        actor,
        path,
        resource,
        nominal=nominal,
        clusters=value["clusters"],
        borrowing=borrowing,
        reclaim_after=value["reclaim_after"],
    )


def _remove_limit(actor: Actor, path: str, value: Value) -> None:
    own = visible_limits(actor, resource=value["resource"]).filter(tenant__path=path, clusters=value["clusters"])
    delete_limit(actor, _the_id(own.values_list("id", flat=True).first()))


def _write_user_limit(actor: Actor, path: str, value: Value) -> None:
    resource = value["resource"]
    put_user_limit(actor, path, resource, most=parse_amount(resource, value["most"]))


def _remove_user_limit(actor: Actor, path: str, value: Value) -> None:
    own = visible_user_limits(actor, resource=value["resource"]).filter(tenant__path=path)
    delete_user_limit(actor, _the_id(own.values_list("id", flat=True).first()))


def _write_class_limit(actor: Actor, path: str, value: Value) -> None:
    resource = value["resource"]
    most = parse_amount(resource, value["most"])
    put_tenant_class_limit(actor, path, value["priority_class"], resource, most=most)


def _remove_class_limit(actor: Actor, path: str, value: Value) -> None:
    own = visible_class_limits(actor, class_name=value["priority_class"], resource=value["resource"])
    delete_class_limit(actor, _the_id(own.filter(tenant__path=path).values_list("id", flat=True).first()))


def _write_submission_limit(actor: Actor, path: str, value: Value) -> None:
    put_submission_limit(actor, path, most_waiting=value["most_waiting"], jobs_per_minute=value["jobs_per_minute"])


def _remove_submission_limit(actor: Actor, path: str, _: Value) -> None:
    own = visible_submission_limits(actor).filter(tenant__path=path)
    delete_submission_limit(actor, _the_id(own.values_list("id", flat=True).first()))


def _write_budget(actor: Actor, path: str, value: Value) -> None:
    is_money = "amount" in value
    put_budget(
        actor,
        WantedBudget(
            tenant_path=path,
            measure="money" if is_money else "gpu_hours",
            amount=Decimal(value["amount" if is_money else "gpu_hours"]),
            currency=value.get("currency", ""),
            period=value["period"],
            starts_at=_midnight(value.get("starts_on")),
            ends_at=_midnight(value.get("ends_on"), after=DAY),
            notify_at=tuple(value["notify_at"]),
            stops_admission=value["stops_admission"],
        ),
    )


def _remove_budget(actor: Actor, path: str, value: Value) -> None:
    rows = visible_budgets(actor).filter(tenant__path=path)
    delete_budget(actor, _the_id(next((row.id for row in rows if budget_entry(row)[1] == value), None)))


def _write_invoice_terms(actor: Actor, path: str, value: Value) -> None:
    rate = None if value["tax_rate"] is None else Decimal(value["tax_rate"])
    put_terms(actor, path, Terms(**{**value, "tax_rate": rate}))


def _write_class(actor: Actor, _: str, value: Value) -> None:
    put_class(actor, dict(value))


def _write_role(actor: Actor, path: str, value: Value) -> None:
    tenant = tenant_by_path(actor, path)
    end = None if value["expires_at"] is None else datetime.fromisoformat(value["expires_at"])
    user, group, role = value.get("user", ""), value.get("group", ""), Role(value["role"])
    binding = binding_at(tenant, role, user=user, group=group)
    if binding is None:
        bind_role(actor, tenant.id, role=role, user=user, group=group, expires_at=end)
    else:
        change_binding(actor, tenant.id, binding.id, until=Until(end))


def _remove_role(actor: Actor, path: str, value: Value) -> None:
    tenant = tenant_by_path(actor, path)
    binding = binding_at(tenant, Role(value["role"]), user=value.get("user", ""), group=value.get("group", ""))
    unbind_role(actor, tenant.id, _the_id(None if binding is None else binding.id))


WRITES: Mapping[Kind, Callable[[Actor, str, Value], None]] = {
    Kind.TENANT: _write_tenant,
    Kind.LABELS: _write_labels,
    Kind.WEIGHT: _write_weight,
    Kind.LIMIT: _write_limit,
    Kind.USER_LIMIT: _write_user_limit,
    Kind.CLASS_LIMIT: _write_class_limit,
    Kind.SUBMISSION_LIMIT: _write_submission_limit,
    Kind.BUDGET: _write_budget,
    Kind.INVOICE_TERMS: _write_invoice_terms,
    Kind.PRIORITY_CLASS: _write_class,
    Kind.ROLE: _write_role,
}
REMOVALS: Mapping[Kind, Callable[[Actor, str, Value], None]] = {
    Kind.TENANT: _remove_tenant,
    Kind.LABELS: _remove_labels,
    Kind.WEIGHT: _remove_weight,
    Kind.LIMIT: _remove_limit,
    Kind.USER_LIMIT: _remove_user_limit,
    Kind.CLASS_LIMIT: _remove_class_limit,
    Kind.SUBMISSION_LIMIT: _remove_submission_limit,
    Kind.BUDGET: _remove_budget,
    Kind.ROLE: _remove_role,
}


def _the_id(found: UUID | None) -> UUID:
    """Raises NotFound if it was removed meanwhile."""
    if found is None:
        raise NotFound
    return found


def _midnight(day: str | None, *, after: timedelta = timedelta()) -> datetime | None:
    if day is None:
        return None
    return datetime.combine(min(date.fromisoformat(day), date.max - DAY) + after, time(), UTC)
