"""Invoices, statements and credit notes, their terms, and what a closed month charges."""

import json
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import Q, QuerySet

from billing.engine.invoices import Charge, Invoiced, Line, Terms
from billing.models import Invoice, InvoiceBalance, InvoiceLine, InvoiceTerms, LedgerAccount, LedgerLine, Meter
from clusters.models import Cluster
from foundation.problems import NotFound
from tenancy.engine.roles import Permission
from tenancy.models import Tenant
from tenancy.queries import Actor, NotAllowedHere, permissions_at, visible_tenants

CHARGED = (LedgerAccount.Kind.TENANT_EXPENSE, LedgerAccount.Kind.TENANT_CONVERTED)
"""The accounts of what tenants owe: in the currencies of prices, and what conversions changed of it."""


@dataclass(frozen=True, slots=True)
class Charged:
    """A charge with the id of its cluster; None for an adjustment."""

    charge: Charge
    cluster_id: UUID | None


def visible_invoices(actor: Actor, *, tenant_path: str = "", month: date | None = None) -> QuerySet[Invoice]:
    """The documents of the tenants that the actor may see: a tenant's own, not those of tenants above it."""
    rows = Invoice.objects.filter(tenant__in=visible_tenants(actor)).select_related(
        "organisation", "tenant", "period", "reference"
    )
    if tenant_path:
        rows = rows.filter(Q(tenant__path=tenant_path) | Q(tenant__path__startswith=f"{tenant_path}/"))
    return rows.filter(period__month=month) if month else rows


def invoice_by_id(actor: Actor, invoice_id: UUID, *, may_issue: bool = False) -> Invoice:
    """The document. NotFound if the actor may not see it; with `may_issue`, NotAllowedHere if they may only see it."""
    invoice = visible_invoices(actor).filter(id=invoice_id).first()
    if invoice is None:
        raise NotFound
    if may_issue and Permission.ISSUE_INVOICE not in permissions_at(actor, invoice.tenant):
        raise NotAllowedHere(invoice.tenant, Permission.ISSUE_INVOICE)
    return invoice


def content_of(invoice: Invoice) -> dict[str, Any]:
    """The document as a value."""
    content: dict[str, Any] = json.loads(invoice.document)
    return content


def terms_of(tenant: Tenant) -> Terms:
    """The terms for a tenant's documents: its own or, without any, the nearest ones above it."""
    paths = ["/".join(tenant.path.split("/")[: depth + 1]) for depth in range(tenant.depth + 1)]
    row = InvoiceTerms.objects.filter(tenant__path__in=paths).order_by("-tenant__depth").first()
    if row is None:
        return Terms()
    return Terms(row.issuer, row.tax_rate, row.tax_name, row.payment_days, row.cost_centre, row.gl_account, row.remark)


def visible_terms(actor: Actor) -> QuerySet[InvoiceTerms]:
    """The terms of the tenants that the actor may see."""
    return InvoiceTerms.objects.filter(tenant__in=visible_tenants(actor)).select_related("tenant")


def currencies_of(period_id: UUID, below: str) -> list[str]:
    """The currencies in which a period charges tenants at or below a path; an empty path: all tenants."""
    lines = LedgerLine.objects.filter(entry__period=period_id, account__kind__in=CHARGED)
    found = lines.order_by("currency").values_list("currency", flat=True).distinct()
    return [currency for currency in found if charges_of(period_id, currency, below)]


def charges_of(period_id: UUID, currency: str, below: str) -> list[Charged]:
    """What a period charges to tenants at or below a path (empty: to all), by tenant, SKU and month of use."""
    with connection.cursor() as cursor:
        cursor.execute(CHARGES, [period_id, currency, below])
        rows = cursor.fetchall()
    clusters = {row[1] for row in rows if row[1]}
    names = dict(Cluster.everything.filter(id__in=clusters).values_list("id", "name"))
    by_core = set(
        Meter.objects.filter(cluster__in=clusters, unit=Meter.Unit.CORE).values_list("cluster_id", "flavor").distinct()
    )
    return [
        Charged(
            Charge(
                path, names.get(cluster_id, ""), flavor, month,
                "core" if (cluster_id, flavor) in by_core else "gpu", int(quantity) if is_known else None, amount,
            ),
            cluster_id,
        )
        for path, cluster_id, flavor, month, amount, quantity, is_known in rows
        if amount
    ]  # fmt: skip


def invoiced_lines(invoice: Invoice) -> list[Invoiced]:
    """The lines of an invoice with what was credited of each."""
    rows = InvoiceBalance.objects.filter(line__invoice=invoice).select_related("line").order_by("line__number")
    return [Invoiced(line_of(row.line), row.credited, row.credited_tax) for row in rows]


def line_of(row: InvoiceLine) -> Line:
    """A line as a value."""
    charge = Charge(row.tenant_path, row.cluster_name, row.flavor, row.month, "", row.quantity, row.exact)
    kind: Any = row.kind
    return Line(row.number, kind, charge, row.exact, row.amount, row.tax)


def credited_of(invoice: Invoice) -> tuple[Decimal, bool]:
    """What was credited of an invoice, with tax, and whether that is all of it."""
    rows = list(InvoiceBalance.objects.filter(line__invoice=invoice))
    zero = Decimal(0)
    credited = sum((row.credited + row.credited_tax for row in rows), zero)
    return credited, all((row.credited, row.credited_tax) == (row.amount, row.tax) for row in rows)


def uncredited_numbers(period_id: UUID) -> list[str]:
    """The numbers of a period's invoices that are not credited in full."""
    invoices = Invoice.objects.filter(period=period_id, kind=Invoice.Kind.INVOICE).order_by("sequence")
    return [invoice.number for invoice in invoices if not credited_of(invoice)[1]]


CHARGES = """
SELECT tenant_path, cluster_id, flavor, month, amount, quantity, known FROM billing_invoice_charges(%s, %s, %s)
ORDER BY month, tenant_path COLLATE "C", cluster_id, flavor
"""
