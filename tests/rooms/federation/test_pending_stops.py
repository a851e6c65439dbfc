"""A stop that waits for the next checkpoint: it is one wish, and takes effect by what the database knows, or ends with the run."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from django.db import connection, transaction
from django.db.models import F

from clusters.models import Cluster
from federation import operations
from federation.engine.lifecycle import AttemptState
from federation.models import Attempt, Checkpoint, Job, JobEvent, Move
from federation.operations import transitions
from federation.operations.consequences import Ending
from federation.operations.endings import end_attempts
from federation.operations.reports import record_report
from federation.queries.pending_stops import is_checkpoint_wanted
from federation.queries.quotes import _desk
from foundation.problems import Conflict, Invalid
from placement.values.reason_codes import ReasonCode
from tenancy.models import AuditEntry, RoleBinding, User
from tests.builders import submit
from tests.live import gpu_job, simulated_cluster
from tests.rooms.federation.test_migration import started
from tests.rooms.federation.test_reports import takes_reports, token_of
from tests.rooms.federation.test_saving_moves import THRIFTY, cost
from tests.rooms.federation.test_silent_moves import running

pytestmark = pytest.mark.django_db(transaction=True)
__all__ = ["takes_reports"]
WAIT = {"wait_for_checkpoint_seconds": 600}
MOVE = {"lose_work": True, **WAIT}
PLAIN = {"lose_work": True}
COUNTER = iter(range(1, 10_000))


def suspend(submitter, job, body=WAIT):
    operations.request_suspension(submitter, job.id, body)


def move(submitter, job, body=MOVE):
    operations.request_migration(submitter, job.id, body)


def resume(submitter, job):
    operations.request_resumption(submitter, job.id)


def cancel(submitter, job):
    operations.request_cancellation(submitter, job.id)


@pytest.fixture
def run(cluster, submitter):
    """A job that reports, and runs, with its attempt; another cluster has room for it."""
    found = started(submitter, reports=True)
    simulated_cluster("west")
    return found


def report(attempt, sequence=None, reference="s3://x/1", **told):
    operations.admit_report(attempt.id)
    body = {"sequence": sequence or next(COUNTER), **told}
    return record_report(attempt.id, body | ({"checkpoint": {"reference": reference}} if reference else {}))


def pass_time(seconds):
    Checkpoint.objects.update(
        written_at=F("written_at") - timedelta(seconds=seconds),
        reported_at=F("reported_at") - timedelta(seconds=seconds),
    )
    Job.objects.update(
        stop_wished_at=F("stop_wished_at") - timedelta(seconds=seconds),
        stop_latest_at=F("stop_latest_at") - timedelta(seconds=seconds),
    )


def state_of(job):
    """Its state; what waits; whether it is suspended; why its attempt is being stopped."""
    job.refresh_from_db()
    attempt = Attempt.objects.get(job=job)
    wish = None if job.stop_wish is None else job.stop_wish["then"]
    return job.state, wish, job.suspend_requested_at is not None, attempt.stop_reason


GOES_ON = {"suspend": ("running", "suspend", False, ""), "move": ("running", "move", False, "")}
STOPS = {"suspend": ("running", None, True, "suspended"), "move": ("running", None, False, "migrated")}
WISHES = {"suspend": suspend, "move": move}


def kinds(job):
    return list(JobEvent.objects.filter(job=job).order_by("id").values_list("kind", flat=True))


def end(attempt, state, reason, **more):
    with transaction.atomic():
        assert end_attempts([Ending(attempt.id, state, reason, **more)]) == 1


@pytest.mark.parametrize("wish", WISHES)
def test_the_run_goes_on_until_a_checkpoint_is_reported_after_the_request(run, submitter, wish):
    job, attempt = run
    report(attempt)
    WISHES[wish](submitter, job)
    for _ in "12":
        assert operations.relocate_jobs() == 0
        assert state_of(job) == GOES_ON[wish]
    report(attempt, reference="", step=7)
    assert (operations.relocate_jobs(), state_of(job)) == (0, GOES_ON[wish])
    report(attempt)  # the same reference again, with a newer checkpoint
    assert (operations.relocate_jobs(), state_of(job)) == (1, STOPS[wish])
    assert operations.relocate_jobs() == 0
    assert AuditEntry.objects.filter(action=f"job.{'suspend' if wish == 'suspend' else 'migrate'}").count() == 1 + (
        wish == "move"
    )


@pytest.mark.parametrize("wish", WISHES)
def test_a_late_report_that_changes_nothing_does_not_count(run, submitter, wish):
    job, attempt = run
    report(attempt, 100_000)
    WISHES[wish](submitter, job)
    assert not report(attempt, 99_999)
    assert (operations.relocate_jobs(), state_of(job)) == (0, GOES_ON[wish])
    assert report(attempt, 99_998, reference="s3://x/older")  # the next attempt would not go on from it
    assert (operations.relocate_jobs(), state_of(job)) == (0, GOES_ON[wish])
    assert is_checkpoint_wanted(attempt.id)
    assert report(attempt, 100_001)
    assert (operations.relocate_jobs(), state_of(job)) == (1, STOPS[wish])


@pytest.mark.parametrize("wish", WISHES)
def test_it_takes_effect_when_the_time_is_over_by_the_clock_of_the_database(run, submitter, wish, monkeypatch):
    job, attempt = run
    report(attempt)
    WISHES[wish](submitter, job)
    monkeypatch.setattr("foundation.host.Host.now", lambda _: datetime(2100, 1, 1, tzinfo=UTC))
    pass_time(590)
    assert (operations.relocate_jobs(), state_of(job)) == (0, GOES_ON[wish])
    pass_time(11)
    assert (operations.relocate_jobs(), state_of(job)) == (1, STOPS[wish])


def test_the_report_wakes_the_round_and_is_told_that_a_checkpoint_is_wanted(run, submitter, client):
    job, attempt = run

    def told(sequence, **more):
        topics = [row[0] for row in rows("SELECT topic FROM foundation_outboxmessage WHERE topic = 'relocate'")]
        answer = client.post(
            f"/api/v1/attempts/{attempt.id}/reports",
            {"sequence": sequence, **more},
            content_type="application/json",
            headers={"Authorization": f"Bearer {token_of(attempt)}"},
        )
        new = rows("SELECT topic FROM foundation_outboxmessage WHERE topic = 'relocate'")
        return answer.json()["checkpoint_wanted"], len(new) - len(topics)

    saved = {"checkpoint": {"reference": "s3://x/2"}}
    assert told(1, **saved) == (False, 0)
    suspend(submitter, job)
    assert told(2, step=1)[0] is True
    assert told(3, **saved) == (False, 1)
    resume(submitter, job)
    assert told(4, step=2) == (False, 0)
    suspend(submitter, job)
    pass_time(601)
    assert told(5, step=2)[0] is False  # it is too late for one


def rows(statement):
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall()


@pytest.mark.parametrize("state", ["queued", "dispatching"])
def test_what_does_not_run_has_nothing_to_save_and_is_suspended_now(cluster, submitter, state):
    job = submit(submitter, gpu_job() | {"reports": True})
    if state == "dispatching":
        operations.run_scheduling_cycle()
    suspend(submitter, job)
    job.refresh_from_db()
    assert (job.suspend_requested_at is None, job.stop_wish) == (False, None)
    with pytest.raises(Conflict):
        move(submitter, job)


@pytest.mark.parametrize("wish", WISHES)
def test_what_ends_or_is_cancelled_cannot_be_asked(run, submitter, wish):
    job, attempt = run
    cancel(submitter, job)
    with pytest.raises(Conflict):
        WISHES[wish](submitter, job)
    end(attempt, AttemptState.CANCELLED, ReasonCode.CANCELLED)
    with pytest.raises(Conflict):
        WISHES[wish](submitter, job)


REQUESTS = {
    "suspend later": (suspend, GOES_ON["suspend"]),
    "move later": (move, GOES_ON["move"]),
    "suspend now": (lambda who, job: suspend(who, job, None), STOPS["suspend"]),
    "move now": (lambda who, job: move(who, job, PLAIN), STOPS["move"]),
    "resume": (resume, ("running", None, False, "")),
    "cancel": (cancel, ("cancelling", None, False, "cancelled")),
}


@pytest.mark.parametrize("second", REQUESTS)
@pytest.mark.parametrize("first", WISHES)
def test_a_second_request_replaces_or_withdraws_the_first(run, submitter, first, second):
    job, _ = run
    WISHES[first](submitter, job)
    job.refresh_from_db()
    since = job.stop_wished_at
    ask, then = REQUESTS[second]
    ask(submitter, job)
    assert state_of(job) == then
    assert job.stop_wished_at is None or job.stop_wished_at > since
    pass_time(601)
    operations.relocate_jobs()
    assert Move.objects.count() == ("move" in second)


@pytest.mark.parametrize("wish", WISHES)
def test_a_move_that_is_refused_leaves_what_waits(run, submitter, wish):
    job, _ = run
    WISHES[wish](submitter, job)
    no_room(job)
    for body in (MOVE, PLAIN):
        with pytest.raises(Conflict, match="would take it now"):
            move(submitter, job, body)
    with pytest.raises(Invalid):
        suspend(submitter, job, {"wait_for_checkpoint_seconds": 3601})
    assert state_of(job) == GOES_ON[wish]


FOREIGN = (
    ReasonCode.PREEMPTED_FOR_JOB,
    ReasonCode.MAINTENANCE_BEGAN,
    ReasonCode.LIMIT_LOWERED,
    ReasonCode.MIGRATED,
    ReasonCode.CLUSTER_DRAINING,
)


@pytest.mark.parametrize("is_noticed", [True, False])
@pytest.mark.parametrize("reason", FOREIGN)
@pytest.mark.parametrize("wish", WISHES)
def test_any_other_stop_comes_first(run, submitter, wish, reason, is_noticed):
    """Whether or not a round runs before the run has ended."""
    job, attempt = run
    WISHES[wish](submitter, job)
    with transaction.atomic():
        transitions.interrupt([attempt], reason, "Stopped", "Stopped.")
    attempt.refresh_from_db()
    assert attempt.stop_reason == reason
    if is_noticed:
        assert operations.relocate_jobs() == 1
    end(attempt, AttemptState.PREEMPTED, reason)
    job.refresh_from_db()
    after = ("suspended", True) if wish == "suspend" else ("queued", False)
    assert (job.state, job.suspend_requested_at is not None, job.stop_wish) == (*after, None)
    assert Move.objects.count() == 0
    if wish == "suspend":
        resume(submitter, job)
        job.refresh_from_db()
        assert (job.state, job.suspend_requested_at) == ("queued", None)


ENDS = {
    "succeeds": ({}, AttemptState.SUCCEEDED, ReasonCode.COMPLETED, {"exit_code": 0}, ("succeeded", "succeeded")),
    "fails for good": ({}, AttemptState.FAILED, "program_failed", {"exit_code": 3}, ("failed", "failed")),
    "is lost": ({}, AttemptState.LOST, ReasonCode.CLUSTER_LOST, {}, ("suspended", "queued")),
}


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("wish", WISHES)
def test_a_run_that_ends_meanwhile_ends_as_it_ends(run, submitter, wish, how):
    job, attempt = run
    WISHES[wish](submitter, job)
    _, state, reason, more, (suspended, moved) = ENDS[how]
    if state == AttemptState.LOST:
        Attempt.objects.filter(id=attempt.id).update(state="unknown", state_before_unknown="running")
    end(attempt, state, reason, **more)
    job.refresh_from_db()
    assert (job.state, job.stop_wish) == (suspended if wish == "suspend" else moved, None)
    assert operations.relocate_jobs() == 0


def test_a_move_needs_a_checkpoint_only_when_it_is_carried_out(run, submitter):
    job, attempt = run
    with pytest.raises(Conflict, match="no checkpoint"):
        move(submitter, job, {})
    move(submitter, job, WAIT)
    report(attempt)
    assert (operations.relocate_jobs(), state_of(job)) == (1, STOPS["move"])
    assert Move.objects.get().cause == "user"
    assert "its checkpoint is reported" in JobEvent.objects.get(job=job, kind="interrupted").message


def no_room(_job):
    Cluster.objects.filter(name="west").update(wish="cordoned")
    _desk.forget()


def no_user(job):
    User.objects.filter(id=job.created_by_id).update(is_active=False)


def no_right(_job):
    RoleBinding.objects.all().delete()


def no_cluster(_job):
    Job.objects.update(stop_wish=wish_with(clusters=[str(uuid4())]))


def wish_with(**more):
    return Job.objects.get().stop_wish | more


IN_VAIN = {
    "no checkpoint": (lambda _job: None, {}, "no checkpoint"),
    "no room": (no_room, PLAIN, "would take it now"),
    "no user": (no_user, PLAIN, "may not any more"),
    "no right": (no_right, PLAIN, "Not moved"),
    "no cluster": (no_cluster, PLAIN, "may not see it"),
}


@pytest.mark.parametrize("why", IN_VAIN)
def test_a_move_that_is_not_possible_when_it_is_due_is_given_up_and_the_run_goes_on(run, submitter, why):
    job, _ = run
    spoil, body, words = IN_VAIN[why]
    move(submitter, job, body | WAIT)
    spoil(job)
    pass_time(601)
    assert (operations.relocate_jobs(), state_of(job)) == (1, ("running", None, False, ""))
    assert words in JobEvent.objects.get(job=job, kind="stop_withdrawn").message
    assert operations.relocate_jobs() == 0


def test_the_clusters_that_its_user_named_are_those_of_the_move(run, submitter):
    job, _ = run
    north = simulated_cluster("north")
    move(submitter, job, MOVE | {"clusters": ["north"], "reason": "slow"})
    pass_time(601)
    assert operations.relocate_jobs() == 1
    assert Move.objects.get().clusters == [north.id]
    assert "(slow; the time to wait" in JobEvent.objects.get(job=job, kind="interrupted").message


def test_nothing_is_wanted_of_an_attempt_that_is_none(cluster):
    assert not is_checkpoint_wanted(uuid4())


def test_a_gateway_that_saves_money_does_not_move_what_is_about_to_stop(cluster, submitter):
    cost(cluster, 4)
    job, _ = running(submitter, **THRIFTY, reports=True)
    cost(simulated_cluster("west"), 3)
    suspend(submitter, job)
    assert (operations.relocate_jobs(), state_of(job)) == (0, GOES_ON["suspend"])
    resume(submitter, job)
    assert operations.relocate_jobs() == 1
    assert Move.objects.get().cause == "price"
