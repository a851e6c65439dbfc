"""The months of the ledger: their state, and what is missing before one can close."""

from dataclasses import dataclass
from datetime import date, timedelta
from uuid import UUID

from django.db import connection
from django.db.models import QuerySet

from billing.engine.idle import PlatformSplit
from billing.engine.months import midnight, next_month
from billing.models import LedgerAccount, LedgerLine, LedgerPeriod, PostingConflict, TenantDay
from clusters.models import Cluster
from foundation.clock import database_now
from foundation.problems import NotFound
from tenancy.engine.roles import Permission
from tenancy.models import Tenant
from tenancy.queries import Actor, NotAllowedHere, permissions_at, visible_tenants

from .commitments import unsplit_days
from .disputes import unresolved_disputes
from .exchange import billing_currency_of, exchange_rate, no_rate_for, unconverted
from .ledger_proof import money_discrepancies
from .progress import Whose, open_runs
from .reconciliation import unreconciled
from .sharing import policy_for, unresolved_negative_idle

DECIDED_WHILE_CLOSING = frozenset({"no_negative_idle"})
"""Items that are known, and decided, only once a period is closing."""


@dataclass(frozen=True, slots=True)
class Item:
    """One condition of a close; `detail` says what is missing, or that nothing is."""

    name: str
    is_fulfilled: bool
    detail: str

    @property
    def keeps_open(self) -> bool:
        """Whether the period cannot begin to close because of it."""
        return not self.is_fulfilled and self.name not in DECIDED_WHILE_CLOSING


def visible_periods(actor: Actor) -> QuerySet[LedgerPeriod]:
    """The periods of the organisations that the actor may see as a whole."""
    return LedgerPeriod.objects.filter(organisation__in=visible_tenants(actor)).select_related("organisation")


def period_by_id(actor: Actor, period_id: UUID, *, may_close: bool = False) -> LedgerPeriod:
    """The period. NotFound if the actor may not see it; with `may_close`, NotAllowedHere if they may only see it."""
    period = visible_periods(actor).filter(id=period_id).first()
    if period is None:
        raise NotFound
    if may_close and Permission.CLOSE_PERIOD not in permissions_at(actor, period.organisation):
        raise NotAllowedHere(period.organisation, Permission.CLOSE_PERIOD)
    return period


def checklist(period: LedgerPeriod, *, accepts_unpriced: bool = False) -> tuple[Item, ...]:
    """What must be so before the period closes."""
    ended = midnight(next_month(period.month)) <= database_now()
    earlier = LedgerPeriod.objects.filter(organisation=period.organisation, month__lt=period.month)
    is_first = not earlier.exclude(state=LedgerPeriod.State.CLOSED).exists()
    behind = clusters_behind(period)
    days = TenantDay.objects.filter(
        organisation=period.organisation, day__gte=period.month, day__lt=next_month(period.month)
    )
    due = days.filter(is_due=True).count()
    unpriced = _unpriced_days(period)
    conflicts = PostingConflict.objects.filter(
        organisation=period.organisation, month__lte=period.month, resolved_at=None
    ).count()
    disputes = unresolved_disputes(period.organisation_id, period.month).count()
    negative = unresolved_negative_idle(period.organisation_id, period.month).count()
    foreign = unconverted(period.id, period.organisation_id, period.month) or _lacking_for_shares(period)
    unsplit = len(unsplit_days(period.organisation_id, period.month))
    differing = unreconciled(period.organisation, period.month)
    wrong = money_discrepancies(period.organisation_id)
    return (
        _item("month_ended", ended, "The month has not ended."),
        _item("earlier_periods", is_first, "An earlier month is not closed."),
        _item("fully_metered", not behind, f"Runs of the month are not fully metered on {', '.join(behind)}."),
        _item("posted", not due, f"Daily sums of tenants not posted yet: {due}."),
        _item("split", not unsplit, f"Days whose commitments are not split into used and unused: {unsplit}."),
        _item("priced", not unpriced or accepts_unpriced, f"Days of tenants with time without a price: {unpriced}."),
        _item("converted", not foreign, " ".join(foreign)),
        _item("no_conflicts", not conflicts, f"Conflicts of postings not resolved: {conflicts}."),
        _item("no_disputes", not disputes, f"Disputes of documents not resolved: {disputes}."),
        _item("no_negative_idle", not negative, f"Days of pools with negative idle that is not accepted: {negative}."),
        _item("reconciled", not differing, differing),
        _item("proven", not wrong, f"Errors that the proof of the ledger found: {len(wrong)}."),
    )


def _lacking_for_shares(period: LedgerPeriod) -> list[str]:
    """The rates that the close needs for its shares of idle capacity and of the platform: those of the month's last day."""
    currency = billing_currency_of(period.organisation_id, period.month)
    last_day = next_month(period.month) - timedelta(days=1)
    if not currency or last_day >= database_now().date():
        return []
    policy = policy_for(period.organisation_id, period.month)
    if not policy.number:
        return []
    lines = LedgerLine.objects.filter(entry__period=period, account__kind=LedgerAccount.Kind.TENANT_EXPENSE)
    shared = set(lines.values_list("currency", flat=True).distinct())
    if policy.platform_cost and policy.platform is PlatformSplit.FIXED:
        shared.add(policy.platform_currency)  # also without charges in it
    found = [
        f"{base} to {currency} on {last_day}"
        for base in sorted(shared - {currency})
        if exchange_rate(period.organisation_id, base, currency, last_day) is None
    ]
    return [no_rate_for(found)] if found else []


def clusters_behind(period: LedgerPeriod) -> tuple[str, ...]:
    """The clusters with runs that began in the month or before and are not recorded to its end, or their own."""
    root, until = period.organisation.path, midnight(next_month(period.month))
    tenants = [period.organisation_id, *Tenant.objects.filter(path__startswith=f"{root}/").values_list("id", flat=True)]
    runs = open_runs(Whose(tenants=tenants), database_now())
    late = {run.meter.cluster_id for run in runs if run.meter.metered_from < until and run.recorded_until < until}
    return tuple(Cluster.everything.filter(id__in=late).order_by("name").values_list("name", flat=True))


def states_of_month(month: date) -> dict[UUID, str]:
    """The state of a month of each organisation that has it in its ledger."""
    return dict(LedgerPeriod.objects.filter(month=month).values_list("organisation_id", "state"))


def checksum_of(period_id: UUID) -> str:
    """SHA-256 of the period's canonical lines."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT billing_period_checksum(%s)", [period_id])
        return str(cursor.fetchone()[0])


def _item(name: str, is_fulfilled: bool, missing: str) -> Item:  # noqa: FBT001 - a condition
    return Item(name, is_fulfilled, "" if is_fulfilled else missing)


def _unpriced_days(period: LedgerPeriod) -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            UNPRICED, {"organisation": period.organisation_id, "start": period.month, "until": next_month(period.month)}
        )
        return int(cursor.fetchone()[0])


UNPRICED = """
SELECT count(*) FROM (
    SELECT DISTINCT d.tenant_id, d.tenant_path, d.cluster_id, d.flavor, d.day FROM billing_tenantday AS d
    WHERE d.organisation_id = %(organisation)s AND d.day >= %(start)s AND d.day < %(until)s AND (
        d.currency = '' OR EXISTS (
            SELECT 1 FROM billing_rate AS r JOIN billing_pricecorrection AS c ON c.rate_id = r.id
            WHERE r.cluster_id = d.cluster_id AND c.span && tstzrange(
                d.day::timestamp AT TIME ZONE 'UTC', (d.day + 1)::timestamp AT TIME ZONE 'UTC')))
) AS day WHERE EXISTS (
    SELECT 1 FROM billing_day_due(day.tenant_id, day.tenant_path, day.cluster_id, day.flavor, day.day) AS due
    WHERE due.currency = '')
"""
