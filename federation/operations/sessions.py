"""Tickets of sessions, the record of their use, and the stop of those that are not used.

All times are the database's. What a process or a cache forgets ends no session.
"""

import secrets
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from django.db.models.functions import Now

from federation.engine.sessions import ACCESS_SECONDS, MOST_OPEN_TICKETS, OPENING_PATH, SEEN_SECONDS, TICKET_SECONDS
from federation.locks import lock_job
from federation.models import SessionUse
from federation.queries.sessions import Access, access_of, digest_of, open_attempt, permission_to_open, session_origin
from federation.queries.standstill import is_dispatch_closed
from foundation.ids import new_id
from foundation.problems import Conflict, NotFound, PermissionDenied, RateLimited
from foundation.transactions import retried
from placement.values.quantities import duration_text
from tenancy.models import User
from tenancy.operations import record_audit
from tenancy.queries import SYSTEM, Actor, require

from . import transitions

KEPT_SECONDS = 86_400
"""How long tickets are kept after their last use, for questions; the audit trail keeps what happened."""
MOST_A_ROUND = 100

OPEN_TICKETS = (
    "SELECT count(*) FROM federation_sessionticket WHERE attempt_id = %s AND used_at IS NULL AND expires_at > now()"
)
NEW_TICKET = """
INSERT INTO federation_sessionticket (id, attempt_id, user_id, token_id, digest, epoch, created_at, expires_at)
VALUES (%(id)s, %(attempt)s, %(user)s, %(token)s, %(digest)s, %(epoch)s, now(), now() + make_interval(secs => %(seconds)s))
RETURNING expires_at
"""
REDEEM = """
UPDATE federation_sessionticket
   SET used_at = now(), access_digest = %(access)s, access_until = now() + make_interval(secs => %(seconds)s)
 WHERE digest = %(digest)s AND attempt_id = %(attempt)s AND used_at IS NULL AND expires_at > now()
"""
NOTE_USE = """
INSERT INTO federation_sessionuse AS used (attempt_id, last_used_at) VALUES (%(attempt)s, now())
ON CONFLICT (attempt_id) DO UPDATE SET last_used_at = now()
 WHERE used.last_used_at < now() - make_interval(secs => %(seconds)s)
"""
BEGIN_USE = """
INSERT INTO federation_sessionuse (attempt_id, last_used_at)
SELECT attempt.id, now()
  FROM federation_job AS job JOIN federation_attempt AS attempt ON attempt.job_id = job.id
 WHERE job.finished_at IS NULL AND job.spec ? 'session' AND attempt.state = 'running'
ON CONFLICT (attempt_id) DO NOTHING
"""
KEEP_OPEN = """
UPDATE federation_sessionuse AS used SET last_used_at = now()
  FROM federation_attempt AS attempt
 WHERE attempt.id = used.attempt_id AND attempt.finished_at IS NULL AND (attempt.state = 'unknown' OR %(all)s)
   AND used.last_used_at < now() - make_interval(secs => %(seconds)s)
"""
"""While no user can reach a session, it is not unused."""
UNUSED = """
SELECT job.id, attempt.id, (job.spec -> 'session' ->> 'idle_seconds')::int
  FROM federation_job AS job
  JOIN federation_attempt AS attempt ON attempt.job_id = job.id
  JOIN federation_sessionuse AS used ON used.attempt_id = attempt.id
 WHERE job.finished_at IS NULL AND job.spec ? 'session' AND job.state = 'running' AND (%(job)s::uuid IS NULL OR job.id = %(job)s)
   AND attempt.state = 'running' AND attempt.stop_requested_at IS NULL
   AND used.last_used_at < now() - make_interval(secs => (job.spec -> 'session' ->> 'idle_seconds')::int)
 ORDER BY used.last_used_at LIMIT %(most)s
"""
FORGET = """
DELETE FROM federation_sessionticket
 WHERE greatest(expires_at, access_until) < now() - make_interval(secs => %(seconds)s)
"""


@dataclass(frozen=True, slots=True)
class Ticket:
    """A new ticket. `url` opens the session, once; its secret is behind the `#`, which no server and no log gets."""

    attempt_id: UUID
    url: str
    expires_at: datetime


@retried
def issue_ticket(actor: Actor, job_id: UUID) -> Ticket:
    """A ticket for the session of a running job, for its submitter or an admin of its tenant.

    Raises NotFound, PermissionDenied, Conflict `state_conflict` if there is nothing to open now, RateLimited if too many
    tickets of it wait for their use.
    """
    user = User.objects.filter(id=actor.user_id, is_active=True).first() if actor.user_id else None
    if user is None:
        raise PermissionDenied("Only users can open sessions.")
    with transaction.atomic():
        job = lock_job(job_id)
        if job is None:
            raise NotFound
        require(actor, job.tenant, permission_to_open(job, actor))
        origin, attempt = session_origin(), open_attempt(job)
        if origin is None or job.spec.get("session") is None:
            raise Conflict("This job has no session that can be opened here.", code="state_conflict")
        if attempt is None:
            raise Conflict("The session can be opened only while its job runs.", code="state_conflict")
        _refuse_too_many(attempt.id)
        secret = secrets.token_urlsafe(32)
        row: dict[str, Any] = {
            "id": new_id(), "attempt": attempt.id, "user": user.id, "token": actor.token_id, "digest": digest_of(secret),
            "epoch": user.get_session_auth_hash(), "seconds": TICKET_SECONDS,
        }  # fmt: skip
        with connection.cursor() as cursor:
            cursor.execute(NEW_TICKET, row)
            (expires_at,) = cursor.fetchone()
        _audit(actor, "session.ticket", job.id, job.tenant_id, {"attempt": str(attempt.id)})
    return Ticket(attempt.id, f"{origin.of(attempt.id)}{OPENING_PATH}#{secret}", expires_at)


def redeem(attempt_id: UUID, secret: str) -> tuple[Access, str] | None:
    """Uses a ticket: the access, and the secret of its cookie. None if the ticket is unknown, of another attempt, used or
    expired, or its user may no longer open the session: these look alike.
    """
    cookie = secrets.token_urlsafe(32)
    used: dict[str, Any] = {
        "digest": digest_of(secret), "attempt": attempt_id, "access": digest_of(cookie), "seconds": ACCESS_SECONDS,
    }  # fmt: skip
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(REDEEM, used)
            if not cursor.rowcount:
                return None
        access = access_of(attempt_id, cookie)
        if access is not None:
            _audit(access.actor, "session.open", access.job_id, access.tenant_id, {"attempt": str(attempt_id)})
            note_use(attempt_id)
    return None if access is None else (access, cookie)


def note_use(attempt_id: UUID) -> None:
    """Notes that the session is used now, at most once a minute."""
    with connection.cursor() as cursor:
        cursor.execute(NOTE_USE, {"attempt": attempt_id, "seconds": SEEN_SECONDS})


def stop_unused_sessions() -> int:
    """The number of sessions that are stopped now because no request reached them for the time that they allow.

    The time begins when the gateway first knows that a session runs, and again after its cluster was silent, and after a
    standstill: while the session could not be reached, it was not unused.
    """
    can_be_opened = session_origin() is not None
    stand_still = not can_be_opened or is_dispatch_closed()
    with connection.cursor() as cursor:
        if can_be_opened:  # without sessions, no sweep reads all jobs for them
            cursor.execute(BEGIN_USE)
        cursor.execute(KEEP_OPEN, {"all": stand_still, "seconds": SEEN_SECONDS})
        cursor.execute(FORGET, {"seconds": KEPT_SECONDS})
    return sum(_stop(job_id) for job_id, *_ in _unused(None))


@retried
def _stop(job_id: UUID) -> int:
    with transaction.atomic():
        job = lock_job(job_id)
        found = _unused(job_id)
        if job is None or not found:
            return 0  # it was used, or has ended, meanwhile
        _, attempt_id, idle_seconds = found[0]
        SessionUse.objects.filter(attempt_id=attempt_id).update(stopped_at=Now())
        transitions.cancel(job, f"the gateway: no request reached its session for {duration_text(idle_seconds)}")
        _audit(
            SYSTEM, "session.idle", job.id, job.tenant_id, {"attempt": str(attempt_id), "idle_seconds": idle_seconds}
        )
    return 1


def _refuse_too_many(attempt_id: UUID) -> None:
    with connection.cursor() as cursor:
        cursor.execute(OPEN_TICKETS, [attempt_id])
        (count,) = cursor.fetchone()
    if count >= MOST_OPEN_TICKETS:
        raise RateLimited("Too many tickets of this session wait for their use.", retry_after_seconds=TICKET_SECONDS)


def _unused(job_id: UUID | None) -> list[tuple[UUID, UUID, int]]:
    with connection.cursor() as cursor:
        cursor.execute(UNUSED, {"job": job_id, "most": MOST_A_ROUND})
        return list(cursor.fetchall())


def _audit(actor: Actor, action: str, job_id: UUID, tenant_id: UUID, detail: dict[str, Any]) -> None:
    record_audit(actor, action, object_kind="job", object_id=str(job_id), tenant_id=tenant_id, detail=detail)
