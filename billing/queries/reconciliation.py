"""A month beside the invoices of providers: what the ledger says that each cluster cost, what was billed, and the variance.

The ledger's cost of a cluster is that of its pools, charged + overhead + idle, with what it charges for days that the history
of the fleet does not contain. Of a closed month with invoices, everything is read as it was closed.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from functools import cached_property
from uuid import UUID

from django.db import connection
from django.db.models import QuerySet

from billing.engine.ledger import units
from billing.engine.months import midnight, next_month
from billing.engine.rating import whole_milliseconds
from billing.engine.reconciliation import (
    USUAL_TOLERANCE,
    BilledPart,
    ClusterMonth,
    Compared,
    CostPart,
    RateOf,
    Total,
    compare,
    rates_needed,
    totals_of,
)
from billing.engine.shares import shown_parts
from billing.models import (
    AcceptedVariance,
    LedgerPeriod,
    PoolDay,
    ProviderInvoiceLine,
    ReconciledCluster,
    VarianceTolerance,
)
from clusters.models import Cluster
from foundation.clock import database_now
from foundation.problems import Invalid
from tenancy.models import Tenant
from tenancy.queries import Actor, visible_tenants

from .exchange import billing_currency_of
from .pools import PoolDayKey, pools_of
from .sharing import clusters_of, month_of_pools, organisation_at, policy_for, posted_charges

MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class ReconciledRow:
    """A cluster's month by name, and the person's note if the variance is accepted with these amounts."""

    cluster: str
    compared: Compared
    note: str = ""
    accepted_by: str = ""


@dataclass(frozen=True)
class Reconciliation:
    """An organisation's month. `is_final`: it is closed with these amounts. `currency`: the billing currency, or empty.

    `platform` is the organisation's own cost beside its clusters, in `platform_currency`: no provider's invoice is compared with it.
    """

    organisation: str
    month: date
    is_final: bool
    is_closed: bool
    currency: str
    tolerance: Decimal
    rows: tuple[ReconciledRow, ...]
    platform: int = 0
    platform_currency: str = ""

    @cached_property
    def totals(self) -> tuple[Total, ...]:
        """By currency, of all that is compared."""
        return totals_of([row.compared for row in self.rows])

    def is_settled(self, row: ReconciledRow) -> bool:
        """Whether a row keeps no month open."""
        return row.compared.is_within(self.tolerance) or bool(row.note)

    @property
    def unsettled(self) -> tuple[ReconciledRow, ...]:
        """The rows that keep the month open."""
        return tuple(row for row in self.rows if not self.is_settled(row))


def reconciliation(actor: Actor, path: str, month: date) -> Reconciliation:
    """The report, for users who see the whole organisation. Raises NotFound, Invalid `in_the_future`."""
    organisation = organisation_at(actor, path)
    if midnight(month) > database_now():
        raise Invalid.field("month", "in_the_future", "give a month that has begun")
    return reconciliation_of(organisation, month)


def reconciliation_of(organisation: Tenant, month: date) -> Reconciliation:
    """The same, without asking who wants to know."""
    period = LedgerPeriod.objects.filter(organisation=organisation, month=month).first()
    is_closed = period is not None and period.state == LedgerPeriod.State.CLOSED
    kept = (
        list(ReconciledCluster.objects.filter(period=period, revision=period.revision)) if period and is_closed else []
    )
    compared = [_as_closed(row) for row in kept] or _compared_now(organisation, month, period if is_closed else None)
    names = dict(Cluster.everything.filter(id__in=[one.cluster_id for one in compared]).values_list("id", "name"))
    accepted = {
        (row.cluster_id, row.currency, units(row.cost), units(row.invoiced)): row
        for row in AcceptedVariance.objects.filter(organisation=organisation, month=month)
    }
    rows = []
    for one in compared:
        found = accepted.get((one.cluster_id, one.currency, one.cost, one.invoiced or 0)) if one.variance else None
        who = (found.note, found.accepted_by_name) if found else ("", "")
        rows.append(ReconciledRow(names[one.cluster_id], one, *who))
    policy = policy_for(organisation.id, month)
    return Reconciliation(
        organisation.path, month, bool(kept), is_closed, billing_currency_of(organisation.id, month),
        tolerance_of(organisation.id, month), tuple(sorted(rows, key=lambda row: (row.cluster, row.compared.cluster_id))),
        policy.platform_cost, policy.platform_currency,
    )  # fmt: skip


def unreconciled(organisation: Tenant, month: date) -> str:
    """Which clusters keep a month open; empty if none does, and always without invoices."""
    if not lines_of(organisation.id, month).exists():
        return ""
    found = []
    for row in reconciliation_of(organisation, month).unsettled:
        percent = row.compared.percent
        why = "no cost" if percent is None else f"{shown_parts([percent], 2)[1]:+f} %"
        found.append(f"{row.cluster} ({row.compared.fault.rstrip('.') or why})")
    more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    return f"Invoices of providers differ from the ledger: {', '.join(found[:MOST_NAMED])}{more}." if found else ""


def lines_of(organisation_id: UUID, month: date) -> QuerySet[ProviderInvoiceLine]:
    """What providers billed an organisation for a month."""
    return ProviderInvoiceLine.objects.filter(organisation=organisation_id, month=month)


def tolerance_of(organisation_id: UUID, month: date) -> Decimal:
    """The percent by which an invoice may differ in a month."""
    rows = VarianceTolerance.objects.filter(organisation=organisation_id, effective_from__lte=month)
    found = rows.order_by("-effective_from", "-id").values_list("percent", flat=True).first()
    return USUAL_TOLERANCE if found is None else found


def visible_provider_invoices(actor: Actor) -> QuerySet[ProviderInvoiceLine]:
    """The lines of the organisations that the actor may see as a whole."""
    rows = ProviderInvoiceLine.objects.filter(organisation__in=visible_tenants(actor))
    return rows.select_related("organisation", "cluster")


def visible_tolerances(actor: Actor) -> QuerySet[VarianceTolerance]:
    """The tolerances of these organisations."""
    return VarianceTolerance.objects.filter(organisation__in=visible_tenants(actor)).select_related("organisation")


def visible_acceptances(actor: Actor) -> QuerySet[AcceptedVariance]:
    """The accepted variances of these organisations."""
    rows = AcceptedVariance.objects.filter(organisation__in=visible_tenants(actor))
    return rows.select_related("organisation", "cluster")


def _as_closed(row: ReconciledCluster) -> Compared:
    invoiced = None if row.invoiced is None else units(row.invoiced)
    return Compared(
        row.cluster_id, row.currency, units(row.charged), units(row.overhead), units(row.idle), invoiced,
        is_invoiced=invoiced is not None,
    )  # fmt: skip


def _compared_now(organisation: Tenant, month: date, closed: LedgerPeriod | None) -> list[Compared]:
    costs, billed = _costs(organisation, month, closed), _billed(organisation, month)
    months = [ClusterMonth(id_, costs.get(id_, ()), billed.get(id_, ())) for id_ in sorted({*costs, *billed})]
    currency = billing_currency_of(organisation.id, month)
    rates = _rates(organisation.id, rates_needed(months, currency))
    return [compare(one, currency, rates) for one in months]


def _costs(organisation: Tenant, month: date, closed: LedgerPeriod | None) -> Mapping[UUID, Sequence[CostPart]]:
    """What each own cluster cost by day and currency: as its closed month recorded it, otherwise as of now."""
    own = clusters_of(organisation)
    kept = list(PoolDay.objects.filter(period=closed, revision=closed.revision)) if closed else []
    if kept:
        days = {
            PoolDayKey(row.cluster_id, row.flavor, row.day, row.currency): (row.charged, row.overhead, row.idle)
            for row in kept
        }
        charges = posted_charges(organisation.id, month, kept[0].last_entry)
        parts = {key: CostPart(key.currency, key.day, *(units(one) for one in its)) for key, its in days.items()}
    else:
        until = min(midnight(next_month(month)), whole_milliseconds(database_now()))
        charges = posted_charges(organisation.id, month)
        pools = pools_of(own, midnight(month), until)
        found = month_of_pools(organisation, pools, charges, policy_for(organisation.id, month))
        parts = {
            one.key: CostPart(
                one.key.currency, one.key.day, one.balance.charged, one.balance.overhead, one.balance.idle
            )
            for one in found.days
        }
    by_cluster: dict[UUID, list[CostPart]] = defaultdict(list)
    for key, part in parts.items():
        by_cluster[key.cluster_id].append(part)
    for key, by in charges.items():
        outside = sum(amount for amount in by.values())
        if key not in parts and key.cluster_id in own and outside:
            by_cluster[key.cluster_id].append(CostPart(key.currency, key.day, outside, 0, 0))
    return by_cluster


def _billed(organisation: Tenant, month: date) -> Mapping[UUID, Sequence[BilledPart]]:
    day = min(next_month(month) - timedelta(days=1), database_now().date())
    by_cluster: dict[UUID, list[BilledPart]] = defaultdict(list)
    for row in lines_of(organisation.id, month).order_by("id"):
        by_cluster[row.cluster_id].append(BilledPart(row.currency, day, units(row.amount)))
    return by_cluster


def _rates(organisation_id: UUID, wanted: Collection[RateOf]) -> Mapping[RateOf, Decimal]:
    if not wanted:
        return {}
    columns = [list(column) for column in zip(*sorted(wanted), strict=True)]
    with connection.cursor() as cursor:
        cursor.execute(RATES, [*columns, organisation_id])
        return {RateOf(*row[:3]): row[3] for row in cursor.fetchall()}


RATES = """
SELECT w.base, w.quote, w.day, x.rate FROM unnest(%s::text[], %s::text[], %s::date[]) AS w(base, quote, day)
 CROSS JOIN LATERAL billing_exchange_rate(%s, w.base, w.quote, w.day) AS x
"""
