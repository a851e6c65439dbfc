"""Invoices of providers over HTTP: importing them, a month beside them, how far they may differ, and accepted variances."""

import csv
import io
import re
from decimal import Decimal
from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from billing.engine.ledger import money
from billing.engine.provider_invoices import MOST_CHARACTERS
from billing.engine.reconciliation import Total
from billing.engine.shares import shown_parts
from billing.models import AcceptedVariance, ProviderInvoiceLine, VarianceTolerance
from billing.models.periods import REASON_LENGTH
from billing.operations.reconciliation import accept_variance, import_provider_invoices, set_variance_tolerance
from billing.queries.reconciliation import (
    ReconciledRow,
    Reconciliation,
    reconciliation,
    visible_acceptances,
    visible_provider_invoices,
    visible_tolerances,
)
from foundation.plain_json import instant
from foundation.problems import Invalid
from foundation.schema import page_shape
from foundation.shapes import FileText, Instant, StrictShape, Text
from tenancy.api.views import ApiView

from .month_report import MonthReportView
from .period import month_from
from .shapes import MoneyShape
from .spreadsheet import inert

ORDERS = {"created": "id", "-created": "-id"}
NUMBER = re.compile(r"-?[0-9]{1,26}(\.[0-9]{1,12})?")
AMOUNTS = ("charged", "overhead", "idle", "cost")


class ProviderInvoicesImport(StrictShape):
    """A file of what providers billed."""

    organisation = Text(max_length=63, help_text="Its path.")
    file = FileText(max_length=MOST_CHARACTERS, help_text="CSV: cluster,month,reference,amount,currency[,note].")


class ProviderInvoicesImported(serializers.Serializer[Any]):
    """What an import did."""

    added = serializers.IntegerField()
    changed = serializers.IntegerField(help_text="Known references with another amount, currency or note.")
    known = serializers.IntegerField()


class ProviderInvoiceLineShown(serializers.Serializer[Any]):
    """What a provider billed for a cluster in a month. A credit is negative."""

    id = serializers.IntegerField()
    organisation = serializers.CharField()
    cluster = serializers.CharField()
    cluster_id = serializers.UUIDField()
    month = serializers.CharField(help_text="YYYY-MM.")
    reference = serializers.CharField(help_text="The provider's.")
    amount = MoneyShape()
    note = serializers.CharField(allow_null=True)
    recorded_by = serializers.CharField()
    recorded_at = Instant()


class VarianceToleranceCreate(StrictShape):
    """How far invoices may differ from the ledger, from a month on."""

    organisation = Text(max_length=63, help_text="Its path.")
    effective_from = Text(max_length=7, help_text="YYYY-MM: a month that is not closed.")
    percent = Text(max_length=7, help_text="A number from 0 to 100 as text, with up to 3 decimals.")


class VarianceToleranceShown(serializers.Serializer[Any]):
    """A tolerance. Of two for a month, the later one applies."""

    id = serializers.IntegerField()
    organisation = serializers.CharField()
    effective_from = serializers.CharField(help_text="YYYY-MM.")
    percent = serializers.CharField()
    made_by = serializers.CharField()
    created_at = Instant()


class VarianceAcceptance(StrictShape):
    """Why a month may close with the amounts that a cluster has now."""

    organisation = Text(max_length=63, help_text="Its path.")
    month = Text(max_length=7, help_text="YYYY-MM.")
    cluster = Text(max_length=63, help_text="Its name or id.")
    variance = Text(max_length=40, help_text="As the report shows it: if it is another one now, nothing is accepted.")
    note = Text(max_length=REASON_LENGTH)


class VarianceAcceptanceShown(serializers.Serializer[Any]):
    """An accepted variance. It counts as long as the cluster's month has these two amounts."""

    id = serializers.IntegerField()
    organisation = serializers.CharField()
    month = serializers.CharField(help_text="YYYY-MM.")
    cluster = serializers.CharField()
    cluster_id = serializers.UUIDField()
    cost = MoneyShape()
    invoiced = MoneyShape()
    note = serializers.CharField()
    accepted_by = serializers.CharField()
    accepted_at = Instant()


class ReconciledClusterShown(serializers.Serializer[Any]):
    """A cluster's month: `charged` + `overhead` + `idle` = `cost`; `cost` + `variance` = `invoiced`. Twelve decimals."""

    cluster = serializers.CharField()
    cluster_id = serializers.UUIDField()
    currency = serializers.CharField(help_text="Empty if nothing can be compared.")
    charged = serializers.CharField()
    overhead = serializers.CharField()
    idle = serializers.CharField()
    cost = serializers.CharField()
    invoiced = serializers.CharField(allow_null=True, help_text="Null without an invoice.")
    variance = serializers.CharField(allow_null=True)
    percent = serializers.CharField(allow_null=True, help_text="The variance in percent of the cost, with 4 decimals.")
    settled = serializers.BooleanField(help_text="Whether it keeps no month open.")
    fault = serializers.CharField(help_text="Why nothing can be compared, such as a rate that is missing; else empty.")
    note = serializers.CharField(allow_null=True, help_text="Why the variance was accepted.")
    accepted_by = serializers.CharField(allow_null=True)


class ReconciliationTotal(serializers.Serializer[Any]):
    """The sums of one currency: `cost` - `not_invoiced` + `variance` = `invoiced`."""

    currency = serializers.CharField()
    charged = serializers.CharField()
    overhead = serializers.CharField()
    idle = serializers.CharField()
    cost = serializers.CharField()
    not_invoiced = serializers.CharField(help_text="The cost of clusters without an invoice.")
    variance = serializers.CharField()
    invoiced = serializers.CharField()


class ReconciliationShown(serializers.Serializer[Any]):
    """An organisation's month beside what providers billed."""

    organisation = serializers.CharField()
    month = serializers.CharField(help_text="YYYY-MM.")
    is_final = serializers.BooleanField(help_text="Whether the month is closed with these amounts.")
    currency = serializers.CharField(help_text="The billing currency; empty if there is none.")
    tolerance_percent = serializers.CharField()
    platform = MoneyShape(allow_null=True, help_text="The organisation's own cost, which is not compared.")
    clusters = ReconciledClusterShown(many=True)
    totals = ReconciliationTotal(many=True)


class ReconciliationView(MonthReportView):
    """`/reconciliation`."""

    @extend_schema(
        operation_id="reconciliation_report",
        responses={(200, "application/json"): ReconciliationShown, (200, "text/csv"): OpenApiTypes.STR},
    )
    def get(self, request: Request) -> Response:
        """Returns what the ledger says that each cluster cost in a month beside what providers billed, and the variance."""
        asked = self.asked(request)
        report = reconciliation(self.actor, asked.organisation, asked.start.date())
        file = f"reconciliation-{asked.start:%Y-%m}{'' if report.is_final else '-so-far'}.csv"
        return self.answer(
            request, asked, lambda: show_reconciliation(report), lambda: reconciliation_csv(report), file
        )


class ProviderInvoicesView(ApiView):
    """`/provider-invoices`."""

    paged = True

    @extend_schema(operation_id="provider_invoices_list", responses=page_shape(ProviderInvoiceLineShown))
    def get(self, request: Request) -> Response:
        """Lists what providers billed the organisations that you see as a whole."""
        return self.page(visible_provider_invoices(self.actor), orders=ORDERS, render=show_line)


class ProviderInvoicesImportView(ApiView):
    """`/provider-invoices/import`."""

    @extend_schema(
        operation_id="provider_invoices_import", request=ProviderInvoicesImport, responses=ProviderInvoicesImported
    )
    def post(self, request: Request) -> Response:
        """Imports a file: all of its lines or none. The same file again changes nothing; another amount of a known reference
        replaces it.
        """
        fields = self.read(ProviderInvoicesImport)
        found = import_provider_invoices(self.actor, fields["organisation"], fields["file"])
        return Response({"added": found.added, "changed": found.changed, "known": found.known})


class VarianceTolerancesView(ApiView):
    """`/variance-tolerances`."""

    paged = True

    @extend_schema(operation_id="variance_tolerances_list", responses=page_shape(VarianceToleranceShown))
    def get(self, request: Request) -> Response:
        """Lists the tolerances of the organisations that you see as a whole. Without one, it is 2 percent."""
        return self.page(visible_tolerances(self.actor), orders=ORDERS, render=show_tolerance)

    @extend_schema(
        operation_id="variance_tolerances_create",
        request=VarianceToleranceCreate,
        responses={201: VarianceToleranceShown},
    )
    def post(self, request: Request) -> Response:
        """Sets how far invoices of providers may differ from the ledger, from a month on."""
        fields = self.read(VarianceToleranceCreate)
        month = month_from("effective_from", fields["effective_from"])
        percent = _number("percent", fields["percent"])

        def produce() -> tuple[int, dict[str, Any]]:
            row = set_variance_tolerance(self.actor, fields["organisation"], month, percent)
            return status.HTTP_201_CREATED, show_tolerance(row)

        return self.created(request, None, "variance-tolerances", produce)


class VarianceAcceptancesView(ApiView):
    """`/variance-acceptances`."""

    paged = True

    @extend_schema(operation_id="variance_acceptances_list", responses=page_shape(VarianceAcceptanceShown))
    def get(self, request: Request) -> Response:
        """Lists the accepted variances of the organisations that you see as a whole."""
        return self.page(visible_acceptances(self.actor), orders=ORDERS, render=show_acceptance)

    @extend_schema(
        operation_id="variance_acceptances_create",
        request=VarianceAcceptance,
        responses={201: VarianceAcceptanceShown},
    )
    def post(self, request: Request) -> Response:
        """Accepts the variance of a cluster's month: the month may close with these amounts, and with no others."""
        fields = self.read(VarianceAcceptance)
        month = month_from("month", fields["month"])
        variance = _number("variance", fields["variance"])

        def produce() -> tuple[int, dict[str, Any]]:
            row = accept_variance(
                self.actor, fields["organisation"], month, fields["cluster"], variance=variance, note=fields["note"]
            )
            return status.HTTP_201_CREATED, show_acceptance(row)

        return self.created(request, None, "variance-acceptances", produce)


def show_line(row: ProviderInvoiceLine) -> dict[str, Any]:
    """A line as the API shows it."""
    return {
        "id": row.id,
        "organisation": row.organisation.path,
        "cluster": row.cluster.name,
        "cluster_id": str(row.cluster_id),
        "month": f"{row.month:%Y-%m}",
        "reference": row.reference,
        "amount": {"amount": f"{row.amount:f}", "currency": row.currency},
        "note": row.note or None,
        "recorded_by": row.recorded_by_name,
        "recorded_at": instant(row.recorded_at),
    }


def show_tolerance(row: VarianceTolerance) -> dict[str, Any]:
    """A tolerance as the API shows it."""
    return {
        "id": row.id,
        "organisation": row.organisation.path,
        "effective_from": f"{row.effective_from:%Y-%m}",
        "percent": f"{row.percent:f}",
        "made_by": row.made_by_name,
        "created_at": instant(row.created_at),
    }


def show_acceptance(row: AcceptedVariance) -> dict[str, Any]:
    """An accepted variance as the API shows it."""
    return {
        "id": row.id,
        "organisation": row.organisation.path,
        "month": f"{row.month:%Y-%m}",
        "cluster": row.cluster.name,
        "cluster_id": str(row.cluster_id),
        "cost": {"amount": f"{row.cost:f}", "currency": row.currency},
        "invoiced": {"amount": f"{row.invoiced:f}", "currency": row.currency},
        "note": row.note,
        "accepted_by": row.accepted_by_name,
        "accepted_at": instant(row.accepted_at),
    }


def show_reconciliation(report: Reconciliation) -> dict[str, Any]:
    """A report as the API shows it."""
    platform = {"amount": f"{money(report.platform):f}", "currency": report.platform_currency}
    return {
        "organisation": report.organisation,
        "month": f"{report.month:%Y-%m}",
        "is_final": report.is_final,
        "currency": report.currency,
        "tolerance_percent": f"{report.tolerance.normalize():f}",
        "platform": platform if report.platform else None,
        "clusters": [show_row(report, row) for row in report.rows],
        "totals": [show_total(one) for one in report.totals],
    }


def show_row(report: Reconciliation, row: ReconciledRow) -> dict[str, Any]:
    """A cluster's month, in the order of its columns."""
    its = row.compared
    return {
        "cluster": row.cluster,
        "cluster_id": str(its.cluster_id),
        "currency": its.currency,
        **{name: _money(getattr(its, name)) for name in AMOUNTS},
        "invoiced": None if its.invoiced is None else _money(its.invoiced),
        "variance": None if its.variance is None else _money(its.variance),
        "percent": None if its.percent is None else f"{shown_parts([its.percent], 4)[1]:f}",
        "settled": report.is_settled(row),
        "fault": its.fault,
        "note": row.note or None,
        "accepted_by": row.accepted_by or None,
    }


def show_total(one: Total) -> dict[str, str]:
    """The sums of one currency."""
    names = (*AMOUNTS, "not_invoiced", "variance", "invoiced")
    return {"currency": one.currency, **{name: _money(getattr(one, name)) for name in names}}


def reconciliation_csv(report: Reconciliation) -> str:
    """The clusters as CSV."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(ReconciledClusterShown().fields)
    for row in report.rows:
        shown = show_row(report, row)
        safe = {name: inert(shown[name] or "") for name in ("cluster", "fault", "note", "accepted_by")}
        writer.writerow((shown | safe).values())
    return text.getvalue()


def _number(field: str, text: str) -> Decimal:
    if not NUMBER.fullmatch(text):
        raise Invalid.field(field, "bad_format", "a number as text, such as -12.50")
    return Decimal(text)


def _money(amount: int) -> str:
    return f"{money(amount):f}"
