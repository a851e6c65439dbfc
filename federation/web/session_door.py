"""The origins of sessions, in front of everything that belongs to the gateway's own origin.

A request to such a host never reaches a page, an API, a static file or a cookie of the gateway, whatever its path. It is the
exchange of a ticket, or it has the cookie of one session and goes to the program of that session.
"""

import logging
import math
from collections.abc import Callable
from uuid import UUID

from django.conf import settings
from django.core.exceptions import BadRequest, RequestDataTooBig, SuspiciousOperation
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse, HttpResponseBase, UnreadablePostError
from django.http.multipartparser import MultiPartParserError

from clusters.drivers import DriverError, NotAnswered, PortAnswer, PortRequest, Throttled
from federation.drivers.switchboard import Switchboard
from federation.engine.sessions import (
    ACCESS_SECONDS,
    OPENING_PATH,
    SessionOrigin,
    comes_from_itself,
    is_encoded,
    is_method,
    passed_on,
    returned,
)
from federation.engine.sockets import is_asked_for
from federation.operations.session_sockets import keep_open
from federation.operations.sessions import note_use, redeem
from federation.queries.sessions import Access, access_of, ask, session_origin, why_closed
from foundation.edge.upgrades import hold
from foundation.headers import ALWAYS, PERMISSIONS_POLICY, headers
from foundation.requests import KNOWN_CALLER

from .session_notices import STYLE, digest_of, notice, page
from .session_places import Places
from .session_sockets import SocketRefused, connect, socket_request

log = logging.getLogger(__name__)
MOST_SECRET = 100
CLOSED = "This session is not open in this browser, or no longer runs. Open it on the page of its job in Switchyard."
NOT_ITS_OWN = "Another site made this request. Sessions accept only requests of their own pages."
SCRIPT = f"""
const form = document.forms[0];
form.elements.ticket.value = location.hash.slice(1);
history.replaceState(null, "", "{OPENING_PATH}");
form.submit();
"""
OPENER = page(
    "Opening the session …",
    f"""<form method="post" action="{OPENING_PATH}"><input type="hidden" name="ticket">
<noscript><p>Opening a session needs JavaScript, which reads the ticket behind the # of the address.</p></noscript></form>
<script>{SCRIPT}</script>""",
)
OPENER_POLICY = (
    f"default-src 'none'; script-src {digest_of(SCRIPT)}; style-src {digest_of(STYLE)};"
    " form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
OWN_HEADERS = {
    **{name: ALWAYS[name] for name in ("X-Content-Type-Options", "Referrer-Policy")},
    "Permissions-Policy": PERMISSIONS_POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "frame-ancestors 'self'",
    "X-Frame-Options": "SAMEORIGIN",
    "Origin-Agent-Cluster": "?1",
    "Cache-Control": "no-store",
}


class SessionDoorMiddleware:
    """Answers all requests to origins of sessions, and passes on all others."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response
        self.places = Places(settings.WEB_THREADS)
        self.board = Switchboard(settings.SESSION_SOCKETS, keep_open)
        hold(self.board)

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        origin, host = session_origin(), request.META.get("HTTP_HOST", "")
        if origin is None or not origin.covers(host):
            return self.get_response(request)
        try:
            response = self._answer(request, origin, host)
        except (OperationalError, InterfaceError):
            log.warning("the database does not answer a request to a session")
            response = notice(request, 503, "Switchyard cannot reach its database.", is_passing=True)
        for name, value in OWN_HEADERS.items():
            response.headers.setdefault(name, value)
        if "Strict-Transport-Security" in (sent := headers()) and origin.is_secure:
            response["Strict-Transport-Security"] = sent["Strict-Transport-Security"]
        return response

    def _answer(self, request: HttpRequest, origin: SessionOrigin, host: str) -> HttpResponse:
        attempt_id = origin.attempt_at(host)
        if attempt_id is None:
            return notice(request, 404, "There is no session at this address.")
        if request.path_info == OPENING_PATH:
            return _open(request, origin, attempt_id)
        secret = request.COOKIES.get(origin.cookie, "")[:MOST_SECRET]
        access = access_of(attempt_id, secret) if secret else None  # a stranger costs no query
        if access is None:
            return notice(request, 401, why_closed(attempt_id, secret) if secret else CLOSED)
        request.META[KNOWN_CALLER] = True
        sent, own = _sent(request), origin.of(attempt_id)
        try:
            if is_socket := is_asked_for(sent):
                wanted: PortRequest | HttpResponse = socket_request(request, sent, own, host)
            else:
                wanted = _wanted(request, sent, own, host)
            if isinstance(wanted, HttpResponse):
                return wanted
            note_use(attempt_id)
            return self._carried(request, access, wanted, is_socket=is_socket)
        except SocketRefused as refused:
            return notice(request, refused.status, refused.words)

    def _carried(self, request: HttpRequest, access: Access, wanted: PortRequest, *, is_socket: bool) -> HttpResponse:
        if not self.places.take(access.attempt_id, access.actor.user_id):
            return _busy(request, "Too many requests to sessions at the same time.", 1)
        try:
            answer = connect(request, self.board, access, wanted) if is_socket else ask(access, wanted)
            return answer if isinstance(answer, HttpResponse) else _of_program(request, answer)
        except NotAnswered as error:
            return notice(request, error.status, f"The program of the session: {error.reason}.", is_passing=True)
        except Throttled as error:
            return _busy(request, "The cluster of the session takes no more requests now.", error.retry_after_seconds)
        except DriverError as error:
            return notice(request, 502, f"The cluster of the session: {error.reason}.", is_passing=True)
        finally:
            self.places.give_back(access.attempt_id, access.actor.user_id)


def _busy(request: HttpRequest, words: str, seconds: float) -> HttpResponse:
    busy = notice(request, 503, words, is_passing=True)
    busy["Retry-After"] = str(max(1, math.ceil(seconds)))
    return busy


def _wanted(request: HttpRequest, sent: dict[str, str], own: str, host: str) -> PortRequest | HttpResponse:
    """The request for the program, or the refusal of a request that it does not get."""
    method = request.method or ""
    target = str(request.META.get("RAW_URI") or request.get_full_path())
    if not comes_from_itself(method, sent, own):
        return notice(request, 403, NOT_ITS_OWN)
    if not is_method(method) or not target.startswith("/"):
        return notice(request, 405, "Sessions do not accept this method.")
    try:
        body = request.body
    except RequestDataTooBig:
        return notice(request, 413, "The request is larger than sessions accept.")
    except (UnreadablePostError, BadRequest):
        return notice(request, 400, "The request could not be read.")
    return PortRequest(method, target, passed_on(sent, host, str(request.META.get("CONTENT_TYPE", ""))), body)


def _open(request: HttpRequest, origin: SessionOrigin, attempt_id: UUID) -> HttpResponse:
    """GET: a page that sends the ticket behind the # of its address. POST: the exchange of the ticket for a cookie."""
    if request.method == "GET":
        page = HttpResponse(OPENER)
        page["Content-Security-Policy"] = OPENER_POLICY
        return page
    if request.method != "POST":
        return notice(request, 405, "Sessions are opened with GET and POST.")
    if _sent(request).get("origin") != origin.of(attempt_id):
        return notice(request, 403, NOT_ITS_OWN)
    try:
        secret = str(request.POST.get("ticket", ""))
    except (SuspiciousOperation, BadRequest, MultiPartParserError, UnreadablePostError):
        return notice(request, 400, "The request could not be read.")
    opened = redeem(attempt_id, secret[:MOST_SECRET].replace("\x00", ""))
    if opened is None:
        return notice(
            request,
            401,
            "This ticket is not valid. It works once and for a minute: open the session again on its job's page.",
        )
    request.META[KNOWN_CALLER] = True
    response = HttpResponse(status=303, headers={"Location": "/"})
    response.set_cookie(
        origin.cookie,
        opened[1],
        max_age=ACCESS_SECONDS,
        secure=origin.is_secure,
        httponly=True,
        samesite="Strict",
    )
    return response


def _sent(request: HttpRequest) -> dict[str, str]:
    """The request's headers, with names in lower case."""
    return {name.lower(): value for name, value in request.headers.items()}


def _of_program(request: HttpRequest, answer: PortAnswer) -> HttpResponse:
    if not 200 <= answer.status <= 599 or is_encoded(answer.headers):  # noqa: PLR2004 - HTTP's own numbers
        return notice(request, 502, "The program of the session: its answer cannot be passed on.")
    response = HttpResponse(answer.body, status=answer.status, content_type="application/octet-stream")
    for name, value in returned(answer.headers).items():
        response[name] = value
    return response
