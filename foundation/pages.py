"""Shared parts of web pages: rendering a page, responding to a poll of its live part, and showing a refusal.

A page is a frozen dataclass passed to its template as `page`. Its live part is a separate template. A poll (htmx) gets
only that part, with an ETag, and 304 if nothing changed.
"""

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.utils.cache import patch_vary_headers

from .problems import Problem, UnknownParameter
from .requests import current_request_id

NOT_MODIFIED = 304
LONGEST_NAMED = 60
"""The maximum length of an unknown parameter's name in the message."""


@dataclass(frozen=True, slots=True)
class Form:
    """The user's input and its errors. `errors` are by field; `loose` belong to no field on the page."""

    values: Mapping[str, str] = field(default_factory=dict)
    errors: Mapping[str, Sequence[str]] = field(default_factory=dict)
    problem: str = ""
    loose: Sequence[tuple[str, str]] = ()

    @classmethod
    def refused(cls, values: Mapping[str, str], problem: Problem, fields: Mapping[str, str]) -> "Form":
        """The form again after a refusal.

        `fields` maps the domain's field paths to names of controls on the page. A path below a mapped one goes to its
        control, spelled out (`labels.team` to `labels`); any other error appears above the form.
        """
        errors: dict[str, list[str]] = {}
        loose: list[tuple[str, str]] = []
        for error in problem.errors:
            known = next((path for path in _upwards(error.field) if path in fields), None)
            if known is None:
                loose.append((error.field, error.detail))
            else:
                told = error.detail if known == error.field else f"{error.field}: {error.detail}"
                errors.setdefault(fields[known], []).append(told)
        summary = problem.detail if loose or not errors else "Correct the marked fields below."
        return cls(values=dict(values), errors=errors, problem=summary, loose=tuple(loose))


def _upwards(path: str) -> Iterator[str]:
    """The path, then each path above it: `a[0].b`, `a[0]`, `a`."""
    while path:
        yield path
        path = path[: max(path.rfind("."), path.rfind("["), 0)]


def typed(request: HttpRequest) -> dict[str, str]:
    """The posted values, one per name; NUL characters, which no database accepts, are removed."""
    return {
        name: str(value).replace("\x00", "") for name, value in request.POST.items() if name != "csrfmiddlewaretoken"
    }


def asked(request: HttpRequest) -> dict[str, str]:
    """The query string's values, one per name, without NUL characters."""
    return {name: str(value).replace("\x00", "") for name, value in request.GET.items()}


def check_parameters(request: HttpRequest, known: Collection[str]) -> None:
    """Raises UnknownParameter, which names it and the `known` ones, if the query string has any other parameter.

    An ignored filter would show more than the user requested, and look like the result.
    """
    unknown = sorted(set(request.GET) - set(known))
    if unknown:
        named = ", ".join(f"“{name[:LONGEST_NAMED]}”" for name in unknown)
        which = f"It has: {', '.join(sorted(known))}." if known else "It has none."
        raise UnknownParameter(f"This page has no parameter {named}. {which}")


def is_poll(request: HttpRequest) -> bool:
    """Whether htmx requests a live part of a page."""
    return request.headers.get("HX-Request") == "true"


def show(request: HttpRequest, template: str, page: Any, *, live: str = "", status: int = 200) -> HttpResponse:
    """The page; or, for a poll, only the live part."""
    if live and is_poll(request):
        response = _live_part(request, live, page)
    else:
        response = render(request, template, {"page": page}, status=status)
    # Never on the disk of a shared computer; also, the browser's own cache would turn a poll's 304 into a 200 again.
    response["Cache-Control"] = "no-store"
    patch_vary_headers(response, ("Cookie", "HX-Request"))
    return response


def show_problem(request: HttpRequest, problem: Problem) -> HttpResponse:
    """The refusal as a page, with its usual status."""
    shown = {"problem": problem, "request_id": current_request_id.get()}
    response = render(request, "problem.html", shown, status=problem.status)
    if problem.retry_after_seconds is not None:
        response["Retry-After"] = str(problem.retry_after_seconds)
    return response


def _live_part(request: HttpRequest, template: str, page: Any) -> HttpResponse:
    text = render_to_string(template, {"page": page}, request)
    tag = hashlib.sha256(text.encode()).hexdigest()[:24]
    known = {request.headers.get("HX-PTag", ""), request.headers.get("If-None-Match", "").strip('"')}
    response = HttpResponse(status=NOT_MODIFIED) if tag in known else HttpResponse(text)
    response["HX-PTag"] = tag
    response["ETag"] = f'"{tag}"'
    return response
