"""The datasets of FOCUS 1.4 beside Cost and Usage: billing periods, details of invoices, and contract commitments.

A document is an invoice or a credit note as it was issued. Its lines are Invoice Details, its tax is one more. The rows of
Cost and Usage that name a detail add up to its cost, to the last digit: `document_rows` gives what jobs' rows do not contain.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Final, Literal, TypeAlias, get_args
from uuid import UUID

from . import focus
from .commitment_entries import COVERED_SHARE
from .credits import INFRASTRUCTURE_CREDIT
from .focus import Category, OnInvoice, Posted, Version, decimal_text, instant
from .months import next_month

Dataset = Literal["cost-and-usage", "billing-period", "invoice-detail", "contract-commitment"]
DATASETS: Final[tuple[Dataset, ...]] = get_args(Dataset)
"""The first is the default, and the only one of version 1.2."""
COLUMNS: Final[Mapping[Dataset, tuple[str, ...]]] = {
    "billing-period": (
        "BillingPeriodCreated", "BillingPeriodEnd", "BillingPeriodLastUpdated", "BillingPeriodStart", "BillingPeriodStatus",
        "InvoiceIssuerName",
    ),
    "invoice-detail": (
        "BilledCost", "BillingAccountId", "BillingCurrency", "BillingPeriodEnd", "BillingPeriodStart", "ChargeCategory",
        "InvoiceDetailCreated", "InvoiceDetailDescription", "InvoiceDetailGrain", "InvoiceDetailId",
        "InvoiceDetailLastUpdated", "InvoiceId", "InvoiceIssueDate", "InvoiceIssueStatus", "InvoiceIssuerName",
        "PaymentDueDate", "PaymentTerms", "ReferenceInvoiceId", "x_ClusterName", "x_DocumentDigest", "x_Flavor", "x_LineNumber",
        "x_TenantPath",
    ),
    "contract-commitment": (
        "BillingCurrency", "ContractCommitmentApplicability", "ContractCommitmentBenefitCategory", "ContractCommitmentCategory",
        "ContractCommitmentCost", "ContractCommitmentCreated", "ContractCommitmentDescription",
        "ContractCommitmentDiscountPercentage", "ContractCommitmentDurationType", "ContractCommitmentFulfillmentInterval",
        "ContractCommitmentId", "ContractCommitmentLastUpdated", "ContractCommitmentLifecycleStatus", "ContractCommitmentModel",
        "ContractCommitmentOfferCategory", "ContractCommitmentPaymentInterval", "ContractCommitmentPaymentModel",
        "ContractCommitmentPeriodEnd", "ContractCommitmentPeriodStart", "ContractCommitmentQuantity", "ContractCommitmentType",
        "ContractCommitmentUnit", "ContractId", "ContractPeriodEnd", "ContractPeriodStart", "InvoiceIssuerName",
        "ServiceProviderName",
    ),
}  # fmt: skip
"""The columns of the other datasets, in the order of a file."""
TIMES = frozenset(
    {
        "BillingPeriodCreated", "BillingPeriodLastUpdated", "ContractCommitmentCreated", "ContractCommitmentLastUpdated",
        "ContractCommitmentPeriodEnd", "ContractCommitmentPeriodStart", "ContractPeriodEnd", "ContractPeriodStart",
        "InvoiceDetailCreated", "InvoiceDetailLastUpdated", "InvoiceIssueDate", "PaymentDueDate",
    }
)  # fmt: skip
NUMBERS = frozenset({"ContractCommitmentCost", "ContractCommitmentDiscountPercentage", "ContractCommitmentQuantity"})
OBJECTS = frozenset({"ContractCommitmentApplicability", "InvoiceDetailGrain"})
Row: TypeAlias = dict[str, str]


@dataclass(frozen=True, slots=True)
class Period:
    """A month of an organisation's ledger, for one name on its invoices."""

    month: date
    issuer: str
    is_closed: bool
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class DocumentLine:
    """A line of a document. `month` is that of use; an `adjustment` is of no cluster."""

    number: int
    tenant: str
    cluster: str
    flavor: str
    month: date
    exact: Decimal
    amount: Decimal
    is_adjustment: bool

    @property
    def category(self) -> Category:
        """What kind of charge it is."""
        if self.flavor == INFRASTRUCTURE_CREDIT:
            return "Credit"
        return "Adjustment" if self.is_adjustment or self.flavor == COVERED_SHARE else "Usage"


@dataclass(frozen=True, slots=True)
class Document:
    """An issued invoice or credit note. `billing_month` is the billing period of its rows, `month` that of its charges.

    `is_detailed`: the rows of its month's jobs and entries belong to it. Otherwise each of its lines is one row: it is a
    credit note, or another invoice of charges that were invoiced before.
    """

    id: UUID
    number: str
    reference: str
    organisation_id: UUID
    organisation: str
    issuer: str
    billing_month: date
    month: date
    currency: str
    tax: Decimal
    tax_name: str
    issued_at: datetime
    due_on: date | None
    payment_days: int | None
    digest: str
    lines: Sequence[DocumentLine]
    is_detailed: bool
    is_correction: bool

    def on_line(self, line: DocumentLine) -> OnInvoice:
        """The reference of rows that belong to one of its lines."""
        return OnInvoice(self.number, f"{self.id}/{line.number}")

    @property
    def on_tax(self) -> OnInvoice:
        """The reference of its tax."""
        return OnInvoice(self.number, f"{self.id}/tax")


def datasets_of(version: Version) -> tuple[Dataset, ...]:
    """The datasets that a version has and the gateway writes."""
    return DATASETS[:1] if version == "1.2" else DATASETS


def columns(dataset: Dataset, version: Version, *, in_two: bool = False) -> tuple[str, ...]:
    """The columns of a dataset's file, in its order. `in_two`: rows are billed in another currency than their prices have."""
    return focus.columns(version, in_two=in_two) if dataset == "cost-and-usage" else COLUMNS[dataset]


def schema(dataset: Dataset, version: Version, *, in_two: bool = False) -> dict[str, object]:
    """The specification's metadata of a file: its columns with their types."""
    if dataset == "cost-and-usage":
        return focus.schema(version, in_two=in_two)
    return {
        "FocusVersion": version,
        "SchemaId": f"switchyard-{dataset}-{version}-1",
        "DataGenerator": "Switchyard",
        "ColumnDefinition": [_definition(name) for name in columns(dataset, version)],
    }


def period_row(period: Period) -> Row:
    """A billing period. A month that is closing is still open: entries come until it is closed."""
    return {
        "BillingPeriodCreated": _time(period.created_at),
        "BillingPeriodEnd": instant(next_month(period.month)),
        "BillingPeriodLastUpdated": _time(period.updated_at),
        "BillingPeriodStart": instant(period.month),
        "BillingPeriodStatus": "Closed" if period.is_closed else "Open",
        "InvoiceIssuerName": period.issuer,
    }


def detail_rows(document: Document) -> Iterator[Row]:
    """The lines of a document, then its tax if it has any."""
    for line in document.lines:
        place = f"{line.flavor} of {line.cluster}" if line.cluster else line.flavor or "adjustment"
        grain = {
            "x_ClusterName": line.cluster, "x_Flavor": line.flavor, "x_TenantPath": line.tenant,
            "x_UsageMonth": f"{line.month:%Y-%m}",
        }  # fmt: skip
        yield _detail(document, document.on_line(line), line.category, line.amount) | {
            "InvoiceDetailDescription": f"{line.tenant}: {place}, {line.month:%Y-%m}",
            "InvoiceDetailGrain": json.dumps({name: value for name, value in grain.items() if value}),
            "x_ClusterName": line.cluster,
            "x_Flavor": line.flavor,
            "x_LineNumber": str(line.number),
            "x_TenantPath": line.tenant,
        }
    if document.tax:
        yield _detail(document, document.on_tax, "Tax", document.tax) | {
            "InvoiceDetailDescription": document.tax_name or "Tax"
        }


def document_rows(document: Document) -> Iterator[Posted]:
    """What makes Cost and Usage equal to the document, beside the rows of jobs and entries: the rounding of each line (or all
    of it, if the document is not detailed), and the tax.
    """
    plain = Posted(
        document.billing_month, document.month, next_month(document.month), document.organisation_id, document.organisation,
        document.issuer, document.currency, document.tax, f"{document.tax_name or 'Tax'} of {document.number}", "Tax",
        document.is_correction, invoice=document.on_tax,
    )  # fmt: skip
    for line in document.lines:
        amount = line.amount - line.exact if document.is_detailed else line.amount
        what = "Rounding of line" if document.is_detailed else "Line"
        if amount:
            yield replace(
                plain, start=line.month, until=next_month(line.month), amount=amount, category=line.category, tenant=line.tenant,
                description=f"{what} {line.number} of {document.number}", invoice=document.on_line(line),
            )  # fmt: skip
    if document.tax:
        yield plain


def _detail(document: Document, on: OnInvoice, category: Category, amount: Decimal) -> Row:
    issued = _time(document.issued_at)
    return {
        "BilledCost": decimal_text(amount),
        "BillingAccountId": str(document.organisation_id),
        "BillingCurrency": document.currency,
        "BillingPeriodStart": instant(document.billing_month),
        "BillingPeriodEnd": instant(next_month(document.billing_month)),
        "ChargeCategory": category,
        "InvoiceDetailCreated": issued,
        "InvoiceDetailId": on.detail,
        "InvoiceDetailLastUpdated": issued,
        "InvoiceId": on.number,
        "InvoiceIssueDate": issued,
        "InvoiceIssueStatus": "Issued",
        "InvoiceIssuerName": document.issuer,
        "PaymentDueDate": "" if document.due_on is None else instant(document.due_on),
        "PaymentTerms": "Credit" if document.payment_days is None else f"Net {document.payment_days}",
        "ReferenceInvoiceId": document.reference or document.number,
        "x_DocumentDigest": document.digest,
    }


def _definition(name: str) -> dict[str, object]:
    if name in NUMBERS:
        return {"ColumnName": name, "DataType": "Decimal", "NumericPrecision": 38, "NumberScale": focus.PLACES}
    if name in TIMES or name in OBJECTS:
        return {"ColumnName": name, "DataType": "DateTime" if name in TIMES else "JSON"}
    return focus.definition(name)


def _time(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
