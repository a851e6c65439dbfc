"""Which places are kept at all, and what the database refuses of them, whoever writes them."""

import pytest
from django.db import DatabaseError, connection, transaction

from federation.models import Attempt, KeptPlace
from federation.operations import request_cancellation as cancel_job
from federation.operations import run_scheduling_cycle
from federation.operations.kept_places import end_places, keep_places
from federation.queries.preemption import load_claims
from foundation.clock import database_now
from tests.builders import actor_for, make_cluster, make_flavor, make_node
from tests.refusals import constraint_of
from tests.rooms.federation.kept_places import fail, gang, member, state_of, two_nodes

pytestmark = pytest.mark.django_db


@pytest.fixture
def user():
    return member()


@pytest.fixture
def cluster():
    return two_nodes()


ATTACKS = [
    ("UPDATE federation_keptplace SET until_at = until_at + interval '1 second'", "a_kept_place_only_ends"),
    ("UPDATE federation_keptplace SET nodes = '[\"n9\"]'", "a_kept_place_only_ends"),
    ("UPDATE federation_keptplace SET since_at = since_at - interval '1 day'", "a_kept_place_only_ends"),
    ("UPDATE federation_keptplace SET amounts = '{}'", "a_kept_place_only_ends"),
    ("DELETE FROM federation_keptplace", "a_kept_place_only_ends"),
    (
        "UPDATE federation_keptplace SET ended_at = clock_timestamp(), outcome = 'given_up'",
        "a_place_is_given_up_after_its_time",
    ),
    ("UPDATE federation_keptplace SET ended_at = clock_timestamp()", "a_kept_place_ends_with_an_outcome"),
    ("UPDATE federation_keptplace SET outcome = 'placed'", "a_kept_place_ends_with_an_outcome"),
    (
        "UPDATE federation_keptplace SET ended_at = clock_timestamp(), outcome = 'other'",
        "a_kept_place_ends_with_an_outcome",
    ),
    (
        "UPDATE federation_keptplace SET ended_at = since_at - interval '1 s', outcome = 'placed'",
        "a_kept_place_ends_after_it_began",
    ),
    ("UPDATE federation_diagnosis SET keep_seconds = 600", "a_diagnosis_stands"),
]


@pytest.mark.parametrize(("statement", "constraint"), ATTACKS)
def test_raw_sql_only_ends_a_kept_place(user, cluster, statement, constraint):
    fail(gang(user, {"backoff": {"seconds": 60}}))
    with pytest.raises(DatabaseError) as refused, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)
    assert constraint_of(refused.value) == constraint


def test_raw_sql_does_not_keep_an_ended_place_again(user, cluster):
    attempt = gang(user, {"backoff": {"seconds": 60}})
    fail(attempt)
    cancel_job(actor_for(user), attempt.job_id)
    assert end_places() == 1
    with pytest.raises(DatabaseError) as refused, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("UPDATE federation_keptplace SET ended_at = NULL, outcome = ''")
    assert constraint_of(refused.value) == "a_kept_place_only_ends"


INSERT = """
INSERT INTO federation_keptplace (attempt_id, job_id, cluster_id, nodes, since_at, until_at)
SELECT id, job_id, cluster_id, {nodes}, {since}, {since} + interval '{seconds} seconds' FROM federation_attempt
"""


@pytest.mark.parametrize(
    ("changes", "constraint"),
    [
        ({"nodes": "'[\"n9\"]'"}, "a_kept_place_has_only_nodes_of_its_attempt"),
        ({"nodes": "'[]'"}, "a_kept_place_lists_its_nodes"),
        ({"seconds": 1501}, "a_place_is_kept_for_a_bounded_time"),
        ({"seconds": 0}, "a_place_is_kept_for_a_bounded_time"),
        ({"since": "now() + interval '1 hour'"}, "a_place_is_kept_of_an_attempt_that_lives"),
        ({"since": "now() - interval '1 hour'"}, "a_place_is_kept_of_an_attempt_that_lives"),
    ],
)
def test_raw_sql_keeps_only_what_an_attempt_has_for_a_bounded_time(user, cluster, changes, constraint):
    gang(user)
    asked = INSERT.format(**{"nodes": "'[\"n0\"]'", "since": "now()", "seconds": 60, **changes})
    with pytest.raises(DatabaseError) as refused, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(asked)
    assert constraint_of(refused.value) == constraint


def test_raw_sql_keeps_nothing_of_an_attempt_that_has_ended(user, cluster):
    attempt = gang(user)
    fail(attempt, exit_code=3)
    assert state_of(attempt.job) == "failed"
    with pytest.raises(DatabaseError) as refused, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(INSERT.format(nodes="'[\"n0\"]'", since="now()", seconds=60))
    assert constraint_of(refused.value) == "a_place_is_kept_of_an_attempt_that_lives"
    keep_places({attempt.id: 60})
    assert not KeptPlace.objects.exists()


@pytest.mark.parametrize(("gpus", "is_kept"), [(1, False), (3, False), (4, True), (8, True)])
def test_a_node_of_which_it_used_less_than_half_is_not_kept(user, cluster, gpus, is_kept):
    attempt = gang(user, pod={"gpu": {"count": gpus}})
    fail(attempt)
    assert KeptPlace.objects.exists() == is_kept
    assert bool(load_claims(database_now())) == is_kept
    run_scheduling_cycle()
    assert Attempt.objects.filter(job=attempt.job, number=2).exists(), "it starts again in any case"


@pytest.mark.parametrize(("cores", "is_kept"), [("2", False), ("40", True)])
def test_without_gpus_it_is_the_half_of_the_cores(user, cores, is_kept):
    found = make_cluster(name="c2")
    make_flavor(found, "cpu", gpu_model="", vendor="", resource_name="")
    make_node(found, "c0", cpu_millicores=64_000, devices=[{"flavor": "cpu", "units": 0}])
    attempt = gang(user, pod={"cpu": cores, "gpu": None})
    fail(attempt)
    assert KeptPlace.objects.exists() == is_kept


def test_a_place_is_kept_once_whoever_asks_again(user, cluster):
    attempt = gang(user)
    fail(attempt, is_cleared=False)
    before = KeptPlace.objects.values().get()
    keep_places({attempt.id: 600})
    assert KeptPlace.objects.values().get() == before
