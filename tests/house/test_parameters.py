"""No page takes a parameter that it does not know: an ignored filter shows more than was asked for."""

import pytest
from django.test import Client
from django.urls import URLPattern

from tests.builders import bind, make_user

from .test_routes import made_up, walk

pytestmark = pytest.mark.django_db
NOT_BEHIND_THE_DOOR = (
    "/api/",
    "/admin/",
    "/login/",
    "/logout/",
    "/sign-in/",
    "/confirm/",
    "/metrics",
    "/healthz",
    "/readyz",
    "/robots",
    "/.well",
)


def pages():
    """Addresses of everything that is a page for somebody signed in."""
    paths = {made_up(route) for route, pattern in walk() if isinstance(pattern, URLPattern)}
    return sorted(path for path in paths if not path.startswith(NOT_BEHIND_THE_DOOR))


@pytest.fixture
def signed_in():
    user = make_user()
    bind(user, "acme", "admin")
    client = Client()
    client.force_login(user)
    return client


def test_every_page_refuses_a_parameter_that_it_does_not_know_in_words(signed_in):
    assert {"/", "/jobs/", "/usage/", "/audit/"} <= set(pages())
    for path in pages():
        answer = signed_in.get(path, {"colour": "red"})
        if answer.status_code == 405 == signed_in.get(path).status_code:  # only ever posted to
            continue
        assert answer.status_code == 400, path
        text = answer.content.decode()
        assert "This page has no parameter “colour”." in text, path
        assert 'aria-label="Main"' in text, "in our layout"


def test_the_refusal_names_the_parameters_that_there_are(signed_in):
    page = signed_in.get("/jobs/?q=x&colour=red&by=%3Cb%3E").content.decode()
    assert "no parameter “by”, “colour”. It has: cluster, cursor, label, q, state, tenant." in page
    assert "It has none." in signed_in.get("/tokens/?colour=red").content.decode()
    assert "“" + "x" * 60 + "”" in signed_in.get("/", {"x" * 2000: ""}).content.decode()


def test_what_the_api_has_the_pages_call_by_the_same_name(signed_in):
    """Where a list is on a page and in the API, a filter of both has one name; `q` and `cursor` are the page's own."""
    own = {"q", "cursor"}
    for page, path in (
        ("/jobs/", "jobs"),
        ("/usage/", "usage"),
        ("/quotas/", "quotas"),
        ("/audit/", "audit"),
        ("/reservations/", "reservations"),
    ):
        told = signed_in.get(page, {"colour": ""}).content.decode()
        names = set(told.partition("It has: ")[2].partition(".")[0].split(", ")) - own
        for name in names:
            answer = signed_in.get(f"/api/v1/{path}", {name: ""})
            assert "unknown_filter" not in answer.content.decode(), (page, name)
