"""Hooks that alerts of a tenant go to, and what was delivered to each."""

from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.functions import RandomUUID
from django.db import models
from django.db.models import Q
from django.db.models.functions import Length, Now
from django.db.models.lookups import Exact

from billing.engine.hooks import CONFIRMATION, FORMS, KINDS, MAIL, TEST
from foundation.ids import new_id
from tenancy.models import Tenant

NAME_LENGTH = 80
ERROR_LENGTH = 200
ADDRESS_LENGTH = 254
DIGEST_BYTES = 32


class AlertHook(models.Model):
    """A server that alerts of the tenant, and of all tenants below it, are posted to, or an address that they are mailed to.

    The whole URL of a server is sealed with the signing secret, for the path of a chat's URL is a password; `server` is the rest. An
    address has the secret of its newest link sealed, and gets no alert until that link confirms it. Alerts
    that arose before `since` are not delivered. One session at a time posts to a hook, until `busy_until`.
    """

    class Pause(models.TextChoices):
        USER = "user"
        GONE = "gone"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="alert_hooks")
    name = models.CharField(max_length=NAME_LENGTH)
    server = models.CharField(max_length=300, blank=True, help_text="Scheme, host and port; empty for mail.")
    address = models.CharField(max_length=ADDRESS_LENGTH, blank=True, db_default="", default="", help_text="For mail.")
    confirmed_at = models.DateTimeField(null=True)
    key_id = models.CharField(max_length=40)
    sealed = models.BinaryField()
    kinds = ArrayField(models.CharField(max_length=20), help_text="Sorted, distinct.")
    form = models.CharField(max_length=10, choices=[(one, one) for one in FORMS])
    created_by_id = models.UUIDField(null=True)
    created_by_name = models.CharField(max_length=254)
    created_at = models.DateTimeField(db_default=Now())
    paused_at = models.DateTimeField(null=True)
    pause = models.CharField(max_length=4, choices=Pause.choices, blank=True, default="")
    since = models.DateTimeField(db_default=Now())
    busy_until = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "name"], name="alert_hook_name_is_unique_in_its_tenant"),
            models.CheckConstraint(
                condition=~Q(name="") & ~Q(key_id="") & ~Q(created_by_name=""), name="alert_hook_is_named"
            ),
            models.CheckConstraint(
                condition=Q(form=MAIL, server="") & ~Q(address="")
                | ~Q(form=MAIL) & ~Q(server="") & Q(address="", confirmed_at__isnull=True),
                name="alert_hook_has_a_server_or_an_address",
            ),
            models.CheckConstraint(
                condition=Q(kinds__contained_by=list(KINDS), kinds__len__gt=0), name="alert_hook_has_known_kinds"
            ),
            models.CheckConstraint(condition=Q(form__in=FORMS), name="alert_hook_has_a_known_form"),
            models.CheckConstraint(
                condition=Q(paused_at__isnull=True, pause="") | Q(paused_at__isnull=False, pause__in=["user", "gone"]),
                name="alert_hook_says_why_it_is_paused",
            ),
        ]

    def __str__(self) -> str:
        return self.name


class AlertDelivery(models.Model):
    """One alert for one hook. `uid` is the same at each attempt, so that the receiver recognises repetitions.

    `subject` is the row that the alert is of, `facts` what its body is made from. While pending, it is posted from `next_at` on; with each attempt
    that begins, `attempts` grows and `next_at` moves beyond its end, so an attempt that was interrupted is repeated. A
    result counts only if no later attempt has begun.
    """

    class State(models.TextChoices):
        PENDING = "pending"
        DELIVERED = "delivered"
        GIVEN_UP = "given_up"

    id = models.BigAutoField(primary_key=True)
    uid = models.UUIDField(db_default=RandomUUID(), unique=True, editable=False)
    hook = models.ForeignKey(AlertHook, on_delete=models.CASCADE, related_name="deliveries", db_index=False)
    kind = models.CharField(max_length=20)
    subject = models.CharField(max_length=36)
    tenant_path = models.CharField(max_length=1100, db_collation="C")
    facts = models.JSONField()
    state = models.CharField(max_length=10, choices=State.choices, db_default=State.PENDING, default=State.PENDING)
    attempts = models.PositiveIntegerField(db_default=0, default=0)
    last_status = models.PositiveSmallIntegerField(null=True, help_text="Null: no answer.")
    last_error = models.CharField(max_length=ERROR_LENGTH, blank=True, db_default="", default="")
    next_at = models.DateTimeField(db_default=Now())
    tried_since = models.DateTimeField(db_default=Now(), help_text="It is given up a day later.")
    created_at = models.DateTimeField(db_default=Now())
    ended_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["hook", "kind", "subject"], name="an_alert_is_delivered_once_per_hook"),
            models.CheckConstraint(
                condition=Q(kind__in=[*KINDS, TEST, CONFIRMATION]), name="alert_delivery_has_a_known_kind"
            ),
            models.CheckConstraint(
                condition=Q(state="pending", ended_at__isnull=True)
                | Q(state__in=["delivered", "given_up"], ended_at__isnull=False, attempts__gte=1),
                name="alert_delivery_ends_with_a_time",
            ),
            models.CheckConstraint(
                condition=~Q(state="delivered")
                | Q(last_error="", last_status__isnull=False, last_status__gte=200, last_status__lte=299),
                name="delivered_means_accepted",
            ),
        ]
        indexes = [
            models.Index(fields=["hook", "next_at", "id"], condition=Q(state="pending"), name="due_alert_deliveries"),
            models.Index(fields=["ended_at"], condition=Q(ended_at__isnull=False), name="ended_alert_deliveries"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.subject}: {self.state}"


class AddressConfirmation(models.Model):
    """A link by which an address confirms, once, that alerts are mailed to it. Only the digest of its secret is here.

    It is live until it is used or ended (replaced by a newer one), or `expires_at` has passed. Rows outlive their hooks, since a
    mail to an address counts against what an organisation may send, whatever became of the hook.
    """

    id = models.BigAutoField(primary_key=True)
    hook = models.ForeignKey(AlertHook, null=True, on_delete=models.SET_NULL, related_name="confirmations")
    organisation_id = models.UUIDField()
    address = models.CharField(max_length=ADDRESS_LENGTH)
    digest = models.BinaryField(max_length=DIGEST_BYTES, unique=True, editable=False)
    created_at = models.DateTimeField(db_default=Now())
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Exact(Length("digest"), DIGEST_BYTES), name="address_confirmation_digest_is_sha256"
            ),
            models.CheckConstraint(
                condition=Q(used_at__isnull=True) | Q(ended_at__isnull=True), name="address_confirmation_ends_one_way"
            ),
            models.UniqueConstraint(
                fields=["hook"],
                condition=Q(used_at__isnull=True, ended_at__isnull=True),
                name="one_live_confirmation_per_hook",
            ),
        ]
        indexes = [models.Index(fields=["organisation_id", "created_at"], name="confirmations_of_a_day")]

    def __str__(self) -> str:
        return f"{self.address}: {self.created_at}"
