"""WebSockets of sessions: a request with `Upgrade: websocket` becomes a connection to the program, which the edge hands over."""

from django.http import HttpRequest, HttpResponse

from clusters.drivers import PortAnswer, PortRequest
from clusters.drivers.port_http import SWITCHED
from federation.drivers.relays import Whose
from federation.drivers.switchboard import Switchboard
from federation.engine.sockets import handshake_fault, program_handshake
from federation.operations.session_sockets import open_socket
from federation.queries.sessions import Access
from foundation.edge.upgrades import UPGRADE, Upgrade

TOO_MANY = "Too many WebSockets of this session, of this user or of this gateway are open."


class SocketRefused(Exception):
    """The request does not become a WebSocket: a status and the words for it."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status, self.words = status, words


def socket_request(request: HttpRequest, headers: dict[str, str], own: str, host: str) -> PortRequest:
    """The handshake for the program. Raises SocketRefused. Unlike a page, a WebSocket must name the origin that opens it."""
    if headers.get("origin") != own:
        raise SocketRefused(403, "Another site made this request. Sessions accept only requests of their own pages.")
    if fault := handshake_fault(request.method or "", headers, int(request.META.get("CONTENT_LENGTH") or 0)):
        raise SocketRefused(400, fault)
    target = str(request.META.get("RAW_URI") or request.get_full_path())
    if not target.startswith("/"):
        raise SocketRefused(400, "The address is not well-formed.")
    return PortRequest("GET", target, program_handshake(headers, host))


def connect(request: HttpRequest, board: Switchboard, access: Access, wanted: PortRequest) -> PortAnswer | HttpResponse:
    """Opens the WebSocket: an empty 101, which the edge does not send, or the program's other answer. Raises DriverError,
    SocketRefused.
    """
    upgrade = request.META.get(UPGRADE)
    if not isinstance(upgrade, Upgrade):
        raise SocketRefused(501, "This server carries no WebSockets.")
    user_id = access.actor.user_id
    assert user_id is not None
    relay = board.begin(Whose(access.ticket_id, user_id, access.attempt_id))
    if relay is None:
        raise SocketRefused(503, TOO_MANY)
    try:
        answer = open_socket(board, relay, access, wanted)
    except BaseException:
        if not relay.has_begun:
            board.leave(relay)
        raise
    if answer.status != SWITCHED:
        return answer
    upgrade.taker = relay.take
    return HttpResponse(status=SWITCHED)
