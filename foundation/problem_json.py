"""How a refusal is written (RFC 9457), for code that sends one without the framework of the HTTP interface."""

from typing import Any

from .problems import Problem
from .requests import current_request_id

PROBLEM_MEDIA_TYPE = "application/problem+json"


def problem_body(problem: Problem) -> dict[str, Any]:
    """The RFC 9457 members of a refusal."""
    return {
        "type": f"https://switchyard.dev/problems/{problem.code}",
        "title": problem.title,
        "status": problem.status,
        "code": problem.code,
        "detail": problem.detail,
        "request_id": current_request_id.get(),
        "errors": [{"field": e.field, "code": e.code, "detail": e.detail} for e in problem.errors],
    }
