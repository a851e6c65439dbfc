"""Work that infrastructure lost, and whether it is charged."""

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from billing.engine.credits import LossCause
from tenancy.models import Tenant

CAUSES = [one.value for one in LossCause]


class LostWork(models.Model):
    """What infrastructure lost of a run: its work from `lost_from` to its end. Without a cause: nothing, after all.

    Of a run's rows the newest applies. Append-only; the room that owns runs judges each row (trigger).
    """

    id = models.BigAutoField(primary_key=True)
    run_id = models.UUIDField()
    cause = models.CharField(max_length=20, blank=True, choices=[(one, one) for one in CAUSES])
    lost_from = models.DateTimeField(null=True, help_text="The last checkpoint, or the start; whole milliseconds.")
    recorded_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(cause="", lost_from__isnull=True) | Q(cause__in=CAUSES, lost_from__isnull=False),
                name="lost_work_has_a_known_cause",
            ),
        ]
        indexes = [
            models.Index(fields=["run_id", "-id"], name="lost_work_newest_first"),
            models.Index(fields=["lost_from"], condition=Q(lost_from__isnull=False), name="lost_work_by_time"),
        ]

    def __str__(self) -> str:
        return f"{self.cause or 'nothing'} from {self.lost_from}"


class CreditPolicy(models.Model):
    """The causes whose lost work is not charged, from a month on. Of two for a month, the later one applies.

    Append-only, and for no month that is closed (trigger). Without causes, all is charged.
    """

    id = models.BigAutoField(primary_key=True)
    organisation = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="credit_policies")
    effective_from = models.DateField(help_text="The first day of a month, UTC.")
    causes = models.JSONField(default=list, blank=True, help_text="Sorted; empty: all lost work is charged.")
    made_by_id = models.UUIDField(null=True)
    made_by_name = models.CharField(max_length=254)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        verbose_name_plural = "credit policies"
        constraints = [
            models.CheckConstraint(condition=Q(effective_from__day=1), name="credit_policy_begins_with_a_month"),
            models.CheckConstraint(
                condition=Q(causes__contains=[]) & Q(causes__contained_by=CAUSES),
                name="credit_policy_names_known_causes",
            ),
        ]
        indexes = [models.Index(fields=["organisation", "-effective_from", "-id"], name="credit_policies_newest_first")]

    def __str__(self) -> str:
        return f"from {self.effective_from:%Y-%m}"
