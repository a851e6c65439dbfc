"""Declares and removes network attachments of a cluster, from its page."""

import re
from collections.abc import Mapping
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from clusters.operations.networks import WantedNetwork, create_network, remove_network
from clusters.queries.networks import network_by_id
from foundation.pages import Form, typed
from foundation.problems import FieldError, Invalid, Problem
from tenancy.models import NAME_PATTERN
from tenancy.queries import Actor
from tenancy.web import action

from .pages import Forms, show_cluster

CONTROLS = {
    "name": "network_name",
    "definition": "network_definition",
    "namespace": "network_namespace",
    "tenant": "network_tenant",
}


@action
def declare(request: HttpRequest, actor: Actor, cluster_id: UUID) -> HttpResponse:
    """Declares a network attachment of the cluster."""
    values = typed(request)
    try:
        made = create_network(actor, cluster_id, _read(values))
    except Problem as problem:
        form = Form.refused(values, problem, CONTROLS)
        return show_cluster(request, actor, cluster_id, Forms(network=form), status=problem.status)
    messages.success(request, f"Jobs of {made.tenant.path} and below can use the network {made.name}.")
    return redirect("cluster", cluster_id)


@action
def remove(request: HttpRequest, actor: Actor, cluster_id: UUID, network_id: UUID) -> HttpResponse:
    """Removes a network attachment."""
    name = network_by_id(actor, cluster_id, network_id).name
    remove_network(actor, cluster_id, network_id)
    messages.success(request, f"{name} is removed. Jobs that are placed from now on cannot use it here.")
    return redirect("cluster", cluster_id)


def _read(values: Mapping[str, str]) -> WantedNetwork:
    """The network in the form, or Invalid with every wrong field."""
    wanted = WantedNetwork(**{name: values.get(control, "").strip() for name, control in CONTROLS.items()})
    labels = {"name": wanted.name, "definition": wanted.definition}
    if wanted.namespace:
        labels["namespace"] = wanted.namespace
    errors = [
        FieldError(name, "bad_format", "lower-case letters, digits and '-', at most 63")
        for name, text in labels.items()
        if re.match(NAME_PATTERN, text) is None
    ]
    if errors:
        raise Invalid(errors=errors)
    return wanted
