"""Two of everything, at once, with real commits."""

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial

import pytest
from django.db import transaction
from django.db.models import Count

from clusters.drivers import connections
from clusters.models import Cluster
from clusters.queries import driver_of
from federation import operations
from federation.engine.lifecycle import AttemptState
from federation.locks import lock_jobs_and_attempts
from federation.models import LIVE_ATTEMPT_STATES, Attempt, Job, KeptRoom, Move
from federation.operations import dispatch, transitions
from federation.operations.consequences import Ending
from federation.operations.endings import end_attempts
from federation.operations.kept_room import keep_room
from federation.queries.quotes import _desk
from foundation.clock import database_now
from foundation.problems import Conflict
from placement.values import decisions
from quotas.models import QuotaLimit
from tenancy.models import AuditEntry
from tests.builders import make_limit, submit
from tests.kept_sessions import end_sessions
from tests.live import gpu_job, observe_until, simulated_cluster

pytestmark = pytest.mark.django_db(transaction=True)


def at_once(*works: Callable[[], object]) -> list[Exception]:
    """Runs the works in threads that start together; returns what they raised."""
    barrier, raised = threading.Barrier(len(works)), []

    def run(work: Callable[[], object]) -> None:
        barrier.wait()
        try:
            work()
        except Exception as error:  # noqa: BLE001 - the test looks at what was raised
            raised.append(error)
        finally:
            end_sessions()

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised


def test_two_cycles_at_once_place_each_job_once_and_stay_inside_the_quota(cluster, submitter):
    make_limit("acme/research", "gpu", "6")
    for number in range(12):
        submit(submitter, gpu_job(f"job-{number}", gpus=1, seconds=60))
    assert at_once(*[operations.run_scheduling_cycle] * 4) == []
    live = Attempt.objects.filter(state__in=LIVE_ATTEMPT_STATES)
    assert live.count() == 6
    assert not live.values("job").annotate(n=Count("id")).filter(n__gt=1).exists()
    assert QuotaLimit.objects.get().held == 6000


def test_two_cycles_that_keep_room_for_a_job_at_once_keep_it_once(cluster, submitter):
    job, now = submit(submitter, gpu_job(gpus=8, seconds=60)), database_now()
    until, again = now + timedelta(hours=6), now + timedelta(hours=9)
    kept = decisions.KeptRoom(job.id, cluster.id, ("h100-0",), now, until, again, idle={"gpu": 8000})
    has_kept = threading.Event()

    def keep_first():
        with transaction.atomic():
            keep_room([kept])
            has_kept.set()
            time.sleep(0.3)  # the other one begins before this one commits

    def keep_second():
        has_kept.wait()
        keep_room([kept])

    assert at_once(keep_first, keep_second) == []
    assert KeptRoom.objects.get().job_id == job.id


def test_two_dispatchers_at_once_make_each_object_once(cluster, submitter):
    for number in range(8):
        submit(submitter, gpu_job(f"job-{number}", gpus=1, seconds=60))
    operations.run_scheduling_cycle()
    assert at_once(*[operations.dispatch_attempts] * 3) == []
    uids = [job.uid for job in connections.run(driver_of(cluster.id).list_jobs(), 5)]
    stored = [attempt.remote_objects.get().uid for attempt in Attempt.objects.all()]
    assert (len(uids), sorted(uids)) == (8, sorted(stored))


@pytest.mark.parametrize("wish", ["request_cancellation", "request_suspension"])
def test_a_stop_that_comes_while_objects_are_created_is_the_next_visit(cluster, submitter, monkeypatch, wish):
    job = submit(submitter, gpu_job(seconds=600))
    operations.run_scheduling_cycle()
    stop = partial(getattr(operations, wish), submitter, job.id)
    monkeypatch.setattr(dispatch, "crash_point", lambda name: stop() if name == "created" else None)
    operations.dispatch_attempts()
    monkeypatch.undo()
    attempt = Attempt.objects.get()
    assert (attempt.state, attempt.claim_expires_at, attempt.released_at) == ("created", None, None)
    operations.dispatch_attempts()
    assert connections.run(driver_of(cluster.id).list_jobs(), 5) == []


@pytest.mark.parametrize("_round", range(5))
def test_cancel_racing_start_ends_cancelled_with_nothing_left(cluster, submitter, _round):
    job = submit(submitter, gpu_job(seconds=600))
    operations.run_scheduling_cycle()
    raised = at_once(operations.dispatch_attempts, lambda: operations.request_cancellation(submitter, job.id))
    assert raised == []
    observe_until(lambda: Job.objects.filter(state="cancelled").exists())
    assert connections.run(driver_of(cluster.id).list_jobs(), 5) == []
    observe_until(lambda: not Attempt.objects.filter(settled_at=None).exists())


@pytest.mark.parametrize("_round", range(3))
def test_suspension_racing_start_leaves_nothing_and_resumes(cluster, submitter, _round):
    job = submit(submitter, gpu_job(seconds=600))
    operations.run_scheduling_cycle()
    raised = at_once(operations.dispatch_attempts, lambda: operations.request_suspension(submitter, job.id))
    assert raised == []
    observe_until(lambda: Job.objects.filter(state="suspended").exists())
    assert connections.run(driver_of(cluster.id).list_jobs(), 5) == []
    observe_until(lambda: not Attempt.objects.filter(settled_at=None).exists())
    assert at_once(*[lambda: operations.request_resumption(submitter, job.id)] * 2) == []
    observe_until(lambda: Job.objects.filter(state="running").exists())
    assert Attempt.objects.filter(state__in=LIVE_ATTEMPT_STATES).count() == 1


@pytest.mark.parametrize("_round", range(3))
def test_suspension_racing_the_natural_end_has_one_outcome(cluster, submitter, _round):
    job = submit(submitter, gpu_job(seconds=600))
    observe_until(lambda: Job.objects.filter(state="running").exists())
    attempt = Attempt.objects.get()
    ends = lambda: end_attempts_alone(Ending(attempt.id, AttemptState.SUCCEEDED, "completed", exit_code=0))  # noqa: E731
    raised = at_once(ends, lambda: operations.request_suspension(submitter, job.id))
    assert all(isinstance(error, Conflict) for error in raised), raised
    job.refresh_from_db()
    attempt.refresh_from_db()
    assert (job.state, attempt.state) == ("succeeded", "succeeded")
    operations.run_scheduling_cycle()
    assert Attempt.objects.count() == 1


@pytest.mark.parametrize("_round", range(3))
def test_suspension_racing_the_cycle_never_leaves_a_run_that_nobody_stops(cluster, submitter, _round):
    job = submit(submitter, gpu_job(seconds=600))
    raised = at_once(operations.run_scheduling_cycle, lambda: operations.request_suspension(submitter, job.id))
    assert raised == []
    observe_until(lambda: Job.objects.filter(state="suspended").exists())
    assert not Attempt.objects.filter(state__in=LIVE_ATTEMPT_STATES).exists()


def end_attempts_alone(ending):
    with transaction.atomic():
        return end_attempts([ending])


def test_two_observers_and_a_reconciler_at_once_agree(cluster, submitter):
    jobs = [submit(submitter, gpu_job(f"job-{number}", gpus=1, seconds=1)) for number in range(6)]
    finished = lambda: Job.objects.filter(state="succeeded").count() == len(jobs)  # noqa: E731 - a condition
    raised = at_once(lambda: observe_until(finished), lambda: observe_until(finished), operations.reconcile_clusters)
    assert raised == []
    assert Attempt.objects.count() == len(jobs)


@pytest.fixture
def runs(cluster, submitter):
    """A job that runs, and another cluster that has room for it."""
    simulated_cluster("west")
    job = submit(submitter, gpu_job(seconds=100_000))
    observe_until(lambda: Job.objects.filter(id=job.id, state="running").exists())
    _desk.forget()
    return job


def test_requests_to_move_a_job_at_the_same_moment_stop_its_run_once(runs, submitter):
    move = partial(operations.request_migration, submitter, runs.id, {"lose_work": True})
    assert at_once(move, move, move) == []
    assert Attempt.objects.get(job=runs).stop_reason == "migrated"
    assert AuditEntry.objects.filter(action="job.migrate").count() == 1


@pytest.fixture
def leaves(cluster, submitter):
    """A job that runs on a drained cluster, may be moved, and has saved its work; another cluster has room for it."""
    job = submit(submitter, gpu_job(seconds=100_000) | {"moves": "when_needed", "checkpoint_seconds": 3600})
    observe_until(lambda: Job.objects.filter(id=job.id, state="running").exists())
    simulated_cluster("west")
    Cluster.objects.filter(id=cluster.id).update(wish="draining")
    _desk.forget()
    return job


def test_the_gateways_moves_and_a_users_at_the_same_moment_stop_the_run_once(leaves, submitter):
    move = partial(operations.request_migration, submitter, leaves.id, {})
    assert at_once(operations.relocate_jobs, operations.relocate_jobs, move) == []
    assert Attempt.objects.get(job=leaves).stop_reason == "migrated"
    assert Move.objects.filter(job=leaves).count() == 1
    assert AuditEntry.objects.filter(action="job.migrate").count() == 1


@pytest.mark.parametrize("change", ["request_cancellation", "request_suspension"])
def test_what_a_user_wants_wins_over_the_gateways_move_at_the_same_moment(leaves, submitter, change):
    wish = partial(getattr(operations, change), submitter, leaves.id)
    assert at_once(operations.relocate_jobs, wish) == []
    final = "cancelled" if change == "request_cancellation" else "suspended"
    observe_until(lambda: Job.objects.filter(id=leaves.id, state=final).exists())
    assert Attempt.objects.filter(job=leaves).count() == 1
    assert Move.objects.filter(job=leaves).count() <= 1


def test_a_run_that_ends_while_it_is_to_be_moved_has_ended(leaves):
    attempt = Attempt.objects.get(job=leaves)
    ending = Ending(attempt.id, AttemptState.SUCCEEDED, "completed", "")
    assert at_once(operations.relocate_jobs, partial(end_attempts_alone, ending)) == []
    leaves.refresh_from_db()
    assert leaves.state == "succeeded"
    assert operations.relocate_jobs() == 0


def test_a_run_that_is_preempted_while_it_is_to_be_moved_is_stopped_once(leaves):
    attempt = Attempt.objects.get(job=leaves)

    def preempt():
        with transaction.atomic():
            jobs, attempts = lock_jobs_and_attempts([leaves.id], [attempt.id])
            assert jobs
            transitions.interrupt(list(attempts.values()), "preempted_for_job", "Preempted", "Preempted.")

    assert at_once(operations.relocate_jobs, preempt) == []
    attempt.refresh_from_db()
    moves = Move.objects.filter(attempt=attempt).count()
    assert (attempt.stop_reason, moves) in {("migrated", 1), ("preempted_for_job", 0)}


def test_a_cancellation_wins_over_a_move_at_the_same_moment(runs, submitter):
    move = partial(operations.request_migration, submitter, runs.id, {"lose_work": True})
    raised = at_once(move, partial(operations.request_cancellation, submitter, runs.id))
    assert {type(one) for one in raised} <= {Conflict}
    observe_until(lambda: Job.objects.filter(id=runs.id, state="cancelled").exists())
    assert Attempt.objects.filter(job=runs).count() == 1
