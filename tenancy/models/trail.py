"""The chained audit trail, how far it was anchored elsewhere, and counts of strangers' refusals and attempts to sign
in.
"""

from django.db import models
from django.db.models import Q
from django.db.models.functions import Length
from django.db.models.lookups import Exact


class AuditEntry(models.Model):
    """Who changed what, written in the same transaction as the change. Append-only (trigger)."""

    id = models.BigAutoField(primary_key=True)
    at = models.DateTimeField()
    actor_id = models.UUIDField(null=True)
    actor_name = models.CharField(max_length=254)
    token_id = models.UUIDField(null=True)
    action = models.CharField(max_length=60)
    outcome = models.CharField(max_length=10, choices=[("done", "done"), ("refused", "refused")])
    object_kind = models.CharField(max_length=40)
    object_id = models.CharField(max_length=64, blank=True)
    tenant_id = models.UUIDField(null=True)
    detail = models.JSONField(default=dict)
    request_id = models.CharField(max_length=64, blank=True)
    source = models.GenericIPAddressField(null=True, help_text="The client's address; null for actions of the system.")

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(outcome__in=["done", "refused"]), name="audit_outcome_is_known")
        ]
        indexes = [
            models.Index(fields=["tenant_id", "-id"], name="audit_by_tenant"),
            models.Index(fields=["object_kind", "object_id"], name="audit_by_object"),
        ]

    def __str__(self) -> str:
        return f"{self.at:%Y-%m-%d %H:%M:%S} {self.actor_name} {self.action} {self.object_kind} {self.object_id}"


class AuditLink(models.Model):
    """One link of the hash chain, added by a deferred trigger at commit: hash = SHA-256(previous hash + the entry)."""

    position = models.BigIntegerField(primary_key=True)
    entry = models.OneToOneField(AuditEntry, on_delete=models.PROTECT, related_name="link", db_constraint=False)
    hash = models.BinaryField(max_length=32)

    def __str__(self) -> str:
        return f"link {self.position}"


class AuditWatch(models.Model):
    """How far the audit trail was verified and its head recorded elsewhere. One row; a bookmark, never a proof.

    `position`, `hash`: the newest link that was verified and reported. `filed_position`: the newest in the anchor file.
    `swept_position`: where the repeated verification of old links continues. `fault`: the error that the last run
    found.
    """

    id = models.SmallIntegerField(primary_key=True, default=1, editable=False)
    position = models.BigIntegerField(default=0)
    hash = models.BinaryField(max_length=32, default=bytes(32))
    filed_position = models.BigIntegerField(default=0)
    swept_position = models.BigIntegerField(default=0)
    checked_at = models.DateTimeField(null=True)
    fault = models.TextField(default="", blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(id=1), name="one_watch_over_the_audit_trail"),
            models.CheckConstraint(condition=Exact(Length("hash"), 32), name="watched_hash_is_sha256"),
            models.CheckConstraint(
                condition=Q(position__gte=0, filed_position__gte=0, swept_position__gte=0),
                name="watch_positions_count_up",
            ),
        ]

    def __str__(self) -> str:
        return f"watched to {self.position}"


class RefusalCount(models.Model):
    """Refusals of strangers in one minute, of one kind and from one source, after the first, which has its own entry.

    Sources beyond the first hundred of a minute share the row without a source. After the minute has ended, the row
    becomes one entry of the audit trail.
    """

    id = models.BigAutoField(primary_key=True)
    minute_at = models.DateTimeField()
    action = models.CharField(max_length=60)
    source = models.GenericIPAddressField(null=True)
    count = models.PositiveIntegerField()
    last_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["minute_at", "action", "source"], name="one_count_per_minute_and_source", nulls_distinct=False
            )
        ]

    def __str__(self) -> str:
        return f"{self.action} from {self.source} at {self.minute_at:%H:%M}: {self.count}"


class SignInTry(models.Model):
    """Attempts to sign in taken from one budget until it is full again. The key contains no email, only a digest."""

    key = models.CharField(primary_key=True, max_length=160)
    tries = models.PositiveIntegerField()
    until = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["until"], name="sign_in_tries_by_end")]

    def __str__(self) -> str:
        return f"{self.key}: {self.tries}"
