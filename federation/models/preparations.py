"""A Job of ours that prepares a cluster and belongs to no attempt: the columns that every kind of it has."""

from django.db import models
from django.db.models import Q


class Phase(models.TextChoices):
    """How far a preparation is."""

    IDLE = "idle"
    PLANNED = "planned"
    """Its object may exist; its uid is not known."""
    CREATED = "created"
    RELEASED = "released"
    ENDING = "ending"
    """Its object has to go."""


class Preparation(models.Model):
    """What is known of the Job that is under way, and how the last one ended. It takes one of its cluster's slots from when it is
    planned until its object is gone.
    """

    phase = models.CharField(max_length=10, choices=Phase.choices, default=Phase.IDLE)
    slot = models.PositiveSmallIntegerField(null=True)
    object_id = models.UUIDField(null=True, unique=True, help_text="The name of its object comes from this id.")
    namespace = models.CharField(max_length=63, blank=True)
    uid = models.CharField(max_length=64, blank=True)
    begun_at = models.DateTimeField(null=True)
    released_at = models.DateTimeField(null=True)
    outcome = models.CharField(max_length=10, blank=True)
    message = models.CharField(max_length=300, blank=True)
    failures = models.PositiveSmallIntegerField(default=0, help_text="In a row.")
    ended_at = models.DateTimeField(null=True)

    class Meta:
        abstract = True


def constraints_of(noun: str, slots: int) -> list[models.BaseConstraint]:
    """What is true of every preparation of a kind, of which each cluster has this number of slots."""
    return [
        models.UniqueConstraint(
            fields=["cluster", "slot"], condition=Q(slot__isnull=False), name=f"a_slot_has_one_{noun}"
        ),
        models.CheckConstraint(condition=Q(slot=None) | Q(slot__gte=0, slot__lt=slots), name=f"{noun}_slot_exists"),
        models.CheckConstraint(
            condition=Q(phase="idle", slot=None, object_id=None, uid="")
            | Q(
                phase__in=["planned", "created", "released", "ending"],
                slot__isnull=False,
                object_id__isnull=False,
                begun_at__isnull=False,
            ),
            name=f"live_{noun}_has_a_slot_and_an_object",
        ),
        models.CheckConstraint(
            condition=~Q(phase__in=["created", "released"]) | ~Q(uid=""), name=f"created_{noun}_has_a_uid"
        ),
        models.CheckConstraint(
            condition=~Q(phase="released") | Q(released_at__isnull=False), name=f"released_{noun}_has_its_time"
        ),
        models.CheckConstraint(
            condition=Q(outcome="", ended_at=None) | Q(~Q(outcome=""), ended_at__isnull=False),
            name=f"ended_{noun}_has_its_time",
        ),
    ]
