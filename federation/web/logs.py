"""The logs of an attempt, read from its cluster when the page is requested; by default of the job's newest."""

from dataclasses import dataclass
from uuid import UUID

from django.http import HttpRequest, HttpResponse

from federation.queries.logs import PodLog, logs_of, read_number
from federation.queries.pages import JobView, job_view
from foundation.pages import Form, asked, show
from tenancy.queries import Actor
from tenancy.web import page

Choices = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class LogsPage:
    job: JobView
    number: int | None
    cluster: str
    pods: tuple[PodLog, ...]
    hidden: int
    containers: Choices
    """To choose from; empty if each pod has only one."""
    pod_names: Choices
    """To choose from; empty if all are shown."""
    form: Form


@page(takes=("attempt", "pod", "container"))
def logs(request: HttpRequest, actor: Actor, job_id: UUID) -> HttpResponse:
    """The end of each pod's log, the first few pods, or the one that `pod` names; of the container that `container` names."""
    number = read_number(request.GET.get("attempt", ""))
    values = asked(request)
    pod, container = values.get("pod", "")[:253], values.get("container", "")[:63]
    found = logs_of(actor, job_id, number=number, pod=pod, container=container)
    hidden = max(found.pods_in_all - len(found.pods), 0)
    job = job_view(actor, job_id)
    shown = LogsPage(
        job=job,
        number=found.number,
        cluster=found.cluster,
        pods=found.pods,
        hidden=hidden,
        containers=_choices("program, or the init step that failed", found.containers),
        pod_names=_choices("the first ones", _pods(job, found.number) if hidden or pod else ()),
        form=Form({"container": container, "pod": pod}),
    )
    return show(request, "federation/logs.html", shown)


def _pods(job: JobView, number: int | None) -> tuple[str, ...]:
    return tuple(pod.name for attempt in job.attempts if attempt.number == number for pod in attempt.pods)


def _choices(default: str, names: tuple[str, ...]) -> Choices:
    return (("", default), *((name, name) for name in names)) if names else ()
