"""What providers billed for clusters, and how a month of the ledger was compared with it."""

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from clusters.models import Cluster
from foundation.finite import finite
from tenancy.models import Tenant

from .exchange import CODE
from .periods import REASON_LENGTH, LedgerPeriod
from .sharing import MONEY


class ProviderInvoiceLine(models.Model):
    """What a provider billed for a cluster in a month, under its own reference. A credit is negative.

    An amount changes only while the month is open; reference, cluster and month never do (trigger).
    """

    id = models.BigAutoField(primary_key=True)
    organisation = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="+")
    month = models.DateField(help_text="Its first day.")
    reference = models.CharField(max_length=120, help_text="The provider's.")
    amount = models.DecimalField(**MONEY)
    currency = models.CharField(max_length=3)
    note = models.CharField(max_length=REASON_LENGTH, blank=True, default="", db_default="")
    recorded_by_id = models.UUIDField(null=True)
    recorded_by_name = models.CharField(max_length=254)
    recorded_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            finite("provider_invoice_line_numbers_are_finite", "amount"),
            models.UniqueConstraint(
                fields=["organisation", "month", "cluster", "reference"], name="one_line_per_provider_reference"
            ),
            models.CheckConstraint(
                condition=Q(month__day=1, currency__regex=CODE) & ~Q(amount=0) & ~Q(reference=""),
                name="provider_invoice_line_is_whole",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.reference}: {self.amount} {self.currency}"


class VarianceTolerance(models.Model):
    """How many percent of a cluster's cost a provider's invoice may differ by, from a month on. Of two for a month, the later
    one applies. Append-only, and for no month that is closed (trigger).
    """

    id = models.BigAutoField(primary_key=True)
    organisation = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    effective_from = models.DateField(help_text="The first day of a month, UTC.")
    percent = models.DecimalField(max_digits=6, decimal_places=3)
    made_by_id = models.UUIDField(null=True)
    made_by_name = models.CharField(max_length=254)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            finite("variance_tolerance_numbers_are_finite", "percent"),
            models.CheckConstraint(
                condition=Q(effective_from__day=1, percent__gte=0, percent__lte=100), name="tolerance_is_a_percentage"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.percent} % from {self.effective_from:%Y-%m}"


class AcceptedVariance(models.Model):
    """Why a cluster's month may close with these two amounts. It says nothing of any other amounts. Append-only."""

    id = models.BigAutoField(primary_key=True)
    organisation = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="+")
    month = models.DateField(help_text="Its first day.")
    currency = models.CharField(max_length=3)
    cost = models.DecimalField(**MONEY)
    invoiced = models.DecimalField(**MONEY)
    note = models.CharField(max_length=REASON_LENGTH)
    accepted_by_id = models.UUIDField(null=True)
    accepted_by_name = models.CharField(max_length=254)
    accepted_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            finite("accepted_variance_numbers_are_finite", "cost", "invoiced"),
            models.UniqueConstraint(
                fields=["organisation", "month", "cluster", "currency", "cost", "invoiced"],
                name="one_acceptance_of_these_amounts",
            ),
            models.CheckConstraint(
                condition=Q(month__day=1, currency__regex=CODE) & ~Q(note="") & ~Q(cost=F("invoiced")),
                name="accepted_variance_says_why",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.invoiced} for {self.cost} {self.currency}"


class ReconciledCluster(models.Model):
    """A cluster's month as it was closed: what the ledger says that it cost, and what providers billed. Append-only.

    `invoiced` is null without an invoice. Otherwise it is within the tolerance or accepted (trigger).
    """

    id = models.BigAutoField(primary_key=True)
    period = models.ForeignKey(LedgerPeriod, on_delete=models.PROTECT, related_name="+")
    revision = models.PositiveIntegerField(help_text="The close that it is of.")
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="+")
    currency = models.CharField(max_length=3)
    charged = models.DecimalField(**MONEY)
    overhead = models.DecimalField(**MONEY)
    idle = models.DecimalField(**MONEY)
    invoiced = models.DecimalField(**MONEY, null=True)

    class Meta:
        constraints = [
            finite("reconciled_cluster_numbers_are_finite", "charged", "overhead", "idle", "invoiced"),
            models.UniqueConstraint(fields=["period", "revision", "cluster"], name="one_reconciliation_a_cluster"),
            models.CheckConstraint(condition=Q(currency__regex=CODE), name="reconciled_cluster_has_a_currency"),
        ]

    def __str__(self) -> str:
        return f"{self.cluster_id} in close {self.revision}"
