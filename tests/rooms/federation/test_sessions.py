"""Sessions: who gets a ticket, what it opens and what it never opens, and what ends a session."""

from urllib.parse import urlsplit

import pytest
from django.db import connection
from django.test import Client

import clusters.queries
from clusters.drivers import NotAnswered, PortAnswer, Unreachable
from federation.engine.sessions import MOST_OPEN_TICKETS, OPENING_PATH, read_origin
from federation.models import Attempt, Job, PodRun, SessionTicket
from federation.web.session_places import Places
from foundation.clock import now
from foundation.ids import new_id
from tenancy.models import ApiToken, AuditEntry, RoleBinding
from tenancy.operations import end_sessions
from tests.builders import actor_for, bearer, bind, join, make_cluster, make_spec, make_user, submit

from .test_jobs_api import make_attempt

pytestmark = pytest.mark.django_db
COOKIE = "__Host-switchyard-session"
TENANT = "acme/vision"
SESSION = {"session": {"port": 8888, "idle_seconds": 600}, "deadline_seconds": 3600}


class Program:
    """What the session's program was asked, and what it answers."""

    def __init__(self):
        self.asked = []
        self.answer = PortAnswer(
            200, [("Content-Type", "text/html"), ("Set-Cookie", "sessionid=theft")], b"<p>hello</p>"
        )

    async def ask_pod(self, namespace, pod, port, request):
        self.asked.append((namespace, pod, port, request))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture(autouse=True)
def origins(settings):
    settings.SESSION_ORIGIN = read_origin("https://*.sessions.example")


@pytest.fixture(autouse=True)
def program(monkeypatch):
    found = Program()
    monkeypatch.setattr(clusters.queries, "driver_of", lambda _: found)
    return found


@pytest.fixture
def user():
    found = make_user("ada@acme.example")
    bind(found, TENANT, "submitter")
    return found


def running(user, **changes):
    """The running attempt of a new session."""
    job = submit(actor_for(user), {"tenant": TENANT, **make_spec(**(SESSION | changes))})
    attempt = make_attempt(job, cluster=make_cluster("acme"), state="running", namespace="swy-1", started_at=now())
    Job.objects.filter(id=job.id).update(state="running")
    PodRun.objects.create(
        attempt=attempt, cluster_id=attempt.cluster_id, remote_object=attempt.remote_objects.get(), place=0, uid=f"u{attempt.id}",
        name="pod-1", node="n1", phase="Running", observed_at=now(),
    )  # fmt: skip
    return attempt


@pytest.fixture
def attempt(user):
    return running(user)


def ticket(user, attempt, status=201, **headers):
    answer = Client().post(f"/api/v1/jobs/{attempt.job_id}/tickets", headers=bearer(user) | headers)
    assert answer.status_code == status, answer.content
    return answer.json()


class Browser(Client):
    """A browser at the origin of an attempt."""

    def __init__(self, attempt):
        self.host = f"{attempt.id.hex}.sessions.example"
        super().__init__(headers={"Host": self.host})

    def redeem(self, secret, origin=None):
        sent = {"Origin": origin or f"https://{self.host}"}
        return self.post(OPENING_PATH, {"ticket": secret}, headers=sent)


def opened(user, attempt):
    """A browser that opened the session with a ticket."""
    browser = Browser(attempt)
    url = urlsplit(ticket(user, attempt)["url"])
    assert (url.netloc, url.path) == (browser.host, OPENING_PATH)
    answer = browser.redeem(url.fragment)
    assert (answer.status_code, answer["Location"]) == (303, "/")
    return browser


def test_a_ticket_opens_the_session_in_one_browser(user, attempt, program):
    told = ticket(user, attempt)
    assert told["attempt"] == str(attempt.id)
    secret = urlsplit(told["url"]).fragment
    browser = Browser(attempt)
    page = browser.get(OPENING_PATH)
    assert page.status_code == 200
    assert secret not in page.content.decode()
    assert "script-src 'sha256-" in page["Content-Security-Policy"]
    answer = browser.redeem(secret)
    cookie = answer.cookies[COOKIE]
    assert (cookie["secure"], cookie["httponly"], cookie["samesite"], cookie["path"], cookie["domain"]) == (
        True,
        True,
        "Strict",
        "/",
        "",
    )
    assert 0 < cookie["max-age"] <= 3600

    sent = {
        "Authorization": "Bearer swy_mine",
        "X-Mine": "yes",
        "X-Forwarded-For": "1.2.3.4",
        "Sec-Fetch-Site": "same-origin",
    }
    answer = browser.post("/api/x?y=%00&z=%2F", b"\x00body", content_type="text/plain", headers=sent)
    assert (answer.status_code, answer.content, answer["Content-Type"]) == (200, b"<p>hello</p>", "text/html")
    [(namespace, pod, port, request)] = program.asked
    assert (namespace, pod, port) == ("swy-1", "pod-1", 8888)
    assert (request.method, request.target, request.body) == ("POST", "/api/x?y=%00&z=%2F", b"\x00body")
    assert [item for item in request.headers if item[0] != "sec-fetch-site"] == [
        ("host", browser.host), ("accept-encoding", "identity"), ("x-mine", "yes"), ("content-type", "text/plain")
    ]  # fmt: skip
    assert not answer.cookies
    assert answer["Content-Security-Policy"] == "frame-ancestors 'self'"
    assert (answer["Cache-Control"], answer["X-Content-Type-Options"]) == ("no-store", "nosniff")
    actions = AuditEntry.objects.filter(object_id=str(attempt.job_id), action__startswith="session.").order_by("at")
    assert [(entry.action, entry.actor_name) for entry in actions] == [
        ("session.ticket", user.email),
        ("session.open", user.email),
    ]
    stored = SessionTicket.objects.get()
    assert secret not in repr(vars(stored))
    assert cookie.value not in repr(vars(stored))
    assert secret not in repr([entry.detail for entry in AuditEntry.objects.all()])


def test_a_ticket_opens_once_in_time_and_only_its_own_session(user, attempt):
    other = running(user)
    secret = urlsplit(ticket(user, attempt)["url"]).fragment
    assert Browser(other).redeem(secret).status_code == 401
    for evil in (
        "https://evil.example",
        "null",
        f"http://{attempt.id.hex}.sessions.example",
        f"https://{other.id.hex}.sessions.example",
    ):
        assert Browser(attempt).redeem(secret, evil).status_code == 403
    assert Browser(attempt).post(OPENING_PATH, {"ticket": secret}).status_code == 403
    assert Browser(attempt).get(f"{OPENING_PATH}?ticket={secret}").status_code == 200
    own = {"Origin": f"https://{Browser(attempt).host}"}
    for body, kind in (
        (b"x" * 3_000_000, "application/x-www-form-urlencoded"), (b"&".join([b"a=b"] * 2000), "application/x-www-form-urlencoded"),
        (b"--x", "multipart/form-data; boundary="), (b"ticket=\xff", "multipart/form-data"),
    ):  # fmt: skip
        answer = Browser(attempt).post(OPENING_PATH, body, content_type=kind, headers=own)
        assert (answer.status_code, answer["Content-Type"]) == (400, "text/plain; charset=utf-8")
    assert Browser(attempt).redeem(secret).status_code == 303
    assert Browser(attempt).redeem(secret).status_code == 401
    for wrong in ("", "x", "x" * 10_000, "\x00", secret.upper()):
        assert Browser(attempt).redeem(wrong).status_code == 401
    late = urlsplit(ticket(user, attempt)["url"]).fragment
    with connection.cursor() as cursor:  # made two minutes ago, as the database would have stored it then
        cursor.execute("SET session_replication_role = replica")
        cursor.execute(
            "UPDATE federation_sessionticket SET created_at = created_at - interval '2 min', expires_at = expires_at - interval '2 min'"
            " WHERE used_at IS NULL"
        )
        cursor.execute("SET session_replication_role = DEFAULT")
    assert Browser(attempt).redeem(late).status_code == 401


def test_a_cookie_opens_only_its_own_session_and_ends(user, attempt, program):
    other = running(user)
    browser = opened(user, attempt)
    strange = Browser(other)
    strange.cookies[COOKIE] = browser.cookies[COOKIE].value
    assert strange.get("/").status_code == 401
    assert browser.get("/").status_code == 200
    SessionTicket.objects.all()
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")
        cursor.execute(
            "UPDATE federation_sessionticket SET created_at = created_at - interval '2 h', expires_at = expires_at - interval '2 h',"
            " used_at = used_at - interval '2 h', access_until = access_until - interval '2 h'"
        )
        cursor.execute("SET session_replication_role = DEFAULT")
    asked = len(program.asked)
    assert browser.get("/").status_code == 401
    assert len(program.asked) == asked


def colleague(role):
    found = make_user()
    if role:
        bind(found, TENANT, role)
    else:
        join(found, TENANT)
    return found


@pytest.mark.parametrize(
    ("role", "status"),
    [("viewer", 403), ("submitter", 403), ("manager", 403), ("finance", 403), ("admin", 201), ("", 404)],
)
def test_who_gets_a_ticket_for_anothers_session(attempt, role, status):
    ticket(colleague(role), attempt, status)


def test_a_stranger_and_a_narrow_token_get_no_ticket(user, attempt):
    assert Client().post(f"/api/v1/jobs/{attempt.job_id}/tickets").status_code == 401
    assert Client().post(f"/api/v1/jobs/{attempt.job_id}/tickets", headers=bearer(user, "read")).status_code == 403
    assert Client().post(f"/api/v1/jobs/{new_id()}/tickets", headers=bearer(user)).status_code == 404
    outsider = make_user()
    bind(outsider, "other", "admin")
    ticket(outsider, attempt, 404)


def revoke(user, attempt):
    ApiToken.objects.update(revoked_at=now())


def expire(user, attempt):
    ApiToken.objects.update(expires_at=now())


def change_password(user, attempt):
    user.set_password("another long password")
    user.save(update_fields=["password"])


LOSSES = {
    "the token that made the ticket is revoked": revoke,
    "it expires": expire,
    "the user signs out everywhere": lambda user, _: end_sessions(actor_for(user), user.id, with_tokens=False),
    "the user gets a new password": change_password,
    "the user is deactivated": lambda user, _: type(user).objects.filter(id=user.id).update(is_active=False),
    "the user loses the role": lambda user, _: RoleBinding.objects.filter(user=user).delete(),
    "a stop is requested": lambda _, attempt: Attempt.objects.filter(id=attempt.id).update(stop_requested_at=now(), stop_reason="cancelled"),
    "the cluster is lost": lambda _, attempt: Attempt.objects.filter(id=attempt.id).update(state="unknown", state_before_unknown="running"),
    "the run ends": lambda _, attempt: Attempt.objects.filter(id=attempt.id).update(state="failed", finished_at=now()),
}  # fmt: skip


@pytest.mark.parametrize("loss", LOSSES)
def test_an_open_session_and_a_ticket_are_worth_nothing_once(user, attempt, program, loss):
    browser = opened(user, attempt)
    waiting = urlsplit(ticket(user, attempt)["url"]).fragment
    assert browser.get("/").status_code == 200
    LOSSES[loss](user, attempt)
    asked = len(program.asked)
    assert browser.get("/").status_code == 401
    assert Browser(attempt).redeem(waiting).status_code == 401
    assert len(program.asked) == asked


def test_there_is_no_ticket_for_what_cannot_be_opened(user, attempt, settings):
    plain = submit(actor_for(user), {"tenant": TENANT, **make_spec()})
    waiting = submit(actor_for(user), {"tenant": TENANT, **make_spec(**SESSION)})
    for job in (plain, waiting):
        answer = Client().post(f"/api/v1/jobs/{job.id}/tickets", headers=bearer(user))
        assert (answer.status_code, answer.json()["code"]) == (409, "state_conflict")
    for _ in range(MOST_OPEN_TICKETS):
        ticket(user, attempt)
    ticket(user, attempt, 429)
    settings.SESSION_ORIGIN = None
    ticket(user, attempt, 409)
    answer = Client().post(
        "/api/v1/jobs",
        {"tenant": TENANT, **make_spec(**SESSION)},
        content_type="application/json",
        headers=bearer(user),
    )
    assert answer.status_code == 422
    assert "SWITCHYARD_SESSION_ORIGIN" in answer.json()["errors"][0]["detail"]


@pytest.mark.parametrize(
    "path",
    ["/", "/login/", "/jobs/", "/api/v1/jobs", "/admin/", "/healthz", "/readyz", "/static/app.css", "/robots.txt"],
)
def test_the_gateway_serves_nothing_of_its_own_at_an_origin_of_sessions(user, attempt, program, path):
    signed_in = Browser(attempt)
    signed_in.force_login(user)
    for client in (
        signed_in,
        Client(headers={"Host": "sessions.example"}),
        Client(headers={"Host": "x.y.sessions.example:99"}),
    ):
        for headers in ({}, bearer(user)):
            answer = client.get(path, headers=headers)
            assert answer.status_code in (401, 404)
            assert answer["Content-Type"] == "text/plain; charset=utf-8"
            assert not answer.cookies
    assert program.asked == []


def test_a_stranger_at_an_origin_of_sessions_costs_no_query(attempt, django_assert_num_queries):
    with django_assert_num_queries(0):
        for client in (Browser(attempt), Client(headers={"Host": "x.sessions.example"})):
            assert client.get("/").status_code in (401, 404)
            assert client.get(OPENING_PATH).status_code in (200, 404)
            assert client.post(OPENING_PATH, {"ticket": "x"}).status_code in (403, 404)


def test_the_cookie_of_a_session_is_nothing_to_the_gateway(user, attempt):
    browser = opened(user, attempt)
    value = browser.cookies[COOKIE].value
    gateway = Client()
    gateway.cookies[COOKIE] = gateway.cookies["sessionid"] = value
    assert gateway.get("/api/v1/jobs").status_code == 401
    assert gateway.get("/jobs/").status_code == 302
    assert Client(headers={"Host": "evil.example"}).get("/").status_code == 400


def test_requests_of_other_sites_and_sessions_reach_no_program(user, attempt, program):
    browser, other = opened(user, attempt), running(user)
    for headers in (
        {"Origin": f"https://{other.id.hex}.sessions.example"}, {"Sec-Fetch-Site": "same-site"}, {"Sec-Fetch-Site": "cross-site"}, {},
    ):  # fmt: skip
        assert browser.post("/", {"a": "b"}, headers=headers).status_code == 403
    assert browser.get("/", headers={"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"}).status_code == 403
    for method in ("TRACE", "CONNECT", "PROPFIND"):
        assert browser.generic(method, "/", headers={"Sec-Fetch-Site": "none"}).status_code == 405
    large = browser.post("/", b"x" * 3_000_000, content_type="text/plain", headers={"Sec-Fetch-Site": "same-origin"})
    assert large.status_code == 413
    assert program.asked == []


@pytest.mark.parametrize(
    ("answer", "status", "told"),
    [
        (NotAnswered("no answer within 30 s", status=504), 504, "no answer within 30 s"), (Unreachable("calls are paused"), 502, "paused"),
        (PortAnswer(200, [("Content-Encoding", "gzip")], b"x"), 502, "cannot be passed on"), (PortAnswer(101), 502, "cannot be passed on"),
        (PortAnswer(999), 502, "cannot be passed on"), (PortAnswer(404, [], b"no"), 404, "no"),
        (PortAnswer(302, [("Location", "https://elsewhere.example/")]), 302, ""),
    ],
)  # fmt: skip
def test_what_a_program_answers_wrongly_is_said_and_nothing_is_followed(user, attempt, program, answer, status, told):
    browser = opened(user, attempt)
    program.answer = answer
    got = browser.get("/")
    assert (got.status_code, told in got.content.decode()) == (status, True)
    assert len(program.asked) == 1


def test_a_session_without_a_running_pod_says_so_and_another_attempts_pod_is_not_asked(user, attempt, program):
    running(user)
    browser = opened(user, attempt)
    PodRun.objects.filter(attempt=attempt).update(is_gone=True)
    assert browser.get("/").status_code == 502
    assert program.asked == []


def test_slow_programs_leave_threads_to_the_gateway(user, attempt, program, monkeypatch):
    monkeypatch.setattr("federation.web.session_places.WAITING_SECONDS", 0.01)
    places, one, two, ann, bob = Places(8), new_id(), new_id(), new_id(), new_id()
    assert [places.take(one, ann) for _ in range(4)] == [True, True, True, False]
    assert [places.take(two, ann), places.take(two, bob), places.take(two, bob)] == [False, True, False]
    places.give_back(one, ann)
    assert [places.take(one, bob), places.take(two, ann)] == [True, False]
    for whose in ((one, ann), (one, ann), (two, bob), (one, bob)):
        places.give_back(*whose)
    assert [places.take(new_id(), ann) for _ in range(4)] == [True, True, True, False], "a user with many sessions"
    assert not places._waiting
    assert [Places(1).take(one, ann), Places(1).take(two, None)] == [True, True]
    browser = opened(user, attempt)
    monkeypatch.setattr(Places, "take", lambda *_: False)
    answer = browser.get("/")
    assert (answer.status_code, answer["Retry-After"], program.asked) == (503, "1", [])
