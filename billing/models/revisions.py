"""Estimates of the end of a run that a later report of its cluster corrected."""

from django.contrib.postgres.fields import DateTimeRangeField
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from foundation.finite import finite

from .metering import Meter, Price, start_of


class MeterRevision(models.Model):
    """A report that a run ended at `until`, earlier than its meter had assumed. Append-only.

    Its trigger moves the segments after that time to `ReplacedSegment`, keeps the part of the first of them that was used, and
    moves all sums. It refuses a time before `Meter.certain_until`, so that only our own assumptions are replaced, once.
    """

    id = models.BigAutoField(primary_key=True)
    meter = models.ForeignKey(Meter, on_delete=models.PROTECT, related_name="+", db_index=False)
    number = models.PositiveSmallIntegerField(help_text="From 1, of its meter.")
    counted_until = models.DateTimeField(help_text="What was assumed.")
    until = models.DateTimeField(help_text="What was reported; whole milliseconds.")
    is_estimated = models.BooleanField(help_text="Its start or this end is still an estimate.")
    recorded_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["meter", "number"], name="one_revision_of_a_number"),
            models.CheckConstraint(condition=Q(number__gte=1), name="revisions_are_numbered_from_one"),
            models.CheckConstraint(condition=Q(until__lt=F("counted_until")), name="a_revision_shortens"),
        ]
        indexes = [models.Index(fields=["recorded_at"], name="revisions_by_time")]

    def __str__(self) -> str:
        return f"{self.counted_until} → {self.until}"


class ReplacedSegment(models.Model):
    """A segment as it was before a revision of its meter. Only the trigger of revisions writes it."""

    id = models.BigAutoField(primary_key=True)
    revision = models.ForeignKey(MeterRevision, on_delete=models.PROTECT, related_name="replaced")
    segment_id = models.BigIntegerField(unique=True, help_text="The id that it had.")
    meter = models.ForeignKey(Meter, on_delete=models.PROTECT, related_name="+")
    period = DateTimeRangeField()
    gpu_milliseconds = models.PositiveBigIntegerField()
    cpu_millicore_milliseconds = models.PositiveBigIntegerField()
    price = models.ForeignKey(Price, null=True, on_delete=models.PROTECT, related_name="+", db_index=False)
    cost = models.DecimalField(max_digits=30, decimal_places=12)
    currency = models.CharField(max_length=3, blank=True)
    is_estimated = models.BooleanField()
    recorded_at = models.DateTimeField(help_text="When it had been recorded.")

    class Meta:
        constraints = [finite("replaced_segment_numbers_are_finite", "cost")]
        indexes = [models.Index(start_of("period"), name="replaced_by_start")]

    def __str__(self) -> str:
        return f"{self.gpu_milliseconds} GPU-ms, replaced"
