"""A month as it is billed: what the ledger charges in it, with the documents that were issued, for finance tools.

Of a closed month these are the usage that the close counted and the other entries of its period, exactly: what was recorded or
corrected later is in the period that has its entry. Of a month that is not closed, it is what is recorded by now.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, TypeAlias
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Q

from billing.engine.commitment_entries import COVERED_SHARE
from billing.engine.credits import INFRASTRUCTURE_CREDIT
from billing.engine.focus import Category, Charge, OnInvoice, Posted
from billing.engine.focus_datasets import Document, DocumentLine, Period, document_rows
from billing.engine.focus_exchange import Exchanged
from billing.engine.months import midnight, next_month
from billing.engine.shared_entries import IDLE_SHARE, PLATFORM_SHARE
from billing.models import Invoice, InvoiceLine, LedgerPeriod, TenantDay
from clusters.models import Cluster
from tenancy.models import Tenant
from tenancy.queries import Actor

from .focus import Recorded, corrections_in
from .focus_commitments import Commitments, payments_and_unused
from .focus_exchange import Exchange, UsedKey, pricing_differs
from .invoices import content_of, terms_of
from .paths import Scope, tenants_under

PlaceKey: TypeAlias = tuple[str, UUID | None, str, date]
"""Of a document's line: tenant's path, cluster, flavor, month of use."""


@dataclass(frozen=True, slots=True)
class Account:
    """An organisation in a month. `tenants` are those that the reader asked for; `is_whole`: all of it, so that the sums of
    its documents can be shown. `issuer` is the name on its next document.
    """

    organisation: Tenant
    tenants: Mapping[UUID, str]
    is_whole: bool
    period: LedgerPeriod | None
    issuer: str
    pricing_differs: bool = False
    """Whether it is billed in another currency than one of its prices has."""

    @property
    def closed_at(self) -> datetime | None:
        """When its month was closed, if it is."""
        return self.period.closed_at if self.period else None


def accounts_in(actor: Actor, tenant_path: str, month: date) -> list[Account]:
    """The organisations of the tenants that the actor asks for, by path. Raises NotFound for the path."""
    tenants = tenants_under(actor, tenant_path)
    of_root: dict[str, dict[UUID, str]] = defaultdict(dict)
    for id_, path in tenants.items():
        of_root[path.partition("/")[0]][id_] = path
    roots = Tenant.objects.filter(path__in=of_root).order_by("path")
    periods = {one.organisation_id: one for one in LedgerPeriod.objects.filter(month=month, organisation__in=roots)}
    return [
        Account(
            root, of_root[root.path], root.id in tenants and tenant_path in {"", root.path}, periods.get(root.id),
            terms_of(root).issuer or root.path, pricing_differs(root, month),
        )
        for root in roots
    ]  # fmt: skip


def billed_in(accounts: Sequence[Account], tenant_path: str, month: date) -> Iterator[Charge | Posted]:
    """The rows of a billing period, read as they are taken."""
    with transaction.atomic():
        for account in accounts:
            issued = _issued(account, month)
            path = "" if account.is_whole and account.closed_at else tenant_path
            scope = Scope(path, account.tenants)
            lines = _Lines(account, issued)
            exchange = Exchange(account.organisation, month, account.period if account.closed_at else None)
            if account.period and account.closed_at:
                yield from _closed(account.period, scope, lines, account, exchange)
            else:
                yield from _open(account, scope, month, exchange)
            if account.period:
                commitments = Commitments(account.organisation.id)
                yield from _entries(account, account.period, scope, lines, exchange, commitments)
                yield from payments_and_unused(account, commitments)
            for one in issued:
                yield from document_rows(one.document)


def documents_in(accounts: Sequence[Account], month: date) -> Iterator[Document]:
    """The invoices and credit notes of a billing period, of organisations that the reader sees whole."""
    for account in accounts:
        for one in _issued(account, month):
            yield one.document


def periods_in(accounts: Sequence[Account], month: date) -> list[Period]:
    """The billing periods: one for each name on documents. It is closed when the month of all organisations of that name is."""
    found: dict[str, Period] = {}
    for account in accounts:
        issued = _issued(account, month)
        if account.period is None and not issued and not _has_usage(account, month):
            continue
        for issuer in sorted({account.issuer, *(one.document.issuer for one in issued)}):
            its = _period_of(account, issuer, month)
            known = found.get(issuer, its)
            found[issuer] = Period(
                month, issuer, known.is_closed and its.is_closed, min(known.created_at, its.created_at),
                max(known.updated_at, its.updated_at),
            )  # fmt: skip
    return [found[issuer] for issuer in sorted(found)]


@dataclass(frozen=True, slots=True)
class _Issued:
    document: Document
    places: Mapping[PlaceKey, OnInvoice]


class _Lines:
    """Where the rows of a month belong on its documents, and the name of who bills them."""

    def __init__(self, account: Account, issued: Sequence[_Issued]) -> None:
        self._issuer = account.issuer
        self._detailed = {one.document.currency: one for one in issued if one.document.is_detailed}

    def at(self, key: PlaceKey, currency: str) -> tuple[str, OnInvoice | None]:
        """The issuer, and the line if there is a document in this currency."""
        one = self._detailed.get(currency)
        if one is None:
            return self._issuer, None
        return one.document.issuer, one.places.get(key) or OnInvoice(one.document.number)


def _open(account: Account, scope: Scope, month: date, exchange: Exchange) -> Iterator[Charge]:
    recorded = Recorded(scope)
    for day in _days(month):
        for charge in recorded.on(day):
            yield exchange.of(replace(charge, issuer=account.issuer))
    for charge in corrections_in(scope, midnight(month), midnight(next_month(month))):
        yield exchange.of(replace(charge, issuer=account.issuer))


def _closed(
    period: LedgerPeriod, scope: Scope, lines: _Lines, account: Account, exchange: Exchange
) -> Iterator[Charge | Posted]:
    assert period.closed_at is not None
    recorded = Recorded(scope, (period.closed_at, midnight(period.month), midnight(next_month(period.month))))
    for day in _days(period.month):
        left = _used(period, scope, day)
        unlike = exchange.posted_usage({**_of(period, scope), "day": day})
        for recorded_charge in recorded.on(day):
            charge = exchange.of(recorded_charge)
            key = (charge.tenant, charge.cluster_id, charge.flavor, period.month)
            issuer, invoice = lines.at(key, charge.exchanged.currency if charge.exchanged else charge.currency)
            used = charge.tenant_id, charge.tenant, charge.cluster_id, charge.flavor, charge.currency
            if charge.price_id is not None:
                left[used] -= charge.cost
            if charge.exchanged:
                unlike[used] -= charge.exchanged.amount
            yield replace(charge, issuer=issuer, invoice=invoice if charge.price_id else None)
        yield from _differences(account, period, day, _Left(left, unlike, exchange.currency), lines)


@dataclass(frozen=True, slots=True)
class _Left:
    """What the ledger has of a day and the jobs' rows do not: in the currency of the prices, and converted."""

    amounts: Mapping[UsedKey, Decimal]
    exchanged: Mapping[UsedKey, Decimal]
    currency: str


def _differences(account: Account, period: LedgerPeriod, day: date, left: _Left, lines: _Lines) -> Iterator[Posted]:
    """What the ledger counted and the jobs' rows do not say, or the other way round: recorded while the month was closing. Of
    converted amounts also what is left of rounding.
    """
    for key in sorted({*left.amounts, *left.exchanged}, key=str):
        tenant_id, path, cluster_id, flavor, currency = key
        amount, other = left.amounts.get(key, Decimal(0)), left.exchanged.get(key)
        if amount or other:
            exchanged = None if other is None else Exchanged(left.currency, other)
            issuer, invoice = lines.at(
                (path, cluster_id, flavor, period.month), left.currency if exchanged else currency
            )
            what = f"Usage of {flavor} recorded while the month was closing" if amount else f"Rounding of {flavor}"
            yield Posted(
                period.month, day, day + timedelta(days=1), account.organisation.id, account.organisation.path, issuer, currency,
                amount, what, is_correction=True, tenant_id=tenant_id, tenant=path, flavor=flavor, invoice=invoice,
                exchanged=exchanged,
            )  # fmt: skip


def _used(period: LedgerPeriod, scope: Scope, day: date) -> dict[UsedKey, Decimal]:
    found: dict[UsedKey, Decimal] = defaultdict(Decimal)
    with connection.cursor() as cursor:
        cursor.execute(USED, {**_of(period, scope), "day": day})
        for tenant_id, path, cluster_id, flavor, currency, amount in cursor.fetchall():
            found[tenant_id, path, cluster_id, flavor, currency] += amount
    return found


def _entries(
    account: Account, period: LedgerPeriod, scope: Scope, lines: _Lines, exchange: Exchange, commitments: Commitments
) -> Iterator[Posted]:
    """The entries of the period that are not the usage of its own days, then the corrections of rates of exchange."""
    with connection.cursor() as cursor:
        cursor.execute(ENTRIES, {**_of(period, scope), "is_closed": bool(account.closed_at)})
        rows = cursor.fetchall()
    named = Cluster.everything.filter(id__in={row[5] for row in rows if row[5]}).select_related("owner")
    clusters = {cluster.id: cluster for cluster in named}
    organisation, converted = account.organisation, exchange.of_entries(period.id)
    for (
        id_,
        kind,
        day,
        path,
        tenant_id,
        cluster_id,
        flavor,
        currency,
        amount,
        reason,
        is_credit,
        key,
        named,
        quantity,
    ) in rows:
        month = day.replace(day=1)
        place = INFRASTRUCTURE_CREDIT if is_credit else flavor
        exchanged = converted.get((id_, tenant_id, currency))
        if exchanged is None and account.closed_at and exchange.currency not in {"", currency}:
            exchanged = Exchanged(exchange.currency, Decimal(0))  # too little to be money in the other currency
        issuer, invoice = lines.at((path, cluster_id, place, month), exchanged.currency if exchanged else currency)
        cluster = clusters.get(cluster_id)
        is_share = flavor in {IDLE_SHARE, PLATFORM_SHARE}
        applied, words = commitments.applied(flavor, key, named, quantity, amount) or (None, "")
        yield Posted(
            period.month, month if is_share else day, next_month(month) if is_share else day + timedelta(days=1), organisation.id,
            organisation.path, issuer, currency, amount,
            words or _description(_TAKEN_BACK.get(kind, kind) if amount < 0 else kind, flavor, cluster.name if cluster else "", reason),
            _category(flavor, is_credit=is_credit), month != period.month or kind in {"reversal", "reentry"}, tenant_id, path,
            cluster.name if cluster else "", cluster.region if cluster else "", cluster.provider if cluster else "",
            cluster.owner.path.partition("/")[0] if cluster else "", flavor, id_, invoice, exchanged, applied,
        )  # fmt: skip
    for one in exchange.corrections(_of(period, scope)):
        issuer, invoice = lines.at((one.tenant, one.cluster_id, one.sku, one.day.replace(day=1)), exchange.currency)
        yield Posted(
            period.month, one.day, one.day + timedelta(days=1), organisation.id, organisation.path, issuer, one.currency, Decimal(0),
            f"Corrected exchange rate of {one.flavor or 'an adjustment'}", is_correction=True, tenant_id=one.tenant_id,
            tenant=one.tenant, flavor=one.flavor, invoice=invoice, exchanged=Exchanged(exchange.currency, one.amount),
        )  # fmt: skip


def _category(flavor: str, *, is_credit: bool) -> Category:
    if is_credit:
        return "Credit"
    return "Adjustment" if flavor in {"", COVERED_SHARE} else "Usage"


_TAKEN_BACK = {"usage": "unused"}


def _description(kind: str, flavor: str, cluster: str, reason: str) -> str:
    what = f"{flavor} of {cluster}" if cluster else flavor
    if kind == "adjustment" or not flavor:
        return reason or "Adjustment"
    words = {
        "credit": "Infrastructure credit for lost work on",
        "usage": "Late usage of",
        "unused": "Estimated but not used:",
        "reversal": "Reversal of",
        "reentry": "Corrected charge of",
    }
    return f"{words.get(kind, 'Share of')} {what}"


def _issued(account: Account, month: date) -> list[_Issued]:
    """The payable documents whose billing period is the month. A first invoice is of the month that it charges; a credit note, or
    another edition of an invoice, is of the month in which it was issued, because the first one is closed.
    """
    if not account.is_whole:
        return []
    span = Q(issued_at__gte=midnight(month), issued_at__lt=midnight(next_month(month)))
    first = Q(kind=Invoice.Kind.INVOICE, edition=1)
    rows = Invoice.objects.filter(
        first & Q(period__month=month) | span & ~first & ~Q(kind=Invoice.Kind.STATEMENT),
        organisation=account.organisation,
    )
    rows = rows.select_related("period", "reference").prefetch_related("lines__credits").order_by("kind", "sequence")
    return [_document(account.organisation, row, month) for row in rows]


def _document(organisation: Tenant, row: Invoice, month: date) -> _Issued:
    content, lines = content_of(row), list(row.lines.all())
    is_first = row.kind == Invoice.Kind.INVOICE and row.edition == 1
    period = row.period
    document = Document(
        row.id, row.number, row.reference.number if row.reference else "", organisation.id, organisation.path,
        content["issuer"], month, period.month, row.currency, row.tax, content["tax"]["name"], row.issued_at,
        date.fromisoformat(content["due_on"]) if content["due_on"] else None, content["payment_days"], row.digest,
        [_line(line) for line in sorted(lines, key=lambda line: line.number)],
        is_first and period.state == LedgerPeriod.State.CLOSED and period.revision == row.revision, not is_first,
    )  # fmt: skip
    places = {
        (line.tenant_path, line.cluster_id, line.flavor, line.month): document.on_line(_line(line)) for line in lines
    }
    return _Issued(document, places)


def _line(line: InvoiceLine) -> DocumentLine:
    return DocumentLine(
        line.number,
        line.tenant_path,
        line.cluster_name,
        line.flavor,
        line.month,
        line.exact,
        line.amount,
        not line.flavor,
    )


def _period_of(account: Account, issuer: str, month: date) -> Period:
    its = account.period
    if its is None:
        return Period(month, issuer, is_closed=False, created_at=midnight(month), updated_at=midnight(month))
    updated = max(at for at in (its.created_at, its.closing_at, its.closed_at) if at)
    is_closed = its.state == LedgerPeriod.State.CLOSED
    return Period(month, issuer, is_closed, its.created_at, updated)


def _has_usage(account: Account, month: date) -> bool:
    days = TenantDay.objects.filter(organisation=account.organisation, day__gte=month, day__lt=next_month(month))
    return days.filter(tenant__in=account.tenants).exists()


def _days(month: date) -> Iterator[date]:
    day = month
    while day < next_month(month):
        yield day
        day += timedelta(days=1)


def _of(period: LedgerPeriod, scope: Scope) -> dict[str, Any]:
    return {
        "period": period.id, "organisation": period.organisation_id, "month": period.month, "path": scope.path,
        "tenants": list(scope.tenants),
    }  # fmt: skip


USED = """
SELECT a.tenant_id, e.tenant_path, e.cluster_id, e.flavor, l.currency, sum(l.amount)
FROM billing_ledgerentry AS e JOIN billing_ledgerline AS l ON l.entry_id = e.id
JOIN billing_ledgeraccount AS a ON a.id = l.account_id AND a.kind = 'tenant_expense'
WHERE e.organisation_id = %(organisation)s AND e.charge_day = %(day)s AND e.period_id = %(period)s AND e.kind = 'usage'
    AND a.tenant_id = ANY(%(tenants)s) AND (%(path)s IN ('', e.tenant_path) OR starts_with(e.tenant_path, %(path)s || '/'))
GROUP BY 1, 2, 3, 4, 5
"""
ENTRIES = """
SELECT e.id, e.kind, e.charge_day, place.path, a.tenant_id, e.cluster_id, e.flavor, l.currency, l.amount, e.reason,
    coalesce(undone.kind, e.kind) = 'credit', e.key, coalesce(undone.reason, e.reason), l.quantity
FROM billing_ledgerentry AS e JOIN billing_ledgerline AS l ON l.entry_id = e.id
JOIN billing_ledgeraccount AS a ON a.id = l.account_id AND a.kind = 'tenant_expense'
JOIN tenancy_tenant AS t ON t.id = a.tenant_id
LEFT JOIN billing_ledgerentry AS undone ON undone.id = e.reverses_id
CROSS JOIN LATERAL (SELECT coalesce(nullif(e.tenant_path, ''), t.path) AS path) AS place
WHERE e.period_id = %(period)s AND NOT (e.kind = 'usage' AND e.charge_day >= %(month)s)
    AND (%(is_closed)s OR e.charge_day < %(month)s OR coalesce(undone.kind, e.kind) IN ('adjustment', 'idle', 'platform', 'commitment'))
    AND a.tenant_id = ANY(%(tenants)s) AND (%(path)s IN ('', place.path) OR starts_with(place.path, %(path)s || '/'))
ORDER BY e.id, l.id
"""
"""Of a month that is not closed, without reversals and corrected charges of its own days: the rows of its jobs have them."""
