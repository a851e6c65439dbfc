"""Copies of datasets to storages of clusters, and the jobs that wait for them."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from clusters.models import Cluster, StagingPlan
from foundation.ids import new_id

from .jobs import Job
from .preparations import Phase as PhaseOfPreparation
from .preparations import Preparation, constraints_of

MOST_STAGE_INS = 4
"""The most copies of one cluster that are under way at the same time."""
MOST_AWAITED = 16
"""Of a job: as many as it names datasets at most."""


class StageIn(Preparation):
    """The copy of a dataset to a cluster by its plan. All jobs that wait for that dataset there share it."""

    Phase = PhaseOfPreparation

    id = models.BigAutoField(primary_key=True)
    plan = models.OneToOneField(StagingPlan, on_delete=models.CASCADE, related_name="stage_in")
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="+")
    is_wanted = models.BooleanField(default=True, help_text="Whether it copies as soon as it can.")
    image = models.CharField(max_length=512, blank=True, help_text="The copy image of the Job under way.")
    mounts = models.JSONField(default=list, blank=True, help_text="The promised source and target of that Job.")
    store = models.JSONField(
        default=dict,
        db_default={},
        blank=True,
        help_text="The promised source of that Job in an object store; empty: it mounts its source.",
    )
    secrets = models.JSONField(
        default=dict, db_default={}, blank=True, help_text="The promised version of its access key."
    )
    copied_bytes = models.BigIntegerField(null=True)
    total_bytes = models.BigIntegerField(null=True)
    changed_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            *constraints_of("stage_in", MOST_STAGE_INS),
            models.CheckConstraint(
                condition=Q(outcome__in=["", "staged", "failed", "cancelled"]), name="stage_in_outcome_is_known"
            ),
            models.CheckConstraint(
                condition=~Q(outcome="staged") | Q(failures=0, is_wanted=False), name="staged_stage_in_is_done"
            ),
            models.CheckConstraint(
                condition=Q(copied_bytes=None) | Q(copied_bytes__gte=0), name="stage_in_copies_no_negative_amount"
            ),
            models.CheckConstraint(
                condition=Q(store={}, secrets={}) | (~Q(store={}) & ~Q(secrets={})),
                name="stage_in_from_a_store_has_a_key",
            ),
        ]

    def __str__(self) -> str:
        return f"stage-in of {self.plan_id}"


class DataWait(models.Model):
    """A job that was promised a place on a cluster, and waits there for datasets that are being copied. Its quota is held under the
    id of this row, until the wait ends; it has no GPUs.
    """

    class Outcome(models.TextChoices):
        READY = "ready"
        """All that it waited for is there."""
        LATE = "late"
        FAILED = "failed"
        SKIPPED = "skipped"
        """A user lets the job run without it."""
        CLOSED = "closed"
        """The cluster takes no new work any more."""
        OVER = "over"
        """The job was cancelled or suspended."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="data_waits", db_index=False)
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="+")
    plans = ArrayField(models.UUIDField(), size=MOST_AWAITED)
    made_at = models.DateTimeField(db_default=Now())
    until_at = models.DateTimeField(help_text="Then the job is placed without waiting.")
    ended_at = models.DateTimeField(null=True)
    outcome = models.CharField(max_length=10, blank=True, choices=Outcome.choices)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["job"], condition=Q(ended_at=None), name="a_job_waits_for_data_once"),
            models.CheckConstraint(
                condition=Q(ended_at=None, outcome="") | (Q(ended_at__isnull=False) & ~Q(outcome="")),
                name="ended_data_wait_has_an_outcome",
            ),
            models.CheckConstraint(
                condition=Q(outcome__in=["", "ready", "late", "failed", "skipped", "closed", "over"]),
                name="data_wait_outcome_is_known",
            ),
            models.CheckConstraint(
                condition=Q(plans__len__gte=1, plans__len__lte=MOST_AWAITED), name="data_wait_names_plans"
            ),
        ]
        indexes = [
            models.Index(fields=["job"], name="data_waits_of_job"),
            models.Index(fields=["until_at"], condition=Q(ended_at=None), name="data_waits_under_way"),
        ]

    def __str__(self) -> str:
        return f"{self.job_id} on {self.cluster_id}"
