"""Places of failed attempts that are kept for a restart of their jobs."""

from datetime import timedelta

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from clusters.models import Cluster
from federation.engine.failures.rules import MOST_KEPT_SECONDS, MOST_SECONDS_HERE

from .jobs import Attempt, Job

CLEARED_WITHIN_SECONDS = 300
"""How long a place is kept at most while the failed attempt is cleared away."""
LONGEST = timedelta(seconds=CLEARED_WITHIN_SECONDS + MOST_SECONDS_HERE + MOST_KEPT_SECONDS)
PLACE_OUTCOMES = ("placed", "withdrawn", "given_up", "unusable")


class KeptPlace(models.Model):
    """The nodes of a failed attempt, and its quota, kept for the restart of its job (`then: again_here`).

    It ends once: the job was placed (`placed`), is not to start there any more (`withdrawn`), the time has passed (`given_up`), or a
    node of it cannot be used (`unusable`). After the end of the attempt, it is kept for the back-off and the seconds of
    the rule, but never beyond `until_at` (`../sql/kept_places.sql`).
    """

    attempt = models.OneToOneField(Attempt, primary_key=True, on_delete=models.PROTECT, related_name="kept_place")
    job = models.ForeignKey(Job, on_delete=models.PROTECT, related_name="kept_places")
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="+", db_index=False)
    nodes = models.JSONField(help_text="Their names.")
    amounts = models.JSONField(
        default=dict, db_default={}, help_text="What the attempt's hold took; this quota is kept."
    )
    since_at = models.DateTimeField(db_default=Now())
    until_at = models.DateTimeField(
        help_text="It is kept no longer, however long the attempt takes to be cleared away."
    )
    ended_at = models.DateTimeField(null=True)
    outcome = models.CharField(
        max_length=10, blank=True, default="", db_default="", choices=[(one, one) for one in PLACE_OUTCOMES]
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["job"], condition=Q(ended_at__isnull=True), name="one_place_is_kept_for_a_job"
            ),
            models.CheckConstraint(
                condition=Q(ended_at__isnull=True, outcome="") | Q(ended_at__isnull=False, outcome__in=PLACE_OUTCOMES),
                name="a_kept_place_ends_with_an_outcome",
            ),
            models.CheckConstraint(
                condition=Q(until_at__gt=F("since_at"), until_at__lte=F("since_at") + LONGEST),
                name="a_place_is_kept_for_a_bounded_time",
            ),
            models.CheckConstraint(condition=Q(ended_at__gte=F("since_at")), name="a_kept_place_ends_after_it_began"),
            models.CheckConstraint(
                condition=Q(nodes__contains=[], amounts__contains={}) & ~Q(nodes=[]),
                name="a_kept_place_lists_its_nodes",
            ),
        ]

    def __str__(self) -> str:
        return f"place of {self.attempt_id}"
