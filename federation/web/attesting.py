"""The live runs of a cluster, and attestations for clusters that cannot be asked."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from clusters.models import Cluster
from clusters.queries import cluster_by_id, require_at_owner
from federation.models import Attempt
from federation.operations.attestation import DESTROYED, attest_cluster, attest_run
from federation.queries.attested import LiveRun, live_runs
from foundation.pages import show, typed
from foundation.problems import NotFound, Problem
from tenancy.queries import Actor
from tenancy.web import action, page


@dataclass(frozen=True, slots=True)
class RunsPage:
    cluster: Cluster
    runs: Sequence[LiveRun]


@page
def runs(request: HttpRequest, actor: Actor, cluster_id: UUID) -> HttpResponse:
    """The runs of a cluster that have not ended, for those who manage it."""
    cluster = cluster_by_id(actor, cluster_id)
    require_at_owner(actor, cluster)
    return show(request, "federation/runs.html", RunsPage(cluster, live_runs(cluster_id)))


@action
def attest(request: HttpRequest, actor: Actor, cluster_id: UUID, what: str) -> HttpResponse:
    """Attests the cluster, then redirects to its runs."""
    done = "{} runs are lost." if what == DESTROYED else "The next comparison ends the missing runs."
    body = {"what": what, "note": typed(request).get("note", "")}
    _try(request, lambda: done.format(attest_cluster(actor, cluster_id, body)))
    return redirect("cluster-runs", cluster_id)


@action
def attest_one(request: HttpRequest, actor: Actor, attempt_id: UUID) -> HttpResponse:
    """Attests one run, then redirects to the runs of its cluster."""
    attempt = Attempt.objects.filter(id=attempt_id).first()
    if attempt is None:
        raise NotFound
    cluster_by_id(actor, attempt.cluster_id)
    body = {"note": typed(request).get("note", "")}
    _try(request, lambda: f"The run is {attest_run(actor, attempt_id, body).state}; its job may run again.")
    return redirect("cluster-runs", attempt.cluster_id)


def _try(request: HttpRequest, work: Callable[[], str]) -> None:
    try:
        messages.success(request, work())
    except NotFound:
        raise
    except Problem as problem:
        messages.error(request, "; ".join(error.detail for error in problem.errors) or problem.detail)
