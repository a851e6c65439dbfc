"""Request and response bodies of tenants, roles, tokens and the audit trail."""

from typing import Any

from rest_framework import serializers
from rest_framework.exceptions import ValidationError

from foundation.shapes import Instant, Labels, StrictShape, Text
from tenancy.engine.roles import Role, Scope
from tenancy.models import NAME_PATTERN, ApiToken, AuditEntry, OneTimeLink, RoleBinding, Tenant

MAX_PATH_LENGTH = 1100
ROLES = [role.value for role in Role]
SCOPES = [scope.value for scope in Scope]


class TenantName(serializers.RegexField):
    """A DNS label."""

    def __init__(self, **options: Any) -> None:
        super().__init__(NAME_PATTERN, max_length=63, trim_whitespace=False, **options)
        self.error_messages["invalid"] = "lower-case letters, digits and inner hyphens, at most 63"


class NewTenantShape(StrictShape):
    name = TenantName()
    kind = serializers.ChoiceField(choices=Tenant.Kind.choices)
    parent = Text(  # type: ignore[assignment]  # the stubs know DRF\'s own `parent`
        max_length=MAX_PATH_LENGTH, allow_null=True, default=None, help_text="Path or id; null for an organisation."
    )
    labels = Labels(default=dict)


class TenantChangeShape(StrictShape):
    name = TenantName(required=False)
    parent = Text(max_length=MAX_PATH_LENGTH, required=False, help_text="Path or id of the tenant to move below.")  # type: ignore[assignment]  # the stubs know DRF\'s own `parent`
    labels = Labels(required=False, help_text="Replaces all labels.")


class TenantShape(serializers.ModelSerializer[Tenant]):
    parent = serializers.SerializerMethodField(help_text="Path; null for an organisation.")  # type: ignore[assignment]  # the stubs know DRF\'s own `parent`
    labels = Labels()
    created_at = Instant()

    class Meta:
        model = Tenant
        fields = ["id", "path", "name", "kind", "parent", "parent_id", "depth", "labels", "created_at"]

    def get_parent(self, tenant: Tenant) -> str | None:
        """The path of the parent."""
        return tenant.path.rpartition("/")[0] or None


class NewBindingShape(StrictShape):
    """`user` or `group`, never both."""

    user = Text(max_length=254, required=False, help_text="Email or id.")
    group = Text(max_length=150, required=False, help_text="Name.")
    role = serializers.ChoiceField(choices=ROLES)
    expires_at = Instant(allow_null=True, default=None)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if ("user" in attrs) == ("group" in attrs):
            raise ValidationError({"user": ValidationError("name a user or a group", "user_or_group").detail})
        return attrs


class BindingChangeShape(StrictShape):
    role = serializers.ChoiceField(choices=ROLES, required=False)
    expires_at = Instant(allow_null=True, required=False, help_text="null: no end.")


class BindingShape(serializers.ModelSerializer[RoleBinding]):
    tenant = serializers.CharField(source="tenant.path")
    user = serializers.CharField(source="user.email", default=None, allow_null=True)
    group = serializers.CharField(source="group.name", default=None, allow_null=True)
    role = serializers.ChoiceField(choices=ROLES)
    expires_at = Instant(allow_null=True)
    created_at = Instant()

    class Meta:
        model = RoleBinding
        fields = ["id", "tenant", "user", "group", "role", "expires_at", "created_at"]


class NewTokenShape(StrictShape):
    name = Text(max_length=100)
    scopes = serializers.ListField(
        child=serializers.ChoiceField(choices=SCOPES),
        max_length=3,
        default=list,
        help_text="Empty: all permissions of its user.",
    )
    expires_at = Instant(allow_null=True, default=None)


class TokenShape(serializers.ModelSerializer[ApiToken]):
    scopes = serializers.ListField(child=serializers.ChoiceField(choices=SCOPES))
    created_at = Instant()
    expires_at = Instant(allow_null=True)
    last_used_at = Instant(allow_null=True)
    revoked_at = Instant(allow_null=True)

    class Meta:
        model = ApiToken
        fields = ["id", "name", "prefix", "scopes", "created_at", "expires_at", "last_used_at", "revoked_at"]


class CreatedTokenShape(TokenShape):
    secret = serializers.CharField(
        allow_null=True, help_text="Shown only in this answer and not stored; null when the request is a repetition."
    )

    class Meta(TokenShape.Meta):
        fields = [*TokenShape.Meta.fields, "secret"]


class MeUserShape(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    email = serializers.EmailField()
    display_name = serializers.CharField()
    is_operator = serializers.BooleanField(help_text="Can use the operators' admin and create organisations.")


class MeRoleShape(serializers.Serializer[Any]):
    tenant = serializers.CharField(help_text="Path; the role applies there and below.")
    tenant_id = serializers.UUIDField()
    role = serializers.ChoiceField(choices=ROLES)
    group = serializers.CharField(
        allow_null=True, help_text="The group that has the role; null if the user has it directly."
    )
    expires_at = Instant(allow_null=True)


class MeTokenShape(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    name = serializers.CharField()
    prefix = serializers.CharField()
    scopes = serializers.ListField(child=serializers.ChoiceField(choices=SCOPES))
    expires_at = Instant(allow_null=True)


class MeShape(serializers.Serializer[Any]):
    user = MeUserShape()
    roles = MeRoleShape(many=True)
    token = MeTokenShape(allow_null=True, help_text="Null in a web session.")


class AuditActorShape(serializers.Serializer[AuditEntry]):
    id = serializers.UUIDField(source="actor_id", allow_null=True)
    name = serializers.CharField(source="actor_name")
    token_id = serializers.UUIDField(allow_null=True)


class AuditObjectShape(serializers.Serializer[AuditEntry]):
    kind = serializers.CharField(source="object_kind")
    id = serializers.CharField(source="object_id")


class AuditEntryShape(serializers.ModelSerializer[AuditEntry]):
    at = Instant()
    actor = AuditActorShape(source="*")
    object = AuditObjectShape(source="*")
    tenant_id = serializers.UUIDField(allow_null=True)
    detail = serializers.DictField()
    position = serializers.IntegerField(source="link.position", help_text="Place in the hash chain.")
    source = serializers.IPAddressField(  # type: ignore[assignment]  # the stubs know DRF's own `source`
        allow_null=True, help_text="The client's address; null for actions of the system."
    )

    class Meta:
        model = AuditEntry
        fields = [
            "id",
            "at",
            "actor",
            "action",
            "outcome",
            "object",
            "tenant_id",
            "detail",
            "request_id",
            "source",
            "position",
        ]


class PersonShape(serializers.Serializer[Any]):
    id = serializers.UUIDField(source="person.id")
    email = serializers.EmailField(source="person.email")
    display_name = serializers.CharField(source="person.display_name")
    is_active = serializers.BooleanField(source="person.is_active")
    organisations = serializers.ListField(
        child=serializers.CharField(),
        help_text="Paths of the organisations they belong to, as far as you can see them.",
    )


class NoFieldsShape(StrictShape):
    """An empty object."""


class LinkShape(serializers.ModelSerializer[OneTimeLink]):
    created_at = Instant()
    expires_at = Instant()

    class Meta:
        model = OneTimeLink
        fields = ["id", "purpose", "prefix", "created_at", "expires_at"]


class CreatedLinkShape(LinkShape):
    link = serializers.CharField(
        allow_null=True, help_text="Shown only in this answer and not stored; null when the request is a repetition."
    )

    class Meta(LinkShape.Meta):
        fields = [*LinkShape.Meta.fields, "link"]


class NewInvitationShape(StrictShape):
    email = Text(max_length=254)
    role = serializers.ChoiceField(choices=ROLES)
    expires_at = Instant(
        allow_null=True, default=None, help_text="When the role ends; the link itself works for 7 days."
    )


class InvitationShape(serializers.ModelSerializer[OneTimeLink]):
    tenant = serializers.CharField(source="tenant.path")
    role = serializers.ChoiceField(choices=ROLES)
    role_expires_at = Instant(allow_null=True)
    created_at = Instant()
    expires_at = Instant(help_text="When the link expires.")

    class Meta:
        model = OneTimeLink
        fields = ["id", "tenant", "email", "role", "role_expires_at", "prefix", "created_at", "expires_at"]


class CreatedInvitationShape(InvitationShape):
    link = serializers.CharField(
        allow_null=True, help_text="Shown only in this answer and not stored; null when the request is a repetition."
    )

    class Meta(InvitationShape.Meta):
        fields = [*InvitationShape.Meta.fields, "link"]


class Flag(serializers.BooleanField):
    """A JSON true or false: not "yes", not 1."""

    def to_internal_value(self, data: Any) -> bool:
        if not isinstance(data, bool):
            self.fail("invalid", input=data)
        return data


class EndSessionsShape(StrictShape):
    tokens = Flag(default=False, help_text="Also revoke all their API tokens.")


class EndedShape(serializers.Serializer[Any]):
    tokens_revoked = serializers.IntegerField()
