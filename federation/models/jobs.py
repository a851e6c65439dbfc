"""Jobs, their attempts, the attempts' objects on clusters, and the jobs' timelines."""

from datetime import timedelta

from django.contrib.postgres.indexes import BrinIndex
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from clusters.models import Cluster
from federation.engine.lifecycle import ATTEMPT_MOVES, JOB_MOVES, AttemptState, JobState
from foundation.finite import finite
from foundation.ids import new_id
from foundation.states import Lifecycle
from tenancy.models import Tenant, User

from .priority_classes import PriorityClass

JOB_LIFECYCLE = Lifecycle(JOB_MOVES)
ATTEMPT_LIFECYCLE = Lifecycle(ATTEMPT_MOVES)
LIVE_ATTEMPT_STATES = sorted(ATTEMPT_LIFECYCLE.live)
IS_LIVE = "IN (" + ", ".join(f"'{state}'" for state in LIVE_ATTEMPT_STATES) + ")"
"""For the state of an attempt in SQL. With parameters instead, no prepared plan could use the partial indexes on live
attempts: PostgreSQL would plan the statement each time, and longer the more attempts have ended.
"""
TERMINAL_JOB_STATES = sorted(JOB_LIFECYCLE.terminal)
LONGEST_WAIT = timedelta(hours=1)
"""How long a stop waits for a checkpoint at most."""


class Job(models.Model):
    """A user's submission. `spec` is the validated normal form; `shape` groups jobs with equal requests."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    # No index where another one begins with the column: each change of a row would write both.
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="jobs", db_index=False)
    created_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="jobs")
    name = models.CharField(max_length=63)
    spec = models.JSONField()
    shape = models.CharField(max_length=32, help_text="Hex digest of everything that placement considers.")
    labels = models.JSONField(default=dict)
    priority = models.IntegerField(default=0, help_text="The value of its class when it was submitted.")
    priority_class = models.ForeignKey(
        PriorityClass,
        null=True,
        on_delete=models.PROTECT,
        related_name="jobs",
        db_index=False,
        help_text="Empty for jobs that were submitted before classes had rows; the spec names it.",
    )
    state = models.CharField(max_length=12, choices=[(s.value, s.value) for s in JobState], default=JobState.QUEUED)
    reason_code = models.CharField(max_length=40, default="new", blank=True)
    reason_message = models.TextField(default="", blank=True)
    reason_at = models.DateTimeField(db_default=Now())
    explanation = models.JSONField(
        default=dict, help_text="For each cluster, why the job does not run there now, with numbers."
    )
    attempts_made = models.PositiveIntegerField(default=0)
    retry_at = models.DateTimeField(null=True, help_text="While it is queued: its next attempt starts no sooner.")
    suspend_requested_at = models.DateTimeField(null=True, help_text="When a user suspended it, until it is resumed.")
    stop_wish = models.JSONField(
        null=True,
        help_text="A user's stop that waits for a checkpoint: `then`, `suspend` or `move`, who, and the move's body.",
    )
    stop_wished_at = models.DateTimeField(null=True, help_text="Likewise: checkpoints that are reported later count.")
    stop_latest_at = models.DateTimeField(null=True, help_text="Likewise: it waits no longer.")
    exit_code = models.IntegerField(null=True)
    created_at = models.DateTimeField(db_default=Now())
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(state__in=[s.value for s in JobState]), name="job_state_is_known"),
            # The trigger of `../sql/pending_stops.sql` ends it with the run.
            models.CheckConstraint(
                condition=Q(stop_wish__isnull=True, stop_wished_at__isnull=True, stop_latest_at__isnull=True)
                | Q(stop_wish__isnull=False, stop_wished_at__isnull=False, stop_latest_at__isnull=False)
                & Q(stop_latest_at__gt=F("stop_wished_at"), stop_latest_at__lte=F("stop_wished_at") + LONGEST_WAIT)
                & Q(stop_wish__has_key="by")
                & (
                    Q(stop_wish__contains={"then": "suspend"})
                    | Q(
                        stop_wish__contains={"then": "move"},
                        stop_wish__has_keys=["user", "reason", "lose_work", "clusters"],
                    )
                )
                & Q(state="running", suspend_requested_at=None, spec__contains={"reports": True}),
                name="only_a_reporting_run_waits_for_a_checkpoint",
            ),
            models.CheckConstraint(
                condition=Q(state__in=TERMINAL_JOB_STATES, finished_at__isnull=False)
                | (~Q(state__in=TERMINAL_JOB_STATES) & Q(finished_at__isnull=True)),
                name="job_is_finished_exactly_when_terminal",
            ),
            models.CheckConstraint(
                condition=~Q(state="queued") | Q(suspend_requested_at__isnull=True), name="no_suspended_job_is_queued"
            ),
            models.CheckConstraint(
                condition=~Q(state="suspended") | Q(suspend_requested_at__isnull=False), name="only_users_suspend_jobs"
            ),
        ]
        indexes = [
            models.Index(fields=["-priority", "id"], condition=Q(state="queued"), name="job_queue"),
            models.Index(
                fields=["tenant", "shape", "-priority", "id"], condition=Q(state="queued"), name="job_queue_of_tenant"
            ),
            models.Index(fields=["tenant"], condition=Q(state="suspended"), name="suspended_jobs_of_tenant"),
            models.Index(fields=["tenant", "-id"], name="jobs_of_tenant"),
            models.Index(fields=["id"], condition=Q(finished_at=None, spec__has_key="session"), name="live_sessions"),
            models.Index(
                fields=["id"],
                condition=Q(finished_at=None)
                & (Q(spec__moves="when_cheaper") | Q(spec__has_key="finish_within_seconds")),
                name="jobs_that_may_move_to_save",
            ),
            BrinIndex(fields=["finished_at"], autosummarize=True, pages_per_range=32, name="jobs_by_end"),
            models.Index(fields=["stop_latest_at"], condition=Q(stop_latest_at__isnull=False), name="stops_that_wait"),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.id})"

    @property
    def is_to_be_suspended(self) -> bool:
        """Whether a user has suspended it, perhaps from its next checkpoint on: then it does not return to the queue."""
        return self.suspend_requested_at is not None or (self.stop_wish or {}).get("then") == "suspend"


class Attempt(models.Model):
    """One run of a job on one cluster. `claim_token` fences workers: a write names the token of its claim."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    job = models.ForeignKey(Job, on_delete=models.PROTECT, related_name="attempts", db_index=False)
    number = models.PositiveIntegerField()
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="attempts")
    state = models.CharField(
        max_length=12, choices=[(s.value, s.value) for s in AttemptState], default=AttemptState.RESERVED
    )
    state_before_unknown = models.CharField(max_length=12, blank=True)
    flavor = models.CharField(max_length=120, help_text="The flavor of the first pod set; each object has its own.")
    domain = models.CharField(
        max_length=500, blank=True, help_text="The chosen topology domain, as a path below the cluster."
    )
    unit_price = models.DecimalField(max_digits=18, decimal_places=6, null=True)
    currency = models.CharField(max_length=3, default="USD")
    estimate = models.JSONField(
        default=dict,
        db_default={},
        help_text="The expected duration and cost when it was placed, in parts (`placement.answers.estimates`).",
    )
    pace = models.FloatField(
        default=1, db_default=1, help_text="How long one hour of its work takes on the chosen GPU model."
    )
    namespace = models.CharField(max_length=63)
    spec_hash = models.CharField(max_length=32)
    claim_token = models.BigIntegerField(default=0)
    claim_expires_at = models.DateTimeField(null=True)
    next_action_at = models.DateTimeField(
        null=True, db_default=Now(), help_text="When dispatch must visit it again; null: not before an observation."
    )
    tries = models.PositiveIntegerField(default=0)
    reserved_at = models.DateTimeField(db_default=Now())
    sent_at = models.DateTimeField(
        null=True, help_text="Set before the first create request: from this time an object may exist."
    )
    created_at = models.DateTimeField(null=True)
    starting_at = models.DateTimeField(null=True)
    released_at = models.DateTimeField(null=True)
    started_at = models.DateTimeField(null=True)
    in_part_asked_at = models.DateTimeField(
        null=True, help_text="When its cluster was last asked whether more than a part of it can run."
    )
    finished_at = models.DateTimeField(null=True)
    end_reason = models.CharField(max_length=60, blank=True)
    end_message = models.TextField(blank=True)
    stop_requested_at = models.DateTimeField(
        null=True, help_text="Tombstone: this attempt must not start, or must stop."
    )
    stop_reason = models.CharField(
        max_length=60, blank=True, help_text="`cancelled`, or why it must stop on its cluster."
    )
    stop_message = models.TextField(blank=True, help_text="The cluster's message, if that is why it must stop there.")
    deletion_at = models.DateTimeField(
        null=True,
        help_text="Of a run that moves to a place that is kept for it: when its deletion was decided. Until then it can go on.",
    )
    lost_seconds = models.PositiveIntegerField(
        null=True, help_text="Seconds of work that the next attempt repeats; known once settled."
    )
    settled_at = models.DateTimeField(null=True, help_text="When usage was posted and the hold ended.")
    pods_told_at = models.DateTimeField(
        null=True,
        help_text="When its cluster last listed its pods after the end; null: its usage is estimated.",
    )
    settle_at = models.DateTimeField(null=True, help_text="When settlement is retried; null: immediately.")
    settle_error = models.CharField(
        max_length=300, blank=True, default="", db_default="", help_text="Why its usage cannot be recorded."
    )
    reopened_at = models.DateTimeField(
        null=True, help_text="When a pod of it was first seen running after it was settled."
    )
    removed_at = models.DateTimeField(null=True, help_text="When the cluster confirmed that its objects are gone.")

    class Meta:
        constraints = [
            finite("attempt_numbers_are_finite", "unit_price"),
            models.UniqueConstraint(
                fields=["job"], condition=Q(state__in=LIVE_ATTEMPT_STATES), name="one_live_attempt_per_job"
            ),
            models.UniqueConstraint(fields=["job", "number"], name="attempt_numbers_are_unique_per_job"),
            models.CheckConstraint(
                condition=Q(state__in=[s.value for s in AttemptState]), name="attempt_state_is_known"
            ),
            models.CheckConstraint(
                condition=Q(state__in=LIVE_ATTEMPT_STATES, finished_at__isnull=True)
                | (~Q(state__in=LIVE_ATTEMPT_STATES) & Q(finished_at__isnull=False)),
                name="attempt_is_finished_exactly_when_terminal",
            ),
            models.CheckConstraint(
                condition=Q(released_at__isnull=True) | Q(starting_at__isnull=False),
                name="nothing_is_released_before_the_gateway_commits_to_it",
            ),
            models.CheckConstraint(
                condition=Q(settled_at__isnull=True) | Q(finished_at__isnull=False),
                name="only_finished_attempts_settle",
            ),
            models.CheckConstraint(condition=Q(estimate__contains={}), name="attempt_estimate_is_an_object"),
            models.CheckConstraint(condition=Q(pace__gt=0, pace__lte=1), name="work_takes_its_time_or_less"),
        ]
        indexes = [
            # None of these grows with history.
            models.Index(
                fields=["cluster", "next_action_at"], condition=Q(next_action_at__isnull=False), name="attempts_due"
            ),
            models.Index(
                fields=["cluster", "state"], condition=Q(state__in=LIVE_ATTEMPT_STATES), name="live_attempts_of_cluster"
            ),
            models.Index(
                fields=["cluster", "finished_at"],
                condition=Q(removed_at__isnull=True, settled_at__isnull=False),
                name="attempts_to_confirm",
            ),
            models.Index(
                fields=["finished_at"],
                condition=Q(settled_at__isnull=True, finished_at__isnull=False),
                name="attempts_to_settle",
            ),
            models.Index(fields=["id"], condition=~Q(settle_error=""), name="attempts_in_trouble"),
            BrinIndex(fields=["settled_at"], autosummarize=True, pages_per_range=32, name="attempts_by_settlement"),
        ]

    def __str__(self) -> str:
        return f"attempt {self.number} of {self.job_id}"


class RemoteObject(models.Model):
    """One Kubernetes object of an attempt: one per pod set. The name comes from the attempt, so it
    can exist only once.
    """

    id = models.BigAutoField(primary_key=True)
    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE, related_name="remote_objects", db_index=False)
    position = models.PositiveSmallIntegerField()
    name = models.CharField(max_length=63)
    flavor = models.CharField(max_length=120)
    capacity_type = models.CharField(max_length=20)
    pods = models.PositiveIntegerField(help_text="The number of pods that run at the same time.")
    completions = models.PositiveIntegerField(
        null=True, help_text="The total number of pods to complete; null if the spec does not set it."
    )
    gpu_units = models.PositiveIntegerField(help_text="Devices per pod, in units of the flavor.")
    cpu_millicores = models.PositiveBigIntegerField(help_text="Per pod.")
    memory_mib = models.PositiveBigIntegerField(help_text="Per pod.")
    assumed_nodes = models.JSONField(
        default=dict,
        help_text="{node name: number of pods}, deducted from the nodes' free capacity until the pods are seen bound.",
    )
    domain_selectors = models.JSONField(
        default=list,
        blank=True,
        help_text="Label selectors of the chosen topology domain, each for some of its nodes; empty: no domain.",
    )
    topology_label = models.CharField(
        max_length=316,
        blank=True,
        help_text="The node label of the cluster for the topology level that the job requested.",
    )
    stretches = models.JSONField(
        default=list,
        blank=True,
        help_text="Nodes and domains in the order of its pods' indices (`engine.objects.ranks`); empty: any order.",
    )
    promised = models.JSONField(
        null=True,
        editable=False,
        help_text="The flavor as it was when the attempt was created (trigger); null: it no longer existed.",
    )
    mounts = models.JSONField(
        default=list,
        db_default=[],
        blank=True,
        help_text="The parts of volumes that its pods mount (`engine.objects.mounts`), as they were when it was placed.",
    )
    networks = models.JSONField(
        default=list,
        db_default=[],
        blank=True,
        help_text="The network attachments of its pods (`engine.objects.networks`), likewise.",
    )
    secrets = models.JSONField(
        default=dict,
        db_default={},
        blank=True,
        help_text="Names of its Secrets and versions of secrets (`engine.objects.job_secrets`), never values.",
    )
    resources = models.JSONField(default=dict, db_default={}, blank=True, help_text="Other resources per pod, by name.")
    cluster_id = models.UUIDField(null=True, help_text="The attempt's cluster; null until it has returned the uid.")
    uid = models.CharField(max_length=64, blank=True)
    outcome = models.CharField(max_length=10, blank=True, help_text="`succeeded` or `failed`, once its Job has ended.")
    ended_at = models.DateTimeField(null=True)
    began_at = models.DateTimeField(
        null=True, help_text="When its Job was unsuspended, on our clock; set when the Job has ended."
    )
    over_at = models.DateTimeField(null=True, help_text="When its Job ended, on our clock.")
    pods_over = models.PositiveIntegerField(
        null=True, help_text="The number of ended pods of its ended Job, as the cluster counted them."
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["attempt", "position"], name="one_object_per_pod_set_of_an_attempt"),
            models.UniqueConstraint(
                fields=["cluster_id", "uid"], condition=~Q(uid=""), name="an_object_serves_one_attempt"
            ),
            models.CheckConstraint(
                condition=Q(uid="") | Q(cluster_id__isnull=False), name="a_uid_is_known_with_its_cluster"
            ),
            models.CheckConstraint(
                condition=Q(pods_over__isnull=True) | Q(over_at__gte=F("began_at")), name="a_job_ends_after_it_began"
            ),
        ]
        indexes = [models.Index(fields=["attempt"], condition=~Q(resources={}), name="objects_with_other_resources")]

    def __str__(self) -> str:
        return self.name


class JobEvent(models.Model):
    """One event of a job's timeline. Append-only."""

    id = models.BigAutoField(primary_key=True)
    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="events", db_index=False)
    attempt = models.ForeignKey(Attempt, null=True, on_delete=models.CASCADE, related_name="+")
    at = models.DateTimeField(db_default=Now())
    kind = models.CharField(max_length=40)
    message = models.TextField(blank=True)

    class Meta:
        indexes = [models.Index(fields=["job", "id"], name="job_timeline")]

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"
