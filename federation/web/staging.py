"""The copies of a dataset on clusters, and those on one cluster: their plans, their progress, and the forms that change them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from clusters.models import Cluster, Dataset
from clusters.operations.staging import Spot, WantedPlan, make_staging_plan, remove_staging_plan
from clusters.queries import cluster_by_id, visible_clusters
from clusters.queries.datasets import dataset_by_id
from clusters.queries.staging import plan_by_id
from federation.operations import cancel_stage_in, run_without_data, start_stage_in
from federation.queries.staging import StageInView, views_of_dataset, views_on_cluster
from foundation.pages import Form, check_parameters, show, typed
from foundation.problems import NotFound, Problem
from tenancy.engine.roles import Permission
from tenancy.queries import Actor, permissions_at
from tenancy.web import action, page

MOST_OPTIONS = 500
CONTROLS = {
    "cluster": "cluster",
    "source.storage": "source",
    "source.path": "source_path",
    "target.storage": "target",
    "target.path": "target_path",
    "sha256": "sha256",
}
Work = Callable[[Actor, UUID, UUID], object]


@dataclass(frozen=True, slots=True)
class StagingPage:
    dataset: Dataset
    views: Sequence[StageInView]
    may_change: bool
    clusters: tuple[tuple[str, str], ...]
    form: Form = field(default_factory=Form)


@dataclass(frozen=True, slots=True)
class ClusterStagingPage:
    cluster: Cluster
    views: Sequence[StageInView]


@page
def staging(request: HttpRequest, actor: Actor, dataset_id: UUID) -> HttpResponse:
    """The plans of a dataset."""
    check_parameters(request, ())
    return show(request, "federation/staging.html", _page(actor, dataset_id))


@page
def on_cluster(request: HttpRequest, actor: Actor, cluster_id: UUID) -> HttpResponse:
    """The plans on a cluster."""
    check_parameters(request, ())
    shown = ClusterStagingPage(cluster_by_id(actor, cluster_id), views_on_cluster(actor, cluster_id))
    return show(request, "federation/cluster_staging.html", shown)


@action
def declare(request: HttpRequest, actor: Actor, dataset_id: UUID) -> HttpResponse:
    """Makes a plan."""
    values = typed(request)
    said = {name: values.get(name, "").strip() for name in CONTROLS.values()}
    wanted = WantedPlan(
        said["cluster"],
        Spot(said["source"], said["source_path"]),
        Spot(said["target"], said["target_path"]),
        said["sha256"],
    )
    try:
        made = make_staging_plan(actor, dataset_id, wanted)
    except NotFound:
        raise
    except Problem as problem:
        form = Form.refused(values, problem, CONTROLS)
        return show(request, "federation/staging.html", _page(actor, dataset_id, form), status=problem.status)
    messages.success(request, f"Jobs that stage {made.dataset.name} now get it on {made.cluster.name}.")
    return redirect("staging", dataset_id)


@action
def act(request: HttpRequest, actor: Actor, dataset_id: UUID, plan_id: UUID, verb: str) -> HttpResponse:
    """Starts, stops or removes."""
    if verb not in ACTIONS:
        raise NotFound
    work, told = ACTIONS[verb]
    where = plan_by_id(actor, dataset_id, plan_id).cluster.name
    try:
        work(actor, dataset_id, plan_id)
    except NotFound:
        raise
    except Problem as problem:
        messages.error(request, problem.detail)
    else:
        messages.success(request, told.format(where))
    return redirect("staging", dataset_id)


@action
def without_data(request: HttpRequest, actor: Actor, job_id: UUID) -> HttpResponse:
    """Lets a job run without its copies, then redirects to its page."""
    try:
        run_without_data(actor, job_id)
    except NotFound:
        raise
    except Problem as problem:
        messages.error(request, problem.detail)
    else:
        messages.success(request, "The job is placed without waiting for its data.")
    return redirect("job", job_id)


ACTIONS: Mapping[str, tuple[Work, str]] = {
    "start": (start_stage_in, "The dataset is being copied to {}."),
    "stop": (cancel_stage_in, "The copy to {} is stopped. Jobs no longer wait for it."),
    "remove": (remove_staging_plan, "The plan for {} is removed. Files that were copied stay there."),
}


def _page(actor: Actor, dataset_id: UUID, form: Form | None = None) -> StagingPage:
    dataset = dataset_by_id(actor, dataset_id)
    may_change = Permission.MANAGE_TENANTS in permissions_at(actor, dataset.tenant)
    serving = visible_clusters(actor).filter(owner__path__in=dataset.tenant.path_prefixes).order_by("name")
    names = tuple((name, name) for name in serving.values_list("name", flat=True)[:MOST_OPTIONS])
    return StagingPage(dataset, views_of_dataset(actor, dataset_id), may_change, names, form or Form())
