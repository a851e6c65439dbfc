"""Running jobs that are stopped for other ones of their organisation: more urgent ones, or those whose quota they borrowed. Or
because a limit was lowered below what is held.
"""

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from clusters.models import Cluster
from foundation.finite import finite
from foundation.ids import new_id
from placement.values.preemption import MOST_TIMES_PREEMPTED

from .jobs import Attempt, Job

REDUCED = "reduced"
OUTCOMES = ["placed", "expired", "withdrawn", REDUCED]


class Preemption(models.Model):
    """A decision to stop jobs so that a waiting one gets their place, and the claim on that place until it ends.

    It ends once: the job was placed (`placed`), does not wait any more (`withdrawn`), or the deadline passed
    (`expired`). Only the end is ever written (`sql/preemption.sql`).

    A decision because of lowered limits has no beneficiary and claims nothing: it has ended when it is made (`reduced`).
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    beneficiary = models.ForeignKey(Job, null=True, on_delete=models.PROTECT, related_name="preemptions")
    cluster = models.ForeignKey(Cluster, null=True, on_delete=models.PROTECT, related_name="+")
    limits = models.JSONField(
        default=list, db_default=[], help_text="The lowered limits for which jobs are stopped, if not for another job."
    )
    organisation = models.CharField(max_length=63, help_text="The tenant at the top of their paths at that time.")
    amounts = models.JSONField(
        default=dict, db_default={}, help_text="What the beneficiary's hold will take; this quota is kept for it."
    )
    nodes = models.JSONField(help_text="The names of the nodes that are kept for the beneficiary.")
    cost_gpu_seconds = models.FloatField(help_text="What it costs to stop the victims.")
    is_exact = models.BooleanField(help_text="Whether no cheaper choice existed on that cluster.")
    considered = models.JSONField(
        default=list, help_text="The jobs that might have been stopped there, with their costs."
    )
    alternatives = models.JSONField(default=list, help_text="The costs on other clusters.")
    created_at = models.DateTimeField(db_default=Now())
    deadline_at = models.DateTimeField(help_text="When the claim is given up.")
    ended_at = models.DateTimeField(null=True)
    outcome = models.CharField(max_length=10, blank=True, default="", choices=[(one, one) for one in OUTCOMES])

    class Meta:
        constraints = [
            finite("preemption_numbers_are_finite", "cost_gpu_seconds"),
            models.UniqueConstraint(
                fields=["beneficiary"], condition=Q(ended_at__isnull=True), name="one_live_preemption_per_beneficiary"
            ),
            models.CheckConstraint(
                condition=Q(ended_at__isnull=True, outcome="") | Q(ended_at__isnull=False, outcome__in=OUTCOMES),
                name="a_preemption_ends_with_an_outcome",
            ),
            models.CheckConstraint(condition=Q(deadline_at__gt=F("created_at")), name="a_claim_has_a_deadline_ahead"),
            models.CheckConstraint(condition=Q(cost_gpu_seconds__gte=0), name="a_preemption_costs_nothing_or_more"),
            models.CheckConstraint(
                condition=Q(nodes__contains=[]) & Q(considered__contains=[]) & Q(alternatives__contains=[]),
                name="a_preemption_lists_its_nodes",
            ),
            models.CheckConstraint(
                condition=Q(beneficiary__isnull=False, cluster__isnull=False, limits=[]) & ~Q(outcome=REDUCED)
                | Q(beneficiary__isnull=True, cluster__isnull=True, limits__contains=[], nodes=[], outcome=REDUCED)
                & ~Q(limits=[]),
                name="a_preemption_has_a_beneficiary_or_limits",
            ),
        ]
        indexes = [
            models.Index(fields=["created_at"], name="preemptions_by_time"),
            models.Index(fields=["id"], condition=Q(ended_at__isnull=True), name="live_preemptions"),
        ]

    def __str__(self) -> str:
        return f"preemption for {self.beneficiary_id or 'lowered limits'}"


class PreemptionVictim(models.Model):
    """An attempt that is stopped for another job of its organisation. It belongs to one preemption; its job has strictly
    lower priority, or uses borrowed quota. Or it is stopped because a lowered limit still holds too much after all others that
    are being stopped have ended (`sql/preemption.sql`). Append-only.
    """

    attempt = models.OneToOneField(Attempt, primary_key=True, on_delete=models.PROTECT, related_name="preemption")
    preemption = models.ForeignKey(Preemption, on_delete=models.PROTECT, related_name="victims")
    job = models.ForeignKey(Job, on_delete=models.PROTECT, related_name="evictions")
    lost_seconds = models.PositiveIntegerField(help_text="Of work since its last checkpoint, at the decision.")
    ran_seconds = models.PositiveIntegerField(help_text="How long it had run.")
    shield_seconds = models.PositiveIntegerField(help_text="How long its class shielded it at that time.")
    times_preempted = models.PositiveSmallIntegerField(help_text="How often its job was stopped for others before.")
    gpu_milli = models.PositiveBigIntegerField(help_text="Its size; without GPUs, sixteen cores count as one.")
    cost_gpu_seconds = models.FloatField()
    loan = models.JSONField(
        null=True, help_text="The limit by which it borrowed, and by how much; null if the beneficiary is more urgent."
    )
    nodes = models.JSONField(
        default=list,
        db_default=[],
        help_text="Of an elastic job: the names of the nodes that are kept for it, to go on with fewer pods. Empty: none.",
    )
    amounts = models.JSONField(
        default=dict, db_default={}, help_text="What its new hold will take there; this quota is kept for it."
    )

    class Meta:
        constraints = [
            finite("preemption_victim_numbers_are_finite", "cost_gpu_seconds"),
            models.CheckConstraint(condition=Q(ran_seconds__gte=F("shield_seconds")), name="a_victims_shield_is_kept"),
            models.CheckConstraint(
                condition=Q(times_preempted__lt=MOST_TIMES_PREEMPTED), name="a_job_is_preempted_a_few_times_at_most"
            ),
            models.CheckConstraint(condition=Q(cost_gpu_seconds__gte=0), name="a_victim_costs_nothing_or_more"),
            models.CheckConstraint(
                condition=Q(nodes=[], amounts={}) | Q(nodes__contains=[], amounts__contains={}) & ~Q(nodes=[]),
                name="what_is_kept_for_a_victim_has_nodes",
            ),
        ]
        indexes = [models.Index(fields=["preemption"], condition=~Q(nodes=[]), name="places_kept_for_victims")]

    def __str__(self) -> str:
        return f"{self.attempt_id} for {self.preemption_id}"
