"""Limits that were lowered below what is held, and whose delay has passed, with what runs under them."""

import json

from django.db import connection
from django.db.models.functions import Now

from federation.queries.preemption import load_allowance, load_running
from federation.queries.snapshot import load_limits
from foundation.clock import database_now
from placement.preemption.surplus import Beyond
from placement.values.preemption import Leaving, Surplus, organisation_of
from quotas.models import QuotaLimit

GOING = """
SELECT tenant.path, hold.cluster_name, hold.amounts::text
  FROM quotas_hold AS hold
  JOIN federation_attempt AS attempt ON attempt.id = hold.holder_id
  JOIN tenancy_tenant AS tenant ON tenant.id = hold.tenant_id
 WHERE hold.state = 'pending' AND (attempt.finished_at IS NOT NULL OR attempt.stop_requested_at IS NOT NULL)
 ORDER BY attempt.id
"""


def load_beyond(*, also_later: bool = False) -> tuple[Beyond, ...]:
    """The organisations with such limits; with `also_later`, also those whose delay has not passed yet. One query if there
    are none.
    """
    rows = QuotaLimit.objects.select_related("tenant").filter(removed_at=None)
    rows = rows.filter(reclaim_at__isnull=False) if also_later else rows.filter(reclaim_at__lte=Now())
    due = [_surplus(row) for row in rows.order_by("tenant__depth", "id")]
    if not due:
        return ()
    organisations = sorted({organisation_of(one.tenant_path) for one in due})
    running = load_running(organisations, 0, is_reclaiming=True)
    limits, going, allowance, now = load_limits(), _going(), load_allowance(organisations), database_now()
    return tuple(
        Beyond(
            now=now,
            organisation=name,
            limits=tuple(one for one in limits if organisation_of(one.tenant_path) == name),
            due=tuple(one for one in due if organisation_of(one.tenant_path) == name),
            running=tuple(one for one in running if organisation_of(one.tenant_path) == name),
            going=tuple(one for one in going if organisation_of(one.tenant_path) == name),
            allowance=allowance,
        )
        for name in organisations
    )


def _surplus(row: QuotaLimit) -> Surplus:
    assert row.reclaim_at is not None
    return Surplus(
        limit_id=row.id,
        tenant_id=row.tenant_id,
        tenant_path=row.tenant.path,
        resource=row.resource,
        clusters=tuple(row.clusters),
        held=row.held,
        most=row.most,
        due_at=row.reclaim_at,
        lowered_by=row.lowered_by,
    )


def _going() -> tuple[Leaving, ...]:
    """What attempts that are being stopped, or have ended and are not settled yet, still hold."""
    with connection.cursor() as cursor:
        cursor.execute(GOING)
        return tuple(Leaving(path, cluster, json.loads(amounts)) for path, cluster, amounts in cursor.fetchall())
