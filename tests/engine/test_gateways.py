"""What the engine is shown of a replay's fleet, and how the plain rules choose."""

from dataclasses import replace
from decimal import Decimal
from uuid import UUID

import pytest

from simulator.gateways import GATEWAYS, Choice, EngineGateway, Known, _View, plain_gateway
from simulator.values import ClusterPlan, Machine, TraceJob
from simulator.world import Layout

GPU = "A100-80GB"


def plan(name, nodes=1, *, gpus=8, **more):
    machines = tuple(
        Machine(f"{name}{n}", GPU, GPU, gpus, 64_000, 1000, ("z", "b", "r"), clique="k", pods=20) for n in range(nodes)
    )
    return ClusterPlan(name, machines, {GPU: Decimal(more.pop("price", 2))}, **more)


def known(*plans):
    return Known(Layout(plans))


def job(pods=1, gpus=8, **more):
    return TraceJob(more.pop("name", "j"), more.pop("submitted", 0.0), 60.0, pods, gpus, **more)


def test_a_cluster_is_shown_with_its_nodes_prices_and_risks():
    machines = (*plan("a").machines, Machine("cpu", "cores", "", 0, 8000, 500, capacity_type="spot"))
    one = replace(plan("a", region="eu", interruptions={"cores": 0.5}), machines=machines)
    before, (shown,) = known(plan("a"), one), _View(known(one), is_divisible=False).clusters()
    assert (shown.id, shown.name, shown.owner_path, shown.region, shown.state) == (UUID(int=0), "a", "", "eu", "ready")
    gpu, cores = shown.flavors[GPU], shown.flavors["cores"]
    assert (gpu.vendor, gpu.gpu_model, gpu.sharing, gpu.unit_price) == ("nvidia", GPU, "whole", 2)
    assert (gpu.capacity_type, gpu.interruptions_per_hour) == ("on_demand", 0)
    assert (cores.vendor, cores.gpu_model, cores.unit_price) == ("", "", None)
    assert (cores.capacity_type, cores.interruptions_per_hour) == ("spot", 0.5)
    node, bare = shown.nodes
    assert (node.name, node.domain, node.clique) == ("a0", ("z", "b", "r"), "k")
    assert (node.total, node.free, node.device_free_milli) == ({GPU: 8}, {GPU: 8}, {})
    assert (node.cpu_millicores, node.memory_mib, node.pods) == (64_000, 1000, 20)
    assert (bare.total, bare.free_cpu_millicores, bare.is_usable, bare.why_unusable) == ({"cores": 0}, 8000, True, "")
    assert [each.id for each in _View(before, is_divisible=False).clusters()] == [UUID(int=0), UUID(int=1)]


@pytest.mark.parametrize(
    ("member", "hints", "fills"),
    [("spread", False, "spread"), ("spread", True, "hinted"), ("pack", False, "hinted"), ("bestfit", True, "hinted")],
)
def test_only_a_spreading_cluster_without_hints_is_known_to_spread(member, hints, fills):
    (shown,) = _View(known(plan("a", member=member, hints=hints)), is_divisible=False).clusters()
    assert shown.fills == fills


def test_devices_are_shown_in_parts_only_if_jobs_ask_for_parts():
    seen = known(plan("a", gpus=2))
    seen.shelves.take(0, job(gpus=1, gpu_milli=300, cpu_millicores=1000, memory_mib=10))
    for is_divisible, parts in ((False, {}), (True, {GPU: (700, 1000)})):
        (shown,) = _View(seen, is_divisible=is_divisible).clusters()
        (node,) = shown.nodes
        assert (node.free, node.device_free_milli) == ({GPU: 1}, parts)
        assert (node.free_cpu_millicores, node.free_memory_mib, node.free_pods) == (63_000, 990, 19)
        assert shown.flavors[GPU].sharing == ("divisible" if is_divisible else "whole")


def test_more_taken_than_there_is_is_shown_as_nothing_free():
    seen = known(plan("a", gpus=1))
    for _ in range(21):
        seen.shelves.take(0, job(gpus=1, cpu_millicores=64_000, memory_mib=1000), is_believed=True)
    node = _View(seen, is_divisible=False).clusters()[0].nodes[0]
    assert (node.free_cpu_millicores, node.free_memory_mib, node.free_pods, node.free[GPU]) == (0, 0, 0, 0)


def test_what_has_not_changed_is_shown_as_the_same_objects():
    seen = known(plan("a", 2), plan("b"))
    view = _View(seen, is_divisible=False)
    first, other = view.clusters()
    assert view.clusters()[0] is first
    seen.shelves.is_down[1] = True
    seen.versions[1] += 1
    changed, same = view.clusters()
    assert same is other
    assert changed.nodes[0] is first.nodes[0]
    assert (changed.nodes[1].is_usable, changed.nodes[1].why_unusable) == (False, "not ready")
    seen.prices[1][GPU] = Decimal(3)
    again, dearer = view.clusters()
    assert again is changed
    assert (dearer.flavors[GPU].unit_price, dearer.nodes[0] is other.nodes[0]) == (3, True)


@pytest.mark.parametrize(
    ("name", "cluster"), [("fifo_first_fit", 0), ("cheapest_first", 1), ("emptiest_first", 2), ("switchyard", 1)]
)
def test_each_gateway_has_its_own_first_choice(name, cluster):
    seen = known(plan("a", 2, price=3), plan("b", 2, price=1), plan("c", 3, price=2))
    for node in (0, 2):
        seen.shelves.take(node, job(gpus=8))
    gateway = EngineGateway("cheapest") if name == "switchyard" else plain_gateway(name)
    (choice,) = gateway.choose([(7, job(cpu_millicores=1000))], seen, 0.0)
    assert isinstance(choice, Choice)
    assert (choice.number, choice.cluster, gateway.name) == (7, cluster, name)
    assert choice.assumed == {0: (1,), 1: (3,), 2: (4,)}[cluster]
    assert name in GATEWAYS


def test_a_plain_gateway_counts_what_it_has_just_given_away_and_changes_nothing_it_knows():
    seen = known(plan("a", 2))
    queue = [(1, job()), (2, job(2)), (3, job()), (4, job())]
    assert [choice.number for choice in plain_gateway("cheapest_first").choose(queue, seen, 0.0)] == [1, 3]
    assert [choice.number for choice in plain_gateway("fifo_first_fit").choose(queue, seen, 0.0)] == [1]
    assert seen.shelves.devices.min() == 1000


def test_a_job_unlike_one_that_fits_nowhere_is_still_tried():
    seen = known(plan("a", gpus=8))
    small = job(gpus=1, gpu_milli=500)
    queue = [(1, job(9, 1)), (2, job(9, 1)), (3, small), (4, replace(small, cpu_millicores=10**6)), (5, small)]
    assert [choice.number for choice in plain_gateway("emptiest_first").choose(queue, seen, 0.0)] == [3, 5]


def test_a_cluster_without_a_price_is_the_last_resort_of_the_cheapest_first():
    free = replace(plan("a"), prices={})
    seen = known(free, plan("b"))
    choices = plain_gateway("cheapest_first").choose([(1, job()), (2, job())], seen, 0.0)
    assert [choice.cluster for choice in choices] == [1, 0]


def test_the_cheapest_first_goes_by_the_cheapest_flavor_of_a_cluster():
    mixed = replace(plan("a"), prices={GPU: Decimal(5), "other": Decimal(1)})
    (choice,) = plain_gateway("cheapest_first").choose([(1, job())], known(plan("b", price=2), mixed), 0.0)
    assert choice.cluster == 1


def test_the_engine_hints_where_clusters_listen():
    for hints in (True, False):
        (choice,) = EngineGateway().choose([(1, job())], known(plan("a", hints=hints)), 0.0)
        assert isinstance(choice, Choice)
        assert (choice.is_hinted, choice.is_pinned) == (hints, False)


def test_the_view_has_devices_in_parts_once_a_job_asks_for_a_part():
    gateway, seen = EngineGateway(), known(plan("a"))
    for number, asked, is_divisible in (
        (1, job(), False),
        (2, job(gpus=1, gpu_milli=500), True),
        (3, job(gpus=1), True),
    ):
        gateway.choose([(number, asked)], seen, 0.0)
        assert gateway._view.is_divisible is is_divisible
