"""Runs on a cluster get what they need to report, and continue from what earlier runs reported."""

import base64
import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection, transaction

from clusters.drivers.simulated import SimulatedDriver
from clusters.engine.permissions import CREATE_SECRETS
from federation import operations
from federation.engine.lifecycle import AttemptState
from federation.models import Attempt, Job, Progress
from federation.operations.consequences import Ending
from federation.operations.endings import end_attempts
from federation.operations.reports import record_report
from foundation.problems import NotAuthenticated
from placement.values.reason_codes import ReasonCode
from tenancy.models import User
from tests.builders import bearer, submit
from tests.live import gpu_job, observe_until
from tests.rooms.federation.test_reports import (
    CHECKPOINT,
    URL,
    reported,
    sent_to,
    takes_reports,
    token_of,
    variables_of,
)

__all__ = ["takes_reports"]
pytestmark = pytest.mark.django_db(transaction=True)


def record_report_once(attempt):
    operations.admit_report(attempt.id)
    assert record_report(attempt.id, reported(1, checkpoint={"reference": CHECKPOINT}))


def everything_stored():
    """Every row of every table, as text."""
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names(cursor):
            cursor.execute(f'SELECT row_to_json(t)::text FROM "{table}" AS t')
            yield "\n".join(row[0] for row in cursor.fetchall())


def test_the_token_is_in_a_secret_of_the_job_and_nowhere_else(cluster, submitter, monkeypatch, caplog, client):
    sent, kept = sent_to(monkeypatch, "create_job"), sent_to(monkeypatch, "create_secret")
    caplog.set_level(0)
    job = submit(submitter, {**gpu_job(seconds=600), "reports": True})
    observe_until(lambda: Job.objects.filter(state="running").exists())
    attempt, token = Attempt.objects.get(), token_of(Attempt.objects.get())
    [secret] = kept
    assert base64.b64decode(secret["data"]["token"]).decode() == token
    assert secret["metadata"]["ownerReferences"][0]["uid"] == attempt.remote_objects.get().uid
    [container] = sent[0]["spec"]["template"]["spec"]["containers"]
    variables = {one["name"]: one for one in container["env"]}
    assert variables["SWITCHYARD_REPORT_URL"]["value"] == f"{URL}/api/v1/attempts/{attempt.id}/reports"
    source = variables["SWITCHYARD_REPORT_TOKEN"]["valueFrom"]["secretKeyRef"]
    assert source == {"name": secret["metadata"]["name"], "key": "token"}
    answer = client.post(
        f"/api/v1/attempts/{attempt.id}/reports", b'{"sequence": 1}', content_type="application/json",
        headers={"Authorization": f"Bearer {token}"},
    )  # fmt: skip
    assert answer.status_code == 200
    operations.request_cancellation(submitter, job.id)
    for text in (json.dumps(sent), caplog.text, *everything_stored()):
        assert token not in text
        assert base64.b64encode(token.encode()).decode() not in text


def test_a_job_is_refused_where_the_gateway_has_no_address(cluster, submitter, client, settings):
    settings.PUBLIC_URL = ""
    user = User.objects.get(id=submitter.user_id)
    body = json.dumps({**gpu_job(), "reports": True})
    answer = client.post("/api/v1/jobs", body, content_type="application/json", headers=bearer(user))
    assert (answer.status_code, [(e["field"], e["code"]) for e in answer.json()["errors"]]) == (
        422,
        [("reports", "not_allowed")],
    )
    assert "SWITCHYARD_PUBLIC_URL" in answer.json()["errors"][0]["detail"]


def test_a_cluster_that_denies_secrets_refuses_it_in_words(cluster, submitter, monkeypatch):
    may = SimulatedDriver.may

    async def denied(self, right, namespace):
        return right != CREATE_SECRETS and await may(self, right, namespace)

    monkeypatch.setattr(SimulatedDriver, "may", denied)
    submit(submitter, {**gpu_job(), "reports": True})
    operations.run_scheduling_cycle()
    attempt = Attempt.objects.get()
    Attempt.objects.update(tries=100)
    operations.dispatch_attempts()
    attempt.refresh_from_db()
    assert (attempt.state, attempt.end_reason) == ("abandoned", "refused_by_cluster")
    assert "may not create Secrets" in attempt.end_message


def test_an_interrupted_run_continues_from_its_checkpoint(cluster, submitter, client, monkeypatch):
    sent = sent_to(monkeypatch, "create_job")
    job = submit(submitter, {**gpu_job(seconds=600), "reports": True})
    observe_until(lambda: Job.objects.filter(state="running").exists())
    attempt = Attempt.objects.get()
    record_report_once(attempt)
    operations.request_suspension(submitter, job.id)
    observe_until(lambda: Job.objects.filter(state="suspended").exists())
    operations.request_resumption(submitter, job.id)
    observe_until(lambda: Job.objects.filter(state="running").exists())
    told = [variables_of(manifest) for manifest in sent]
    assert [(one.get("SWITCHYARD_RESTART"), one.get("SWITCHYARD_CHECKPOINT")) for one in told] == [
        (None, None),
        ("1", CHECKPOINT),
    ]


def test_a_report_that_arrives_while_the_end_of_its_attempt_commits_waits_for_nothing_and_is_the_last(
    cluster, submitter
):
    submit(submitter, {**gpu_job(seconds=600), "reports": True})
    observe_until(lambda: Job.objects.filter(state="running").exists())
    attempt = Attempt.objects.get()
    operations.admit_report(attempt.id)

    def report(sequence):
        try:
            return record_report(attempt.id, reported(sequence, step=sequence))
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as other:
        with transaction.atomic():
            end_attempts([Ending(attempt.id, AttemptState.SUCCEEDED, ReasonCode.COMPLETED, exit_code=0)])
            assert other.submit(report, 7).result(timeout=5), "the end is not visible yet"
        with pytest.raises(NotAuthenticated):
            other.submit(report, 8).result(timeout=5)
    assert Progress.objects.get().step == 7
    assert Job.objects.get().state == "succeeded"
