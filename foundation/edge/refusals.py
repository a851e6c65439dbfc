"""Responses that the edge sends without the application."""

from http import HTTPStatus

from foundation.headers import headers
from foundation.ids import new_id
from foundation.plain_json import encode
from foundation.problem_json import PROBLEM_MEDIA_TYPE, problem_body
from foundation.problems import Problem

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


def refusal(problem: Problem) -> bytes:
    """The whole response, the connection's last."""
    request_id = str(new_id())
    body = encode(problem_body(problem) | {"request_id": request_id})
    lines = [
        f"HTTP/1.1 {problem.status} {HTTPStatus(problem.status).phrase}",
        f"Content-Type: {PROBLEM_MEDIA_TYPE}",
        f"Content-Length: {len(body)}",
        f"X-Request-Id: {request_id}",
        "Cache-Control: no-store",
        *(f"{name}: {value}" for name, value in headers().items()),
        "Connection: close",
    ]
    if problem.retry_after_seconds is not None:
        lines.append(f"Retry-After: {problem.retry_after_seconds}")
    return "\r\n".join([*lines, "", ""]).encode() + body
