"""Running jobs that are moved to another cluster."""

from datetime import timedelta

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from foundation.finite import finite

from .consolidations import Consolidation
from .jobs import Attempt, Job

MOST_CLUSTERS = 100


class Move(models.Model):
    """A decision to stop a job's attempt so that the job continues on another cluster: a user's, or the gateway's own, which
    it makes only if staying costs more, or so that a strictly larger job fits, or so that it costs less or finishes in time. The
    latter may also lead to other nodes of the same cluster (`../sql/moves.sql`), and an elastic job that grows stays on its cluster. It never changes; one with a
    kept place is deleted if its run goes on (`../sql/withdrawn_moves.sql`).
    """

    class Cause(models.TextChoices):
        USER = "user", "a user's request"
        DRAIN = "drain", "its cluster is drained"
        MAINTENANCE = "maintenance", "a maintenance window that drains begins before it ends"
        SPOT = "spot", "its node is about to be taken away"
        CONSOLIDATION = "consolidation", "a larger job fits then"
        GROWTH = "growth", "it continues with more pods"
        PRICE = "price", "it costs less there"
        DEADLINE = "deadline", "it finishes in time there"

    attempt = models.OneToOneField(Attempt, primary_key=True, on_delete=models.PROTECT, related_name="move")
    job = models.ForeignKey(Job, on_delete=models.PROTECT, related_name="moves")
    cause = models.CharField(max_length=13, choices=Cause.choices)
    clusters = ArrayField(
        models.UUIDField(),
        default=list,
        db_default=[],
        help_text="The clusters that the user named: for a while it continues on one of these only. Empty: anywhere else.",
    )
    expected_id = models.UUIDField(help_text="The cluster that had room for it.")
    lost_seconds = models.PositiveIntegerField(help_text="Of work that it repeats.")
    cost_seconds = models.PositiveIntegerField(help_text="What moving costs: work that it repeats, and the restart.")
    stay_seconds = models.PositiveIntegerField(
        null=True, help_text="What staying would cost, or growth saves; null for a user's request."
    )
    consolidation = models.ForeignKey(
        Consolidation,
        null=True,
        on_delete=models.PROTECT,
        related_name="moves",
        help_text="The plan that it is part of.",
    )
    size_milli = models.PositiveBigIntegerField(
        null=True, help_text="Of a move of a plan: the size of the job, in thousandths of a GPU."
    )
    nodes = models.JSONField(
        default=list,
        db_default=[],
        help_text="Of a move of a plan, for a price, for a deadline, or of a job that grows: the nodes that are kept for the job.",
    )
    amounts = models.JSONField(
        default=dict,
        db_default={},
        help_text="Likewise what its new hold will take; this quota is kept for it.",
    )
    kept_until = models.DateTimeField(
        null=True,
        help_text="Likewise, unless it is part of a plan: until when its place is kept. A stop that its cluster has not carried out then is revoked.",
    )
    price_from = models.DecimalField(
        max_digits=18,
        decimal_places=6,
        null=True,
        help_text="Of a move for a lower price: an hour of all its pods where it ran, then.",
    )
    price_to = models.DecimalField(max_digits=18, decimal_places=6, null=True, help_text="Likewise at the new place.")
    currency = models.CharField(max_length=3, default="", db_default="")
    saving = models.DecimalField(
        max_digits=18, decimal_places=6, null=True, help_text="What the work that is certainly left costs less there."
    )
    price_of_move = models.DecimalField(max_digits=18, decimal_places=6, null=True, help_text="What the move costs.")
    finish_by = models.DateTimeField(null=True, help_text="Of a move for a deadline: that deadline.")
    late_at = models.DateTimeField(null=True, help_text="Likewise: when it could have ended where it ran.")
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            finite("move_numbers_are_finite", "price_from", "price_to", "saving", "price_of_move"),
            models.CheckConstraint(
                condition=Q(
                    cause__in=["user", "drain", "maintenance", "spot", "consolidation", "growth", "price", "deadline"]
                ),
                name="a_moves_cause_is_known",
            ),
            models.CheckConstraint(
                condition=Q(cause="user", stay_seconds__isnull=True)
                | Q(cause__in=["consolidation", "price", "deadline"], stay_seconds__isnull=True, clusters=[])
                | (
                    ~Q(cause__in=["user", "consolidation", "price", "deadline"])
                    & Q(stay_seconds__isnull=False, stay_seconds__gt=F("cost_seconds"), clusters=[])
                ),
                name="the_gateway_moves_only_what_gains",
            ),
            models.CheckConstraint(
                condition=Q(cause="consolidation", consolidation__isnull=False, size_milli__isnull=False)
                & Q(nodes__contains=[])
                | Q(cause="growth", consolidation__isnull=True, size_milli__isnull=True)
                & Q(nodes__contains=[], amounts__contains={})
                & ~Q(nodes=[])
                | Q(cause__in=["price", "deadline"], consolidation__isnull=True, size_milli__isnull=True)
                & (Q(kept_until__isnull=False, nodes__contains=[], amounts__contains={}) | Q(nodes=[], amounts={}))
                | ~Q(cause__in=["consolidation", "growth", "price", "deadline"])
                & Q(consolidation__isnull=True, size_milli__isnull=True, nodes=[], amounts={}),
                name="a_move_of_a_plan_has_its_place",
            ),
            models.CheckConstraint(
                condition=Q(cause="price", currency__regex=r"^[A-Z]{3}$", saving__gt=F("price_of_move"))
                & Q(price_of_move__gte=0, price_from__gt=0, price_to__gte=0)
                & Q(saving__isnull=False, price_of_move__isnull=False, price_from__isnull=False, price_to__isnull=False)
                | ~Q(cause="price") & Q(saving=None, price_of_move=None, price_from=None, price_to=None, currency=""),
                name="a_move_for_a_price_saves_more_than_it_costs",
            ),
            models.CheckConstraint(
                condition=Q(cause="deadline", late_at__gt=F("finish_by"))
                & Q(finish_by__isnull=False, late_at__isnull=False)
                | ~Q(cause="deadline") & Q(finish_by=None, late_at=None),
                name="a_move_for_a_deadline_would_be_late_else",
            ),
            models.CheckConstraint(
                condition=Q(kept_until=None)
                | Q(cause__in=["growth", "price", "deadline"], kept_until__gt=F("created_at"))
                & Q(kept_until__lte=F("created_at") + timedelta(days=1)),
                name="a_moves_place_is_kept_for_a_day_at_most",
            ),
            models.CheckConstraint(
                condition=Q(cost_seconds__gte=F("lost_seconds")), name="a_move_costs_what_it_repeats_or_more"
            ),
            models.CheckConstraint(
                condition=Q(clusters__len__isnull=True) | Q(clusters__len__lte=MOST_CLUSTERS),
                name="a_move_names_a_bounded_number_of_clusters",
            ),
        ]
        indexes = [
            models.Index(fields=["job", "created_at"], name="moves_of_job"),
            models.Index(fields=["kept_until"], condition=Q(kept_until__isnull=False), name="moves_with_kept_places"),
            models.Index(fields=["created_at"], condition=Q(cause="price"), name="saving_moves"),
        ]

    def __str__(self) -> str:
        return f"move of {self.job_id} ({self.cause})"
