"""Jobs get the other resources that they request, on nodes whose GPUs are known to be what they need, and no more than
nodes have.
"""

from dataclasses import replace
from datetime import timedelta
from typing import NamedTuple
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters.engine.gpu_facts import NO_FACTS, GpuFacts
from placement.answers.quotes import quote
from placement.answers.recording import plain, read
from placement.cycle.cycle import Cycle, decide
from placement.fleet.fleet import FleetIndex, fleet_of
from placement.fleet.fleet_state import FleetState
from placement.fleet.pools import RESOURCES
from placement.fleet.siting import need_of
from placement.ranking.feasibility import never_fits
from placement.values.decisions import Placement
from placement.values.gpu_needs import GpuNeeds, lack_of
from placement.values.model import Release, Snapshot, Topology
from placement.values.nodes import NodeResources, fleet_node
from tests.laws import examples

from .fleets import NOW, cluster, flavor, job, node, pods, snapshot

RDMA, PAGES = "rdma/hca", "hugepages-1Gi"
OLD = GpuFacts(40960, "ampere", (8, 0), (535, 54, 3), (12, 2))
NEW = GpuFacts(81559, "hopper", (9, 0), (550, 54, 15), (12, 4))


def with_others(made, facts=NO_FACTS, **others):
    named = {{"rdma": RDMA, "pages": PAGES}[key]: amount for key, amount in others.items()}
    told = {} if facts == NO_FACTS else dict.fromkeys(made.total, facts)
    return replace(made, resources=named, free_resources=named, gpu_facts=told)


def asking(*resources, needs=None, **more):
    made = pods(**more)
    gpu = made.gpu and replace(made.gpu, needs=needs)
    return replace(made, resources=tuple(sorted(resources)), gpu=gpu)


def outcome(*jobs, clusters, **more):
    return decide(snapshot(clusters, jobs, **more))


def why(decisions):
    [wait] = decisions.waits
    return wait.per_cluster[0].code, wait.per_cluster[0].message


H = flavor()


def test_a_fleet_without_other_resources_has_the_usual_rows():
    fleet = fleet_of([cluster(1, [node("n1", H)], [H])])
    assert fleet.resources == ()
    assert [pool.free.shape[0] for pool in fleet.pools] == [len(RESOURCES)]


def test_pods_go_to_the_node_that_has_the_resource():
    nodes = [node("n1", H), with_others(node("n2", H), rdma=1), node("n3", H)]
    decisions = outcome(job(asking((RDMA, 1))), clusters=[cluster(1, nodes, [H])])
    assert decisions.placements[0].pod_sets[0].nodes == {"n2": 1}


def test_a_resource_is_used_up_by_earlier_jobs_of_the_cycle():
    nodes = [with_others(node("n1", H), rdma=2)]
    first, second, third = (job(asking((RDMA, 1))) for _ in range(3))
    decisions = outcome(first, second, third, clusters=[cluster(1, nodes, [H])])
    assert [placed.job_id for placed in decisions.placements] == [first.id, second.id]
    assert why(decisions) == ("not_enough_free", "needs 1 rdma/hca with 1 GPU on one node; at most 0 is free there")


def test_a_resource_is_shared_by_the_flavors_of_a_node():
    mig = flavor(sharing="mig:1g.10gb")
    nodes = [with_others(node("n1", [H, mig], [4, 4]), rdma=1)]
    whole, part = job(asking((RDMA, 1))), job(asking((RDMA, 1), mig="1g.10gb"))
    decisions = outcome(whole, part, clusters=[cluster(1, nodes, [H, mig])])
    assert [placed.job_id for placed in decisions.placements] == [whole.id]


def test_the_pod_sets_of_a_job_share_a_nodes_resource():
    nodes = [with_others(node("n1", H), rdma=1), with_others(node("n2", H), rdma=1)]
    gang = job(asking((RDMA, 1), name="a"), asking((RDMA, 1), name="b"))
    placed = outcome(gang, clusters=[cluster(1, nodes, [H])]).placements[0]
    assert {name for one in placed.pod_sets for name in one.nodes} == {"n1", "n2"}
    decisions = outcome(
        job(asking((RDMA, 1), name="a"), asking((RDMA, 2), name="b")), clusters=[cluster(1, nodes, [H])]
    )
    assert not decisions.placements


def test_a_gang_counts_what_each_node_has_of_the_resource():
    nodes = [with_others(node(f"n{n}", H), pages=4096) for n in range(3)]
    placed = outcome(job(asking((PAGES, 2048), count=6)), clusters=[cluster(1, nodes, [H])]).placements[0]
    assert placed.pod_sets[0].nodes == {"n0": 2, "n1": 2, "n2": 2}
    decisions = outcome(job(asking((PAGES, 2048), count=7)), clusters=[cluster(1, nodes, [H])])
    assert why(decisions)[1] == "needs 7 pods of 1 GPU at the same time; there is room for 6"


def test_a_job_that_asks_for_what_no_node_has_never_fits():
    bare = cluster(1, [node("n1", H)], [H])
    [reason] = never_fits(job(asking((RDMA, 1))), [bare])
    assert (reason.code, reason.message, reason.is_for_good) == ("no_such_resource", "no node has rdma/hca", True)
    some = cluster(1, [with_others(node("n1", H), pages=2048)], [H])
    [reason] = never_fits(job(asking((PAGES, 3072))), [some])
    assert reason.message == "needs 3Gi of hugepages-1Gi on one node; the largest has 2Gi"
    assert never_fits(job(asking((PAGES, 2048))), [some]) is None


def test_a_node_shows_what_others_leave_and_never_less_than_nothing():
    made = fleet_node(
        "n", NodeResources(others={RDMA: 2, PAGES: 4}), NodeResources(others={RDMA: 1}), NodeResources(others={RDMA: 9, "x/y": 1}),
        domain=(),
    )  # fmt: skip
    assert made.resources == {RDMA: 2, PAGES: 4}
    assert made.free_resources == {RDMA: 0, PAGES: 4}


def test_arrays_are_built_again_only_when_the_fleet_has_other_resources():
    index = FleetIndex()
    one, other = cluster(1, [node("n1", H)], [H]), cluster(2, [node("n2", H)], [H])
    before = index.fleet([one, other])
    assert index.fleet([one, other]) is before
    grown = cluster(2, [with_others(node("n2", H), rdma=1)], [H])
    after = index.fleet([one, grown])
    assert after.resources == (RDMA,)
    assert {pool.free.shape[0] for pool in after.pools} == {len(RESOURCES) + 1}
    again = index.fleet([one, cluster(2, [with_others(node("n3", H), rdma=1)], [H])])
    assert again.pools[0] is after.pools[0]
    shrunk = index.fleet([one])
    assert shrunk.resources == ()
    assert [pool.free.shape[0] for pool in shrunk.pools] == [len(RESOURCES)]


def test_a_run_gives_its_resources_back_when_it_ends():
    used = replace(with_others(node("n1", H), rdma=1), free_resources={RDMA: 0})
    waiting = job(asking((RDMA, 1)), submitted_at=NOW.replace(hour=1), estimated_seconds=600)
    end = NOW.replace(hour=13)
    release = Release(end, cluster(1, [], []).id, H.name, 1, 1000, 1024, {"n1": 1}, ((RDMA, 1), ("gone/thing", 1)))
    asked = replace(snapshot([cluster(1, [used], [H])], [waiting]), releases=(release,))
    [wait] = decide(asked).waits
    assert wait.start is not None
    assert wait.start.at == end


def test_nothing_is_given_back_beyond_what_a_node_has():
    state = FleetState(fleet_of([cluster(1, [with_others(node("n1", H), rdma=2)], [H])])).pool(0)
    state.give_back(0, np.full(len(RESOURCES) + 1, 5))
    assert state.free[-1, 0] == 2


def need_on(made, pod_set, number=0):
    fleet = fleet_of([made])
    units, parts = fleet.serving(pod_set.gpu)
    portion = (int(units[number]), int(parts[number]))
    admitted = fleet.admitted(number, pod_set.gpu)
    return FleetState(fleet).pool(number), need_of(pod_set, portion, Topology(), 1, fleet.resources, admitted)


def test_what_jobs_take_of_kept_nodes_is_missing_when_these_are_free_again():
    made = cluster(1, [with_others(node("n1", H), rdma=3, pages=2048)], [H])
    state, need = need_on(made, asking((RDMA, 1), (PAGES, 1024)))
    state.hide([0])
    assert state.free[:, 0].tolist() == [0] * (len(RESOURCES) + 2)
    state.take(0, need, 2)
    state.unhide([0])
    assert state.free[len(RESOURCES) :, 0].tolist() == [0, 1]
    assert state.site(need) is None
    assert not state.may_hold(need)


def test_kept_nodes_count_only_if_their_gpus_are_good_enough():
    made = cluster(1, [with_others(node("n1", H), OLD), with_others(node("n2", H), NEW), node("n3", H)], [H])
    for count, gpus in ((1, 1), (2, 1)):
        state, need = need_on(made, asking(needs=GpuNeeds(driver=(550,)), count=count, gpus=gpus))
        state.hide([0, 2])
        assert not state.had_hidden(need, reserved=False) or count == 2
        state, need = need_on(made, asking(needs=GpuNeeds(driver=(550,)), count=count, gpus=8))
        state.hide([2, 0, 1])
        assert state.had_hidden(need, reserved=False) is (count == 1)


@pytest.mark.parametrize("others", [[], [replace(pods(gpus=0), name="driver")]])
def test_each_cluster_is_searched_for_nodes_of_its_own_that_are_good_enough(others):
    full = cluster(1, [with_others(node("a", H), OLD), with_others(node("b", H, free=0), NEW)], [H])
    free = cluster(2, [with_others(node("a", H), NEW), with_others(node("b", H), OLD)], [H])
    asked = job(asking(needs=GpuNeeds(driver=(550,)), gpus=1), *others)
    [placed] = outcome(asked, clusters=[full, free]).placements
    assert (placed.cluster, set(placed.pod_sets[0].nodes)) == ("c2", {"a"})


def test_a_waiting_gang_has_only_nodes_kept_that_are_good_enough():
    nodes = [with_others(node(f"n{n}", H, free=8 if n < 2 else 4), OLD if n < 2 else NEW) for n in range(4)]
    gang = job(asking(needs=GpuNeeds(driver=(550,)), gpus=8, count=2), submitted_at=NOW.replace(hour=1))
    later = job(asking(gpus=1), strategy="pack")
    decisions = outcome(gang, later, clusters=[cluster(1, nodes, [H])])
    [wait] = decisions.waits
    assert "are kept for it" in wait.message
    assert set(decisions.placements[0].pod_sets[0].nodes) <= {"n0", "n1"}


def test_gpus_must_be_known_to_be_what_the_job_needs():
    nodes = [node("n1", H), with_others(node("n2", H), OLD), with_others(node("n3", H), NEW)]
    made = cluster(1, nodes, [H])
    for needs in (
        GpuNeeds(driver=(550,)), GpuNeeds(cuda=(12, 4)), GpuNeeds(compute=(8, 9)), GpuNeeds(memory_mib=49152),
        GpuNeeds(architectures=("hopper",)),
    ):  # fmt: skip
        placed = outcome(job(asking(needs=needs, gpus=8)), clusters=[made]).placements[0]
        assert placed.pod_sets[0].nodes == {"n3": 1}
        decisions = outcome(job(asking(needs=needs, gpus=8, count=2)), clusters=[made])
        assert not decisions.placements
    placed = outcome(job(asking(gpus=8, count=3)), clusters=[made]).placements[0]
    assert set(placed.pod_sets[0].nodes) == {"n1", "n2", "n3"}


@pytest.mark.parametrize(
    ("needs", "code", "message"),
    [
        (GpuNeeds(driver=(560,)), "gpu_driver_too_old", "has GPU, but driver 550.54.15 is older than 560"),
        (GpuNeeds(cuda=(13,)), "gpu_cuda_too_old", "has GPU, but CUDA 12.4 is older than 13"),
        (GpuNeeds(compute=(10, 0)), "gpu_compute_too_low", "has GPU, but compute capability 9.0 is lower than 10.0"),
        (GpuNeeds(memory_mib=90 * 1024), "gpu_memory_too_small", "has GPU, but 79.6 GiB of memory is less than 90 GiB"),
        (
            GpuNeeds(architectures=("ampere",)),
            "gpu_architecture_excluded",
            "has GPU, but architecture hopper is not ampere",
        ),
    ],
)
def test_a_reason_names_the_need_that_is_not_met(needs, code, message):
    made = cluster(1, [with_others(node(f"n{n}", H), NEW) for n in range(2)], [H])
    assert why(outcome(job(asking(needs=needs)), clusters=[made])) == (code, message)
    [reason] = never_fits(job(asking(needs=needs)), [made])
    assert (reason.code, reason.is_for_good) == (code, True)


def test_a_reason_counts_the_nodes_that_differ():
    nodes = [with_others(node(f"n{n}", H), OLD) for n in range(3)] + [node("n9", H)]
    decisions = outcome(job(asking(needs=GpuNeeds(driver=(550,)))), clusters=[cluster(1, nodes, [H])])
    assert why(decisions) == (
        "gpu_driver_too_old",
        (
            "has GPU, but driver 535.54.3 is older than 550 (3 nodes), "
            "nothing reports the driver version, and the job needs at least 550 (1 node)"
        ),
    )


def test_a_reason_names_nodes_that_are_not_good_enough_beside_those_that_are_full():
    nodes = [with_others(node("n1", H, free=0), NEW), with_others(node("n2", H), OLD)]
    decisions = outcome(job(asking(needs=GpuNeeds(driver=(550,)))), clusters=[cluster(1, nodes, [H])])
    code, message = why(decisions)
    assert code == "not_enough_free"
    assert message.endswith("; nodes that cannot be used: 1 because driver 535.54.3 is older than 550")


def test_needs_are_recorded_with_a_snapshot():
    asked = snapshot(
        [cluster(1, [with_others(node("n1", H), NEW, rdma=2)], [H])],
        [job(asking((RDMA, 1), needs=GpuNeeds(driver=(550, 54))))],
    )
    again = read(Snapshot, plain(asked), "snapshot")
    assert again.queue == asked.queue
    assert decide(again) == decide(asked)


class Random(NamedTuple):
    clusters: list
    jobs: list


FACTS = (NO_FACTS, OLD, NEW, replace(NEW, driver=(550, 53)), replace(NEW, driver=()), replace(OLD, memory_mib=0))
NEEDS = (
    None, None, GpuNeeds(driver=(550,)), GpuNeeds(driver=(550, 54)), GpuNeeds(memory_mib=65536),
    GpuNeeds(architectures=("hopper", "ampere")), GpuNeeds(compute=(9, 0), cuda=(12,)),
)  # fmt: skip


@st.composite
def random_fleets(draw):
    mig = flavor(sharing="mig:1g.10gb")
    clusters = []
    for number in range(1, draw(st.integers(1, 2)) + 1):
        nodes = []
        for n in range(draw(st.integers(1, 4))):
            of, total = draw(st.sampled_from([(H, 4), (mig, 4), ([H, mig], [2, 2])]))
            made = node(f"c{number}-n{n}", of, total, cpu=draw(st.sampled_from([3000, 8000])))
            most = {"rdma": draw(st.integers(0, 3)), "pages": 1024 * draw(st.integers(0, 2))}
            nodes.append(with_others(made, draw(st.sampled_from(FACTS)), **{k: v for k, v in most.items() if v}))
        clusters.append(cluster(number, nodes, [H, mig]))
    jobs = [
        job(
            asking(
                *draw(st.sampled_from([(), ((RDMA, 1),), ((RDMA, 2),), ((PAGES, 1024),), ((RDMA, 1), (PAGES, 2048))])),
                needs=draw(st.sampled_from(NEEDS)),
                count=draw(st.integers(1, 4)),
                **draw(st.sampled_from([{"gpus": 1}, {"gpus": 2}, {"mig": "1g.10gb"}, {"gpus": 0}])),
            ),
            strategy=draw(st.sampled_from(["balanced", "pack", "spread", "cheapest"])),
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


def test_a_run_that_ends_gives_back_each_of_its_other_resources():
    made = replace(with_others(node("n1", H), rdma=1, pages=2048), free_resources={RDMA: 0, PAGES: 2048})
    release = Release(NOW + timedelta(minutes=10), UUID(int=1), H.name, 1, 1000, 1024, {"n1": 1}, ((RDMA, 1),))
    known = replace(snapshot([cluster(1, [made], [H])], []), releases=(release,))
    found = quote(job(asking((RDMA, 1))), known)
    assert (found.offers, [(one.placement.cluster, one.expected_start) for one in found.later]) == (
        (),
        [("c1", release.at)],
    )


def test_parts_of_gpus_that_are_not_good_enough_do_not_count_as_room():
    divisible = flavor(sharing="divisible")
    nodes = [with_others(node(f"n{n}", divisible, total=2), facts) for n, facts in enumerate((OLD, NEW, OLD))]
    asked = job(asking(needs=GpuNeeds(driver=(550,)), fraction=500, gpus=0, count=5))
    decisions = outcome(asked, clusters=[cluster(1, nodes, [divisible])])
    assert "needs 5 pods of 0.5 of a time-sliced GPU at the same time; there is room for 4;" in why(decisions)[1]
