"""Every move that the tables declare is made by somebody: here is the story of each, as the database saw it."""

import pytest
from django.db import connection, transaction

from clusters.models import Cluster
from federation import operations
from federation.engine.lifecycle import AttemptState, JobState
from federation.models import Attempt, Job
from federation.operations import Observations, record_observations, sweep, transitions
from federation.operations.consequences import Ending
from federation.operations.endings import end_attempts
from foundation.clock import now
from tests.builders import actor_for, bind, make_cluster, make_flavor, make_node, submit
from tests.live import gpu_job
from tests.rooms.federation.test_observation import attempt, job_of, pod_of

__all__ = ["attempt"]
pytestmark = pytest.mark.django_db
RECORD = """
CREATE TEMP TABLE moves (kind text, was text, became text);
CREATE FUNCTION pg_temp.record_move() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN INSERT INTO moves VALUES (TG_TABLE_NAME, OLD.state, NEW.state); RETURN NEW; END $$;
CREATE TRIGGER record_move AFTER UPDATE ON federation_job FOR EACH ROW
    WHEN (OLD.state <> NEW.state) EXECUTE FUNCTION pg_temp.record_move();
CREATE TRIGGER record_move AFTER UPDATE ON federation_attempt FOR EACH ROW
    WHEN (OLD.state <> NEW.state) EXECUTE FUNCTION pg_temp.record_move();
"""


@pytest.fixture
def moves():
    """What was moved since, as the database saw it: pairs of states of `job`s or `attempt`s."""
    with connection.cursor() as cursor:
        cursor.execute(RECORD)

    def made(kind):
        with connection.cursor() as cursor:
            cursor.execute("SELECT was, became FROM moves WHERE kind = %s", [f"federation_{kind}"])
            return set(cursor.fetchall())

    return made


def owner_of(job):
    if not job.created_by.role_bindings.exists():
        bind(job.created_by, "acme/team")
    return actor_for(job.created_by)


def is_placed(_):
    cluster = make_cluster("acme", "east")
    make_flavor(cluster)
    make_node(cluster)
    submit(owner_of(Job.objects.get()), {**gpu_job(), "tenant": "acme/team", "labels": {}})
    operations.run_scheduling_cycle()


def is_created(attempt):
    uids = {attempt.id: dict(attempt.remote_objects.values_list("id", "uid"))}
    transitions.mark_created(attempt.claim_token, uids)


def is_committed_to(attempt):
    assert transitions.commit_to_start(attempt.claim_token, [attempt.id])


def runs(attempt):
    record_observations(attempt.cluster_id, Observations(pods=[pod_of(attempt)]))


def succeeds(attempt):
    record_observations(attempt.cluster_id, Observations(jobs=[job_of(attempt, "succeeded")]))


def fails(attempt):
    record_observations(attempt.cluster_id, Observations(jobs=[job_of(attempt, "failed")]))


def vanishes(attempt):
    record_observations(attempt.cluster_id, Observations(gone_jobs=[attempt.remote_objects.get().uid]))


def is_stopped_as(reason):
    def stop(attempt):
        with transaction.atomic():
            transitions.ask_to_stop([attempt.id], reason)
            end_attempts([Ending(attempt.id, AttemptState.PREEMPTED, reason)])

    return stop


def is_cancelled(attempt):
    operations.request_cancellation(owner_of(attempt.job), attempt.job_id)


def is_suspended(attempt):
    operations.request_suspension(owner_of(attempt.job), attempt.job_id)
    end_attempts([Ending(attempt.id, AttemptState.PREEMPTED, "suspended")])


def while_suspended(then):
    def story(attempt):
        is_suspended(attempt)
        then(attempt)

    return story


def is_resumed(attempt):
    operations.request_resumption(owner_of(attempt.job), attempt.job_id)


def falls_silent(attempt):
    Cluster.objects.filter(id=attempt.cluster_id).update(health="unreachable", silent_since=now().replace(year=2020))
    sweep()


def comes_back(attempt):
    falls_silent(attempt)
    Cluster.objects.filter(id=attempt.cluster_id).update(health="ready", silent_since=None)
    sweep()


def is_attested_dead(attempt):
    end_attempts([Ending(attempt.id, AttemptState.LOST, "attested")])


def unseen(then):
    def story(attempt):
        falls_silent(attempt)
        then(attempt)

    return story


def while_cancelling(then):
    def story(attempt):
        is_cancelled(attempt)
        then(attempt)

    return story


JOB_STORIES = {
    ("queued", "dispatching"): ("dispatching", is_placed),
    ("queued", "cancelling"): ("abandoned", is_cancelled),
    ("dispatching", "running"): ("starting", runs),
    ("dispatching", "succeeded"): ("starting", succeeds),
    ("dispatching", "failed"): ("starting", fails),
    ("dispatching", "queued"): ("starting", is_stopped_as("did_not_start")),
    ("dispatching", "cancelling"): ("starting", is_cancelled),
    ("running", "succeeded"): ("running", succeeds),
    ("running", "failed"): ("running", fails),
    ("running", "queued"): ("running", is_stopped_as("cluster_draining")),
    ("running", "cancelling"): ("running", is_cancelled),
    ("cancelling", "cancelled"): ("running", while_cancelling(vanishes)),
    ("queued", "suspended"): ("abandoned", is_suspended),
    ("dispatching", "suspended"): ("starting", is_suspended),
    ("running", "suspended"): ("running", is_suspended),
    ("suspended", "queued"): ("running", while_suspended(is_resumed)),
    ("suspended", "cancelling"): ("running", while_suspended(is_cancelled)),
}
ATTEMPT_STORIES = {
    ("reserved", "created"): ("reserved", is_created),
    ("reserved", "abandoned"): ("reserved", falls_silent),
    ("created", "starting"): ("created", is_committed_to),
    ("created", "abandoned"): ("created", vanishes),
    ("starting", "running"): ("starting", runs),
    ("starting", "succeeded"): ("starting", succeeds),
    ("starting", "failed"): ("starting", fails),
    ("starting", "cancelled"): ("starting", while_cancelling(vanishes)),
    ("starting", "preempted"): ("starting", is_stopped_as("did_not_start")),
    ("starting", "unknown"): ("starting", falls_silent),
    ("running", "succeeded"): ("running", succeeds),
    ("running", "failed"): ("running", fails),
    ("running", "cancelled"): ("running", while_cancelling(vanishes)),
    ("running", "preempted"): ("running", is_stopped_as("cluster_draining")),
    ("running", "unknown"): ("running", falls_silent),
    ("unknown", "starting"): ("starting", comes_back),
    ("unknown", "running"): ("starting", unseen(runs)),
    ("unknown", "succeeded"): ("starting", unseen(succeeds)),
    ("unknown", "failed"): ("starting", unseen(fails)),
    ("unknown", "cancelled"): ("starting", unseen(while_cancelling(vanishes))),
    ("unknown", "preempted"): ("starting", unseen(is_stopped_as("did_not_start"))),
    ("unknown", "lost"): ("starting", unseen(is_attested_dead)),
}
"""By move: the state that the attempt is brought into first, and what happens then."""
UNRELEASED = {"starting_at": None, "released_at": None}


def brought_into(state, attempt):
    """The fixture's attempt, which is `starting`, and its job in a state that goes with it."""
    if state in {"reserved", "created"}:
        Attempt.objects.filter(id=attempt.id).update(state=state, **UNRELEASED)
    elif state == "abandoned":
        Attempt.objects.filter(id=attempt.id).update(
            state=state, finished_at=now(), settled_at=now(), pods_told_at=now(), **UNRELEASED
        )
        Job.objects.filter(id=attempt.job_id).update(state="queued")
    elif state == "running":
        runs(attempt)
    attempt.refresh_from_db()
    return attempt


@pytest.mark.parametrize("move", JOB_STORIES, ids=" to ".join)
def test_a_job_moves(attempt, moves, move):
    state, story = JOB_STORIES[move]
    story(brought_into(state, attempt))
    assert move in moves("job")


@pytest.mark.parametrize("move", ATTEMPT_STORIES, ids=" to ".join)
def test_an_attempt_moves(attempt, moves, move):
    state, story = ATTEMPT_STORIES[move]
    story(brought_into(state, attempt))
    assert move in moves("attempt")


def test_a_queued_job_that_is_cancelled_passes_through_cancelling(attempt, moves):
    queued = brought_into("abandoned", attempt)
    before = moves("job")
    is_cancelled(queued)
    assert moves("job") - before == {("queued", "cancelling"), ("cancelling", "cancelled")}
    job = Job.objects.get(id=attempt.job_id)
    assert (job.state, job.reason_code, [event.kind for event in job.events.all()]) == (
        JobState.CANCELLED,
        "cancelled",
        ["job_cancelled"],
    )


def test_an_attempt_out_of_sight_keeps_the_instant_of_its_commitment(attempt):
    """A cluster that comes back says nothing of when its jobs were committed to."""
    committed_at = attempt.starting_at
    falls_silent(attempt)
    Attempt.objects.filter(id=attempt.id).update(claim_token=7, released_at=None)
    assert transitions.commit_to_start(7, [attempt.id]) == {}
    attempt.refresh_from_db()
    assert (attempt.state, attempt.starting_at) == ("unknown", committed_at)
    Cluster.objects.update(health="ready", silent_since=None)
    sweep()
    assert transitions.commit_to_start(7, [attempt.id]).keys() == {attempt.id}
    attempt.refresh_from_db()
    assert (attempt.state, attempt.starting_at) == ("starting", committed_at)
