"""The menu marks the entry that the displayed page belongs to."""

from types import SimpleNamespace
from typing import Any

import pytest
from django.template.loader import render_to_string
from django.test import RequestFactory
from django.urls import URLResolver, get_resolver

from tenancy.models import User

pytestmark = pytest.mark.django_db
OF_PROGRAMS = ("admin", "api", "metrics", ".well-known", "healthz", "readyz", "robots.txt")
OF_STRANGERS = ("login", "logout", "sign-in", "confirm")


def routes(resolver, before=""):
    for pattern in resolver.url_patterns:
        route = before + str(pattern.pattern)
        yield from routes(pattern, route) if isinstance(pattern, URLResolver) else [route]


def entries_marked(route):
    request: Any = RequestFactory().get("/")
    request.user, request.resolver_match = User(email="user@acme.example"), SimpleNamespace(route=route)
    page = render_to_string("base.html", request=request)
    return [line.strip() for line in page.splitlines() if 'aria-current="page"' in line]


def test_each_page_belongs_to_one_entry():
    pages = {route for route in routes(get_resolver()) if route.split("/")[0] not in OF_PROGRAMS + OF_STRANGERS}
    assert {route: marked for route in pages if len(marked := entries_marked(route)) != 1} == {}


def test_the_form_of_a_job_is_an_entry_of_its_own():
    assert "Submit a job" in entries_marked("jobs/new/")[0]
    assert "Jobs" in entries_marked("jobs/")[0]
