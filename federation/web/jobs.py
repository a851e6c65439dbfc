"""The list of jobs, one job, its logs, and cancelling it."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from billing.queries import CostView, costs_of
from clusters.queries import visible_clusters
from federation.engine.lifecycle import JobState
from federation.operations.cancellation import request_cancellation
from federation.queries.pages import JobList, JobView, job_list, job_view
from foundation.pages import Form, asked, show
from foundation.problems import Conflict
from tenancy.queries import Actor, visible_tenants
from tenancy.web import action, page

Options = Sequence[tuple[str, str]]
STATES: Options = (
    ("", "any"),
    ("live", "not ended"),
    *((state.value, state.value) for state in JobState),
)
MOST_OPTIONS = 500


@dataclass(frozen=True, slots=True)
class JobsPage:
    list: JobList
    form: Form
    states: Options
    tenants: Options
    clusters: Options
    is_filtered: bool
    is_later: bool


@dataclass(frozen=True, slots=True)
class JobPage:
    job: JobView
    cost: CostView | None


@page
def jobs(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Jobs of every tenant the viewer may see, newest first, filtered by what the query string says."""
    found = job_list(actor, asked(request))
    shown = JobsPage(
        list=found,
        form=Form(values=found.filters),
        states=STATES,
        tenants=tenant_options(actor),
        clusters=cluster_options(actor),
        is_filtered=any(found.filters.values()),
        is_later=bool(request.GET.get("cursor")),
    )
    return show(request, "federation/jobs.html", shown, live="federation/jobs_live.html")


@page
def job(request: HttpRequest, actor: Actor, job_id: UUID) -> HttpResponse:
    """One job: its state in words, why it waits, its attempts, pods, events and cost so far."""
    view = job_view(actor, job_id)
    return show(
        request, "federation/job.html", JobPage(view, costs_of([job_id]).get(job_id)), live="federation/job_poll.html"
    )


@action
def cancel(request: HttpRequest, actor: Actor, job_id: UUID) -> HttpResponse:
    """Cancels the job, then back to its page."""
    job_view(actor, job_id)
    try:
        cancelled = request_cancellation(actor, job_id)
    except Conflict as conflict:
        messages.error(request, conflict.detail)
    else:
        done = cancelled.state == JobState.CANCELLED
        messages.success(request, "The job is cancelled." if done else "The job is being stopped on its cluster.")
    return redirect("job", job_id)


def tenant_options(actor: Actor) -> Options:
    """Paths of the tenants the actor may see."""
    return tuple(
        (path, "") for path in visible_tenants(actor).order_by("path").values_list("path", flat=True)[:MOST_OPTIONS]
    )


def cluster_options(actor: Actor) -> Options:
    """Names of the clusters the actor may see."""
    return tuple(
        (name, "") for name in visible_clusters(actor).order_by("name").values_list("name", flat=True)[:MOST_OPTIONS]
    )
