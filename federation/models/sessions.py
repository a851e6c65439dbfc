"""The use of sessions, and the tickets that open them."""

from datetime import timedelta

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from federation.engine.sessions import ACCESS_SECONDS, TICKET_SECONDS
from foundation.ids import new_id
from tenancy.models import ApiToken, User

from .jobs import Attempt


class SessionUse(models.Model):
    """When a session was last used, by the database's clock. It moves only forward (`../sql/sessions.sql`)."""

    attempt = models.OneToOneField(Attempt, primary_key=True, on_delete=models.CASCADE, related_name="session_use")
    last_used_at = models.DateTimeField(
        db_default=Now(),
        help_text="Of the last request, to the minute; or when it was first known to run, or its cluster last silent.",
    )
    stopped_at = models.DateTimeField(null=True, help_text="When the gateway stopped it because it was not used.")

    def __str__(self) -> str:
        return f"use of {self.attempt_id}"


class SessionTicket(models.Model):
    """Opens the session of one attempt for one user, once. Its secret was shown to the user; only its digest is stored.

    Used, it becomes the access of one browser, by another secret. Both are worth nothing once the user may no longer open the
    session, has signed out everywhere or changed the password (`epoch`), or the token that made the ticket was revoked.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE, related_name="session_tickets")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+", db_index=False)
    token = models.ForeignKey(ApiToken, null=True, on_delete=models.CASCADE, related_name="+", db_index=False)
    digest = models.BinaryField(unique=True, help_text="SHA-256 of the secret.")
    epoch = models.CharField(max_length=64, help_text="The hash that the user's sessions carried then.")
    created_at = models.DateTimeField(db_default=Now())
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True)
    access_digest = models.BinaryField(
        null=True, unique=True, help_text="SHA-256 of the secret in the browser's cookie."
    )
    access_until = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(expires_at__gt=F("created_at"))
                & Q(expires_at__lte=F("created_at") + timedelta(seconds=TICKET_SECONDS)),
                name="a_ticket_is_short",
            ),
            models.CheckConstraint(
                condition=Q(used_at=None, access_digest=None, access_until=None)
                | Q(
                    used_at__isnull=False,  # a comparison with null would not be false
                    access_until__isnull=False,
                    used_at__gte=F("created_at"),
                    used_at__lt=F("expires_at"),
                    access_digest__isnull=False,
                    access_until__gt=F("used_at"),
                    access_until__lte=F("used_at") + timedelta(seconds=ACCESS_SECONDS),
                ),
                name="a_ticket_is_used_in_time",
            ),
        ]

    def __str__(self) -> str:
        return f"ticket of {self.user_id} for {self.attempt_id}"
