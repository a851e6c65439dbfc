"""A job that avoids nodes gets others or waits; what is taken in the fleet that it sees is taken for all."""

from dataclasses import replace
from datetime import timedelta
from uuid import UUID

from placement.cycle.cycle import decide
from placement.values.advance import Bounds

from .fleets import NOW, cluster, flavor, job, node, pods, snapshot

C1 = UUID(int=1)


def avoiding(*names: str, cluster_id: UUID = C1):
    one = job(pods(1, 8))
    avoided = tuple((cluster_id, name) for name in names)
    return replace(
        one, constraints=replace(one.constraints, avoid_nodes=avoided), shape=f"{one.shape} avoids {avoided}"
    )


def fleet(*free: int):
    of = flavor()
    return [cluster(1, [node(f"n{n}", of, 8, units) for n, units in enumerate(free)], [of])]


def nodes_of(decisions, one) -> set[str]:
    placed = next((each for each in decisions.placements if each.job_id == one.id), None)
    return set(placed.pod_sets[0].nodes) if placed else set()


def test_it_gets_another_node_or_waits():
    one = avoiding("n0")
    assert nodes_of(decide(snapshot(fleet(8, 8), [one])), one) == {"n1"}
    waits = decide(snapshot(fleet(8, 0), [one])).waits
    assert [wait.job_id for wait in waits] == [one.id]


def test_a_node_of_that_name_on_another_cluster_is_not_avoided():
    one = avoiding("n0", cluster_id=UUID(int=2))
    assert nodes_of(decide(snapshot(fleet(8, 0), [one])), one) == {"n0"}


def test_what_others_took_before_it_is_taken_for_it_and_the_other_way_round():
    first, one, last = job(pods(1, 8)), avoiding("n9"), job(pods(1, 8))
    decisions = decide(snapshot(fleet(8, 8), [first, one, last]))
    assert nodes_of(decisions, first) | nodes_of(decisions, one) == {"n0", "n1"}
    assert [wait.job_id for wait in decisions.waits] == [last.id]


def test_jobs_that_avoid_different_nodes_share_what_is_free():
    one, other = avoiding("n0"), avoiding("n1")
    decisions = decide(snapshot(fleet(8, 8), [one, other]))
    assert (nodes_of(decisions, one), nodes_of(decisions, other)) == ({"n1"}, {"n0"})


def test_no_room_is_kept_for_it():
    one = replace(avoiding("n0"), submitted_at=NOW - timedelta(hours=1))
    small = job(pods(1, 1))
    decisions = decide(snapshot(fleet(3, 7), [one, small]))
    assert [placed.job_id for placed in decisions.placements] == [small.id]


def test_bounds_leave_out_avoided_nodes_unless_a_reservation_has_no_others():
    assert Bounds(never=("a",)).without({"b"}) == Bounds(never=("a", "b"))
    assert Bounds(only=("a", "b")).without({"b"}) == Bounds(only=("a",))
    assert Bounds(only=("b",)).without({"b"}) == Bounds(only=("b",))
    assert Bounds().without(()) == Bounds()
