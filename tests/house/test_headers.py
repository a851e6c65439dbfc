"""What every answer tells the browser, on every route, for everybody, with every outcome."""

import json
import os
import subprocess
import sys
from datetime import timedelta
from functools import cache

import pytest
from django.conf import settings as live_settings
from django.contrib.messages.storage import default_storage
from django.contrib.sessions.models import Session
from django.core.exceptions import ImproperlyConfigured
from django.db import OperationalError
from django.http import HttpResponse
from django.test import Client
from django.urls import URLPattern, resolve

from config import environment as environment_readers
from foundation.clock import now
from foundation.edge.refusals import refusal
from foundation.edge.worker import _credential
from foundation.headers import PERMISSIONS_POLICY
from foundation.problems import InternalError, RateLimited, RequestTimeout
from tenancy.models import User
from tests.builders import bearer, bind, make_user

from .source import ROOT
from .test_routes import made_up, walk

pytestmark = pytest.mark.django_db
VERBS = {
    "stranger": ("get", "post"),
    "session": ("get", "post"),
    "token": ("get", "head", "post", "put", "patch", "delete", "options"),
    "operator": ("get",),
}
VERBS_OUTSIDE_THE_API = {**VERBS, "stranger": (), "token": ("get", "head", "post", "put", "options")}
"""There a token is no credential: its caller is a stranger. And to a page, PUT, PATCH and DELETE are the same: none has a handler."""
VERBS_OF_THE_ADMIN = {**VERBS_OUTSIDE_THE_API, "token": ("get", "post", "put")}
"""One wrapper answers strangers, whatever the view and the verb."""
YEAR = 31_536_000


def directives(policy):
    return {part.split()[0]: part.split()[1:] for part in policy.split(";") if part.split()}


def assert_sent(response, where, *, is_stored=False):
    """Everything that must be on an answer, whatever it says."""
    policy = directives(response.headers.get("Content-Security-Policy", ""))
    assert policy.get("default-src") == ["'none'"], where
    for name in ("script-src", "style-src", "connect-src", "form-action", "font-src", "manifest-src"):
        assert policy.get(name) == ["'self'"], (where, name)
    assert policy.get("img-src") == ["'self'", "data:"], where
    for name in ("base-uri", "frame-ancestors", "object-src"):
        assert policy.get(name) == ["'none'"], (where, name)
    assert "unsafe" not in str(policy), where
    assert "*" not in str(policy), where
    assert response.headers.get("Permissions-Policy") == PERMISSIONS_POLICY, where
    assert response.headers.get("X-Content-Type-Options") == "nosniff", where
    assert response.headers.get("X-Frame-Options") == "DENY", where
    assert response.headers.get("Referrer-Policy") == "same-origin", where
    assert response.headers.get("Cross-Origin-Opener-Policy") == "same-origin", where
    assert response.headers.get("Cross-Origin-Resource-Policy") == "same-origin", where
    assert "Access-Control-Allow-Origin" not in response.headers, where
    if not is_stored:
        assert "no-store" in response.headers.get("Cache-Control", ""), where


@pytest.fixture
def callers(client):
    """A stranger, a user with a session, one with a token, and a superuser: what is sent hangs on none of it."""
    user = make_user()
    root = User.objects.create_superuser("root@example.org")
    bind(user, "acme", "admin")
    session, operator = Client(), Client()
    session.force_login(user)
    operator.force_login(root)
    return {
        "stranger": (client, {}),
        "session": (session, {}),
        "token": (client, bearer(user)),
        "operator": (operator, {}),
    }


def addresses():
    paths = {
        made_up(route.replace("^", "").replace("$", "")) for route, pattern in walk() if isinstance(pattern, URLPattern)
    }
    return sorted({path.replace("(?P<url>.*)", "no-such-page") for path in paths})


def verbs_of(path):
    """The verbs to try, by caller. Of those for which a view of the API has no handler, one: the framework refuses them all alike."""
    if path.startswith("/admin/"):
        return VERBS_OF_THE_ADMIN
    if not path.startswith("/api/"):
        return VERBS_OUTSIDE_THE_API
    view = getattr(resolve(path).func, "cls", None)
    has_handler = {verb: hasattr(view, "get" if verb == "head" else verb) for verb in VERBS["token"]}
    refused = [verb for verb, has in has_handler.items() if not has]
    return {**VERBS, "token": tuple(verb for verb in VERBS["token"] if verb not in refused[1:])}


def test_every_route_sends_the_headers_with_every_verb_to_everybody(callers):
    statuses = set()
    for path in addresses():
        for name, (client, headers) in callers.items():
            for verb in verbs_of(path)[name]:
                body = {} if verb in {"get", "head", "options"} else {"data": b"{}", "content_type": "application/json"}
                response = getattr(client, verb)(path, **body, headers=headers)
                assert response.status_code < 500 or path == "/readyz", (path, name, verb)
                assert_sent(response, (path, name, verb, response.status_code))
                statuses.add(response.status_code)
    assert {200, 302, 401, 403, 404, 405, 422} <= statuses


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/jobs", {}, 301), ("/jobs/", {}, 302), ("/", {"Host": "evil.example"}, 400), ("/api/v1/jobs", {"Host": "evil.example"}, 400),
        ("/no/such/page/", {}, 404), ("/api/v9/", {}, 404), ("/api/v1/tenants", {"Accept": "text/html"}, 406), ("/admin/", {}, 302),
    ],
)  # fmt: skip
def test_redirects_and_refusals_send_them(client, path, headers, status):
    response = client.get(path, headers=headers)
    assert response.status_code == status
    assert_sent(response, path)


def test_a_form_without_its_token_is_refused_with_them():
    response = Client(enforce_csrf_checks=True).post("/login/", {"email": "a"})
    assert response.status_code == 403
    assert_sent(response, "csrf")


@pytest.mark.parametrize("path", ["/jobs/", "/api/v1/jobs"])
@pytest.mark.parametrize("error", [RuntimeError("a defect"), OperationalError("gone")])
def test_a_defect_and_an_absent_database_are_told_with_them(client, monkeypatch, path, error):
    def broken(*_, **__):
        raise error

    user = make_user()
    bind(user, "acme", "admin")
    client.force_login(user)
    monkeypatch.setattr("django.contrib.auth.middleware.get_user", broken)
    client.raise_request_exception = False
    response = client.get(path)
    assert response.status_code >= 500
    assert_sent(response, path)


def test_a_poll_answered_304_sends_them(client):
    user = make_user()
    bind(user, "acme", "admin")
    client.force_login(user)
    poll = {"HX-Request": "true"}
    first = client.get("/jobs/", headers=poll)
    again = client.get("/jobs/", headers={**poll, "HX-PTag": first["HX-PTag"]})
    assert again.status_code == 304
    assert_sent(again, "304")


@pytest.mark.parametrize("problem", [RequestTimeout(), RateLimited(retry_after_seconds=1), InternalError()])
def test_what_the_edge_answers_by_itself_sends_them(problem):
    head, _, _ = refusal(problem).decode().partition("\r\n\r\n")
    status, *lines = head.split("\r\n")
    told = HttpResponse(status=int(status.split()[1]), headers=dict(line.split(": ", 1) for line in lines))
    assert told.status_code == problem.status
    assert_sent(told, problem)


def test_the_edge_knows_a_session_by_its_cookie_under_either_name(settings):
    plain = _credential([("COOKIE", "theme=dark; sessionid=abc")])
    assert plain
    assert not _credential([("COOKIE", "xsessionid=abc; __Host-sessionid=abc")])
    settings.SESSION_COOKIE_NAME = "__Host-sessionid"
    assert _credential([("COOKIE", "a=b; __Host-sessionid=abc")]) == plain
    assert not _credential([("COOKIE", "sessionid=abc")]), "a neighbour could have planted it"


def test_static_files_send_them_and_may_be_stored(client, settings, tmp_path):
    settings.WHITENOISE_USE_FINDERS = settings.WHITENOISE_AUTOREFRESH = True
    fresh = Client()
    for path in ("/static/css/switchyard.css", "/static/js/switchyard.js", "/static/vendor/htmx/htmx.min.js"):
        response = fresh.get(path)
        assert response.status_code == 200, path
        assert_sent(response, path, is_stored=True)
        assert "no-store" not in response["Cache-Control"]
        response.close()
        again = fresh.get(path, headers={"If-Modified-Since": response["Last-Modified"]})
        assert again.status_code == 304
        assert_sent(again, path, is_stored=True)


LOOKED_AT = (
    "SESSION_COOKIE_NAME", "CSRF_COOKIE_NAME", "SESSION_COOKIE_SECURE", "CSRF_COOKIE_SECURE", "SECURE_HSTS_SECONDS",
    "SECURE_HSTS_INCLUDE_SUBDOMAINS", "SESSION_COOKIE_AGE", "DEBUG",
)  # fmt: skip


@cache
def booted(**environment):
    """Settings as they are read from this environment, in a process of its own."""
    # Without `django.setup()`, which takes most of the time: no application changes a setting.
    script = (
        "import json; from django.conf import settings as s;"
        f" print(json.dumps({{name: getattr(s, name) for name in {LOOKED_AT}}}))"
    )
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "DATABASE_URL", "REDIS_URL") if name in os.environ}
    secrets = {"SWITCHYARD_SECRET_KEY": "k" * 60, "SWITCHYARD_KEY_RING": os.environ["SWITCHYARD_KEY_RING"]}
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT, env={**kept, **secrets, "DJANGO_SETTINGS_MODULE": "config.settings", **environment},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return json.loads(done.stdout)


def cookies(**environment):
    return [booted(**environment)[name] for name in LOOKED_AT[:6]]


def test_over_tls_cookies_are_bound_to_the_host_and_hsts_is_on_for_a_year():
    assert cookies(SWITCHYARD_SECURE_COOKIES="1") == [
        "__Host-sessionid",
        "__Host-csrftoken",
        True,
        True,
        YEAR,
        True,
    ]
    less = booted(SWITCHYARD_SECURE_COOKIES="1", SWITCHYARD_HSTS_SECONDS="0", SWITCHYARD_HSTS_SUBDOMAINS="0")
    assert less["SECURE_HSTS_SECONDS"] == 0
    assert less["SECURE_HSTS_INCLUDE_SUBDOMAINS"] is False


def test_without_tls_nothing_demands_it():
    assert cookies() == ["sessionid", "csrftoken", False, False, 0, True]


def test_hsts_is_sent_behind_a_proxy_that_ends_tls(client, settings):
    settings.SECURE_HSTS_SECONDS, settings.SECURE_HSTS_INCLUDE_SUBDOMAINS = YEAR, True
    for path in ("/login/", "/api/v1/jobs", "/no/such/page/"):
        assert Client().get(path)["Strict-Transport-Security"] == f"max-age={YEAR}; includeSubDomains"
    settings.SECURE_HSTS_SECONDS = 0
    assert "Strict-Transport-Security" not in Client().get("/login/").headers


def test_every_cookie_is_for_this_host_alone_and_for_no_script(client, settings):
    settings.SESSION_COOKIE_SECURE = settings.CSRF_COOKIE_SECURE = True
    settings.SESSION_COOKIE_NAME, settings.CSRF_COOKIE_NAME = "__Host-sessionid", "__Host-csrftoken"
    user = make_user()
    user.set_password("correct-horse-battery")
    user.save()
    client = Client()
    client.get("/login/")
    client.post("/login/", {"email": user.email, "password": "correct-horse-battery"})
    assert {"__Host-sessionid", "__Host-csrftoken"} <= set(client.cookies)
    for name, cookie in client.cookies.items():
        assert cookie["secure"], cookie
        assert cookie["httponly"], cookie
        assert cookie["path"] == "/" or not name.startswith("__Host-"), cookie
        assert not cookie["domain"], cookie
        assert cookie["samesite"] in {"Lax", "Strict"}, cookie


def test_a_session_ends_by_itself_within_the_day(client):
    assert booted()["SESSION_COOKIE_AGE"] == 12 * 3600
    client.force_login(make_user())
    assert client.get("/jobs/").status_code == 200
    Session.objects.update(expire_date=now() - timedelta(seconds=1))
    assert client.get("/jobs/").status_code == 302


def test_messages_travel_in_the_session_and_make_no_cookie_of_their_own(rf):
    request = rf.get("/")
    request.session = {}
    assert type(default_storage(request)).__name__ == "SessionStorage"


@pytest.mark.parametrize("more", [{}, {"SWITCHYARD_SSL_REDIRECT": "1"}])
def test_djangos_own_deployment_checks_find_nothing(more):
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "DATABASE_URL", "REDIS_URL") if name in os.environ}
    environment = {
        **kept, "SWITCHYARD_SECRET_KEY": "abcdefghij" * 6, "SWITCHYARD_KEY_RING": os.environ["SWITCHYARD_KEY_RING"],
        "SWITCHYARD_SECURE_COOKIES": "1", "SWITCHYARD_ALLOWED_HOSTS": "switchyard.example.com", **more,
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "manage.py", "check", "--deploy", "--fail-level", "INFO"],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "no issues" in done.stdout


def test_debugging_is_off_unless_asked_for():
    assert booted()["DEBUG"] is False
    assert live_settings.DEBUG is False


def test_crawlers_are_sent_away_and_reporters_find_the_way(client, settings):
    assert client.get("/robots.txt").content == b"User-agent: *\nDisallow: /\n"
    settings.SECURITY_CONTACT = ""
    assert client.get("/.well-known/security.txt").status_code == 404
    settings.SECURITY_CONTACT = "mailto:security@example.org"
    response = client.get("/.well-known/security.txt")
    assert response["Content-Type"] == "text/plain; charset=utf-8"
    lines = dict(line.split(": ", 1) for line in response.content.decode().splitlines())
    assert lines["Contact"] == "mailto:security@example.org"
    assert lines["Expires"].endswith("Z")
    assert_sent(response, "security.txt")


@pytest.mark.parametrize(
    "text", ["security@example.org", "mailto:a\nPolicy: x", "javascript:alert(1)", "http://example.org/"]
)
def test_a_contact_that_is_no_address_stops_the_boot(monkeypatch, text):
    monkeypatch.setenv("SWITCHYARD_SECURITY_CONTACT", text)
    with pytest.raises(ImproperlyConfigured, match="SWITCHYARD_SECURITY_CONTACT"):
        environment_readers.checked("SWITCHYARD_SECURITY_CONTACT", "", environment_readers.check_contact)
