"""No job starts that could run into maintenance; until then, and after it, the nodes are anybody's."""

import json
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.answers.quotes import capacity, quote
from placement.answers.recording import snapshot_of, snapshot_text
from placement.cycle.cycle import decide
from placement.cycle.visibility import horizon, respects
from placement.values.advance import TURNOVER
from placement.values.maintenance import STOPPING, nodes_closed
from placement.values.model import Release
from tests.laws import examples

from .checker import check
from .fleets import NOW, cluster, flavor, job, node, pods, reservation, snapshot, uniform, window
from .test_advance import OF, R1, fleet, placed_on, runs


def decided(clusters, queue, *windows, **more):
    given_snapshot = replace(snapshot(clusters, queue, windows=windows), **more)
    decisions = decide(given_snapshot)
    check(given_snapshot, decisions)
    return decisions


@pytest.mark.parametrize("free", [8, 0])
def test_while_a_cluster_is_in_maintenance_nothing_starts_there_whether_it_has_room_or_not(free):
    (wait,) = decided(fleet(free), [runs(1)], window(1)).waits
    assert (wait.code, wait.message) == ("maintenance", "c1: its maintenance lasts until 13:00 UTC")
    assert [reason.code for reason in wait.per_cluster] == ["maintenance"]
    assert not wait.per_cluster[0].is_for_good


@pytest.mark.parametrize("nodes", [(), ("n0",)])
@pytest.mark.parametrize(("minutes", "placed"), [(27, 1), (28, 1), (29, 0), (600, 0)])
def test_before_it_begins_the_nodes_are_for_what_ends_in_time(nodes, minutes, placed):
    decisions = decided(fleet(8), [runs(minutes)], window(1, *nodes, starts=30))
    assert len(decisions.placements) == placed
    what = "has room, but on nodes whose maintenance" if nodes else "its maintenance"
    told = "begins 12:30 UTC; the job could run into it, unless its deadline_seconds ends before"
    assert [wait.message for wait in decisions.waits] == [f"c1: {what} {told}"] * (1 - placed)


def test_a_job_without_a_deadline_could_run_into_every_window_to_come():
    (wait,) = decided(fleet(8), [job(pods(1, 8))], window(1, starts=100_000)).waits
    assert wait.code == "maintenance"


@pytest.mark.parametrize("over", [window(1, starts=-60), window(1, "n0", starts=-90), window(1, on=2)])
def test_a_window_that_has_ended_or_is_of_another_cluster_closes_nothing(over):
    assert placed_on(decided(fleet(8), [runs(600)], over)) == [["n0"]]


def test_maintenance_of_nodes_leaves_the_others():
    decisions = decided(fleet(8, 8, 8), [runs(9) for _ in range(3)], window(1, "n0", "n2"))
    assert placed_on(decisions) == [["n1"]]
    assert {wait.message for wait in decisions.waits} == {
        "c1: has room, but on nodes whose maintenance lasts until 13:00 UTC"
    }


def test_nodes_that_two_flavors_share_are_closed_in_both():
    small = flavor(sharing="mig:1g.10gb")
    clusters = [cluster(1, [node("n0", [OF, small], [4, 4])], [OF, small])]
    slices = job(pods(1, 1, mig="1g.10gb"), deadline_seconds=60)
    for closed in (window(1), window(1, "n0")):
        assert not decided(clusters, [slices, runs(1, 1)], closed).placements


def test_of_several_windows_of_a_node_the_message_names_the_earliest():
    first, second = window(1, "n0", starts=30), window(2, "n0", starts=90)
    for order in ((first, second), (second, first)):
        assert "begins 12:30 UTC" in decided(fleet(8), [runs(600)], *order).waits[0].message
    first, second = window(1, starts=30), window(2, starts=90)
    for order in ((first, second), (second, first)):
        assert "begins 12:30 UTC" in decided(fleet(8), [runs(600)], *order).waits[0].message


def test_a_cluster_that_is_only_full_is_not_called_in_maintenance():
    (wait,) = decided([uniform(1), uniform(2, free=0)], [runs(1)], window(1)).waits
    assert wait.code == "waiting_for_capacity"
    assert [reason.code for reason in wait.per_cluster] == ["maintenance", "not_enough_free"]


def test_what_a_cluster_could_never_run_is_said_rather_than_its_maintenance():
    (wait,) = decided([uniform(1)], [job(pods(1, 9), deadline_seconds=60)], window(1)).waits
    assert [(one.code, one.is_for_good) for one in wait.per_cluster] == [("never_fits", True)]


def test_room_that_is_reserved_is_told_apart_from_room_in_maintenance():
    def told(free):
        reserved = (reservation(1, "n0"),)
        return decided(fleet(*free), [runs(1)], window(2, "n1"), reservations=reserved).waits[0].per_cluster[0].code

    assert [told((8, 0)), told((0, 8))] == ["kept_for_reservation", "maintenance"]


def test_jobs_that_name_a_reservation_are_no_exception():
    queue = [runs(9, reservation=R1), runs(9, reservation=R1)]
    reserved = (reservation(1, "n0", "n1"),)
    decisions = decided(fleet(8, 8, 8), queue, window(2, "n0"), reservations=reserved)
    assert placed_on(decisions) == [["n1"]]
    decisions = decided(fleet(8, 8, 8), queue, window(2, starts=5), reservations=reserved)
    assert placed_on(decisions) == []
    assert {wait.code for wait in decisions.waits} == {"reservation_full"}
    assert "in its reservation r1: c1: its maintenance begins 12:05 UTC" in decisions.waits[0].message


def test_jobs_of_one_shape_are_told_apart_by_their_deadlines():
    queue = [runs(20, 4, shape="s"), runs(40, 4, shape="s"), runs(20, 4, shape="s"), runs(40, 4, shape="s")]
    decisions = decided(fleet(8, 4), queue, window(1, "n0", starts=30))
    assert sorted(map(str, placed_on(decisions))) in (["['n0']", "['n0']", "['n1']"], ["['n0']", "['n1']"])


@pytest.mark.parametrize(
    ("windows", "stays"),
    [
        ([], True),
        ([window(1)], False),
        ([window(1, on=2)], True),
        ([window(1, "n0")], False),
        ([window(1, "n1")], True),
        ([window(1, "n0", on=2)], True),
        ([window(1, "n1"), window(2, "n0")], False),
        ([window(1, starts=31)], False),
        ([window(1, starts=33)], True),
    ],
)
@pytest.mark.parametrize("asked", [{}, {"reservation": R1}])
def test_a_placement_decided_before_windows_changed_stays_only_if_it_respects_them(asked, windows, stays):
    one = runs(30, **asked)
    before = snapshot(fleet(8), [one], reservations=[reservation(1, "n0")] if asked else [])
    (placement,) = decide(before).placements
    assert respects(one, placement, replace(before, windows=tuple(windows))) is stays


def test_a_quote_and_the_count_of_what_fits_say_what_the_cycle_would():
    asked = snapshot(fleet(8, 8), [], windows=[window(1, "n0", starts=30)])
    assert [capacity(runs(minutes), asked).total for minutes in (20, 60)] == [2, 1]
    (offer,) = quote(runs(60), asked).offers
    assert set(offer.placement.pod_sets[0].nodes) == {"n1"}
    closed = replace(asked, windows=(window(1, starts=30),))
    found = capacity(runs(60), closed)
    assert (found.total, found.clusters[0].why_none.code) == (0, "maintenance")
    assert quote(runs(60), closed).wait.code == "maintenance"
    assert not quote(runs(60), closed).later
    assert quote(runs(20), closed).offers


def test_room_is_kept_for_a_large_job_where_maintenance_is_far_and_not_where_it_is_near():
    large = job(pods(2, 8), submitted_at=NOW - timedelta(hours=1), deadline_seconds=600)
    releases = (Release(NOW + timedelta(minutes=5), UUID(int=1), OF.name, 8, 0, 0, {"n0": 1}),)

    def waits(closed):
        return decided(fleet(0, 8), [large, runs(1)], closed, releases=releases)

    far = waits(window(1, starts=600))
    assert far.waits[0].start is not None, "its nodes are kept although maintenance is planned"
    near = waits(window(1, starts=12))
    assert near.waits[0].start is None
    assert placed_on(near) == [["n1"]]


def test_room_that_comes_free_on_a_closed_cluster_is_expected_by_nobody():
    """A large job waits on two clusters; the one with maintenance would have room sooner."""
    large = job(pods(1, 8), submitted_at=NOW - timedelta(hours=1), deadline_seconds=3600)
    clusters = [cluster(n, [node(f"c{n}-n", OF, 8, 0)], [OF]) for n in (1, 2)]
    soon, later = (NOW + timedelta(minutes=minutes) for minutes in (5, 9))
    releases = (
        Release(soon, UUID(int=1), OF.name, 8, 0, 0, {"c1-n": 1}),
        Release(later, UUID(int=2), OF.name, 8, 0, 0, {"c2-n": 1}),
    )
    (wait,) = decided(clusters, [large], window(1, starts=30), releases=releases).waits
    assert (wait.start.cluster, wait.start.at) == ("c2", later)


def test_windows_count_up_to_twice_the_longest_deadline_of_the_queue():
    assert horizon([runs(10), runs(30)], NOW) == NOW + timedelta(minutes=60) + TURNOVER
    assert horizon([runs(10), job(pods(1, 1))], NOW) is None


def test_at_its_release_a_job_may_still_use_nodes_on_which_it_was_placed_in_time():
    late = NOW + TURNOVER - STOPPING
    one = window(1, "n0", "n1", starts=30)
    deadline = 28 * 60
    assert placed_on(decided(fleet(8), [runs(28)], one)) == [["n0"]]
    assert nodes_closed([one], UUID(int=1), deadline, late) == set()
    assert nodes_closed([one], UUID(int=1), deadline, late + timedelta(seconds=1)) == {"n0", "n1"}
    assert nodes_closed([one], UUID(int=2), deadline, late + timedelta(hours=1)) == set()
    assert nodes_closed([one], UUID(int=1), None, NOW) == {"n0", "n1"}
    assert nodes_closed([window(1)], UUID(int=1), None, NOW) == set(), "then it is not released at all"


def test_recorded_windows_replay():
    given_snapshot = snapshot(fleet(8, 8), [runs(1), runs(60)], windows=[window(1, "n0", starts=9), window(2, on=2)])
    again = snapshot_of(json.loads(snapshot_text(given_snapshot)))
    assert again == given_snapshot
    assert decide(again) == decide(given_snapshot)


arrivals = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 8), st.integers(1, 30)), max_size=25)
"""The minute of arrival, GPUs, the deadline in minutes."""
closings = st.lists(
    st.tuples(st.sampled_from([(), ("n0",), ("n1", "n2")]), st.integers(0, 30), st.integers(1, 15)),
    min_size=1,
    max_size=3,
)
"""The nodes, when maintenance starts, how long it takes."""


@pytest.mark.law
@examples(40)
@given(arrivals, closings)
def test_whatever_comes_nothing_runs_on_a_node_while_it_is_in_maintenance(coming, planned):
    """Runs take as long as their deadline and the turnover let them; jobs arrive, and rounds happen, every minute."""
    windows = [
        window(number, *nodes, starts=starts, minutes=minutes)
        for number, (nodes, starts, minutes) in enumerate(planned)
    ]
    busy = []  # (end, node, GPUs)
    waiting = [(at, runs(length, units)) for at, units, length in coming]
    for minute in range(80):
        now = NOW + timedelta(minutes=minute)
        busy = [run for run in busy if run[0] > now]
        for one in windows:
            if one.starts_at <= now < one.until_at:
                assert not [run for run in busy if one.is_whole or run[1] in one.nodes]
        free = [8 - sum(units for _, at, units in busy if at == f"n{n}") for n in range(3)]
        queue = [one for at, one in waiting if at <= minute]
        given_snapshot = replace(snapshot(fleet(*free), queue, windows=windows), now=now)
        decisions = decide(given_snapshot)
        check(given_snapshot, decisions)
        asked = {one.id: one for one in queue}
        for placed in decisions.placements:
            one = asked[placed.job_id]
            (at,) = placed.pod_sets[0].nodes
            busy.append((now + timedelta(seconds=one.deadline_seconds + 120), at, one.pod_sets[0].gpu.count))
        started = {placed.job_id for placed in decisions.placements}
        waiting = [(at, one) for at, one in waiting if one.id not in started]
    later = replace(snapshot(fleet(8, 8, 8), [one for _, one in waiting], windows=windows), now=now)
    assert "maintenance" not in {wait.code for wait in decide(later).waits}, "all windows have ended"
