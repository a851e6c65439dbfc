"""Secrets of a tenant over HTTP: names and versions can be read, values can only be written."""

import re
from typing import Any
from uuid import UUID

from django.core.validators import RegexValidator
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from clusters.engine.secrets import (
    ACCESS_KEY,
    LONGEST_USERNAME,
    REGISTRY,
    REGISTRY_PATTERN,
    BadValue,
    Kind,
    access_key,
    is_access_key,
    pull_config,
    value_of,
)
from clusters.models import TenantSecret
from clusters.operations.secrets import NewValue, delete_secret, put_secret
from clusters.queries.secrets import secrets_of
from foundation.plain_json import instant
from foundation.problems import Invalid
from foundation.schema import page_shape
from foundation.shapes import Instant, StrictShape, Text
from tenancy.api.views import ApiView
from tenancy.models import NAME_PATTERN

KINDS = [each.value for each in Kind]
ORDERS = {"name": "name", "-name": "-name"}


class Hidden(serializers.CharField):
    """A text that is never shown again: any characters but NUL. No refusal repeats it."""

    def __init__(self, **options: Any) -> None:
        super().__init__(trim_whitespace=False, write_only=True, **options)

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        if not data:
            self.fail("blank")
        try:
            value_of(data)
        except BadValue as error:
            raise serializers.ValidationError(str(error), error.code) from None
        return data


class RegistryAccess(StrictShape):
    """By what name and password images are pulled from a registry."""

    server = Text(max_length=253, validators=[RegexValidator(REGISTRY_PATTERN, REGISTRY)])
    username = Text(max_length=LONGEST_USERNAME)
    password = Hidden()


class HiddenKey(Hidden):
    """A part of an access key: printable ASCII."""

    def to_internal_value(self, data: Any) -> str:
        found = super().to_internal_value(data)
        if not is_access_key(found):
            raise serializers.ValidationError(ACCESS_KEY, "bad_format")
        return found


class AccessKey(StrictShape):
    """By what key data is read from an object store."""

    id = HiddenKey()
    secret = HiddenKey()


class SecretPut(StrictShape):
    """The new content: a `value`, the access to a `registry`, or an `access_key`."""

    value = Hidden(required=False, help_text="A text, for a variable or a file.")
    registry = RegistryAccess(required=False, write_only=True)
    access_key = AccessKey(required=False, write_only=True)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Exactly one of them."""
        if len(attrs) != 1:
            raise serializers.ValidationError("give either a value, a registry or an access_key", "conflict")
        return attrs


class SecretShown(serializers.Serializer[Any]):
    """A secret without its value."""

    name = serializers.CharField()
    tenant = serializers.CharField(help_text="Where it is stored: the tenant, or one above it.")
    kind = serializers.ChoiceField(choices=KINDS)
    registry = serializers.CharField(allow_null=True)
    version = serializers.IntegerField(help_text="Grows with each new value.")
    created_at = Instant()
    changed_at = Instant()


class SecretsView(ApiView):
    """`/tenants/{id}/secrets`."""

    paged = True

    @extend_schema(operation_id="secrets_list", responses=page_shape(SecretShown))
    def get(self, request: Request, tenant_id: UUID) -> Response:
        """Lists the secrets that the tenant's jobs can name: its own, and those of the tenants above. Without values."""
        return self.page(secrets_of(self.actor, tenant_id), orders=ORDERS, render=show_secret)


class SecretView(ApiView):
    """`/tenants/{id}/secrets/{name}`."""

    @extend_schema(operation_id="secrets_put", request=SecretPut, responses={200: SecretShown, 201: SecretShown})
    def put(self, request: Request, tenant_id: UUID, name: str) -> Response:
        """Stores a secret of the tenant, or its next version. Repeating it is harmless, but makes a version."""
        body = self.read(SecretPut)
        if re.match(NAME_PATTERN, name) is None:
            raise Invalid.field("name", "bad_format", "lower-case letters, digits and '-', at most 63")
        secret = put_secret(self.actor, tenant_id, name, _new_value(body))
        made = status.HTTP_201_CREATED if secret.version == 1 else status.HTTP_200_OK
        return Response(show_secret(secret), status=made)

    @extend_schema(operation_id="secrets_delete", responses={204: OpenApiResponse(description="Deleted.")})
    def delete(self, request: Request, tenant_id: UUID, name: str) -> Response:
        """Deletes a secret of the tenant. Jobs that name it wait; running ones keep it until they end."""
        delete_secret(self.actor, tenant_id, name)
        return Response(status=status.HTTP_204_NO_CONTENT)


def _new_value(body: dict[str, Any]) -> NewValue:
    if key := body.get("access_key"):
        return NewValue(Kind.ACCESS_KEY, access_key(key["id"], key["secret"]))
    access = body.get("registry")
    if access is None:
        return NewValue(Kind.VALUE, body["value"].encode())
    config = pull_config(access["server"], access["username"], access["password"])
    return NewValue(Kind.REGISTRY, config, access["server"])


def show_secret(secret: TenantSecret) -> dict[str, Any]:
    """A secret as the API shows it."""
    return {
        "name": secret.name,
        "tenant": secret.tenant.path,
        "kind": secret.kind,
        "registry": secret.registry or None,
        "version": secret.version,
        "created_at": instant(secret.created_at),
        "changed_at": instant(secret.changed_at),
    }
