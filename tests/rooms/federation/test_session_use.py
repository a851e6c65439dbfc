"""The use of sessions: when one is stopped, what the database refuses, and what people see."""

import pytest
from django.db import DatabaseError, connection, transaction
from django.test import Client

from federation import operations
from federation.engine.sessions import OPENING_PATH
from federation.models import Attempt, Job, JobEvent, SessionUse
from foundation.clock import now
from tenancy.models import AuditEntry
from tests.builders import actor_for, make_spec, submit

from .test_sessions import TENANT, attempt, colleague, opened, origins, program, ticket, user

pytestmark = pytest.mark.django_db
assert attempt  # fixtures
assert origins
assert program
assert user


def aged(attempt, seconds):
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")
        cursor.execute(
            "UPDATE federation_sessionuse SET last_used_at = now() - make_interval(secs => %s) WHERE attempt_id = %s",
            [seconds, attempt.id],
        )
        cursor.execute("SET session_replication_role = DEFAULT")


def test_a_session_is_stopped_after_it_was_not_used_and_never_before(user, attempt):
    assert operations.stop_unused_sessions() == 0
    assert SessionUse.objects.filter(attempt=attempt).exists()  # its time begins when it is first seen to run
    aged(attempt, 599)
    assert operations.stop_unused_sessions() == 0
    browser = opened(user, attempt)
    aged(attempt, 700)
    browser.get("/")
    assert operations.stop_unused_sessions() == 0
    aged(attempt, 601)
    Attempt.objects.filter(id=attempt.id).update(state="unknown", state_before_unknown="running")
    assert operations.stop_unused_sessions() == 0
    Attempt.objects.filter(id=attempt.id).update(state="running", state_before_unknown="")
    assert operations.stop_unused_sessions() == 0  # while nobody could reach it, it was not unused
    aged(attempt, 601)
    assert operations.stop_unused_sessions() == 1
    assert operations.stop_unused_sessions() == 0
    job = Job.objects.get(id=attempt.job_id)
    assert (job.state, Attempt.objects.get(id=attempt.id).stop_reason) == ("cancelling", "cancelled")
    assert "no request reached its session for 10 min" in JobEvent.objects.filter(job=job).latest("id").message
    [entry] = AuditEntry.objects.filter(action="session.idle", object_id=str(job.id))
    assert (entry.actor_name, entry.detail["idle_seconds"]) == ("system", 600)
    assert browser.get("/").status_code == 401


def test_after_a_restore_without_an_origin_and_while_another_stops_it_nothing_is_unused(
    user, attempt, settings, monkeypatch
):
    plain = submit(actor_for(user), {"tenant": TENANT, **make_spec()})
    operations.stop_unused_sessions()
    assert list(SessionUse.objects.values_list("attempt_id", flat=True)) == [attempt.id]
    aged(attempt, 10_000)
    with monkeypatch.context() as closed:
        closed.setattr("federation.operations.sessions.is_dispatch_closed", lambda: True)
        assert operations.stop_unused_sessions() == 0
    assert operations.stop_unused_sessions() == 0
    aged(attempt, 10_000)
    origin, settings.SESSION_ORIGIN = settings.SESSION_ORIGIN, None
    assert operations.stop_unused_sessions() == 0
    settings.SESSION_ORIGIN = origin
    assert operations.stop_unused_sessions() == 0
    aged(attempt, 10_000)
    Attempt.objects.filter(id=attempt.id).update(stop_requested_at=now(), stop_reason="suspended")
    assert operations.stop_unused_sessions() == 0
    assert Job.objects.get(id=plain.id).state == "queued"


def test_use_is_noted_once_a_minute(user, attempt):
    browser = opened(user, attempt)
    aged(attempt, 30)
    before = SessionUse.objects.get(attempt=attempt).last_used_at
    browser.get("/")
    assert SessionUse.objects.get(attempt=attempt).last_used_at == before
    aged(attempt, 61)
    browser.get("/")
    assert SessionUse.objects.get(attempt=attempt).last_used_at > before


def attack(statement, *values):
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement, values)
    except DatabaseError as refusal:
        return str(refusal)
    return "it was allowed"


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ("expires_at = expires_at + interval '1 s'", "one user, one attempt and one minute"), ("user_id = gen_random_uuid()", "one user"),
        ("attempt_id = gen_random_uuid()", "one user"), ("digest = '\\x00'", "one user"), ("epoch = 'x'", "one user"),
        ("used_at = now()", "a_ticket_is_used_in_time"), ("access_digest = '\\x00'", "a_ticket_is_used_in_time"),
        ("used_at = expires_at, access_digest = '\\x00', access_until = expires_at + interval '1 min'", "a_ticket_is_used_in_time"),
        ("used_at = created_at, access_digest = '\\x00', access_until = created_at + interval '61 min'", "a_ticket_is_used_in_time"),
    ],
)  # fmt: skip
def test_the_database_keeps_a_ticket_as_it_is(user, attempt, changes, refusal):
    ticket(user, attempt)
    assert refusal in attack(f"UPDATE federation_sessionticket SET {changes}")


def test_the_database_lets_a_ticket_be_used_once_and_use_move_only_forward(user, attempt):
    opened(user, attempt)
    for changes in (
        "used_at = NULL, access_digest = NULL, access_until = NULL",
        "access_until = access_until + interval '1 s'",
    ):
        assert "was used" in attack(f"UPDATE federation_sessionticket SET {changes}")
    for changes in ("last_used_at = last_used_at - interval '1 s'", "attempt_id = gen_random_uuid()"):
        assert "only moves forward" in attack(f"UPDATE federation_sessionuse SET {changes}")
    attack("UPDATE federation_sessionuse SET stopped_at = now()")
    assert "only moves forward" in attack("UPDATE federation_sessionuse SET stopped_at = NULL")
    row = "gen_random_uuid(), attempt_id, user_id, '\\x01', '', now(), now() + interval '61 s' FROM federation_sessionticket"
    told = attack(
        f"INSERT INTO federation_sessionticket (id, attempt_id, user_id, digest, epoch, created_at, expires_at) SELECT {row}"
    )
    assert "a_ticket_is_short" in told


def test_the_page_of_a_job_opens_its_session(user, attempt):
    browser = Client()
    browser.force_login(user)
    address = f"/jobs/{attempt.job_id}/session/"
    shown = browser.get(f"/jobs/{attempt.job_id}/").content.decode()
    assert address in shown
    assert "on port 8888, stopped after 10 min without a request" in shown
    page = browser.post(address)
    assert page.status_code == 200
    assert f"https://{attempt.id.hex}.sessions.example{OPENING_PATH}#" in page.content.decode()
    viewer = Client()
    viewer.force_login(colleague("viewer"))
    assert address not in viewer.get(f"/jobs/{attempt.job_id}/").content.decode()
    assert viewer.post(address).status_code == 403
    Attempt.objects.filter(id=attempt.id).update(stop_requested_at=now(), stop_reason="cancelled")
    assert address not in browser.get(f"/jobs/{attempt.job_id}/").content.decode()
    assert browser.post(address).status_code == 302


def test_the_submit_form_makes_a_session(user, settings):
    browser = Client()
    browser.force_login(user)
    form = {
        "by": "form", "tenant": TENANT, "name": "notebook", "count": "1", "kind": "none", "image": "registry.example/lab:1", "cpu": "1",
        "memory": "1Gi", "session_port": "8888", "session_idle": "30", "deadline_minutes": "60",
    }  # fmt: skip
    assert "session_port" in browser.get("/jobs/new/").content.decode()
    browser.post("/jobs/new/", {**form, "show": "offers"})
    refused = browser.post("/jobs/new/", {**form, "session_port": "80"})
    assert "must be between 1024 and 65535" in refused.content.decode()
    settings.SESSION_ORIGIN = None
    assert "session_port" not in browser.get("/jobs/new/").content.decode()
