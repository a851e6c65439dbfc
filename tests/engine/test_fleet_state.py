"""What a cycle believes is left after it has placed something equals a count of what is left."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.fleet.fleet import FleetIndex
from placement.fleet.fleet_state import FleetState
from placement.fleet.pools import PART, UNITS, WHOLE, WIDTH_OF_LEVEL
from placement.fleet.siting import Site, need_of, tightness
from placement.values.decisions import Closure
from placement.values.model import Topology
from tests.laws import examples

from .fleets import A100, H100, NOW, cluster, flavor, node, pods

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
@examples(25)
def test_nodes_are_packed_in_the_order_of_what_is_left_on_them(sharing, wanted):
    state = FleetState(fleet_of(sharing))
    placed(state, wanted)
    for number in range(len(state.fleet.pools)):
        pool = state.pool(number)
        assert pool.tight.tolist() == tightness(pool.free, pool.devices).tolist()


@pytest.mark.parametrize("sharing", SHARINGS)
@given(asked)
@examples(25)
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


RDMA = "rdma/hca"
RESERVED, MAINTENANCE = Closure("kept_for_reservation", "reserved"), Closure("maintenance", "in maintenance")


def shared_nodes():
    """Two nodes of both flavors and one of H100 only, with network cards; pool 0 is of A100, pool 1 of H100."""
    models = [flavor(A100), flavor(H100)]
    both = [node(f"n{n}", models, [2, 4]) for n in range(2)]
    made = [replace(one, resources={RDMA: 8}, free_resources={RDMA: 8}) for one in [*both, node("n2", models[1], 4)]]
    return FleetIndex().fleet([cluster(1, made, models)])


def amounts(state, number, position):
    """Units, cores, GiB, slots for pods, and network cards that are free."""
    units, cpu, memory, slots, *_, cards = state.pool(number).free[:, position].tolist()
    return units, cpu // 1000, memory // 1024, slots, cards


def two_of(units=1, count=1):
    asked_for = replace(pods(count, units, cpu=2000, memory=3 * 1024), resources=((RDMA, 1),))
    return need_of(asked_for, (units, 0), Topology(), resources=(RDMA,))


def on(position, count=1):
    return Site([(position, count)], "node", ())


def test_what_a_pod_takes_is_gone_in_every_pool_of_its_node_but_for_its_own_devices_only_in_one():
    state = FleetState(shared_nodes())
    state.take(1, two_of(2), on(0, 2))
    assert amounts(state, 1, 0) == (0, 124, 1018, 108, 6)
    assert amounts(state, 0, 0) == (2, 124, 1018, 108, 6)
    assert amounts(state, 1, 1) == (4, 128, 1024, 110, 8)
    assert state.versions.tolist() == [1, 1]
    assert state.cluster_versions() == [2]
    assert (state.placed.tolist(), state.pool(0).changes, state.pool(1).changes) == ([1], [0], [0])
    for number in (0, 1):
        pool = state.pool(number)
        assert pool.tight.tolist() == tightness(pool.free, pool.devices).tolist()


def test_a_pool_that_was_not_changed_shares_its_arrays_and_a_copy_has_its_own():
    fleet = shared_nodes()
    state = FleetState(fleet)
    assert state.pool(1).free is fleet.pools[1].free
    assert state.free(1) is fleet.pools[1].free
    assert FleetState(fleet, is_empty=True).free(1) is fleet.pools[1].capacity
    state.take(1, two_of(), on(2))
    other = state.copy()
    other.take(1, two_of(), on(2))
    assert (amounts(state, 1, 2)[0], amounts(other, 1, 2)[0], fleet.pools[1].free[0, 2]) == (3, 2, 4)
    assert (state.versions.tolist(), other.versions.tolist()) == ([0, 1], [0, 2])
    assert (state.placed.tolist(), other.placed.tolist()) == ([1], [2])
    assert (state.pool(1).changes, other.pool(1).changes) == ([2], [2, 2])
    assert state.free_share[1] - other.free_share[1] == pytest.approx(1 / 12)


def test_kept_nodes_have_nothing_free_in_any_pool_until_they_are_lent():
    state, soon, later = FleetState(shared_nodes()), NOW + timedelta(hours=1), NOW + timedelta(hours=2)
    state.hide(1, [0], soon)
    state.hide(1, [2])
    assert [amounts(state, *place) for place in ((1, 0), (0, 0), (1, 2))] == [(0, 0, 0, 0, 0)] * 3
    assert state.versions.tolist() == [1, 2]
    assert state.lendable == {1: {0: soon}, 0: {0: soon}}
    assert state.lend(later) == {}
    lent = state.lend(soon)
    assert lent == {1: {0: soon}, 0: {0: soon}}
    assert state.versions.tolist() == [2, 3]
    assert amounts(state, 1, 0) == (4, 128, 1024, 110, 8)
    assert state.pool(1).bounds[UNITS] == 4
    state.take(1, two_of(), on(0))
    state.take_back(lent)
    assert amounts(state, 1, 0) == (0, 0, 0, 0, 0)
    assert state.lend(soon) == lent
    assert (amounts(state, 1, 0), amounts(state, 0, 0)) == ((3, 126, 1021, 109, 7), (2, 126, 1021, 109, 7))


def test_what_is_taken_on_a_kept_node_is_deducted_from_what_is_kept():
    state = FleetState(shared_nodes())
    state.hide(1, [0])
    state.take(1, two_of(2), on(0, 2))
    for number, units in ((1, 0), (0, 2)):
        pool = state.pool(number)
        assert pool.free[:, 0].tolist() == [0] * 7
        pool.unhide([0])
        assert amounts(state, number, 0) == (units, 124, 1018, 108, 6)


def test_a_closed_node_stays_empty_whatever_is_taken_or_given_there():
    state = FleetState(shared_nodes())
    state.close_cluster(0, MAINTENANCE)
    assert state.closures == {0: MAINTENANCE}
    state.take(1, two_of(), on(0))
    assert {amounts(state, *place) for place in ((0, 0), (0, 1), (1, 0), (1, 1), (1, 2))} == {(0, 0, 0, 0, 0)}
    assert not state.pool(1).may_hold(two_of(5))
    divisible = flavor(sharing="divisible")
    parts = FleetState(FleetIndex().fleet([cluster(1, [node(f"n{n}", divisible, 4) for n in range(2)], [divisible])]))
    parts.close(0, [0])
    assert parts.pool(0).devices.sum(axis=0).tolist() == [0, 4 * WHOLE]
    parts.hide(0, [1])
    assert parts.pool(0).devices.sum() == 0


def test_what_is_given_back_is_at_most_what_the_node_has():
    state = FleetState(shared_nodes())
    state.take(1, two_of(2), on(0, 2))
    pool = state.pool(1)
    pool.bounds = [0] * len(pool.bounds)
    pool.give_back(0, np.array([1, 1000, 1024, 1, 0, 0, 1]))
    assert amounts(state, 1, 0) == (1, 125, 1019, 109, 7)
    assert (pool.bounds[UNITS], pool.bounds[-1]) == (1, 7)
    pool.give_back(0, np.array([9, 10**9, 10**9, 999, 0, 0, 99]))
    assert amounts(state, 1, 0) == (4, 128, 1024, 110, 8)
    assert pool.tight.tolist() == tightness(pool.free, pool.devices).tolist()
    assert pool.free[4, 0] == pool.pool.capacity[4, 0]


def test_kept_nodes_would_give_room_by_kind():
    state = FleetState(shared_nodes())
    pool = state.pool(1)
    assert not pool.had_hidden(two_of(), reserved=True)
    state.reserve(1, {0: RESERVED})
    assert (pool.had_hidden(two_of(4), reserved=True), pool.had_hidden(two_of(4), reserved=False)) == (True, False)
    assert not pool.had_hidden(two_of(5), reserved=True)
    state.hide(1, [2])
    assert pool.had_hidden(two_of(4), reserved=False)
    # A gang may use what is free beside what is kept.
    assert pool.had_hidden(two_of(4, count=2), reserved=False)
    assert not pool.had_hidden(two_of(4, count=3), reserved=False)
    assert pool.had_hidden(two_of(4, count=3), reserved=True)
    assert pool.why_reserved(two_of(4)) == RESERVED
    state.reserve(1, {1: MAINTENANCE})
    pool.take(0, two_of(1), 1)
    assert (pool.why_reserved(two_of(4)), pool.why_reserved(two_of(3))) == (MAINTENANCE, RESERVED)


def test_a_quick_check_counts_devices_and_every_resource():
    pool = FleetState(shared_nodes()).pool(1)
    assert pool.may_hold(two_of(4, count=3))
    assert not pool.may_hold(two_of(4, count=4))
    assert not pool.may_hold(two_of(5))
    assert (pool.unit_room(2), pool.unit_room(3)) == (6, 3)
    assert pool.may_hold(need_of(pods(1, 0, cpu=128_000, memory=1_048_576), (0, 0), Topology()))
    assert not pool.may_hold(need_of(pods(1, 0, cpu=128_001), (0, 0), Topology()))
    assert not pool.may_hold(need_of(pods(1, 0, memory=1_048_577), (0, 0), Topology()))
    cards = replace(pods(1, 0), resources=((RDMA, 9),))
    assert not pool.may_hold(need_of(cards, (0, 0), Topology(), resources=(RDMA,)))
    cards = replace(pods(1, 0), resources=((RDMA, 8),))
    assert pool.may_hold(need_of(cards, (0, 0), Topology(), resources=(RDMA,)))


def test_pod_sets_of_one_job_do_not_take_the_same_room_and_nothing_is_deducted_by_asking():
    state = FleetState(shared_nodes())
    heavy = need_of(pods(1, 1, cpu=100_000), (1, 0), Topology())
    found = state.site([0, 1], [heavy, heavy])
    assert [site.pods for site in found] == [[(0, 1)], [(1, 1)]]
    assert state.site([0, 0, 1], [heavy] * 3)[2].pods == [(2, 1)]
    assert state.site([0, 0, 0], [heavy] * 3) is None
    assert amounts(state, 0, 0) == (2, 128, 1024, 110, 8)


def test_room_that_comes_back_on_shared_devices_leaves_their_parts_in_the_order():
    of = flavor(sharing="divisible")
    pool = FleetState(FleetIndex().fleet([cluster(1, [node("n", of, 2)], [of])])).pool(0)
    pool.take(0, need_of(pods(1, 0, cpu=3000), (0, 300), Topology()), 1)
    pool.give_back(0, np.array([0, 1000, 1024, 1, 0, 0]))
    assert pool.tight.tolist() == tightness(pool.free, pool.devices).tolist()


def test_an_empty_fleet_is_bounded_by_what_nodes_have_and_a_used_one_by_what_is_free():
    of = flavor()
    fleet = FleetIndex().fleet([cluster(1, [node("n", of, 8, 3)], [of])])
    for is_empty, units in ((False, 3), (True, 8)):
        state = FleetState(fleet, is_empty=is_empty)
        assert state.bounds[UNITS].tolist() == [units]
        assert (state.pool(0).bounds[UNITS], state.pool(0).free[UNITS, 0]) == (units, units)
    assert FleetState(fleet).free_share.tolist() == FleetState(fleet).cluster_free.tolist() == [3 / 8]


def test_pods_keep_to_a_clique_only_on_accelerators_of_several_hosts():
    asked_for = pods(2, 1)
    assert need_of(asked_for, (1, 0), Topology()).widest == WIDTH_OF_LEVEL["cluster"]
    for hosts, level in ((1, "cluster"), (2, "clique")):
        assert need_of(asked_for, (1, 0), Topology(), hosts).widest == WIDTH_OF_LEVEL[level]
    assert need_of(pods(2, 0), (0, 0), Topology(), 2).widest == WIDTH_OF_LEVEL["cluster"]


def test_pods_that_no_domain_holds_together_have_the_whole_cluster_as_their_site():
    of = flavor()
    nodes = [node(f"n{n}", of, 4, domain=("z", f"b{n}", f"r{n}")) for n in range(2)]
    state = FleetState(FleetIndex().fleet([cluster(1, nodes, [of])]))
    assert state.pool(0).site(need_of(pods(2, 2), (2, 0), Topology())) == Site(
        [(0, 2)], "node", ("z", "b0", "r0", "n0")
    )
    assert state.pool(0).site(need_of(pods(2, 3), (3, 0), Topology())) == Site([(0, 1), (1, 1)], "zone", ("z",))
    apart = [node(f"n{n}", of, 4, domain=(f"z{n}", "b", "r")) for n in range(2)]
    state = FleetState(FleetIndex().fleet([cluster(1, apart, [of])]))
    assert state.pool(0).site(need_of(pods(2, 3), (3, 0), Topology())) == Site([(0, 1), (1, 1)], "cluster", ())
