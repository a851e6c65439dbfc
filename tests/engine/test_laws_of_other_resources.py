"""Laws of random fleets whose nodes have other resources and GPUs that differ: a job is placed exactly if it fits."""

from dataclasses import replace
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters.engine.gpu_facts import NO_FACTS
from placement.cycle.cycle import Cycle
from placement.fleet.fleet import FleetIndex
from placement.ranking.feasibility import never_fits
from placement.values.decisions import Placement
from placement.values.gpu_needs import GpuNeeds, lack_of
from tests.laws import among, examples

from .fleets import cluster, flavor, job, node, snapshot
from .other_resources_worlds import NEW, OLD, PAGES, RDMA, H, asking, with_others


class Random(NamedTuple):
    clusters: list
    jobs: list


FACTS = (NO_FACTS, OLD, NEW, replace(NEW, driver=(550, 53)), replace(NEW, driver=()), replace(OLD, memory_mib=0))
NEEDS = (
    None, None, GpuNeeds(driver=(550,)), GpuNeeds(driver=(550, 54)), GpuNeeds(memory_mib=65536),
    GpuNeeds(architectures=("hopper", "ampere")), GpuNeeds(compute=(9, 0), cuda=(12,)),
)  # fmt: skip


MIG = flavor(sharing="mig:1g.10gb")
devices = st.sampled_from([(H, 4), (MIG, 4), ([H, MIG], [2, 2])])
asked_devices = st.sampled_from([{"gpus": 1}, {"gpus": 2}, {"mig": "1g.10gb"}, {"gpus": 0}])


@st.composite
def random_fleets(draw):
    clusters = []
    for number in range(1, draw(st.integers(1, 2)) + 1):
        nodes = []
        for n in range(draw(st.integers(1, 4))):
            of, total = draw(devices)
            made = node(f"c{number}-n{n}", of, total, cpu=draw(among(3000, 8000)))
            most = {"rdma": draw(st.integers(0, 3)), "pages": 1024 * draw(st.integers(0, 2))}
            nodes.append(with_others(made, draw(among(*FACTS)), **{k: v for k, v in most.items() if v}))
        clusters.append(cluster(number, nodes, [H, MIG]))
    jobs = [
        job(
            asking(
                *draw(among((), ((RDMA, 1),), ((RDMA, 2),), ((PAGES, 1024),), ((RDMA, 1), (PAGES, 2048)))),
                needs=draw(among(*NEEDS)),
                count=draw(st.integers(1, 4)),
                **draw(asked_devices),
            ),
            strategy=draw(among("balanced", "pack", "spread", "cheapest")),
        )
        for _ in range(draw(st.integers(1, 5)))
    ]
    return Random(clusters, jobs)


def units_in(pod_set, name):
    """What a pod takes of a flavor of these fleets; None if it does not serve it."""
    if pod_set.gpu is None:
        return 0
    is_sliced = "mig" in name
    return pod_set.gpu.count if bool(pod_set.gpu.mig) == is_sliced else None


class Left:
    """What is left on every node, by nothing but adding up."""

    def __init__(self, clusters):
        self.nodes = {one.name: (one, dict(one.free), one.free_cpu_millicores, dict(one.free_resources))
                      for each in clusters for one in each.nodes}  # fmt: skip
        self.by_cluster = {each.name: [one.name for one in each.nodes] for each in clusters}

    def room(self, name, kind, pod_set):
        made, free, cpu, others = self.nodes[name]
        units = units_in(pod_set, kind)
        if kind not in made.total or units is None:
            return 0
        if pod_set.gpu and pod_set.gpu.needs and lack_of(pod_set.gpu.needs, made.gpu_facts.get(kind, NO_FACTS)):
            return 0
        bounds = [cpu // pod_set.cpu_millicores, *(others.get(what, 0) // amount for what, amount in pod_set.resources)]
        return min([*bounds, free[kind] // units] if units else bounds)

    def holds(self, pod_set):
        kinds = ("H100-80GB-whole-on_demand", "H100-80GB-mig:1g.10gb-on_demand")
        return any(
            sum(self.room(name, kind, pod_set) for name in names) >= pod_set.count
            for names in self.by_cluster.values()
            for kind in kinds
        )

    def take(self, pod_set, placed):
        for name, count in placed.nodes.items():
            assert self.room(name, placed.flavor, pod_set) >= count
            made, free, cpu, others = self.nodes[name]
            free[placed.flavor] -= units_in(pod_set, placed.flavor) * count
            for what, amount in pod_set.resources:
                others[what] -= amount * count
            self.nodes[name] = made, free, cpu - pod_set.cpu_millicores * count, others


@pytest.mark.law
@examples(120)
@given(random_fleets())
def test_a_job_is_placed_exactly_if_adding_up_says_that_it_fits(made):
    left = Left(made.clusters)
    cycle = Cycle(snapshot(made.clusters, made.jobs), FleetIndex())
    for asked in made.jobs:
        [pod_set] = asked.pod_sets
        fits = left.holds(pod_set)
        decided = cycle.consider(asked)
        assert isinstance(decided, Placement) is fits, decided
        if isinstance(decided, Placement):
            left.take(pod_set, decided.pod_sets[0])
        for name in left.nodes:
            assert min(left.nodes[name][3].values(), default=0) >= 0


@pytest.mark.law
@examples(80)
@given(random_fleets())
def test_a_job_never_fits_exactly_if_the_empty_fleet_does_not_hold_it(made):
    for asked in made.jobs:
        [pod_set] = asked.pod_sets
        assert (never_fits(asked, made.clusters) is None) is Left(made.clusters).holds(pod_set)
