"""Sets and removes the Prometheus of a cluster, from its page."""

from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.debug import sensitive_post_parameters

from clusters.operations.telemetry import WantedPrometheus, remove_prometheus, set_prometheus
from foundation.pages import Form, typed
from foundation.problems import Problem
from tenancy.queries import Actor
from tenancy.web import action

from .pages import Forms, show_cluster

CONTROLS = {"url": "prometheus_url", "token": "prometheus_token"}


@sensitive_post_parameters("prometheus_token")
@action
def put(request: HttpRequest, actor: Actor, cluster_id: UUID) -> HttpResponse:
    """Sets the Prometheus of the cluster."""
    values = typed(request)
    url = values.get("prometheus_url", "").strip()
    try:
        set_prometheus(actor, cluster_id, WantedPrometheus(url, values.get("prometheus_token", "").strip() or None))
    except Problem as problem:
        form = Form.refused({"prometheus_url": url}, problem, CONTROLS)
        return show_cluster(request, actor, cluster_id, Forms(prometheus=form), status=problem.status)
    messages.success(request, "The gateway reads the utilisation of GPUs there, each hour after it has ended.")
    return redirect("cluster", cluster_id)


@action
def remove(request: HttpRequest, actor: Actor, cluster_id: UUID) -> HttpResponse:
    """Removes the Prometheus of the cluster."""
    remove_prometheus(actor, cluster_id)
    messages.success(request, "The Prometheus is removed, with its token.")
    return redirect("cluster", cluster_id)
