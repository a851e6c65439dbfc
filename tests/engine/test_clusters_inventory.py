"""The inventory of a cluster, kept event by event, equals what a fresh count would give."""

from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters.drivers import ClaimSeen, NodeSeen, PodSeen, SliceSeen
from clusters.engine.claimable import DeviceSeen
from clusters.engine.device_inventory import EventKind
from clusters.engine.inventory import (
    NOTHING,
    ClusterInventory,
    ForeignUse,
    NodeUse,
    is_nameable,
    node_record,
    unify_flavors,
    use_of,
)
from clusters.engine.weights import ENTRY, KNOWN_UID, OBJECT, weight_of_claim, weight_of_node, weight_of_slice
from tests.laws import examples

OURS = "test"
STARTED = datetime(2026, 1, 1, tzinfo=UTC)


def node(name: str = "n1", **changes) -> NodeSeen:
    labels = {"kubernetes.io/hostname": name, "nvidia.com/gpu.product": "NVIDIA-L4", "team.example/colour": "blue"}
    allocatable = {"cpu": "63900m", "memory": "263873124Ki", "pods": "110", "nvidia.com/gpu": "4"}
    return replace(NodeSeen(name, f"uid-{name}", labels, [], allocatable, True, True), **changes)


def pod(uid: str, node: str = "n1", *, ours: bool = False, phase: str = "Running", **requests: str) -> PodSeen:
    labels = {"switchyard.dev/install": OURS} if ours else {}
    asked = {key.replace("gpu", "nvidia.com/gpu"): value for key, value in (requests or {"cpu": "1"}).items()}
    return PodSeen("default", uid, uid, labels, node, phase, "", asked, STARTED, None, None, False)


def test_a_nodes_capacity_is_rounded_down():
    record = node_record(node())
    assert (record.cpu_millicores, record.memory_mib, record.pods) == (63900, 257688, 110)
    assert record.domain == ("", "", "", "n1", "")
    assert [(offer.name, offer.units) for offer in record.offers] == [("l4", 4)]
    assert "team.example/colour" not in record.labels
    assert record.problems == ()


@pytest.mark.parametrize("claim", ["1000000000000", "-1", "NaN", "1e400", ""])
@pytest.mark.parametrize("resource", ["cpu", "memory", "pods", "nvidia.com/gpu"])
def test_attack_15_implausible_capacity_counts_as_none_and_is_told(resource, claim):
    claim = claim + "Gi" * (resource == "memory" and claim.isdigit())
    record = node_record(node(allocatable={**node().allocatable, resource: claim}))
    assert len(record.problems) == 1
    assert record.problems[0].startswith(f"{resource}: ")
    amounts = {"cpu": record.cpu_millicores, "memory": record.memory_mib, "pods": record.pods}
    amounts["nvidia.com/gpu"] = sum(offer.units for offer in record.offers)
    assert amounts[resource] == 0
    assert all(value > 0 for name, value in amounts.items() if name != resource)


def test_text_that_no_database_takes_is_left_out():
    labels = {
        "topology.kubernetes.io/zone": "a\x00b",
        "kubernetes.io/arch": "x" * 999,
        "nvidia.com/gpu.clique": "\ud800",
    }
    record = node_record(node(labels=labels, taints=[{"key": "\x00", "effect": "NoSchedule"}]))
    assert record.labels == {}
    assert record.domain == ("", "", "", "n1", "")
    assert record.taints[0]["key"] == "?"
    assert is_nameable(node())
    assert not is_nameable(node("UPPER"))
    assert not is_nameable(node("x" * 300))
    assert not is_nameable(node(uid=""))
    hostile = {"x" * 300 + "/gpu": "1", "a/b\x00": "1", "example.com/fpga": "2"}
    assert use_of(replace(pod("p"), requests=hostile)).devices == {"example.com/fpga": 2}


def test_a_windows_node_takes_none_of_our_pods():
    assert not node_record(node(labels={"kubernetes.io/os": "windows"})).is_schedulable
    assert node_record(node(labels={"kubernetes.io/os": "linux"})).is_schedulable


def test_a_pods_use_is_rounded_up_and_knows_devices():
    assert use_of(pod("p", cpu="100001u", memory="1", gpu="2")) == ForeignUse(101, 1, 1, {"nvidia.com/gpu": 2})
    assert use_of(pod("p", cpu="NaN")) == ForeignUse(0, 0, 1, {})


def without_devices() -> ClusterInventory:
    """The inventory of a cluster where no device is claimed."""
    inventory = ClusterInventory(OURS)
    inventory.see_slices("listed", [])
    inventory.see_claims("listed", [])
    return inventory


def test_nothing_is_told_before_all_lists_are_in():
    inventory = ClusterInventory(OURS)
    lists = (inventory.see_claims, inventory.see_pods, inventory.see_slices)
    inventory.see_nodes("listed", [node()])
    for see in lists:
        assert not inventory.is_complete
        assert not inventory.dirty
        see("listed", [])
    assert inventory.is_complete
    assert inventory.dirty


def test_foreign_use_leaves_out_ours_and_what_has_ended():
    inventory = without_devices()
    inventory.see_nodes("listed", [node()])
    inventory.see_pods(
        "listed",
        [
            pod("a", cpu="1", gpu="3"),
            pod("b", ours=True, cpu="4", gpu="2"),
            pod("c", phase="Succeeded"),
            pod("d", phase="Failed"),
            pod("e", node=""),
        ],
    )
    snapshot = inventory.snapshot()
    assert snapshot.foreign == {"n1": ForeignUse(1000, 0, 1, {"nvidia.com/gpu": 3})}
    assert snapshot.used_devices == {"n1": {"nvidia.com/gpu": 5}}
    assert [seen.name for seen in snapshot.nodes] == ["n1"]


def test_an_event_that_changes_nothing_does_not_make_it_dirty():
    inventory = without_devices()
    inventory.see_nodes("listed", [node()])
    inventory.see_pods("listed", [pod("a")])
    inventory.snapshot()
    inventory.see_nodes("changed", [node()])
    inventory.see_nodes("listed", [node()])
    inventory.see_pods("changed", [pod("a")])
    inventory.see_pods("changed", [pod("z", node="")])
    inventory.see_pods("deleted", [pod("unknown")])
    inventory.see_pods("listed", [pod("a")])
    inventory.see_pods("alive", [])
    assert not inventory.dirty
    inventory.see_pods("changed", [pod("a", cpu="2")])
    assert inventory.dirty


@pytest.mark.parametrize(
    ("kind", "nodes"),
    [
        ("changed", [node(is_ready=False)]),
        ("changed", [node("n2")]),
        ("deleted", [node()]),
        ("listed", []),
        ("listed", [node(is_ready=False)]),
    ],
)
def test_a_change_of_nodes_asks_for_a_snapshot_until_one_is_made(kind, nodes):
    inventory = without_devices()
    inventory.see_nodes("listed", [node()])
    inventory.see_pods("listed", [])
    inventory.snapshot()
    assert (inventory.dirty, inventory.changed_use()) == (False, {})
    inventory.see_nodes(kind, nodes)
    inventory.see_nodes("deleted", [node("unknown")])
    inventory.see_slices("listed", [])
    assert (inventory.dirty, inventory.changed_use()) == (True, None)
    inventory.snapshot()
    assert (inventory.dirty, inventory.changed_use()) == (False, {})


def test_pods_that_come_grow_move_and_go_change_the_use_of_their_own_nodes():
    inventory = without_devices()
    inventory.see_nodes("listed", [node("n1"), node("n2")])
    inventory.see_pods("listed", [pod("a", gpu="1")])
    inventory.snapshot()

    def use(cpu, pods, gpus):
        devices = {"nvidia.com/gpu": gpus} if gpus else {}
        return NodeUse(ForeignUse(cpu, 0, pods, devices), devices)

    steps: list[tuple[EventKind, PodSeen, dict[str, NodeUse]]] = [
        ("changed", pod("b", "n2"), {"n2": use(1000, 1, 0)}),
        ("changed", pod("b", "n2", cpu="3"), {"n2": use(3000, 1, 0)}),
        ("changed", pod("b", "n1", cpu="3"), {"n1": use(3000, 2, 1), "n2": use(0, 0, 0)}),
        ("changed", pod("a", phase="Succeeded"), {"n1": use(3000, 1, 0)}),
        ("deleted", pod("b", "n1"), {"n1": use(0, 0, 0)}),
    ]
    for kind, seen, expected in steps:
        assert not inventory.dirty
        inventory.see_pods(kind, [seen])
        assert inventory.dirty
        assert inventory.changed_use() == expected


def test_a_fresh_list_forgets_what_is_missing_from_it():
    inventory = ClusterInventory(OURS)
    inventory.see_nodes("listed", [node("n1"), node("n2")])
    inventory.see_pods("listed", [pod("a"), pod("b", "n2")])
    inventory.see_nodes("listed", [node("n2")])
    inventory.see_pods("listed", [pod("b", "n2")])
    snapshot = inventory.snapshot()
    assert [seen.name for seen in snapshot.nodes] == ["n2"]
    assert set(snapshot.foreign) == {"n2"}


pods = st.builds(
    pod,
    st.sampled_from("abcdef"),
    st.sampled_from(["n1", "n2", ""]),
    ours=st.booleans(),
    phase=st.sampled_from(["Pending", "Running", "Succeeded"]),
    cpu=st.sampled_from(["1", "250m"]),
    gpu=st.sampled_from(["0", "1", "3"]),
)
events = st.one_of(
    st.tuples(st.sampled_from(["changed", "deleted"]), pods.map(lambda seen: [seen])),
    st.tuples(st.just("listed"), st.lists(pods, unique_by=lambda seen: seen.uid)),
)


def test_an_inventory_that_has_seen_nothing_asks_for_a_snapshot_and_not_for_a_change():
    inventory = ClusterInventory(OURS)
    assert inventory.changed_use() is None
    inventory.snapshot()
    assert inventory.changed_use() == {}


@pytest.mark.law
@examples(200)
@given(st.lists(events, max_size=25))
def test_the_running_sum_equals_a_fresh_count(history):
    inventory, fresh = ClusterInventory(OURS), ClusterInventory(OURS)
    alive: dict[str, PodSeen] = {}
    inventory.see_pods("listed", [])
    for kind, seen in history:
        inventory.see_pods(kind, seen)
        if kind == "listed":
            alive = {}
        for each in seen:
            if kind == "deleted":
                alive.pop(each.uid, None)
            else:
                alive[each.uid] = each
    fresh.see_pods("listed", list(alive.values()))
    assert inventory.snapshot().foreign == fresh.snapshot().foreign
    assert inventory.snapshot().used_devices == fresh.snapshot().used_devices


node_events = st.one_of(
    st.tuples(st.sampled_from(["changed", "deleted"]), st.sampled_from(["n1", "n2"]).map(lambda name: [node(name)])),
    st.tuples(st.just("listed"), st.sampled_from([[], [node("n1")], [node("n1"), node("n2")]])),
)


@pytest.mark.law
@examples(200)
@given(st.lists(events | node_events, max_size=25))
def test_the_changes_that_it_reports_lead_to_the_same_as_a_snapshot(history):
    """What is stored by `changed_use`, or by a snapshot where that is asked for, never differs from a snapshot."""
    inventory = without_devices()
    inventory.see_nodes("listed", [node("n1")])
    inventory.see_pods("listed", [])
    foreign, used = {}, {}
    for kind, seen in history:
        (inventory.see_nodes if any(isinstance(each, NodeSeen) for each in seen) else inventory.see_pods)(kind, seen)
        if not inventory.dirty:
            continue
        changes = inventory.changed_use()
        if changes is None:
            taken = inventory.snapshot()
            foreign, used = dict(taken.foreign), dict(taken.used_devices)
        else:
            foreign |= {name: use.foreign for name, use in changes.items()}
            used |= {name: use.devices for name, use in changes.items()}
    expected = inventory.snapshot()
    for name in [seen.name for seen in expected.nodes]:
        assert foreign.get(name, NOTHING) == expected.foreign.get(name, NOTHING)
        assert used.get(name, {}) == expected.used_devices.get(name, {})


def test_labels_that_place_or_select_are_kept():
    kept = [
        "kubernetes.io/hostname", "kubernetes.io/arch", "kubernetes.io/os", "node.kubernetes.io/instance-type",
        "topology.kubernetes.io/region", "topology.kubernetes.io/zone", "topology.switchyard.dev/rack",
        "nvidia.com/gpu.product", "nvidia.com/gpu.count", "nvidia.com/gpu.memory", "nvidia.com/gpu.clique",
        "cloud.google.com/gke-tpu-topology", "cloud.google.com/gke-tpu-slice", "cloud.google.com/gke-nodepool",
        "cloud.google.com/gke-accelerator-count",
    ]  # fmt: skip
    labels = {**dict.fromkeys(kept, "1"), "kubernetes.io/os": "linux", "team.example/colour": "blue"}
    assert set(node_record(node(labels=labels, allocatable={"cpu": "1"})).labels) == set(kept)
    spot = {"karpenter.sh/capacity-type": "spot", "eks.amazonaws.com/capacityType": "odd"}
    assert set(node_record(node(labels=spot)).labels) == {"karpenter.sh/capacity-type"}, "it selects the flavor"


def test_a_cluster_weighs_what_is_kept_of_it_and_nothing_once_all_is_gone():
    inventory = without_devices()
    assert (inventory.weight, inventory.size) == (0, 0)
    held = ClaimSeen("default", "c", "uid-c", {}, (("gpu.nvidia.com", "n1", "gpu-0"),))
    published = SliceSeen("s1", "gpu.nvidia.com", "n1", 1, 1, "n1", (DeviceSeen("gpu-0", {"type": "gpu"}, "80Gi"),))
    plain, larger = node(labels={"a": "bc"}), node(labels={"a": "bc", "de": "f"})
    seen: list[tuple[Any, Any]] = [
        (inventory.see_nodes, plain),
        (inventory.see_nodes, larger),
        (inventory.see_pods, pod("a")),
        (inventory.see_pods, pod("a", cpu="2")),
        (inventory.see_pods, pod("b", gpu="1")),
        (inventory.see_slices, published),
        (inventory.see_claims, held),
        (inventory.see_claims, held),
    ]
    weights = [0]
    for see, one in seen:
        see("changed", [one])
        weights.append(inventory.weight)
    grown = [after - before for before, after in pairwise(weights)]
    assert grown[1] == ENTRY + len("def"), "a label more"
    assert grown[3] == grown[7] == 0
    assert grown[4] == grown[2] + ENTRY, "a pod with devices keeps an entry more"
    assert grown[6] == KNOWN_UID + ENTRY + len("gpu.nvidia.comn1gpu-0")
    assert weights[-1] == sum(grown)
    again = without_devices()
    again.see_nodes("listed", [larger])
    again.see_pods("listed", [pod("a", cpu="2"), pod("b", gpu="1")])
    again.see_slices("listed", [published])
    again.see_claims("listed", [held])
    assert (again.weight, again.size) == (inventory.weight, 1)
    for see, one in seen[1:]:
        see("deleted", [one])
    assert inventory.weight == 0
    again.see_claims("listed", [])
    again.see_slices("listed", [])
    again.see_nodes("listed", [])
    again.see_pods("listed", [])
    assert again.weight == 0


def test_a_slice_weighs_twice_what_its_devices_say():
    one = DeviceSeen("gpu-0", {"type": "gpu"}, "80Gi", "n1", counters=("set-0",))
    seen = SliceSeen("s1", "gpu.nvidia.com", "pool", 1, 1, "n1", (one,))
    of_device = OBJECT + len("gpu-0" + "80Gi" + "n1" + "set-0") + ENTRY + len("typegpu")
    assert weight_of_slice(seen) == OBJECT + len("s1gpu.nvidia.compooln1") + 2 * of_device
    held = ClaimSeen("default", "c", "uid-c", {"a": "b"}, (("gpu.nvidia.com", "pool", "gpu-0"),))
    assert weight_of_claim(held) == OBJECT + ENTRY + len("ab") + ENTRY + len("gpu.nvidia.compoolgpu-0")
    assert weight_of_claim(replace(held, labels={}, devices=())) == OBJECT
    tainted = node(labels={"a": "b"}, allocatable={"cpu": "1"}, taints=[{"key": "x"}])
    assert weight_of_node(tainted) == 2 * OBJECT + 3 * ENTRY + len("ab" + "cpu1" + "keyx")


def test_each_node_points_at_flavors_that_exist():
    seen = [
        node("n1"),
        node("n2", labels={}, allocatable={"cpu": "4"}),
        node("n3", allocatable={"nvidia.com/gpu": "1"}),
    ]
    flavors, devices = unify_flavors([node_record(each) for each in seen])
    assert devices == {"n1": [("l4", 4)], "n2": [("cpu", 0)], "n3": [("l4", 1)]}
    assert set(flavors) == {"l4", "cpu"}


def test_our_pods_that_prepare_a_node_count_as_foreign_use_because_no_hold_counts_them():
    ours = pod("p1", ours=True, cpu="10m", memory="16Mi")
    preparing = replace(ours, uid="p2", labels={**ours.labels, "switchyard.dev/preparation": "prepull"})
    inventory = ClusterInventory(OURS)
    inventory.see_nodes("listed", [node()])
    inventory.see_pods("listed", [ours, preparing])
    assert inventory.snapshot().foreign["n1"] == ForeignUse(10, 16, 1, {})
