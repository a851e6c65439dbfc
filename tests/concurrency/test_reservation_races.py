"""Many who reserve the last nodes at once, and rounds in between, with real commits: no node is promised twice."""

from collections import Counter
from datetime import timedelta

import pytest

from federation.models import Attempt, RemoteObject, Reservation, ReservedNode
from federation.operations import make_reservation, run_scheduling_cycle
from foundation import clock
from foundation.plain_json import instant
from foundation.problems import Problem
from tests.builders import actor_for, bind, make_cluster, make_flavor, make_node, make_spec, make_user, submit
from tests.concurrency.test_quota_races import at_once

pytestmark = pytest.mark.django_db(transaction=True)
MANY = 12


@pytest.fixture
def admin():
    cluster = make_cluster("acme", "north")
    make_flavor(cluster)
    for name in ("n1", "n2"):
        make_node(cluster, name)
    user = make_user()
    bind(user, "acme", "admin")
    return actor_for(user)


def reserve(admin, name, count=1):
    now = clock.now()
    body = {
        "tenant": "acme",
        "name": name,
        "starts_at": instant(now + timedelta(hours=1)),
        "ends_at": instant(now + timedelta(hours=2)),
        "count": count,
        "pod_sets": [{"cpu": "1", "memory": "1Gi", "gpu": {"count": 8}}],
    }
    try:
        make_reservation(admin, body, show=lambda row: {"id": str(row.id)})
    except Problem as problem:
        return problem.code
    return "reserved"


def test_of_two_who_want_the_last_nodes_one_gets_them_and_the_other_learns_why(admin):
    outcomes = at_once([lambda name=name: reserve(admin, name, 2) for name in ("one", "two")])
    assert sorted(outcomes) == ["nodes_not_free", "reserved"]
    assert ReservedNode.objects.count() == 2


def test_of_many_who_want_a_node_each_as_many_get_one_as_there_are_nodes(admin):
    outcomes = at_once([lambda n=n: reserve(admin, f"r{n}") for n in range(MANY)])
    assert Counter(outcomes) == {"reserved": 2, "nodes_not_free": MANY - 2}
    assert sorted(ReservedNode.objects.values_list("node", flat=True)) == ["n1", "n2"]


def test_of_many_who_want_the_same_name_one_gets_it(admin):
    outcomes = at_once([lambda: reserve(admin, "eval")] * MANY)
    assert Counter(outcomes) == {"reserved": 1, "reservation_name_taken": MANY - 1}


def test_a_round_and_a_reservation_at_once_never_meet_on_a_node(admin):
    for number in range(2):
        spec = make_spec(name=f"long-{number}", pod={"gpu": {"count": 8}}, deadline_seconds=86_400)
        submit(admin, {"tenant": "acme", **spec})
    at_once([run_scheduling_cycle, lambda: reserve(admin, "one"), lambda: reserve(admin, "two")])
    reserved = set(ReservedNode.objects.values_list("node", flat=True))
    taken = {node for assumed in RemoteObject.objects.values_list("assumed_nodes", flat=True) for node in assumed}
    assert not reserved & taken
    assert Reservation.objects.count() == len(reserved)
    assert Attempt.objects.count() == len(taken)
