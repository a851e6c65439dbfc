"""What the database refuses of a stop that waits for a checkpoint, whoever writes it."""

import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction
from django.db.models.functions import Now

from federation.engine.lifecycle import AttemptState
from federation.models import Attempt, Job
from federation.operations import request_resumption, request_suspension, run_scheduling_cycle
from federation.operations.consequences import Ending
from federation.operations.endings import end_attempts
from federation.operations.transitions import interrupt
from placement.values.reason_codes import ReasonCode
from tests.refusals import constraint_of
from tests.rooms.federation.test_migration import started
from tests.rooms.federation.test_pending_stops import run
from tests.rooms.federation.test_reports import takes_reports

pytestmark = pytest.mark.django_db(transaction=True)
__all__ = ["run", "takes_reports"]
WRONG = {
    "half a wish": 'stop_wish = \'{"then": "suspend"}\'',
    "half of the times": "stop_wished_at = now()",
    "no latest time": 'stop_wish = \'{"then": "suspend"}\', stop_wished_at = now()',
    "another end": "stop_wish = '{\"then\": \"cancel\"}', stop_wished_at = now(), stop_latest_at = now() + interval '1 s'",
    "nobody": "stop_wish = '{\"then\": \"suspend\"}', stop_wished_at = now(), stop_latest_at = now() + interval '1 s'",
    "no body of the move": 'stop_wish = \'{"then": "move", "by": "x", "user": null, "reason": "", "lose_work": true}\', '
    "stop_wished_at = now(), stop_latest_at = now() + interval '1 s'",
    "a JSON null": "stop_wish = 'null', stop_wished_at = now(), stop_latest_at = now() + interval '1 s'",
    "over before": 'stop_wish = \'{"then": "suspend", "by": "x"}\', stop_wished_at = now(), stop_latest_at = now()',
    "too long": 'stop_wish = \'{"then": "suspend", "by": "x"}\', stop_wished_at = now(), stop_latest_at = now() + interval \'3601 s\'',
}
GOOD = 'stop_wish = \'{"then": "suspend", "by": "x"}\', stop_wished_at = now(), stop_latest_at = now() + interval \'3600 s\''


@pytest.mark.parametrize("case", WRONG)
def test_the_database_refuses_a_wish_that_is_not_whole(run, case):
    assert refused(f"UPDATE federation_job SET {WRONG[case]}") == "only_a_reporting_run_waits_for_a_checkpoint"


@pytest.mark.parametrize("state", ["queued", "dispatching"])
def test_the_database_refuses_a_wish_without_a_run(run, state):
    rows_changed("SET session_replication_role = replica")
    Attempt.objects.update(state="lost", finished_at=Now())
    Job.objects.update(state=state)
    rows_changed("SET session_replication_role = origin")
    assert refused(f"UPDATE federation_job SET {GOOD}") == "only_a_reporting_run_waits_for_a_checkpoint"


def test_the_database_refuses_a_wish_of_a_job_that_does_not_report(cluster, submitter):
    started(submitter)
    assert refused(f"UPDATE federation_job SET {GOOD}") == "only_a_reporting_run_waits_for_a_checkpoint"


@pytest.mark.parametrize("state", ["suspended", "queued"])
def test_the_database_ends_a_wish_with_its_run_and_puts_no_such_job_into_the_queue(run, state):
    """Also where a process of the version before writes that the job is queued, because it does not know of the wish."""
    rows_changed(f"UPDATE federation_job SET {GOOD}")
    rows_changed(f"UPDATE federation_job SET state = '{state}', reason_code = 'attempt_returned', started_at = NULL")
    job = Job.objects.get()
    assert (job.stop_wish, job.stop_wished_at, job.stop_latest_at) == (None, None, None)
    assert (job.state, job.suspend_requested_at is not None) == ("suspended", True)
    assert job.reason_code == ("suspended" if state == "queued" else "attempt_returned")


def test_a_process_of_the_version_before_ends_the_run_and_the_job_is_suspended(run, submitter, monkeypatch):
    """It returns the job to the queue, and its cycle then finds nothing to place."""
    job, attempt = run
    request_suspension(submitter, job.id, {"wait_for_checkpoint_seconds": 600})
    monkeypatch.setattr(Job, "is_to_be_suspended", property(lambda one: one.suspend_requested_at is not None))
    with transaction.atomic():
        interrupt([attempt], ReasonCode.PREEMPTED_FOR_JOB, "Stopped", "Stopped.")
        assert end_attempts([Ending(attempt.id, AttemptState.PREEMPTED, ReasonCode.PREEMPTED_FOR_JOB)]) == 1
    run_scheduling_cycle()
    job.refresh_from_db()
    assert (job.state, job.reason_code, job.stop_wish) == ("suspended", "suspended", None)
    request_resumption(submitter, job.id)
    run_scheduling_cycle()
    assert Attempt.objects.filter(job=job, number=2).exists()


def rows_changed(statement):
    with connection.cursor() as cursor:
        cursor.execute(statement)


def refused(statement):
    with pytest.raises(DatabaseError) as error, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)
    assert isinstance(error.value, IntegrityError)
    return constraint_of(error.value)
