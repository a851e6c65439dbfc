"""Strategies do what their page says."""

from pathlib import Path

import numpy as np
import pytest

from placement.cycle.cycle import decide
from placement.fleet.fleet import FleetIndex
from placement.fleet.fleet_state import FleetState
from placement.fleet.siting import need_of
from placement.ranking.fragmentation import Fragmentation, typical_of
from placement.ranking.landing import devices_after
from placement.ranking.leftovers import STEPS, usual_waste
from placement.values.model import Topology
from placement.values.strategies import STRATEGIES

from .fleets import A100, H100, cluster, flavor, job, node, pods, snapshot, uniform

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "strategies.md"


def chosen(strategy, fleet, *asked):
    (placement,) = decide(snapshot(fleet, [job(*asked, strategy=strategy)])).placements
    return placement.cluster


def test_the_page_has_the_weights_of_every_strategy():
    rows = [line.strip("|").split("|") for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    documented = {cells[0].strip(" `"): tuple(float(cell.strip() or 0) for cell in cells[1:6]) for cells in rows}
    assert documented == {
        name: (weights.price, weights.free, weights.cluster_free, weights.stranding, weights.carbon)
        for name, weights in STRATEGIES.items()
    }


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [("cheapest", "c1"), ("balanced", "c2"), ("pack", "c3"), ("spread", "c1"), ("soonest", "c1")],
)
def test_price_and_fullness_are_weighed(strategy, expected):
    """c1 is cheapest and empty, c2 is a little dearer and half full, c3 is dear and fullest."""
    fleet = [
        uniform(1, of=flavor(price="1.00")),
        uniform(2, free=4, of=flavor(price="1.05")),
        uniform(3, free=1, of=flavor(price="5.00")),
    ]
    assert chosen(strategy, fleet, pods(1, 1)) == expected


def test_packing_keeps_cores_for_the_devices_that_need_them():
    """A pod that takes many cores goes where cores are plenty, though the other node is fuller."""
    of = flavor()
    poor = cluster(1, [node("poor", of, 8, 4, free_cpu_millicores=40_000)], [of])
    rich = cluster(2, [node("rich", of, 8, 6, free_cpu_millicores=128_000)], [of])
    asked = pods(1, 1, cpu=30_000)
    usual = [job(pods(1, 1, cpu=10_000), id=None) for _ in range(9)]
    decisions = decide(snapshot([poor, rich], [job(asked, strategy="pack"), *usual]))
    assert decisions.placements[0].cluster == "c2"


def test_packing_leaves_the_model_that_others_name_to_them():
    fleet = [uniform(1, 1, flavor(H100)), uniform(2, 1, flavor(A100))]
    queue = [job(pods(1, 2), strategy="pack"), job(pods(2, 2), strategy="pack"), job(pods(1, 8, models=[H100]))]
    assert [placement.cluster for placement in decide(snapshot(fleet, queue)).placements] == ["c2", "c2", "c1"]


def test_packing_breaks_no_idle_node_for_a_gang_that_fits_elsewhere():
    of = flavor()
    idle = cluster(1, [node("idle", of, 8, 8), node("full", of, 8, 0)], [of])
    begun = cluster(2, [node("a", of, 8, 4), node("b", of, 8, 4)], [of])
    assert chosen("pack", [idle, begun], pods(2, 2)) == "c2"


@pytest.mark.parametrize("portion", [(0, 300), (1, 0)])
def test_a_gang_is_foreseen_as_it_is_taken(portion):
    of = flavor(sharing="divisible")
    free = (1000, 700, 650, 1000, 1000)
    fleet = FleetIndex().fleet([cluster(1, [node(n, of, 5, 3, device_free_milli={of.name: free}) for n in "ab"], [of])])
    state = FleetState(fleet).pool(0)
    need = need_of(pods(3, 1), portion, Topology())
    foreseen = devices_after(state.devices, need, np.array([2, 1]))
    state.take(0, need, 2)
    state.take(1, need, 1)
    assert foreseen.tolist() == state.devices.tolist()


def test_packing_leaves_whole_devices_whole():
    of = flavor(sharing="divisible")
    cut = node("cut", of, 2, 1, device_free_milli={of.name: (1000, 500)})
    whole = node("whole", of, 2, 2, device_free_milli={of.name: (1000, 1000)})
    (placement,) = decide(
        snapshot([cluster(1, [whole], [of]), cluster(2, [cut], [of])], [job(pods(1, 1, fraction=500), strategy="pack")])
    ).placements
    assert placement.cluster == "c2"
    assert placement.amounts["gpu"] == 500


def test_parts_never_span_devices():
    of = flavor(sharing="divisible")
    fleet = [cluster(1, [node("n", of, 2, 0, device_free_milli={of.name: (600, 600)})], [of])]
    decisions = decide(snapshot(fleet, [job(pods(1, 1, fraction=700)), job(pods(1, 1)), job(pods(2, 1, fraction=600))]))
    assert len(decisions.placements) == 1
    assert decisions.placements[0].pod_sets[0].nodes == {"n": 2}


def test_an_idle_device_without_cores_is_stranded():
    of = flavor()
    fleet = FleetIndex().fleet([cluster(1, [node("n", of, 8, 8)], [of])])
    meter = Fragmentation(fleet, typical_of([job(pods(1, 1, cpu=10_000))]))
    units, cpu = fleet.pools[0].free[:1, 0], fleet.pools[0].free[1:2, 0]
    assert meter.stranded(0, units, None, cpu) == 0
    assert meter.stranded(0, units, None, cpu - 88_000) == 4
    assert meter.stranded(0, units, None, cpu * 0) == 16, "no pod fits, and no core feeds them"


def test_leftovers_are_worth_what_comes_to_fill_them():
    waste = usual_waste(((50, 1, 1),))
    assert waste[STEPS] == 0
    assert waste[50] == 0
    assert waste[49] == 49
    assert waste[99] > 40


def test_a_spreading_cluster_is_foreseen():
    of = flavor()
    nodes = [node("tight", of, 8, 1), node("loose", of, 8, 8)]
    for fills, expected in (("hinted", "tight"), ("spread", "loose")):
        nodes[0] = node("tight", of, 8, 1, free_cpu_millicores=64_000)
        (placement,) = decide(snapshot([cluster(1, nodes, [of], fills=fills)], [job(pods(1, 1))])).placements
        assert list(placement.pod_sets[0].nodes) == [expected]
