"""Room that is kept for jobs which have waited too long."""

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from clusters.models import Cluster
from foundation.ids import new_id

from .jobs import Job

GIVEN_UP = "given_up"
OUTCOMES = ("placed", "withdrawn", GIVEN_UP, "released")


class KeptRoom(models.Model):
    """Nodes of a cluster that a cycle keeps for a waiting job, from cycle to cycle until it ends once.

    It ends when the job was placed (`placed`) or does not wait any more (`withdrawn`), when `until_at` has passed (`given_up`:
    then nothing is kept for the job until `again_at`), or when a cycle keeps nothing for it (`released`). While it lasts,
    only its place and the expected start change (`sql/kept_room.sql`).
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    job = models.ForeignKey(Job, on_delete=models.PROTECT, related_name="kept_room")
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="+", db_index=False)
    nodes = models.JSONField(help_text="Their names.")
    expected_at = models.DateTimeField(null=True, help_text="When the job is expected to start there.")
    since_at = models.DateTimeField(db_default=Now())
    until_at = models.DateTimeField()
    again_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    outcome = models.CharField(max_length=10, blank=True, default="", choices=[(one, one) for one in OUTCOMES])

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["job"], condition=Q(ended_at__isnull=True), name="one_room_is_kept_for_a_job"
            ),
            models.CheckConstraint(
                condition=Q(ended_at__isnull=True, outcome="") | Q(ended_at__isnull=False, outcome__in=OUTCOMES),
                name="kept_room_ends_with_an_outcome",
            ),
            models.CheckConstraint(
                condition=Q(until_at__gt=F("since_at"), again_at__gt=F("until_at")),
                name="kept_room_is_given_up_in_time",
            ),
            models.CheckConstraint(condition=Q(ended_at__gte=F("since_at")), name="kept_room_ends_after_it_began"),
            models.CheckConstraint(condition=Q(nodes__contains=[]), name="kept_room_lists_its_nodes"),
        ]
        indexes = [
            models.Index(fields=["again_at"], condition=Q(outcome=GIVEN_UP), name="kept_rooms_that_rest"),
        ]

    def __str__(self) -> str:
        return f"room for {self.job_id}"
