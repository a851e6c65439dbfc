"""Logs of a job's attempts: which attempt is read, and what is said of logs that no longer exist."""

import pytest

import clusters.queries
import federation.queries.logs
from clusters.drivers import NotThere, Unreachable
from federation.models import PodRun
from foundation.clock import now
from tests.builders import actor_for, bearer, bind, make_cluster, make_spec, make_user, submit

from .test_jobs_api import make_attempt

pytestmark = pytest.mark.django_db


class Pods:
    """The logs of a cluster's pods, by name; all others are gone."""

    def __init__(self):
        self.logs = {}
        self.asked = []
        self.containers = []

    async def read_log(self, namespace, pod, *, tail_lines, limit_bytes, container=""):
        self.containers.append(container)
        self.asked.append((namespace, pod, tail_lines))
        if pod not in self.logs:
            raise NotThere(f'pods "{pod}" not found', status=404)
        return self.logs[pod]


@pytest.fixture
def pods(monkeypatch):
    found = Pods()
    monkeypatch.setattr(clusters.queries, "driver_of", lambda _: found)
    return found


@pytest.fixture
def user(db):
    user = make_user("ada@acme.example")
    bind(user, "acme", "submitter")
    return user


@pytest.fixture
def job(user):
    """Three attempts: one failed and was retried, one was preempted, one runs."""
    job = submit(actor_for(user), {"tenant": "acme", **make_spec()})
    cluster = make_cluster("acme", "east")
    for number, state in enumerate(("failed", "preempted", "running"), start=1):
        ended = {} if state == "running" else {"finished_at": now(), "settled_at": now()}
        attempt = make_attempt(job, number, cluster=cluster, state=state, namespace=f"swy-{number}", **ended)
        PodRun.objects.create(
            attempt=attempt, cluster_id=cluster.id, remote_object=attempt.remote_objects.get(), place=0, uid=f"u{number}",
            name=f"pod-{number}", node="n1", phase="Running", observed_at=now(),
        )  # fmt: skip
    return job


@pytest.fixture
def logs(client, user, job):
    def read(query="", status=200):
        answer = client.get(f"/api/v1/jobs/{job.id}/logs{query}", headers=bearer(user))
        assert answer.status_code == status, answer.content
        return answer.json()

    return read


def test_the_newest_attempt_is_read_unless_another_is_named(pods, logs, job):
    pods.logs = {f"pod-{number}": f"output of {number}" for number in (1, 2, 3)}
    for query, number in (("", 3), ("?attempt=", 3), ("?attempt=3", 3), ("?attempt=1", 1), ("?attempt=2&pod=pod-2", 2)):
        found = logs(query)
        assert [log["text"] for log in found["items"]] == [f"output of {number}"]
        assert found["attempt_number"] == number
        assert found["attempt"] == str(job.attempts.get(number=number).id)
        assert pods.asked.pop() == (f"swy-{number}", f"pod-{number}", 500)


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("?attempt=4", 404), ("?attempt=999999999", 404), ("?attempt=1&pod=pod-2", 404), ("?attempt=0", 422), ("?attempt=-1", 422),
        ("?attempt=1.0", 422), ("?attempt=9999999999", 422), ("?attempt=newest", 422), ("?attempt=%D9%A1", 422),
    ],
)  # fmt: skip
def test_no_cluster_is_asked_for_an_attempt_that_the_job_does_not_have(pods, logs, query, status):
    logs(query, status)
    assert pods.asked == []


def test_an_attempt_of_another_job_is_not_one_of_this_job(pods, logs, user):
    other = submit(actor_for(user), {"tenant": "acme", **make_spec(name="other")})
    make_attempt(other, 7)
    logs("?attempt=7", 404)


def test_logs_that_were_deleted_say_what_became_of_them(pods, logs):
    told = {number: logs(f"?attempt={number}")["items"][0]["unavailable"] for number in (1, 2, 3)}
    assert told == {
        1: "the pod was deleted some time after the attempt ended, and its log with it",
        2: "the attempt was preempted, so its pods were deleted then, and their logs with them",
        3: "the pod no longer exists on the cluster, and its log with it",
    }


def test_a_cluster_that_does_not_answer_is_not_taken_for_one_that_lost_the_logs(pods, logs, monkeypatch):
    async def silent(*_, **__):
        raise Unreachable("no connection")

    monkeypatch.setattr(pods, "read_log", silent)
    assert logs("?attempt=2")["items"][0]["unavailable"] == "no connection"


def test_the_pages_link_the_logs_of_each_attempt(pods, client, user, job):
    pods.logs = {"pod-1": "it broke here"}
    client.force_login(user)
    page = client.get(f"/jobs/{job.id}/").content.decode()
    for number in (1, 2, 3):
        assert f'href="/jobs/{job.id}/logs/?attempt={number}"' in page
    page = client.get(f"/jobs/{job.id}/logs/?attempt=1").content.decode()
    assert "Attempt 1, on east." in page
    assert "it broke here" in page
    assert page.count('aria-current="page">Attempt ') == 1
    assert 'href="?attempt=2"' in page
    assert "the attempt was preempted" in client.get(f"/jobs/{job.id}/logs/?attempt=2").content.decode()
    for query, status in (("?attempt=9", 404), ("?attempt=x", 422)):
        assert client.get(f"/jobs/{job.id}/logs/{query}").status_code == status


def test_the_page_offers_the_pods_that_it_does_not_show(pods, client, user, job, monkeypatch):
    monkeypatch.setattr(federation.queries.logs, "MOST_PODS", 0)
    pods.logs = {"pod-3": "its output"}
    client.force_login(user)
    page = client.get(f"/jobs/{job.id}/logs/").content.decode()
    assert "1 more pod not shown" in page
    assert '<option value="pod-3">pod-3</option>' in page
    assert "its output" not in page
    page = client.get(f"/jobs/{job.id}/logs/?attempt=3&container=&pod=pod-3").content.decode()
    assert '<option value="pod-3" selected>pod-3</option>' in page
    assert "its output" in page
    assert "not shown" not in page
    monkeypatch.setattr(federation.queries.logs, "MOST_PODS", 8)
    assert "<select" not in client.get(f"/jobs/{job.id}/logs/?attempt=1").content.decode()


def test_a_stranger_reads_no_attempts_logs(pods, client, job):
    stranger = make_user()
    bind(stranger, "other", "admin")
    for number in (1, 3):
        answer = client.get(f"/api/v1/jobs/{job.id}/logs?attempt={number}", headers=bearer(stranger))
        assert answer.status_code == 404
    assert pods.asked == []
