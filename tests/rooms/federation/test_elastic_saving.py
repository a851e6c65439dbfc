"""Elastic jobs move for a price or a deadline with the pods that their run has."""

from datetime import timedelta

import pytest
from django.db.models.functions import Now

from federation import operations
from federation.models import Attempt, Job, Move, RemoteObject
from federation.queries.made_moves import newest_moves
from tests.builders import redate, submit
from tests.live import gpu_job, simulated_cluster
from tests.rooms.federation.test_elastic import elastic, sizes
from tests.rooms.federation.test_saving_moves import HOURS, PRESSED, THRIFTY, cost, spot
from tests.rooms.federation.test_silent_moves import answers_again, pass_days, running

pytestmark = pytest.mark.django_db(transaction=True)
ASKED = {name: value for name, value in elastic(1, 2).items() if name in ("pod_sets", "elastic")}


def moved(cluster, submitter, beside=0, nodes=2):
    """An elastic run that is being moved to a cheaper place; that many other pods run beside it."""
    cost(cluster, 4)
    for number in range(beside):
        submit(submitter, gpu_job(f"beside-{number}", seconds=100_000))
        operations.run_scheduling_cycle()
    _, attempt = running(submitter, **THRIFTY, **ASKED)
    cost(simulated_cluster("west", nodes=nodes), 3)
    assert operations.relocate_jobs() == 1
    return Move.objects.select_related("attempt").get(attempt=attempt)


@pytest.mark.parametrize(("beside", "pods"), [(0, 2), (1, 1)])
def test_it_moves_with_the_pods_that_it_has(cluster, submitter, beside, pods):
    move = moved(cluster, submitter, beside)
    assert sizes(move.job) == [pods]
    assert (move.price_from, move.price_to) == (32 * pods, 24 * pods)
    assert (len(move.nodes), move.amounts["gpu"]) == (pods, 8000 * pods)
    # 15 hours of one pod are certain; of two, half of that. One hour has passed.
    assert float(move.saving) == pytest.approx(8 * pods * (15 / pods - 1), abs=0.5)
    answers_again(move)
    operations.run_scheduling_cycle()
    assert sizes(move.job) == [pods, pods], "also where more would fit"
    assert Attempt.objects.get(job=move.job, number=2).cluster.name == "west"
    assert newest_moves(submitter, move.job_id)[0].state == "made"


def test_it_goes_on_with_fewer_pods_where_its_place_is_gone(cluster, submitter):
    move = moved(cluster, submitter)
    pass_days()
    for name in ("west", "east"):
        taken = gpu_job(f"on-{name}", seconds=100_000) | {"constraints": {"clusters": [name]}, "priority_class": "high"}
        submit(submitter, taken)
        operations.run_scheduling_cycle()
    Attempt.objects.filter(id=move.attempt_id).update(deletion_at=Now())
    answers_again(move)
    operations.run_scheduling_cycle()
    assert (sizes(move.job), Attempt.objects.get(job=move.job, number=2).cluster.name) == ([2, 1], "west")


def test_it_stays_where_no_place_has_room_for_its_pods(cluster, submitter):
    cost(cluster, 4)
    running(submitter, **THRIFTY, **ASKED)
    cost(simulated_cluster("west", nodes=1), 1)
    assert operations.relocate_jobs() == 0


def test_it_leaves_spot_capacity_in_time_at_the_pace_of_its_pods(cluster, submitter):
    """Ten hours of one pod are five of two."""
    spot(cluster)
    asked = PRESSED | ASKED | {"checkpoint_seconds": 600, "finish_within_seconds": 10 * HOURS}
    job, attempt = running(submitter, **asked)
    simulated_cluster("west")
    assert (attempt.pace, RemoteObject.objects.get(attempt=attempt).pods) == (0.5, 2)
    redate(Job.objects.filter(id=job.id), created_at=Now() - timedelta(hours=5))
    assert operations.relocate_jobs() == 0
    redate(Job.objects.filter(id=job.id), created_at=Now() - timedelta(hours=5.7))
    assert operations.relocate_jobs() == 1
    move = Move.objects.get()
    assert (move.cause, len(move.nodes)) == ("deadline", 2)
    answers_again(move)
    operations.run_scheduling_cycle()
    assert (sizes(job), Attempt.objects.get(job=job, number=2).cluster.name) == ([2, 2], "west")
