"""A Job of ours that prepares a cluster and belongs to no attempt: the columns that every kind of it has."""

from django.db import models


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
