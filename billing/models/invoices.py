"""Invoices and statements of closed months, and credit notes. A document never changes once it is issued (triggers)."""

from typing import Any

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from clusters.models import Cluster
from foundation.finite import finite
from foundation.ids import new_id
from tenancy.models import Tenant

from .periods import REASON_LENGTH, LedgerPeriod

MOST_TAX_RATE = 100
MOST_PAYMENT_DAYS = 365
TEXT_LENGTH = 200
MONEY: dict[str, Any] = {"max_digits": 38, "decimal_places": 12}


class InvoiceTerms(models.Model):
    """What new documents of a tenant say beside their lines. Documents that are issued keep what they say."""

    tenant = models.OneToOneField(Tenant, primary_key=True, on_delete=models.PROTECT, related_name="invoice_terms")
    issuer = models.CharField(max_length=TEXT_LENGTH, blank=True, help_text="Empty: the organisation's name.")
    tax_rate = models.DecimalField(max_digits=6, decimal_places=3, null=True, help_text="Percent; null: no tax line.")
    tax_name = models.CharField(max_length=40, blank=True)
    payment_days = models.PositiveSmallIntegerField(default=30)
    cost_centre = models.CharField(max_length=TEXT_LENGTH, blank=True)
    gl_account = models.CharField(max_length=TEXT_LENGTH, blank=True)
    remark = models.CharField(max_length=REASON_LENGTH, blank=True)
    updated_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            finite("invoice_terms_numbers_are_finite", "tax_rate"),
            models.CheckConstraint(
                condition=Q(tax_rate__isnull=True) | Q(tax_rate__gt=0, tax_rate__lte=MOST_TAX_RATE),
                name="tax_rate_is_a_percentage",
            ),
            models.CheckConstraint(condition=Q(payment_days__lte=MOST_PAYMENT_DAYS), name="payment_is_within_a_year"),
        ]

    def __str__(self) -> str:
        return f"terms of {self.tenant_id}"


class Invoice(models.Model):
    """One document. `document` is its canonical JSON, `digest` its SHA-256. Append-only.

    An invoice is of an organisation, a statement of a tenant below it, a credit note takes back lines of an invoice. The
    numbers of one kind have no gaps in an organisation (trigger). Another edition follows only on one that is credited in full.
    """

    class Kind(models.TextChoices):
        INVOICE = "invoice"
        STATEMENT = "statement"
        CREDIT_NOTE = "credit_note"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organisation = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="invoices_issued")
    kind = models.CharField(max_length=11, choices=Kind.choices)
    sequence = models.PositiveBigIntegerField()
    number = models.CharField(max_length=30)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="invoices")
    tenant_path = models.CharField(max_length=1100, db_collation="C")
    period = models.ForeignKey(LedgerPeriod, on_delete=models.PROTECT, related_name="invoices")
    revision = models.PositiveIntegerField(help_text="The close of the period that it is of.")
    edition = models.PositiveIntegerField()
    currency = models.CharField(max_length=3)
    exact = models.DecimalField(**MONEY, help_text="What the ledger says.")
    subtotal = models.DecimalField(**MONEY)
    tax = models.DecimalField(**MONEY)
    total = models.DecimalField(**MONEY)
    tax_rate = models.DecimalField(max_digits=6, decimal_places=3, null=True)
    reference = models.ForeignKey("self", null=True, on_delete=models.PROTECT, related_name="credit_notes")
    reason = models.CharField(max_length=REASON_LENGTH, blank=True)
    line_count = models.PositiveIntegerField()
    document = models.TextField()
    digest = models.CharField(max_length=64)
    issued_by_id = models.UUIDField(null=True)
    issued_by_name = models.CharField(max_length=254)
    issued_at = models.DateTimeField()

    class Meta:
        constraints = [
            finite("invoice_numbers_are_finite", "exact", "subtotal", "tax", "total", "tax_rate"),
            models.UniqueConstraint(fields=["organisation", "kind", "sequence"], name="one_document_per_number"),
            models.UniqueConstraint(
                fields=["period", "revision", "tenant", "currency", "edition"],
                condition=~Q(kind="credit_note"),
                name="one_invoice_per_close_and_edition",
            ),
            models.CheckConstraint(condition=Q(total=F("subtotal") + F("tax")), name="total_is_subtotal_and_tax"),
            models.CheckConstraint(
                condition=Q(kind="credit_note", reference__isnull=False) & ~Q(reason="")
                | Q(kind__in=["invoice", "statement"], reference__isnull=True, reason=""),
                name="only_a_credit_note_has_a_reference",
            ),
            models.CheckConstraint(condition=Q(sequence__gte=1, edition__gte=1), name="documents_count_from_one"),
            models.CheckConstraint(condition=~Q(kind="statement") | Q(tax=0), name="statement_has_no_tax"),
            models.CheckConstraint(
                condition=Q(currency__regex=r"^[A-Z]{3}$"), name="invoice_currency_is_three_letters"
            ),
        ]
        indexes = [
            models.Index(fields=["tenant", "period"], name="invoices_by_tenant"),
            models.Index(fields=["issued_at"], name="invoices_by_time"),
        ]

    def __str__(self) -> str:
        return self.number


class InvoiceLine(models.Model):
    """One line of a document, as its document says. Append-only, written with its document."""

    id = models.BigAutoField(primary_key=True)
    invoice = models.ForeignKey(Invoice, on_delete=models.PROTECT, related_name="lines")
    number = models.PositiveIntegerField()
    kind = models.CharField(max_length=10)
    tenant_path = models.CharField(max_length=1100, db_collation="C")
    cluster = models.ForeignKey(Cluster, null=True, on_delete=models.PROTECT, related_name="+")
    cluster_name = models.CharField(max_length=253, blank=True)
    flavor = models.CharField(max_length=120, blank=True)
    month = models.DateField(help_text="Of use.")
    quantity = models.BigIntegerField(null=True)
    exact = models.DecimalField(**MONEY)
    amount = models.DecimalField(**MONEY, help_text="In the minor unit.")
    tax = models.DecimalField(**MONEY, help_text="Its part of the tax.")
    credits = models.ForeignKey("self", null=True, on_delete=models.PROTECT, related_name="credited_by")

    class Meta:
        constraints = [
            finite("invoice_line_numbers_are_finite", "exact", "amount", "tax"),
            models.UniqueConstraint(fields=["invoice", "number"], name="one_line_per_number"),
            models.CheckConstraint(
                condition=Q(kind="credit", credits__isnull=False) & ~Q(amount=0)
                | Q(kind__in=["charge", "correction", "adjustment"], credits__isnull=True),
                name="only_a_credit_credits",
            ),
        ]

    def __str__(self) -> str:
        return f"line {self.number}: {self.amount}"


class InvoiceBalance(models.Model):
    """What credit notes took back of a line of an invoice. Only a trigger writes it; its constraint bounds the credits."""

    line = models.OneToOneField(InvoiceLine, primary_key=True, on_delete=models.PROTECT, related_name="balance")
    amount = models.DecimalField(**MONEY)
    tax = models.DecimalField(**MONEY)
    credited = models.DecimalField(**MONEY)
    credited_tax = models.DecimalField(**MONEY)

    class Meta:
        constraints = [
            finite("invoice_balance_numbers_are_finite", "amount", "tax", "credited", "credited_tax"),
            models.CheckConstraint(
                condition=(
                    Q(amount__gte=0, credited__gte=0, credited__lte=F("amount"))
                    | Q(amount__lt=0, credited__lte=0, credited__gte=F("amount"))
                )
                & (
                    Q(tax__gte=0, credited_tax__gte=0, credited_tax__lte=F("tax"))
                    | Q(tax__lt=0, credited_tax__lte=0, credited_tax__gte=F("tax"))
                ),
                name="credit_is_at_most_what_was_invoiced",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.credited} of {self.amount}"
