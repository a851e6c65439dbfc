"""Declares and removes storages of a cluster, of each kind, from its page."""

import re
from collections.abc import Callable, Mapping
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from clusters.engine.storages import CLAIM, PREFIX, Kind, Mode, is_claim, is_prefix
from clusters.operations.storages import WantedStorage, create_storage, remove_storage
from clusters.queries.storages import storage_by_id
from foundation.pages import Form, typed
from foundation.problems import FieldError, Invalid, Problem
from tenancy.models import NAME_PATTERN
from tenancy.queries import Actor
from tenancy.web import action

from .pages import Forms, show_cluster

Reader = Callable[[Mapping[str, str]], WantedStorage]
CONTROLS = {name: name for name in ("name", "claim", "tenant", "mode", "prefix")}
OF_STORE = {name: f"store_{name}" for name in ("name", "endpoint", "region", "bucket", "secret", "tenant", "prefix")}
OF_CLASS = {name: f"class_{name}" for name in ("name", "storage_class", "size", "tenant")}
OF_IMAGE = {name: f"image_{name}" for name in ("name", "image", "tenant")}


@action
def declare(request: HttpRequest, actor: Actor, cluster_id: UUID) -> HttpResponse:
    """Declares a storage of the cluster."""
    told = "Jobs of {tenant} and below can mount {name}."
    return _declare(request, actor, cluster_id, "storage", CONTROLS, _read, told=told)


@action
def declare_object_store(request: HttpRequest, actor: Actor, cluster_id: UUID) -> HttpResponse:
    """Declares a bucket from which datasets may be copied to the cluster."""
    told = "Datasets of {tenant} and below can be copied from {name}."
    return _declare(request, actor, cluster_id, "store", OF_STORE, _of_kind(Kind.OBJECT_STORE, OF_STORE), told=told)


@action
def declare_class(request: HttpRequest, actor: Actor, cluster_id: UUID) -> HttpResponse:
    """Declares a StorageClass of which pods get new volumes."""
    told = "Pods of {tenant} and below can have volumes of {name}, once the cluster's access file is applied again."
    return _declare(
        request, actor, cluster_id, "storage_class", OF_CLASS, _of_kind(Kind.STORAGE_CLASS, OF_CLASS), told=told
    )


@action
def declare_image(request: HttpRequest, actor: Actor, cluster_id: UUID) -> HttpResponse:
    """Declares an image whose files jobs can read."""
    told = "Jobs of {tenant} and below can mount {name}."
    return _declare(request, actor, cluster_id, "image", OF_IMAGE, _of_kind(Kind.IMAGE, OF_IMAGE), told=told)


def _declare(  # noqa: PLR0913 - what differs between the kinds
    request: HttpRequest,
    actor: Actor,
    cluster_id: UUID,
    form: str,
    controls: Mapping[str, str],
    read: Reader,
    *,
    told: str,
) -> HttpResponse:
    """`form` is the one of the page that shows what is wrong."""
    values = typed(request)
    try:
        made = create_storage(actor, cluster_id, read(values))
    except Problem as problem:
        refused = Form.refused(values, problem, controls)
        return show_cluster(request, actor, cluster_id, Forms(**{form: refused}), status=problem.status)
    messages.success(request, told.format(tenant=made.tenant.path, name=made.name))
    return redirect("cluster", cluster_id)


@action
def remove(request: HttpRequest, actor: Actor, cluster_id: UUID, storage_id: UUID) -> HttpResponse:
    """Removes a storage."""
    name = storage_by_id(actor, cluster_id, storage_id).name
    remove_storage(actor, cluster_id, storage_id)
    messages.success(request, f"{name} is removed. Jobs that are placed from now on cannot mount it here.")
    return redirect("cluster", cluster_id)


def _read(values: Mapping[str, str]) -> WantedStorage:
    """The storage in the form, or Invalid with every wrong field."""
    wanted = WantedStorage(
        name=values.get("name", "").strip(),
        claim=values.get("claim", "").strip(),
        tenant=values.get("tenant", "").strip(),
        mode=values.get("mode", ""),
        prefix=values.get("prefix", "").strip(),
    )
    errors = _faults_of(wanted)
    if not is_claim(wanted.claim):
        errors.append(FieldError("claim", "bad_format", CLAIM))
    if wanted.mode not in set(Mode):
        errors.append(FieldError("mode", "unknown_value", "one of the listed modes"))
    if errors:
        raise Invalid(errors=errors)
    return wanted


def _of_kind(kind: Kind, controls: Mapping[str, str]) -> Reader:
    """Reads the storage of this kind from its form, or raises Invalid; what is wrong with its place follows when it is declared."""

    def read(values: Mapping[str, str]) -> WantedStorage:
        given = {name: values.get(control, "").strip() for name, control in controls.items()}
        wanted = WantedStorage(kind=kind, **given)
        if errors := _faults_of(wanted):
            raise Invalid(errors=errors)
        return wanted

    return read


def _faults_of(wanted: WantedStorage) -> list[FieldError]:
    errors = []
    if re.match(NAME_PATTERN, wanted.name) is None:
        errors.append(FieldError("name", "bad_format", "lower-case letters, digits and '-', at most 63"))
    if not is_prefix(wanted.prefix):
        errors.append(FieldError("prefix", "bad_format", PREFIX))
    return errors
