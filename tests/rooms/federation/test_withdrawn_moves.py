"""A run that was to be moved for a larger job goes on if the plan ends before its deletion was decided."""

from datetime import timedelta

import pytest
from django.db import DatabaseError, connection, transaction
from django.db.models.functions import Now

from clusters.drivers import Unreachable
from federation import operations
from federation.models import Attempt, Checkpoint, Consolidation, JobEvent, Move, RemoteObject
from federation.operations.cancellation import request_cancellation
from federation.operations.consolidation import withdraw_move
from federation.operations.rests import end_rest
from federation.operations.suspension import request_resumption, request_suspension
from federation.queries.consolidation import load_plan_claims
from foundation.clock import database_now
from foundation.problems import Conflict
from tenancy.models import AuditEntry
from tests.builders import redate, submit
from tests.live import call, every_visit, gpu_job, observe_until
from tests.refusals import constraint_of
from tests.rooms.federation.test_consolidation import SAVING, allow, large, nodes_of, told
from tests.rooms.federation.test_evidence import replaced

HOUR = timedelta(hours=1)
pytestmark = pytest.mark.django_db(transaction=True)


async def unreachable(*_):
    raise Unreachable("no route to host")


@pytest.fixture
def move(cluster, submitter):
    """A move that is planned for a larger job, of one of two jobs that really run, with half of a node each."""
    jobs = [submit(submitter, gpu_job(f"half-{n}", gpus=4, seconds=100_000) | SAVING) for n in range(2)]
    observe_until(lambda: all(told(job)[0] == "running" for job in jobs))
    for job, node in zip(jobs, nodes_of(cluster), strict=True):
        attempt = Attempt.objects.get(job=job)
        redate(Attempt.objects.filter(id=attempt.id), started_at=Now() - HOUR)
        Checkpoint.objects.create(attempt=attempt, sequence=1, reference="s3://x/1", flavors=[], written_at=Now())
        attempt.pods.update(node=node)
        RemoteObject.objects.filter(attempt=attempt).update(assumed_nodes={node: 1})
    allow()
    larger = large(submitter)
    operations.run_scheduling_cycle()
    found = Move.objects.select_related("attempt", "job").get()
    assert Consolidation.objects.get().beneficiary_id == larger.id
    return found


def withdraw(submitter):
    """The larger job does not wait any more."""
    request_cancellation(submitter, Consolidation.objects.get().beneficiary_id)
    operations.run_scheduling_cycle()
    assert Consolidation.objects.get().outcome == "withdrawn"


def expire(_submitter):
    earlier = {"created_at": Now() - HOUR / 3, "deadline_at": Now() - HOUR / 6}
    redate(Consolidation.objects.all(), **earlier)
    operations.run_scheduling_cycle()
    assert Consolidation.objects.get().outcome == "expired"


def exists(attempt):
    seen = call(attempt.cluster, "get_job", attempt.namespace, attempt.remote_objects.get().name)
    return seen is not None and not seen.is_terminating


def goes_on(move):
    """Whether it runs as if it had never been asked to stop."""
    attempt = Attempt.objects.get(id=move.attempt_id)
    return (attempt.state, attempt.stop_requested_at, attempt.stop_reason) == ("running", None, "") and exists(attempt)


@pytest.mark.parametrize("ends", [withdraw, expire])
def test_a_run_that_was_not_stopped_before_the_plan_ended_goes_on(submitter, move, ends):
    ends(submitter)
    every_visit(move.attempt, 3)
    assert goes_on(move)
    assert told(move.job) == ("running", "")
    assert Attempt.objects.filter(job=move.job).count() == 1
    assert JobEvent.objects.filter(job=move.job, kind="stays").count() == 1
    assert AuditEntry.objects.filter(action="job.stay", object_id=str(move.job_id)).count() == 1
    assert not Move.objects.exists()
    assert [one for one in load_plan_claims(database_now()) if one.job_id == move.job_id] == []


def test_a_cluster_that_was_silent_until_the_plan_ended_stops_nothing_when_it_answers(submitter, move, monkeypatch):
    with monkeypatch.context() as silent:
        for name in ("list_pods", "get_job"):
            replaced(silent, name, unreachable)
        for _ in range(3):  # fewer than pause all calls
            every_visit(move.attempt, 1)
            end_rest(move.attempt.cluster_id)
        assert Attempt.objects.get(id=move.attempt_id).tries >= 3
        expire(submitter)
    every_visit(move.attempt, 1)
    assert goes_on(move)
    assert Attempt.objects.get(id=move.attempt_id).tries == 0


def test_a_run_whose_deletion_was_decided_moves_although_the_plan_ends(submitter, move, monkeypatch):
    """The answer to its deletion was lost: it may still be carried out."""
    with monkeypatch.context() as lost:
        replaced(lost, "delete_job", unreachable)
        every_visit(move.attempt, 2)
        assert Attempt.objects.get(id=move.attempt_id).deletion_at is not None
        assert exists(move.attempt)
        expire(submitter)
        every_visit(move.attempt, 2)
    every_visit(move.attempt, 3)
    attempt = Attempt.objects.get(id=move.attempt_id)
    assert (attempt.state, attempt.end_reason) == ("preempted", "migrated")
    operations.run_scheduling_cycle()
    assert told(move.job)[0] == "dispatching"
    assert Move.objects.count() == 1


def test_a_run_whose_object_is_being_deleted_by_someone_moves_and_does_not_end_its_job(submitter, move, cluster):
    expire(submitter)
    item = move.attempt.remote_objects.get()
    call(cluster, "delete_job", move.attempt.namespace, item.name, item.uid)
    every_visit(move.attempt, 4)
    attempt = Attempt.objects.get(id=move.attempt_id)
    assert (attempt.state, attempt.end_reason) == ("preempted", "migrated")
    assert told(move.job)[0] in ("queued", "dispatching")


def test_a_job_that_its_user_suspends_meanwhile_is_suspended_and_one_that_is_resumed_goes_on(submitter, move):
    request_suspension(submitter, move.job_id)
    expire(submitter)
    request_resumption(submitter, move.job_id)
    every_visit(move.attempt, 1)
    assert goes_on(move)
    request_suspension(submitter, move.job_id)
    every_visit(move.attempt, 3)
    assert told(move.job)[0] == "suspended"


def test_a_suspension_that_arrives_while_dispatch_visits_wins(submitter, move, monkeypatch):
    expire(submitter)

    def suspended_first(*given):
        request_suspension(submitter, move.job_id)
        monkeypatch.undo()
        return withdraw_move(*given)

    monkeypatch.setattr("federation.operations.dispatch.withdraw_move", suspended_first)
    every_visit(move.attempt, 4)
    assert told(move.job)[0] == "suspended"


def test_a_cancelled_job_is_cancelled(submitter, move):
    request_cancellation(submitter, move.job_id)
    expire(submitter)
    every_visit(move.attempt, 3)
    assert told(move.job)[0] == "cancelled"


def test_a_run_that_went_on_can_be_moved_again(submitter, move):
    expire(submitter)
    every_visit(move.attempt, 1)
    redate(Consolidation.objects.all(), created_at=Now() - 3 * HOUR, deadline_at=Now() - 2 * HOUR)
    operations.run_scheduling_cycle()
    again = Move.objects.get()
    assert again.consolidation.outcome == ""
    every_visit(again.attempt, 4)
    assert Attempt.objects.get(id=again.attempt_id).end_reason == "migrated"


def test_the_database_keeps_moves_that_are_carried_out(submitter, move):
    expire(submitter)
    Attempt.objects.filter(id=move.attempt_id).update(deletion_at=Now())
    with pytest.raises(DatabaseError) as refused, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("DELETE FROM federation_move")
    assert constraint_of(refused.value) == "a_move_is_undone_only_if_its_run_goes_on"


def test_a_move_that_its_user_asks_for_as_well_is_not_withdrawn(submitter, move):
    operations.request_migration(submitter, move.job_id, {})
    expire(submitter)
    every_visit(move.attempt, 4)
    assert Attempt.objects.get(id=move.attempt_id).end_reason == "migrated"


def test_a_user_who_asks_for_a_move_that_has_just_been_withdrawn_is_answered_as_of_now(submitter, move, cluster):
    expire(submitter)
    every_visit(move.attempt, 1)
    assert goes_on(move)
    with pytest.raises(Conflict, match="no other cluster would take it now"):
        operations.request_migration(submitter, move.job_id, {})
    assert goes_on(move)
