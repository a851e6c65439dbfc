"""The months of an organisation's ledger: open, closing, closed, and who closed and reopened them."""

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from foundation.ids import new_id
from tenancy.models import Tenant

REASON_LENGTH = 500


class LedgerPeriod(models.Model):
    """One month of one organisation. A closed period takes no entries, and its checksum does not change (triggers).

    It opens again only after two people agreed (`PeriodReopening`), and gets a new checksum when it closes again.
    """

    class State(models.TextChoices):
        OPEN = "open"
        CLOSING = "closing"
        CLOSED = "closed"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organisation = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="ledger_periods")
    month = models.DateField(help_text="Its first day, UTC.")
    state = models.CharField(max_length=7, choices=State.choices, default=State.OPEN, db_default=State.OPEN)
    closing_by_id = models.UUIDField(null=True, help_text="Who asked to close it.")
    closing_by_name = models.CharField(max_length=254, blank=True, default="", db_default="")
    closing_at = models.DateTimeField(null=True)
    accepts_unpriced = models.BooleanField(
        default=False, db_default=False, help_text="Whether they accepted that some of its time has no price."
    )
    closed_at = models.DateTimeField(null=True)
    checksum = models.CharField(
        max_length=64, blank=True, default="", db_default="", help_text="SHA-256 of its canonical lines while closed."
    )
    revision = models.PositiveIntegerField(default=0, db_default=0, help_text="How often it was closed.")
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["organisation", "month"], name="one_period_per_month"),
            models.CheckConstraint(condition=Q(month__day=1), name="period_begins_with_its_month"),
            models.CheckConstraint(
                condition=Q(state__in=["open", "closing"], checksum="", closed_at__isnull=True)
                | Q(state="closed", checksum__regex="^[0-9a-f]{64}$", closed_at__isnull=False, revision__gte=1),
                name="closed_period_has_its_checksum",
            ),
            models.CheckConstraint(
                condition=Q(state="open", closing_at__isnull=True) | (~Q(state="open") & Q(closing_at__isnull=False)),
                name="closing_period_says_since_when",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.month:%Y-%m} ({self.state})"


class PeriodClose(models.Model):
    """A close of a period, as it was. Only the trigger on the period writes it."""

    id = models.BigAutoField(primary_key=True)
    period = models.ForeignKey(LedgerPeriod, on_delete=models.PROTECT, related_name="closes")
    revision = models.PositiveIntegerField()
    checksum = models.CharField(max_length=64)
    closed_by_id = models.UUIDField(null=True)
    closed_by_name = models.CharField(max_length=254, blank=True)
    closed_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["period", "revision"], name="one_close_per_revision")]

    def __str__(self) -> str:
        return f"close {self.revision}: {self.checksum[:12]}"


class PeriodReopening(models.Model):
    """A request to reopen a closed period, and its approval by another person. Without approval it changes nothing."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    period = models.ForeignKey(LedgerPeriod, on_delete=models.PROTECT, related_name="reopenings")
    revision = models.PositiveIntegerField(help_text="The close that it undoes.")
    reason = models.CharField(max_length=REASON_LENGTH)
    requested_by_id = models.UUIDField()
    requested_by_name = models.CharField(max_length=254)
    requested_at = models.DateTimeField(db_default=Now())
    approved_by_id = models.UUIDField(null=True)
    approved_by_name = models.CharField(max_length=254, blank=True, default="", db_default="")
    approved_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["period", "revision"], name="one_reopening_per_close"),
            models.CheckConstraint(condition=~Q(reason=""), name="reopening_has_a_reason"),
            models.CheckConstraint(
                condition=Q(approved_by_id__isnull=True, approved_at__isnull=True)
                | (Q(approved_at__isnull=False) & ~Q(approved_by_id=F("requested_by_id"))),
                name="reopening_needs_two_people",
            ),
        ]

    def __str__(self) -> str:
        return f"reopening of close {self.revision}"
