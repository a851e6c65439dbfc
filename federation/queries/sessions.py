"""Who may open a session, and the answer of its program."""

import hashlib
from collections.abc import Collection, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.crypto import constant_time_compare

import clusters.queries
from clusters.drivers import ClusterDriver, NotAnswered, PortAnswer, PortRequest, PortStream
from clusters.drivers.connections import run
from clusters.drivers.exchanges import ANSWER_SECONDS
from federation.engine.lifecycle import AttemptState, JobState
from federation.engine.sessions import SessionOrigin
from federation.models import Attempt, Job, PodRun, SessionTicket, SessionUse
from placement.values.quantities import duration_text
from tenancy.engine.roles import Permission
from tenancy.queries import Actor, actor_for, permissions_at

PATIENCE_SECONDS = ANSWER_SECONDS + 5


@dataclass(frozen=True, slots=True)
class Access:
    """An opened session: what a browser with its cookie reaches."""

    ticket_id: UUID
    actor: Actor
    job_id: UUID
    tenant_id: UUID
    attempt_id: UUID
    cluster_id: UUID
    namespace: str
    port: int


def session_origin() -> SessionOrigin | None:
    """The origins of this installation's sessions; None if it has no sessions."""
    origin: SessionOrigin | None = settings.SESSION_ORIGIN
    return origin


def digest_of(secret: str) -> bytes:
    """The digest by which a ticket or an access is stored."""
    return hashlib.sha256(secret.encode()).digest()


def permission_to_open(job: Job, actor: Actor) -> Permission:
    """What the actor needs at the job's tenant to open its session: anyone who opens it acts as the program, and sees its data."""
    return Permission.SUBMIT if job.created_by_id == actor.user_id else Permission.OPEN_SESSIONS


def open_attempt(job: Job) -> Attempt | None:
    """The attempt whose session can be opened now: it runs, and is not being stopped."""
    if session_origin() is None or job.spec.get("session") is None or job.state != JobState.RUNNING:
        return None
    return Attempt.objects.filter(job=job, state=AttemptState.RUNNING, stop_requested_at=None).first()


def may_be_opened(job: Job, actor: Actor, held: Collection[Permission]) -> bool:
    """Whether the actor, with these permissions at its tenant, may open the job's session now."""
    return "session" in job.spec and permission_to_open(job, actor) in held and open_attempt(job) is not None


def session_wish(spec: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What the page of a job says of its session, if it is one."""
    if (session := spec.get("session")) is None:
        return []
    idle = duration_text(session["idle_seconds"])
    return [("session", f"on port {session['port']}, stopped after {idle} without a request")]


def access_of(attempt_id: UUID, secret: str) -> Access | None:
    """The access with this secret, if all that it was given for is still true; None if not."""
    return _access(attempt_id=attempt_id, access_digest=digest_of(secret))


def access_by(ticket_id: UUID) -> Access | None:
    """Likewise the access that a ticket became."""
    return _access(id=ticket_id)


def _access(**which: Any) -> Access | None:
    in_force = Q(token=None) | Q(token__revoked_at=None) & (Q(token__expires_at=None) | Q(token__expires_at__gt=Now()))
    ticket = (
        SessionTicket.objects.select_related("attempt__job__tenant", "user", "token")
        .filter(in_force, access_until__gt=Now(), **which)
        .filter(attempt__state=AttemptState.RUNNING, attempt__stop_requested_at=None, user__is_active=True)
        .first()
    )
    if ticket is None or not constant_time_compare(ticket.epoch, ticket.user.get_session_auth_hash()):
        return None
    attempt, job = ticket.attempt, ticket.attempt.job
    actor = actor_for(ticket.user, ticket.token)
    if job.spec.get("session") is None or permission_to_open(job, actor) not in permissions_at(actor, job.tenant):
        return None
    port = int(job.spec["session"]["port"])
    return Access(ticket.id, actor, job.id, job.tenant_id, attempt.id, attempt.cluster_id, attempt.namespace, port)


def why_closed(attempt_id: UUID, secret: str) -> str:
    """Why a browser's access to a session is no longer one, for the people who had it."""
    ticket = (
        SessionTicket.objects.select_related("attempt")
        .filter(attempt_id=attempt_id, access_digest=digest_of(secret))
        .annotate(is_late=Q(access_until__lte=Now()))
        .first()
    )
    if ticket is None:
        return "This session is not open in this browser. Open it on the page of its job in Switchyard."
    attempt = ticket.attempt
    if attempt.finished_at is not None:
        return "This run has ended. The page of its job in Switchyard shows how."
    if attempt.stop_requested_at is not None:
        return "This run is being stopped. The page of its job in Switchyard shows why."
    if attempt.state == AttemptState.UNKNOWN:
        return "The cluster of this session does not answer. What runs there goes on. Try again once it answers."
    if ticket.is_late:
        return "A session stays open in a browser for an hour. Open it again on the page of its job in Switchyard."
    return (
        "You may no longer open this session, or have signed out. Open it again on the page of its job in Switchyard."
    )


def ask(access: Access, request: PortRequest) -> PortAnswer:
    """The program's answer. Raises DriverError; call it outside transactions."""
    driver, pod = _program(access)
    return run(driver.ask_pod(access.namespace, pod, access.port, request), timeout_seconds=PATIENCE_SECONDS)


def port_of(access: Access) -> AbstractAsyncContextManager[PortStream]:
    """A connection to the program, which begins with the block. Raises DriverError."""
    driver, pod = _program(access)
    return driver.open_port(access.namespace, pod, access.port)


def _program(access: Access) -> tuple[ClusterDriver, str]:
    """Where the program runs now: its cluster's driver, and its pod."""
    pods = PodRun.objects.filter(attempt_id=access.attempt_id, phase="Running", is_gone=False, finished_at=None)
    pod = pods.order_by("-id").values_list("name", flat=True).first()
    if pod is None:
        raise NotAnswered("the session has no running pod", status=502)
    return clusters.queries.driver_of(access.cluster_id), pod


def was_unused(attempt_id: UUID) -> bool:
    """Whether the gateway stopped the attempt because its session was not used."""
    return SessionUse.objects.filter(attempt_id=attempt_id, stopped_at__isnull=False).exists()
