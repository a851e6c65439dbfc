"""Maintenance on live clusters: what could run into a window does not start, and what runs stops only if it drains."""

from datetime import timedelta

import pytest
from django.db import transaction

from billing.models import Meter
from clusters.models import MaintenanceWindow
from clusters.operations.windows import WantedWindow, cancel_window, make_window
from federation import locks, operations
from federation.models import Attempt, Job, JobEvent
from federation.operations import Observations, maintenance, record_observations, sweep, transitions
from federation.operations.maintenance import yield_to_maintenance
from federation.queries.claimed_attempts import claimed_attempts
from federation.queries.vacancies import vacancies
from federation.queries.windows import meetings
from foundation import clock
from placement.cycle import cycle
from quotas.models import Hold
from tenancy.queries import SYSTEM
from tests.builders import submit
from tests.live import call, every_visit, gpu_job, observe_until, place
from tests.rooms.federation.test_observation import attempt, pod_of

pytestmark = pytest.mark.django_db(transaction=True)
__all__ = ["attempt"]
HOUR = timedelta(hours=1)


def plan(cluster, *, starts=timedelta(), lasts=HOUR, **fields):
    """Maintenance from now on, or later."""
    now = clock.database_now()
    starts_at = now + starts if starts else None
    wanted = WantedWindow(starts_at=starts_at, ends_at=(starts_at or now) + lasts, reason="kernel update", **fields)
    return make_window(SYSTEM, cluster.id, wanted)


def told(job):
    job.refresh_from_db()
    return job.state, job.reason_code


def ended_as(attempt):
    attempt.refresh_from_db()
    return attempt.state, attempt.end_reason


def asked_to_stop(attempt):
    attempt.refresh_from_db()
    return attempt.stop_reason if attempt.stop_requested_at else None


def is_running():
    return Job.objects.filter(state="running").exists()


def nodes_of(cluster):
    return sorted(cluster.nodes.values_list("name", flat=True))


@pytest.mark.parametrize("scope", ["cluster", "flavor", "nodes"])
def test_nothing_is_placed_while_a_window_lasts_and_its_cancelling_lets_it_start(cluster, submitter, scope):
    flavor = cluster.flavors.get().name
    fields = {"cluster": {}, "flavor": {"flavor": flavor}, "nodes": {"nodes": tuple(nodes_of(cluster))}}[scope]
    window = plan(cluster, **fields)
    job = submit(submitter, gpu_job())
    operations.run_scheduling_cycle()
    assert told(job) == ("queued", "maintenance")
    assert "maintenance lasts until" in job.reason_message
    cancel_window(SYSTEM, cluster.id, window.id)
    operations.run_scheduling_cycle()
    assert told(job) == ("dispatching", "dispatching")


def test_before_a_window_only_jobs_that_end_in_time_are_placed(cluster, submitter):
    plan(cluster, starts=HOUR)
    short = submit(submitter, gpu_job("short") | {"deadline_seconds": 3000})
    long = submit(submitter, gpu_job("long") | {"deadline_seconds": 3600})
    operations.run_scheduling_cycle()
    assert (told(short)[0], told(long)) == ("dispatching", ("queued", "maintenance"))
    assert "the job could run into it" in long.reason_message


def test_a_window_that_was_planned_while_the_engine_decided_is_respected(cluster, submitter, monkeypatch):
    job, decide = submit(submitter, gpu_job()), cycle.run

    def and_meanwhile(*arguments):
        decided = decide(*arguments)
        plan(cluster)
        return decided

    monkeypatch.setattr(cycle, "run", and_meanwhile)
    operations.run_scheduling_cycle()
    assert told(job)[0] == "queued"
    assert not Attempt.objects.exists()


def test_a_job_on_other_nodes_of_the_cluster_is_kept_from_those_in_maintenance(cluster, submitter):
    first, second = nodes_of(cluster)
    plan(cluster, starts=HOUR, nodes=(first,))
    _, attempt = place(submitter)
    assert list(attempt.remote_objects.get().assumed_nodes) == [second]
    (claimed,) = claimed_attempts([attempt.id])
    assert claimed.bounds.never == (first,)


@pytest.mark.parametrize("starts", [timedelta(), HOUR])
@pytest.mark.parametrize("state", ["reserved", "created"])
def test_a_placed_job_that_was_not_released_is_recalled_and_not_committed_to(cluster, submitter, state, starts):
    job, attempt = place(submitter, seconds=100_000)
    if state == "created":
        uids = {attempt.id: dict.fromkeys(attempt.remote_objects.values_list("id", flat=True), "uid")}
        transitions.mark_created(attempt.claim_token, uids)
    plan(cluster, starts=starts)
    assert transitions.commit_to_start(attempt.claim_token, [attempt.id]) == {}
    sweep()
    assert asked_to_stop(attempt) == "maintenance_ahead"
    every_visit(attempt, 3)
    assert ended_as(attempt) == ("abandoned", "maintenance_ahead")
    assert told(job) == ("queued", "attempt_returned")
    assert "Maintenance on east" in job.reason_message
    assert Hold.objects.get(holder_id=attempt.id).state == "voided"
    operations.run_scheduling_cycle()
    assert told(job) == ("queued", "maintenance")
    assert Attempt.objects.count() == 1


def test_dispatch_alone_starts_nothing_that_could_run_into_a_window(cluster, submitter):
    _, attempt = place(submitter)
    plan(cluster, starts=HOUR)
    every_visit(attempt, 3)
    assert ended_as(attempt) == ("created", "")
    assert [job.suspended for job in call(cluster, "list_jobs")] == [True]
    cancel_window(SYSTEM, cluster.id, MaintenanceWindow.objects.get().id)
    every_visit(attempt, 1)
    assert ended_as(attempt)[0] == "starting"


def test_a_job_that_ends_in_time_is_committed_to_and_left_alone(cluster, submitter):
    job = submit(submitter, gpu_job() | {"deadline_seconds": 3000})
    operations.run_scheduling_cycle()
    attempt = Attempt.objects.get(job=job)
    plan(cluster, starts=HOUR)
    assert yield_to_maintenance() == 0
    every_visit(attempt, 1)
    assert ended_as(attempt)[0] == "starting"


def test_what_runs_continues_through_a_window_that_does_not_drain(cluster, submitter):
    job, attempt = place(submitter, seconds=100_000)
    observe_until(is_running)
    plan(cluster)
    sweep()
    assert asked_to_stop(attempt) is None
    assert told(job)[0] == "running"


def test_a_window_that_drains_stops_what_runs_and_its_job_is_placed_again(cluster, submitter):
    job, attempt = place(submitter, seconds=100_000)
    observe_until(is_running)
    window = plan(cluster, drain=True)
    assert (yield_to_maintenance(), yield_to_maintenance()) == (1, 0)
    assert asked_to_stop(attempt) == "maintenance_began"
    assert told(job) == ("running", "interrupted")
    assert "Maintenance on east lasts until" in job.reason_message
    assert "kernel update" in job.reason_message
    observe_until(lambda: Job.objects.filter(state="queued").exists())
    assert ended_as(attempt) == ("preempted", "maintenance_began")
    assert call(cluster, "list_jobs") == []
    observe_until(lambda: Attempt.objects.filter(settled_at__isnull=False).exists())
    assert Meter.objects.get(run_id=attempt.id).is_closed
    assert Hold.objects.get(holder_id=attempt.id).state == "posted"
    operations.run_scheduling_cycle()
    assert told(job) == ("queued", "maintenance")
    assert "interrupted" in JobEvent.objects.filter(job=job).values_list("kind", flat=True)
    cancel_window(SYSTEM, cluster.id, window.id)
    observe_until(lambda: Attempt.objects.filter(number=2, state="running").exists())


def test_a_window_that_drains_stops_nothing_before_it_begins(cluster, submitter):
    _, attempt = place(submitter, seconds=100_000)
    observe_until(is_running)
    plan(cluster, starts=HOUR, drain=True)
    assert yield_to_maintenance() == 0
    assert asked_to_stop(attempt) is None
    assert meetings() == []


@pytest.mark.parametrize("scope", ["nodes", "flavor"])
def test_a_drain_of_nodes_stops_only_what_runs_there(cluster, submitter, scope):
    (_, first), (_, second) = place(submitter, seconds=100_000), place(submitter, name="other", seconds=100_000)
    observe_until(lambda: Attempt.objects.filter(state="running").count() == 2)
    (node,) = first.pods.values_list("node", flat=True)
    if scope == "nodes":
        plan(cluster, nodes=(node,), drain=True)
    else:  # as if the other node offered something else since
        cluster.nodes.exclude(name=node).update(devices=[{"flavor": "else", "units": 8}])
        plan(cluster, flavor=cluster.flavors.get(name=first.flavor).name, drain=True)
    assert yield_to_maintenance() == 1
    assert (asked_to_stop(first), asked_to_stop(second)) == ("maintenance_began", None)


def test_an_attempt_without_a_started_pod_is_recalled_when_the_window_begins_not_sooner(attempt):
    cluster = attempt.cluster
    window = plan(cluster, starts=HOUR)
    assert yield_to_maintenance() == 0, "it was released before the window was known, and its deadline runs"
    cancel_window(SYSTEM, cluster.id, window.id)
    plan(cluster)
    assert yield_to_maintenance() == 1
    assert asked_to_stop(attempt) == "maintenance_ahead"


def test_a_pod_that_has_started_refutes_the_recall_and_a_drain_stops_it_then(attempt):
    cluster = attempt.cluster
    assert "maintenance_ahead" in transitions.REFUTABLE
    plan(cluster, drain=True)
    assert yield_to_maintenance() == 1
    assert asked_to_stop(attempt) == "maintenance_ahead"
    record_observations(cluster.id, Observations(pods=[pod_of(attempt)]))
    Attempt.objects.update(stop_requested_at=None, stop_reason="")  # as dispatch revokes it
    assert yield_to_maintenance() == 1
    assert asked_to_stop(attempt) == "maintenance_began"


def test_dispatch_asks_the_cluster_before_it_recalls_what_nobody_has_seen_start(cluster, submitter):
    _, attempt = place(submitter, seconds=100_000)
    every_visit(attempt, 1)
    (job,) = call(cluster, "list_jobs")
    observe_until(is_running)
    attempt.pods.all().delete()
    Attempt.objects.filter(id=attempt.id).update(state="starting", started_at=None)
    plan(cluster)
    assert yield_to_maintenance() == 1
    assert asked_to_stop(attempt) == "maintenance_ahead"
    every_visit(attempt, 1)
    assert asked_to_stop(attempt) is None, "its pods run"
    assert [one.uid for one in call(cluster, "list_jobs")] == [job.uid]


def test_an_earlier_stop_request_keeps_its_reason(attempt):
    cluster = attempt.cluster
    with transaction.atomic():
        transitions.ask_to_stop([attempt.id], "cancelled")
    plan(cluster, drain=True)
    assert yield_to_maintenance() == 0
    assert asked_to_stop(attempt) == "cancelled"


@pytest.mark.parametrize("drain", [False, True])
def test_an_attempt_on_a_silent_cluster_is_left_alone_or_stopped_when_it_answers(attempt, drain):
    cluster = attempt.cluster
    record_observations(cluster.id, Observations(pods=[pod_of(attempt)]))
    Attempt.objects.update(state="unknown", state_before_unknown="running")
    plan(cluster, drain=drain)
    assert yield_to_maintenance() == int(drain)
    assert asked_to_stop(attempt) == ("maintenance_began" if drain else None)
    assert ended_as(attempt)[0] == "unknown", "only the cluster's evidence ends it"


def test_a_window_that_is_cancelled_while_a_sweep_waits_for_locks_stops_nothing(attempt, monkeypatch):
    cluster = attempt.cluster
    window = plan(cluster, drain=True)
    lock = locks.lock_with_jobs

    def after_a_while(ids):
        cancel_window(SYSTEM, cluster.id, window.id)
        return lock(ids)

    monkeypatch.setattr(maintenance, "lock_with_jobs", after_a_while)
    assert yield_to_maintenance() == 0
    assert asked_to_stop(attempt) is None


def test_many_attempts_are_stopped_in_batches_that_may_end_anywhere(cluster, submitter, monkeypatch):
    monkeypatch.setattr(maintenance, "BATCH", 1)
    place(submitter)
    place(submitter, name="other")
    plan(cluster)
    stop = maintenance._stop

    def once(ids):
        monkeypatch.setattr(maintenance, "_stop", dies)
        return stop(ids)

    def dies(_):
        raise RuntimeError("the process dies")

    monkeypatch.setattr(maintenance, "_stop", once)
    with pytest.raises(RuntimeError):
        yield_to_maintenance()
    assert Attempt.objects.filter(stop_reason="maintenance_ahead").count() == 1
    monkeypatch.setattr(maintenance, "_stop", stop)
    assert yield_to_maintenance() == 1
    assert Attempt.objects.filter(stop_reason="maintenance_ahead").count() == 2


def test_a_drained_job_that_a_user_suspends_or_cancels_obeys_the_user(cluster, submitter):
    job, attempt = place(submitter, seconds=100_000)
    observe_until(is_running)
    plan(cluster, drain=True)
    yield_to_maintenance()
    operations.request_suspension(submitter, job.id)
    observe_until(lambda: Job.objects.filter(state="suspended").exists())
    assert ended_as(attempt) == ("preempted", "maintenance_began")
    operations.request_cancellation(submitter, job.id)
    assert told(job)[0] == "cancelled"


def test_a_drain_uses_up_no_retry_and_avoids_no_node(cluster, submitter):
    job = submit(
        submitter, gpu_job(seconds=100_000) | {"retries": {"preempted": 0, "node_lost": 0, "infrastructure": 0}}
    )
    observe_until(is_running)
    window = plan(cluster, drain=True)
    observe_until(lambda: Job.objects.filter(state="queued").exists())
    cancel_window(SYSTEM, cluster.id, window.id)
    operations.run_scheduling_cycle()
    assert told(job)[0] == "dispatching", "also on the cluster where it was stopped"


def test_nodes_that_will_be_in_maintenance_are_not_reserved(cluster):
    now = clock.database_now()
    first, second = nodes_of(cluster)
    plan(cluster, starts=HOUR, nodes=(first,))

    def free(starts, ends):
        (found,) = vacancies(now + starts, now + ends, now).clusters
        return [node.name for node in found.nodes if node.is_usable]

    assert free(HOUR / 2, HOUR * 3) == [second]
    assert free(HOUR * 3, HOUR * 4) == [first, second]
    plan(cluster, starts=HOUR)
    assert free(HOUR / 2, HOUR * 3) == []


def test_an_attempt_may_start_until_a_minute_before_its_deadline_reaches_the_window(attempt):
    cluster = attempt.cluster
    Attempt.objects.update(state="created", starting_at=None, released_at=None)
    Job.objects.update(spec={**attempt.job.spec, "deadline_seconds": 3000})
    for starts, met in ((3000 + 60 + 30, False), (3000 + 60 - 30, True)):
        window = plan(cluster, starts=timedelta(seconds=starts))
        assert bool(meetings()) is met, starts
        cancel_window(SYSTEM, cluster.id, window.id)
