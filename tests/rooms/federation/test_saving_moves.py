"""The gateway moves running jobs whose users allow it to cheaper places, and to places where they meet their deadlines."""

from datetime import timedelta
from decimal import Decimal
from functools import partial

import pytest
from django.db import connection
from django.db.models import F
from django.db.models.functions import Now

from billing.operations import create_price
from billing.operations.prices import NewPrice
from clusters.models import Flavor
from federation import operations
from federation.models import Attempt, Checkpoint, Job, JobEvent, Move, Standstill
from federation.operations import saving
from federation.queries.made_moves import newest_moves
from federation.queries.queue import requests_again
from federation.queries.worked import with_worked
from foundation.clock import database_now
from tenancy.models import AuditEntry, User
from tenancy.queries import SYSTEM
from tests.builders import bearer, make_user, redate
from tests.live import simulated_cluster
from tests.rooms.billing.exchanging import billed_in, imported
from tests.rooms.federation.test_constraints import attack
from tests.rooms.federation.test_migration import ended, started

pytestmark = pytest.mark.django_db(transaction=True)
HOURS = 3600
THRIFTY = {
    "moves": "when_cheaper",
    "checkpoint_seconds": 3601,
    "estimated_seconds": 30 * HOURS,
    "deadline_seconds": 100 * HOURS,
    "strategy": "spread",
}
"""A job that has run for an hour, of at least 15 that it certainly runs."""
PRESSED = {"moves": "when_needed", "estimated_seconds": 10 * HOURS, "deadline_seconds": 100 * HOURS}


def cost(cluster, price, *, days=1, **more):
    flavor = Flavor.objects.get(cluster=cluster).name
    at = database_now() - timedelta(days=days)
    create_price(SYSTEM, NewPrice(cluster.name, flavor, Decimal(price), effective_from=at, **more))


def saved(attempt, ago=5, **fields):
    at = Now() - timedelta(seconds=ago)
    row = {"attempt": attempt, "sequence": 1, "reference": "s3://x/1", "flavors": [], "written_at": at}
    return Checkpoint.objects.create(**(row | fields))


def thrifty(submitter, cluster, **fields):
    cost(cluster, 4)
    job, attempt = started(submitter, **(THRIFTY | fields))
    saved(attempt)
    return job, attempt


def spot(cluster):
    Flavor.objects.filter(cluster=cluster).update(capacity_type="spot")


def stopped_for(attempt):
    attempt.refresh_from_db()
    return attempt.stop_reason


def test_a_job_moves_to_a_cheaper_place_says_why_and_shows_what_it_saved(cluster, submitter, client):
    job, attempt = thrifty(submitter, cluster)
    west = simulated_cluster("west")
    cost(west, 3)
    assert (operations.relocate_jobs(), operations.relocate_jobs()) == (1, 0)
    move = Move.objects.get()
    assert (move.cause, move.expected_id, move.price_from, move.price_to) == ("price", west.id, 32, 24)
    assert move.saving == pytest.approx(8 * 14, abs=Decimal("0.5"))  # of the 15 hours, one has passed
    assert 0 < move.price_of_move < 4
    told = JobEvent.objects.get(job=job, kind="interrupted").message
    assert "Moved to a cheaper place: 24.00 instead of 32.00 USD an hour" in told
    assert AuditEntry.objects.get(action="job.migrate").detail["saving"] == str(move.saving)
    ended(attempt)
    operations.run_scheduling_cycle()
    second = Attempt.objects.get(job=job, number=2)
    assert second.cluster_id == west.id  # by price, though its strategy is to spread
    client.force_login(User.objects.get(id=submitter.user_id))
    page = client.get(f"/jobs/{job.id}/").content.decode()
    assert "Moves for price and deadline" in page
    assert f"{move.saving:.2f}" in page
    own = bearer(User.objects.get(id=submitter.user_id))
    [shown] = client.get(f"/api/v1/jobs/{job.id}/moves", headers=own).json()["items"]
    assert (shown["origin"], shown["cluster"], shown["price_to"]["amount"]) == ("east", "west", "24.000000")
    assert shown["realised_saving"] is None
    redate(Attempt.objects.filter(id=second.id), started_at=Now() - timedelta(hours=2))
    [view] = newest_moves(submitter, job.id)
    assert view.realised == pytest.approx(
        32 * 2 - 32 * Decimal(65) / 3600, abs=Decimal("0.1")
    )  # nothing is metered yet
    stranger = bearer(make_user("eve@example.org"))
    assert client.get(f"/api/v1/jobs/{job.id}/moves", headers=stranger).status_code == 404


def test_prices_in_several_currencies_are_compared_in_that_of_the_bill(cluster, submitter):
    today = database_now().date()
    billed_in("EUR", today.replace(day=1))
    imported(f"Date,USD,JPY,\n{today},1.25,200,\n")
    thrifty(submitter, cluster)  # 3.20 EUR
    cost(simulated_cluster("west"), 500, currency="JPY")
    assert operations.relocate_jobs() == 1
    move = Move.objects.get()
    assert (move.currency, move.price_from, move.price_to) == ("EUR", Decimal("25.6"), 20)


@pytest.mark.parametrize(
    "fields",
    [{"moves": "when_needed"}, {"moves": "never"}, {"estimated_seconds": 2 * HOURS}, {"estimated_seconds": None}],
    ids=["only when needed", "never", "nearly done", "unknown work"],
)
def test_a_job_stays_that_does_not_ask_for_it_or_may_soon_end(cluster, submitter, fields):
    _, attempt = thrifty(submitter, cluster, **fields)
    cost(simulated_cluster("west"), 1)
    assert operations.relocate_jobs() == 0
    assert stopped_for(attempt) == ""


def test_a_price_that_has_just_begun_and_one_that_nobody_knows_move_nothing(cluster, submitter):
    _, attempt = thrifty(submitter, cluster)
    west = simulated_cluster("west")
    assert operations.relocate_jobs() == 0
    cost(west, 4, days=2)
    create_price(SYSTEM, NewPrice("west", Flavor.objects.get(cluster=west).name, Decimal(3)))
    assert operations.relocate_jobs() == 0
    assert stopped_for(attempt) == ""


def moved_after(monkeypatch, change):
    """How many jobs a round moves if this changes between its trial and its decision."""
    stop = saving._stop

    def changed(*given, **more):
        change()
        return stop(*given, **more)

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(saving, "_stop", changed)
        return operations.relocate_jobs()


def test_what_has_changed_since_the_trial_stops_nothing(cluster, submitter, monkeypatch):
    job, attempt = thrifty(submitter, cluster)
    west = simulated_cluster("west")
    cost(west, 3)
    stops_after = partial(moved_after, monkeypatch)

    flavor = Flavor.objects.get(cluster=west).name
    assert stops_after(lambda: create_price(SYSTEM, NewPrice("west", flavor, Decimal(9)))) == 0
    assert stops_after(lambda: None) == 0
    create_price(SYSTEM, NewPrice("east", flavor, Decimal(400)))
    redate_prices()
    assert stops_after(lambda: operations.request_suspension(submitter, job.id)) == 0
    assert stopped_for(attempt) == "suspended"
    assert not Move.objects.exists()


def redate_prices():
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE billing_price DISABLE TRIGGER USER")
        cursor.execute("DELETE FROM billing_price WHERE upper(valid) IS NOT NULL")
        cursor.execute(
            "UPDATE billing_price SET valid = tstzrange(date_trunc('milliseconds', now() - interval '1 day'), NULL)"
        )
        cursor.execute("ALTER TABLE billing_price ENABLE TRIGGER USER")


def test_few_move_at_the_same_time_within_an_hour_and_of_one_user(cluster, submitter, settings):
    cost(cluster, 4)
    pairs = [started(submitter, **THRIFTY), started(submitter, **THRIFTY)]
    for _, attempt in pairs:
        saved(attempt)
    cost(simulated_cluster("west"), 3)
    for name, value in (("SAVING_HOURLY_MOVES", 0), ("RELOCATION_SHARE", "0")):
        usual = getattr(settings, name)
        setattr(settings, name, value)
        assert operations.relocate_jobs() == 0
        setattr(settings, name, usual)
    Standstill.objects.create()
    assert operations.relocate_jobs() == 0
    Standstill.objects.all().delete()
    assert operations.relocate_jobs() == 1  # a tenth of two, and at least one
    settings.RELOCATION_SHARE, settings.SAVING_HOURLY_MOVES = "1", 7
    assert operations.relocate_jobs() == 0  # a quarter of seven is one
    settings.SAVING_HOURLY_MOVES = 8
    assert operations.relocate_jobs() == 1


def test_off_spot_when_only_that_is_in_time_and_not_back(cluster, submitter):
    spot(cluster)
    _, attempt = started(submitter, **PRESSED, finish_within_seconds=15 * HOURS, checkpoint_seconds=600)
    job = Job.objects.get()
    simulated_cluster("west")
    saved(attempt)
    assert operations.relocate_jobs() == 0
    redate(Job.objects.filter(id=job.id), created_at=Now() - timedelta(hours=5.8))
    assert operations.relocate_jobs() == 1
    move = Move.objects.get()
    job.refresh_from_db()
    assert (move.cause, move.finish_by) == ("deadline", job.created_at + timedelta(hours=15))
    assert move.late_at > move.finish_by
    assert "if its spot capacity is taken away" in JobEvent.objects.get(kind="interrupted").message
    ended(attempt)
    operations.run_scheduling_cycle()
    assert Attempt.objects.get(number=2).cluster.name == "west"


def test_a_deadline_that_cannot_be_met_moves_nothing(cluster, submitter):
    spot(cluster)
    job, attempt = started(submitter, **PRESSED, finish_within_seconds=15 * HOURS, checkpoint_seconds=600)
    simulated_cluster("west")
    redate(Job.objects.filter(id=job.id), created_at=Now() - timedelta(hours=8))
    assert operations.relocate_jobs() == 0
    assert stopped_for(attempt) == ""


def test_a_waiting_job_goes_to_spot_only_while_its_deadline_allows_that(cluster, submitter):
    spot(cluster)
    cost(cluster, 1)
    cost(simulated_cluster("west"), 4)
    asked = {"estimated_seconds": HOURS, "checkpoint_seconds": 600, "strategy": "cheapest"}
    _, relaxed = started(submitter, **asked, finish_within_seconds=3 * HOURS)
    _, pressed = started(submitter, **asked, finish_within_seconds=HOURS + 1200)
    assert (relaxed.cluster.name, pressed.cluster.name) == ("east", "west")


def test_work_that_earlier_runs_saved_counts(cluster, submitter):
    job, attempt = started(submitter, **PRESSED, finish_within_seconds=15 * HOURS, checkpoint_seconds=600)
    saved(attempt, ago=100)
    Attempt.objects.filter(id=attempt.id).update(state="preempted", finished_at=Now(), end_reason="spot")
    Job.objects.filter(id=job.id).update(state="queued", started_at=None)
    [waiting] = with_worked(requests_again(database_now(), [job.id]), [job.id])
    assert waiting.worked_seconds == pytest.approx(3500, abs=2)


def test_the_database_refuses_moves_that_save_nothing_or_that_nobody_asked_for(cluster, submitter):
    job, attempt = thrifty(submitter, cluster)
    Attempt.objects.filter(id=attempt.id).update(stop_requested_at=Now(), stop_reason="migrated")

    def refused(**changes):
        row = {
            "attempt_id": attempt.id, "job_id": job.id, "cause": "price", "expected_id": cluster.id, "lost_seconds": 0,
            "cost_seconds": 60, "price_from": 4, "price_to": 3, "currency": "USD", "saving": 2, "price_of_move": 1,
            "finish_by": None, "late_at": None,
        } | changes  # fmt: skip
        columns = ", ".join(row)
        return attack(
            f"INSERT INTO federation_move ({columns}) VALUES ({', '.join(f'%({name})s' for name in row)})",
            row,
        )

    assert "a_move_for_a_price_saves_more_than_it_costs" in refused(saving=1)
    assert "a_move_for_a_price_saves_more_than_it_costs" in refused(currency="")
    assert "a_move_for_a_price_saves_more_than_it_costs" in refused(price_from=None)
    none = {"price_from": None, "price_to": None, "currency": "", "saving": None, "price_of_move": None}
    assert "does not ask for a move like this" in refused(
        cause="deadline", finish_by="2030-01-01", late_at="2030-01-02", **none
    )
    Job.objects.filter(id=job.id).update(spec=Job.objects.get(id=job.id).spec | {"finish_within_seconds": 3600})
    due = Job.objects.get(id=job.id).created_at + timedelta(hours=1)
    assert "a_move_for_a_deadline_would_be_late_else" in refused(cause="deadline", finish_by=due, late_at=due, **none)
    assert "does not ask for a move like this" in refused(
        cause="deadline", finish_by=due + timedelta(hours=1), late_at=due + timedelta(hours=2), **none
    )
    Job.objects.filter(id=job.id).update(spec=Job.objects.get(id=job.id).spec | {"moves": "when_needed"})
    assert "does not ask for a move like this" in refused()
    Job.objects.filter(id=job.id).update(spec=Job.objects.get(id=job.id).spec | {"moves": "when_cheaper"})
    earlier(job, cluster, 2)
    assert "for its price twice within a day" in refused()


def earlier(job, cluster, count):
    """Moves for its price of earlier runs."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE federation_move DISABLE TRIGGER USER")
    for number in range(count):
        past = Attempt.objects.create(
            job=job, number=number + 10, cluster=cluster, state="preempted", finished_at=Now(), flavor="f",
            namespace="n", spec_hash="x", end_reason="migrated",
        )  # fmt: skip
        Move.objects.create(
            attempt=past, job=job, cause="price", expected_id=cluster.id, lost_seconds=0, cost_seconds=60, price_from=4,
            price_to=3, currency="USD", saving=2, price_of_move=1,
        )  # fmt: skip
    Move.objects.update(created_at=F("created_at") - timedelta(hours=2))
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE federation_move ENABLE TRIGGER USER")


def test_a_job_that_was_moved_twice_today_for_its_price_stays(cluster, submitter):
    job, attempt = thrifty(submitter, cluster)
    cost(simulated_cluster("west"), 1)
    earlier(job, cluster, 2)
    assert operations.relocate_jobs() == 0
    assert stopped_for(attempt) == ""
    Move.objects.filter(attempt__number=10).update(created_at=Now() - timedelta(days=2))
    assert operations.relocate_jobs() == 1
