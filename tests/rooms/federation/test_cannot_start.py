"""Clusters that answer and get nowhere with a job: it goes elsewhere, says why, and ends when nobody can start it."""

from dataclasses import replace
from datetime import timedelta

import pytest
from django.db import connection
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext

from clusters.drivers import Refused, Unreachable
from clusters.drivers.simulated import SimulatedDriver
from clusters.models import Cluster
from federation import operations
from federation.models import Attempt, Job, PodRun
from federation.operations.continuity import explain_unsent, explain_unstarted, recall_stuck, recall_unstarted
from federation.operations.visits import MOST_TIMES_FAILED
from foundation.clock import now
from tests.live import every_visit, observe_until, place

pytestmark = pytest.mark.django_db(transaction=True)
WEBHOOK = 'Internal error occurred: failed calling webhook "policy.example.com": connection refused'


@pytest.fixture
def failing(monkeypatch):
    async def fail(*_):
        raise Unreachable(WEBHOOK)

    with monkeypatch.context() as patch:
        patch.setattr(SimulatedDriver, "create_job", fail)
        yield patch


def test_a_cluster_that_fails_creates_again_and_again_is_given_up_in_its_words_and_counted(cluster, submitter, failing):
    job, attempt = place(submitter)
    every_visit(attempt, 3)
    explain_unsent()
    job.refresh_from_db()
    assert (job.state, job.reason_code) == ("dispatching", "dispatching")
    assert WEBHOOK in job.reason_message
    every_visit(attempt, MOST_TIMES_FAILED)
    attempt.refresh_from_db()
    assert (attempt.state, attempt.end_reason) == ("abandoned", "create_failed")
    assert WEBHOOK in attempt.end_message
    cluster.refresh_from_db()
    assert [reason["code"] for reason in cluster.reasons if reason["code"] == "creates_fail"] == ["creates_fail"]
    operations.run_scheduling_cycle()
    job.refresh_from_db()
    assert job.state == "queued"
    assert job.explanation["clusters"][0]["code"] == "lately_failed"


def test_what_jobs_wait_for_is_written_together_and_only_when_it_changes(cluster, submitter):
    placed = [place(submitter, name=f"job-{number}", gpus=1) for number in range(3)]
    attempts = Attempt.objects.filter(id__in=[attempt.id for _, attempt in placed])
    attempts.update(tries=3, end_message="quota pods: denied")
    with CaptureQueriesContext(connection) as asked:
        assert explain_unsent() == 3
    assert len(asked) == 5  # with the transaction's two
    assert explain_unsent() == 0
    texts = set(Job.objects.values_list("reason_message", flat=True))
    assert texts == {f"{cluster.name} does not accept it yet: quota pods: denied"}
    for number, (_, attempt) in enumerate(placed):
        attempt.remote_objects.update(uid=f"uid-{number}", cluster_id=cluster.id)
    attempts.update(state="starting", starting_at=Now(), released_at=Now() - timedelta(minutes=1))
    remote, pod = placed[0][1].remote_objects.get(), {"phase": "Pending", "observed_at": now(), "name": "p", "place": 0}
    for uid, reason in (("a", ""), ("b", "0/8 nodes are available"), ("c", "later")):
        PodRun.objects.create(
            attempt=placed[0][1], cluster_id=cluster.id, remote_object=remote, uid=uid, reason=reason, **pod
        )
    PodRun.objects.create(
        attempt=placed[1][1], cluster_id=cluster.id, remote_object=placed[1][1].remote_objects.get(), uid="d",
        started_at=now(), **pod,
    )  # fmt: skip
    assert explain_unstarted() == 2
    told = [Job.objects.get(id=job.id).reason_message for job, _ in placed]
    assert told == ["0/8 nodes are available", *texts, "its pods have not started yet"]


def test_a_cluster_that_creates_again_is_in_order_again(cluster, submitter, failing):
    job, attempt = place(submitter)
    every_visit(attempt, MOST_TIMES_FAILED + 1)
    failing.undo()
    Attempt.objects.filter(id=attempt.id).update(end_reason="name_taken")
    operations.run_scheduling_cycle()
    operations.dispatch_attempts()
    assert Attempt.objects.filter(job=job, state="starting").exists()
    assert "creates_fail" not in str(Cluster.objects.get(id=cluster.id).reasons)


def test_a_create_that_is_refused_for_good_is_still_told_as_refused(cluster, submitter, monkeypatch):
    async def refuse(*_):
        raise Refused("spec is wrong", status=422)

    monkeypatch.setattr(SimulatedDriver, "create_job", refuse)
    _, attempt = place(submitter)
    operations.dispatch_attempts()
    attempt.refresh_from_db()
    assert attempt.end_reason == "refused_by_cluster"


def test_what_was_committed_to_and_could_not_be_released_for_long_is_asked_back(cluster, submitter, monkeypatch):
    async def fail(*_):
        raise Unreachable("the server could not patch it")

    monkeypatch.setattr(SimulatedDriver, "release_job", fail)
    _, attempt = place(submitter)
    operations.dispatch_attempts()
    attempt.refresh_from_db()
    assert (attempt.state, attempt.released_at) == ("starting", None)
    assert recall_unstarted() == 0
    back_in_time(attempt, minutes=16)
    assert recall_unstarted() == 1
    every_visit(attempt, 3)
    attempt.refresh_from_db()
    assert (attempt.state, attempt.end_reason) == ("preempted", "did_not_start")


def back_in_time(attempt, minutes):
    """The attempt as if all of it had happened so long ago; instants stand, but for whoever may switch triggers off."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE federation_attempt DISABLE TRIGGER USER")
        cursor.execute(
            "UPDATE federation_attempt SET starting_at = starting_at - make_interval(mins => %(ago)s),"
            " released_at = released_at - make_interval(mins => %(ago)s) WHERE id = %(id)s",
            {"ago": minutes, "id": attempt.id},
        )
        cursor.execute("ALTER TABLE federation_attempt ENABLE TRIGGER USER")


@pytest.fixture
def no_image(monkeypatch):
    """A cluster whose kubelets cannot have the image."""
    reason = 'ImagePullBackOff: Back-off pulling image "registry.example/wrong:1"'
    stuck = {"is": True}
    real = SimulatedDriver.list_pods

    async def look(self, *arguments):
        pods = await real(self, *arguments)
        if not stuck["is"]:
            return pods
        return [replace(pod, phase="Pending", reason=reason, finished_at=None, exit_code=None) for pod in pods]

    monkeypatch.setattr(SimulatedDriver, "list_pods", look)
    return stuck


def stuck_attempt(job):
    """Its next attempt, with a pod that the kubelet cannot start, released ten minutes ago."""
    operations.run_scheduling_cycle()
    operations.dispatch_attempts()
    attempt = Attempt.objects.get(job=job, finished_at=None)
    observe_until(lambda: PodRun.objects.filter(attempt=attempt).exists())
    reason = 'ImagePullBackOff: Back-off pulling image "registry.example/wrong:1"'
    PodRun.objects.filter(attempt=attempt).update(phase="Pending", reason=reason)
    return attempt


def test_what_the_kubelet_cannot_start_is_taken_back_and_fails_in_its_words_at_the_third_cluster(
    cluster, submitter, no_image, monkeypatch
):
    monkeypatch.setattr("federation.operations.continuity.PATIENCE", timedelta(0))
    monkeypatch.setattr("federation.queries.queue.pause_seconds", lambda _: 0)
    job, _ = place(submitter, seconds=600)
    for times in range(1, 4):
        attempt = stuck_attempt(job)
        assert recall_stuck() == 1
        every_visit(attempt, 3)
        attempt.refresh_from_db()
        assert (attempt.state, attempt.end_reason) == ("preempted", "cannot_start")
        job.refresh_from_db()
        assert (times, job.state) == (times, "failed" if times == 3 else "queued")
    assert job.reason_code == "cannot_start"
    assert "Back-off pulling image" in job.reason_message


def test_what_the_kubelet_has_started_meanwhile_is_left_to_run(cluster, submitter, no_image, monkeypatch):
    monkeypatch.setattr("federation.operations.continuity.PATIENCE", timedelta(0))
    job, _ = place(submitter, seconds=600)
    attempt = stuck_attempt(job)
    assert recall_stuck() == 1
    no_image["is"] = False
    every_visit(attempt, 2)
    attempt.refresh_from_db()
    assert (attempt.finished_at, attempt.stop_reason) == (None, "")
    assert Job.objects.get(id=job.id).state != "queued"


def test_a_pod_that_waits_for_room_is_not_stuck(cluster, submitter, monkeypatch):
    monkeypatch.setattr("federation.operations.continuity.PATIENCE", timedelta(0))
    job, _ = place(submitter, seconds=600)
    stuck_attempt(job)
    PodRun.objects.update(reason="Unschedulable: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu.")
    assert recall_stuck() == 0
