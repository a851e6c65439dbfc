"""What the GPUs of metered pods did, hour by hour, as their clusters' Prometheus reports it. Never part of a charge."""

from django.db import models
from django.db.models import F, Func, Q, Value
from django.db.models.functions import Now

from clusters.models import Cluster
from foundation.finite import finite

from .metering import Meter

REASON_LENGTH = 200
AN_HOUR = 3600


def whole_hour() -> Func:
    """The hour (UTC) that `hour` is in, whatever the session's time zone."""
    return Func(Value("hour"), F("hour"), Value("UTC"), function="date_trunc", output_field=models.DateTimeField())


class TelemetryHour(models.Model):
    """An hour of a cluster for which its Prometheus is asked: from `next_at` on, or no more (null).

    With each ask that begins, `asks` grows; the result of an ask counts if no later one has begun. `foreign`: series of pods that
    are not the gateway's; `unusable`: numbers that are no measurement of the pod's GPUs.
    """

    id = models.BigAutoField(primary_key=True)
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="+", db_index=False)
    hour = models.DateTimeField()
    asks = models.PositiveSmallIntegerField(db_default=0, default=0)
    next_at = models.DateTimeField(null=True)
    asked_at = models.DateTimeField(null=True)
    pods = models.PositiveIntegerField(db_default=0, default=0)
    measured = models.PositiveIntegerField(db_default=0, default=0)
    foreign = models.PositiveIntegerField(db_default=0, default=0)
    unusable = models.PositiveIntegerField(db_default=0, default=0)
    why_not = models.CharField(max_length=REASON_LENGTH, blank=True, db_default="", default="")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["cluster", "hour"], name="one_telemetry_hour_a_cluster_and_hour"),
            models.CheckConstraint(condition=Q(hour=whole_hour()), name="telemetry_hour_is_whole"),
            models.CheckConstraint(condition=Q(measured__lte=F("pods")), name="telemetry_measures_pods"),
        ]
        indexes = [models.Index(fields=["next_at"], condition=Q(next_at__isnull=False), name="due_telemetry_hours")]

    def __str__(self) -> str:
        return f"{self.hour}"


class UtilisationHour(models.Model):
    """What the GPUs of a meter did in an hour. It lies within the meter's time (trigger)."""

    id = models.BigAutoField(primary_key=True)
    meter = models.ForeignKey(Meter, on_delete=models.PROTECT, related_name="utilisation", db_index=False)
    hour = models.DateTimeField()
    coverage_seconds = models.PositiveSmallIntegerField(help_text="How much of it was seen, per GPU.")
    utilisation = models.DecimalField(max_digits=7, decimal_places=6)
    sm_active = models.DecimalField(max_digits=7, decimal_places=6, null=True)
    tensor_active = models.DecimalField(max_digits=7, decimal_places=6, null=True)
    peak_memory_mib = models.PositiveIntegerField(null=True, help_text="Of one GPU or slice.")
    power_watts = models.DecimalField(max_digits=9, decimal_places=3, null=True, help_text="Of one GPU.")
    measured_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            finite("utilisation_hour_numbers_are_finite", "utilisation", "sm_active", "tensor_active", "power_watts"),
            models.UniqueConstraint(fields=["meter", "hour"], name="one_utilisation_a_meter_and_hour"),
            models.CheckConstraint(condition=Q(hour=whole_hour()), name="utilisation_hour_is_whole"),
            models.CheckConstraint(
                condition=Q(coverage_seconds__gte=1, coverage_seconds__lte=AN_HOUR),
                name="utilisation_covers_part_of_its_hour",
            ),
            models.CheckConstraint(
                condition=Q(utilisation__gte=0, utilisation__lte=1)
                & (Q(sm_active__isnull=True) | Q(sm_active__gte=0, sm_active__lte=1))
                & (Q(tensor_active__isnull=True) | Q(tensor_active__gte=0, tensor_active__lte=1)),
                name="utilisation_is_a_ratio",
            ),
            models.CheckConstraint(
                condition=(Q(power_watts__isnull=True) | Q(power_watts__gte=0)),
                name="power_is_not_negative",
            ),
        ]
        indexes = [models.Index(fields=["hour"], name="utilisation_by_hour")]

    def __str__(self) -> str:
        return f"{self.hour}: {self.utilisation}"
