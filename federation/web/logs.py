"""The logs of an attempt, read from its cluster when the page is requested; by default of the job's newest."""

from dataclasses import dataclass
from uuid import UUID

from django.http import HttpRequest, HttpResponse

from federation.queries.logs import PodLog, logs_of, read_number
from federation.queries.pages import JobView, job_view
from foundation.pages import show
from tenancy.queries import Actor
from tenancy.web import page


@dataclass(frozen=True, slots=True)
class LogsPage:
    job: JobView
    number: int | None
    cluster: str
    pods: tuple[PodLog, ...]
    hidden: int
    containers: tuple[str, ...]
    container: str
    """The one that is shown; empty for the program of each pod, or its init step that failed."""


@page(takes=("attempt", "pod", "container"))
def logs(request: HttpRequest, actor: Actor, job_id: UUID) -> HttpResponse:
    """The end of each pod's log, the first few pods, or the one that `pod` names; of the container that `container` names."""
    number = read_number(request.GET.get("attempt", ""))
    container = request.GET.get("container", "")[:63]
    found = logs_of(actor, job_id, number=number, pod=request.GET.get("pod", "")[:253], container=container)
    hidden = max(found.pods_in_all - len(found.pods), 0)
    shown = LogsPage(
        job_view(actor, job_id), found.number, found.cluster, found.pods, hidden, found.containers, container
    )
    return show(request, "federation/logs.html", shown)
