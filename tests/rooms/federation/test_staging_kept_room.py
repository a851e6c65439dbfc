"""Room that is kept for a job which then waits for data."""

from datetime import timedelta

import pytest
from django.db import connection

from federation import operations
from federation.models import DataWait, Job, JobEvent, KeptRoom
from federation.operations.kept_room import keep_room
from federation.queries.snapshot import load_snapshot
from foundation.clock import database_now
from quotas.models import KeptIdle
from tests.builders import submit
from tests.live import gpu_job
from tests.rooms.federation.test_kept_room import SHIFTS
from tests.staged import again, copying, cycle, held, plan, rounds, staged_job, storages

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("storages")]
assert copying  # fixtures
assert plan
assert storages


def earlier(statement, *values):
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")
        cursor.execute(statement, values)
        cursor.execute("SET session_replication_role = origin")


@pytest.fixture
def waiting(plan, submitter, copying):
    """A job of both nodes for which room was kept; its copy never ends."""
    copying.runs_for_ever()
    small = submit(submitter, gpu_job("small", gpus=1, seconds=100_000))
    cycle()
    job = staged_job(submitter, count=2, stage_within_seconds=86_400)
    earlier("UPDATE federation_job SET created_at = now() - interval '1 hour' WHERE id = %s", job.id)
    cycle()
    assert KeptRoom.objects.get().job_id == job.id
    earlier("UPDATE federation_attempt SET state = 'cancelled', finished_at = now() WHERE job_id = %s", small.id)
    earlier("UPDATE federation_job SET state = 'cancelled', finished_at = now() WHERE id = %s", small.id)
    earlier("UPDATE quotas_hold SET state = 'voided', ended_at = now() WHERE state = 'pending'")
    return job


def test_it_keeps_its_room_while_it_waits_and_starts_there(waiting, submitter, copying):
    since = KeptRoom.objects.get().since_at
    earlier(SHIFTS[1].replace("%s", "120"))
    cycle()
    assert again(waiting).reason_code == "waiting_for_data"
    room = KeptRoom.objects.get()
    assert (room.outcome, room.since_at) == ("", since)
    other = submit(submitter, gpu_job("other", gpus=1))
    for _ in range(2):
        rounds()
        cycle()
        assert again(waiting).reason_code == "waiting_for_data"
        assert again(other).state == "queued"
    assert "remain kept until" in again(waiting).reason_message
    assert KeptRoom.objects.get().outcome == ""
    assert not KeptIdle.objects.filter(ended_at=None).exists(), "its hold counts already"
    DataWait.objects.update(until_at=database_now())
    Job.objects.filter(id=waiting.id).update(retry_at=database_now())
    cycle()
    assert again(waiting).state == "dispatching"
    cycle()
    assert KeptRoom.objects.get().outcome == "placed"
    assert again(other).state == "queued"


def test_its_room_is_given_up_after_the_same_time_as_others(waiting, submitter):
    cycle()
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")
        for statement in SHIFTS:
            cursor.execute(statement, [6.1 * 3600] * statement.count("%s"))
        cursor.execute("SET session_replication_role = origin")
    other = submit(submitter, gpu_job("other", gpus=1))
    cycle()
    assert KeptRoom.objects.get().outcome == "given_up"
    assert "its data was not there in time" in JobEvent.objects.get(kind="kept_room_given_up").message
    assert again(other).state == "dispatching"
    assert again(waiting).reason_code == "waiting_for_data"
    assert len(held()) >= 2


def test_a_job_that_had_no_room_keeps_none_and_is_not_loaded(plan, submitter, copying):
    copying.runs_for_ever()
    job = staged_job(submitter, count=2, stage_within_seconds=86_400)
    cycle()
    assert again(job).reason_code == "waiting_for_data"
    cycle()
    assert not KeptRoom.objects.exists()
    assert load_snapshot(database_now(), 10).queue == ()


def test_one_that_is_cancelled_or_suspended_keeps_nothing(waiting, submitter):
    cycle()
    operations.request_suspension(submitter, waiting.id)
    cycle()
    assert KeptRoom.objects.get().outcome == "withdrawn"


def test_a_round_that_was_interrupted_before_it_wrote_the_room_loses_nothing(waiting, submitter, monkeypatch):
    """The wait is committed first; the row still names the room that was kept before."""
    monkeypatch.setattr("federation.operations.cycle.keep_room", lambda *_: None)
    cycle()
    assert again(waiting).reason_code == "waiting_for_data"
    monkeypatch.setattr("federation.operations.cycle.keep_room", keep_room)
    cycle()
    assert KeptRoom.objects.get().outcome == ""
    until = KeptRoom.objects.get().until_at
    assert until - KeptRoom.objects.get().since_at == timedelta(seconds=21_600)
