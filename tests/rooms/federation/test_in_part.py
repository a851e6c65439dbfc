"""A gang of which others took a part of the room after it was placed: its user sees it, and it is placed again."""

from dataclasses import replace
from datetime import timedelta

import pytest
from django.conf import settings
from django.db import connection, transaction
from django.db.models import F
from django.urls import reverse

from billing.models import LostWork
from clusters.drivers import Unreachable
from clusters.drivers.simulated import SimulatedDriver, add_foreign_pod, path_of
from clusters.models import Cluster
from federation import operations
from federation.models import Attempt, Job, JobEvent, PodRun, RemoteObject
from federation.operations.parts import attend_to_parts
from federation.queries.in_part import parts_of
from foundation.clock import now
from foundation.ids import new_id
from tenancy.models import User
from tests.builders import bearer, submit
from tests.live import every_visit, gpu_job, observe_until, place

pytestmark = pytest.mark.django_db(transaction=True)
WORDS = "Unschedulable: 0/2 nodes are available: 2 Insufficient nvidia.com/gpu."


def started_in_part(cluster, submitter, **fields):
    """A job whose two pods were given both nodes, on one of which a stranger's pod came first; and its attempt, which runs."""
    job, attempt = place(submitter, count=2, seconds=100_000, **fields)
    node = min(RemoteObject.objects.get(attempt=attempt).assumed_nodes)
    add_foreign_pod(path_of(settings.HOME, cluster.server), node, {"cpu": "1", "nvidia.com/gpu": "1"})
    operations.dispatch_attempts()
    observe_until(lambda: PodRun.objects.filter(attempt=attempt).count() == 2 and state_of(attempt) == "running")
    PodRun.objects.filter(attempt=attempt, node="").update(reason=WORDS)
    return job, attempt


def state_of(attempt):
    return Attempt.objects.get(id=attempt.id).state


def waited(attempt, **ago):
    PodRun.objects.filter(attempt=attempt).update(first_seen_at=now() - timedelta(**ago))


def shown(job):
    job = Job.objects.get(id=job.id)
    return job.state, job.reason_code, job.reason_message


def test_a_gang_in_part_says_so_and_is_placed_elsewhere_after_15_minutes_and_what_ran_is_infrastructures_loss(
    cluster, submitter, client
):
    job, attempt = started_in_part(cluster, submitter)
    attend_to_parts()
    assert shown(job) == ("running", "", "")
    waited(attempt, seconds=21)
    assert attend_to_parts() == 0
    assert shown(job) == ("running", "runs_in_part", f"1 of 2 pods run; 1 waits: {WORDS}")
    answer = client.get(f"/api/v1/jobs/{job.id}", headers=bearer(submitter_user(submitter))).json()
    assert answer["reason"] == {"code": "runs_in_part", "message": f"1 of 2 pods run; 1 waits: {WORDS}"}
    client.force_login(submitter_user(submitter))
    page = client.get(reverse("job", args=[job.id])).content.decode()
    assert (f"1 of 2 pods run; 1 waits: {WORDS}" in page, "Its pods are running" in page) == (True, False)
    written = Job.objects.get(id=job.id).reason_at
    assert (attend_to_parts(), Job.objects.get(id=job.id).reason_at) == (0, written)
    waited(attempt, minutes=14, seconds=59)
    assert attend_to_parts() == 0
    waited(attempt, minutes=15)
    assert (attend_to_parts(), attend_to_parts()) == (1, 0)
    every_visit(attempt, 3)
    attempt.refresh_from_db()
    assert (attempt.state, attempt.end_reason) == ("preempted", "started_in_part")
    assert shown(job) == (
        "queued",
        "attempt_returned",
        f"Attempt 1 ran only in part: 1 of 2 pods ran; 1 waited for 15 minutes: {WORDS}. Waiting for a new placement.",
    )
    observe_until(lambda: Attempt.objects.filter(id=attempt.id, settled_at__isnull=False).exists(), settle)
    loss = LostWork.objects.get(run_id=attempt.id)
    began = PodRun.objects.get(attempt=attempt, started_at__isnull=False).started_at
    assert (loss.cause, loss.lost_from) == (
        "infrastructure",
        began.replace(microsecond=began.microsecond // 1000 * 1000),
    )
    operations.run_scheduling_cycle()
    refusal = Job.objects.get(id=job.id).explanation["clusters"][0]
    assert (refusal["code"], WORDS in refusal["message"]) == ("lately_failed", True)


NO_DISK = "Unschedulable: 0/2 nodes are available: 1 Insufficient ephemeral-storage, 1 Insufficient nvidia.com/gpu."


def test_a_user_who_asks_for_what_no_node_has_in_one_pod_pays_for_what_the_others_ran(cluster, submitter):
    """Else a pod that waits in vain, on purpose, would make 15 minutes of the other pods free, again and again."""
    job, attempt = started_in_part(cluster, submitter)
    PodRun.objects.filter(attempt=attempt, node="").update(reason=NO_DISK)
    waited(attempt, minutes=15)
    assert attend_to_parts() == 1
    every_visit(attempt, 3)
    attempt.refresh_from_db()
    assert (attempt.state, attempt.end_reason) == ("preempted", "blocked_in_part")
    told = (
        f"Attempt 1 ran only in part: 1 of 2 pods ran; 1 waited for 15 minutes: {NO_DISK}. Waiting for a new placement."
    )
    assert shown(job) == ("queued", "attempt_returned", told)
    observe_until(lambda: Attempt.objects.filter(id=attempt.id, settled_at__isnull=False).exists(), settle)
    assert not LostWork.objects.exclude(cause="").exists()
    operations.run_scheduling_cycle()
    refusal = Job.objects.get(id=job.id).explanation["clusters"][0]
    assert (refusal["code"], NO_DISK in refusal["message"]) == ("lately_failed", True)


@pytest.mark.parametrize("other", ["started_in_part", "blocked_in_part"])
def test_both_kinds_of_ends_in_part_use_up_the_same_retries(cluster, submitter, other):
    body = gpu_job(count=2, seconds=100_000) | {"retries": {"infrastructure": 1}}
    job = submit(submitter, body)
    operations.run_scheduling_cycle()
    attempt = Attempt.objects.get(job=job)
    node = min(RemoteObject.objects.get(attempt=attempt).assumed_nodes)
    add_foreign_pod(path_of(settings.HOME, cluster.server), node, {"nvidia.com/gpu": "1"})
    operations.dispatch_attempts()
    observe_until(lambda: PodRun.objects.filter(attempt=attempt).count() == 2 and state_of(attempt) == "running")
    PodRun.objects.filter(attempt=attempt, node="").update(reason=WORDS)
    make_ended(job, other)
    waited(attempt, minutes=15)
    assert attend_to_parts() == 1
    every_visit(attempt, 3)
    assert shown(job)[:2] == ("failed", "started_in_part")


def make_ended(job, reason):
    """An earlier attempt of the job that ended for this reason."""
    earlier = Attempt.objects.get(job=job)
    earlier.id, earlier.number, earlier.state, earlier.end_reason = new_id(), 7, "preempted", reason
    earlier.finished_at = earlier.settled_at = now()
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")  # attempts begin as reserved
        earlier.save(force_insert=True)


def submitter_user(submitter):
    return User.objects.get(id=submitter.user_id)


def settle():
    operations.settle_attempts()


def test_a_user_who_allows_no_retry_for_infrastructure_gets_the_job_back(cluster, submitter):
    body = gpu_job(count=2, seconds=100_000) | {"retries": {"infrastructure": 0}}
    job = submit(submitter, body)
    operations.run_scheduling_cycle()
    attempt = Attempt.objects.get(job=job)
    node = min(RemoteObject.objects.get(attempt=attempt).assumed_nodes)
    add_foreign_pod(path_of(settings.HOME, cluster.server), node, {"nvidia.com/gpu": "1"})
    operations.dispatch_attempts()
    observe_until(lambda: PodRun.objects.filter(attempt=attempt).count() == 2 and state_of(attempt) == "running")
    PodRun.objects.filter(attempt=attempt, node="").update(reason=WORDS)
    waited(attempt, minutes=15)
    assert attend_to_parts() == 1
    every_visit(attempt, 3)
    assert shown(job)[:2] == ("failed", "started_in_part")


def test_a_gang_that_the_watch_only_shows_in_part_runs_on_and_its_cluster_is_not_asked_again_soon(
    cluster, submitter, monkeypatch
):
    _, attempt = started_in_part(cluster, submitter)
    real = SimulatedDriver.list_pods

    async def whole(self, *names):
        return [replace(one, node="n", phase="Running") for one in await real(self, *names)]

    waited(attempt, minutes=16)
    with monkeypatch.context() as patch:
        patch.setattr(SimulatedDriver, "list_pods", whole)
        assert attend_to_parts() == 1
        every_visit(attempt, 2)
    attempt.refresh_from_db()
    assert (attempt.state, attempt.stop_requested_at, attempt.stop_reason) == ("running", None, "")
    assert not PodRun.objects.filter(attempt=attempt, node="").exists()
    PodRun.objects.filter(attempt=attempt, started_at=None).update(node="")
    assert attend_to_parts() == 0
    Attempt.objects.update(in_part_asked_at=F("in_part_asked_at") - timedelta(minutes=16))
    assert attend_to_parts() == 1
    every_visit(attempt, 3)
    assert state_of(attempt) == "preempted"


def _new_pod(pods):
    return [replace(pod, uid=f"new-{pod.uid}") if not pod.node else pod for pod in pods]


def _going(pods):
    return [replace(pod, is_terminating=not pod.node) for pod in pods]


@pytest.mark.parametrize("change", [_new_pod, _going], ids=["another pod", "it is being removed"])
def test_a_pod_that_replaces_the_one_that_waited_has_its_own_patience(cluster, submitter, monkeypatch, change):
    _, attempt = started_in_part(cluster, submitter)
    real = SimulatedDriver.list_pods

    async def changed(self, *names):
        return change(await real(self, *names))

    monkeypatch.setattr(SimulatedDriver, "list_pods", changed)
    waited(attempt, minutes=16)
    assert attend_to_parts() == 1
    every_visit(attempt, 2)
    assert (state_of(attempt), Attempt.objects.get(id=attempt.id).stop_reason) == ("running", "")


@pytest.mark.parametrize("has_pods", [True, False])
def test_what_a_queue_of_the_cluster_suspended_meanwhile_is_left_to_it_although_it_has_no_pods(
    cluster, submitter, monkeypatch, has_pods
):
    _, attempt = started_in_part(cluster, submitter)
    real = SimulatedDriver.get_job

    async def suspended(self, *names):
        return replace(await real(self, *names), suspended=True)

    async def none(*_):
        return []

    monkeypatch.setattr(SimulatedDriver, "get_job", suspended)
    if not has_pods:
        monkeypatch.setattr(SimulatedDriver, "list_pods", none)
    waited(attempt, minutes=16)
    assert attend_to_parts() == 1
    every_visit(attempt, 2)
    assert (state_of(attempt), Attempt.objects.get(id=attempt.id).stop_reason) == ("running", "")


def test_a_cluster_that_does_not_answer_decides_nothing(cluster, submitter, monkeypatch):
    _, attempt = started_in_part(cluster, submitter)

    async def fail(*_):
        raise Unreachable("answered with status 503")

    waited(attempt, minutes=16)
    assert attend_to_parts() == 1
    with monkeypatch.context() as patch:
        patch.setattr(SimulatedDriver, "list_pods", fail)
        every_visit(attempt, 6)
        assert (state_of(attempt), PodRun.objects.filter(attempt=attempt, is_gone=True).count()) == ("running", 0)
    every_visit(attempt, 3)
    assert state_of(attempt) == "preempted"


def test_who_cancels_meanwhile_gets_a_cancelled_job(cluster, submitter):
    job, attempt = started_in_part(cluster, submitter)
    waited(attempt, minutes=16)
    assert attend_to_parts() == 1
    operations.request_cancellation(submitter, job.id)
    every_visit(attempt, 3)
    assert (state_of(attempt), shown(job)[:2]) == ("cancelled", ("cancelled", "cancelled"))


def test_what_is_not_seen_or_is_excused_is_not_recalled_and_a_whole_gang_says_nothing(cluster, submitter):
    """One gang, as clusters and users may leave it."""
    job, attempt = started_in_part(cluster, submitter)
    waiting = PodRun.objects.filter(attempt=attempt, node="")
    waited(attempt, minutes=16)
    Cluster.objects.update(silent_since=now(), health="unreachable")
    assert attend_to_parts() == 0
    Cluster.objects.update(silent_since=None, health="ready")
    Job.objects.filter(id=job.id).update(suspend_requested_at=now(), reason_code="suspending", reason_message="by ada")
    attempts = Attempt.objects.filter(id=attempt.id)
    attempts.update(stop_requested_at=now(), stop_reason="suspended")
    assert (attend_to_parts(), shown(job)[1:]) == (0, ("suspending", "by ada"))
    attempts.update(stop_requested_at=None, stop_reason="", in_part_asked_at=now())
    Job.objects.filter(id=job.id).update(suspend_requested_at=None, reason_code="", reason_message="")
    assert (attend_to_parts(), shown(job)[1]) == (0, "runs_in_part")
    # an image is pulled, or an init step runs, on the node that it got
    waiting.update(node="n2", reason="ContainerCreating")
    assert (attend_to_parts(), shown(job)) == (0, ("running", "", ""))
    attempts.update(in_part_asked_at=None)
    assert attend_to_parts() == 0
    spec = Job.objects.get(id=job.id).spec
    PodRun.objects.filter(attempt=attempt, started_at=None).update(node="")
    Job.objects.filter(id=job.id).update(spec=spec | {"elastic": {"pod_set": "worker", "min_count": 1}})
    assert (attend_to_parts(), shown(job)[1]) == (0, "runs_in_part")


def test_a_place_without_a_pod_is_a_reason_to_ask_and_the_cluster_decides(cluster, submitter, monkeypatch):
    job, attempt = started_in_part(cluster, submitter)
    PodRun.objects.filter(attempt=attempt, node="").delete()
    assert (attend_to_parts(), shown(job)[1]) == (0, "")
    part = parts_of([attempt.id])[attempt.id][0]
    assert (part.running, len(part.absent), part.waits) == (1, 1, ())
    monkeypatch.setattr("federation.engine.in_part.PATIENCE", timedelta(0))
    assert attend_to_parts() == 1
    every_visit(attempt, 2)
    # the pod exists, and was only not seen
    assert (state_of(attempt), PodRun.objects.filter(attempt=attempt).count()) == ("running", 2)
    PodRun.objects.filter(attempt=attempt, node="").delete()
    real = SimulatedDriver.list_pods

    async def only_that(self, *names):
        return [one for one in await real(self, *names) if one.node]

    with monkeypatch.context() as patch:
        patch.setattr(SimulatedDriver, "list_pods", only_that)
        assert attend_to_parts() == 1
        every_visit(attempt, 3)
    assert state_of(attempt) == "preempted"
    assert JobEvent.objects.filter(job=job, message__contains="1 was not seen for").exists()
