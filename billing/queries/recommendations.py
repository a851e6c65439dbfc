"""Recommendations that users may see, the labels that organisations require, and what commitments left unused."""

from collections import defaultdict
from collections.abc import Collection
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from uuid import UUID

from django.db import connection
from django.db.models import Q, QuerySet

from billing.engine.recommendations import WINDOW_DAYS, Finding
from billing.engine.recommended_sums import CommittedDay, unused_commitment
from billing.models import Recommendation, RequiredLabels
from foundation.problems import NotFound
from tenancy.engine.roles import Permission
from tenancy.models import Tenant
from tenancy.queries import Actor, NotAllowedHere, permissions_at, tenant_by_path, visible_tenants

from .commitments import newest_splits


def visible_recommendations(
    actor: Actor, *, tenant_path: str = "", state: str = "", kind: str = ""
) -> QuerySet[Recommendation]:
    """Those of tenants that the actor may see; with `tenant_path`, of that one and those below it. Raises NotFound."""
    rows = Recommendation.objects.select_related("tenant")
    if tenant_path:
        tenant = tenant_by_path(actor, tenant_path)
        rows = rows.filter(Q(tenant__path=tenant.path) | Q(tenant__path__startswith=f"{tenant.path}/"))
    else:
        rows = rows.filter(tenant__in=visible_tenants(actor))
    return rows.filter(**({"state": state} if state else {}), **({"kind": kind} if kind else {}))


def recommendation_by_id(actor: Actor, id_: UUID, *, may_decide: bool = False) -> Recommendation:
    """The recommendation. NotFound if the actor may not see it; with `may_decide`, NotAllowedHere if they may only see it."""
    row = visible_recommendations(actor).filter(id=id_).first()
    if row is None:
        raise NotFound
    if may_decide and Permission.DISPUTE_CHARGE not in permissions_at(actor, row.tenant):
        raise NotAllowedHere(row.tenant, Permission.DISPUTE_CHARGE)
    return row


def decidable(actor: Actor, rows: Collection[Recommendation]) -> frozenset[UUID]:
    """The ids of those that the actor may accept and dismiss. One query."""
    tenants = visible_tenants(actor, Permission.DISPUTE_CHARGE).filter(id__in={row.tenant_id for row in rows})
    may = set(tenants.values_list("id", flat=True))
    return frozenset(row.id for row in rows if row.tenant_id in may)


def required_keys(organisation_id: UUID, day: date) -> tuple[str, ...]:
    """The keys of the labels that an organisation's jobs must have on a day."""
    rows = RequiredLabels.objects.filter(organisation=organisation_id, effective_from__lte=day)
    return tuple(rows.order_by("-effective_from", "-id").values_list("keys", flat=True).first() or ())


def visible_required_labels(actor: Actor) -> QuerySet[RequiredLabels]:
    """Those of the organisations that the actor sees as a whole."""
    return RequiredLabels.objects.filter(organisation__in=visible_tenants(actor)).select_related("organisation")


def unused_commitments(organisation_id: UUID, today: date) -> list[Finding]:
    """The findings of an organisation's commitments over the days before `today` that are split."""
    days: dict[UUID, list[CommittedDay]] = defaultdict(list)
    names: dict[UUID, tuple[str, str]] = {}
    for row in newest_splits(organisation_id, today - timedelta(days=WINDOW_DAYS), today):
        unused = Fraction(row.quantity) - Fraction(row.used_quantity)
        days[row.commitment_id].append(CommittedDay(Fraction(row.quantity), unused, Fraction(row.unused)))
        names[row.commitment_id] = row.commitment.name, row.version.currency
    found = (unused_commitment(organisation_id, id_, *names[id_], its) for id_, its in days.items())
    return [one for one in found if one is not None]


def committed_places(organisation_id: UUID, today: date) -> frozenset[tuple[UUID, str]]:
    """The clusters and flavors that commitments of the last 30 days cover."""
    rows = newest_splits(organisation_id, today - timedelta(days=WINDOW_DAYS), today)
    return frozenset(
        (cluster_id, flavor)
        for row in rows
        for cluster_id in row.version.clusters
        for flavor in ({row.version.flavor} | {rate[0] for rate in row.version.rates}) - {""}
    )


def unused_of_days(organisation_id: UUID, commitment_id: UUID, first: date, before: date) -> list[Fraction]:
    """What each split day of a commitment in [first, before) left unused, in its currency."""
    rows = newest_splits(organisation_id, first, before)
    return [Fraction(row.unused) for row in rows if row.commitment_id == commitment_id]


def window_before(today: date) -> tuple[datetime, datetime]:
    """The whole days that findings of `today` are of."""
    until = datetime(today.year, today.month, today.day, tzinfo=UTC)
    return until - timedelta(days=WINDOW_DAYS), until


def organisations_with_usage() -> list[Tenant]:
    """Those whose tenants were ever charged."""
    with connection.cursor() as cursor:
        cursor.execute(WITH_USAGE)
        return list(Tenant.objects.filter(id__in=[row[0] for row in cursor.fetchall()]).order_by("path"))


WITH_USAGE = """
SELECT root.id FROM tenancy_tenant AS root
 WHERE root.parent_id IS NULL AND EXISTS (SELECT 1 FROM billing_tenantday AS d WHERE d.organisation_id = root.id)
"""
SPENT = """
SELECT d.meter_id, d.currency, sum(d.milliseconds::numeric) AS milliseconds, sum(d.cost) AS cost
  FROM billing_meterday AS d JOIN billing_meter AS m ON m.id = d.meter_id
 WHERE d.day >= %(first)s AND d.day < %(last)s AND d.milliseconds > 0 AND d.currency <> '' AND m.tenant_id = ANY(%(tenants)s)
 GROUP BY d.meter_id, d.currency
"""
"""What each meter cost on some days, for statements of this room and those above."""
