"""The origins of sessions, in front of everything that belongs to the gateway's own origin.

A request to such a host never reaches a page, an API, a static file or a cookie of the gateway, whatever its path. It is the
exchange of a ticket, or it has the cookie of one session and goes to the program of that session.
"""

import base64
import hashlib
import logging
from collections.abc import Callable
from uuid import UUID

from django.conf import settings
from django.core.exceptions import BadRequest, RequestDataTooBig, SuspiciousOperation
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse, HttpResponseBase, UnreadablePostError
from django.http.multipartparser import MultiPartParserError

from clusters.drivers import DriverError, NotAnswered, PortAnswer, PortRequest
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
from federation.operations.sessions import note_use, redeem
from federation.queries.sessions import Access, access_of, ask, session_origin
from foundation.headers import ALWAYS, PERMISSIONS_POLICY, headers
from foundation.requests import KNOWN_CALLER

from .session_places import Places

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
OPENER = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Opening the session</title></head><body>
<form method="post" action="{OPENING_PATH}"><input type="hidden" name="ticket"><p>Opening the session …</p>
<noscript><p>Opening a session needs JavaScript, which reads the ticket behind the # of the address.</p></noscript></form>
<script>{SCRIPT}</script></body></html>
"""
OPENER_POLICY = (
    f"default-src 'none'; script-src 'sha256-{base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()}';"
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

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        origin, host = session_origin(), request.META.get("HTTP_HOST", "")
        if origin is None or not origin.covers(host):
            return self.get_response(request)
        try:
            response = self._answer(request, origin, host)
        except (OperationalError, InterfaceError):
            log.warning("the database does not answer a request to a session")
            response = _told(503, "Switchyard cannot reach its database.")
        for name, value in OWN_HEADERS.items():
            response.headers.setdefault(name, value)
        if "Strict-Transport-Security" in (sent := headers()) and origin.is_secure:
            response["Strict-Transport-Security"] = sent["Strict-Transport-Security"]
        return response

    def _answer(self, request: HttpRequest, origin: SessionOrigin, host: str) -> HttpResponse:
        attempt_id = origin.attempt_at(host)
        if attempt_id is None:
            return _told(404, "There is no session here.")
        if request.path_info == OPENING_PATH:
            return _open(request, origin, attempt_id)
        secret = request.COOKIES.get(_cookie_of(origin), "")[:MOST_SECRET]
        access = access_of(attempt_id, secret) if secret else None  # a stranger costs no query
        if access is None:
            return _told(401, CLOSED)
        request.META[KNOWN_CALLER] = True
        wanted = _wanted(request, origin.of(attempt_id), host)
        if isinstance(wanted, HttpResponse):
            return wanted
        note_use(attempt_id)
        return self._carried(access, wanted)

    def _carried(self, access: Access, wanted: PortRequest) -> HttpResponse:
        if not self.places.take(access.attempt_id):
            busy = _told(503, "Too many requests to sessions at the same time.")
            busy["Retry-After"] = "1"
            return busy
        try:
            return _of_program(ask(access, wanted))
        except NotAnswered as error:
            return _told(error.status, f"The program of the session: {error.reason}.")
        except DriverError as error:
            return _told(502, f"The cluster of the session: {error.reason}.")
        finally:
            self.places.give_back(access.attempt_id)


def _wanted(request: HttpRequest, own: str, host: str) -> PortRequest | HttpResponse:
    """The request for the program, or the refusal of a request that it does not get."""
    method, sent = request.method or "", _sent(request)
    target = str(request.META.get("RAW_URI") or request.get_full_path())
    if not comes_from_itself(method, sent, own):
        return _told(403, NOT_ITS_OWN)
    if not is_method(method) or not target.startswith("/"):
        return _told(405, "Sessions do not accept this method.")
    try:
        body = request.body
    except RequestDataTooBig:
        return _told(413, "The request is larger than sessions accept.")
    except (UnreadablePostError, BadRequest):
        return _told(400, "The request could not be read.")
    return PortRequest(method, target, passed_on(sent, host, str(request.META.get("CONTENT_TYPE", ""))), body)


def _open(request: HttpRequest, origin: SessionOrigin, attempt_id: UUID) -> HttpResponse:
    """GET: a page that sends the ticket behind the # of its address. POST: the exchange of the ticket for a cookie."""
    if request.method == "GET":
        page = HttpResponse(OPENER)
        page["Content-Security-Policy"] = OPENER_POLICY
        return page
    if request.method != "POST":
        return _told(405, "Sessions are opened with GET and POST.")
    if _sent(request).get("origin") != origin.of(attempt_id):
        return _told(403, NOT_ITS_OWN)
    try:
        secret = str(request.POST.get("ticket", ""))
    except (SuspiciousOperation, BadRequest, MultiPartParserError, UnreadablePostError):
        return _told(400, "The request could not be read.")
    opened = redeem(attempt_id, secret[:MOST_SECRET].replace("\x00", ""))
    if opened is None:
        return _told(
            401, "This ticket is not valid. It works once and for a minute: open the session again on its job's page."
        )
    request.META[KNOWN_CALLER] = True
    response = HttpResponse(status=303, headers={"Location": "/"})
    response.set_cookie(
        _cookie_of(origin),
        opened[1],
        max_age=ACCESS_SECONDS,
        secure=origin.is_secure,
        httponly=True,
        samesite="Strict",
    )
    return response


def _cookie_of(origin: SessionOrigin) -> str:
    """Browsers accept a name with this prefix only over TLS and only for this whole host: no other session can set one."""
    return "__Host-switchyard-session" if origin.is_secure else "switchyard-session"


def _sent(request: HttpRequest) -> dict[str, str]:
    """The request's headers, with names in lower case."""
    return {name.lower(): value for name, value in request.headers.items()}


def _of_program(answer: PortAnswer) -> HttpResponse:
    if not 200 <= answer.status <= 599 or is_encoded(answer.headers):  # noqa: PLR2004 - HTTP's own numbers
        return _told(502, "The program of the session: its answer cannot be passed on.")
    response = HttpResponse(answer.body, status=answer.status, content_type="application/octet-stream")
    for name, value in returned(answer.headers).items():
        response[name] = value
    return response


def _told(status: int, words: str) -> HttpResponse:
    return HttpResponse(f"{words}\n", status=status, content_type="text/plain; charset=utf-8")
