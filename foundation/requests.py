"""A request id on every answer, also known to whatever writes an audit row or a log line."""

import re
from collections.abc import Callable
from contextvars import ContextVar

from django.http import HttpRequest, HttpResponseBase

from .ids import new_id

ACCEPTABLE = re.compile(r"^[A-Za-z0-9._-]{1,64}$")
current_request_id: ContextVar[str] = ContextVar("current_request_id", default="")


class RequestIdMiddleware:
    """Takes a well-formed `X-Request-Id` from the caller or makes one, and sends it back."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        given = request.headers.get("X-Request-Id", "")
        request_id = given if ACCEPTABLE.match(given) else str(new_id())
        reset = current_request_id.set(request_id)
        try:
            response = self.get_response(request)
        finally:
            current_request_id.reset(reset)
        response["X-Request-Id"] = request_id
        return response
