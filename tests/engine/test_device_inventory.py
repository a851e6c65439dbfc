"""ResourceSlices and ResourceClaims, event by event: what each node has, and what of it is allocated to whom."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters.drivers import ClaimSeen, NodeSeen, SliceSeen
from clusters.engine.claimable import DeviceSeen
from clusters.engine.device_inventory import UNLABELLED_SLICE, DeviceInventory
from clusters.engine.inventory import INSTALL_LABEL, ClusterInventory, ForeignUse, node_record, unify_flavors
from clusters.engine.resource_slices import SEVERAL_NODES, read_pool
from tests.laws import examples

NVIDIA = "gpu.nvidia.com"
H100 = {"type": "gpu", "productName": "NVIDIA H100 80GB HBM3"}
CLASSES = frozenset({"gpu.nvidia.com", "mig.nvidia.com", "tpu.google.com"})


def gpu(name: str, attributes=H100, **more) -> DeviceSeen:
    return DeviceSeen(name, attributes, "81559Mi", **more)


def part(name: str, profile: str = "1g.10gb", **more) -> DeviceSeen:
    return DeviceSeen(name, H100 | {"type": "mig", "profile": profile}, "9984Mi", **more)


def published(name: str = "s1", *devices: DeviceSeen, **changes) -> SliceSeen:
    return replace(SliceSeen(name, NVIDIA, "n1", 1, 1, "n1", devices or (gpu("gpu-0"), gpu("gpu-1"))), **changes)


def claim(uid: str, *devices: str, ours: bool = False, pool: str = "n1", driver: str = NVIDIA) -> ClaimSeen:
    labels = {INSTALL_LABEL: "test"} if ours else {}
    return ClaimSeen("default", uid, uid, labels, tuple((driver, pool, device) for device in devices))


def node(name: str = "n1", labels=None, **allocatable: str) -> NodeSeen:
    amounts = {"cpu": "64", **{key.replace("__", "/").replace("_", "."): text for key, text in allocatable.items()}}
    return NodeSeen(name, f"uid-{name}", {"kubernetes.io/hostname": name, **(labels or {})}, [], amounts, True, True)


def inventory(slices=(), claims=(), nodes=None) -> ClusterInventory:
    made = ClusterInventory("test")
    made.see_nodes("listed", [node()] if nodes is None else nodes)
    made.see_pods("listed", [])
    made.see_classes(CLASSES)
    made.see_slices("listed", list(slices))
    made.see_claims("listed", list(claims))
    return made


def units(made: ClusterInventory) -> dict[str, dict[str, int]]:
    """Units by node and flavor, as they are written down."""
    taken = made.snapshot()
    records = [node_record(each, taken.claimable.by_node.get(each.name, {})) for each in taken.nodes]
    _, devices = unify_flavors(records, taken.claimable.apart)
    return {name: dict(pairs) for name, pairs in devices.items()}


def in_use(made: ClusterInventory) -> tuple[int, int]:
    """Devices of n1 in use by anybody, and by strangers."""
    taken = made.snapshot()
    foreign = taken.foreign.get("n1", ForeignUse())
    return sum(taken.used_devices.get("n1", {}).values()), sum(foreign.devices.values())


def test_a_node_has_the_devices_that_are_published_for_it():
    assert units(inventory([published()])) == {"n1": {"h100-80gb": 2}}


@pytest.mark.parametrize(
    ("slices", "expected"),
    [
        ([published(slice_count=2)], 0),
        ([published(slice_count=0)], 0),
        ([published(slice_count=-1)], 0),
        ([published(slice_count=2**63 - 1)], 0),
        ([published(slice_count=2), published("s2", gpu("gpu-2"), slice_count=2)], 3),
        ([published(slice_count=2), published("s2", gpu("gpu-2"), slice_count=3)], 0),
        ([published(slice_count=2), published("s2", gpu("gpu-1"), slice_count=2)], 0),
        ([published(generation=1), published("s2", gpu("gpu-0"), generation=2)], 1),
        ([published(generation=1), published("s2", gpu("gpu-0"), generation=2, slice_count=2)], 0),
        ([published(generation=-5)], 2),
        ([published("s1", gpu("gpu-0", is_tainted=True), gpu("gpu-1"))], 1),
        ([published("s1", gpu("gpu-0", is_tainted=True))], 0),
        ([published(pool="x" * 9999)], 2),
        ([published(pool=""), published("s2", gpu("gpu-0"), pool="other")], 3),
    ],
)
def test_only_the_newest_whole_generation_counts_and_the_flavor_stays_to_be_seen(slices, expected):
    assert units(inventory(slices)) == {"n1": {"h100-80gb": expected}}


@pytest.mark.parametrize(
    "slices",
    [
        [],
        [published(driver="dra.example.com")],
        [published(node="elsewhere")],
        [published("s1", gpu("gpu-0", {"type": "vfio"}))],
        [published(devices=())],
    ],
)
def test_a_node_without_devices_that_we_know_is_a_cpu_node(slices):
    assert units(inventory(slices)) == {"n1": {"cpu": 0}}


def test_each_device_may_say_its_own_node():
    shared = published("s1", gpu("a", node="n1"), gpu("b", node="n2"), gpu("c", node="n2"), node="")
    assert units(inventory([shared], nodes=[node(), node("n2")])) == {"n1": {"h100-80gb": 1}, "n2": {"h100-80gb": 2}}


def test_devices_that_several_nodes_reach_are_shown_apart_and_say_why():
    taken = inventory([published(node="")]).snapshot()
    flavors, devices = unify_flavors([node_record(each) for each in taken.nodes], taken.claimable.apart)
    assert devices == {"n1": [("cpu", 0)]}
    assert flavors["h100-80gb"].unplaceable == SEVERAL_NODES


def test_devices_that_no_pod_can_claim_hide_no_other_of_their_slice():
    strange, split = gpu("gpu-0", {"type": "vfio"}), part("gpu-1", counters=("gpu-2",))
    assert units(inventory([published("s1", strange, split, gpu("gpu-2"))])) == {"n1": {"h100-80gb": 1}}
    # Nor do those that several nodes reach.
    shared = published("s1", gpu("gpu-0"), gpu("gpu-1", node="n1"), node="")
    assert units(inventory([shared])) == {"n1": {"h100-80gb": 1}}


def test_models_and_parts_of_one_node_are_flavors_of_their_own():
    mixed = published("s1", gpu("a"), gpu("b", H100 | {"productName": "NVIDIA L4"}), part("c"), part("d"))
    assert units(inventory([mixed])) == {"n1": {"h100-80gb": 1, "l4": 1, "h100-80gb-mig-1g.10gb": 2}}


def test_devices_of_one_name_that_differ_in_memory_are_one_flavor_with_the_least():
    less = replace(gpu("b"), memory="80000Mi")
    taken = inventory([published("s1", gpu("a"), less)]).snapshot()
    [(device, count)] = taken.claimable.by_node["n1"].items()
    assert (device.memory_mib, count) == (80000, 2)


def test_what_a_driver_cuts_on_demand_counts_as_the_whole_that_it_is_cut_from():
    cut = (gpu("gpu-0", counters=("set-0",)), part("p-0", counters=("set-0",)), part("p-1", counters=("set-0",)))
    made = inventory([published("s1", *cut, gpu("gpu-1", counters=("set-1",)))])
    assert units(made) == {"n1": {"h100-80gb": 2}}
    made.see_claims("listed", [claim("a", "p-0"), claim("b", "p-1")])
    assert in_use(made) == (1, 1)


def test_a_node_that_announces_the_same_devices_is_not_counted_twice():
    labels = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    made = inventory([published()], [claim("a", "gpu-0")], [node(labels=labels, nvidia_com__gpu="2")])
    assert units(made) == {"n1": {"h100-80gb": 2}}
    assert made.snapshot().foreign["n1"].devices == {"nvidia.com/gpu": 1}
    # what the plugin left behind when it went
    assert units(inventory([published()], nodes=[node(labels=labels, nvidia_com__gpu="0")])) == {"n1": {"h100-80gb": 2}}


def test_an_allocated_device_of_a_shared_kind_takes_all_its_shares():
    labels = {"nvidia.com/gpu.product": "NVIDIA-L4-SHARED", "nvidia.com/gpu.replicas": "4"}
    made = inventory([published()], [claim("a", "gpu-0")], [node(labels=labels, nvidia_com__gpu="8")])
    assert made.snapshot().used_devices == {"n1": {"nvidia.com/gpu": 4}}


def test_devices_allocated_to_strangers_are_theirs_and_ours_are_only_in_use():
    made = inventory([published()], [claim("a", "gpu-0"), claim("b", "gpu-1", ours=True)])
    assert in_use(made) == (2, 1)
    made.see_claims("deleted", [claim("a", "gpu-0")])
    assert in_use(made) == (1, 0)
    made.see_claims("changed", [claim("b", ours=True)])
    assert in_use(made) == (0, 0)


@pytest.mark.parametrize(
    "held",
    [
        claim("a", "gpu-9"),
        claim("a", "gpu-0", pool="n2"),
        claim("a", "gpu-0", driver="dra.example.com"),
        claim("a"),
    ],
)
def test_what_is_allocated_of_other_devices_takes_none_of_these(held):
    assert in_use(inventory([published()], [held])) == (0, 0)


def test_a_device_allocated_to_several_claims_is_taken_once():
    made = inventory([published()], [claim("a", "gpu-0"), claim("b", "gpu-0", ours=True), claim("c", "gpu-0", "gpu-0")])
    assert in_use(made) == (1, 1)


def test_a_tainted_device_is_neither_there_nor_in_use():
    made = inventory([published("s1", gpu("gpu-0", is_tainted=True), gpu("gpu-1"))], [claim("a", "gpu-0", "gpu-1")])
    assert in_use(made) == (1, 1)


def test_a_class_that_is_not_there_is_said_until_it_is():
    made = inventory([published()])
    made.see_classes([])
    assert made.dirty
    [device] = made.snapshot().claimable.by_node["n1"]
    assert device.unplaceable == "its cluster has no DeviceClass gpu.nvidia.com"
    made.see_classes(CLASSES)
    [device] = made.snapshot().claimable.by_node["n1"]
    assert device.unplaceable == ""


@pytest.mark.parametrize(("arrangement", "hosts"), [("4x4", 4), ("2x4", 2), ("2x2", 1)])
def test_nodes_of_one_accelerator_must_be_labelled_with_what_makes_it_up(arrangement, hosts):
    chips = {"accelerator": "tpu-v6e-slice", "topology": arrangement, "chipCount": "4"}
    slices = [published("s1", DeviceSeen("0", chips), driver="tpu.google.com")]
    [device] = inventory(slices).snapshot().claimable.by_node["n1"]
    assert (device.slice_hosts, device.unplaceable == UNLABELLED_SLICE) == (hosts, hosts > 1)
    assert device.resource.endswith("/unlabelled") == (hosts > 1)
    labels = {"cloud.google.com/gke-tpu-topology": arrangement, "cloud.google.com/gke-accelerator-count": "4"}
    [device] = inventory(slices, nodes=[node(labels=labels)]).snapshot().claimable.by_node["n1"]
    assert device.unplaceable != UNLABELLED_SLICE


def test_where_we_may_not_look_nothing_counts_until_both_were_listed_again():
    made = inventory([published()], [claim("a", "gpu-0")])
    made.close_devices()
    assert made.is_complete
    assert made.dirty
    assert not made.sees_devices
    assert units(made) == {"n1": {"cpu": 0}}
    made.close_devices()
    assert not made.dirty
    made.see_slices("listed", [published()])
    assert units(made) == {"n1": {"cpu": 0}}
    made.see_claims("listed", [claim("a", "gpu-0")])
    assert made.sees_devices
    assert units(made) == {"n1": {"h100-80gb": 2}}
    assert in_use(made) == (1, 1)


def test_an_event_that_changes_nothing_does_not_make_it_dirty():
    made = inventory([published()], [claim("a", "gpu-0")])
    made.snapshot()
    made.see_slices("listed", [published()])
    made.see_slices("changed", [published()])
    made.see_slices("deleted", [published("unknown")])
    made.see_slices("alive", [])
    made.see_claims("listed", [claim("a", "gpu-0"), claim("pending")])
    made.see_claims("changed", [claim("a", "gpu-0"), claim("pending")])
    made.see_claims("deleted", [claim("unknown", "gpu-1")])
    made.see_classes(CLASSES)
    assert not made.dirty
    made.see_claims("changed", [claim("pending", "gpu-1")])
    assert made.dirty


@pytest.mark.parametrize(
    ("change", "left", "taken"),
    [
        (lambda made: made.see_slices("deleted", [published()]), 0, (0, 0)),
        (lambda made: made.see_slices("listed", []), 0, (0, 0)),
        (lambda made: made.see_slices("changed", [published("s1", gpu("gpu-0"))]), 1, (1, 1)),
        (lambda made: made.see_claims("deleted", [claim("a", "gpu-0")]), 2, (0, 0)),
        (lambda made: made.see_claims("listed", []), 2, (0, 0)),
        (lambda made: made.see_claims("listed", [claim("b", "gpu-0", ours=True)]), 2, (1, 0)),
        (lambda made: made.see_claims("changed", [claim("a", "gpu-0", "gpu-1")]), 2, (2, 2)),
    ],
)
def test_an_event_that_changes_something_makes_it_dirty(change, left, taken):
    made = inventory([published()], [claim("a", "gpu-0")])
    made.snapshot()
    change(made)
    assert made.dirty
    assert units(made) == {"n1": {"h100-80gb": left} if left else {"cpu": 0}}
    assert in_use(made) == taken


slices = st.builds(
    lambda name, pool, generation, count, names: published(
        name, *(gpu(each) for each in names), pool=pool, generation=generation, slice_count=count
    ),
    st.sampled_from("abc"),
    st.sampled_from(["p1", "p2"]),
    st.integers(1, 2),
    st.integers(1, 2),
    st.lists(st.sampled_from(["gpu-0", "gpu-1", "gpu-2"]), min_size=1, max_size=3),
)
claims = st.builds(
    lambda uid, names, ours, pool: claim(uid, *names, ours=ours, pool=pool),
    st.sampled_from("xyz"),
    st.lists(st.sampled_from(["gpu-0", "gpu-1", "gpu-2"]), max_size=2),
    st.booleans(),
    st.sampled_from(["p1", "p2"]),
)
kinds = st.sampled_from(["changed", "deleted"])
events = st.one_of(
    st.tuples(kinds, st.lists(slices, min_size=1, max_size=1)),
    st.tuples(st.just("listed"), st.lists(slices, unique_by=lambda each: each.name)),
    st.tuples(kinds, st.lists(claims, min_size=1, max_size=1)),
    st.tuples(st.just("listed"), st.lists(claims, unique_by=lambda each: each.uid)),
)


@pytest.mark.law
@examples(200)
@given(st.lists(events, max_size=20))
def test_kept_event_by_event_it_equals_a_fresh_list_and_no_more_is_in_use_than_there_is(history):
    kept, fresh = (DeviceInventory(INSTALL_LABEL, "test") for _ in range(2))
    alive: dict[type, dict[str, Any]] = {SliceSeen: {}, ClaimSeen: {}}
    kept.see_slices("listed", [])
    kept.see_claims("listed", [])
    for kind, seen in history:
        for what in {type(each) for each in seen}:
            see = kept.see_slices if what is SliceSeen else kept.see_claims
            see(kind, seen)
            if kind == "listed":
                alive[what] = {}
            for each in seen:
                key = each.name if what is SliceSeen else each.uid
                alive[what].pop(key, None) if kind == "deleted" else alive[what].update({key: each})
        kept.snapshot({"n1": node()})
    fresh.see_slices("listed", list(alive[SliceSeen].values()))
    fresh.see_claims("listed", list(alive[ClaimSeen].values()))
    found = kept.snapshot({"n1": node()})
    assert found == fresh.snapshot({"n1": node()})
    there = sum(found.by_node.get("n1", {}).values())
    assert sum(found.foreign.get("n1", {}).values()) <= sum(found.used.get("n1", {}).values()) <= there


def test_no_slices_are_no_pool():
    assert read_pool([]).offers == {}


def test_what_a_node_announces_later_takes_the_place_of_what_is_published():
    made = inventory([published()])
    assert units(made) == {"n1": {"h100-80gb": 2}}
    labels = {"nvidia.com/gpu.product": "NVIDIA-L4"}
    made.see_nodes("changed", [node(labels=labels, nvidia_com__gpu="8")])
    assert units(made) == {"n1": {"l4": 8}}
    made.see_nodes("listed", [node(), node("n2")])
    assert units(made) == {"n1": {"h100-80gb": 2}, "n2": {"cpu": 0}}
    made.see_nodes("deleted", [node()])
    assert units(made) == {"n2": {"cpu": 0}}
