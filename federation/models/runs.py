"""How long past runs took, by kind."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from foundation.finite import finite
from tenancy.models import Tenant, User


class RunGroup(models.Model):
    """The run times of the last runs of a kind (`placement.ranking.runtimes`). A successful run is added at its end,
    and the oldest are dropped.
    """

    class Level(models.TextChoices):
        JOB = "job", "job"
        NAME = "name", "name"
        PODS = "pods", "pods"

    key = models.CharField(primary_key=True, max_length=32, help_text="A digest of what the runs have in common.")
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+")
    level = models.CharField(max_length=4, choices=Level.choices)
    recent_seconds = ArrayField(models.IntegerField(), help_text="Durations of the last runs, newest first.")
    runs = models.PositiveBigIntegerField(help_text="The total number of runs.")
    last_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(level__in=["job", "name", "pods"]), name="run_group_level_is_known"),
            models.CheckConstraint(
                condition=Q(recent_seconds__len__gte=1, recent_seconds__len__lte=50),
                name="run_group_remembers_a_bounded_number_of_runs",
            ),
            models.CheckConstraint(
                condition=Q(runs__gte=F("recent_seconds__len")), name="run_group_counts_what_it_remembers"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.runs} runs by {self.level}"


class EstimateRecord(models.Model):
    """How far the estimates of a user's jobs in a tenant have been kept (`placement.ranking.kept_estimates`): `stated_seconds` are
    the seconds that runs took, `taken_seconds` the same, times what each took of what was stated.
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    stated_seconds = models.FloatField(help_text="The sum, in which later runs count more.")
    taken_seconds = models.FloatField(help_text="Likewise of what the runs took.")
    last_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            finite("estimate_record_numbers_are_finite", "stated_seconds", "taken_seconds"),
            models.UniqueConstraint(fields=["tenant", "user"], name="one_estimate_record_per_tenant_and_user"),
            models.CheckConstraint(
                condition=Q(stated_seconds__gte=60, taken_seconds__gte=60), name="estimate_record_is_of_runs"
            ),
        ]

    def __str__(self) -> str:
        return f"runs take {self.taken_seconds / self.stated_seconds:.2f} times what was stated"
