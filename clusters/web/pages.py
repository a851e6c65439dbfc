"""The fleet, one cluster, and the actions on it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.debug import sensitive_post_parameters

from clusters.models import Cluster, Network
from clusters.operations import (
    Changes,
    clear_avoided_node,
    cordon_cluster,
    drain_cluster,
    probe_cluster,
    uncordon_cluster,
    update_cluster,
)
from clusters.operations.probing import ProbeRefused
from clusters.queries.networks import visible_networks
from clusters.queries.pages import ClusterView, Fleet, cluster_view, fleet_view
from clusters.queries.storages import StorageLine, storage_lines
from clusters.queries.telemetry import PrometheusShown, shown_prometheus
from clusters.queries.visible import cluster_by_id
from clusters.queries.windows import WindowLine, window_lines
from foundation.pages import Form, asked, show, typed
from foundation.problems import Conflict, Invalid, NotFound
from tenancy.queries import Actor
from tenancy.web import action, page

ACTIONS: Mapping[str, tuple[Callable[[Actor, UUID], Cluster], str]] = {
    "cordon": (cordon_cluster, "{} takes no new jobs. Running jobs continue."),
    "uncordon": (uncordon_cluster, "{} takes new jobs again."),
    "drain": (drain_cluster, "{} takes no new jobs. Jobs that have not started there move elsewhere."),
    "probe": (probe_cluster, "{} was probed: {}."),
}

MODES = (("read_only", "read only"), ("read_write", "read and write"))


@dataclass(frozen=True, slots=True)
class FleetPage:
    fleet: Fleet


@dataclass(frozen=True, slots=True)
class Forms:
    """The forms on the page of a cluster: of each kind of storage, of a network, of its credential, of its Prometheus, of a
    maintenance window.
    """

    storage: Form = field(default_factory=Form)
    store: Form = field(default_factory=Form)
    storage_class: Form = field(default_factory=Form)
    image: Form = field(default_factory=Form)
    network: Form = field(default_factory=Form)
    credential: Form = field(default_factory=Form)
    prometheus: Form = field(default_factory=Form)
    plan: Form = field(default_factory=Form)


NOTHING_TYPED = Forms()


@dataclass(frozen=True, slots=True)
class ClusterPage:
    cluster: ClusterView
    is_later: bool
    storages: tuple[StorageLine, ...]
    form: Form
    """The storage that the viewer declares."""
    store: Form
    """The object store that the viewer declares."""
    storage_class: Form
    """The StorageClass that the viewer declares as a storage."""
    image: Form
    """The image that the viewer declares as a storage."""
    networks: tuple[Network, ...]
    network: Form
    """The network that the viewer declares."""
    credential: Form
    """The credential that the viewer replaces; it never shows what was typed."""
    telemetry: PrometheusShown | None
    """The Prometheus of the cluster, for a viewer who manages it."""
    prometheus: Form
    """The Prometheus that the viewer sets; its token is never shown."""
    windows: tuple[WindowLine, ...]
    plan: Form
    """The maintenance window that the viewer plans."""
    modes: Sequence[tuple[str, str]] = MODES


@page
def fleet(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Every cluster with its state, its reasons, and its free capacity by flavor."""
    return show(request, "clusters/fleet.html", FleetPage(fleet_view(actor)), live="clusters/fleet_live.html")


@page(takes=("cursor",))
def cluster(request: HttpRequest, actor: Actor, cluster_id: UUID) -> HttpResponse:
    """One cluster with its flavors, nodes, maintenance, storages, networks and events."""
    return show_cluster(request, actor, cluster_id)


def show_cluster(
    request: HttpRequest,
    actor: Actor,
    cluster_id: UUID,
    forms: Forms = NOTHING_TYPED,
    *,
    status: int = 200,
) -> HttpResponse:
    """The page of a cluster, with its forms as they were sent."""
    view = cluster_view(actor, cluster_by_id(actor, cluster_id), asked(request))
    shown = ClusterPage(
        cluster=view,
        is_later=bool(request.GET.get("cursor")),
        storages=storage_lines(actor, cluster_id),
        windows=window_lines(cluster_id),
        form=forms.storage,
        store=forms.store,
        storage_class=forms.storage_class,
        image=forms.image,
        networks=tuple(visible_networks(actor, cluster_id).order_by("name")),
        network=forms.network,
        credential=forms.credential,
        telemetry=shown_prometheus(cluster_id) if view.may_manage else None,
        prometheus=forms.prometheus,
        plan=forms.plan,
    )
    return show(request, "clusters/cluster.html", shown, status=status)


@action
def clear(request: HttpRequest, actor: Actor, cluster_id: UUID, avoided_id: UUID) -> HttpResponse:
    """Makes jobs use a node again, then redirects to its cluster's page."""
    found = clear_avoided_node(actor, cluster_id, avoided_id)
    messages.success(request, f"Jobs use {found.node} again.")
    return redirect("cluster", cluster_id)


@sensitive_post_parameters("kubeconfig")
@action
def replace_credential(request: HttpRequest, actor: Actor, cluster_id: UUID) -> HttpResponse:
    """Replaces the credential by the one in a kubeconfig of the same server, which is probed first."""
    text = typed(request).get("kubeconfig", "")
    try:
        if not text.strip():
            raise Invalid.field("kubeconfig", "required", "paste the kubeconfig's text")
        changed = update_cluster(actor, cluster_id, Changes(kubeconfig=text))
    except (Invalid, ProbeRefused) as problem:
        refused = Form.refused({}, problem, {"kubeconfig": "kubeconfig"})
        return show_cluster(request, actor, cluster_id, Forms(credential=refused), status=problem.status)
    messages.success(request, f"The gateway uses the new credential of {changed.name}.")
    return redirect("cluster", cluster_id)


@action
def act(request: HttpRequest, actor: Actor, cluster_id: UUID, verb: str) -> HttpResponse:
    """Cordons, uncordons, drains or probes the cluster, then redirects to its page."""
    if verb not in ACTIONS:
        raise NotFound
    operation, message = ACTIONS[verb]
    try:
        changed = operation(actor, cluster_id)
    except Conflict as conflict:
        messages.error(request, conflict.detail)
    else:
        messages.success(request, message.format(changed.name, changed.state.replace("_", " ")))
    return redirect("cluster", cluster_id)
