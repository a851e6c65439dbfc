"""The request id of every response, also used in audit entries and log lines; and the origin of requests."""

import ipaddress
import re
from collections.abc import Callable
from contextvars import ContextVar

from django.http import HttpRequest, HttpResponseBase

from .ids import new_id

ACCEPTABLE = re.compile(r"^[A-Za-z0-9._-]{1,64}$")
KNOWN_CALLER = "switchyard.known_caller"
"""Set in a request's environment once its token or session is valid: the edge then counts the request by it."""
current_request_id: ContextVar[str] = ContextVar("current_request_id", default="")
current_source: ContextVar[str | None] = ContextVar("current_source", default=None)
"""The client's address for audit entries; None outside requests."""


class RequestIdMiddleware:
    """Accepts a well-formed `X-Request-Id` from the caller or creates one, and sends it back."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        given = request.headers.get("X-Request-Id", "")
        request_id = given if ACCEPTABLE.match(given) else str(new_id())
        reset = current_request_id.set(request_id)
        reset_source = current_source.set(_address(request.META.get("REMOTE_ADDR", "")))
        try:
            response = self.get_response(request)
        finally:
            current_request_id.reset(reset)
            current_source.reset(reset_source)
        user = getattr(request, "_cached_user", None)
        if user is not None and user.is_authenticated:
            request.META[KNOWN_CALLER] = True
        response["X-Request-Id"] = request_id
        return response


def _address(text: str) -> str | None:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return None
