"""Nodes of every vendor, labelled as their plugins and clouds label them, and what they are taken to offer."""

import pytest

from clusters.engine.devices import (
    SHARED_SLICE,
    SLICES_ON_DEMAND,
    UNKNOWN_PARTS,
    UNKNOWN_PROFILE,
    UNKNOWN_SHARES,
    Device,
    announced,
)
from clusters.engine.flavors import FlavorOffer, flavors_of, key_of, unify
from clusters.engine.inventory import node_record
from clusters.engine.topology import domain_of, label_of, selector_of
from tests.engine.test_clusters_inventory import node

T4 = {
    "nvidia.com/gpu.count": "4",
    "nvidia.com/gpu.family": "turing",
    "nvidia.com/gpu.memory": "15360",
    "nvidia.com/gpu.present": "true",
    "nvidia.com/gpu.product": "Tesla-T4",
    "nvidia.com/mig.capable": "false",
    "nvidia.com/mps.capable": "false",
}
SLICED = {"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.sharing-strategy": "time-slicing"}
MPS = {"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.sharing-strategy": "mps", "nvidia.com/mps.capable": "true"}
MI300X = {
    "amd.com/gpu.cu-count": "304",
    "amd.com/gpu.device-id": "74a1",
    "amd.com/gpu.family": "AI",
    "amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM",
    "amd.com/gpu.simd-count": "1216",
    "amd.com/gpu.vram": "192G",
    "amd.com/compute-partitioning-supported": "true",
    "amd.com/memory-partitioning-supported": "true",
}
MAX_1550 = {
    "gpu.intel.com/device-id.0380-0bd5.count": "2",
    "gpu.intel.com/device-id.0380-0bd5.present": "true",
    "gpu.intel.com/device.count": "2",
    "gpu.intel.com/family": "Max_Series",
    "gpu.intel.com/product": "Max_1550",
}


def tpu(topology: str, pool: str = "pool-1", accelerator: str = "tpu-v6e-slice", chips: str = "4") -> dict[str, str]:
    return {
        "cloud.google.com/gke-accelerator-count": chips,
        "cloud.google.com/gke-nodepool": pool,
        "cloud.google.com/gke-tpu-accelerator": accelerator,
        "cloud.google.com/gke-tpu-topology": topology,
    }


def offers(labels: dict[str, str], **amounts: str) -> list[FlavorOffer]:
    found, problems = flavors_of(labels, {"cpu": "64", "memory": "256Gi", "pods": "110", **amounts})
    assert problems == ()
    return list(found)


def told(labels: dict[str, str], amounts: dict[str, str]) -> list[tuple[str, str, str, int, int, str]]:
    return [
        (one.name, one.vendor, one.sharing, one.units, one.gpu_memory_mib, one.unplaceable)
        for one in offers(labels, **amounts)
    ]


@pytest.mark.parametrize(
    ("labels", "amounts", "expected"),
    [
        (T4 | {"nvidia.com/gpu.replicas": "1", "nvidia.com/gpu.sharing-strategy": "none"}, {"nvidia.com/gpu": "4"}, [("t4", "nvidia", "whole", 4, 15360, "")]),
        (T4 | SLICED | {"nvidia.com/gpu.product": "Tesla-T4-SHARED"}, {"nvidia.com/gpu": "16"}, [("t4-shared-4", "nvidia", "timeslice:4", 16, 15360, "")]),
        (T4 | SLICED, {"nvidia.com/gpu": "0", "nvidia.com/gpu.shared": "16"}, [("t4-shared-4", "nvidia", "timeslice:4", 16, 15360, "")]),
        (T4 | MPS | {"nvidia.com/gpu.product": "Tesla-T4-SHARED"}, {"nvidia.com/gpu": "16"}, [("t4-mps-4", "nvidia", "timeslice:4", 16, 3840, "")]),
        (T4 | MPS, {"nvidia.com/gpu.shared": "16"}, [("t4-mps-4", "nvidia", "timeslice:4", 16, 3840, "")]),
        # without discovery's replicas: by the count, or not at all
        (T4, {"nvidia.com/gpu.shared": "16"}, [("t4-shared-4", "nvidia", "timeslice:4", 16, 15360, "")]),
        (T4, {"nvidia.com/gpu.shared": "15"}, [("t4-shared", "nvidia", "timeslice:1", 15, 15360, UNKNOWN_SHARES)]),
        ({}, {"nvidia.com/gpu.shared": "8"}, [("unknown-shared", "nvidia", "timeslice:1", 8, 0, UNKNOWN_SHARES)]),
        # replicas of one say nothing about shares, the count does
        (T4 | SLICED | {"nvidia.com/gpu.replicas": "1"}, {"nvidia.com/gpu": "16"}, [("t4-shared-4", "nvidia", "timeslice:4", 16, 15360, "")]),
        # some of the GPUs are shared under another name, the others are whole
        (T4 | SLICED, {"nvidia.com/gpu": "2", "nvidia.com/gpu.shared": "8"}, [("t4", "nvidia", "whole", 2, 15360, ""), ("t4-shared-4", "nvidia", "timeslice:4", 8, 15360, "")]),
        ({"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB", "nvidia.com/mig-1g.5gb.replicas": "2"}, {"nvidia.com/mig-1g.5gb.shared": "14"}, [("a100-40gb-mig-1g.5gb-shared-2", "nvidia", "mig:1g.5gb", 14, 5120, SHARED_SLICE)]),
        ({"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-9x"}, {"nvidia.com/gpu": "7"}, [("a100-40gb", "nvidia", "whole", 7, 40960, UNKNOWN_PROFILE)]),
        ({"cloud.google.com/gke-accelerator": "nvidia-l4", "cloud.google.com/gke-gpu-sharing-strategy": "mps", "cloud.google.com/gke-max-shared-clients-per-gpu": "2"}, {"nvidia.com/gpu": "2"}, [("l4-mps-2", "nvidia", "timeslice:2", 2, 12288, "")]),
        (MI300X, {"amd.com/gpu": "8"}, [("mi300x", "amd", "whole", 8, 196608, "")]),
        (MI300X | {"amd.com/compute-memory-partition": "spx_nps1"}, {"amd.com/gpu": "8"}, [("mi300x", "amd", "whole", 8, 196608, "")]),
        (MI300X | {"amd.com/compute-memory-partition": "dpx_nps1"}, {"amd.com/gpu": "16"}, [("mi300x-dpx-nps1", "amd", "timeslice:2", 16, 98304, "")]),
        (MI300X | {"amd.com/compute-memory-partition": "tpx_nps1"}, {"amd.com/gpu": "24"}, [("mi300x-tpx-nps1", "amd", "timeslice:3", 24, 65536, "")]),
        (MI300X | {"amd.com/compute-memory-partition": "qpx_nps1"}, {"amd.com/gpu": "32"}, [("mi300x-qpx-nps1", "amd", "timeslice:4", 32, 49152, "")]),
        (MI300X | {"amd.com/compute-memory-partition": "cpx_nps4"}, {"amd.com/gpu": "64"}, [("mi300x-cpx-nps4", "amd", "timeslice:8", 64, 24576, "")]),
        (MI300X | {"amd.com/compute-memory-partition": "cpx_nps4"}, {"amd.com/cpx_nps4": "64"}, [("mi300x-cpx-nps4", "amd", "timeslice:8", 64, 24576, "")]),
        (MI300X, {"amd.com/spx_nps1": "5", "amd.com/cpx_nps1": "24"}, [("mi300x-cpx-nps1", "amd", "timeslice:8", 24, 24576, ""), ("mi300x", "amd", "whole", 5, 196608, "")]),
        ({"amd.com/gpu.product-name": "Odd"}, {"amd.com/cpx_nps1": "8"}, [("odd-cpx-nps1", "amd", "timeslice:1", 8, 0, UNKNOWN_PARTS)]),
        (MAX_1550, {"gpu.intel.com/i915": "2", "gpu.intel.com/i915_monitoring": "1"}, [("max-1550", "intel", "whole", 2, 131072, "")]),
        (MAX_1550, {"gpu.intel.com/xe": "2"}, [("max-1550", "intel", "whole", 2, 131072, "")]),
        (MAX_1550, {"gpu.intel.com/xe": "20"}, [("max-1550-shared-10", "intel", "timeslice:10", 20, 131072, "")]),
        ({}, {"gpu.intel.com/i915": "1"}, [("intel-gpu", "intel", "whole", 1, 0, "")]),
        ({}, {"habana.ai/gaudi": "8"}, [("gaudi", "intel", "whole", 8, 0, "")]),
        ({"node.kubernetes.io/instance-type": "gx3d-160x1792x8gaudi3"}, {"habana.ai/gaudi": "8"}, [("gaudi3", "intel", "whole", 8, 131072, "")]),
        ({"node.kubernetes.io/instance-type": "dl1.24xlarge"}, {"habana.ai/gaudi": "8"}, [("gaudi", "intel", "whole", 8, 32768, "")]),
        (tpu("2x2"), {"google.com/tpu": "4"}, [("tpu-v6e-slice-2x2", "google", "whole", 4, 32768, "")]),
        (tpu("4x4") | {"cloud.google.com/gke-accelerator-topology-mode": "PROVISION_ONLY"}, {"google.com/tpu": "4"}, [("tpu-v6e-slice-4x4", "google", "whole", 4, 32768, SLICES_ON_DEMAND)]),
        ({}, {"google.com/tpu": "4"}, [("tpu", "google", "whole", 4, 0, "")]),
    ],
)  # fmt: skip
def test_what_a_node_offers(labels, amounts, expected):
    assert told(labels, amounts) == expected


@pytest.mark.parametrize("profile", ["abc", "0g.5gb", "g.5gb", "99g.1gb", "1g", "1g.gb"])
def test_a_mig_resource_of_no_known_profile_is_no_device(profile):
    (offer,) = offers({}, **{f"nvidia.com/mig-{profile}": "7"})
    assert offer.name == "cpu"


@pytest.mark.parametrize(
    ("topology", "chips", "hosts"),
    [("2x2", "4", 1), ("2x4", "4", 2), ("4x4", "4", 4), ("2x2x2", "4", 2), ("4x4x4", "4", 16), ("1x1", "1", 1), ("1x1", "4", 1),
     ("2x4", "8", 1), ("4x4", "", 4), ("4x4", "0", 16), ("4x4", "-1", 4), ("", "4", 1), ("9999x9999x9999", "1", 10_000),
     ("4x", "4", 1), ("x" * 300, "4", 1), ("\uff14x\uff14", "4", 1)],
)  # fmt: skip
def test_how_many_hosts_a_tpu_slice_has(topology, chips, hosts):
    (offer,) = offers(tpu(topology, chips=chips), **{"google.com/tpu": "4"})
    assert offer.slice_hosts == hosts


def test_hosts_of_a_tpu_slice_share_a_clique_and_single_hosts_do_not():
    many, single = tpu("4x4", "pool-a"), tpu("2x2", "pool-b")
    formed = many | {"cloud.google.com/gke-tpu-slice": "slice-1"}
    assert [domain_of("n", labels)[4] for labels in (many, single, formed)] == ["pool-a", "", "slice-1"]
    assert label_of("clique", many) == ("cloud.google.com/gke-nodepool", "pool-a")
    in_use = {key for labels in (many, formed) for key in labels}
    assert selector_of("clique", many, in_use) == {
        "!cloud.google.com/gke-tpu-slice": "*",
        "cloud.google.com/gke-nodepool": "pool-a",
    }
    kept = node_record(node(labels=many, allocatable={"google.com/tpu": "4"})).labels
    assert {"cloud.google.com/gke-nodepool", "cloud.google.com/gke-tpu-topology"} <= set(kept)


def test_arrangements_are_flavors_of_their_own():
    found = [offers(tpu(topology), **{"google.com/tpu": "4"})[0] for topology in ("2x2", "4x4")]
    flavors, _ = unify(found)
    assert {name: flavor.node_selector["cloud.google.com/gke-tpu-topology"] for name, flavor in flavors.items()} == {
        "tpu-v6e-slice-2x2": "2x2",
        "tpu-v6e-slice-4x4": "4x4",
    }
    assert {flavor.gpu_model for flavor in flavors.values()} == {"tpu-v6e-slice"}


def test_one_product_under_two_resources_is_two_flavors():
    found = [offers(MAX_1550, **{resource: "2"})[0] for resource in ("gpu.intel.com/i915", "gpu.intel.com/xe")]
    flavors, names = unify(found)
    assert [flavors[names[key_of(one)]].resource_name for one in found] == ["gpu.intel.com/i915", "gpu.intel.com/xe"]


def test_an_instance_type_that_tells_a_generation_does_not_keep_cpu_nodes_out():
    gaudi = offers({"node.kubernetes.io/instance-type": "dl1.24xlarge"}, **{"habana.ai/gaudi": "8"})
    flavors, _ = unify([*gaudi, *offers({"node.kubernetes.io/instance-type": "m7i.large"})])
    assert flavors["cpu"].node_selector == {}


def test_a_device_that_is_announced_is_asked_for_by_its_resource_alone():
    ((found, units),) = announced({}, {"nvidia.com/gpu": "2"})
    assert found == Device("nvidia", "unknown", "", 0, "nvidia.com/gpu", (), "", 1, "shared", "", 1, "", "", "")
    assert units == 2
