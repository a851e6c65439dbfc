"""A cluster falls silent while the gateway moves a job off it for a price or a deadline: the job neither runs twice nor waits without an
end, and what is shown of the move is true.
"""

import itertools
from datetime import timedelta
from decimal import Decimal
from functools import partial

import pytest
from django.db import DatabaseError
from django.db.models.functions import Now

from billing.operations import create_price
from billing.operations.prices import NewPrice
from clusters.drivers import NotThere, Unreachable
from clusters.drivers.simulated import path_of
from clusters.drivers.simulated.store import Store
from clusters.models import Cluster, Flavor
from federation import operations
from federation.models import Attempt, Job, JobEvent, Move
from federation.operations.cancellation import request_cancellation
from federation.operations.rests import end_rest
from federation.operations.suspension import request_suspension
from federation.queries.made_moves import newest_moves
from federation.queries.preemption import load_claims
from foundation.clock import database_now, now
from tenancy.models import AuditEntry
from tenancy.queries import SYSTEM
from tests.builders import redate, submit
from tests.live import call, every_visit, gpu_job, simulated_cluster
from tests.refusals import constraint_of
from tests.rooms.federation.test_constraints import attack
from tests.rooms.federation.test_evidence import replaced
from tests.rooms.federation.test_saving_moves import HOURS, PRESSED, THRIFTY, cost, moved_after, saved, spot

pytestmark = pytest.mark.django_db(transaction=True)
HOUR = timedelta(hours=1)
UNHEARD, DECIDED, CARRIED_OUT = "the request is lost", "the deletion is decided", "only the reply is lost"


def running(submitter, ago=HOUR, **fields):
    """A job whose object runs on its simulated cluster."""
    job = submit(submitter, gpu_job(seconds=100_000) | fields)
    operations.run_scheduling_cycle()
    operations.dispatch_attempts()
    since = Now() - ago
    attempt = Attempt.objects.get(job=job, released_at__isnull=False)
    redate(
        Attempt.objects.filter(id=attempt.id), state="running", starting_at=since, released_at=since, started_at=since
    )
    Attempt.objects.filter(id=attempt.id).update(next_action_at=None)
    Job.objects.filter(id=job.id).update(state="running", started_at=since)
    saved(attempt)
    return job, Attempt.objects.select_related("cluster").get(id=attempt.id)


def for_a_price(cluster, submitter, **fields):
    """A run that is being moved to a cheaper place, and is not stopped yet."""
    cost(cluster, 4)
    _, attempt = running(submitter, **(THRIFTY | fields))
    cost(simulated_cluster("west"), 3)
    assert operations.relocate_jobs() == 1
    return Move.objects.select_related("attempt", "job").get(attempt=attempt)


def for_a_deadline(cluster, submitter):
    spot(cluster)
    job, attempt = running(submitter, **PRESSED, finish_within_seconds=15 * HOURS, checkpoint_seconds=600)
    simulated_cluster("west")
    redate(Job.objects.filter(id=job.id), created_at=Now() - timedelta(hours=5.8))
    assert operations.relocate_jobs() == 1
    return Move.objects.select_related("attempt", "job").get(attempt=attempt)


async def unreachable(*_):
    raise Unreachable("no route to host")


def silence(monkeypatch, move, stage):
    """Visits in vain, from this stage of the stop on."""
    heard = []

    def nothing_is_answered():
        for name in ("list_pods", "get_job", "delete_job"):
            replaced(monkeypatch, name, unreachable)

    async def delete(original, driver, *arguments):
        if stage == CARRIED_OUT:
            await original(driver, *arguments)
        heard.append(stage)
        nothing_is_answered()
        raise Unreachable("no route to host")

    if stage == UNHEARD:
        nothing_is_answered()
    else:
        replaced(monkeypatch, "delete_job", delete)
    every_visit(move.attempt, 2)
    end_rest(move.attempt.cluster_id)
    is_decided = Attempt.objects.get(id=move.attempt_id).deletion_at is not None
    assert (is_decided, bool(heard)) == (stage != UNHEARD,) * 2


def pass_days():
    """Its place is not kept any more."""
    redate(Move.objects.all(), created_at=Now() - 2 * HOUR, kept_until=Now() - HOUR)
    assert load_claims(database_now()) == ()


def end_pods(settings, cluster):
    """The program ends, and succeeds."""
    store = Store(path_of(settings.HOME, cluster.server))
    with store.write():
        for job in store.jobs():
            for pod in store.pods_of(job.uid):
                pod.ends_at = now().timestamp()
                store.put(pod)
    store.close()


def answers_again(move, times=5):
    for _ in range(times):
        every_visit(move.attempt, 1)
        operations.settle_attempts()


def exists(attempt):
    try:
        seen = call(attempt.cluster, "get_job", attempt.namespace, attempt.remote_objects.get().name)
    except NotThere:
        return False
    return not seen.is_terminating and not seen.outcome


MEANWHILE = {
    "nothing": lambda *_: None,
    "the run ends": lambda _, move, settings: end_pods(settings, move.attempt.cluster),
    "its user cancels it": lambda user, move, _: request_cancellation(user, move.job_id),
    "its user suspends it": lambda user, move, _: request_suspension(user, move.job_id),
    "its cluster is drained": lambda *_: Cluster.objects.filter(name="east").update(wish="draining"),
    "the new place is cordoned": lambda *_: Cluster.objects.filter(name="west").update(wish="cordoned"),
}
CASES = [
    (stage, is_long, what)
    for stage, is_long, what in itertools.product((UNHEARD, DECIDED, CARRIED_OUT), (False, True), MEANWHILE)
    if (is_long or stage == UNHEARD) and (stage, what) != (CARRIED_OUT, "the run ends")
]
"""What was carried out when the cluster fell silent, whether it is silent until its place is kept no longer, and what happens then."""


def end_of(stage, is_long, what):
    """How the run that is moved ends; empty if it goes on."""
    if what == "its user cancels it":
        return "cancelled"
    if what == "the run ends":
        return "completed"
    return "" if stage == UNHEARD and is_long and what != "its user suspends it" else "migrated"


@pytest.mark.parametrize("case", CASES, ids=str)
def test_whatever_happens_in_the_silence_the_job_runs_once_and_goes_on(cluster, submitter, monkeypatch, settings, case):
    stage, is_long, what = case
    move = for_a_price(cluster, submitter)
    with monkeypatch.context() as silent:
        silence(silent, move, stage)
        operations.run_scheduling_cycle()
        assert Attempt.objects.filter(job=move.job).count() == 1, "nothing starts while it may still run"
        MEANWHILE[what](submitter, move, settings)
        if is_long:
            pass_days()
        operations.run_scheduling_cycle()
        assert Attempt.objects.filter(job=move.job).count() == 1
    answers_again(move)
    operations.run_scheduling_cycle()
    attempt, wanted = Attempt.objects.get(id=move.attempt_id), end_of(stage, is_long, what)
    job = Job.objects.get(id=move.job_id)
    if not wanted:
        assert (attempt.state, attempt.stop_requested_at, attempt.stop_reason) == ("running", None, "")
        assert exists(attempt)
        assert (job.state, Attempt.objects.filter(job=job).count(), Move.objects.count()) == ("running", 1, 0)
        return
    assert (attempt.end_reason, exists(attempt)) == (wanted, False)
    [shown] = newest_moves(submitter, job.id)
    if what == "its user suspends it":
        assert (job.state, Attempt.objects.filter(job=job).count()) == ("suspended", 1)
    elif wanted == "migrated":
        new = Attempt.objects.get(job=job, number=2)
        place = "east" if what == "the new place is cordoned" else "west"
        assert (new.cluster.name, new.reserved_at > attempt.finished_at) == (place, True)
        told = (shown.state, shown.cluster, shown.price_to)
        assert told == ("made", place, 24 if place == "west" else None)
    else:
        assert job.state == {"completed": "succeeded"}.get(wanted, wanted)
        assert (shown.state, shown.cluster, shown.realised) == ("not_made", "", None)
    assert load_claims(database_now()) == ()


def test_a_move_for_a_deadline_is_undone_likewise_and_made_again(cluster, submitter, monkeypatch):
    move = for_a_deadline(cluster, submitter)
    assert (move.cause, len(move.nodes), move.amounts["gpu"]) == ("deadline", 1, 8000)
    with monkeypatch.context() as silent:
        silence(silent, move, UNHEARD)
        pass_days()
    answers_again(move, 1)
    assert not Move.objects.exists()
    told = JobEvent.objects.get(job=move.job, kind="stays").message
    assert told.startswith("Its cluster did not answer while the place that it was to move to was kept.")
    assert AuditEntry.objects.get(action="job.stay").detail == {"cause": "deadline"}
    assert operations.relocate_jobs() == 1, "it rests only after moves that were made"
    again = Move.objects.get()
    assert (again.attempt_id, again.cause) == (move.attempt_id, "deadline")
    answers_again(again)
    operations.run_scheduling_cycle()
    assert Attempt.objects.get(job=move.job, number=2).cluster.name == "west"


@pytest.mark.parametrize("change", ["price", "deadline"])
def test_a_run_that_went_on_is_not_moved_for_what_has_passed(cluster, submitter, monkeypatch, change):
    make = for_a_price if change == "price" else for_a_deadline
    move = make(cluster, submitter)
    with monkeypatch.context() as silent:
        silence(silent, move, UNHEARD)
        pass_days()
        if change == "price":
            flavor = Flavor.objects.get(cluster=cluster).name
            create_price(SYSTEM, NewPrice("east", flavor, Decimal(2)))
        else:
            redate(Job.objects.filter(id=move.job_id), created_at=Now() - 20 * HOUR)
    answers_again(move, 1)
    assert operations.relocate_jobs() == 0
    assert Attempt.objects.get(id=move.attempt_id).stop_requested_at is None


def test_two_causes_stop_a_run_once_and_the_other_one_counts_when_the_first_is_undone(cluster, submitter, monkeypatch):
    move = for_a_price(cluster, submitter)
    Cluster.objects.filter(id=cluster.id).update(wish="draining")
    assert operations.relocate_jobs() == 0
    with monkeypatch.context() as silent:
        silence(silent, move, UNHEARD)
        pass_days()
    answers_again(move, 1)
    assert operations.relocate_jobs() == 1
    assert [one.cause for one in Move.objects.all()] == ["drain"]


def test_its_user_wants_the_move_as_well(cluster, submitter, monkeypatch):
    move = for_a_price(cluster, submitter)
    with monkeypatch.context() as silent:
        silence(silent, move, UNHEARD)
        operations.request_migration(submitter, move.job_id, {})
        pass_days()
    answers_again(move)
    assert Attempt.objects.get(id=move.attempt_id).end_reason == "migrated"


def test_its_place_is_kept_until_it_runs_there_or_it_is_too_late(cluster, submitter):
    west_only = {"constraints": {"clusters": ["west"]}}
    move = for_a_price(cluster, submitter)
    place = Cluster.objects.get(name="west")
    [claim] = load_claims(database_now())
    assert (claim.kind, claim.job_id, claim.cluster_id, list(claim.nodes)) == (
        "moves",
        move.job_id,
        place.id,
        move.nodes,
    )
    first, second = (
        submit(submitter, gpu_job(f"thief-{n}") | west_only | {"priority_class": "high"}) for n in range(2)
    )
    operations.run_scheduling_cycle()
    second.refresh_from_db()
    assert (Attempt.objects.filter(job=first).count(), second.state) == (1, "queued")
    assert "is being moved there" in second.reason_message
    pass_days()
    operations.run_scheduling_cycle()
    assert Attempt.objects.filter(job=second).count() == 1, "it is open to others again"


def test_a_place_that_was_taken_or_closed_since_the_trial_stops_nothing(cluster, submitter, monkeypatch):
    cost(cluster, 4)
    _, attempt = running(submitter, **THRIFTY)
    west = simulated_cluster("west", nodes=1)
    cost(west, 3)
    stops_after = partial(moved_after, monkeypatch)

    assert stops_after(lambda: Cluster.objects.filter(id=west.id).update(wish="cordoned")) == 0
    Cluster.objects.filter(id=west.id).update(wish="open")
    assert stops_after(lambda: Cluster.objects.filter(id=west.id).update(health="unreachable", silent_since=Now())) == 0
    Cluster.objects.filter(id=west.id).update(health="ready", silent_since=None)

    def take():
        submit(submitter, gpu_job("thief") | {"constraints": {"clusters": ["west"]}})
        operations.run_scheduling_cycle()

    assert stops_after(take) == 0
    assert Attempt.objects.filter(cluster=west).count() == 1
    attempt.refresh_from_db()
    assert attempt.stop_requested_at is None


def test_the_work_that_was_really_lost_counts_in_what_was_saved(cluster, submitter):
    move = for_a_price(cluster, submitter)
    answers_again(move)
    operations.run_scheduling_cycle()
    second = Attempt.objects.get(job=move.job, number=2)
    redate(Attempt.objects.filter(id=second.id), started_at=Now() - 2 * HOUR)
    before = newest_moves(submitter, move.job_id)[0].realised
    Attempt.objects.filter(id=move.attempt_id).update(lost_seconds=move.lost_seconds + 1800)
    after = newest_moves(submitter, move.job_id)[0].realised
    assert before - after == pytest.approx(16, abs=Decimal("0.1"))  # half an hour at 32


def test_the_database_bounds_how_long_a_place_is_kept_and_keeps_moves_that_are_carried_out(
    cluster, submitter, settings
):
    settings.PREEMPTION_KEEP_SECONDS = 86_400  # the most
    move = for_a_price(cluster, submitter)
    for change in ("kept_until = created_at", "kept_until = created_at + interval '25 hours'", "cause = 'drain'"):
        assert attack(f"UPDATE federation_move SET {change}")
    Attempt.objects.filter(id=move.attempt_id).update(stop_requested_at=None, stop_reason="")
    with pytest.raises(DatabaseError) as refused:
        move.delete()
    assert constraint_of(refused.value) == "a_move_is_undone_only_if_its_run_goes_on"
