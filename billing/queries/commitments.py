"""Commitments as they apply now, the usage that they cover, and what the ledger has of them."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import OuterRef, QuerySet, Subquery

from billing.engine.commitment_usage import run_of
from billing.engine.commitments import Commitment as Terms
from billing.engine.commitments import Run
from billing.engine.credits import policy_on
from billing.engine.ledger import Entry, PriceBook, RatedSegment, ShareOf, units
from billing.engine.months import midnight
from billing.engine.rating import Load
from billing.engine.savings_plans import PlanRate
from billing.models import CommitmentDay, CommitmentVersion, LedgerEntry, TenantDay
from tenancy.queries import Actor, visible_tenants

from .charges import corrections_of, credit_policies, entry_of, losses_of
from .prices import price_spans

A_DAY = timedelta(days=1)


def newest_versions(organisation_id: UUID | None = None) -> QuerySet[CommitmentVersion]:
    """The version of each commitment that applies, by name; of one organisation if given."""
    newest = CommitmentVersion.objects.filter(commitment=OuterRef("commitment")).order_by("-number").values("id")[:1]
    rows = CommitmentVersion.objects.filter(id=Subquery(newest)).select_related("commitment__organisation")
    if organisation_id is not None:
        rows = rows.filter(commitment__organisation=organisation_id)
    return rows.order_by("commitment__name", "id")


def visible_commitments(actor: Actor) -> QuerySet[CommitmentVersion]:
    """The versions that apply, of the organisations that the actor may see as a whole."""
    return newest_versions().filter(commitment__organisation__in=visible_tenants(actor))


def terms_of_version(row: CommitmentVersion) -> Terms:
    """A version as a value."""
    return Terms(
        row.commitment_id, row.number, row.commitment.name, frozenset(row.clusters), row.flavor, row.capacity_type, row.units,
        row.start.astimezone(UTC), row.until.astimezone(UTC), units(row.upfront), units(row.recurring), row.currency,
        units(row.hourly), tuple(PlanRate(name, kind, units(Decimal(rate))) for name, kind, rate in row.rates),
    )  # fmt: skip


def commitments_in(organisation_id: UUID, start: date, until: date) -> list[Terms]:
    """The commitments of an organisation that have hours within the days [start, until)."""
    rows = newest_versions(organisation_id).filter(
        is_withdrawn=False, start__lt=midnight(until), until__gt=midnight(start)
    )
    return [terms_of_version(row) for row in rows]


def is_counted(organisation_id: UUID, day: date, commitments: Collection[Terms]) -> bool:
    """Whether the ledger has counted the usage of a day that these commitments may cover."""
    due = TenantDay.objects.filter(organisation=organisation_id, day=day, is_due=True)
    return not due.filter(cluster__in=_clusters(commitments), flavor__in=_flavors(commitments)).exists()


def runs_in(
    organisation_id: UUID, start: date, until: date, commitments: Collection[Terms]
) -> Mapping[date, list[Run]]:
    """The usage of the days [start, until) that these commitments may cover, by day."""
    clusters = _clusters(commitments)
    begins, ends = midnight(start), midnight(until)
    values: dict[str, Any] = {
        "organisation": organisation_id, "first": start, "last": until, "start": begins, "until": ends,
        "clusters": list(clusters), "flavors": sorted(_flavors(commitments)),
        "capacity_types": sorted({kind for one in commitments for _, kind in one.kinds}),
    }  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute(RUNS, values)
        rows = cursor.fetchall()
    books = _books(clusters, begins, ends)
    policies = credit_policies(organisation_id, until)
    losses = losses_of({row[-1] for row in rows}) if policies else {}
    found: dict[date, list[Run]] = {}
    for tenant_id, path, cluster_id, *segment in rows:
        its = _segment(*segment)
        day = its.start.astimezone(UTC).date()
        policy = policy_on(policies, day)
        user = str(cluster_id), path, str(tenant_id)
        found.setdefault(day, []).extend(
            run_of(user, its, books.get(cluster_id, {}), losses, policy.causes if policy else ())
        )
    return found


def standing_entries(organisation_id: UUID, day: date) -> tuple[list[Entry], Mapping[str, int]]:
    """The entries of a day's commitments that nothing reversed, and how often each name was posted."""
    rows = LedgerEntry.objects.filter(organisation=organisation_id, charge_day=day, kind__in=["commitment", "purchase"])
    rows = rows.select_related("reverses", "reversed_by").prefetch_related("lines__account").order_by("id")
    standing, posted = [], Counter[str]()
    for row in rows:
        entry = entry_of(row, ShareOf(row.cluster_id, row.flavor, row.tenant_path))
        posted[entry.key.rpartition("/")[0]] += 1
        if not hasattr(row, "reversed_by"):
            standing.append(entry)
    return standing, posted


def newest_splits(organisation_id: UUID, start: date, until: date) -> list[CommitmentDay]:
    """How the days [start, until) of an organisation's commitments are split, by commitment and day."""
    rows = CommitmentDay.objects.filter(commitment__organisation=organisation_id, day__gte=start, day__lt=until)
    rows = rows.order_by("commitment_id", "day", "-revision").distinct("commitment_id", "day")
    return list(rows.select_related("commitment", "version"))


def unsplit_days(organisation_id: UUID, month: date) -> list[date]:
    """The days of a month whose commitments are not split by what applies."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT day FROM billing_unsplit(%s, %s) AS day ORDER BY 1", [organisation_id, month])
        return [row[0] for row in cursor.fetchall()]


def _clusters(commitments: Iterable[Terms]) -> set[UUID]:
    return {id_ for one in commitments for id_ in one.clusters}


def _flavors(commitments: Iterable[Terms]) -> set[str]:
    return {flavor for one in commitments for flavor, _ in one.kinds}


def _books(
    clusters: Collection[UUID], start: datetime, until: datetime
) -> Mapping[UUID, dict[tuple[str, str], PriceBook]]:
    prices = price_spans(clusters, start, until)
    corrections = corrections_of(clusters, start, until)
    books: dict[UUID, dict[tuple[str, str], PriceBook]] = {}
    for cluster_id, flavor, capacity_type in {*prices, *corrections}:
        key = cluster_id, flavor, capacity_type
        book = PriceBook(tuple(prices.get(key, ())), corrections.get(key, ()))
        books.setdefault(cluster_id, {})[flavor, capacity_type] = book
    return books


def _segment(start: datetime, until: datetime, cost: Any, currency: str, *meter: Any) -> RatedSegment:
    unit, gpu_units, cpu, memory, since, capacity_type, flavor, cpu_flavor, run_id = meter
    return RatedSegment(
        Load(unit, gpu_units, cpu, since, memory),
        capacity_type,
        flavor,
        cpu_flavor,
        start,
        until,
        cost,
        currency,
        run_id,
    )


RUNS = """
SELECT d.tenant_id, d.tenant_path, d.cluster_id, lower(s.period), upper(s.period), s.cost, s.currency, m.unit, m.gpu_units,
    m.cpu_millicores, m.memory_mib, m.metered_from, m.capacity_type, m.flavor, m.cpu_flavor, m.run_id
FROM (
    SELECT DISTINCT tenant_id, tenant_path, cluster_id, flavor FROM billing_tenantday
    WHERE organisation_id = %(organisation)s AND day >= %(first)s AND day < %(last)s
        AND cluster_id = ANY(%(clusters)s) AND flavor = ANY(%(flavors)s)
) AS d JOIN billing_meter AS m ON (m.tenant_id, m.cluster_id, m.flavor, m.tenant_path)
        = (d.tenant_id, d.cluster_id, d.flavor, d.tenant_path)
    AND m.metered_from < %(until)s AND m.metered_until > %(start)s AND m.capacity_type = ANY(%(capacity_types)s)
JOIN billing_usagesegment AS s ON s.meter_id = m.id AND lower(s.period) >= %(start)s AND lower(s.period) < %(until)s
ORDER BY m.id, lower(s.period)
"""
