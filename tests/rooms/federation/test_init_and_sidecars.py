"""Init steps and sidecars, from what is submitted to what is held, observed, judged and shown."""

from dataclasses import replace
from datetime import timedelta

import pytest
from django.db import IntegrityError, transaction

import clusters.queries
from clusters.models import Cluster
from federation.engine.failures.facts import PodFacts
from federation.models import Attempt, Diagnosis, Job, PodRun, RemoteObject
from federation.operations import Observations, record_observations, run_scheduling_cycle
from federation.operations.continuity import recall_stuck
from federation.operations.diagnoses import with_memory
from federation.queries.claimed_attempts import claimed_attempts
from federation.queries.failures import _limit
from federation.queries.feasibility import NeverFits
from federation.queries.pod_set_lines import pod_set_line
from federation.web.submit import spec_of_form
from foundation.clock import now
from foundation.problems import Invalid
from quotas.models import Hold
from tests.builders import (
    actor_for,
    bearer,
    bind,
    make_cluster,
    make_flavor,
    make_limit,
    make_node,
    make_spec,
    make_user,
    stored_spec,
    submit,
)
from tests.live import gpu_job, observe_until
from tests.rooms.federation.test_advanced_form import VALUES
from tests.rooms.federation.test_logs import Pods
from tests.rooms.federation.test_retries import failed, make_attempt, pod_of

pytestmark = pytest.mark.django_db
STEP = {"image": "tools:1", "command": ["fetch", "--to", "/scratch"]}
SIDECAR = {"name": "logs", "image": "shipper:2", "cpu": "500m", "memory": "512Mi"}
POD = {"init": [STEP, {**STEP, "memory": "256Mi"}], "sidecars": [SIDECAR], "gpu": {"count": 1}}


@pytest.fixture
def user(db):
    user = make_user("ada@acme.example")
    bind(user, "acme", "submitter")
    return user


@pytest.fixture
def fleet(db):
    cluster = make_cluster(name="east", kubernetes_version="v1.36.2")
    make_flavor(cluster)
    make_node(cluster, "n1")
    return cluster


def test_what_sidecars_have_is_held_and_promised_besides_the_program(user, fleet):
    limit = make_limit("acme", "cpu", "2")
    job = submit(actor_for(user), {"tenant": "acme", **make_spec(pod=POD)})
    run_scheduling_cycle()
    item = RemoteObject.objects.get(attempt__job=job)
    assert (item.cpu_millicores, item.memory_mib) == (1500, 1024 + 512)
    limit.refresh_from_db()
    assert Hold.objects.count() == 1
    second = submit(actor_for(user), {"tenant": "acme", **make_spec(pod=POD)})
    run_scheduling_cycle()
    second.refresh_from_db()
    assert second.reason_code == "waiting_for_quota", "1.5 and 1.5 cores are more than 2"
    [claimed] = claimed_attempts([item.attempt_id])
    pod = claimed.manifest(claimed.objects[0])["spec"]["template"]["spec"]
    assert [one["name"] for one in pod["initContainers"]] == ["init-1", "init-2", "logs"]


def test_a_cluster_that_is_too_old_is_refused_for_sidecars_only(user, fleet):
    Cluster.objects.update(kubernetes_version="v1.27.3")
    with pytest.raises(NeverFits) as refused:
        submit(actor_for(user), {"tenant": "acme", **make_spec(pod=POD)})
    [error] = refused.value.errors
    assert (error.field, error.code) == ("clusters.east", "sidecars_missing")
    assert "too old" in error.detail
    assert submit(actor_for(user), {"tenant": "acme", **make_spec(pod={**POD, "sidecars": []})}).state == "queued"
    Cluster.objects.update(kubernetes_version="v1.31.0")
    assert submit(actor_for(user), {"tenant": "acme", **make_spec(pod=POD)}).state == "queued"


def waiting_pod(attempt, reason, uid="u1"):
    pod = pod_of(attempt, uid=uid, phase="Pending", reason=reason, finished_at=None, exit_code=None)
    record_observations(attempt.cluster_id, Observations(pods=[replace(pod, started_at=now() - timedelta(hours=2))]))


def test_a_pod_is_not_stuck_as_soon_as_its_long_init_step_has_run():
    attempt = make_attempt()
    Attempt.objects.update(starting_at=now() - timedelta(hours=3), released_at=now() - timedelta(hours=3))
    waiting_pod(attempt, "Initializing: init step 1 of 1 runs")
    waiting_pod(attempt, "ErrImagePull: registry is away")
    assert recall_stuck() == 0
    waiting_pod(attempt, "ImagePullBackOff: registry is away")
    PodRun.objects.update(initializing_at=now() - timedelta(minutes=6))
    assert recall_stuck() == 1
    attempt.refresh_from_db()
    assert attempt.stop_reason == "cannot_start"


def failing(step=2, **fields):
    attempt = make_attempt()
    Job.objects.filter(id=attempt.job_id).update(spec=stored_spec(pod=POD))
    pod = pod_of(attempt, init_step=step, exit_code=1, ending="Error", **fields)
    record_observations(attempt.cluster_id, Observations(jobs=[failed(attempt)], pods=[pod]))
    return attempt


def test_a_failed_init_step_is_named_as_the_reason():
    attempt = failing()
    attempt.refresh_from_db()
    attempt.job.refresh_from_db()
    assert (attempt.state, attempt.job.state, attempt.job.exit_code) == ("failed", "failed", 1)
    assert "init step 2 failed with exit code 1" in attempt.job.reason_message
    assert "init step 2 failed with exit code 1" in Diagnosis.objects.get(attempt=attempt).text


@pytest.mark.parametrize(("step", "kept"), [(None, None), (0, None), (-1, None), (9, None), (2**40, None), (8, 8)])
def test_a_cluster_names_no_step_that_no_pod_has(step, kept):
    attempt = failing(step)
    assert PodRun.objects.get(attempt=attempt).init_step == kept


def test_the_database_takes_no_step_that_did_not_end():
    run = PodRun.objects.get(attempt=failing())
    for changes in ({"init_step": 0}, {"init_step": 9}, {"init_step": 1, "finished_at": None}):
        with pytest.raises(IntegrityError), transaction.atomic():
            PodRun.objects.filter(id=run.id).update(**changes)


def test_more_memory_reaches_init_steps_that_had_less():
    spec = stored_spec(pod=POD)
    [pod_set] = with_memory(spec, {"main": 4 * 2**30})["pod_sets"]
    assert pod_set["memory"] == "4Gi"
    assert [step.get("memory") for step in pod_set["init"]] == [None, None]
    assert pod_set["sidecars"] == spec["pod_sets"][0]["sidecars"]
    assert [_limit(spec["pod_sets"][0], step) for step in (None, 1, 2, 3)] == ["1Gi", "1Gi", "256Mi", "1Gi"]
    assert PodFacts().init_step is None


@pytest.fixture
def logs(monkeypatch, client, user):
    found = Pods()
    monkeypatch.setattr(clusters.queries, "driver_of", lambda _: found)
    attempt = failing()
    Job.objects.filter(id=attempt.job_id).update(tenant=make_limit("acme").tenant)
    found.logs = {"p0": "output"}

    def read(query="", status=200):
        answer = client.get(f"/api/v1/jobs/{attempt.job_id}/logs{query}", headers=bearer(user))
        assert answer.status_code == status, answer.content
        return answer.json()

    client.force_login(user)
    return read, found, attempt.job_id


def test_the_log_is_that_of_the_step_that_failed_unless_another_container_is_named(logs):
    read, found, _ = logs
    body = read()
    assert body["containers"] == ["main", "init-1", "init-2", "logs"]
    assert [one["container"] for one in body["items"]] == ["init-2"]
    for name in ("main", "init-1", "logs"):
        assert [one["container"] for one in read(f"?container={name}")["items"]] == [name]
    assert found.containers == ["init-2", "main", "init-1", "logs"]
    for name in ("init-3", "../../secrets", "x" * 300):
        read(f"?container={name}", 404)
    assert len(found.containers) == 4


def test_the_pages_show_the_step_and_offer_the_containers(logs, client):
    _, _found, job_id = logs
    page = client.get(f"/jobs/{job_id}/").content.decode()
    assert "init step 2 failed, exit 1" in page
    assert "init step 1: tools:1 fetch --to /scratch" in page
    assert "sidecar logs: shipper:2 (500m CPU, 512Mi)" in page
    page = client.get(f"/jobs/{job_id}/logs/").content.decode()
    assert '<option value="init-1">' in page
    page = client.get(f"/jobs/{job_id}/logs/?container=logs").content.decode()
    assert '<option value="logs" selected>' in page
    assert client.get(f"/jobs/{job_id}/logs/?container=%3Cscript%3E").status_code == 404


def test_the_form_reads_steps_and_sidecars_line_by_line():
    [pod_set] = spec_of_form(
        {
            **VALUES,
            "init": "tools:1 fetch 'a b'\n\nother:2",
            "sidecars": "logs 500m 512Mi shipper:2 --follow /scratch\nshort 1",
        }
    )["pod_sets"]
    assert pod_set["init"] == [{"image": "tools:1", "command": ["fetch", "a b"]}, {"image": "other:2", "command": []}]
    assert pod_set["sidecars"] == [
        {**SIDECAR, "command": ["--follow", "/scratch"]},
        {"name": "short", "cpu": "1", "command": []},
    ]
    with pytest.raises(Invalid) as refusal:
        spec_of_form({**VALUES, "init": "tools:1 'a"})
    assert [error.field for error in refusal.value.errors] == ["pod_sets[0].init"]


def test_hostile_words_stay_words():
    stored = stored_spec(pod={"init": [{"image": "a", "args": ["<script>alert(1)</script>", "$(TOKEN)"]}]})
    assert "init step 1: a <script>alert(1)</script> $(TOKEN)" in pod_set_line(stored["pod_sets"][0]).local_state


@pytest.mark.django_db(transaction=True)
def test_a_job_whose_second_step_fails_on_its_cluster_ends_so(home, cluster, submitter):
    body = gpu_job(gpus=1, exit_code=5)
    body["labels"]["sim.switchyard.dev/failing-step"] = "2"
    body["pod_sets"][0] |= {"init": [STEP, STEP], "sidecars": [SIDECAR]}
    job = submit(submitter, body)
    observe_until(lambda: Job.objects.filter(id=job.id, state="failed").exists())
    job.refresh_from_db()
    assert "init step 2 failed with exit code 5" in job.reason_message
    assert PodRun.objects.get(attempt__job=job).init_step == 2
