"""The list of jobs, one job, and cancelling, suspending and resuming it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from billing.queries import CostView, costs_of
from clusters.queries import visible_clusters
from federation.engine.lifecycle import JobState
from federation.models import TERMINAL_JOB_STATES, Job
from federation.operations.cancellation import request_cancellation
from federation.operations.suspension import request_resumption, request_suspension
from federation.queries.consolidations import ConsolidationView, newest_plans
from federation.queries.gpu_models import short_names
from federation.queries.made_moves import MoveView, newest_moves
from federation.queries.nodes import managed_clusters
from federation.queries.pages import JOB_LIST_FILTERS, JobList, JobView, job_list, job_view
from federation.queries.pending_stops import WAIT, PendingStop, shown_stop
from foundation.pages import Form, asked, show, typed
from foundation.problems import Conflict, Invalid
from tenancy.queries import Actor, path_suggestions
from tenancy.web import action, page

Options = Sequence[tuple[str, str]]
LIVE = ",".join(state.value for state in JobState if state not in TERMINAL_JOB_STATES)
"""All states in which a job has not ended, in the filter's format."""
STATES: Options = (
    ("", "any"),
    (LIVE, "not ended"),
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
    plans: tuple[ConsolidationView, ...]
    """The plans in which it moved, or others moved for it."""
    moves: tuple[MoveView, ...]
    """Those to cheaper places, and for its deadline."""
    short_models: Options
    """GPU models that the request names in short, each with those that it means."""
    pending_stop: PendingStop | None
    """The stop that waits for its next checkpoint."""
    may_wait: bool
    """Whether a stop of it can wait for a checkpoint."""
    managed: frozenset[UUID]
    """The clusters of its attempts that the viewer manages, and whose nodes' histories are open to them."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The message after a change: `done` if the job has the state already, else `under_way`."""

    state: JobState
    done: str
    under_way: str


WAITS = "The job runs on until it reports its next checkpoint, or until the time that you allowed has ended."
STOPPING = "The job is being stopped on its cluster."
CANCELLED = Outcome(JobState.CANCELLED, "The job is cancelled.", STOPPING)
SUSPENDED = Outcome(JobState.SUSPENDED, "The job is suspended.", STOPPING)
RESUMED = Outcome(JobState.QUEUED, "The job waits for a placement.", "The job continues when its attempt has stopped.")


@page(takes=(*JOB_LIST_FILTERS, "cursor"))
def jobs(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Jobs of every tenant the viewer may see, newest first, filtered by what the query string says."""
    found = job_list(actor, asked(request))
    shown = JobsPage(
        list=found,
        form=Form(values=found.filters),
        states=_state_options(found.filters["state"]),
        tenants=path_suggestions(actor),
        clusters=cluster_options(actor),
        is_filtered=any(found.filters.values()),
        is_later=bool(request.GET.get("cursor")),
    )
    return show(request, "federation/jobs.html", shown, live="federation/jobs_live.html")


@page
def job(request: HttpRequest, actor: Actor, job_id: UUID) -> HttpResponse:
    """One job: its state in words, why it waits, its attempts, pods, events and cost so far."""
    view = job_view(actor, job_id)
    stop, may_wait = shown_stop(job_id)
    shown = JobPage(
        job=view,
        cost=costs_of([job_id]).get(job_id),
        plans=newest_plans(actor, job_id),
        moves=newest_moves(actor, job_id),
        short_models=short_names(actor, (name for one in view.pod_sets for name in one.gpu_models)),
        pending_stop=stop,
        may_wait=may_wait,
        managed=managed_clusters(actor, {attempt.cluster_id for attempt in view.attempts if attempt.failure}),
    )
    return show(request, "federation/job.html", shown, live="federation/job_poll.html")


@action
def cancel(request: HttpRequest, actor: Actor, job_id: UUID) -> HttpResponse:
    """Cancels the job, then redirects to its page."""
    return _change(request, actor, job_id, request_cancellation, CANCELLED)


@action
def suspend(request: HttpRequest, actor: Actor, job_id: UUID) -> HttpResponse:
    """Suspends the job, then redirects to its page."""
    body = {WAIT: wait_of(typed(request))}
    return _change(request, actor, job_id, lambda who, which: request_suspension(who, which, body), SUSPENDED)


@action
def resume(request: HttpRequest, actor: Actor, job_id: UUID) -> HttpResponse:
    """Resumes the job, then redirects to its page."""
    return _change(request, actor, job_id, request_resumption, RESUMED)


def wait_of(given: Mapping[str, str]) -> int | str:
    """The wait for a checkpoint in the form; what is no number is refused by the request."""
    text = given.get("wait", "").strip() or "0"
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else text  # noqa: PLR2004


def _change(
    request: HttpRequest, actor: Actor, job_id: UUID, ask: Callable[[Actor, UUID], Job], outcome: Outcome
) -> HttpResponse:
    job_view(actor, job_id)
    try:
        changed = ask(actor, job_id)
    except Conflict as conflict:
        messages.error(request, conflict.detail)
    except Invalid as invalid:
        messages.error(request, " ".join(error.detail for error in invalid.errors))
    else:
        messages.success(request, _outcome(changed, outcome))
    return redirect("job", job_id)


def _outcome(changed: Job, outcome: Outcome) -> str:
    if changed.state == outcome.state:
        return outcome.done
    stop, _ = shown_stop(changed.id)
    if stop is not None:
        return WAITS
    has_resumed = outcome is RESUMED and changed.suspend_requested_at is None and changed.stop_wish is not None
    return "The job goes on." if has_resumed else outcome.under_way


def _state_options(chosen: str) -> Options:
    """The states to choose from, plus other values in the address, such as two states."""
    return STATES if chosen in dict(STATES) else (*STATES, (chosen, chosen.replace(",", ", ")))


def cluster_options(actor: Actor) -> Options:
    """Names of the clusters the actor may see."""
    return tuple(
        (name, "") for name in visible_clusters(actor).order_by("name").values_list("name", flat=True)[:MOST_OPTIONS]
    )
