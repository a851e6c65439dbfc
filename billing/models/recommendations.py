"""Recommendations and what people decided about them, and the labels that an organisation requires. Never part of a charge."""

from typing import Any

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from billing.engine.recommendations import Kind
from foundation.finite import finite
from foundation.ids import new_id
from tenancy.models import Tenant

from .periods import REASON_LENGTH

MONEY: dict[str, Any] = {"max_digits": 38, "decimal_places": 6}
SUBJECT_LENGTH = 400


class Recommendation(models.Model):
    """One finding of a tenant, the same row from day to day: by kind, subject and currency. A routine finds it.

    It begins open. A person accepts or dismisses it, or opens it again. The routine closes it as `expired` if it is open, or
    dismissed until a day that has passed, and is not found any more; as `done` if it is accepted and was not found for two weeks. It opens
    it again if it is found after that, or if its amount has grown by half since it was dismissed (trigger).
    """

    class State(models.TextChoices):
        OPEN = "open"
        ACCEPTED = "accepted"
        DISMISSED = "dismissed"
        DONE = "done"
        EXPIRED = "expired"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organisation = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+", db_index=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="recommendations", db_index=False)
    tenant_path = models.CharField(max_length=1100, db_collation="C")
    kind = models.CharField(max_length=20)
    subject = models.CharField(max_length=SUBJECT_LENGTH, db_collation="C")
    currency = models.CharField(max_length=3)
    low = models.DecimalField(**MONEY, help_text="Of 30 days.")
    high = models.DecimalField(**MONEY)
    confidence = models.DecimalField(max_digits=5, decimal_places=4)
    evidence = models.JSONField()
    found_on = models.DateField(help_text="The first day (UTC) on which it was found.")
    last_found_on = models.DateField()
    state = models.CharField(max_length=10, choices=State.choices, default=State.OPEN)
    reason = models.CharField(max_length=REASON_LENGTH, blank=True, default="")
    until = models.DateField(null=True, help_text="Of a dismissed one: from this day on, it may be opened again.")
    decided_high = models.DecimalField(**MONEY, null=True, help_text="`high` when it was accepted or dismissed.")
    decided_by_id = models.UUIDField(null=True)
    decided_by_name = models.CharField(max_length=254, blank=True, default="")
    decided_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            finite("recommendation_numbers_are_finite", "low", "high", "confidence", "decided_high"),
            models.UniqueConstraint(
                fields=["tenant", "kind", "subject", "currency"], name="one_recommendation_a_subject"
            ),
            models.CheckConstraint(
                condition=Q(kind__in=[kind.value for kind in Kind]), name="recommendation_kind_is_known"
            ),
            models.CheckConstraint(
                condition=Q(low__gte=0, high__gte=F("low"), confidence__gte=0, confidence__lte=1)
                & Q(currency__regex=r"^[A-Z]{3}$")
                & Q(last_found_on__gte=F("found_on")),
                name="recommendation_is_a_range",
            ),
            models.CheckConstraint(
                condition=Q(state="open", reason="", until=None, decided_high=None)
                | Q(state="expired", until=None, decided_high=None)
                | (
                    Q(state__in=["accepted", "done"], until=None, decided_high__isnull=False, decided_at__isnull=False)
                    & ~Q(decided_by_name="")
                )
                | (
                    Q(state="dismissed", until__isnull=False, decided_high__isnull=False, decided_at__isnull=False)
                    & ~Q(decided_by_name="")
                    & ~Q(reason="")
                ),
                name="recommendation_says_who_and_why",
            ),
        ]
        indexes = [
            models.Index(fields=["organisation", "state"], name="recommendations_by_state"),
        ]

    def __str__(self) -> str:
        return f"{self.kind}: {self.subject}"


class RequiredLabels(models.Model):
    """The keys of the labels that an organisation's jobs must have, from a day on; none: no label. Of two for a day, the later one
    applies. Append-only. No job is refused for them.
    """

    id = models.BigAutoField(primary_key=True)
    organisation = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    effective_from = models.DateField()
    keys = ArrayField(models.CharField(max_length=317))
    made_by_id = models.UUIDField(null=True)
    made_by_name = models.CharField(max_length=254)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(keys__len__lte=10), name="required_labels_are_few")]

    def __str__(self) -> str:
        return f"{', '.join(self.keys)} from {self.effective_from}"
