"""The tenant tree, its users, their tokens and links, and responses stored for repeated requests."""

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any, ClassVar

from django.conf import settings
from django.contrib.auth.base_user import AbstractBaseUser, BaseUserManager
from django.contrib.auth.hashers import is_password_usable
from django.contrib.auth.models import PermissionsMixin
from django.db import models, transaction
from django.db.models import Q
from django.db.models.functions import Length, Lower, Now
from django.db.models.lookups import Exact
from django.utils.crypto import salted_hmac

from foundation.clock import now
from foundation.ids import new_id
from tenancy.engine.roles import Role, Scope

MAX_DEPTH = 16
NAME_PATTERN = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z"
LEAST_WEIGHT, MOST_WEIGHT = Decimal("0.01"), Decimal(1000)


class Tenant(models.Model):
    """A node of the organisation tree. `path` is the names from the root joined by slashes; a trigger maintains it."""

    class Kind(models.TextChoices):
        ORGANISATION = "organisation"
        DEPARTMENT = "department"
        TEAM = "team"
        PROJECT = "project"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    parent = models.ForeignKey("self", null=True, blank=True, on_delete=models.PROTECT, related_name="children")
    kind = models.CharField(max_length=20, choices=Kind.choices)
    name = models.CharField(max_length=63)
    path = models.CharField(max_length=1100, unique=True, editable=False)
    depth = models.PositiveSmallIntegerField(editable=False)
    labels = models.JSONField(default=dict, blank=True)
    weight = models.DecimalField(
        max_digits=6, decimal_places=2, default=1, db_default=1, help_text="Its part of its parent's share."
    )
    created_at = models.DateTimeField(db_default=Now())
    roles_held: Sequence[str] = ()
    """The roles at the tenant and above it of the actor for whom a query found it."""

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(name__regex=NAME_PATTERN), name="tenant_name_is_a_dns_label"),
            models.CheckConstraint(
                condition=Q(kind__in=["organisation", "department", "team", "project"]), name="tenant_kind_is_known"
            ),
            models.CheckConstraint(condition=Q(depth__lt=MAX_DEPTH), name="tenant_tree_is_at_most_16_deep"),
            models.CheckConstraint(
                condition=Q(parent__isnull=True, kind="organisation", depth=0)
                | (Q(parent__isnull=False, depth__gt=0) & ~Q(kind="organisation")),
                name="only_organisations_are_roots",
            ),
            models.UniqueConstraint(fields=["parent", "name"], name="tenant_name_is_unique_below_its_parent"),
            models.CheckConstraint(
                condition=Q(weight__gte=LEAST_WEIGHT, weight__lte=MOST_WEIGHT), name="tenant_weight_is_in_range"
            ),
        ]
        indexes = [models.Index(fields=["path"], name="tenant_by_path_prefix", opclasses=["varchar_pattern_ops"])]

    def __str__(self) -> str:
        return self.path

    @property
    def path_prefixes(self) -> list[str]:
        """Paths of this tenant and all its ancestors, root first."""
        names = self.path.split("/")
        return ["/".join(names[:length]) for length in range(1, len(names) + 1)]


class UserManager(BaseUserManager["User"]):
    """Creates users by email address."""

    def create_user(self, email: str, password: str | None = None, **fields: Any) -> "User":
        user = self.model(email=self.normalize_email(email).lower(), **fields)
        user.set_password(password)
        user.save(using=self._db)
        return user

    def create_superuser(self, email: str, password: str | None = None, **fields: Any) -> "User":
        return self.create_user(email, password, **{"is_staff": True, "is_superuser": True, **fields})


class User(AbstractBaseUser, PermissionsMixin):
    """A person or a service account, identified by its email address."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    email = models.EmailField(max_length=254, unique=True, help_text="Stored in lower case.")
    display_name = models.CharField(max_length=150, blank=True)
    is_active = models.BooleanField(default=True)
    is_staff = models.BooleanField(default=False, help_text="May sign in to the operators' admin.")
    session_epoch = models.PositiveIntegerField(
        default=0,
        editable=False,
        help_text="Incremented to end every session; a trigger increments it when the user is deactivated, and prevents a decrease.",
    )
    created_at = models.DateTimeField(db_default=Now())

    objects: ClassVar[UserManager] = UserManager()
    USERNAME_FIELD = "email"
    EMAIL_FIELD = "email"

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(email=Lower("email")), name="email_is_in_lower_case")]

    def __str__(self) -> str:
        return self.email

    def save(self, *args: Any, **kwargs: Any) -> None:
        """A new password ends every token and one-time link of the user, no matter who set it; sessions end by its hash.

        The first password ends no token: no earlier one could have leaked, and `bootstrap` creates both.
        """
        # A better hash of the same password is no change: Django then sets `_password` to None.
        is_new_password = self._password is not None and not self._state.adding  # type: ignore[attr-defined]
        with transaction.atomic():
            had_password = is_new_password and self._has_stored_password()
            super().save(*args, **kwargs)
            if had_password:
                ApiToken.objects.filter(user=self, revoked_at__isnull=True).update(revoked_at=now())
            if is_new_password:
                OneTimeLink.objects.filter(user=self, used_at__isnull=True, ended_at__isnull=True).update(
                    ended_at=now()
                )

    def _has_stored_password(self) -> bool:
        stored = User.objects.filter(pk=self.pk).values_list("password", flat=True)
        return any(is_password_usable(password) for password in stored)

    def get_session_auth_hash(self) -> str:
        """The hash that a session must carry to continue; it changes with the password and with the epoch."""
        return self._session_hash(None)

    def get_session_auth_fallback_hash(self) -> Iterator[str]:
        """The same under the previous keys."""
        for secret in settings.SECRET_KEY_FALLBACKS:
            yield self._session_hash(secret)

    def _session_hash(self, secret: str | bytes | None) -> str:
        value = f"{self.session_epoch}|{self.password}"
        return salted_hmac("tenancy.User.session", value, secret=secret, algorithm="sha256").hexdigest()


class Membership(models.Model):
    """A person belongs to an organisation. Only members have roles there; the end of a membership removes
    their roles.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="memberships")
    organisation = models.ForeignKey(
        Tenant, on_delete=models.CASCADE, related_name="memberships", help_text="A root of the tree (trigger)."
    )
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "organisation"], name="one_membership_per_organisation")]

    def __str__(self) -> str:
        return f"{self.user_id} in {self.organisation_id}"


class RoleBinding(models.Model):
    """A role of a user or group at a tenant; it applies to everything below.

    A user's role refers to their membership of the tenant's organisation, by a foreign key on both columns, and is
    deleted with it. A group's role counts for those of the group who are members.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="role_bindings")
    organisation = models.ForeignKey(
        Tenant,
        on_delete=models.CASCADE,
        related_name="+",
        editable=False,
        help_text="The tenant's organisation (trigger).",
    )
    user = models.ForeignKey(User, null=True, blank=True, on_delete=models.CASCADE, related_name="role_bindings")
    group = models.ForeignKey(
        "auth.Group", null=True, blank=True, on_delete=models.CASCADE, related_name="role_bindings"
    )
    role = models.CharField(max_length=20, choices=[(role.value, role.value) for role in Role])
    expires_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(user__isnull=False, group__isnull=True) | Q(user__isnull=True, group__isnull=False),
                name="role_binding_names_a_user_or_a_group",
            ),
            models.CheckConstraint(condition=Q(role__in=[role.value for role in Role]), name="role_is_known"),
            models.UniqueConstraint(fields=["tenant", "user", "role"], name="one_binding_per_user_and_role"),
            models.UniqueConstraint(fields=["tenant", "group", "role"], name="one_binding_per_group_and_role"),
        ]

    def __str__(self) -> str:
        return f"{self.role} at {self.tenant_id}"


class ApiToken(models.Model):
    """A secret that acts for a user. Only its SHA-256 digest is stored (the secret is 256 random bits)."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="tokens")
    name = models.CharField(max_length=100)
    prefix = models.CharField(max_length=16, editable=False)
    digest = models.BinaryField(max_length=32, unique=True, editable=False)
    scopes = models.JSONField(
        default=list, help_text="`read`, `write`, `admin`; empty means everything that its user may do."
    )
    created_at = models.DateTimeField(db_default=Now())
    expires_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(scopes__contained_by=[scope.value for scope in Scope]), name="token_scopes_are_known"
            ),
            models.CheckConstraint(condition=Exact(Length("digest"), 32), name="token_digest_is_sha256"),
        ]

    def __str__(self) -> str:
        return f"{self.prefix}…"


class OneTimeLink(models.Model):
    """A secret that lets one person set their own password or join an organisation, once. Only its digest is stored.

    It is live until it is used or ended (replaced, withdrawn, invalidated), or `expires_at` has passed; a trigger
    prevents it from becoming live again. `made_by` is null for the console.
    """

    class Purpose(models.TextChoices):
        FIRST_SIGN_IN = "first_sign_in"
        RESET_PASSWORD = "reset_password"  # noqa: S105 - a word, not a password
        INVITATION = "invitation"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    purpose = models.CharField(max_length=20, choices=Purpose.choices)
    prefix = models.CharField(max_length=16, editable=False)
    digest = models.BinaryField(max_length=32, unique=True, editable=False)
    made_by = models.ForeignKey(User, null=True, on_delete=models.CASCADE, related_name="+")
    user = models.ForeignKey(User, null=True, on_delete=models.CASCADE, related_name="one_time_links")
    email = models.EmailField(max_length=254, blank=True, help_text="The invited email, in lower case.")
    tenant = models.ForeignKey(Tenant, null=True, on_delete=models.CASCADE, related_name="invitations")
    role = models.CharField(max_length=20, blank=True, choices=[(role.value, role.value) for role in Role])
    role_expires_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(db_default=Now())
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(
                    purpose="invitation", user__isnull=True, tenant__isnull=False, role__in=[r.value for r in Role]
                )
                & ~Q(email="")
                | Q(purpose__in=["first_sign_in", "reset_password"], user__isnull=False, tenant__isnull=True)
                & Q(email="", role="", role_expires_at__isnull=True),
                name="one_time_link_has_what_its_purpose_needs",
            ),
            models.CheckConstraint(condition=Exact(Length("digest"), 32), name="one_time_link_digest_is_sha256"),
            models.CheckConstraint(condition=Q(email=Lower("email")), name="invited_email_is_in_lower_case"),
            models.CheckConstraint(
                condition=Q(used_at__isnull=True) | Q(ended_at__isnull=True), name="one_time_link_ends_one_way"
            ),
            models.UniqueConstraint(
                fields=["user"],
                condition=Q(used_at__isnull=True, ended_at__isnull=True),
                name="one_live_link_per_user",
            ),
            models.UniqueConstraint(
                fields=["tenant", "email", "role"],
                condition=Q(used_at__isnull=True, ended_at__isnull=True),
                name="one_live_invitation_per_email_and_role",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.prefix}…"


class IdempotencyRecord(models.Model):
    """The first response to a keyed write, stored so that a repeated request gets it again."""

    id = models.BigAutoField(primary_key=True)
    tenant = models.ForeignKey(Tenant, null=True, on_delete=models.CASCADE, related_name="+")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    route = models.CharField(max_length=60)
    key = models.CharField(max_length=200)
    body_digest = models.BinaryField(max_length=32)
    status = models.PositiveSmallIntegerField()
    answer = models.TextField(help_text="The body as JSON text, so that a repeated request gets the same bytes.")
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["user", "tenant", "route", "key"], name="one_answer_per_idempotency_key", nulls_distinct=False
            )
        ]
        indexes = [models.Index(fields=["created_at"], name="answers_by_age")]

    def __str__(self) -> str:
        return f"{self.route} {self.key}"
