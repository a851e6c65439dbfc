"""Nothing ends, is asked back or deleted because something was not seen; and a stop that was asked for is never forgotten."""

import asyncio
import time
from dataclasses import replace
from datetime import timedelta

import pytest
import time_machine
from django.db import connections as django_connections
from django.db import transaction

from clusters.drivers import Ambiguous, JobSeen, NotThere, PodSeen, Refused, WatchEvent
from clusters.drivers.simulated import SimulatedDriver, path_of
from clusters.drivers.simulated.store import Store
from federation import operations
from federation.engine.names import LABEL_ATTEMPT, LABEL_INSTALL
from federation.engine.objects import rendering
from federation.models import Attempt, Job
from federation.observer.buffer import Buffer
from federation.operations import transitions
from federation.operations.endings import REFUSED
from federation.operations.observation import Observations, record_observations
from federation.operations.reconciliation import reconcile_clusters
from foundation.clock import now
from tests.builders import submit
from tests.live import call, gpu_job, observe_until, place

pytestmark = pytest.mark.django_db(transaction=True)
LONG_AGO = timedelta(hours=1)


def in_a_thread(work, *arguments):
    """Awaits what needs the database, off the driver's loop."""

    def run():
        try:
            work(*arguments)
        finally:
            django_connections.close_all()

    return asyncio.to_thread(run)


def released(submitter, jobs=1, **fields):
    """So many jobs whose objects run, of which nobody has observed anything."""
    placed = [submit(submitter, gpu_job(f"job-{number}", seconds=100_000, **fields)) for number in range(jobs)]
    operations.run_scheduling_cycle()
    operations.dispatch_attempts()
    assert Attempt.objects.filter(released_at__isnull=False).count() == jobs
    return [job.id for job in placed]


def replaced(monkeypatch, name, answer):
    """Has the simulated cluster answer `name` by `answer(original, driver, *arguments)`."""
    original = getattr(SimulatedDriver, name)
    monkeypatch.setattr(SimulatedDriver, name, lambda driver, *arguments: answer(original, driver, *arguments))


def wait_until(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


async def nothing(*_):
    return []


def everything_runs_on(jobs):
    states = set(Job.objects.filter(id__in=jobs).values_list("state", flat=True))
    return states <= {"dispatching", "running"} and not Attempt.objects.filter(finished_at__isnull=False).exists()


def test_a_cancel_that_arrives_while_the_cluster_is_told_to_start_is_carried_out(cluster, submitter, monkeypatch):
    job, _ = place(submitter, seconds=100_000)

    async def cancelled_meanwhile(original, driver, *arguments):
        await original(driver, *arguments)
        await in_a_thread(operations.request_cancellation, submitter, job.id)

    replaced(monkeypatch, "release_job", cancelled_meanwhile)
    operations.dispatch_attempts()
    observe_until(lambda: Job.objects.filter(id=job.id, state="cancelled").exists())
    assert call(cluster, "list_jobs") == []


def test_a_second_cancel_has_the_cluster_visited_whatever_became_of_the_first(cluster, submitter):
    job, attempt = place(submitter, seconds=100_000)
    operations.dispatch_attempts()
    operations.request_cancellation(submitter, job.id)
    Attempt.objects.filter(id=attempt.id).update(next_action_at=None)
    operations.request_cancellation(submitter, job.id)
    observe_until(lambda: Job.objects.filter(id=job.id, state="cancelled").exists())
    assert call(cluster, "list_jobs") == []


def two_sets(submitter):
    body = gpu_job(seconds=100_000)
    pods = {**body["pod_sets"][0], "gpu": {"count": 1}}
    body["pod_sets"] = [{**pods, "name": "first"}, {**pods, "name": "second"}]
    return submit(submitter, body)


def test_when_one_object_vanishes_during_the_release_the_others_are_stopped_and_nothing_runs_twice(
    cluster, submitter, monkeypatch
):
    job = two_sets(submitter)
    operations.run_scheduling_cycle()
    second = Attempt.objects.get().remote_objects.get(position=1).name

    async def deleted_before(original, driver, namespace, name, uid, patch):
        if name == second:
            await driver.delete_job(namespace, name, uid)
            raise NotThere("it is gone", status=404)
        await original(driver, namespace, name, uid, patch)

    replaced(monkeypatch, "release_job", deleted_before)
    operations.dispatch_attempts()
    assert (
        Job.objects.get(id=job.id).state == "running"
    )  # until the first set, which was seen to run, is confirmed to be gone
    observe_until(lambda: Attempt.objects.filter(finished_at__isnull=False).exists())
    assert call(cluster, "list_jobs") == []
    assert (Attempt.objects.count(), Attempt.objects.get().end_reason) == (1, "object_deleted")
    assert Job.objects.get(id=job.id).state == "failed"


def test_an_object_that_could_not_be_released_is_released_later_although_another_already_runs(
    cluster, submitter, monkeypatch
):
    job = two_sets(submitter)
    operations.run_scheduling_cycle()
    first, second = Attempt.objects.get().remote_objects.order_by("position").values_list("name", flat=True)
    failures = iter([Ambiguous("503 Service Unavailable", status=503)])

    async def unavailable_once(original, driver, namespace, name, uid, patch):
        if name == second and (failure := next(failures, None)):
            raise failure
        await original(driver, namespace, name, uid, patch)

    replaced(monkeypatch, "release_job", unavailable_once)
    operations.dispatch_attempts()
    pods = call(cluster, "list_pods", Attempt.objects.get().namespace, first)
    record_observations(cluster.id, Observations(pods=pods))
    assert Job.objects.get(id=job.id).state == "running"
    observe_until(lambda: Attempt.objects.filter(released_at__isnull=False).exists())
    assert not call(cluster, "get_job", Attempt.objects.get().namespace, second).suspended


def without_labels(cluster, settings, *labels):
    """Another client takes these labels from the cluster's only Job."""
    store = Store(path_of(settings.HOME, cluster.server))
    with store.write():
        [job] = store.jobs()
        job.labels = {label: value for label, value in job.labels.items() if label not in labels}
        store.put(job)
    store.close()


def test_a_job_whose_object_lost_our_label_ends_as_it_ended(cluster, submitter, settings):
    job, _ = place(submitter, seconds=1)
    operations.dispatch_attempts()
    without_labels(cluster, settings, LABEL_INSTALL)
    assert call(cluster, "list_jobs") == []
    wait_until(lambda: (reconcile_clusters(), Job.objects.get(id=job.id).state)[1] == "succeeded")
    assert Attempt.objects.get().end_reason == "completed"


def test_an_attempt_is_not_stopped_while_its_object_exists_whatever_became_of_its_labels(cluster, submitter, settings):
    job, _ = place(submitter, seconds=100_000)
    operations.dispatch_attempts()
    without_labels(cluster, settings, LABEL_ATTEMPT)
    operations.request_cancellation(submitter, job.id)
    operations.dispatch_attempts()
    observe_until(lambda: Job.objects.get(id=job.id).state == "cancelled")
    assert call(cluster, "list_jobs") == []


@pytest.mark.parametrize("cancelled", [False, True])
def test_when_one_object_of_a_running_gang_is_deleted_the_attempt_ends_only_when_all_are_gone(
    cluster, submitter, cancelled
):
    job = two_sets(submitter)
    operations.run_scheduling_cycle()
    operations.dispatch_attempts()
    attempt = Attempt.objects.get()
    first, second = attempt.remote_objects.order_by("position")
    if cancelled:
        operations.request_cancellation(submitter, job.id)
    call(cluster, "delete_job", attempt.namespace, first.name, first.uid)
    record_observations(cluster.id, Observations(gone_jobs=[first.uid]))
    assert Attempt.objects.get().finished_at is None
    assert call(cluster, "get_job", attempt.namespace, second.name).uid == second.uid
    observe_until(lambda: Attempt.objects.filter(finished_at__isnull=False).exists())
    assert call(cluster, "list_jobs") == []
    assert Attempt.objects.get().end_reason == ("cancelled" if cancelled else "object_deleted")


def test_a_release_that_is_repeated_with_another_patch_leaves_the_running_job_alone(cluster, submitter, monkeypatch):
    [job_id] = released(submitter)
    attempt = Attempt.objects.get()
    uid = attempt.remote_objects.get().uid
    # As if the worker had died before it wrote down that the cluster had done it, and hints had changed since.
    Attempt.objects.update(released_at=None, next_action_at=now(), claim_expires_at=None)
    original = rendering.template_patch
    monkeypatch.setattr(
        rendering,
        "template_patch",
        lambda *given, **more: {**original(*given, **more), "metadata": {"annotations": {"changed": "since"}}},
    )
    operations.dispatch_attempts()
    attempt.refresh_from_db()
    assert (attempt.released_at is not None, attempt.stop_requested_at) == (True, None)
    assert [job.uid for job in call(cluster, "list_jobs")] == [uid]
    assert everything_runs_on([job_id])


def test_healthy_jobs_whose_pods_nobody_saw_are_not_asked_back(cluster, submitter):
    jobs = released(submitter, jobs=2)
    Attempt.objects.update(released_at=now() - LONG_AGO)
    operations.sweep()
    assert Attempt.objects.filter(stop_reason="did_not_start").count() == 2
    operations.dispatch_attempts()
    assert Attempt.objects.filter(stop_requested_at__isnull=False).count() == 0
    assert everything_runs_on(jobs)
    assert set(Job.objects.values_list("state", flat=True)) == {"running"}
    operations.sweep()
    assert Attempt.objects.filter(stop_requested_at__isnull=False).count() == 0


def test_where_pods_cannot_be_looked_at_nothing_is_asked_back(cluster, submitter, monkeypatch):
    jobs = released(submitter)
    Attempt.objects.update(released_at=now() - LONG_AGO)

    async def forbidden(*_):
        raise Refused("pods is forbidden", status=403)

    replaced(monkeypatch, "list_pods", forbidden)
    operations.sweep()
    operations.dispatch_attempts()
    assert len(call(cluster, "list_jobs")) == 1
    assert everything_runs_on(jobs)


def test_a_drain_leaves_alone_what_runs_whether_it_was_seen_or_not(cluster, submitter):
    jobs = released(submitter)
    type(cluster).objects.update(wish="draining")
    operations.sweep()
    operations.dispatch_attempts()
    assert everything_runs_on(jobs)
    assert len(call(cluster, "list_jobs")) == 1


def test_a_cancel_outlives_the_look_at_whether_a_job_has_started(cluster, submitter, monkeypatch):
    [job_id] = released(submitter)
    Attempt.objects.update(released_at=now() - LONG_AGO)
    operations.sweep()

    async def cancelled_meanwhile(original, driver, *arguments):
        found = await original(driver, *arguments)
        await in_a_thread(operations.request_cancellation, submitter, job_id)
        return found

    replaced(monkeypatch, "list_pods", cancelled_meanwhile)
    operations.dispatch_attempts()
    observe_until(lambda: Job.objects.filter(id=job_id, state="cancelled").exists())


def test_a_list_without_our_jobs_ends_none_of_them(cluster, submitter, monkeypatch):
    jobs = released(submitter)
    replaced(monkeypatch, "list_jobs", nothing)
    reconcile_clusters()
    assert everything_runs_on(jobs)


def test_a_new_list_of_the_watch_is_no_news_of_an_end():
    job = JobSeen("swy-x", "j", "uid-1", {}, False, "", "", "", None, False)
    buffer = Buffer("switchyard")
    buffer.add_jobs(WatchEvent("listed", [job]))
    buffer.add_jobs(WatchEvent("listed", []))
    assert list(buffer.take().gone_jobs) == []
    buffer.add_jobs(WatchEvent("deleted", [job]))
    assert list(buffer.take().gone_jobs) == ["uid-1"]


def test_what_prepares_a_node_is_no_report_on_an_attempt():
    labels = {"switchyard.dev/install": "switchyard", "switchyard.dev/preparation": "prepull"}
    job = JobSeen("swy-x", "j", "uid-1", labels, False, "failed", "BackoffLimitExceeded", "", None, False)
    pod = PodSeen("swy-x", "p", "uid-2", labels, "n1", "Failed", "", {}, None, None, 128, False, owner="uid-1")
    buffer = Buffer("switchyard")
    for kind in ("listed", "changed", "deleted"):
        buffer.add_jobs(WatchEvent(kind, [job]))
        buffer.add_pods(WatchEvent(kind, [pod]))
    assert not buffer


def test_when_a_cluster_lacks_most_of_our_jobs_at_once_none_is_ended_and_it_is_told(cluster, submitter, monkeypatch):
    jobs = released(submitter, jobs=5, gpus=1)
    for seen in call(cluster, "list_jobs"):
        call(cluster, "delete_job", seen.namespace, seen.name, seen.uid)
    replaced(monkeypatch, "list_jobs", nothing)
    reconcile_clusters()
    assert everything_runs_on(jobs)
    assert cluster.events.filter(kind="too_many_vanished").count() == 1


def test_what_another_cluster_at_the_same_address_lacks_ends_nothing(cluster, submitter, monkeypatch):
    jobs = released(submitter)
    for seen in call(cluster, "list_jobs"):
        call(cluster, "delete_job", seen.namespace, seen.name, seen.uid)

    async def somebody_else(*_):
        return "another-cluster"

    replaced(monkeypatch, "identity", somebody_else)
    reconcile_clusters()
    assert everything_runs_on(jobs)
    operations.request_cancellation(submitter, jobs[0])
    operations.dispatch_attempts()
    assert Job.objects.get(id=jobs[0]).state == "cancelling"


def another_cluster_answers(monkeypatch):
    async def somebody_else(*_):
        return "another-cluster"

    replaced(monkeypatch, "identity", somebody_else)


def refused_after_all(cluster, submitter, **fields):
    """A job that runs, although the cluster refused a later, repeated release of it."""
    [job_id] = released(submitter, **fields)
    attempt = Attempt.objects.get(job=job_id)
    ask_to_stop(attempt)
    return job_id, attempt


def ask_to_stop(attempt):
    with transaction.atomic():
        assert transitions.ask_to_stop([attempt.id], REFUSED) == 1


def test_another_clusters_object_of_the_same_name_ends_nothing(cluster, submitter, monkeypatch):
    job_id, _ = refused_after_all(cluster, submitter)

    async def copied(original, driver, *arguments):
        return replace(await original(driver, *arguments), uid="copied-from-a-backup")

    replaced(monkeypatch, "get_job", copied)
    another_cluster_answers(monkeypatch)
    operations.dispatch_attempts()
    assert everything_runs_on([job_id])


def test_what_another_cluster_at_the_same_address_created_is_not_started(cluster, submitter, monkeypatch):
    place(submitter, seconds=100_000)
    another_cluster_answers(monkeypatch)
    operations.dispatch_attempts()
    assert [job.suspended for job in call(cluster, "list_jobs")] == [True]
    assert Attempt.objects.get().state == "reserved"


def test_a_run_that_succeeded_before_it_was_stopped_has_succeeded(cluster, submitter):
    job, _ = place(submitter)
    operations.dispatch_attempts()
    with time_machine.travel(now() + LONG_AGO):
        assert [seen.outcome for seen in call(cluster, "list_jobs")] == ["succeeded"]
    ask_to_stop(Attempt.objects.get())
    operations.dispatch_attempts()
    observe_until(lambda: Job.objects.get(id=job.id).state == "succeeded")
    assert Attempt.objects.count() == 1


def test_a_job_is_not_placed_again_while_pods_outlive_its_deleted_object(cluster, submitter, monkeypatch):
    job_id, attempt = refused_after_all(cluster, submitter)

    async def deleted_in_the_background(*_):
        raise NotThere("not found")

    with monkeypatch.context() as meanwhile:
        replaced(meanwhile, "get_job", deleted_in_the_background)
        operations.dispatch_attempts()
        record_observations(cluster.id, Observations(gone_jobs=[attempt.remote_objects.get().uid]))
        operations.dispatch_attempts()
        assert everything_runs_on([job_id])
        replaced(meanwhile, "list_pods", nothing)
        Attempt.objects.update(next_action_at=now())
        operations.dispatch_attempts()
        assert Job.objects.get(id=job_id).state == "queued"


def test_a_worker_whose_clock_is_ahead_deletes_nothing_early(cluster, submitter):
    done, _ = place(submitter)
    observe_until(lambda: Attempt.objects.filter(job=done, settled_at__isnull=False).exists())
    kept = call(cluster, "list_jobs")
    with time_machine.travel(now() + 2 * LONG_AGO):
        reconcile_clusters()
    assert call(cluster, "list_jobs") == kept
