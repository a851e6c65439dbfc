"""Idle capacity and the cost of the platform: who bears them, and what pools cost in closed months."""

from typing import Any

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from clusters.models import Cluster
from foundation.finite import finite
from foundation.ids import new_id
from tenancy.models import Tenant

from .periods import REASON_LENGTH, LedgerPeriod

MONEY: dict[str, Any] = {"max_digits": 38, "decimal_places": 12}


class SharingPolicy(models.Model):
    """Who bears idle capacity and the platform's cost from a month on. Of two for a month, the later one applies.

    Append-only, and for no month that is closed (trigger).
    """

    class Idle(models.TextChoices):
        CENTRAL = "central"
        PROPORTIONAL = "proportional"
        RESERVATIONS = "reservations"

    class Platform(models.TextChoices):
        FIXED = "fixed"
        EVEN = "even"
        PROPORTIONAL = "proportional"

    id = models.BigAutoField(primary_key=True)
    organisation = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="sharing_policies")
    effective_from = models.DateField(help_text="The first day of a month, UTC.")
    idle = models.CharField(max_length=12, choices=Idle.choices)
    platform = models.CharField(max_length=12, choices=Platform.choices, default=Platform.PROPORTIONAL)
    platform_cost = models.DecimalField(max_digits=18, decimal_places=6, default=0, help_text="Of each month.")
    platform_currency = models.CharField(max_length=3, blank=True)
    platform_weights = models.JSONField(default=dict, blank=True, help_text="By the tenant's id, if it is `fixed`.")
    made_by_id = models.UUIDField(null=True)
    made_by_name = models.CharField(max_length=254)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            finite("sharing_policy_numbers_are_finite", "platform_cost"),
            models.CheckConstraint(condition=Q(effective_from__day=1), name="policy_begins_with_a_month"),
            models.CheckConstraint(
                condition=Q(platform_cost=0, platform_currency="")
                | Q(platform_cost__gt=0, platform_currency__regex=r"^[A-Z]{3}$"),
                name="platform_cost_has_a_currency",
            ),
            models.CheckConstraint(
                condition=Q(idle__in=["central", "proportional", "reservations"])
                & Q(platform__in=["fixed", "even", "proportional"]),
                name="policy_is_known",
            ),
        ]
        indexes = [models.Index(fields=["organisation", "-effective_from", "-id"], name="policies_latest_first")]

    def __str__(self) -> str:
        return f"{self.idle} from {self.effective_from:%Y-%m}"


class PoolDay(models.Model):
    """What a pool (the nodes of a cluster that offer a flavor) cost on a day, as a month was closed with it. Append-only.

    `charged` is what the ledger's entries up to `last_entry` charged for it; `shared` the part of `idle` that tenants bear.
    A negative `idle` is one that a person accepted.
    """

    id = models.BigAutoField(primary_key=True)
    period = models.ForeignKey(LedgerPeriod, on_delete=models.PROTECT, related_name="pool_days")
    revision = models.PositiveIntegerField(help_text="The close that it is of.")
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="+")
    flavor = models.CharField(max_length=120)
    day = models.DateField()
    currency = models.CharField(max_length=3)
    cost = models.DecimalField(**MONEY)
    charged = models.DecimalField(**MONEY)
    overhead = models.DecimalField(**MONEY)
    idle = models.DecimalField(**MONEY)
    shared = models.DecimalField(**MONEY)
    assumed = models.DecimalField(**MONEY, help_text="The part of the cost that is of time without observation.")
    last_entry = models.BigIntegerField()
    last_correction = models.BigIntegerField()

    class Meta:
        constraints = [
            finite("pool_day_numbers_are_finite", "cost", "charged", "overhead", "idle", "shared", "assumed"),
            models.UniqueConstraint(
                fields=["period", "revision", "cluster", "flavor", "day", "currency"], name="one_balance_a_pool_day"
            ),
            models.CheckConstraint(
                condition=Q(cost=F("charged") + F("overhead") + F("idle")), name="pool_day_adds_up_to_its_cost"
            ),
            models.CheckConstraint(
                condition=Q(overhead__gte=0, shared__gte=0) & (Q(shared=0) | Q(shared__lte=F("idle"))),
                name="no_more_is_shared_than_is_idle",
            ),
            models.CheckConstraint(condition=Q(assumed__gte=0, assumed__lte=F("cost")), name="assumed_is_a_part"),
        ]

    def __str__(self) -> str:
        return f"{self.flavor} on {self.day}: {self.cost} {self.currency}"


class NegativeNodeHour(models.Model):
    """An hour of a node for which jobs paid more than it cost. It is set aside for people: no report changes its numbers.

    `runs` are those behind it, with what each was charged, the dearest first.
    """

    class State(models.TextChoices):
        OPEN = "open"
        ACCEPTED = "accepted"
        SUPERSEDED = "superseded"

    class Cause(models.TextChoices):
        UNKNOWN_NODE = "unknown_node"
        NODE_SEEN_LATE = "node_seen_late"
        DOUBLE_REPORT = "double_report"
        OVERLAP = "overlap"
        PRICES_DIFFER = "prices_differ"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organisation = models.ForeignKey(
        Tenant, on_delete=models.PROTECT, related_name="+", help_text="That owns the cluster."
    )
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="+")
    node = models.CharField(max_length=253)
    hour = models.DateTimeField(help_text="Its beginning, UTC.")
    currency = models.CharField(max_length=3)
    cost = models.DecimalField(**MONEY)
    charged = models.DecimalField(**MONEY)
    cause = models.CharField(max_length=14, choices=Cause.choices)
    runs = models.JSONField(default=list)
    seen_at = models.DateTimeField(db_default=Now())
    state = models.CharField(max_length=10, choices=State.choices, default=State.OPEN, db_default=State.OPEN)
    note = models.CharField(max_length=REASON_LENGTH, blank=True, default="", db_default="")
    decided_by_id = models.UUIDField(null=True)
    decided_by_name = models.CharField(max_length=254, blank=True, default="", db_default="")
    decided_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            finite("negative_node_hour_numbers_are_finite", "cost", "charged"),
            models.UniqueConstraint(
                fields=["cluster", "node", "hour", "currency", "cost", "charged"], name="one_node_hour_of_these_numbers"
            ),
            models.CheckConstraint(condition=Q(charged__gt=F("cost")), name="negative_node_hour_is_negative"),
            models.CheckConstraint(
                condition=Q(state="open", decided_at__isnull=True)
                | Q(state="superseded", decided_at__isnull=False)
                | (Q(state="accepted", decided_at__isnull=False) & ~Q(note="")),
                name="accepted_node_hour_says_why",
            ),
        ]
        indexes = [
            models.Index(fields=["organisation", "-hour", "id"], name="negative_node_hours_latest"),
            models.Index(fields=["hour"], condition=Q(state="open"), name="open_negative_node_hours"),
        ]

    def __str__(self) -> str:
        return f"{self.node} at {self.hour}"


class NegativeIdle(models.Model):
    """A pool's day for which jobs paid more than its nodes cost. Its month closes once a person accepts these numbers, or
    they no longer apply.
    """

    class State(models.TextChoices):
        OPEN = "open"
        ACCEPTED = "accepted"
        SUPERSEDED = "superseded"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    period = models.ForeignKey(LedgerPeriod, on_delete=models.PROTECT, related_name="negative_idle")
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="+")
    flavor = models.CharField(max_length=120)
    day = models.DateField()
    currency = models.CharField(max_length=3)
    cost = models.DecimalField(**MONEY)
    charged = models.DecimalField(**MONEY)
    seen_at = models.DateTimeField(db_default=Now())
    state = models.CharField(max_length=10, choices=State.choices, default=State.OPEN, db_default=State.OPEN)
    note = models.CharField(max_length=REASON_LENGTH, blank=True, default="", db_default="")
    decided_by_id = models.UUIDField(null=True)
    decided_by_name = models.CharField(max_length=254, blank=True, default="", db_default="")
    decided_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            finite("negative_idle_numbers_are_finite", "cost", "charged"),
            models.UniqueConstraint(
                fields=["period", "cluster", "flavor", "day", "currency", "cost", "charged"],
                name="one_row_of_these_numbers",
            ),
            models.CheckConstraint(condition=Q(charged__gt=F("cost")), name="negative_idle_is_negative"),
            models.CheckConstraint(
                condition=Q(state="open", decided_at__isnull=True)
                | Q(state="superseded", decided_at__isnull=False)
                | (Q(state="accepted", decided_at__isnull=False) & ~Q(note="")),
                name="accepted_idle_says_why",
            ),
        ]
        indexes = [models.Index(fields=["period", "state"], name="negative_idle_by_state")]

    def __str__(self) -> str:
        return f"{self.flavor} on {self.day}"
