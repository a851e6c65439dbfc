"""The pods of attempts, as clusters reported them: what is metered."""

from datetime import datetime

from django.contrib.postgres.constraints import ExclusionConstraint
from django.contrib.postgres.fields import ArrayField, BigIntegerRangeField, DateTimeRangeField, RangeOperators
from django.db import models
from django.db.models import Case, F, Func, Q, Value, When
from django.db.models.functions import Greatest, Now

from federation.engine.claimed import LONGEST_DEVICE, MOST_DEVICES
from federation.engine.intake.spec import MAX_INIT_STEPS

from .jobs import Attempt, RemoteObject


def _only(field: str) -> Func:
    """An integer as a range of one value, so that GiST can compare it for equality without an extension."""
    return Func(F(field), F(field), Value("[]"), function="int8range", output_field=BigIntegerRangeField())


def _held() -> Func:
    """The period in which a pod has its place: from its start until its end was seen, which may be
    long after the end.
    """
    over_at = Case(
        When(finished_at__isnull=False, then=Greatest("started_at", "finished_at", "observed_at")),
        When(is_gone=True, then=Greatest("started_at", "observed_at")),
    )
    return Func(F("started_at"), over_at, function="tstzrange", output_field=DateTimeRangeField())


GONE = "Gone"


class PodRun(models.Model):
    """A pod of an attempt as observed and counted (`engine.sightings`). Times are the cluster's on our clock, clamped
    to [released, observed]; `is_estimated` if clamping changed them. Its identity, its owner and known times never
    change (trigger).

    A closed meter remains closed. A pod that was considered ended but runs is counted from `resumed_at` by another
    meter, its `part`.
    """

    id = models.BigAutoField(primary_key=True)
    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE, related_name="pods", db_index=False)
    cluster_id = models.UUIDField(help_text="The attempt's cluster (trigger): a uid is unique only within its cluster.")
    remote_object = models.ForeignKey(
        RemoteObject, null=True, on_delete=models.CASCADE, related_name="+", db_index=False, db_constraint=False
    )
    index = models.PositiveIntegerField(default=0, help_text="The pod's index in its Job.")
    place = models.PositiveIntegerField(
        null=True, help_text="Which of the object's places it occupies, from 0 (trigger: below `pods`)."
    )
    uid = models.CharField(max_length=64)
    name = models.CharField(max_length=253)
    position = models.PositiveSmallIntegerField(default=0, help_text="The pod set's position.")
    node = models.CharField(max_length=253, blank=True)
    devices = ArrayField(
        models.CharField(max_length=LONGEST_DEVICE),
        default=list,
        db_default=[],
        blank=True,
        help_text="The devices that claims gave it, as driver/pool/name; they only become more (trigger). Empty if not known.",
    )
    phase = models.CharField(max_length=20)
    reason = models.CharField(
        max_length=300, blank=True, help_text="Why it waits or failed, with the cluster's own message."
    )
    disruption = models.CharField(
        max_length=60,
        blank=True,
        db_default="",
        help_text="The component that evicted it from its node; empty if none did.",
    )
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    exit_code = models.IntegerField(null=True)
    signal = models.PositiveSmallIntegerField(null=True, help_text="The signal that ended its program, if reported.")
    ending = models.CharField(
        max_length=60, blank=True, default="", db_default="", help_text="Why its container ended: `OOMKilled`."
    )
    message = models.CharField(
        max_length=300,
        blank=True,
        default="",
        db_default="",
        help_text="What the cluster or the program said of its end.",
    )
    init_step = models.PositiveSmallIntegerField(
        null=True, help_text="The number of the init step that failed, from 1; the end is then that of this step."
    )
    initializing_at = models.DateTimeField(
        null=True, help_text="When it was last seen to begin or leave an init step; null if it never was."
    )
    is_gone = models.BooleanField(default=False)
    first_seen_at = models.DateTimeField(db_default=Now(), help_text="When the gateway first recorded it.")
    last_seen_at = models.DateTimeField(
        null=True,
        help_text="When it was last seen, if it then disappeared from the list without a reported end; otherwise null.",
    )
    is_estimated = models.BooleanField(default=False, db_default=False)
    part = models.PositiveSmallIntegerField(
        default=0, db_default=0, help_text="The number of the meter that counts it now."
    )
    resumed_at = models.DateTimeField(null=True, help_text="The start of that meter; null: the pod's start.")
    observed_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["cluster_id", "uid"], name="one_row_per_observed_pod"),
            ExclusionConstraint(
                name="one_pod_at_a_time_has_a_place",
                expressions=[
                    (_only("remote_object_id"), RangeOperators.OVERLAPS),
                    (_only("place"), RangeOperators.OVERLAPS),
                    (_held(), RangeOperators.OVERLAPS),
                ],
                condition=Q(started_at__isnull=False, place__isnull=False),
            ),
            models.CheckConstraint(
                condition=Q(init_step__isnull=True)
                | Q(init_step__range=(1, MAX_INIT_STEPS), finished_at__isnull=False),
                name="an_init_step_that_failed_has_ended",
            ),
            models.CheckConstraint(
                condition=Q(finished_at__isnull=True)
                | Q(started_at__isnull=True)
                | Q(finished_at__gte=F("started_at")),
                name="pod_ends_after_it_starts",
            ),
            models.CheckConstraint(
                condition=Q(devices__len__lte=MOST_DEVICES), name="a_pod_has_a_bounded_number_of_devices"
            ),
        ]
        indexes = [
            models.Index(fields=["attempt", "position", "index"], name="pods_of_attempts"),
            models.Index(
                fields=["attempt"],
                condition=Q(node="", started_at=None, finished_at=None, is_gone=False),
                name="pods_without_a_node",
            ),
            models.Index(fields=["cluster_id", "node", "-id"], condition=~Q(node=""), name="pods_of_nodes"),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def end_text(self) -> str:
        """How its program, or the init step that failed, ended: `ended with exit code 1`."""
        if self.init_step is None:
            return f"ended with exit code {self.exit_code}"
        return f"init step {self.init_step} failed with exit code {self.exit_code}"

    @property
    def meter_uid(self) -> str:
        """The id of the meter that counts it now."""
        return f"{self.uid}~{self.part}" if self.part else self.uid

    @property
    def meter_uids(self) -> list[str]:
        """The ids of all meters that count or counted it."""
        return [self.uid, *(f"{self.uid}~{part}" for part in range(1, self.part + 1))]

    @property
    def shown_phase(self) -> str:
        """Its phase for people: `Gone` if it was deleted before an end of it was seen."""
        return GONE if self.is_gone and self.finished_at is None else self.phase

    @property
    def over_at(self) -> datetime | None:
        """When it ended; when it was last seen, if it was deleted before an end of it was seen; None while it exists."""
        if self.finished_at is not None or not self.is_gone:
            return self.finished_at
        return max(self.started_at or self.observed_at, self.observed_at)
