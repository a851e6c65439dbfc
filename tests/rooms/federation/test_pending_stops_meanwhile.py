"""Stops that wait for a checkpoint, while the database is put back, and beside other attempts."""

from datetime import timedelta
from uuid import uuid4

import pytest
from django.db import connection
from django.db.models.functions import Now

from federation import operations
from federation.models import Attempt, Checkpoint, Move, Standstill
from federation.queries.moves import plan_move
from tests.rooms.federation.test_pending_stops import (
    GOES_ON,
    STOPS,
    WISHES,
    pass_time,
    report,
    resume,
    run,
    state_of,
    suspend,
)
from tests.rooms.federation.test_reports import takes_reports

pytestmark = pytest.mark.django_db(transaction=True)
__all__ = ["run", "takes_reports"]


@pytest.mark.parametrize("wish", WISHES)
def test_a_checkpoint_of_an_earlier_attempt_does_not_count(run, submitter, wish):
    """Whenever it says that it was reported."""
    job, attempt = run
    Attempt.objects.filter(id=attempt.id).update(number=2)
    earlier = Attempt.objects.get(id=attempt.id)
    earlier.id, earlier.number, earlier.state = uuid4(), 1, "lost"
    earlier.finished_at = earlier.settled_at = attempt.started_at
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")
        earlier.save(force_insert=True)
        cursor.execute("SET session_replication_role = origin")
    WISHES[wish](submitter, job)
    later = Now() + timedelta(seconds=1)
    Checkpoint.objects.create(
        attempt=earlier, reference="s3://x/9", sequence=10**9, written_at=later, reported_at=later
    )
    assert operations.relocate_jobs() == 0
    job.refresh_from_db()
    assert job.stop_wish is not None
    assert report(attempt)
    assert operations.relocate_jobs() == 1


@pytest.mark.parametrize("is_reported", [True, False])
@pytest.mark.parametrize("wish", WISHES)
def test_in_a_standstill_it_waits_on(run, submitter, wish, is_reported):
    """As after a restore of the database: what was wished is carried out when it is known again what runs."""
    job, attempt = run
    WISHES[wish](submitter, job)
    Standstill.objects.create()
    if is_reported:
        report(attempt)
    else:
        pass_time(601)
    assert (operations.relocate_jobs(), state_of(job)) == (0, GOES_ON[wish])
    Standstill.objects.update(ended_at=Now(), ended_by="ada")
    assert (operations.relocate_jobs(), state_of(job)) == (1, STOPS[wish])


@pytest.mark.parametrize(("change", "then"), [(suspend, GOES_ON["suspend"]), (resume, ("running", None, False, ""))])
def test_a_move_that_is_replaced_or_withdrawn_while_its_place_is_sought_is_not_made(
    run, submitter, monkeypatch, change, then
):
    job, _ = run
    WISHES["move"](submitter, job)
    pass_time(601)

    def late(*arguments):
        found = plan_move(*arguments)
        change(submitter, job)
        return found

    monkeypatch.setattr("federation.operations.migration.plan_move", late)
    assert (operations.relocate_jobs(), state_of(job)) == (0, then)
    assert not Move.objects.exists()
