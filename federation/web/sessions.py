"""Opening the session of a job."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from federation.operations.sessions import issue_ticket
from federation.queries.pages import job_view
from foundation.pages import show
from foundation.problems import Conflict, RateLimited
from tenancy.queries import Actor
from tenancy.web import action


@dataclass(frozen=True, slots=True)
class SessionPage:
    job_id: UUID
    name: str
    tenant: str
    url: str
    expires_at: datetime


@action
def open_session(request: HttpRequest, actor: Actor, job_id: UUID) -> HttpResponse:
    """A page with a link that opens the session, once. Browsers follow no redirect of a form to another origin."""
    line = job_view(actor, job_id).line
    try:
        ticket = issue_ticket(actor, job_id)
    except (Conflict, RateLimited) as problem:
        messages.error(request, problem.detail)
        return redirect("job", job_id)
    return show(
        request, "federation/session.html", SessionPage(line.id, line.name, line.tenant, ticket.url, ticket.expires_at)
    )
