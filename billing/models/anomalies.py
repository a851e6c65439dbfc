"""Days on which a team spent unusually much on one flavor, and what people decided about them."""

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from clusters.models import Cluster
from foundation.finite import finite
from foundation.ids import new_id
from tenancy.models import Tenant

from .periods import REASON_LENGTH


class SpendAnomaly(models.Model):
    """A day's cost of a tenant and flavor, over all clusters, far above what is usual. One row for each; a routine finds it.

    Rows with a cluster are of earlier versions, which compared each cluster apart. `tenant_path` is that of the tenant when
    the day was found.

    It begins open. A person explains or dismisses it, which is final; the routine closes it if its day no longer stands
    out, for example after a correction, and opens it again if it does (trigger).
    """

    class State(models.TextChoices):
        OPEN = "open"
        EXPLAINED = "explained"
        DISMISSED = "dismissed"
        CLOSED = "closed"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organisation = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="anomalies")
    tenant_path = models.CharField(max_length=1100, db_collation="C")
    cluster = models.ForeignKey(
        Cluster, null=True, on_delete=models.PROTECT, related_name="+", help_text="Null: all clusters together."
    )
    flavor = models.CharField(max_length=120)
    currency = models.CharField(max_length=3)
    day = models.DateField()
    cost = models.DecimalField(max_digits=38, decimal_places=12)
    usual = models.DecimalField(max_digits=38, decimal_places=12, help_text="The median that it was compared with.")
    spread = models.DecimalField(max_digits=38, decimal_places=12, help_text="The median absolute deviation.")
    state = models.CharField(max_length=10, choices=State.choices, default=State.OPEN)
    reason = models.CharField(max_length=REASON_LENGTH, blank=True, default="")
    decided_by_id = models.UUIDField(null=True)
    decided_by_name = models.CharField(max_length=254, blank=True, default="")
    decided_at = models.DateTimeField(null=True)
    found_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            finite("spend_anomaly_numbers_are_finite", "cost", "usual", "spread"),
            models.UniqueConstraint(
                fields=["tenant", "day", "cluster", "flavor", "tenant_path", "currency"], name="one_anomaly_a_day"
            ),
            models.UniqueConstraint(
                fields=["tenant", "day", "flavor", "currency"],
                condition=Q(cluster__isnull=True),
                name="one_anomaly_a_day_of_all_clusters",
            ),
            models.CheckConstraint(
                condition=Q(usual__gte=0, spread__gte=0, cost__gt=F("usual")), name="anomaly_is_more_than_usual"
            ),
            models.CheckConstraint(
                condition=Q(state="open", reason="", decided_by_name="", decided_by_id=None, decided_at=None)
                | (Q(state="closed", decided_by_name="", decided_by_id=None, decided_at__isnull=False) & ~Q(reason=""))
                | (
                    Q(state__in=["explained", "dismissed"], decided_at__isnull=False)
                    & ~Q(reason="")
                    & ~Q(decided_by_name="")
                ),
                name="anomaly_says_who_and_why",
            ),
        ]
        indexes = [
            models.Index(fields=["organisation", "state", "day"], name="anomalies_by_state"),
            models.Index(fields=["found_at"], name="anomalies_by_time"),
        ]

    def __str__(self) -> str:
        return f"{self.tenant_path} {self.flavor} {self.day}"
