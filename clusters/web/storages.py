"""Declares and removes storages of a cluster, of each kind, from its page."""

import re
from collections.abc import Mapping
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

CONTROLS = {name: name for name in ("name", "claim", "tenant", "mode", "prefix")}
OF_STORE = {name: f"store_{name}" for name in ("name", "endpoint", "region", "bucket", "secret", "tenant", "prefix")}
OF_CLASS = {name: f"class_{name}" for name in ("name", "storage_class", "size", "tenant")}
OF_IMAGE = {name: f"image_{name}" for name in ("name", "image", "tenant")}


@action
def declare(request: HttpRequest, actor: Actor, cluster_id: UUID) -> HttpResponse:
    """Declares a storage of the cluster."""
    values = typed(request)
    try:
        made = create_storage(actor, cluster_id, _read(values))
    except Problem as problem:
        form = Form.refused(values, problem, CONTROLS)
        return show_cluster(request, actor, cluster_id, Forms(storage=form), status=problem.status)
    messages.success(request, f"Jobs of {made.tenant.path} and below can mount {made.name}.")
    return redirect("cluster", cluster_id)


@action
def declare_object_store(request: HttpRequest, actor: Actor, cluster_id: UUID) -> HttpResponse:
    """Declares a bucket from which datasets may be copied to the cluster."""
    values = typed(request)
    try:
        made = create_storage(actor, cluster_id, _read_kind(Kind.OBJECT_STORE, OF_STORE, values))
    except Problem as problem:
        form = Form.refused(values, problem, OF_STORE)
        return show_cluster(request, actor, cluster_id, Forms(store=form), status=problem.status)
    messages.success(request, f"Datasets of {made.tenant.path} and below can be copied from {made.name}.")
    return redirect("cluster", cluster_id)


@action
def declare_class(request: HttpRequest, actor: Actor, cluster_id: UUID) -> HttpResponse:
    """Declares a StorageClass of which pods get new volumes."""
    values = typed(request)
    try:
        made = create_storage(actor, cluster_id, _read_kind(Kind.STORAGE_CLASS, OF_CLASS, values))
    except Problem as problem:
        form = Form.refused(values, problem, OF_CLASS)
        return show_cluster(request, actor, cluster_id, Forms(storage_class=form), status=problem.status)
    told = f"Pods of {made.tenant.path} and below can have volumes of {made.name}, once the cluster's access file is applied again."
    messages.success(request, told)
    return redirect("cluster", cluster_id)


@action
def declare_image(request: HttpRequest, actor: Actor, cluster_id: UUID) -> HttpResponse:
    """Declares an image whose files jobs can read."""
    values = typed(request)
    try:
        made = create_storage(actor, cluster_id, _read_kind(Kind.IMAGE, OF_IMAGE, values))
    except Problem as problem:
        form = Form.refused(values, problem, OF_IMAGE)
        return show_cluster(request, actor, cluster_id, Forms(image=form), status=problem.status)
    messages.success(request, f"Jobs of {made.tenant.path} and below can mount {made.name}.")
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


def _read_kind(kind: Kind, controls: Mapping[str, str], values: Mapping[str, str]) -> WantedStorage:
    """The storage of this kind in the form, or Invalid; what is wrong with its place follows when it is declared."""
    given = {name: values.get(control, "").strip() for name, control in controls.items()}
    wanted = WantedStorage(kind=kind, **given)
    if errors := _faults_of(wanted):
        raise Invalid(errors=errors)
    return wanted


def _faults_of(wanted: WantedStorage) -> list[FieldError]:
    errors = []
    if re.match(NAME_PATTERN, wanted.name) is None:
        errors.append(FieldError("name", "bad_format", "lower-case letters, digits and '-', at most 63"))
    if not is_prefix(wanted.prefix):
        errors.append(FieldError("prefix", "bad_format", PREFIX))
    return errors
