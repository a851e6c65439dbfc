"""Why attempts failed and what followed, tenants' failure rules, and the brake on retries."""

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from clusters.models import Cluster
from federation.engine.failures.diagnoses import LONGEST_TEXT
from federation.engine.failures.rules import (
    LEAST_KEPT_SECONDS,
    MOST_KEPT_SECONDS,
    MOST_SECONDS,
    MOST_SECONDS_HERE,
    FailureClass,
    Step,
)
from tenancy.models import Tenant

from .jobs import Attempt

CLASSES = [one.value for one in FailureClass]
STEPS = [one.value for one in Step]


class Diagnosis(models.Model):
    """Why an attempt failed, and what follows (`engine.failures`). Until it is judged, because a rule needs what only the
    cluster can show, it has no class, and its attempt remains live. Once judged, it never changes (trigger).
    """

    attempt = models.OneToOneField(Attempt, primary_key=True, on_delete=models.CASCADE, related_name="diagnosis")
    failure_class = models.CharField(max_length=20, blank=True)
    own_class = models.CharField(
        max_length=20,
        blank=True,
        help_text="The class by the gateway's own rules: the only one that counts for others.",
    )
    text = models.CharField(max_length=LONGEST_TEXT, blank=True)
    rule = models.CharField(max_length=1200, blank=True, help_text="The owner of the rule that decided, and its name.")
    step = models.CharField(max_length=20, blank=True)
    next_step = models.CharField(max_length=LONGEST_TEXT, blank=True, help_text="The next step, for people.")
    retry = models.PositiveIntegerField(default=0, help_text="The number of retries by this rule, with the next one.")
    most = models.PositiveIntegerField(default=0, help_text="The most retries by this rule.")
    wait_seconds = models.PositiveIntegerField(default=0, help_text="The wait before the retry.")
    keep_seconds = models.PositiveIntegerField(
        default=0, db_default=0, help_text="How long the attempt's place is kept for the retry, beyond the wait."
    )
    avoid = models.CharField(max_length=10, blank=True, help_text="`node` or `cluster`: what the retry avoids.")
    avoid_until = models.DateTimeField(null=True)
    node = models.CharField(max_length=253, blank=True, help_text="The node of the pod that the rule matched.")
    memory = models.JSONField(default=dict, help_text="{pod set: bytes}, the memory of the next attempt if it grows.")
    asked_at = models.DateTimeField(db_default=Now())
    judged_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(judged_at__isnull=True, failure_class="", own_class="", step="")
                | Q(judged_at__isnull=False, failure_class__in=CLASSES, own_class__in=CLASSES, step__in=STEPS),
                name="a_diagnosis_is_judged_as_a_whole",
            ),
            models.CheckConstraint(
                condition=Q(step__in=["", "stop"]) | Q(retry__gte=1, retry__lte=F("most")),
                name="a_retry_is_within_its_rule",
            ),
            models.CheckConstraint(
                condition=Q(wait_seconds__lte=MOST_SECONDS), name="a_retry_waits_for_a_bounded_time"
            ),
            models.CheckConstraint(
                condition=Q(avoid="", avoid_until__isnull=True)
                | Q(avoid__in=["node", "cluster"], step="again_elsewhere", avoid_until__isnull=False),
                name="what_a_retry_avoids_is_known",
            ),
            models.CheckConstraint(
                condition=Q(
                    step="again_here",
                    keep_seconds__gte=LEAST_KEPT_SECONDS,
                    keep_seconds__lte=MOST_KEPT_SECONDS,
                    wait_seconds__lte=MOST_SECONDS_HERE,
                )
                | ~Q(step="again_here") & Q(keep_seconds=0),
                name="a_place_is_kept_by_its_step",
            ),
            models.CheckConstraint(condition=Q(memory={}) | Q(step="more_memory"), name="memory_grows_by_its_step"),
        ]
        indexes = [
            models.Index(fields=["asked_at"], condition=Q(judged_at__isnull=True), name="failures_to_examine"),
            models.Index(fields=["avoid_until"], condition=~Q(avoid=""), name="diagnoses_that_avoid"),
        ]

    def __str__(self) -> str:
        return f"{self.failure_class or 'not judged'}: {self.step}"


class TenantFailureRules(models.Model):
    """A tenant's failure rules, in their normal form. They apply to its jobs and to those of all tenants below it."""

    tenant = models.OneToOneField(Tenant, primary_key=True, on_delete=models.PROTECT, related_name="failure_rules")
    rules = models.JSONField()
    changed_at = models.DateTimeField(db_default=Now())

    class Meta:
        verbose_name_plural = "tenant failure rules"

    def __str__(self) -> str:
        return f"failure rules of {self.tenant_id}"


class RetryBrake(models.Model):
    """A period in which retries wait, because too many attempts failed for the infrastructure: on one cluster, or, without
    one, overall.
    """

    id = models.BigAutoField(primary_key=True)
    cluster = models.ForeignKey(Cluster, null=True, on_delete=models.CASCADE, related_name="+")
    began_at = models.DateTimeField(db_default=Now())
    ended_at = models.DateTimeField(null=True)
    failures = models.PositiveIntegerField(help_text="How many of the latest attempts failed so, when it began.")
    attempts = models.PositiveIntegerField(help_text="The number of the latest attempts that counted.")

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["cluster"],
                condition=Q(ended_at__isnull=True),
                nulls_distinct=False,
                name="a_brake_is_pulled_once",
            ),
            models.CheckConstraint(
                condition=Q(ended_at__isnull=True) | Q(ended_at__gte=F("began_at")), name="a_brake_ends_after_it_began"
            ),
            models.CheckConstraint(
                condition=Q(failures__gte=1, failures__lte=F("attempts")), name="a_brake_names_its_failures"
            ),
        ]

    def __str__(self) -> str:
        return f"brake on {self.cluster_id or 'all clusters'}"
