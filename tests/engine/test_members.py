"""How a cluster's own scheduler picks nodes, in figures that can be worked out by hand."""

from decimal import Decimal

import numpy as np
import pytest

from simulator.members import bestfit_score, pack_score, settle, spread_score
from simulator.values import ClusterPlan, Machine, TraceJob
from simulator.world import Layout, Shelves

GPU = "A100-80GB"


def machine(name, gpus=8, cpu=128_000, memory=1000, model=GPU, pods=110):
    return Machine(name, model, model, gpus, cpu, memory, pods=pods)


def shelves(*machines, before=()):
    """Of one cluster, which comes after another one of the machines `before`."""
    plans = [ClusterPlan("before", tuple(before), {}), ClusterPlan("c", machines, {GPU: Decimal(1)})]
    return Shelves(Layout(plans))


def asks(pods=1, gpus=1, milli=1000, cpu=0, memory=0, models=()):
    return TraceJob("j", 0.0, 60.0, pods, gpus, milli, cpu, memory, models)


ALL = slice(0, 99)


@pytest.mark.parametrize(("taken", "expected"), [(0, (71 + 50) // 2), (1, (42 + 0) // 2)])
def test_spread_scores_the_mean_of_what_is_left_of_cores_and_memory_in_whole_percents(taken, expected):
    found = spread_score(shelves(machine("n", cpu=10_000)), asks(cpu=2900, memory=500), ALL, np.array([taken]))
    assert found.tolist() == [expected]


def test_spread_scores_what_is_left_of_the_node_not_of_what_is_free():
    state = shelves(machine("n", cpu=10_000))
    state.cpu[0], state.memory[0] = 6000, 600
    assert spread_score(state, asks(cpu=1000, memory=100), ALL, np.array([0])).tolist() == [50.0]
    assert spread_score(shelves(machine("n", cpu=0, memory=0)), asks(), ALL, np.array([0])).tolist() == [0.0]


@pytest.mark.parametrize(("taken", "expected"), [(0, 86), (1, 93)])
def test_bestfit_scores_how_little_is_left_of_the_largest_node(taken, expected):
    """100 · (1 - 10/128/2 - 1.5/8/2) = 86.7 with one pod more, and 100 · (1 - 0/128/2 - 1/8/2) = 93.75 with two."""
    state = shelves(machine("n", gpus=2, cpu=20_000))
    assert bestfit_score(state, asks(milli=500, cpu=10_000), ALL, np.array([taken])).tolist() == [expected]


def test_pack_scores_idle_gpus_before_cores():
    state = shelves(machine("n", gpus=4, cpu=8000), machine("m", gpus=2, cpu=9000))
    assert pack_score(state, asks(gpus=2, milli=1000, cpu=3000), ALL, np.array([1, 0])).tolist() == [
        -(2000 * 1e6 + 5),
        -(2000 * 1e6 + 9),
    ]


def test_pods_fill_nodes_one_by_one_and_ties_go_to_the_first():
    three = [machine(name) for name in "abc"]
    assert settle(shelves(*three), asks(4, gpus=4, cpu=10_000), slice(0, 3), "pack") == [0, 0, 1, 1]
    assert settle(shelves(*three), asks(4, gpus=4, cpu=10_000), slice(0, 3), "spread") == [0, 1, 2, 0]
    assert settle(shelves(*three), asks(4, gpus=4, cpu=10_000), slice(0, 3), "bestfit") == [0, 0, 1, 1]


def test_a_gang_is_placed_whole_or_not_at_all():
    two = shelves(machine("a"), machine("b"))
    assert settle(two, asks(2, cpu=10_000), slice(0, 2), "spread") == [0, 1]
    assert len(settle(two, asks(16), slice(0, 2), "spread")) == 16
    assert settle(two, asks(17), slice(0, 2), "spread") is None


def test_nodes_are_numbered_over_all_clusters():
    state = shelves(machine("b"), machine("c"), before=[machine("a")])
    here = slice(1, 3)
    assert settle(state, asks(2, cpu=10_000), here, "spread") == [1, 2]
    assert settle(state, asks(2), here, "spread", allowed=[2]) == [2, 2]
    assert settle(state, asks(1), here, "spread", hinted=[2]) == [2]
    assert settle(state, asks(9), here, "spread", allowed=[2]) is None


def test_hinted_nodes_are_filled_first_in_the_members_own_order():
    four = shelves(*[machine(name) for name in "abcd"])
    assert settle(four, asks(3, gpus=4, cpu=10_000), slice(0, 4), "spread", hinted=[1, 3]) == [1, 3, 1]
    four.take(3, asks())
    assert settle(four, asks(1), slice(0, 4), "pack", hinted=[1, 3]) == [3]
    assert settle(four, asks(5, gpus=4), slice(0, 4), "pack", hinted=[1, 3]) == [3, 1, 1, 0, 0]


@pytest.mark.parametrize(
    ("asked", "room"),
    [
        (asks(gpus=0), 5),
        (asks(gpus=0, cpu=3000), 3),
        (asks(gpus=0, memory=400), 2),
        (asks(gpus=2), 2),
        (asks(gpus=1, milli=400), 5),
        (asks(gpus=1, milli=600), 4),
        (asks(gpus=5), 0),
        (asks(models=("H100-80GB",)), 0),
        (asks(models=("H100-80GB", GPU)), 4),
    ],
)
def test_a_node_has_room_for_what_its_scarcest_resource_allows(asked, room):
    state = shelves(machine("n", gpus=4, cpu=9000, pods=5), machine("down", gpus=4))
    state.is_down[1] = True
    assert state.room(asked, ALL).tolist() == [room, 0]


def test_room_is_never_less_than_none_even_if_more_is_believed_to_be_taken_than_there_is():
    state = shelves(machine("n", gpus=1, cpu=1000, pods=1))
    for _ in range(2):
        state.take(0, asks(cpu=1000), is_believed=True)
    assert state.room(asks(gpus=0, cpu=1000), ALL).tolist() == [0]
    assert state.devices.tolist() == [[0]]


def test_a_part_goes_to_the_tightest_device_that_has_it():
    state = shelves(machine("n", gpus=3))
    state.devices[0] = [1000, 500, 400]
    assert state.take(0, asks(milli=400)) == [2]
    assert state.take(0, asks(milli=400)) == [1]
    assert state.take(0, asks(milli=400)) == [0]
    assert state.devices.tolist() == [[600, 100, 0]]
    assert (state.cpu[0], state.pods[0]) == (128_000, 107)


def test_whole_devices_are_the_first_free_ones_and_all_comes_back():
    state = shelves(machine("n", gpus=4))
    state.take(0, asks(milli=100))
    one = asks(gpus=2, cpu=1000, memory=10)
    taken = state.take(0, one)
    assert taken == [1, 2]
    assert (state.cpu[0], state.memory[0], state.pods[0]) == (127_000, 990, 108)
    assert state.idle(ALL).tolist() == [1.9]
    state.give_back(0, one, taken)
    assert (state.cpu[0], state.memory[0], state.pods[0]) == (128_000, 1000, 109)
    assert state.devices.tolist() == [[900, 1000, 1000, 1000]]
    assert state.take(0, asks(gpus=0, milli=500)) == []


def test_a_layout_numbers_the_nodes_of_all_clusters_and_counts_their_gpus():
    layout = shelves(machine("b", gpus=4), machine("c", gpus=2, model="T4"), before=[machine("a", gpus=1)]).layout
    assert layout.number == {(0, "a"): 0, (1, "b"): 1, (1, "c"): 2}
    assert layout.cluster.tolist() == [0, 1, 1]
    assert (layout.capacity, layout.gpus_of_cluster.tolist(), layout.most_gpus) == (7, [1, 6], 4)
    assert (layout.slice(0), layout.slice(1)) == (slice(0, 1), slice(1, 3))
    assert layout.suiting(("T4",)).tolist() == [False, False, True]
    assert layout.suiting(()).tolist() == [True, True, True]


def test_a_view_of_a_cluster_is_copied_with_all_its_columns():
    state, seen = (shelves(machine("b"), before=[machine("a")]) for _ in range(2))
    for node in (0, 1):
        state.take(node, asks(cpu=1000, memory=10))
        state.is_down[node] = True
    seen.copy_cluster(state, slice(1, 2))
    assert seen.extract(slice(1, 2)).tolist() == state.extract(slice(1, 2)).tolist()
    assert seen.extract(slice(0, 1)).tolist() == [[1000] * 8 + [128_000, 1000, 110, 0]]
    assert state.extract(slice(0, 1)).tolist() == [[0] + [1000] * 7 + [127_000, 990, 109, 1]]
