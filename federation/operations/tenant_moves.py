"""Which tenants with running work may move in the tree."""

from billing.models import Budget
from foundation.problems import Conflict
from quotas.engine.borrowing import path_prefixes
from quotas.models import Hold
from tenancy.models import Tenant


def keep_budgets_of_work(sender: object, *, tenant: Tenant, new_parent: Tenant, **_: object) -> None:  # noqa: ARG001 - a signal's receiver
    """Refuses to move a tenant with work that holds quota if budgets above the old or the new place count it: they would keep money
    for runs whose costs count elsewhere.
    """
    parting = set(path_prefixes(tenant.path)[:-1]) ^ set(path_prefixes(new_parent.path))
    found = Budget.objects.filter(tenant__path__any_of=sorted(parting), removed_at__isnull=True)
    path = found.order_by("tenant__path").values_list("tenant__path", flat=True).first()
    if path is not None and _has_work(tenant):
        raise Conflict(
            f"{tenant.path} has work, and {path} has a budget, which would count only a part of it. Move the tenant when that work"
            " has ended.",
            code="moved_work_has_budget",
        )


def _has_work(tenant: Tenant) -> bool:
    pending = Hold.objects.filter(state=Hold.State.PENDING)
    below = pending.filter(tenant__path__startswith=f"{tenant.path}/")
    return pending.filter(tenant=tenant).exists() or below.exists()
