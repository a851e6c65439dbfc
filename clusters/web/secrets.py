"""The secrets that a tenant's jobs can name: stored, replaced and deleted on its page, and never shown."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.debug import sensitive_post_parameters

from clusters.engine.secrets import (
    ACCESS_KEY,
    LONGEST_USERNAME,
    REGISTRY,
    BadValue,
    Kind,
    access_key,
    is_access_key,
    is_registry,
    pull_config,
    value_of,
)
from clusters.operations.secrets import NewValue, delete_secret, put_secret
from clusters.queries.secrets import SecretLine, secret_lines
from foundation.pages import Form, show, typed
from foundation.problems import FieldError, Invalid, Problem
from tenancy.engine.roles import Permission
from tenancy.models import NAME_PATTERN, Tenant
from tenancy.queries import Actor, permissions_at, tenant_by_id
from tenancy.web import action, page

HIDDEN = ("value", "password", "key_id", "key_secret")
CONTROLS = {name: name for name in ("name", "value", "server", "username", "password", "key_id", "key_secret")}
KINDS = (
    (Kind.VALUE.value, "a value, for a variable or a file"),
    (Kind.REGISTRY.value, "the access to a registry"),
    (Kind.ACCESS_KEY.value, "the access key of an object store"),
)


@dataclass(frozen=True, slots=True)
class SecretsPage:
    tenant: Tenant
    secrets: tuple[SecretLine, ...]
    may_manage: bool
    form: Form
    kinds: tuple[tuple[str, str], ...] = KINDS


@sensitive_post_parameters(*HIDDEN)
@page
def secrets(request: HttpRequest, actor: Actor, tenant_id: UUID) -> HttpResponse:
    """The names of the secrets. Users who manage the tenant store one, or its next version, here."""
    if request.method != "POST":
        return _show(request, actor, tenant_id, Form())
    values = typed(request) | {name: request.POST.get(name, "") for name in HIDDEN}
    try:
        name, new = _read(values)
        secret = put_secret(actor, tenant_id, name, new)
    except Problem as problem:
        shown = {name: value for name, value in values.items() if name not in HIDDEN}
        return _show(request, actor, tenant_id, Form.refused(shown, problem, CONTROLS), status=problem.status)
    done = "is stored" if secret.version == 1 else f"is replaced by version {secret.version}"
    messages.success(request, f"{secret.name} {done}. Jobs that are placed from now on use it.")
    return redirect("secrets", tenant_id)


@action
def delete(request: HttpRequest, actor: Actor, tenant_id: UUID, name: str) -> HttpResponse:
    """Deletes a secret of the tenant."""
    delete_secret(actor, tenant_id, name)
    messages.success(request, f"{name} is deleted. Jobs that name it wait, and running jobs keep it.")
    return redirect("secrets", tenant_id)


def _show(request: HttpRequest, actor: Actor, tenant_id: UUID, form: Form, *, status: int = 200) -> HttpResponse:
    tenant = tenant_by_id(actor, tenant_id)
    may_manage = Permission.MANAGE_TENANTS in permissions_at(actor, tenant)
    shown = SecretsPage(tenant, secret_lines(actor, tenant), may_manage, form)
    return show(request, "clusters/secrets.html", shown, status=status)


def _read(values: Mapping[str, str]) -> tuple[str, NewValue]:
    """The secret in the form, or Invalid with every wrong field."""
    errors: list[FieldError] = []
    name = values.get("name", "").strip()
    if re.match(NAME_PATTERN, name) is None:
        errors.append(FieldError("name", "bad_format", "lower-case letters, digits and '-', at most 63"))
    if values.get("kind") == Kind.REGISTRY:
        new = _registry_access(values, errors)
    elif values.get("kind") == Kind.ACCESS_KEY:
        new = _access_key(values, errors)
    else:
        # Browsers send the lines of a text with CR LF, which a key or a script does not bear.
        new = NewValue(Kind.VALUE, _value(values.get("value", "").replace("\r\n", "\n"), "value", errors))
    if errors:
        raise Invalid(errors=errors)
    return name, new


def _registry_access(values: Mapping[str, str], errors: list[FieldError]) -> NewValue:
    server, username = (values.get(name, "").strip() for name in ("server", "username"))
    if not is_registry(server):
        errors.append(FieldError("server", "bad_format", REGISTRY))
    if not 1 <= len(username) <= LONGEST_USERNAME:
        errors.append(FieldError("username", "out_of_range", f"1 to {LONGEST_USERNAME} characters"))
    password = _value(values.get("password", ""), "password", errors).decode()
    return NewValue(Kind.REGISTRY, pull_config(server, username, password), server)


def _access_key(values: Mapping[str, str], errors: list[FieldError]) -> NewValue:
    parts = {name: values.get(name, "") for name in ("key_id", "key_secret")}
    errors += [FieldError(name, "bad_format", ACCESS_KEY) for name, text in parts.items() if not is_access_key(text)]
    return NewValue(Kind.ACCESS_KEY, access_key(parts["key_id"], parts["key_secret"]))


def _value(text: str, field: str, errors: list[FieldError]) -> bytes:
    try:
        return value_of(text)
    except BadValue as error:
        errors.append(FieldError(field, error.code, str(error)))
        return b""
