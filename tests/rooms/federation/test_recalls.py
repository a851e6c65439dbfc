"""Attempts that are taken back from their cluster: their pods are recorded first, and what runs is not taken back."""

from dataclasses import replace
from datetime import timedelta

import pytest
from django.db import transaction
from django.db.models import F
from django.db.models.functions import Now

from clusters.drivers import Ambiguous, NotThere, Unreachable
from clusters.drivers.connections import run
from clusters.drivers.simulated import SimulatedDriver
from clusters.queries import driver_of
from federation import operations
from federation.models import Attempt, JobEvent, PodRun
from federation.operations import last_looks
from federation.operations.continuity import recall_deserted
from federation.operations.last_looks import MOST_TIMES_REFUSED, NOT_STORED
from federation.operations.transitions import ask_to_stop
from foundation.clock import now
from tests.live import call, every_visit, observe_until, place
from tests.rooms.federation.test_evidence import replaced

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("failures", [1, 2, 3])
def test_started_pods_are_recorded_before_their_deletion_although_the_cluster_first_fails_to_return_them(
    cluster, submitter, monkeypatch, failures
):
    job, attempt = place(submitter, seconds=100_000)
    operations.dispatch_attempts()
    operations.request_cancellation(submitter, job.id)
    with monkeypatch.context() as faulty:
        replaced(faulty, "list_pods", unavailable)
        for _ in range(failures):
            every_visit(attempt, 1)
            assert call(cluster, "get_job", attempt.namespace, attempt.remote_objects.get().name)
    every_visit(attempt, 1)
    assert PodRun.objects.get(attempt=attempt).started_at is not None
    every_visit(attempt, 1)
    assert Attempt.objects.get(id=attempt.id).state == "cancelled"


def test_a_cluster_that_never_returns_pods_does_not_prevent_the_cancellation(cluster, submitter, monkeypatch):
    job, attempt = place(submitter, seconds=100_000)
    operations.dispatch_attempts()
    operations.request_cancellation(submitter, job.id)
    replaced(monkeypatch, "list_pods", unavailable)
    every_visit(attempt, 5)
    assert Attempt.objects.get(id=attempt.id).state == "cancelled"


def test_started_pods_are_recorded_although_the_answer_to_their_deletion_is_lost(cluster, submitter, monkeypatch):
    """The deletion was carried out, so no later visit sees them."""
    job, attempt = place(submitter, seconds=100_000)
    operations.dispatch_attempts()
    operations.request_cancellation(submitter, job.id)

    async def lose_answer(delete, *given):
        await delete(*given)
        raise Ambiguous("answered with status 500")

    with monkeypatch.context() as faulty:
        replaced(faulty, "delete_job", lose_answer)
        every_visit(attempt, 1)
    assert PodRun.objects.get(attempt=attempt).started_at is not None
    every_visit(attempt, 1)
    assert Attempt.objects.get(id=attempt.id).state == "cancelled"


@pytest.fixture
def refused(cluster, submitter):
    """A cancelled gang that runs, of whose first pod the database refuses the row: another one has its place."""
    job, attempt = place(submitter, count=2, seconds=100_000)
    operations.dispatch_attempts()
    remote = attempt.remote_objects.get()
    PodRun.objects.create(
        attempt=attempt, cluster_id=cluster.id, remote_object=remote, index=1, place=0, uid="squatter", name="swy-o-1",
        phase="Running", started_at=now(), observed_at=now(),
    )  # fmt: skip
    operations.request_cancellation(submitter, job.id)
    return attempt


def is_there(cluster, attempt):
    try:
        return not call(cluster, "get_job", attempt.namespace, attempt.remote_objects.get().name).is_terminating
    except NotThere:
        return False


def test_nothing_is_deleted_before_what_was_seen_of_it_can_be_stored(cluster, refused):
    every_visit(refused, 3)
    refused.refresh_from_db()
    assert is_there(cluster, refused)
    assert (refused.finished_at, refused.end_message) == (None, NOT_STORED)
    assert refused.next_action_at > now(), "the pauses grow"
    assert JobEvent.objects.filter(kind="unmetered").count() == 1
    PodRun.objects.filter(uid="squatter").delete()
    every_visit(refused, 1)
    assert not is_there(cluster, refused)
    assert set(PodRun.objects.filter(started_at__isnull=False).values_list("index", "attempt")) == {
        (0, refused.id),
        (1, refused.id),
    }
    every_visit(refused, 1)
    refused.refresh_from_db()
    assert refused.state == "cancelled"


def test_what_can_never_be_stored_does_not_use_devices_for_ever(cluster, refused):
    Attempt.objects.update(tries=MOST_TIMES_REFUSED - 2)
    every_visit(refused, 1)
    assert is_there(cluster, refused)
    every_visit(refused, 1)
    assert not is_there(cluster, refused)


def test_what_was_seen_is_stored_although_the_worker_dies_before_the_deletion(cluster, submitter, monkeypatch):
    job, attempt = place(submitter, seconds=100_000)
    operations.dispatch_attempts()
    operations.request_cancellation(submitter, job.id)

    def die(_):
        raise KeyboardInterrupt

    with monkeypatch.context() as dying:
        dying.setattr(last_looks, "crash_point", die)
        with pytest.raises(KeyboardInterrupt):
            every_visit(attempt, 1)
    assert is_there(cluster, attempt)
    assert PodRun.objects.get(attempt=attempt).started_at is not None
    every_visit(attempt, 2)
    assert Attempt.objects.get(id=attempt.id).state == "cancelled"


async def unavailable(*_):
    raise Unreachable("answered with status 503")


@pytest.mark.parametrize("recalled_for", ["cannot_start", "did_not_start"])
def test_a_recall_whose_deletion_has_begun_is_not_revoked_for_the_pods_that_are_left(
    cluster, submitter, monkeypatch, recalled_for
):
    """A gang has one pod that cannot start, and one that runs: the first is removed first."""
    job, attempt = place(submitter, seconds=600)
    operations.dispatch_attempts()
    observe_until(lambda: PodRun.objects.filter(attempt=attempt, started_at__isnull=False).exists())
    with transaction.atomic():
        ask_to_stop([attempt.id], recalled_for, "back-off")
    removed = []

    async def accept(self, namespace, name, uid):
        removed.append((namespace, name, uid))

    async def being_deleted(self, namespace, name):
        return replace(await real(self, namespace, name), is_terminating=bool(removed))

    async def only_stuck(self, namespace, name):
        pods = await all_pods(self, namespace, name)
        if removed:
            return pods
        return [replace(pod, phase="Pending", reason="ImagePullBackOff: x", started_at=None) for pod in pods]

    real, all_pods = SimulatedDriver.get_job, SimulatedDriver.list_pods
    with monkeypatch.context() as patch:
        patch.setattr(SimulatedDriver, "delete_job", accept)
        patch.setattr(SimulatedDriver, "get_job", being_deleted)
        patch.setattr(SimulatedDriver, "list_pods", only_stuck)
        every_visit(attempt, 2)
    assert len(removed) == 1
    attempt.refresh_from_db()
    assert (attempt.finished_at, attempt.stop_reason) == (None, recalled_for)
    run(driver_of(cluster.id).delete_job(*removed[0]), timeout_seconds=10)
    every_visit(attempt, 2)
    attempt.refresh_from_db()
    job.refresh_from_db()
    assert (attempt.state, attempt.end_reason, job.state) == ("preempted", recalled_for, "queued")


@pytest.fixture
def deserted(cluster, submitter):
    """A job that ran, and its attempt, whose pod was last seen 20 minutes ago and is gone."""
    job, attempt = place(submitter, seconds=600)
    operations.dispatch_attempts()
    observe_until(lambda: Attempt.objects.filter(id=attempt.id, state="running").exists())
    PodRun.objects.update(is_gone=True, observed_at=now() - timedelta(minutes=20))
    return job, attempt


def test_what_ran_and_has_had_no_pod_for_long_although_its_object_exists_is_placed_again(deserted, monkeypatch):
    """As after a control plane was put back to a state before the release."""

    async def none(*_):
        return []

    monkeypatch.setattr(SimulatedDriver, "list_pods", none)
    job, attempt = deserted
    assert recall_deserted() == 1
    every_visit(attempt, 3)
    attempt.refresh_from_db()
    job.refresh_from_db()
    assert (attempt.state, attempt.end_reason, job.state) == ("preempted", "pods_gone", "queued")
    assert job.reason_message.startswith("Attempt 1 was interrupted: ")


def test_what_only_appeared_to_have_no_pods_runs_on_and_is_not_recalled_again(deserted):
    _, attempt = deserted
    assert recall_deserted() == 1
    every_visit(attempt, 2)
    attempt.refresh_from_db()
    assert (attempt.state, attempt.stop_reason, recall_deserted()) == ("running", "", 0)


@pytest.mark.parametrize(
    "pods",
    [
        {"observed_at": Now()},
        {"is_gone": False},
        {"is_gone": False, "finished_at": F("started_at"), "phase": "Succeeded"},
    ],
)
def test_what_has_lately_lost_its_pods_or_has_some_is_left_to_run(deserted, pods):
    PodRun.objects.update(**pods)
    assert recall_deserted() == 0
