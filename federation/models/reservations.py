"""Nodes that tenants have reserved in advance."""

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from clusters.models import Cluster
from federation.engine.intake.reservation_reading import FEWEST_RECALL_SECONDS, MOST_RECALL_SECONDS
from foundation.ids import new_id
from quotas.models import ReservedQuota
from tenancy.models import NAME_PATTERN, Tenant, User


class Reservation(models.Model):
    """Nodes of a cluster that a tenant uses exclusively from `starts_at` until `until_at` (`placement.values.advance`).

    The request and its times do not change; the end may only become earlier, and never a time in the past (trigger). `quota`
    is what counts for it meanwhile, with the same times (SQL). It is null only for reservations from before quota was reserved.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="reservations")
    created_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="+")
    name = models.CharField(max_length=63)
    shape = models.JSONField(help_text="Pod sets, topology and constraints, as in a job's spec.")
    count = models.PositiveIntegerField(
        help_text="The number of jobs of the shape that its nodes can run at the same time."
    )
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField(help_text="The requested end.")
    until_at = models.DateTimeField(
        help_text="The end in effect: earlier than `ends_at` if it was shortened or cancelled."
    )
    quota = models.OneToOneField(ReservedQuota, on_delete=models.PROTECT, null=True, related_name="+")
    recall_seconds = models.PositiveIntegerField(
        null=True, help_text="Other jobs that end within this time may use what is unused. Null: none may."
    )
    no_show_seconds = models.PositiveIntegerField(
        null=True, help_text="It is released if none of its jobs has come this long after the start. Null: never."
    )
    created_at = models.DateTimeField(db_default=Now())
    cancelled_at = models.DateTimeField(null=True)
    released_at = models.DateTimeField(null=True, help_text="When it ended because none of its jobs had come.")

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(recall_seconds__isnull=True)
                | Q(recall_seconds__gte=FEWEST_RECALL_SECONDS, recall_seconds__lte=MOST_RECALL_SECONDS),
                name="reservation_recall_is_in_range",
            ),
            models.CheckConstraint(
                condition=Q(released_at__isnull=True)
                | Q(
                    released_at=F("until_at"),
                    released_at__gte=F("starts_at"),
                    cancelled_at__isnull=True,
                    no_show_seconds__isnull=False,
                ),
                name="a_released_reservation_ends_then",
            ),
            models.CheckConstraint(condition=Q(name__regex=NAME_PATTERN), name="reservation_name_is_a_dns_label"),
            models.CheckConstraint(condition=Q(count__gte=1), name="reservation_is_for_something"),
            models.CheckConstraint(condition=Q(ends_at__gt=F("starts_at")), name="reservation_ends_after_it_starts"),
            models.CheckConstraint(
                condition=Q(until_at__gte=F("starts_at"), until_at__lte=F("ends_at")),
                name="reservation_is_kept_within_what_was_asked",
            ),
            models.CheckConstraint(
                condition=Q(cancelled_at__isnull=True)
                | Q(until_at=F("starts_at"), cancelled_at__lte=F("starts_at"))
                | Q(until_at=F("cancelled_at")),
                name="a_cancelled_reservation_ends_at_once",
            ),
            models.UniqueConstraint(
                fields=["tenant", "name"],
                condition=Q(cancelled_at__isnull=True),
                name="reservation_name_is_unique_in_its_tenant",
            ),
        ]
        indexes = [models.Index(fields=["until_at"], name="reservations_by_end")]

    def __str__(self) -> str:
        return self.name


class ReservedNode(models.Model):
    """A node of a reservation, with a copy of its times; no node is reserved twice at the same time (SQL)."""

    id = models.BigAutoField(primary_key=True)
    reservation = models.ForeignKey(Reservation, on_delete=models.PROTECT, related_name="reserved_nodes")
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="+")
    node = models.CharField(max_length=253)
    starts_at = models.DateTimeField()
    until_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["reservation", "node"], name="a_node_is_in_a_reservation_once")]

    def __str__(self) -> str:
        return self.node
