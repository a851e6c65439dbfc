"""A job's way through the house, in one process, over simulated clusters: every operation by hand, in order."""

import pytest

from billing.models import UsageSegment
from clusters.drivers import connections
from clusters.operations import record_contact, record_silence
from clusters.queries import driver_of
from federation import operations
from federation.models import Attempt, Job
from quotas.models import Hold
from tests.builders import submit
from tests.live import gpu_job, observe_until

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_job_runs_once_is_metered_and_gives_its_hold_back(cluster, submitter):
    job = submit(submitter, gpu_job(gpus=4))
    observe_until(lambda: Attempt.objects.filter(settled_at__isnull=False).exists())
    job.refresh_from_db()
    attempt = Attempt.objects.get()
    assert (job.state, job.exit_code) == ("succeeded", 0)
    assert [o.uid for o in attempt.remote_objects.all()] == [
        o.uid for o in connections.run(driver_of(cluster.id).list_jobs(), 5)
    ]
    pod = attempt.pods.get()
    assert UsageSegment.objects.get().gpu_milliseconds == 4 * round(
        (pod.finished_at - pod.started_at).total_seconds() * 1000
    )
    assert Hold.objects.get().state == "posted"


def test_a_failing_program_fails_its_job_with_its_exit_code(cluster, submitter):
    job = submit(submitter, gpu_job(exit_code=3))
    observe_until(lambda: Job.objects.filter(state="failed").exists())
    job.refresh_from_db()
    assert (job.exit_code, job.reason_code) == (3, "program_failed")


def test_a_gang_that_does_not_fit_waits_and_says_why(cluster, submitter):
    first = submit(submitter, gpu_job("first", count=2, seconds=600))
    second = submit(submitter, gpu_job("second", count=2))
    observe_until(lambda: Job.objects.filter(id=first.id, state="running").exists())
    second.refresh_from_db()
    assert second.state == "queued"
    assert second.reason_code in {"behind_in_queue", "waiting_for_capacity"}
    assert second.explanation["clusters"][0]["cluster"] == "east"
    operations.request_cancellation(submitter, first.id)
    observe_until(lambda: Job.objects.filter(id=second.id, state="succeeded").exists())


def test_a_running_job_that_is_cancelled_leaves_nothing_behind(cluster, submitter):
    job = submit(submitter, gpu_job(seconds=600))
    observe_until(lambda: Job.objects.filter(state="running").exists())
    operations.request_cancellation(submitter, job.id)
    observe_until(lambda: Attempt.objects.filter(settled_at__isnull=False).exists())
    job.refresh_from_db()
    assert job.state == "cancelled"
    assert Attempt.objects.get().state == "cancelled"
    assert connections.run(driver_of(cluster.id).list_jobs(), 5) == []
    assert Hold.objects.get().state == "posted"


def test_a_waiting_job_that_is_cancelled_is_over_at_once(submitter):
    job = submit(submitter, gpu_job())
    operations.request_cancellation(submitter, job.id)
    job.refresh_from_db()
    assert (job.state, Attempt.objects.count()) == ("cancelled", 0)


def test_a_silent_cluster_holds_its_jobs_and_a_returning_one_is_the_truth(cluster, submitter, settings):
    job = submit(submitter, gpu_job(seconds=3))
    observe_until(lambda: Job.objects.filter(state="running").exists())
    settings.CLUSTER_LOST_SECONDS = 0
    record_silence(cluster.id, "no answer")
    operations.sweep()
    attempt = Attempt.objects.get()
    assert attempt.state == "unknown"
    operations.run_scheduling_cycle()
    assert Attempt.objects.count() == 1
    record_contact(cluster.id)
    operations.sweep()
    attempt.refresh_from_db()
    assert attempt.state == "running"
    observe_until(lambda: Job.objects.filter(id=job.id, state="succeeded").exists())
    assert Attempt.objects.count() == 1
