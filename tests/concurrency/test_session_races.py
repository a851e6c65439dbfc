"""Many with one ticket, and the sweep against a request: a ticket opens once, and what is used in time is not stopped."""

from urllib.parse import urlsplit

import pytest
from django.db import connection

from federation import operations
from federation.engine.sessions import read_origin
from federation.locks import lock_job
from federation.models import Attempt, Job, SessionTicket, SessionUse
from tests.builders import actor_for, bind, make_cluster, make_spec, make_user, submit
from tests.rooms.federation.test_jobs_api import make_attempt

from .test_people_races import at_once

pytestmark = pytest.mark.django_db(transaction=True)
MANY = 8


@pytest.fixture
def session(settings):
    """A user's running session."""
    settings.SESSION_ORIGIN = read_origin("https://*.sessions.example")
    user = make_user()
    bind(user, "acme", "submitter")
    wanted = {"session": {"port": 8888, "idle_seconds": 600}, "deadline_seconds": 3600}
    job = submit(actor_for(user), {"tenant": "acme", **make_spec(**wanted)})
    attempt = make_attempt(job, cluster=make_cluster("acme"), state="running")
    Job.objects.filter(id=job.id).update(state="running")
    return user, attempt


def test_many_use_one_ticket_and_one_of_them_opens_the_session(session):
    user, attempt = session
    secret = urlsplit(operations.issue_ticket(actor_for(user), attempt.job_id).url).fragment
    found = at_once(*[lambda: operations.redeem(attempt.id, secret)] * MANY)
    assert len([one for one in found if one is not None]) == 1
    assert SessionTicket.objects.filter(used_at__isnull=False).count() == 1


def test_a_request_that_comes_before_the_stop_is_decided_keeps_the_session(session, monkeypatch):
    _, attempt = session
    operations.stop_unused_sessions()
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE federation_sessionuse DISABLE TRIGGER a_sessions_use_moves_forward")
        cursor.execute("UPDATE federation_sessionuse SET last_used_at = now() - interval '1 h'")
        cursor.execute("ALTER TABLE federation_sessionuse ENABLE TRIGGER a_sessions_use_moves_forward")

    def used_meanwhile(job_id):
        operations.note_use(attempt.id)
        return lock_job(job_id)

    monkeypatch.setattr("federation.operations.sessions.lock_job", used_meanwhile)
    assert operations.stop_unused_sessions() == 0
    assert Attempt.objects.get(id=attempt.id).stop_requested_at is None
    assert SessionUse.objects.get().stopped_at is None


def test_two_sweeps_stop_a_session_once(session):
    operations.stop_unused_sessions()
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE federation_sessionuse DISABLE TRIGGER a_sessions_use_moves_forward")
        cursor.execute("UPDATE federation_sessionuse SET last_used_at = now() - interval '1 h'")
        cursor.execute("ALTER TABLE federation_sessionuse ENABLE TRIGGER a_sessions_use_moves_forward")
    assert sorted(at_once(operations.stop_unused_sessions, operations.stop_unused_sessions)) == [0, 1]
