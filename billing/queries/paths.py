"""Whose usage a report covers. Paths are those that tenants had when metered, unless the report is asked for today's; who may see
them depends on their place now.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from django.db import connection
from django.db.models import Q

from billing.models import Meter
from foundation.problems import NotFound
from tenancy.models import Tenant
from tenancy.queries import Actor, tenant_by_path, visible_tenants

AS_WAS, AS_IS = "as_was", "as_is"
PATHS = (AS_WAS, AS_IS)
"""The paths of tenants in a report: those of then, or today's."""
AFTER_SLASH = "0"
"""The character after the slash: paths below a path sort before the path with it appended."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Usage at or below `path` (empty: anywhere) of these tenants, each with its current path. `is_current`: all usage of these
    tenants, by their current paths.
    """

    path: str
    tenants: Mapping[UUID, str]
    is_current: bool = False

    def path_of(self, meter: Meter) -> str:
        """The path of its usage: the one that the meter stores, or for an unsaved meter the one that it
        would get now.
        """
        return (not self.is_current and meter.tenant_path) or self.tenants[meter.tenant_id]

    def covers(self, meter: Meter) -> bool:
        """Whether the usage of this meter, which belongs to one of the tenants, is at or below the path."""
        return not self.path or f"{self.path_of(meter)}/".startswith(f"{self.path}/")


def organisation_named(path: str) -> Tenant | None:
    """The organisation of this name, which the caller has not checked; None if there is none."""
    return None if "\x00" in path else Tenant.objects.filter(path=path, parent=None).first()


def tenants_under(actor: Actor, path: str) -> dict[UUID, str]:
    """The current paths by id of the visible tenants that are, or were while metered, at or below `path`.

    Empty means everywhere. Raises NotFound if the actor can see no tenant there and none that left it.
    """
    visible = visible_tenants(actor)
    if not path:
        return dict(visible.values_list("id", "path"))
    here = Q(path=path) | Q(path__startswith=f"{path}/")
    gone = dict(visible.filter(id__in=_metered_under(path)).exclude(here).values_list("id", "path"))
    try:
        tenant_by_path(actor, path)
    except NotFound:
        if not gone:
            raise
        return gone
    return gone | dict(Tenant.objects.filter(here).values_list("id", "path"))


def tenants_now_under(actor: Actor, path: str) -> dict[UUID, str]:
    """The current paths by id of the visible tenants at or below `path`; empty means everywhere. Raises NotFound."""
    visible = visible_tenants(actor)
    if path:
        tenant_by_path(actor, path)
        visible = visible.filter(Q(path=path) | Q(path__startswith=f"{path}/"))
    return dict(visible.values_list("id", "path"))


def tenants_were_under(actor: Actor, path: str) -> bool:
    """Whether the actor may see a tenant with usage at or below a path that no tenant has any more."""
    path = path.strip("/ ")
    return bool(path) and visible_tenants(actor).filter(id__in=_metered_under(path)).exists()


def _metered_under(path: str) -> list[UUID]:
    if "\x00" in path:
        return []
    with connection.cursor() as cursor:
        cursor.execute(METERED_UNDER, {"path": path, "beyond": path + AFTER_SLASH})
        return [row[0] for row in cursor.fetchall()]


METERED_UNDER = """
WITH RECURSIVE place AS (
    (SELECT tenant_path, tenant_id FROM billing_meter WHERE tenant_path >= %(path)s AND tenant_path < %(beyond)s
     ORDER BY tenant_path, tenant_id LIMIT 1)
     UNION ALL
    SELECT following.tenant_path, following.tenant_id FROM place CROSS JOIN LATERAL (
        SELECT tenant_path, tenant_id FROM billing_meter
        WHERE (tenant_path, tenant_id) > (place.tenant_path, place.tenant_id) AND tenant_path < %(beyond)s
        ORDER BY tenant_path, tenant_id LIMIT 1) AS following
)
SELECT DISTINCT tenant_id FROM place WHERE tenant_path = %(path)s OR starts_with(tenant_path, %(path)s || '/')
"""
"""Skips from one tenant and path to the next in the index: its time grows with their number, not with that
of meters.
"""
