"""The gateway itself moves jobs whose users allow it, before they are stopped where they run."""

from datetime import timedelta

import pytest
from django.db import IntegrityError, connection
from django.db.models import F
from django.db.models.functions import Now

from clusters.models import Cluster, MaintenanceWindow, Node
from federation import operations
from federation.models import Attempt, Checkpoint, Job, JobEvent, Move, PodRun, Standstill
from federation.operations import relocation
from federation.queries.preemption import load_run
from federation.queries.quotes import _desk
from placement.values.decisions import Placement
from tenancy.models import AuditEntry, User
from tests.builders import redate, submit
from tests.live import gpu_job, observe_until, simulated_cluster
from tests.rooms.federation.test_migration import ended, started

pytestmark = pytest.mark.django_db(transaction=True)
WILLING = {"moves": "when_needed", "checkpoint_seconds": 3601, "deadline_seconds": 86_400}
"""A job that has run for an hour has just not saved its work yet; a report says that it has."""


@pytest.fixture
def west(cluster):
    return simulated_cluster("west")


def willing(submitter, saved_ago=5, **fields):
    """A running job that may be moved, with its attempt; it saved its work a few seconds ago."""
    job, attempt = started(submitter, **(WILLING | fields))
    Checkpoint.objects.create(
        attempt=attempt, sequence=1, reference="s3://x/1", flavors=[], written_at=Now() - timedelta(seconds=saved_ago)
    )
    return job, attempt


def drain(attempt):
    Cluster.objects.filter(id=attempt.cluster_id).update(wish="draining")


def plan_window(attempt, hours=3, **fields):
    return MaintenanceWindow.objects.create(
        cluster_id=attempt.cluster_id,
        starts_at=Now() + timedelta(hours=hours),
        ends_at=Now() + timedelta(hours=hours + 1),
        reason="kernel",
        created_by="root",
        **({"drain": True} | fields),
    )


def threaten_node(attempt, key="aws-node-termination-handler/spot-itn"):
    node = Node.objects.filter(cluster_id=attempt.cluster_id).order_by("name").first()
    held = attempt.remote_objects.get()
    PodRun.objects.create(
        attempt=attempt, cluster_id=attempt.cluster_id, remote_object=held, position=0, place=0, name="p", uid="u",
        node=node.name, phase="Running", started_at=Now(), observed_at=Now(),
    )  # fmt: skip
    Node.objects.filter(id=node.id).update(taints=[{"key": key, "value": "", "effect": "NoSchedule"}])


def stopped_for(attempt):
    attempt.refresh_from_db()
    return attempt.stop_reason


@pytest.mark.parametrize(
    ("threat", "cause", "why"),
    [
        (drain, "drain", "east is drained"),
        (plan_window, "maintenance", "maintenance that stops jobs begins on east"),
        (threaten_node, "spot", "its node on east is about to be taken away"),
    ],
)
def test_a_job_moves_before_it_is_stopped_and_says_why_with_numbers(cluster, submitter, client, threat, cause, why):
    job, attempt = willing(submitter)
    west = simulated_cluster("west")
    threat(attempt)
    assert (operations.relocate_jobs(), operations.relocate_jobs()) == (1, 0)
    assert stopped_for(attempt) == "migrated"
    move = Move.objects.get()
    assert (move.cause, move.expected_id, move.clusters) == (cause, west.id, [])
    assert move.stay_seconds > move.cost_seconds == move.lost_seconds + 60
    told = JobEvent.objects.get(job=job, kind="interrupted").message
    assert f"Moved because {why}" in told
    assert "moving costs it about" in told
    assert AuditEntry.objects.get(action="job.migrate").detail["cause"] == cause
    ended(attempt)
    job.refresh_from_db()
    assert (job.state, job.reason_code) == ("queued", "attempt_returned")
    operations.run_scheduling_cycle()
    assert Attempt.objects.get(job=job, number=2).cluster_id == west.id
    client.force_login(User.objects.get(id=submitter.user_id))
    assert f"Moved because {why}" in client.get(f"/jobs/{job.id}/").content.decode()


def test_a_job_on_a_drained_cluster_continues_elsewhere_with_one_run_at_a_time(cluster, submitter):
    job = submit(submitter, gpu_job(seconds=100_000) | WILLING)
    observe_until(lambda: Job.objects.filter(id=job.id, state="running").exists())
    west = simulated_cluster("west")
    drain(Attempt.objects.get(job=job))
    assert operations.relocate_jobs() == 1
    observe_until(lambda: Job.objects.filter(id=job.id, state="running", attempts__number=2).exists())
    first, second = Attempt.objects.filter(job=job).order_by("number")
    assert (first.end_reason, second.cluster_id) == ("migrated", west.id)
    assert second.reserved_at >= first.finished_at


@pytest.mark.parametrize(
    "fields",
    [{"moves": "never"}, {"moves": None}, {"deadline_seconds": 3600 + 3000}, {"estimated_seconds": 3600 + 3000}],
)
def test_a_job_stays_that_does_not_allow_it_or_ends_before(cluster, submitter, fields):
    _, attempt = willing(submitter, **fields)
    simulated_cluster("west")
    drain(attempt)
    assert operations.relocate_jobs() == 0
    assert stopped_for(attempt) == ""


def test_a_job_without_a_checkpoint_stays(cluster, submitter):
    _, attempt = started(submitter, moves="when_needed")
    simulated_cluster("west")
    drain(attempt)
    assert operations.relocate_jobs() == 0
    Checkpoint.objects.create(attempt=attempt, sequence=1, reference="s3://x/1", flavors=["other"], written_at=Now())
    assert operations.relocate_jobs() == 0  # it could not be resumed there
    Checkpoint.objects.update(flavors=[attempt.flavor])
    assert operations.relocate_jobs() == 1


def test_windows_that_do_not_stop_it_move_nothing(cluster, submitter):
    _, attempt = willing(submitter)
    simulated_cluster("west")
    window = plan_window(attempt, drain=False)
    plan_window(attempt, nodes=["another"])
    plan_window(attempt, hours=30)
    cancelled = plan_window(attempt)
    MaintenanceWindow.objects.filter(id=cancelled.id).update(cancelled_at=Now(), cancelled_by="x")
    assert operations.relocate_jobs() == 0
    assert window.drain is False


def test_a_job_stays_while_no_other_cluster_has_room(cluster, submitter):
    _, attempt = willing(submitter)
    drain(attempt)
    assert operations.relocate_jobs() == 0
    assert stopped_for(attempt) == ""


def test_jobs_leave_a_cluster_a_few_at_a_time_and_never_for_the_same_room(cluster, submitter, settings):
    both = [willing(submitter), willing(submitter)]
    simulated_cluster("west", nodes=1)  # each job fills a node
    for _, attempt in both:
        drain(attempt)
    settings.RELOCATION_SHARE = "0"
    assert operations.relocate_jobs() == 0
    settings.RELOCATION_SHARE = "1"
    assert operations.relocate_jobs() == 1
    assert operations.relocate_jobs() == 0
    simulated_cluster("north", nodes=1)
    settings.RELOCATION_SHARE = "0.1"
    assert operations.relocate_jobs() == 0  # one leaves already
    settings.RELOCATION_SHARE = "1"
    assert operations.relocate_jobs() == 1


def test_a_job_that_was_moved_rests_and_is_moved_three_times_a_day_at_most(cluster, submitter):
    job, attempt = willing(submitter)
    simulated_cluster("west")
    drain(attempt)
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE federation_move DISABLE TRIGGER USER")
    try:
        for number in range(3):
            past = Attempt.objects.create(
                job=job, number=number + 10, cluster=cluster, state="preempted", finished_at=Now(), flavor="f",
                namespace="n", spec_hash="x", end_reason="migrated",
            )  # fmt: skip
            redate(Attempt.objects.filter(id=past.id), finished_at=Now() - timedelta(hours=2))
            Move.objects.create(
                attempt=past, job=job, cause="drain", expected_id=cluster.id, lost_seconds=0, cost_seconds=60,
                stay_seconds=200,
            )  # fmt: skip
            Move.objects.update(created_at=F("created_at") - timedelta(hours=2))
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE federation_move ENABLE TRIGGER USER")
    assert operations.relocate_jobs() == 0
    Attempt.objects.filter(id=attempt.id).update(stop_requested_at=Now(), stop_reason="migrated")
    fourth = {"cause": "spot", "expected_id": job.id, "lost_seconds": 0, "cost_seconds": 60, "stay_seconds": 200}
    with pytest.raises(IntegrityError, match="three times within a day"):
        Move.objects.create(attempt=attempt, job=job, **fourth)
    Attempt.objects.filter(id=attempt.id).update(stop_requested_at=None, stop_reason="")
    Move.objects.filter(attempt__number=10).update(created_at=Now() - timedelta(days=2))
    Move.objects.filter(attempt__number=11).update(created_at=Now() - timedelta(minutes=29))
    assert operations.relocate_jobs() == 0
    Move.objects.filter(attempt__number=11).update(created_at=Now() - timedelta(minutes=31))
    assert operations.relocate_jobs() == 1


def stops_after(attempt, change):
    """Whether the run is stopped although this happens between the trial and the transaction."""
    run = load_run(attempt.job_id)
    other = Cluster.objects.exclude(id=attempt.cluster_id).get()
    place = Placement(attempt.job_id, other.id, other.name, (), {}, None, "USD", None)
    change()
    return relocation._stop(run, place)


def test_what_has_changed_since_the_trial_stops_nothing(cluster, submitter):
    job, attempt = willing(submitter)
    simulated_cluster("west")
    clusters = Cluster.objects.filter(id=attempt.cluster_id)
    drain(attempt)
    assert not stops_after(attempt, lambda: clusters.update(wish="open"))
    drain(attempt)
    assert not stops_after(attempt, lambda: operations.request_suspension(submitter, job.id))
    assert stopped_for(attempt) == "suspended"
    assert Move.objects.count() == 0


def test_a_user_who_was_faster_keeps_the_move(cluster, submitter):
    job, attempt = willing(submitter)
    simulated_cluster("west")
    drain(attempt)
    _desk.forget()
    assert not stops_after(attempt, lambda: operations.request_migration(submitter, job.id, {}))
    assert Move.objects.get().cause == "user"


def test_nothing_moves_in_a_standstill(cluster, submitter):
    _, attempt = willing(submitter)
    simulated_cluster("west")
    drain(attempt)
    Standstill.objects.create()
    assert operations.relocate_jobs() == 0
    assert stopped_for(attempt) == ""
