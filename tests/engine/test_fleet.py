"""What is computed of a fleet once, for all jobs."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import placement.fleet.fleet
from placement.cycle.cycle import decide
from placement.fleet.fleet import FleetIndex

from .fleets import A100, H100, cluster, flavor, job, node, pods, snapshot


def by_flavor(fleet, values):
    return {pool.flavor.name: float(value) for pool, value in zip(fleet.pools, values, strict=True)}


def test_a_pools_part_of_its_cluster_is_by_gpus_and_of_cores_only_where_there_are_none():
    whole, cut, shared, cores = (
        flavor(name="whole"),
        flavor(sharing="mig:1g.10gb", name="cut"),
        flavor(A100, sharing="timeslice:4", name="shared"),
        flavor("", name="cores"),
    )
    nodes = [node("w", whole, 4), node("m", cut, 7), node("s", shared, 12), node("c", cores, 0, cpu=64_000)]
    other = [node("a", flavor("", name="small"), 0, cpu=16_000), node("b", flavor("", name="large"), 0, cpu=48_000)]
    fleet = FleetIndex().fleet(
        [
            cluster(1, nodes, [whole, cut, shared, cores]),
            cluster(2, other, [flavor("", name="small"), flavor("", name="large")]),
        ]
    )
    assert by_flavor(fleet, fleet.part_of_cluster) == {
        "whole": 0.5, "cut": pytest.approx(0.125), "shared": 0.375, "cores": 0, "small": 0.25, "large": 0.75,
    }  # fmt: skip


@pytest.mark.parametrize("sharing", ["whole", "divisible"])
def test_no_cycle_can_change_the_fleet_that_others_read(sharing):
    of = flavor(sharing=sharing)
    (pool,) = FleetIndex().fleet([cluster(1, [node("n", of, 4)], [of])]).pools
    for shared in filter(lambda each: each is not None, (pool.capacity, pool.free, pool.devices)):
        with pytest.raises(ValueError, match="read-only"):
            shared[0, 0] = 7


def test_the_free_share_of_a_pool_is_of_its_units_or_of_its_cores():
    gpus, cores = flavor(H100, name="gpus"), flavor("", name="cores")
    nodes = [node("g", gpus, 8, 2), node("c", cores, 0, cpu=64_000, free_cpu_millicores=48_000)]
    fleet = FleetIndex().fleet([cluster(1, nodes, [gpus, cores])])
    assert by_flavor(fleet, fleet.free_share) == {"gpus": 0.25, "cores": 0.75}
    assert by_flavor(fleet, fleet.size) == {"gpus": 8, "cores": 64_000}


@pytest.mark.parametrize(
    ("fills", "is_spread"), [(("hinted", "hinted"), False), (("spread", "hinted"), True), (("hinted", "spread"), True)]
)
def test_one_cluster_that_spreads_makes_a_fleet_that_has_spreading(fills, is_spread):
    of = flavor()
    clusters = [cluster(n, [node("n", of)], [of], fills=one) for n, one in enumerate(fills, start=1)]
    assert FleetIndex().fleet(clusters).has_spreading is is_spread


def test_two_threads_that_share_an_index_each_get_the_fleet_of_their_own_clusters(monkeypatch):
    of, index = flavor(), FleetIndex()
    old, new = [cluster(1, [node("n", of)], [of])], [cluster(2, [node("n", of)], [of])]
    index.fleet(old)
    is_building, build = threading.Event(), placement.fleet.fleet.fleet_of

    def slowly(*given):
        is_building.set()
        time.sleep(0.2)  # the other thread asks meanwhile
        return build(*given)

    monkeypatch.setattr(placement.fleet.fleet, "fleet_of", slowly)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(index.fleet, new)
        is_building.wait()
        second = threads.submit(index.fleet, new)
    assert [[one.id for one in found.result().clusters] for found in (first, second)] == [[new[0].id]] * 2


@pytest.mark.parametrize(
    ("level", "domains"),
    [
        ("zone", [("z1", "b", "r"), ("z2", "b", "r"), ()]),
        ("block", [("z", "b1", "r"), ("z", "b2", "r"), ("z",)]),
        ("rack", [("z", "b", "r1"), ("z", "b", "r2"), ("z", "b")]),
        ("clique", [("z", "b", "r", "q1"), ("z", "b", "r", "q2"), ("z", "b", "r", "")]),
    ],
)
def test_a_node_of_no_domain_of_a_level_is_in_none_of_them(level, domains):
    of, gang = flavor(), job(pods(2, 8), level=level, mode="required")
    nodes = [node(f"n{n}", of, domain=one[:3], clique="".join(one[3:])) for n, one in enumerate(domains)]
    assert not decide(snapshot([cluster(1, nodes, [of])], [gang])).placements
    beside = node("n3", of, domain=domains[1][:3], clique="".join(domains[1][3:]))
    [placed] = decide(snapshot([cluster(1, [*nodes, beside], [of])], [gang])).placements
    assert placed.pod_sets[0].nodes == {"n1": 1, "n3": 1}
