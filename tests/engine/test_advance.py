"""Reserved nodes are the reservation's from its first instant to its last, and anybody's until then who ends in time."""

from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from placement.answers.booking import MOST_NODES, Booking, book
from placement.answers.quotes import capacity, quote
from placement.answers.recording import snapshot_of, snapshot_text
from placement.cycle.cycle import decide
from placement.cycle.visibility import respects
from placement.fleet.policies import Policy
from placement.values.advance import Bounds, bounds_of, longest_inside
from placement.values.decisions import Reason
from placement.values.model import Release, TenantPolicy
from tests.laws import examples

from .checker import check
from .fleets import H100, NOW, cluster, flavor, job, limit, node, pods, reservation, snapshot, uniform

OF = flavor()
R1 = str(UUID(int=1))


def fleet(*free, **more):
    return [cluster(1, [node(f"n{n}", OF, 8, units) for n, units in enumerate(free)], [OF], **more)]


def runs(minutes, units=8, **more):
    """A job that its deadline stops after so many minutes."""
    return job(pods(1, units), deadline_seconds=minutes * 60, **more)


def decided(clusters, queue, *reserved, **more):
    given_snapshot = replace(snapshot(clusters, queue, reservations=reserved), **more)
    decisions = decide(given_snapshot)
    check(given_snapshot, decisions)
    return decisions


def placed_on(decisions):
    return [sorted(placed.pod_sets[0].nodes) for placed in decisions.placements]


def test_nobody_else_gets_nodes_that_are_reserved_now():
    (wait,) = decided(fleet(8), [runs(1)], reservation(1, "n0")).waits
    assert (wait.code, wait.message) == ("kept_for_reservation", "c1: has room, but it is reserved until 13:00 UTC")
    assert [reason.code for reason in wait.per_cluster] == ["kept_for_reservation"]


@pytest.mark.parametrize("strategy", ["balanced", "pack"])
def test_whatever_its_strategy_a_job_sees_the_nodes_that_are_open_to_it(strategy):
    """Each of two reservations keeps a node; the third is anybody's."""
    reserved = (reservation(1, "n0"), reservation(2, "n1"))
    queue = [runs(9, strategy=strategy, **more) for more in ({}, {"reservation": R1}, {}, {"reservation": R1})]
    decisions = decided(fleet(8, 8, 8), queue, *reserved)
    assert placed_on(decisions) == [["n2"], ["n0"]]
    assert [wait.code for wait in decisions.waits] == ["kept_for_reservation", "reservation_full"]


def test_a_reservation_is_in_force_from_its_start_until_before_its_end():
    one = reservation(1, "n0", "n1", minutes=60)
    moments = [NOW + timedelta(seconds=seconds) for seconds in (-1, 0, 3599, 3600)]
    assert [one.is_in_force(now) for now in moments] == [False, True, True, False]
    bounds = [bounds_of(R1, "acme/ml", None, [one], now) for now in moments]
    assert bounds == [Bounds(never=("n0", "n1")), Bounds(only=("n0", "n1")), Bounds(only=("n0", "n1")), Bounds()]
    assert bounds_of("", "acme/ml", NOW, [one], NOW) == Bounds(), "a job that ends when it begins"
    assert [longest_inside(one, now) for now in moments] == [3480, 3480, 0, 0]


def test_jobs_that_name_it_run_in_it_and_nowhere_else():
    inside = [runs(30, reservation=R1) for _ in range(3)]
    decisions = decided(fleet(8, 8, 8), [*inside, runs(30)], reservation(1, "n0", "n2"))
    assert placed_on(decisions) == [["n0"], ["n2"], ["n1"]]
    (wait,) = decisions.waits
    assert wait.code == "reservation_full"
    assert wait.message.startswith("in its reservation r1: ")


def test_it_serves_the_tenants_below_it_and_no_other():
    tenants = ("acme/ml", "acme/ml/vision", "acme", "acme/mlx", "globex/a")
    queue = [runs(1, 1, reservation=R1, tenant=tenant) for tenant in tenants]
    decisions = decide(snapshot(fleet(8, owner_path=""), queue, reservations=[reservation(1, "n0")]))
    assert [placed.job_id for placed in decisions.placements] == [one.id for one in queue[:2]]
    assert {wait.code for wait in decisions.waits} == {"reservation_over"}


def test_a_job_waits_for_its_reservation_to_begin():
    (wait,) = decided(fleet(8, 8), [runs(30, reservation=R1)], reservation(1, "n0", starts=30)).waits
    assert (wait.code, wait.message) == ("waiting_for_reservation", "its reservation r1 begins 12:30 UTC on c1")


@pytest.mark.parametrize(("minutes", "placed"), [(57, 1), (58, 1), (59, 0), (60, 0)])
def test_a_job_inside_must_be_over_before_the_end(minutes, placed):
    decisions = decided(fleet(8), [runs(minutes, reservation=R1)], reservation(1, "n0"))
    assert len(decisions.placements) == placed
    assert placed or decisions.waits[0].code == "reservation_too_short"


def test_a_job_without_a_deadline_runs_in_no_reservation():
    (wait,) = decided(fleet(8), [job(pods(1, 1), reservation=R1)], reservation(1, "n0")).waits
    assert wait.message == "it has no deadline_seconds, but its reservation r1 ends 13:00 UTC"


@pytest.mark.parametrize("nth", [0, 60])
def test_a_reservation_that_is_over_keeps_nothing_and_runs_nothing(nth):
    over = reservation(1, "n0", starts=-60, minutes=nth)
    decisions = decided(fleet(8), [runs(600), runs(1, reservation=R1)], over)
    assert placed_on(decisions) == [["n0"]]
    assert decisions.waits[0].code == "reservation_over"


@pytest.mark.parametrize(("minutes", "placed"), [(27, 1), (28, 1), (29, 0), (600, 0)])
def test_before_it_begins_its_nodes_are_for_what_ends_in_time(minutes, placed):
    decisions = decided(fleet(8), [runs(minutes)], reservation(1, "n0", starts=30))
    assert len(decisions.placements) == placed
    assert placed or decisions.waits[0].message == (
        "c1: has room, but it is reserved from 12:30 UTC on; a job whose deadline_seconds ends before that can use it"
    )


@pytest.mark.parametrize(
    ("asked", "reserved", "stays"),
    [
        ({}, [], True),
        ({}, [reservation(1, "n0")], False),
        ({}, [reservation(1, "n1")], True),
        ({}, [reservation(1, "n0", on=2)], True),
        ({}, [reservation(1, "n1"), reservation(2, "n0")], False),
        ({}, [reservation(1, "n0", starts=31)], False),
        ({}, [reservation(1, "n0", starts=33)], True),
        ({"reservation": R1}, [reservation(1, "n0")], True),
        ({"reservation": R1}, [reservation(1, "n0", "n1")], True),
        ({"reservation": R1}, [reservation(1, "n1")], False),
        ({"reservation": R1}, [reservation(1, "n0", on=2)], False),
        ({"reservation": R1}, [reservation(1, "n0", starts=1)], False),
        ({"reservation": R1}, [reservation(1, "n0", minutes=31)], False),
        ({"reservation": R1}, [], False),
    ],
)
def test_a_placement_decided_before_reservations_changed_stays_only_if_it_respects_them(asked, reserved, stays):
    one = runs(30, **asked)
    before = snapshot(fleet(8), [one], reservations=[reservation(1, "n0")] if asked else [])
    (placement,) = decide(before).placements
    assert respects(one, placement, replace(before, reservations=tuple(reserved))) is stays


def test_what_history_or_the_user_expects_is_not_enough():
    hopeful = job(pods(1, 8), estimated_seconds=60)
    assert not decided(fleet(8), [hopeful], reservation(1, "n0", starts=30)).placements


def test_jobs_of_one_shape_are_told_apart_by_their_deadlines():
    queue = [runs(20, 4, shape="s"), runs(40, 4, shape="s"), runs(20, 4, shape="s"), runs(40, 4, shape="s")]
    decisions = decided(fleet(8, 4), queue, reservation(1, "n0", starts=30))
    assert placed_on(decisions) == [["n1"], ["n0"]] or placed_on(decisions) == [["n0"], ["n1"], ["n0"]]


def test_what_one_job_takes_is_gone_for_those_who_see_other_nodes():
    queue = [runs(20, 5), runs(600, 4), runs(20, 4), runs(600, 4), runs(20, 3)]
    decisions = decided(fleet(8, 8), queue, reservation(1, "n1", starts=30))
    used = dict.fromkeys(("n0", "n1"), 0)
    for placed in decisions.placements:
        asked = next(one for one in queue if one.id == placed.job_id)
        used[next(iter(placed.pod_sets[0].nodes))] += asked.pod_sets[0].gpu.count
    assert max(used.values()) <= 8


def test_nodes_that_two_flavors_share_are_reserved_in_both():
    small = flavor(sharing="mig:1g.10gb")
    clusters = [cluster(1, [node("n0", [OF, small], [4, 4])], [OF, small])]
    slices = job(pods(1, 1, mig="1g.10gb"), deadline_seconds=60)
    assert not decided(clusters, [slices, runs(1, 1)], reservation(1, "n0")).placements


def test_room_is_not_kept_for_a_large_job_on_nodes_that_are_reserved_for_later():
    large = job(pods(2, 8), submitted_at=NOW - timedelta(hours=1), deadline_seconds=600)
    releases = (Release(NOW + timedelta(minutes=5), UUID(int=1), OF.name, 8, 0, 0, {"n0": 1}),)
    reserved = reservation(1, "n0", starts=12)
    decisions = decided(fleet(0, 8, 0), [large, runs(1)], reserved, releases=releases)
    assert placed_on(decisions) == []
    assert "n0" not in str(decisions.waits[0].start)


def test_a_cluster_that_is_gone_leaves_a_reservation_without_room():
    (wait,) = decided([uniform(2)], [runs(1, reservation=R1)], reservation(1, "n0")).waits
    assert [reason.code for reason in wait.per_cluster] == ["outside_reservation"]


def test_constraints_hold_inside_a_reservation():
    elsewhere = runs(1, reservation=R1, exclude_clusters=("c1",))
    assert not decided(fleet(8), [elsewhere], reservation(1, "n0")).placements


def test_a_reserved_node_without_room_is_not_the_reason():
    (wait,) = decided(fleet(4, 4), [runs(30, 8)], reservation(1, "n0")).waits
    assert wait.per_cluster[0].code == "not_enough_free"
    (wait,) = decided(fleet(8, 4), [runs(30, 8)], reservation(1, "n0")).waits
    assert wait.per_cluster[0].code == "kept_for_reservation"


def test_a_reservation_is_no_reason_for_a_job_that_its_nodes_could_not_run_either():
    """Though another job with the same devices would have room there."""
    small, large = runs(1), job(pods(1, 8, cpu=200_000), deadline_seconds=60)
    waits = decided(fleet(8), [small, large], reservation(1, "n0")).waits
    reasons = [reason.code for wait in waits for reason in wait.per_cluster]
    assert reasons == ["kept_for_reservation", "not_enough_free"]


def test_quota_holds_inside_a_reservation():
    queue = [runs(1, 4, reservation=R1) for _ in range(2)]
    limited = snapshot(fleet(8), queue, [limit("acme", "gpu", 4000)], reservations=[reservation(1, "n0")])
    decisions = decide(limited)
    assert (len(decisions.placements), decisions.waits[0].code) == (1, "waiting_for_quota")


def test_capacity_counts_what_the_job_may_use():
    reserved = reservation(1, "n0", starts=30)
    asked = snapshot(fleet(8, 8), [], reservations=[reserved])
    assert [capacity(runs(minutes), asked).total for minutes in (20, 60)] == [2, 1]
    early = capacity(runs(20, reservation=R1), asked)
    assert (early.total, early.clusters[0].why_none.code) == (0, "waiting_for_reservation")
    now = replace(asked, reservations=(reservation(1, "n0"),))
    assert capacity(runs(20, 2, reservation=R1), now).total == 4


def test_a_quote_says_what_the_cycle_would():
    asked = snapshot(fleet(8, 8), [], reservations=[reservation(1, "n0", starts=30)])
    assert quote(runs(20, reservation=R1), asked).wait.code == "waiting_for_reservation"
    assert not quote(runs(20, reservation=R1), asked).later
    (offer,) = quote(runs(60), asked).offers
    assert set(offer.placement.pod_sets[0].nodes) == {"n1"}


def test_recorded_reservations_replay():
    given_snapshot = snapshot(fleet(8, 8), [runs(1), runs(9, reservation=R1)], reservations=[reservation(1, "n0")])
    import json  # noqa: PLC0415 - used here alone

    again = snapshot_of(json.loads(snapshot_text(given_snapshot)))
    assert again == given_snapshot
    assert decide(again) == decide(given_snapshot)


arrivals = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, 8), st.integers(1, 30), st.sampled_from([None, 1, 2])), max_size=25
)  # minute of arrival, GPUs, deadline in minutes, the reservation it names


@pytest.mark.law
@examples(30)
@given(arrivals, st.integers(0, 1), st.integers(0, 20), st.integers(3, 15))
def test_whatever_comes_a_reservation_has_all_its_nodes_to_itself_when_it_begins(coming, first, starts, minutes):
    """Runs take as long as their deadline and the turnover let them. A second reservation follows the first on its nodes."""
    own = (f"n{first}", "n2")
    reserved = (
        reservation(1, *own, starts=starts, minutes=minutes),
        reservation(2, *own, starts=starts + minutes, minutes=minutes),
    )
    busy = []  # (end, node, GPUs, reservation)
    waiting = [
        (at, runs(length, units, reservation=str(UUID(int=name)) if name else "")) for at, units, length, name in coming
    ]
    for minute in range(55):
        now = NOW + timedelta(minutes=minute)
        busy = [run for run in busy if run[0] > now]
        for one in reserved:
            if one.is_in_force(now):
                assert all(run[3] == str(one.id) for run in busy if run[1] in one.nodes)
        free = [8 - sum(units for _, at, units, _ in busy if at == f"n{n}") for n in range(3)]
        assert min(free) >= 0
        queue = [one for at, one in waiting if at <= minute]
        given_snapshot = replace(snapshot(fleet(*free), queue, reservations=reserved), now=now)
        decisions = decide(given_snapshot)
        check(given_snapshot, decisions)
        asked = {one.id: one for one in queue}
        for placed in decisions.placements:
            one = asked[placed.job_id]
            end = now + timedelta(seconds=one.deadline_seconds + 120)
            (at,) = placed.pod_sets[0].nodes
            busy.append((end, at, one.pod_sets[0].gpu.count, one.constraints.reservation))
        started = {placed.job_id for placed in decisions.placements}
        waiting = [(at, one) for at, one in waiting if one.id not in started]


def booked(*asked) -> Booking:
    """The nodes that are reserved for what is asked."""
    found = book(*asked)
    assert isinstance(found, Booking), found
    return found


def refused(*asked) -> tuple[Reason, ...]:
    """Why none are."""
    found = book(*asked)
    assert not isinstance(found, Booking), found
    return found


def test_as_few_nodes_as_hold_the_shape_are_booked_on_the_cheapest_cluster():
    clusters = [uniform(1, of=flavor(price="3")), uniform(2, of=flavor(price="2")), uniform(3, owner_path="globex")]
    amounts = {"gpu": 12_000, f"gpu:{H100}": 12_000, "cpu": 6000, "memory": 6 * 1024, "jobs": 6}
    assert book(job(pods(1, 2)), 6, clusters) == Booking(UUID(int=2), "c2", ("c2-n000", "c2-n001"), amounts)
    assert booked(job(pods(1, 2), clusters=("c1",)), 1, clusters).cluster == "c1"


def test_a_cluster_that_holds_only_some_of_it_is_passed_over():
    clusters = [uniform(1, nodes=1, of=flavor(price="1")), uniform(2, nodes=2, of=flavor(price="2"))]
    assert booked(job(pods(1, 8)), 2, clusters).cluster == "c2"


def test_what_cannot_be_booked_says_what_is_missing_on_each_cluster():
    nodes = [node("n0", OF), node("n1", OF, is_usable=False, why_unusable="reserved by another")]
    found = book(job(pods(1, 8)), 2, [cluster(1, nodes, [OF]), uniform(2, state="cordoned"), uniform(3, of=flavor(""))])
    assert found == (
        Reason(
            "c1",
            "not_enough_free",
            "has room for 1 of 2; for the next: needs 8 GPUs on one node; none is free; nodes that cannot be used: 1 reserved by another",
        ),
        Reason("c2", "cordoned", "an administrator has cordoned it: it takes no new jobs"),
        Reason("c3", "no_such_model", "has no GPU", is_for_good=True),
    )


def test_topology_and_policy_hold_for_what_is_booked():
    clusters = [uniform(1, nodes=4, per_rack=2)]
    racked = job(pods(2, 8), level="rack", mode="required")
    assert booked(racked, 1, clusters).nodes == ("c1-n000", "c1-n001")
    assert refused(job(pods(3, 8), level="rack", mode="required"), 1, clusters)[0].code == "topology_not_met"
    elsewhere = Policy((TenantPolicy("acme", clusters=("x*",)),))
    assert refused(racked, 1, clusters, elsewhere)[0].code == "excluded_by_policy"


def test_more_nodes_than_an_object_can_name_are_not_booked():
    assert MOST_NODES == 500, "as docs/reference/errors.md says"
    found = refused(job(pods(1, 8)), MOST_NODES + 1, [uniform(1, nodes=MOST_NODES + 1)])
    assert [reason.code for reason in found] == ["too_many_nodes"]


shapes = st.tuples(st.integers(1, 4), st.integers(1, 8), st.integers(1, 5))


@examples(60)
@given(st.lists(st.booleans(), min_size=1, max_size=6), shapes)
@example(usable=[True] * 3, shape=(3, 1, 5))
def test_what_is_booked_holds_what_was_asked_and_no_node_of_it_is_idle(usable, shape):
    count, units, copies = shape
    nodes = [node(f"n{n}", OF, is_usable=here, why_unusable="" if here else "taken") for n, here in enumerate(usable)]
    clusters = [cluster(1, nodes, [OF])]
    asked = job(pods(count, units, models=[H100]), deadline_seconds=60)
    found = book(asked, copies, clusters)
    per_node = 8 // units
    if not isinstance(found, Booking):
        assert sum(usable) * per_node < count * copies
        return
    reserved = reservation(1, *found.nodes)
    inside = replace(asked, constraints=replace(asked.constraints, reservation=str(reserved.id)))
    queue = [replace(inside, id=UUID(int=n)) for n in range(copies)]
    assert len(decided(clusters, queue, reserved).placements) == copies
    assert all(usable[int(name[1:])] for name in found.nodes)
    assert (len(found.nodes) - 1) * per_node < count * copies


rooms = st.lists(st.integers(0, 8), min_size=1, max_size=7)


@pytest.mark.law
@examples(150)
@given(rooms, st.integers(1, 4), st.integers(1, 3), st.integers(1, 5))
@example(totals=[1, 1, 1, 8], count=1, units=1, copies=3)
@example(totals=[8, 8, 8], count=3, units=1, copies=5)
def test_no_fewer_nodes_hold_what_is_booked(totals, count, units, copies):
    """Counted over nodes of any size: a gang may be split, so the fewest are the roomiest."""
    nodes = [node(f"n{n}", OF, total) for n, total in enumerate(totals)]
    asked = job(pods(count, units))
    places = sorted((total // units for total in totals), reverse=True)
    found = book(asked, copies, [cluster(1, nodes, [OF])])
    if not isinstance(found, Booking):
        assert sum(places) < count * copies
        return
    assert sum(places[: len(found.nodes)]) >= count * copies > sum(places[: len(found.nodes) - 1])


def test_more_nodes_are_booked_where_gangs_must_not_be_split():
    clusters = [uniform(1, nodes=3)]
    assert booked(job(pods(3, 1)), 5, clusters).nodes == ("c1-n000", "c1-n001")
    together = job(pods(3, 1), level="node", mode="required")
    assert len(booked(together, 5, clusters).nodes) == 3
    both = job(pods(3, 1, name="a"), pods(1, 1, name="b"))
    assert len(booked(both, 3, clusters).nodes) == 2


def test_nodes_of_the_cheapest_flavor_are_booked_first_and_as_few_of_each_as_hold_its_copies():
    cheap, dear = flavor(price="1", capacity_type="spot"), flavor(price="2")
    nodes = [*(node(f"s{n}", cheap, 8) for n in range(2)), *(node(f"d{n}", dear, 8) for n in range(3))]
    assert booked(job(pods(3, 1)), 10, [cluster(1, nodes, [cheap, dear])]).nodes == ("d0", "d1", "s0", "s1")
