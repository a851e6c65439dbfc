"""A session on a cluster, from its submission to its end because it was not used."""

from urllib.parse import urlsplit

import pytest
from django.db import connection
from django.test import Client

from billing.models import Meter
from federation import operations
from federation.engine.sessions import OPENING_PATH, read_origin
from federation.models import Attempt, Job, SessionUse
from quotas.models import Hold
from tests.builders import submit
from tests.live import call, gpu_job, observe_until

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_session_runs_is_opened_answers_and_is_stopped_when_it_is_not_used(cluster, submitter, settings):
    settings.SESSION_ORIGIN = read_origin("https://*.sessions.example")
    wanted = {"session": {"port": 8888, "idle_seconds": 300}, "deadline_seconds": 3600}
    job = submit(submitter, gpu_job(seconds=100_000) | wanted)
    observe_until(lambda: Job.objects.filter(state="running").exists())
    attempt = Attempt.objects.get(job=job)
    ticket = operations.issue_ticket(submitter, job.id)
    browser = Client(headers={"Host": urlsplit(ticket.url).netloc})
    secret, own = urlsplit(ticket.url).fragment, f"https://{attempt.id.hex}.sessions.example"
    assert browser.post(OPENING_PATH, {"ticket": secret}, headers={"Origin": own}).status_code == 303
    answer = browser.get("/lab?a=b")
    assert answer.status_code == 200
    assert answer.content.decode().startswith("GET /lab?a=b on 8888\n")
    assert secret not in answer.content.decode()
    assert browser.cookies["__Host-switchyard-session"].value not in answer.content.decode()

    operations.sweep()
    job.refresh_from_db()
    assert job.state == "running"
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE federation_sessionuse DISABLE TRIGGER a_sessions_use_moves_forward")
        SessionUse.objects.update(last_used_at="2026-01-01T00:00:00Z")
        cursor.execute("ALTER TABLE federation_sessionuse ENABLE TRIGGER a_sessions_use_moves_forward")
    operations.sweep()
    observe_until(lambda: Job.objects.filter(state="cancelled").exists())
    job.refresh_from_db()
    attempt.refresh_from_db()
    assert (job.reason_code, attempt.state, attempt.end_reason) == ("session_idle", "cancelled", "cancelled")
    assert call(cluster, "list_jobs") == []
    observe_until(lambda: Attempt.objects.filter(settled_at__isnull=False).exists())
    assert (Hold.objects.get(holder_id=attempt.id).state, Meter.objects.get(run_id=attempt.id).is_closed) == (
        "posted",
        True,
    )
    assert browser.get("/").status_code == 401
