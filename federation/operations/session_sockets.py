"""WebSockets of sessions: opening one, and what keeps those of this process open."""

from collections.abc import Collection
from uuid import UUID

from clusters.drivers import PortAnswer, PortRequest
from federation.drivers.relays import Relay
from federation.drivers.switchboard import Switchboard
from federation.queries.sessions import Access, access_by, port_of
from tenancy.models import AuditEntry
from tenancy.operations import record_audit

from .sessions import note_use

OPENED = "session.socket"


def open_socket(board: Switchboard, relay: Relay, access: Access, request: PortRequest) -> PortAnswer:
    """The program's answer to the handshake. Raises DriverError. The first WebSocket of each access is audited."""
    detail = {"attempt": str(access.attempt_id), "ticket": str(access.ticket_id)}
    known = AuditEntry.objects.filter(action=OPENED, object_kind="job", object_id=str(access.job_id), detail=detail)
    if not known.exists():
        record_audit(
            access.actor,
            OPENED,
            object_kind="job",
            object_id=str(access.job_id),
            tenant_id=access.tenant_id,
            detail=detail,
        )
    return board.open(relay, port_of(access), request)


def keep_open(tickets: Collection[UUID], used: Collection[UUID]) -> frozenset[UUID]:
    """Those of the tickets that still open their session. Notes the use of the attempts among them that were used."""
    found = [access for access in map(access_by, tickets) if access is not None]
    for attempt_id in {access.attempt_id for access in found} & set(used):
        note_use(attempt_id)
    return frozenset(access.ticket_id for access in found)
