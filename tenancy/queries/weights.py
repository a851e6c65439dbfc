"""The weights of tenants: their parts of their parents' shares of turns."""

from tenancy.engine.roles import Permission
from tenancy.models import Tenant

from .actors import Actor, visible_tenants


def weights() -> dict[str, float]:
    """By path, the weights that are not 1."""
    rows = Tenant.objects.exclude(weight=1).values_list("path", "weight")
    return {path: float(weight) for path, weight in rows}


def weighable_paths(actor: Actor) -> frozenset[str]:
    """Paths of tenants whose weight the actor may set: those whose parent's quotas they manage, and for operators of the
    installation organisations too.
    """
    managed = set(visible_tenants(actor, Permission.MANAGE_QUOTAS).values_list("path", flat=True))
    is_operator = actor.runs_the_installation
    return frozenset(path for path in managed if (path.rpartition("/")[0] in managed if "/" in path else is_operator))
