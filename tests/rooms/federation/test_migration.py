"""A user moves a running job to another cluster: nothing is stopped unless it then fits there."""

from datetime import timedelta

import pytest
from django.db import transaction
from django.db.models.functions import Now

from federation import operations
from federation.engine.lifecycle import AttemptState
from federation.models import Attempt, Checkpoint, Job, JobEvent
from federation.operations import endings, transitions
from federation.operations.consequences import Ending
from federation.queries.quotes import _desk
from foundation.problems import Conflict, Invalid, NotFound
from tenancy.models import AuditEntry, User
from tenancy.queries import Actor
from tests.builders import make_user, submit
from tests.live import gpu_job, observe_until, simulated_cluster

pytestmark = pytest.mark.django_db(transaction=True)


def started(submitter, **fields):
    """A job that runs since an hour, without a turn of the observer."""
    job = submit(submitter, gpu_job() | fields)
    operations.run_scheduling_cycle()
    since = Now() - timedelta(hours=1)
    Attempt.objects.filter(job=job).update(
        state="running", starting_at=since, released_at=since, started_at=since, next_action_at=None
    )
    Job.objects.filter(id=job.id).update(state="running", started_at=since)
    _desk.forget()
    return job, Attempt.objects.select_related("cluster").get(job=job)


def checkpoint(attempt, flavors=()):
    Checkpoint.objects.create(
        attempt=attempt,
        sequence=1,
        reference="s3://x/1",
        flavors=list(flavors),
        written_at=Now() - timedelta(minutes=5),
    )


def moved(attempt):
    attempt.refresh_from_db()
    return attempt.stop_reason == "migrated"


def ended(attempt):
    attempt.refresh_from_db()
    with transaction.atomic():
        end = Ending(attempt.id, AttemptState.PREEMPTED, attempt.stop_reason, attempt.stop_message)
        assert endings.end_attempts([end]) == 1


def test_a_running_job_continues_on_another_cluster_with_one_run_at_a_time(cluster, submitter):
    other = simulated_cluster("west")
    job = submit(submitter, gpu_job(seconds=100_000))
    observe_until(lambda: Job.objects.filter(id=job.id, state="running").exists())
    first = Attempt.objects.get(job=job)
    _desk.forget()
    operations.request_migration(submitter, job.id, {"lose_work": True})
    observe_until(lambda: Job.objects.filter(id=job.id, state="running", attempts__number=2).exists())
    first.refresh_from_db()
    second = Attempt.objects.get(job=job, number=2)
    assert (first.state, first.end_reason) == ("preempted", "migrated")
    assert {first.cluster_id, second.cluster_id} == {cluster.id, other.id}
    assert second.reserved_at >= first.finished_at


def test_the_job_avoids_its_old_cluster_for_ten_minutes_and_says_why(cluster, submitter):
    other = simulated_cluster("west")
    job, attempt = started(submitter, checkpoint_seconds=600)
    operations.request_migration(submitter, job.id, {"reason": "slow today"})
    operations.request_migration(submitter, job.id, {"reason": "slow today"})
    event = JobEvent.objects.get(job=job, kind="interrupted").message
    assert "(slow today)" in event
    assert "has room for it now. No work is repeated" in event
    assert AuditEntry.objects.filter(action="job.migrate", object_id=str(job.id)).count() == 1
    free = other if attempt.cluster_id == cluster.id else cluster
    ended(attempt)
    job.refresh_from_db()
    assert (job.state, job.reason_code) == ("queued", "attempt_returned")
    operations.run_scheduling_cycle()
    assert Attempt.objects.get(job=job, number=2).cluster_id == free.id


@pytest.mark.parametrize("minutes", [9, 11])
def test_it_may_return_after_ten_minutes(cluster, submitter, minutes):
    job, attempt = started(submitter)
    with transaction.atomic():
        transitions.interrupt([attempt], "migrated", "Moved", "Moved.")
    ended(attempt)
    Attempt.objects.filter(id=attempt.id).update(finished_at=Now() - timedelta(minutes=minutes))
    operations.run_scheduling_cycle()
    job.refresh_from_db()
    if minutes > 10:
        assert job.state == "dispatching"
    else:
        assert (job.state, job.explanation["clusters"][0]["code"]) == ("queued", "moved_away")


def test_nothing_is_stopped_where_no_other_cluster_has_room(cluster, submitter):
    job, attempt = started(submitter, checkpoint_seconds=600)
    with pytest.raises(Conflict, match="no other cluster would take it now") as refused:
        operations.request_migration(submitter, job.id, {})
    assert (refused.value.code, moved(attempt)) == ("no_place_to_move", False)


def test_nothing_is_stopped_that_could_not_be_resumed_there(cluster, submitter):
    simulated_cluster("west")
    job, attempt = started(submitter)
    with pytest.raises(Conflict, match="it has reported no checkpoint") as refused:
        operations.request_migration(submitter, job.id, None)
    assert (refused.value.code, moved(attempt)) == ("cannot_resume", False)
    checkpoint(attempt, ["another"])
    with pytest.raises(Conflict, match="none that can be resumed on"):
        operations.request_migration(submitter, job.id, {})
    Checkpoint.objects.all().delete()
    checkpoint(attempt, [attempt.flavor])
    operations.request_migration(submitter, job.id, {})
    assert moved(attempt)


def test_only_a_running_job_can_be_moved_and_only_by_those_who_may_cancel_it(cluster, submitter):
    simulated_cluster("west")
    waiting = submit(submitter, gpu_job())
    with pytest.raises(Conflict, match="Only a job that runs"):
        operations.request_migration(submitter, waiting.id, {})
    with pytest.raises(NotFound):
        operations.request_migration(Actor(make_user("x@y.example").id, "x"), waiting.id, {})
    for body in ({"lose_work": "yes"}, {"where": 1}, [], {"reason": "x" * 301}):
        with pytest.raises(Invalid):
            operations.request_migration(submitter, waiting.id, body)


def test_a_job_that_is_suspended_while_it_is_moved_is_suspended(cluster, submitter):
    simulated_cluster("west")
    job, attempt = started(submitter)
    operations.request_migration(submitter, job.id, {"lose_work": True})
    operations.request_suspension(submitter, job.id)
    ended(attempt)
    job.refresh_from_db()
    assert job.state == "suspended"


def test_a_repeated_request_with_its_key_moves_the_job_once_also_after_the_move(cluster, submitter, call):
    simulated_cluster("west")
    job, attempt = started(submitter)
    ada = User.objects.get(id=submitter.user_id)
    answers = [call(ada, "post", f"/jobs/{job.id}/migrate", {"lose_work": True}, **{"Idempotency-Key": "k-1"})]
    ended(attempt)
    operations.run_scheduling_cycle()
    answers.append(call(ada, "post", f"/jobs/{job.id}/migrate", {"lose_work": True}, **{"Idempotency-Key": "k-1"}))
    assert [status for status, _ in answers] == [202, 202]
    assert answers[0][1] == answers[1][1]
    assert AuditEntry.objects.filter(action="job.migrate").count() == 1
    assert not moved(Attempt.objects.get(job=job, number=2))
