"""Every path of the HTTP interface, whichever room it belongs to: strangers and foreigners learn nothing."""

import uuid

import pytest
from django.urls import URLPattern, get_resolver
from rest_framework.views import APIView

from tests.builders import bearer, bind, make_user

pytestmark = pytest.mark.django_db
VERBS = ("get", "post", "put", "patch", "delete")
OPEN_TO_ALL_USERS = {"schema", "docs"}


def walk(patterns=None, prefix="/"):
    """(path with its parameters, pattern) of everything that has an address."""
    for pattern in get_resolver().url_patterns if patterns is None else patterns:
        route = prefix + str(pattern.pattern)
        if isinstance(pattern, URLPattern):
            yield route, pattern
        else:
            yield from walk(pattern.url_patterns, route)


def routes():
    """(path with its parameters, verb, whether it names a thing) of every API view."""
    found = []
    for route, pattern in walk():
        view = getattr(pattern.callback, "cls", type)
        if issubclass(view, APIView) and pattern.name not in OPEN_TO_ALL_USERS:
            found.extend((route, verb, "<" in route) for verb in VERBS if hasattr(view, verb))
    return sorted(found)


def made_up(route):
    parts = [
        str(uuid.uuid4()) if part.startswith("<uuid:") else "none" if part.startswith("<") else part
        for part in route.split("/")
    ]
    return "/".join(parts)


def test_the_walk_finds_the_routes():
    known = {route for route, _, _ in routes()}
    assert {"/api/v1/tenants", "/api/v1/tokens/<uuid:token_id>", "/api/v1/audit"} <= known


def test_a_stranger_gets_401_on_every_route(client):
    for route, verb, _ in routes():
        response = getattr(client, verb)(
            made_up(route), data=None if verb == "get" else b"{}", content_type="application/json"
        )
        assert (response.status_code, response.json()["code"]) == (401, "not_authenticated"), (verb, route)


def test_a_thing_that_is_not_there_is_refused_without_a_defect_on_every_route(client):
    user = make_user()
    bind(user, "acme", "admin")
    headers = bearer(user)
    for route, verb, names_a_thing in routes():
        if names_a_thing:
            response = getattr(client, verb)(
                made_up(route), data=None if verb == "get" else b"{}", content_type="application/json", headers=headers
            )
            assert response.status_code in {404, 422}, (verb, route, response.content)
            assert response["Content-Type"] == "application/problem+json", (verb, route)


def test_bodies_of_the_wrong_kind_are_refused_on_every_writing_route(client):
    user = make_user()
    bind(user, "acme", "admin")
    headers = bearer(user)
    for route, verb, _ in routes():
        if verb in {"post", "put", "patch"}:
            for body in (b"[]", b"7", b'{"no_such_field": 1}', b"{", b"\xff"):
                response = getattr(client, verb)(
                    made_up(route), data=body, content_type="application/json", headers=headers
                )
                assert 400 <= response.status_code < 500, (verb, route, body, response.content)
                assert response["Content-Type"] == "application/problem+json", (verb, route)


def test_a_parameter_nobody_declared_is_refused_on_every_route(client):
    headers = bearer(make_user())
    for route, verb, _ in routes():
        if verb == "get":
            response = client.get(f"{made_up(route)}?no_such_parameter=1", headers=headers)
            assert response.status_code == 422, (route, response.content)
            assert response.json()["errors"][0]["code"] == "unknown_filter", route


def test_the_operators_admin_is_for_staff_alone(client):
    user = make_user()
    bind(user, "acme", "admin")
    routes_of_the_admin = [made_up(route) for route, _ in walk() if route.startswith("/admin/") and "(" not in route]
    assert len(routes_of_the_admin) > 30
    for is_signed_in in (False, True):
        if is_signed_in:
            client.force_login(user)
        for path in routes_of_the_admin:
            answer = client.get(path)
            assert answer.status_code in {302, 403, 404, 405}, path
            if answer.status_code == 302:
                assert answer["Location"].startswith(("/admin/", "/login/")), (path, answer["Location"])


def pages():
    """The route of every page without an id in its path."""
    return sorted({r for r, _ in walk() if "<" not in r and "(" not in r and not r.startswith(("/api/", "/admin/"))})


def parameters(client, route):
    """Those that a page has, which it names when it refuses another one; of a page that refuses none, usual ones."""
    told = client.get(route, {"colour": "a\x00"})
    assert told.status_code < 500, route
    text = told.content.decode() if told.status_code == 400 else "It has: tenant, q, cursor."
    return [name for name in text.partition("It has: ")[2].partition(".")[0].split(", ") if name]


def test_a_nul_in_the_query_string_breaks_no_page(client):
    user = make_user()
    bind(user, "acme", "admin")
    client.force_login(user)
    found = {route: parameters(client, route) for route in pages()}
    assert {"tenant", "state", "cluster", "label", "q", "cursor"} <= set(found["/jobs/"])
    assert {"actor", "action", "object", "month", "limit", "from"} <= {name for own in found.values() for name in own}
    for route, names in found.items():
        for name in names:
            assert client.get(route, {name: "a\x00"}).status_code < 500, (route, name)
