"""What attempts report of themselves. Nothing else is decided by it: a program may report anything."""

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from foundation.finite import finite

from .jobs import Attempt


class Progress(models.Model):
    """The newest progress that an attempt reported, and how often it reports."""

    attempt = models.OneToOneField(Attempt, primary_key=True, on_delete=models.CASCADE, related_name="progress")
    sequence = models.BigIntegerField(
        default=-1, db_default=-1, help_text="Of the newest report; a report counts only if it is newer."
    )
    step = models.BigIntegerField(null=True)
    total_steps = models.BigIntegerField(null=True)
    loss = models.FloatField(null=True)
    series = models.JSONField(
        default=dict, db_default={}, help_text="By name, a short list of pairs: step (or sequence) and value."
    )
    first_step = models.BigIntegerField(null=True, help_text="The first reported step.")
    first_step_at = models.DateTimeField(null=True)
    reported_at = models.DateTimeField(null=True, help_text="When the newest report arrived, by our clock.")
    window_began_at = models.DateTimeField(db_default=Now())
    window_reports = models.PositiveIntegerField(
        default=1, db_default=1, help_text="The number of reports since `window_began_at`."
    )

    class Meta:
        constraints = [
            finite("progress_numbers_are_finite", "loss"),
            models.CheckConstraint(
                condition=(Q(step__isnull=True) | Q(step__gte=0))
                & (Q(total_steps__isnull=True) | Q(total_steps__gte=1)),
                name="progress_counts_steps",
            ),
            models.CheckConstraint(
                condition=Q(step__isnull=True) | Q(total_steps__isnull=True) | Q(step__lte=models.F("total_steps")),
                name="progress_is_at_most_all",
            ),
        ]

    def __str__(self) -> str:
        return f"progress of {self.attempt_id}"


class Checkpoint(models.Model):
    """A checkpoint that an attempt reported. The gateway never reads what its reference names."""

    id = models.BigAutoField(primary_key=True)
    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE, related_name="checkpoints")
    sequence = models.BigIntegerField(help_text="Of the newest report that has it.")
    reference = models.CharField(max_length=1024)
    size_bytes = models.BigIntegerField(null=True)
    step = models.BigIntegerField(null=True)
    flavors = models.JSONField(default=list, help_text="The flavors on which it can be resumed; empty: any.")
    written_at = models.DateTimeField(help_text="As reported, but no later than the report.")
    reported_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["attempt", "reference"], name="a_checkpoint_is_listed_once"),
            models.CheckConstraint(condition=~Q(reference=""), name="a_checkpoint_has_a_reference"),
            models.CheckConstraint(condition=Q(flavors__contains=[]), name="checkpoint_flavors_are_a_list"),
            models.CheckConstraint(
                condition=Q(written_at__lte=models.F("reported_at")), name="a_checkpoint_is_written_before_its_report"
            ),
        ]
        indexes = [models.Index(fields=["attempt", "-sequence"], name="newest_checkpoints")]

    def __str__(self) -> str:
        return self.reference
