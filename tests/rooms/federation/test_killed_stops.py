"""A worker that is killed between the report of a checkpoint and the stop that waited for it leaves what the next one completes."""

import pytest

from federation import operations
from federation.models import Attempt, Job, JobEvent, Move
from federation.operations.reports import record_report
from tenancy.models import AuditEntry
from tests.live import simulated_cluster
from tests.rooms.federation.test_killed_moves import MOST_COMMITS, STEPS, claims_expire, is_killed, objects_of
from tests.rooms.federation.test_reports import takes_reports
from tests.rooms.federation.test_silent_moves import running

pytestmark = pytest.mark.django_db(transaction=True)
__all__ = ["takes_reports"]
WAIT = {"wait_for_checkpoint_seconds": 600}
ROUNDS = 5


def suspend(submitter, job):
    operations.request_suspension(submitter, job.id, WAIT)
    return "job_suspending", "job.suspend", 1


def move(submitter, job):
    operations.request_migration(submitter, job.id, WAIT)
    return "interrupted", "job.migrate", 2


@pytest.mark.parametrize("wish", [suspend, move])
def test_whenever_a_worker_dies_after_the_report_the_next_one_stops_the_run_once(cluster, submitter, wish):
    job, attempt = running(submitter, reports=True)
    simulated_cluster("west")
    stopping, action, entries = wish(submitter, job)
    operations.admit_report(attempt.id)
    assert record_report(attempt.id, {"sequence": 2000, "checkpoint": {"reference": "s3://x/2000"}})
    deaths = 0
    for number in range(1, MOST_COMMITS):
        died = [is_killed(operations.relocate_jobs, number, before=is_early) for is_early in (True, False)]
        stops = JobEvent.objects.filter(job=job, kind=stopping).count()
        asked = Attempt.objects.filter(job=job, stop_requested_at__isnull=False).count()
        assert (stops, Job.objects.filter(stop_latest_at=None).count()) == (asked, asked), (
            "all of it is done, or nothing"
        )
        deaths += sum(died)
        if not any(died):
            break
    assert deaths >= 2
    assert JobEvent.objects.filter(job=job, kind=stopping).count() == 1
    assert AuditEntry.objects.filter(action=action).count() == entries
    assert Move.objects.count() == (wish is move)
    for _ in range(ROUNDS):
        for step in STEPS:
            claims_expire()
            step()
            assert len(objects_of(job)) <= 1, "it runs once"
    job.refresh_from_db()
    attempts = list(Attempt.objects.order_by("number").values_list("end_reason", "cluster__name"))
    assert attempts == ([("suspended", "east")] if wish is suspend else [("migrated", "east"), ("", "west")])
    assert (job.state == "suspended", job.suspend_requested_at is not None) == (wish is suspend, wish is suspend)
