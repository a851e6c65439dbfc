"""The tenant tree as items of a file, as far as an actor sees it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, timedelta
from typing import Any

from django.db.models import F, Q, QuerySet
from django.db.models.functions import Now

from billing.models import Budget
from billing.queries.budgets import visible_budgets
from billing.queries.invoices import visible_terms
from federation.engine.intake.priority_classes import class_json
from federation.engine.tree.items import Items, Key, Kind
from federation.engine.tree.reading import Entry, budget_item, class_limit_name, limit_name, plain, role_item
from federation.engine.tree.writing import tree_text
from federation.queries.priority_classes import as_wanted, visible_classes
from foundation.problems import NotFound
from quotas.engine.amounts import format_amount
from quotas.models import ClassLimit, QuotaLimit, UserHolding
from quotas.queries import visible_class_limits, visible_limits, visible_submission_limits, visible_user_limits
from tenancy.engine.roles import Role
from tenancy.models import RoleBinding, Tenant
from tenancy.queries import Actor, tenant_by_path, visible_tenants

DAY = timedelta(days=1)
EXPORTED = frozenset(Kind) - {Kind.INVOICE_TERMS, Kind.PRIORITY_CLASS, Kind.TENANT}
"""The sections that an export has for each tenant, also without entries, so that they are complete."""
Found = Iterable[tuple[Key, Mapping[str, Any]]]


def tree_items(actor: Actor, roots: Sequence[str] | None, *, with_classes: bool) -> Items:
    """Everything at these tenants and below them that the actor sees; without roots, everything."""
    tenants = visible_tenants(actor)
    if roots is not None:
        below = Q(pk__in=[])
        for root in roots:
            below |= Q(path=root) | Q(path__startswith=f"{root}/")
        tenants = tenants.filter(below)
    found: dict[Key, Mapping[str, Any]] = {}
    for read in (_tenants, _limits, _user_limits, _class_limits, _submission_limits, _budgets, _invoice_terms, _roles):
        found.update(read(actor, tenants))
    if with_classes:
        for row in visible_classes(actor):
            found[Key(Kind.PRIORITY_CLASS, "", row.name)] = class_json(as_wanted(row), is_default=row.is_default)
    return found


def tree_file(actor: Actor, paths: Sequence[str] = ()) -> str:
    """The present state of these tenants and all below them as a file; without paths, all that the actor sees.

    Operators get the priority classes too, unless they name paths. Raises NotFound for a tenant that the actor may not
    see.
    """
    for path in paths:
        tenant_by_path(actor, path)
    with_classes = actor.runs_the_installation and not paths
    items = tree_items(actor, list(paths) or None, with_classes=with_classes)
    if not items:
        raise NotFound
    return tree_text(items, complete=EXPORTED)


def limits_below_use(tenant_paths: Iterable[str]) -> dict[Key, str]:
    """By limit of these tenants, what users read if more is held than the limit and its borrowing allow."""
    rows = QuotaLimit.objects.select_related("tenant").filter(
        tenant__path__any_of=sorted(set(tenant_paths)), removed_at__isnull=True, held__gt=F("nominal")
    )
    found = {}
    for row in rows:
        if row.surplus:
            held, over = (format_amount(row.resource, amount) for amount in (row.held, row.surplus))
            rest = "running jobs continue"
            if row.reclaim_at is not None:
                rest = f"jobs are stopped for it from {row.reclaim_at:%Y-%m-%d %H:%M} UTC on"
            found[Key(Kind.LIMIT, row.tenant.path, limit_name(row.resource, list(row.clusters)))] = (
                f"{held} {row.resource} held or guaranteed, {over} above it: {rest}, new ones wait"
            )
    return found


def user_limits_below_use(tenant_paths: Iterable[str]) -> dict[Key, str]:
    """By limit on each user of these tenants, what users read if some users hold more."""
    above = UserHolding.objects.filter(
        limit__tenant__path__any_of=sorted(set(tenant_paths)), held__gt=F("limit__most")
    ).values_list("limit__tenant__path", "limit__resource")
    counts: dict[Key, int] = {}
    for path, resource in above:
        key = Key(Kind.USER_LIMIT, path, resource)
        counts[key] = counts.get(key, 0) + 1
    return {
        key: f"{count} {'user holds' if count == 1 else 'users hold'} more: they start nothing new until enough has ended"
        for key, count in counts.items()
    }


def class_limits_below_use(tenant_paths: Iterable[str]) -> dict[Key, str]:
    """By limit of a class at these tenants, what users read if the class holds more there."""
    rows = ClassLimit.objects.filter(tenant__path__any_of=sorted(set(tenant_paths)), held__gt=F("most"))
    found = {}
    for path, name, resource, held in rows.values_list("tenant__path", "class_name", "resource", "held"):
        told = f"its jobs hold {format_amount(resource, held)} {resource}: running jobs continue, new ones wait"
        found[Key(Kind.CLASS_LIMIT, path, class_limit_name(name, resource))] = told
    return found


def _tenants(_: Actor, tenants: QuerySet[Tenant]) -> Found:
    for path, kind, labels, weight in tenants.values_list("path", "kind", "labels", "weight"):
        yield Key(Kind.TENANT, path), {"kind": kind}
        if labels:
            yield Key(Kind.LABELS, path), {"labels": labels}
        if weight != 1:
            yield Key(Kind.WEIGHT, path), {"weight": plain(weight)}


def _limits(actor: Actor, tenants: QuerySet[Tenant]) -> Found:
    for row in visible_limits(actor).filter(tenant__in=tenants):
        shown = _amounts_of(row.resource)
        clusters = list(row.clusters)
        yield (
            Key(Kind.LIMIT, row.tenant.path, limit_name(row.resource, clusters)),
            {
                "resource": row.resource,
                "clusters": clusters,
                "nominal": shown(row.nominal),
                "borrowing_limit": shown(row.borrowing_limit),
                "lending_limit": shown(row.lending_limit),
                "reclaims": row.reclaims,
                "reclaim_after": row.reclaim_after,
            },
        )


def _user_limits(actor: Actor, tenants: QuerySet[Tenant]) -> Found:
    for row in visible_user_limits(actor).filter(tenant__in=tenants):
        value = {"resource": row.resource, "most": format_amount(row.resource, row.most)}
        yield Key(Kind.USER_LIMIT, row.tenant.path, row.resource), value


def _class_limits(actor: Actor, tenants: QuerySet[Tenant]) -> Found:
    rows = visible_class_limits(actor).filter(tenant__in=tenants).annotate(path=F("tenant__path"))
    for row in rows:
        value = {"priority_class": row.class_name, "resource": row.resource}
        value["most"] = format_amount(row.resource, row.most)
        yield Key(Kind.CLASS_LIMIT, row.path, class_limit_name(row.class_name, row.resource)), value


def _submission_limits(actor: Actor, tenants: QuerySet[Tenant]) -> Found:
    for row in visible_submission_limits(actor).filter(tenant__in=tenants):
        value = {"most_waiting": row.most_waiting, "jobs_per_minute": row.jobs_per_minute}
        yield Key(Kind.SUBMISSION_LIMIT, row.tenant.path), value


def _budgets(actor: Actor, tenants: QuerySet[Tenant]) -> Found:
    for row in visible_budgets(actor).filter(tenant__in=tenants):
        name, value = budget_entry(row)
        yield Key(Kind.BUDGET, row.tenant.path, name), value


def budget_entry(row: Budget) -> Entry:
    """A budget as a file has it."""
    days: tuple[str | None, str | None] = (None, None)
    if row.starts_at is not None and row.ends_at is not None:
        days = f"{row.starts_at.astimezone(UTC):%Y-%m-%d}", f"{row.ends_at.astimezone(UTC) - DAY:%Y-%m-%d}"
    return budget_item(
        "amount" if row.measure == Budget.Measure.MONEY else "gpu_hours",
        plain(row.amount),
        currency=row.currency,
        period=row.period,
        days=days,
        notify_at=list(row.notify_at),
        stops_admission=row.stops_admission,
    )


def _invoice_terms(actor: Actor, tenants: QuerySet[Tenant]) -> Found:
    for row in visible_terms(actor).filter(tenant__in=tenants):
        texts = {name: getattr(row, name) for name in ("issuer", "tax_name", "cost_centre", "gl_account", "remark")}
        rate = None if row.tax_rate is None else plain(row.tax_rate)
        yield Key(Kind.INVOICE_TERMS, row.tenant.path), {**texts, "tax_rate": rate, "payment_days": row.payment_days}


def _roles(_: Actor, tenants: QuerySet[Tenant]) -> Found:
    for row in bindings_in_force().filter(tenant__in=tenants):
        end = None if row.expires_at is None else row.expires_at.astimezone(UTC).isoformat()
        user, group = row.user.email if row.user else "", row.group.name if row.group else ""
        name, value = role_item(row.role, user=user, group=group, expires_at=end)
        yield Key(Kind.ROLE, row.tenant.path, name), value


def bindings_in_force() -> QuerySet[RoleBinding]:
    """Roles that have not expired."""
    rows = RoleBinding.objects.select_related("tenant", "user", "group")
    return rows.filter(Q(expires_at__isnull=True) | Q(expires_at__gt=Now()))


def binding_at(tenant: Tenant, role: Role, *, user: str, group: str) -> RoleBinding | None:
    """The role of a user (email) or group at the tenant itself, unless it has expired."""
    holder = Q(user__email=user) if user else Q(group__name=group)
    return bindings_in_force().filter(holder, tenant=tenant, role=role).first()


def _amounts_of(resource: str) -> Callable[[int | None], str | None]:
    return lambda amount: None if amount is None else format_amount(resource, amount)
