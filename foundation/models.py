"""Rows that coordinate processes: leases with fencing tokens, the outbox, the schedule's ticks."""

from django.db import models
from django.db.models.functions import Now

from .finite import finite


class Lease(models.Model):
    """The right to do one named thing until `expires_at`. `token` increases with every new holder and fences stale
    ones.
    """

    name = models.CharField(max_length=200, primary_key=True)
    holder = models.CharField(max_length=200)
    token = models.BigIntegerField()
    expires_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.name} held by {self.holder}"


class OutboxMessage(models.Model):
    """A wake-up written in the same transaction as the change it announces. Losing one costs latency, never work."""

    id = models.BigAutoField(primary_key=True)
    topic = models.CharField(max_length=60)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        indexes = [models.Index(fields=["topic", "id"], name="outbox_by_topic")]

    def __str__(self) -> str:
        return f"{self.topic} #{self.id}"


class Routine(models.Model):
    """One row per periodic operation, which makes silence visible (see `routines`).

    `rung_at`: when a run was last requested. `sent_at`: when a message for it was last sent. `started_at`: when the
    last successful run began. `finished_at`, `seconds`, `error`: the last run, successful or not. `beat_at`: when a
    worker that takes turns at it last reported its presence.
    """

    name = models.CharField(max_length=60, primary_key=True)
    rung_at = models.DateTimeField(null=True)
    sent_at = models.DateTimeField(null=True)
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    beat_at = models.DateTimeField(null=True)
    seconds = models.FloatField(default=0.0, db_default=0.0)
    error = models.CharField(max_length=500, default="", db_default="", blank=True)

    class Meta:
        constraints = [finite("routine_numbers_are_finite", "seconds")]

    def __str__(self) -> str:
        return self.name
