"""Writing the inventory down: by difference, a version that grows when placement must look again, nothing implausible."""

import threading
from dataclasses import replace

import pytest
from django.db import IntegrityError, connection, connections
from django.test.utils import CaptureQueriesContext

from clusters.drivers import NodeSeen, TooMuch
from clusters.engine.claimable import DeviceSeen, device_of
from clusters.engine.device_inventory import ClaimableDevices
from clusters.engine.inventory import ForeignUse
from clusters.models import Cluster, ClusterEvent, Flavor, Node
from clusters.operations import InventoryChange, record_inventory
from clusters.operations.inventory import MOST_FLAVORS
from clusters.queries import flavor_summary, fleet
from federation.queries.snapshot import load_fleet
from foundation.clock import now
from tests.builders import make_cluster, make_flavor


def seen(name: str, *, gpus: str = "8", product: str = "NVIDIA-H100-80GB-HBM3", **changes) -> NodeSeen:
    labels = {
        "kubernetes.io/hostname": name,
        "topology.kubernetes.io/zone": "z1",
        "cloud.provider.com/topology-rack": "r1",
        "nvidia.com/gpu.product": product,
    }
    allocatable = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": gpus}
    return replace(NodeSeen(name, f"uid-{name}", labels, [], allocatable, True, True), **changes)


def version(cluster: Cluster) -> int:
    return Cluster.objects.get(id=cluster.id).inventory_version


@pytest.mark.django_db
def test_nodes_and_flavors_are_written_once_and_again_only_when_they_change():
    cluster = make_cluster()
    nodes = [seen("n1"), seen("n2"), seen("n3", gpus="0")]
    first = record_inventory(cluster.id, nodes, {"n1": ForeignUse(500, 64, 1, {"nvidia.com/gpu": 1})})
    again = record_inventory(cluster.id, nodes, {"n1": ForeignUse(500, 64, 1, {"nvidia.com/gpu": 1})})
    assert first == InventoryChange(3, 0, 2, 0, 1)
    assert again == InventoryChange(0, 0, 0, 0, 1)
    node = Node.objects.get(cluster=cluster, name="n1")
    assert node.devices == [{"flavor": "h100-80gb", "units": 8}]
    assert node.domain == ["z1", "", "r1", "n1", ""]
    assert (node.cpu_millicores, node.memory_mib, node.pods) == (64000, 524288, 110)
    assert (node.foreign_cpu_millicores, node.foreign_pods, node.foreign_devices) == (500, 1, {"nvidia.com/gpu": 1})
    assert sorted(Flavor.objects.filter(cluster=cluster).values_list("name", flat=True)) == ["cpu", "h100-80gb"]


@pytest.mark.django_db
def test_what_is_gone_is_removed_and_what_changed_is_changed():
    cluster = make_cluster()
    record_inventory(cluster.id, [seen("n1"), seen("n2", product="NVIDIA-L4")], {})
    change = record_inventory(cluster.id, [seen("n1", is_ready=False)], {})
    assert change == InventoryChange(1, 1, 0, 1, 2)
    assert [node.name for node in Node.objects.filter(cluster=cluster)] == ["n1"]
    assert not Node.objects.get(cluster=cluster).is_ready
    assert [flavor.name for flavor in Flavor.objects.filter(cluster=cluster)] == ["h100-80gb"]


@pytest.mark.django_db
def test_our_own_use_of_devices_is_shown_without_making_placement_look_again():
    cluster = make_cluster()
    record_inventory(cluster.id, [seen("n1")], {})
    change = record_inventory(cluster.id, [seen("n1")], {}, {"n1": {"nvidia.com/gpu": 3}})
    assert change == InventoryChange(1, 0, 0, 0, 1)
    assert Node.objects.get(cluster=cluster).used_devices == {"nvidia.com/gpu": 3}


@pytest.mark.django_db
def test_attack_15_implausible_capacity_counts_as_none_and_is_told_once():
    cluster = make_cluster()
    absurd = seen("n1", allocatable={"cpu": "1000000000000", "memory": "-1", "pods": "NaN", "nvidia.com/gpu": "1e12"})
    for _ in range(3):
        record_inventory(cluster.id, [absurd, seen("n2")], {})
    node = Node.objects.get(cluster=cluster, name="n1")
    assert (node.cpu_millicores, node.memory_mib, node.pods, node.devices[0]["units"]) == (0, 0, 0, 0)
    (event,) = ClusterEvent.objects.filter(cluster=cluster, kind="implausible_capacity")
    assert event.message.startswith("Nodes whose implausible capacity counts as 0: n1 (")
    assert Node.objects.get(cluster=cluster, name="n2").cpu_millicores == 64000


@pytest.mark.django_db
def test_nodes_with_impossible_names_are_not_written():
    cluster = make_cluster()
    record_inventory(cluster.id, [seen("n1"), seen("n" * 300), seen("a\x00b")], {})
    assert [node.name for node in Node.objects.filter(cluster=cluster)] == ["n1"]


@pytest.mark.django_db
def test_a_removed_cluster_takes_no_inventory():
    cluster = make_cluster()
    Cluster.objects.filter(id=cluster.id).update(removed_at="2026-01-01T00:00:00Z")
    assert record_inventory(cluster.id, [seen("n1")], {}).version is None
    assert not Node.objects.filter(cluster=cluster).exists()


@pytest.mark.django_db
def test_a_thousand_nodes_take_a_handful_of_statements():
    cluster = make_cluster()
    nodes = [seen(f"n{number}") for number in range(1000)]
    with CaptureQueriesContext(connection) as first:
        record_inventory(cluster.id, nodes, {})
    with CaptureQueriesContext(connection) as same:
        record_inventory(cluster.id, nodes, {})
    with CaptureQueriesContext(connection) as one:
        record_inventory(cluster.id, [seen("n0", gpus="4"), *nodes[1:]], {})
    assert len(first) <= 12
    assert len(same) <= 9
    assert len(one) <= 12


@pytest.mark.django_db(transaction=True)
def test_two_observers_at_once_leave_one_inventory():
    cluster = make_cluster()
    barrier = threading.Barrier(2)

    def observe(product: str) -> None:
        barrier.wait()
        for number in range(5):
            record_inventory(cluster.id, [seen(f"n{each}", product=product) for each in range(number + 1)], {})
        connections.close_all()

    threads = [threading.Thread(target=observe, args=(product,)) for product in ("NVIDIA-L4", "Tesla-T4")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    names = set(Flavor.objects.filter(cluster=cluster).values_list("name", flat=True))
    used = {entry["flavor"] for node in Node.objects.filter(cluster=cluster) for entry in node.devices}
    assert used == names
    assert len(names) == 1


@pytest.mark.django_db
def test_the_fleet_is_read_anew_only_when_something_changed():
    cluster = make_cluster(name="fleet-1")
    record_inventory(cluster.id, [seen("n1"), seen("n2")], {"n1": ForeignUse(500, 64, 1, {"nvidia.com/gpu": 1})})
    (view,) = fleet()
    with CaptureQueriesContext(connection) as queries:
        (same,) = fleet()
    assert len(queries) == 1
    assert same is view
    assert (view.name, view.owner_path, view.state) == ("fleet-1", "acme", "ready")
    first, second = view.nodes
    assert (first.domain, first.clique, first.is_usable) == (("z1", "", "r1"), "", True)
    assert (first.devices, first.foreign_devices, first.foreign_cpu_millicores) == (
        {"h100-80gb": 8},
        {"h100-80gb": 1},
        500,
    )
    assert second.foreign_devices == {}
    assert view.flavors["h100-80gb"].resource_name == "nvidia.com/gpu"
    record_inventory(cluster.id, [seen("n1")], {})
    assert [node.name for node in fleet()[0].nodes] == ["n1"]
    Cluster.objects.filter(id=cluster.id).update(wish="cordoned")
    assert fleet()[0].state == "cordoned"
    Cluster.objects.filter(id=cluster.id).update(removed_at="2026-01-01T00:00:00Z")
    assert fleet() == ()


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, ""),
        ({"is_ready": False}, "not ready"),
        ({"is_schedulable": False}, "not schedulable"),
        ({"taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]}, ""),
        ({"taints": [{"key": "team", "value": "a", "effect": "NoSchedule"}]}, "with taint team=a:NoSchedule"),
        ({"taints": [{"key": "x", "effect": "PreferNoSchedule"}]}, ""),
        ({"taints": [{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]}, "with taint node.kubernetes.io/unreachable:NoExecute"),
    ],
)  # fmt: skip
def test_a_node_says_why_it_is_unusable(changes, why):
    cluster = make_cluster()
    record_inventory(cluster.id, [seen("n1", **changes)], {})
    (node,) = fleet()[0].nodes
    assert node.why_unusable == why
    assert node.is_usable == (why == "")


@pytest.mark.django_db
def test_a_gpu_taint_keeps_only_pods_without_a_gpu_off():
    cluster = make_cluster()
    taint = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    record_inventory(cluster.id, [seen("n1", taints=[taint])], {})
    (node,) = fleet()[0].nodes
    assert node.repels == {"": "with taint nvidia.com/gpu=present:NoSchedule"}
    assert load_fleet(now())[0].nodes[0].repels == node.repels


@pytest.mark.django_db
def test_what_is_free_on_nodes_that_take_none_of_our_pods_is_not_told_as_free():
    cluster = make_cluster()
    gpu, team = ({"key": key, "effect": "NoSchedule"} for key in ("nvidia.com/gpu", "team"))
    record_inventory(cluster.id, [seen("n1", taints=[gpu]), seen("n2", taints=[gpu, team]), seen("n3")], {})
    (summary,) = flavor_summary([cluster], now())[cluster.id]
    assert (summary.nodes, summary.count.total, summary.count.free, summary.largest_free_block) == (3, 24, 16, 8)


def device(name: str = "NVIDIA H100 80GB HBM3", **more):
    found = device_of("gpu.nvidia.com", DeviceSeen("gpu-0", {"type": "gpu", "productName": name}, "81559Mi"))
    return replace(found, **more)


@pytest.mark.django_db
def test_devices_that_are_claimed_are_flavors_like_any_other():
    cluster = make_cluster()
    bare = seen("n1", gpus="0", labels={"kubernetes.io/hostname": "n1"})
    kind = device()
    claimable = ClaimableDevices({"n1": {kind: 8}}, apart=(device("NVIDIA L4", unplaceable="far away"),))
    use = {"n1": {kind.resource: 3}}
    foreign = {"n1": ForeignUse(0, 0, 0, {kind.resource: 2})}
    for written in (2, 0):
        change = record_inventory(cluster.id, [bare], foreign, use, claimable)
        assert (change.flavors_written, change.nodes_written) == (written, min(written, 1))
    flavor = Flavor.objects.get(cluster=cluster, name="h100-80gb")
    assert (flavor.device_class, flavor.cel, flavor.resource_name) == ("gpu.nvidia.com", kind.cel, kind.resource)
    assert Flavor.objects.get(cluster=cluster, name="l4").unplaceable == "far away"
    [far, near] = sorted(flavor_summary([cluster], now())[cluster.id], key=lambda one: one.count.total)
    assert (near.name, near.count.total, near.count.free, near.largest_free_block) == ("h100-80gb", 8, 5, 5)
    assert (far.name, far.count.total, far.nodes) == ("l4", 0, 0)
    [view] = fleet()
    assert view.nodes[0].devices == {"h100-80gb": 8}
    assert view.nodes[0].foreign_devices == {"h100-80gb": 2}


@pytest.mark.django_db
def test_what_is_claimed_can_be_told_apart_or_says_why_not():
    make_flavor(make_cluster())
    with connection.cursor() as cursor, pytest.raises(IntegrityError, match="what_is_claimed_can_be_told_apart"):
        cursor.execute("UPDATE clusters_flavor SET device_class = 'gpu.nvidia.com'")


@pytest.mark.django_db
def test_a_thousand_absurd_nodes_that_change_all_the_time_are_one_event():
    cluster = make_cluster()
    for turn in range(3):
        absurd = [seen(f"n{n}", allocatable={"cpu": str(10**12 + turn), "memory": "NaN"}) for n in range(1000)]
        record_inventory(cluster.id, absurd, {})
    (event,) = ClusterEvent.objects.filter(cluster=cluster, kind="implausible_capacity")
    assert "and 995 more" in event.message
    assert len(event.message) < 1500


@pytest.mark.django_db
def test_a_cluster_of_more_flavors_than_can_be_is_not_written_down():
    cluster = make_cluster()
    product = "nvidia.com/gpu.product"
    nodes = [
        seen(f"n{n}", labels={product: f"Future-GPU-{n}"}, allocatable={"nvidia.com/gpu": "8"})
        for n in range(MOST_FLAVORS + 1)
    ]
    with pytest.raises(TooMuch, match="flavors"):
        record_inventory(cluster.id, nodes, {})
    record_inventory(cluster.id, nodes[:-1], {})
    assert Flavor.objects.filter(cluster=cluster).count() == MOST_FLAVORS
