"""Remarks on lines of documents, and disputes of them: open, answered, resolved."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from foundation.ids import new_id
from tenancy.models import Tenant

from .invoices import InvoiceLine
from .periods import REASON_LENGTH


class InvoiceRemark(models.Model):
    """A remark on a line, or a dispute of it, pinned to the ledger's entries that the line was made of.

    It goes from open to answered to resolved; what was said before never changes (trigger). An unresolved dispute blocks
    the closes of its month and of later ones.
    """

    class Kind(models.TextChoices):
        REMARK = "remark"
        DISPUTE = "dispute"

    class State(models.TextChoices):
        OPEN = "open"
        ANSWERED = "answered"
        RESOLVED = "resolved"

    class Outcome(models.TextChoices):
        ACCEPTED = "accepted"
        REJECTED = "rejected"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organisation = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    line = models.ForeignKey(InvoiceLine, on_delete=models.PROTECT, related_name="remarks")
    kind = models.CharField(max_length=7, choices=Kind.choices)
    state = models.CharField(max_length=8, choices=State.choices, default=State.OPEN, db_default=State.OPEN)
    entries = ArrayField(
        models.BigIntegerField(),
        default=list,
        db_default=[],
        help_text="Ids of the ledger's entries; the trigger sets them.",
    )
    text = models.CharField(max_length=REASON_LENGTH)
    opened_by_id = models.UUIDField(null=True)
    opened_by_name = models.CharField(max_length=254)
    opened_at = models.DateTimeField(db_default=Now())
    answer = models.CharField(max_length=REASON_LENGTH, blank=True, default="", db_default="")
    answered_by_name = models.CharField(max_length=254, blank=True, default="", db_default="")
    answered_at = models.DateTimeField(null=True)
    outcome = models.CharField(max_length=8, choices=Outcome.choices, blank=True, default="", db_default="")
    resolved_by_id = models.UUIDField(null=True)
    resolved_by_name = models.CharField(max_length=254, blank=True, default="", db_default="")
    resolved_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=~Q(text="") & Q(kind__in=["remark", "dispute"]), name="remark_says_something"
            ),
            models.CheckConstraint(
                condition=Q(state="open", answer="", answered_at__isnull=True)
                | Q(state__in=["answered", "resolved"], answered_at__isnull=False) & ~Q(answer=""),
                name="answered_remark_has_its_answer",
            ),
            models.CheckConstraint(
                condition=Q(state="resolved", outcome__in=["accepted", "rejected"], resolved_at__isnull=False)
                | Q(outcome="", resolved_at__isnull=True) & ~Q(state="resolved"),
                name="resolved_remark_has_its_outcome",
            ),
            models.CheckConstraint(
                condition=~Q(kind="dispute", outcome="accepted")
                | Q(resolved_by_id__isnull=True)
                | Q(opened_by_id__isnull=True)
                | ~Q(resolved_by_id=F("opened_by_id")),
                name="accepted_dispute_needs_two_people",
            ),
        ]
        indexes = [
            models.Index(fields=["organisation"], condition=~Q(state="resolved"), name="remarks_to_resolve"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} ({self.state})"
