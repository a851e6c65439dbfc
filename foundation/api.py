"""Shared parts of every HTTP interface: every refusal is sent as problem+json (RFC 9457), whatever
exception raised it.
"""

import logging
from collections.abc import Mapping
from typing import Any

from django.core.exceptions import PermissionDenied as DjangoPermissionDenied
from django.core.exceptions import RequestDataTooBig
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse
from django.views import defaults as default_views
from django.views.decorators.csrf import csrf_exempt
from rest_framework import exceptions as drf
from rest_framework.response import Response
from rest_framework.views import set_rollback

from .media import ProblemRenderer
from .plain_json import encode
from .plain_json import instant as instant
from .problem_json import PROBLEM_MEDIA_TYPE, problem_body
from .problems import (
    FieldError,
    InternalError,
    Invalid,
    MalformedBody,
    MethodNotAllowed,
    NotAcceptable,
    NotAuthenticated,
    NotFound,
    PayloadTooLarge,
    PermissionDenied,
    Problem,
    RateLimited,
    Unavailable,
    UnsupportedMediaType,
)

log = logging.getLogger(__name__)
BUSY_SIGNS = ("lock timeout", "deadlock detected", "could not serialize")


def answer_exception(error: Exception, context: Mapping[str, Any]) -> Response | None:
    """DRF's exception handler: expected failures become problem+json; None (a bug) becomes a logged 500."""
    problem = as_problem(error)
    if problem is None:
        return None
    set_rollback()
    headers = {}
    if problem.status == 401:  # noqa: PLR2004 - HTTP's own number
        headers["WWW-Authenticate"] = 'Bearer realm="switchyard"'
    if problem.retry_after_seconds is not None:
        headers["Retry-After"] = str(problem.retry_after_seconds)
    response = Response(problem_body(problem), status=problem.status, headers=headers)
    request = context.get("request")
    if request is not None:
        request.accepted_renderer, request.accepted_media_type = ProblemRenderer(), PROBLEM_MEDIA_TYPE
    return response


def as_problem(error: Exception) -> Problem | None:
    """The refusal for an exception, or None if it is a defect."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, drf.APIException):
        return _from_framework(error)
    for kind, problem in {
        Http404: NotFound,
        DjangoPermissionDenied: PermissionDenied,
        RequestDataTooBig: PayloadTooLarge,
    }.items():
        if isinstance(error, kind):
            return problem()
    if isinstance(error, OperationalError) and any(sign in str(error) for sign in BUSY_SIGNS):
        return RateLimited(
            "Another change to the same object is in progress. Try again.", code="busy", retry_after_seconds=1
        )
    if isinstance(error, OperationalError | InterfaceError):
        log.warning("the database does not answer: %s", type(error).__name__)
        return Unavailable(retry_after_seconds=2)
    return None


def _from_framework(error: drf.APIException) -> Problem:
    match error:
        case drf.NotFound():
            problem: Problem = NotFound()
        case drf.NotAuthenticated() | drf.AuthenticationFailed():
            problem = NotAuthenticated()
        case drf.PermissionDenied():
            problem = PermissionDenied(str(error.detail))
        case drf.ValidationError():
            problem = Invalid(errors=_flatten(error.detail))
        case drf.ParseError():
            problem = MalformedBody(str(error.detail))
        case drf.UnsupportedMediaType():
            problem = UnsupportedMediaType()
        case drf.MethodNotAllowed():
            problem = MethodNotAllowed()
        case drf.NotAcceptable():
            problem = NotAcceptable()
        case drf.Throttled():
            problem = RateLimited(retry_after_seconds=int(getattr(error, "wait", None) or 1))
        case _:
            problem = Problem(str(error.detail), code=error.default_code)
            problem.status = error.status_code
    return problem


def _flatten(detail: Any, field: str = "") -> list[FieldError]:
    if isinstance(detail, Mapping):
        return [e for key, item in detail.items() for e in _flatten(item, _join(field, key))]
    if isinstance(detail, list):
        nested = any(isinstance(item, Mapping | list) for item in detail)
        return [
            e for index, item in enumerate(detail) for e in _flatten(item, f"{field}[{index}]" if nested else field)
        ]
    return [FieldError(field, str(getattr(detail, "code", "invalid")), str(detail))]


def _join(parent: str, key: str | int) -> str:
    if key == "non_field_errors":
        return parent
    if isinstance(key, int):
        return f"{parent}[{key}]"
    return f"{parent}.{key}" if parent else key


def problem_response(problem: Problem) -> HttpResponse:
    """The problem as a plain response, for failures outside any API view."""
    return HttpResponse(encode(problem_body(problem)), status=problem.status, content_type=PROBLEM_MEDIA_TYPE)


@csrf_exempt
def nothing_here(request: HttpRequest, **_: Any) -> HttpResponse:
    """The response to an unknown path below /api/."""
    return problem_response(NotFound(f"There is no resource at {request.path[:200]}."))


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Django's 400 (a forged host, a broken upload), as a problem below /api/."""
    if not _is_api(request):
        return default_views.bad_request(request, exception)
    return problem_response(MalformedBody("The request could not be read."))


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Django's 403, as a problem below /api/."""
    return (
        problem_response(PermissionDenied())
        if _is_api(request)
        else default_views.permission_denied(request, exception)
    )


def page_not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Django's 404, as a problem below /api/."""
    return nothing_here(request) if _is_api(request) else default_views.page_not_found(request, exception)


def server_error(request: HttpRequest) -> HttpResponse:
    """A defect: logged with the request id; the response has no detail."""
    return problem_response(InternalError()) if _is_api(request) else default_views.server_error(request)


def _is_api(request: HttpRequest) -> bool:
    return request.path.startswith("/api/")
