"""What a cycle believes is left after it has placed something equals a count of what is left."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.fleet.fleet import FleetIndex
from placement.fleet.fleet_state import FleetState
from placement.fleet.pools import PART, UNITS, WHOLE
from placement.fleet.siting import need_of, tightness
from placement.values.model import Topology

from .fleets import A100, H100, cluster, flavor, node, pods

SHARINGS = ("whole", "divisible")
asked = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from([0, 300, 1000]), st.integers(0, 3), st.integers(1, 3)),
    max_size=8,
)
"""(pool, thousandths of a device or 0, devices if 0, pods)."""


def fleet_of(sharing):
    models = [flavor(H100, sharing=sharing), flavor(A100, sharing=sharing), flavor("", price="0.1")]
    nodes = [node(f"h{n}", models[0], 4) for n in range(3)] + [node("a", models[1], 8), node("c", models[2], 0)]
    return FleetIndex().fleet([cluster(1, nodes, models)])


def placed(state, wanted):
    """Places what fits of these, one after the other."""
    for number, part, units, count in wanted:
        has_gpu = state.fleet.pools[number].flavor.gpu_model
        portion = ((0, part) if part else (units, 0)) if has_gpu else (0, 0)
        if part and state.fleet.pools[number].flavor.sharing == "whole":
            portion = (1, 0)
        need = need_of(pods(count, 1, cpu=7000, memory=5000), portion, Topology())
        site = state.pool(number).site(need)
        if site is not None:
            state.take(number, need, site)


@pytest.mark.parametrize("sharing", SHARINGS)
@given(asked)
@settings(max_examples=25, deadline=None)
def test_nodes_are_packed_in_the_order_of_what_is_left_on_them(sharing, wanted):
    state = FleetState(fleet_of(sharing))
    placed(state, wanted)
    for number in range(len(state.fleet.pools)):
        pool = state.pool(number)
        assert pool.tight.tolist() == tightness(pool.free, pool.devices).tolist()


@pytest.mark.parametrize("sharing", SHARINGS)
@given(asked)
@settings(max_examples=25, deadline=None)
def test_the_free_shares_are_those_of_the_devices_that_are_left(sharing, wanted):
    state = FleetState(fleet_of(sharing))
    placed(state, wanted)
    left, sizes = [], []
    for number, pool in enumerate(state.fleet.pools):
        if pool.flavor.gpu_model:
            now = state.pool(number)
            left.append(now.free[UNITS].sum() if now.devices is None else now.devices.sum() / WHOLE)
            sizes.append(pool.size)
            assert state.free_share[number] == pytest.approx(left[-1] / sizes[-1])
    assert state.cluster_free.tolist() == [pytest.approx(sum(left) / sum(sizes))]


def test_of_a_device_that_is_taken_whole_nothing_is_left():
    of = flavor(sharing="divisible")
    pool = FleetState(FleetIndex().fleet([cluster(1, [node("n", of, 4)], [of])])).pool(0)
    pool.take(0, need_of(pods(1, 3), (3, 0), Topology()), 1)
    assert pool.devices[:, 0].tolist() == [0, 0, 0, WHOLE]
    pool.take(0, need_of(pods(1, 1), (1, 0), Topology()), 1)
    assert pool.devices[:, 0].tolist() == [0, 0, 0, 0]
    assert pool.free[[UNITS, PART], 0].tolist() == [0, 0]
