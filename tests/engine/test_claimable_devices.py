"""Devices as drivers of dynamic resource allocation publish them: what they are taken to be, and how a claim asks for them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters.engine.claimable import DRIVERS, SHARED_BY_CAPACITY, UNSELECTABLE, DeviceSeen, device_of
from clusters.engine.devices import UNKNOWN_PARTS, UNKNOWN_PROFILE
from clusters.engine.flavors import flavors_of

H100 = {"type": "gpu", "productName": "NVIDIA H100 80GB HBM3", "uuid": "GPU-1", "architecture": "Hopper"}
H100_SLICE = {"type": "mig", "productName": "NVIDIA H100 80GB HBM3", "profile": "1g.10gb", "parentUUID": "GPU-1"}
MI300X = {
    "type": "amdgpu",
    "productName": "AMD_Instinct_MI300X_OAM",
    "deviceID": "0x74a1",
    "partitionProfile": "spx_nps1",
}
CPX = MI300X | {"type": "amdgpu-partition", "partitionProfile": "cpx_nps4"}
MAX = {"model": "Max 1550", "family": "Data Center GPU Max", "pciId": "0x0bd5"}
TPU = {"accelerator": "tpu-v6e-slice", "topology": "2x4", "chipCount": "8", "tpuGen": "v6e"}


def seen(attributes, memory="", **more) -> DeviceSeen:
    return DeviceSeen("gpu-0", attributes, memory, **more)


CASES = [
    ("gpu.nvidia.com", H100, "81559Mi", ("h100-80gb", "nvidia", "whole", 81559, "gpu.nvidia.com")),
    (
        "gpu.nvidia.com",
        H100_SLICE,
        "9984Mi",
        ("h100-80gb-mig-1g.10gb", "nvidia", "mig:1g.10gb", 9984, "mig.nvidia.com"),
    ),
    ("gpu.nvidia.com", H100_SLICE, "", ("h100-80gb-mig-1g.10gb", "nvidia", "mig:1g.10gb", 10240, "mig.nvidia.com")),
    ("gpu.nvidia.com", H100 | {"productName": "Tesla T4"}, "15Gi", ("t4", "nvidia", "whole", 15360, "gpu.nvidia.com")),
    (
        "gpu.nvidia.com",
        H100 | {"productName": "NVIDIA H100 PCIe"},
        "80Gi",
        ("h100-80gb-pcie", "nvidia", "whole", 81920, "gpu.nvidia.com"),
    ),
    (
        "gpu.nvidia.com",
        {"type": "gpu", "productName": "NVIDIA A100"},
        "80Gi",
        ("a100-80gb", "nvidia", "whole", 81920, "gpu.nvidia.com"),
    ),
    ("gpu.amd.com", MI300X, "196592Mi", ("mi300x", "amd", "whole", 196592, "gpu.amd.com")),
    ("gpu.amd.com", CPX, "24574Mi", ("mi300x-cpx-nps4", "amd", "timeslice:8", 24574, "gpu.amd.com")),
    *(
        (
            "gpu.amd.com",
            CPX | {"partitionProfile": f"{cut}_nps1"},
            "",
            (f"mi300x-{cut}-nps1", "amd", f"timeslice:{parts}", 196608 // parts, "gpu.amd.com"),
        )
        for cut, parts in (("dpx", 2), ("tpx", 3), ("qpx", 4), ("cpx", 8))
    ),
    ("gpu.amd.com", {"type": "amdgpu", "deviceID": "0x740F"}, "0", ("mi210", "amd", "whole", 65536, "gpu.amd.com")),
    ("gpu.intel.com", MAX, "131072Mi", ("max-1550", "intel", "whole", 131072, "gpu.intel.com")),
    ("gaudi.intel.com", {"model": "Gaudi2"}, "", ("gaudi2", "intel", "whole", 98304, "gaudi.intel.com")),
    ("tpu.google.com", TPU, "", ("tpu-v6e-slice-2x4", "google", "whole", 32768, "tpu.google.com")),
]


@pytest.mark.parametrize(("driver", "attributes", "memory", "expected"), CASES)
def test_a_published_device_is_the_flavor_that_labels_would_give(driver, attributes, memory, expected):
    device = device_of(driver, seen(attributes, memory))
    [offer], _ = flavors_of({}, {}, {device: 8})
    found = (offer.name, offer.vendor, offer.sharing, offer.gpu_memory_mib, offer.device_class)
    assert found == expected
    assert (offer.units, offer.unplaceable) == (8, "")
    assert len(offer.resource_name) <= 120
    assert offer.resource_name.count("/") == 2


@pytest.mark.parametrize(
    ("driver", "attributes", "expected"),
    [
        ("gpu.amd.com", {"productName": "AMD_Instinct_MI300X_OAM"}, ("MI300X", 196608, 1, "")),
        ("gpu.amd.com", {"type": "amdgpu", "deviceID": "0x9999"}, ("9999", 0, 1, "")),
        ("gpu.amd.com", {"type": "amdgpu"}, ("unknown", 0, 1, UNSELECTABLE)),
        ("gpu.amd.com", {}, ("unknown", 0, 1, UNSELECTABLE)),
        ("gpu.amd.com", MI300X | {"partitionProfile": "odd"}, ("MI300X", 196608, 1, "")),
        ("gpu.intel.com", {"model": "Max 1100"}, ("Max-1100", 49152, 1, "")),
        ("gpu.intel.com", {}, ("intel-gpu", 0, 1, UNSELECTABLE)),
        ("gaudi.intel.com", {"model": "odd"}, ("Gaudi", 32768, 1, "")),
        ("gaudi.intel.com", {}, ("Gaudi", 32768, 1, UNSELECTABLE)),
        ("tpu.google.com", {"tpuGen": "v6e"}, ("v6e", 0, 1, "")),
        ("tpu.google.com", {}, ("tpu", 0, 1, UNSELECTABLE)),
        ("tpu.google.com", TPU | {"chipCount": "4"}, ("tpu-v6e-slice", 32768, 2, "")),
        ("tpu.google.com", TPU | {"chipCount": "odd", "topology": "4x4"}, ("tpu-v6e-slice", 32768, 4, "")),
        ("tpu.google.com", TPU | {"topology": "odd"}, ("tpu-v6e-slice", 32768, 1, "")),
        ("gpu.nvidia.com", {"type": "gpu"}, ("unknown", 0, 1, UNSELECTABLE)),
        ("gpu.nvidia.com", {"type": "mig", "profile": "1g.10gb"}, ("unknown", 10240, 1, "")),
    ],
)
def test_what_a_device_does_not_publish_has_its_usual_value(driver, attributes, expected):
    device = device_of(driver, seen(attributes))
    assert (device.model, device.memory_mib, device.slice_hosts, device.unplaceable) == expected
    assert (device.resource.startswith(f"claim/{driver}/"), device.profile) == (True, attributes.get("profile", ""))


def test_a_kind_is_counted_by_a_name_of_its_driver_and_words_that_stays():
    assert device_of("gpu.nvidia.com", seen(H100)).resource == "claim/gpu.nvidia.com/nvidia-h100-80gb-hbm3-a972c9d3"
    shared = device_of("gpu.nvidia.com", seen(H100, is_shared=True))
    assert shared.resource == "claim/gpu.nvidia.com/nvidia-h100-80gb-hbm3-a972c9d3/shared"
    assert device_of("gpu.intel.com", seen({})).resource == "claim/gpu.intel.com/b5d06457"


def test_a_claim_asks_for_the_like_and_looks_whether_an_attribute_is_there_first():
    device = device_of("gpu.nvidia.com", seen(H100_SLICE))
    assert device.cel == (
        'device.driver == "gpu.nvidia.com"'
        ' && "type" in device.attributes["gpu.nvidia.com"] && device.attributes["gpu.nvidia.com"].type == "mig"'
        ' && "productName" in device.attributes["gpu.nvidia.com"]'
        ' && device.attributes["gpu.nvidia.com"].productName == "NVIDIA H100 80GB HBM3"'
        ' && "profile" in device.attributes["gpu.nvidia.com"] && device.attributes["gpu.nvidia.com"].profile == "1g.10gb"'
    )


def test_a_name_with_quotes_stays_one_string_of_the_expression():
    device = device_of("gpu.nvidia.com", seen(H100 | {"productName": 'A" || true || "\\'}))
    assert device.cel.endswith(r'.productName == "A\" || true || \"\\"')
    assert len(device.cel) <= 1000


@pytest.mark.parametrize(
    ("driver", "attributes", "more", "why"),
    [
        ("gpu.nvidia.com", {"type": "gpu"}, {}, UNSELECTABLE),
        ("gpu.nvidia.com", H100 | {"productName": "Ü" * 20}, {}, UNSELECTABLE),
        ("gpu.nvidia.com", H100 | {"productName": "\ud800"}, {}, UNSELECTABLE),
        ("gpu.nvidia.com", H100 | {"productName": "x" * 65}, {}, UNSELECTABLE),
        ("gpu.nvidia.com", H100_SLICE | {"profile": "9q"}, {}, UNKNOWN_PROFILE),
        ("gpu.amd.com", CPX | {"productName": "MI999X"}, {}, UNKNOWN_PARTS),
        ("gpu.nvidia.com", H100, {"is_shared": True}, SHARED_BY_CAPACITY),
        ("gpu.intel.com", {}, {}, UNSELECTABLE),
    ],
)
def test_what_no_claim_can_ask_for_is_shown_and_says_why(driver, attributes, more, why):
    device = device_of(driver, seen(attributes, **more))
    assert device.unplaceable == why


@pytest.mark.parametrize(
    ("driver", "attributes"),
    [
        ("gpu.nvidia.com", H100 | {"type": "vfio"}),
        ("gpu.nvidia.com", {}),
        ("gpu.amd.com", MI300X | {"type": "vfio"}),
        ("compute-domain.nvidia.com", {"type": "channel"}),
        ("", H100),
        ("gpu.nvidia.com.evil.example", H100),
    ],
)
def test_what_is_no_accelerator_that_we_know_is_nothing(driver, attributes):
    assert device_of(driver, seen(attributes)) is None


@pytest.mark.parametrize("memory", ["", "-1", "NaN", "1e999", "9" * 70, "ü", "1Zi"])
def test_a_memory_that_no_device_has_is_the_models_usual(memory):
    assert device_of("gpu.nvidia.com", seen(H100, memory)).memory_mib == 81920


@pytest.mark.law
@given(
    st.sampled_from(sorted(DRIVERS)),
    st.dictionaries(
        st.sampled_from(
            ["type", "productName", "profile", "model", "accelerator", "topology", "chipCount", "deviceID"]
        ),
        st.text(max_size=80) | st.sampled_from(["gpu", "mig", "amdgpu-partition", "1g.10gb", "9999x9999x9999x9999"]),
    ),
    st.text(max_size=20),
)
def test_nothing_that_is_published_breaks_what_is_stored(driver, attributes, memory):
    device = device_of(driver, seen(attributes, memory))
    if device is None:
        return
    [offer], _ = flavors_of({}, {}, {device: 1})
    assert len(offer.name) <= 120
    assert len(offer.gpu_model) <= 63
    assert len(offer.resource_name) <= 120
    assert len(offer.cel) <= 1000
    assert all(text.isascii() and text.isprintable() for text in (offer.gpu_model, offer.resource_name, offer.cel))
    assert 0 <= offer.gpu_memory_mib < 2**31
    assert 1 <= offer.slice_hosts <= 10_000
    assert offer.cel or offer.unplaceable


@pytest.mark.parametrize(
    ("driver", "attributes", "asked"),
    [
        ("gpu.nvidia.com", H100, ["type", "productName"]),
        ("gpu.amd.com", {"productName": "A", "deviceID": "0x1", "type": "amdgpu"}, ["type", "productName"]),
        ("gpu.amd.com", {"deviceID": "0x1"}, ["deviceID"]),
        ("gpu.amd.com", {"productName": "A", "partitionProfile": "cpx_nps4"}, ["productName", "partitionProfile"]),
        ("gpu.intel.com", {"model": "Max 1100", "type": "gpu"}, ["model"]),
        ("gaudi.intel.com", {"model": "Gaudi3"}, ["model"]),
        ("tpu.google.com", {"accelerator": "a", "tpuGen": "v6e", "topology": "2x2"}, ["accelerator", "topology"]),
        ("tpu.google.com", {"tpuGen": "v6e", "topology": "2x2"}, ["tpuGen", "topology"]),
        ("tpu.google.com", {"tpuGen": "v6e"}, ["tpuGen"]),
    ],
)
def test_a_claim_asks_for_the_attributes_that_identify_a_kind(driver, attributes, asked):
    cel = device_of(driver, seen(attributes)).cel
    tests = [f'device.driver == "{driver}"']
    for key in asked:
        tests.append(f'"{key}" in device.attributes["{driver}"]')
        tests.append(f'device.attributes["{driver}"].{key} == "{attributes[key]}"')
    assert cel == " && ".join(tests)
