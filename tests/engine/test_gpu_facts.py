"""What nodes and drivers report of GPUs, and which needs of jobs that meets."""

import pytest

from clusters.engine.claimable import DeviceSeen, device_of
from clusters.engine.device_inventory import DeviceInventory
from clusters.engine.devices import devices_of
from clusters.engine.gpu_facts import (
    NO_FACTS,
    GpuFacts,
    facts_of,
    is_architecture,
    joined,
    labelled,
    published,
    version_of,
)
from clusters.engine.resource_slices import SliceSeen
from placement.values.gpu_needs import GpuNeeds, is_at_least, lack_of
from placement.values.reason_codes import ReasonCode

LABELS = {
    "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
    "nvidia.com/gpu.memory": "81559",
    "nvidia.com/gpu.family": "hopper",
    "nvidia.com/gpu.compute.major": "9",
    "nvidia.com/gpu.compute.minor": "0",
    "nvidia.com/cuda.driver.major": "550",
    "nvidia.com/cuda.driver.minor": "54",
    "nvidia.com/cuda.driver.rev": "15",
    "nvidia.com/cuda.runtime.major": "12",
    "nvidia.com/cuda.runtime.minor": "4",
}
H100 = GpuFacts(81559, "hopper", (9, 0), (550, 54, 15), (12, 4))


def test_labels_report_all_facts():
    assert labelled(LABELS) == H100


@pytest.mark.parametrize("label", sorted(set(LABELS) - {"nvidia.com/gpu.product", "nvidia.com/cuda.driver.rev"}))
def test_a_missing_label_leaves_its_fact_unknown(label):
    left = labelled({key: value for key, value in LABELS.items() if key != label})
    unknown = [name for name in GpuFacts.__dataclass_fields__ if not getattr(left, name)]
    assert len(unknown) == 1
    assert left.stored().keys() == GpuFacts.__dataclass_fields__.keys() - set(unknown)


def test_a_driver_without_a_revision_is_known_by_two_numbers():
    assert labelled(LABELS | {"nvidia.com/cuda.driver.rev": ""}).driver == (550, 54)


@pytest.mark.parametrize("value", ["", "-1", "9e9", "\uff11\uff12", "12.4", " 12", "12\n", "9" * 40, "0x12", "nan"])
def test_a_hostile_label_is_an_unknown_fact(value):
    hostile = labelled(dict.fromkeys(LABELS, value))
    assert (hostile.memory_mib, hostile.compute, hostile.driver, hostile.cuda) == (0, (), (), ())


@pytest.mark.parametrize("value", ["Hopper", "hopper!", "hopper" * 9, "", "1hopper", 'a"||true', "höpper"])
def test_a_hostile_architecture_is_unknown(value):
    assert not labelled(LABELS | {"nvidia.com/gpu.family": value}).architecture
    assert not is_architecture(value)


def test_facts_are_stored_and_read_back():
    assert facts_of(H100.stored()) == H100
    assert facts_of(NO_FACTS.stored()) == NO_FACTS
    assert NO_FACTS.stored() == {}


def test_the_memory_of_a_slice_is_its_own():
    allocatable = {"nvidia.com/gpu": "1", "nvidia.com/mig-1g.10gb": "7"}
    labels = LABELS | {"nvidia.com/mig-1g.10gb.memory": "9856"}
    memory = {device.profile: device.facts.memory_mib for device in devices_of(labels, allocatable)}
    assert memory == {"": 81559, "1g.10gb": 9856}
    del labels["nvidia.com/mig-1g.10gb.memory"]
    assert {device.facts.memory_mib for device in devices_of(labels, allocatable) if device.profile} == {0}


def test_the_memory_of_a_part_of_a_gpu_that_mps_divides_is_unknown_and_that_of_a_time_slice_is_the_gpus():
    for strategy, memory in (("mps", 0), ("time-slicing", 81559)):
        shared = {"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.sharing-strategy": strategy}
        [device] = devices_of(LABELS | shared, {"nvidia.com/gpu": "4"})
        assert (device.facts.memory_mib, device.facts.driver) == (memory, (550, 54, 15))


def test_the_usual_memory_of_a_model_is_no_report():
    [device] = devices_of({"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"}, {"nvidia.com/gpu": "8"})
    assert device.memory_mib == 80 * 1024
    assert device.facts == NO_FACTS
    [device] = devices_of({"amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM"}, {"amd.com/gpu": "8"})
    assert device.facts == NO_FACTS


ATTRIBUTES = {
    "type": "gpu",
    "productName": "NVIDIA H100 80GB HBM3",
    "architecture": "Hopper",
    "cudaComputeCapability": "9.0.0",
    "driverVersion": "550.54.15",
    "cudaDriverVersion": "12.4.0",
}


def test_a_published_device_reports_all_facts():
    device = device_of("gpu.nvidia.com", DeviceSeen("gpu-0", ATTRIBUTES, "81559Mi"))
    assert device.facts == GpuFacts(81559, "hopper", (9, 0, 0), (550, 54, 15), (12, 4, 0))


def test_an_architecture_that_a_claim_could_not_name_is_unknown():
    assert published({"architecture": "Ada Lovelace"}, 0).architecture == "ada-lovelace"
    assert published({"architecture": "ada-lovelace"}, 0).architecture == "ada-lovelace"
    for odd in ("ADA LOVELACE", "Ada-Lovelace", "hOPPER", 'x" || true || "'):
        assert not published({"architecture": odd}, 0).architecture


def test_facts_do_not_make_devices_another_kind():
    """A pod claims devices of a kind, so a node's count as one: with what is known of all of them."""
    inventory = DeviceInventory("install", "me")
    inventory.see_classes(["gpu.nvidia.com"])
    older = ATTRIBUTES | {"driverVersion": "535.1.1"}
    silent = {key: ATTRIBUTES[key] for key in ("type", "productName", "driverVersion", "architecture")}
    devices = tuple(
        DeviceSeen(f"gpu-{n}", told, "81559Mi") for n, told in enumerate((ATTRIBUTES, older, silent, ATTRIBUTES))
    )
    inventory.see_slices("listed", [SliceSeen("s", "gpu.nvidia.com", "n1", 1, 1, "n1", devices)])
    inventory.see_claims("listed", [])
    [node] = [type("Node", (), {"name": "n1", "labels": {}, "allocatable": {}})()]
    [(device, units)] = inventory.snapshot({"n1": node}).by_node["n1"].items()
    assert units == 4
    assert device.facts == GpuFacts(81559, "hopper", (), (535, 1, 1), ())


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        (H100, H100, H100),
        (H100, NO_FACTS, NO_FACTS),
        (GpuFacts(architecture="hopper"), GpuFacts(architecture="ampere"), NO_FACTS),
        (GpuFacts(8, driver=(550, 5)), GpuFacts(9, driver=(535, 104)), GpuFacts(8, driver=(535, 104))),
    ],
)
def test_of_two_devices_only_the_lesser_of_known_facts_is_known(one, other, both):
    assert joined(one, other) == joined(other, one) == both


@pytest.mark.parametrize(
    ("known", "least", "is_enough"),
    [
        ((550, 54, 15), (550,), True),
        ((550, 54, 15), (550, 54, 15), True),
        ((550, 54, 15), (550, 54, 16), False),
        ((550, 54, 15), (550, 55), False),
        ((551, 0), (550, 54, 15), True),
        ((535, 999, 99), (550,), False),
        ((550, 54), (550, 54, 15), False),
        ((550, 55), (550, 54, 15), True),
        ((12, 4), (12, 4, 0), True),
        ((9, 0), (10,), False),
        ((), (1,), False),
    ],
)
def test_versions_compare_number_by_number(known, least, is_enough):
    assert is_at_least(known, least) is is_enough


@pytest.mark.parametrize(
    ("needs", "code", "message"),
    [
        (GpuNeeds(), None, ""),
        (GpuNeeds(81559, ("hopper", "blackwell"), (9, 0), (550, 54, 15), (12, 4)), None, ""),
        (GpuNeeds(memory_mib=81920), ReasonCode.GPU_MEMORY_TOO_SMALL, "79.6 GiB of memory is less than 80 GiB"),
        (GpuNeeds(architectures=("ampere",)), ReasonCode.GPU_ARCHITECTURE_EXCLUDED, "architecture hopper is not ampere"),
        (GpuNeeds(compute=(10, 0)), ReasonCode.GPU_COMPUTE_TOO_LOW, "compute capability 9.0 is lower than 10.0"),
        (GpuNeeds(driver=(570,)), ReasonCode.GPU_DRIVER_TOO_OLD, "driver 550.54.15 is older than 570"),
        (GpuNeeds(cuda=(12, 8)), ReasonCode.GPU_CUDA_TOO_OLD, "CUDA 12.4 is older than 12.8"),
        (GpuNeeds(cuda=(12, 4, 1)), ReasonCode.GPU_FACT_UNKNOWN,
         "nothing reports the CUDA version, and the job needs at least 12.4.1"),
    ],
)  # fmt: skip
def test_a_gpu_lacks_the_first_need_that_it_does_not_meet(needs, code, message):
    lack = lack_of(needs, H100)
    assert lack == (None if code is None else (code, message))


@pytest.mark.parametrize(
    ("needs", "message"),
    [
        (GpuNeeds(memory_mib=40960), "nothing reports the memory, and the job needs at least 40 GiB"),
        (
            GpuNeeds(architectures=("ampere", "hopper")),
            "nothing reports the architecture, and the job needs ampere or hopper",
        ),
        (GpuNeeds(compute=(8, 9)), "nothing reports the compute capability, and the job needs at least 8.9"),
        (GpuNeeds(driver=(550,)), "nothing reports the driver version, and the job needs at least 550"),
        (GpuNeeds(cuda=(12,)), "nothing reports the CUDA version, and the job needs at least 12"),
    ],
)
def test_what_nothing_reports_meets_no_need(needs, message):
    assert lack_of(needs, NO_FACTS) == (ReasonCode.GPU_FACT_UNKNOWN, message)


@pytest.mark.parametrize("text", ["", "5", "550.54.15", "550.54.15.1", "v550", "550.", "-5", "\uff15", "5" * 9])
def test_only_up_to_three_plain_numbers_are_a_version(text):
    assert version_of(text) == {"5": (5,), "550.54.15": (550, 54, 15)}.get(text, ())
