"""Label sets as plugins and clouds really write them, and the flavors they mean."""

import re

import pytest

from clusters.engine.flavors import FlavorOffer, capacity_of, flavors_of, key_of, match_expressions, unify
from clusters.engine.gpu_models import AMD_DEVICE_IDS, amd_model, nvidia_model, usual_memory_mib
from clusters.engine.taints import tolerations_for, untolerated


def gfd(product: str, memory_mib: int, **facts: str) -> dict[str, str]:
    """What GPU feature discovery says of a node."""
    return {
        "nvidia.com/gpu.product": product,
        "nvidia.com/gpu.memory": str(memory_mib),
        "nvidia.com/gpu.count": "8",
        "nvidia.com/gpu.replicas": "1",
        "nvidia.com/gpu.sharing-strategy": "none",
        "nvidia.com/mig.strategy": "single",
        **{f"nvidia.com/{key.replace('__', '.')}": value for key, value in facts.items()},
    }


def only(labels: dict[str, str], **allocatable: str) -> FlavorOffer:
    resources = {key.replace("__", ".com/").replace("_", "-"): value for key, value in allocatable.items()}
    (offer,), problems = flavors_of(labels, {"cpu": "64", "memory": "256Gi", **resources})
    assert problems == ()
    return offer


@pytest.mark.parametrize(
    ("product", "memory_mib", "model", "variant"),
    [
        ("Tesla-T4", 15360, "T4", ""),
        ("Tesla-V100-SXM2-16GB", 16384, "V100-16GB", ""),
        ("Tesla-V100-PCIE-32GB", 32768, "V100-32GB", "pcie"),
        ("Tesla-P100-PCIE-16GB", 16384, "P100-16GB", "pcie"),
        ("NVIDIA-A100-SXM4-40GB", 40960, "A100-40GB", ""),
        ("NVIDIA-A100-SXM4-80GB", 81920, "A100-80GB", ""),
        ("NVIDIA-A100-80GB-PCIe", 81920, "A100-80GB", "pcie"),
        ("A100-SXM4-40GB", 40536, "A100-40GB", ""),
        ("NVIDIA-H100-80GB-HBM3", 81559, "H100-80GB", ""),
        ("NVIDIA-H100-PCIe", 81559, "H100-80GB", "pcie"),
        ("NVIDIA-H100-NVL", 95830, "H100-94GB", "nvl"),
        ("NVIDIA-H200", 143771, "H200", ""),
        ("NVIDIA-GH200-480GB", 97871, "GH200", ""),
        ("NVIDIA-B200", 183359, "B200", ""),
        ("NVIDIA-GB200", 189471, "GB200", ""),
        ("NVIDIA-A10G", 23028, "A10G", ""),
        ("NVIDIA-L40S", 46068, "L40S", ""),
        ("NVIDIA-L4", 23034, "L4", ""),
        ("NVIDIA-RTX-A6000", 49140, "RTX-A6000", ""),
        ("NVIDIA-RTX-6000-Ada-Generation", 49140, "RTX-6000-Ada", ""),
        ("NVIDIA-GeForce-RTX-4090", 24564, "RTX-4090", ""),
        ("NVIDIA-GeForce-RTX-3080-Ti", 12288, "RTX-3080-Ti", ""),
        ("nvidia-tesla-a100", 0, "A100-40GB", ""),
        ("nvidia-a100-80gb", 0, "A100-80GB", ""),
        ("nvidia-h100-mega-80gb", 0, "H100-80GB", "mega"),
        ("nvidia-tesla-t4", 0, "T4", ""),
        ("Some-Future-Card-9000", 1, "Some-Future-Card-9000", ""),
        ("NVIDIA-L400", 1, "NVIDIA-L400", ""),
    ],
)
def test_products_get_their_canonical_name(product, memory_mib, model, variant):
    assert nvidia_model(product, memory_mib) == (model, variant)


@pytest.mark.parametrize(
    ("product", "model"),
    [("AMD_Instinct_MI300X_OAM", "MI300X"), ("AMD-Instinct-MI250X", "MI250X"), ("MI210", "MI210"), ("Odd", "Odd")],
)
def test_amd_products_get_their_canonical_name(product, model):
    assert amd_model(product) == model


def test_a_whole_gpu():
    offer = only(gfd("NVIDIA-H100-80GB-HBM3", 81559), nvidia__gpu="8")
    assert (offer.name, offer.vendor, offer.gpu_model, offer.gpu_memory_mib) == (
        "h100-80gb",
        "nvidia",
        "H100-80GB",
        81559,
    )
    assert (offer.sharing, offer.capacity_type, offer.units) == ("whole", "on_demand", 8)
    assert offer.resource_name == "nvidia.com/gpu"
    assert (offer.device_class, offer.cel, offer.unplaceable) == ("", "", "")
    assert offer.node_selector == {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}


def test_mig_in_the_mixed_strategy_offers_each_profile():
    labels = gfd("NVIDIA-A100-SXM4-80GB", 81920, mig__strategy="mixed") | {
        "nvidia.com/mig-1g.10gb.memory": "9728",
        "nvidia.com/mig-3g.40gb.memory": "40192",
    }
    resources = {"nvidia.com/gpu": "0", "nvidia.com/mig-1g.10gb": "28", "nvidia.com/mig-3g.40gb": "8"}
    offers, problems = flavors_of(labels, resources)
    assert problems == ()
    assert [(offer.name, offer.sharing, offer.gpu_memory_mib, offer.units) for offer in offers] == [
        ("a100-80gb-mig-1g.10gb", "mig:1g.10gb", 9728, 28),
        ("a100-80gb-mig-3g.40gb", "mig:3g.40gb", 40192, 8),
    ]
    assert {offer.gpu_model for offer in offers} == {"A100-80GB"}


def test_mig_in_the_single_strategy_hides_in_the_product():
    offer = only(gfd("NVIDIA-H100-80GB-HBM3-MIG-1g.10gb", 9984), nvidia__gpu="56")
    assert (offer.name, offer.sharing, offer.gpu_model) == ("h100-80gb-mig-1g.10gb", "mig:1g.10gb", "H100-80GB")
    assert (offer.gpu_memory_mib, offer.units) == (9984, 56)


def test_mig_with_media_extensions_keeps_its_plus():
    offers, _ = flavors_of(gfd("NVIDIA-A100-SXM4-40GB", 40960), {"nvidia.com/mig-1g.5gb.me": "1"})
    assert offers[0].sharing == "mig:1g.5gb+me"
    assert offers[0].resource_name == "nvidia.com/mig-1g.5gb.me"


def test_a_shared_gpu_counts_its_shares():
    labels = gfd("Tesla-T4-SHARED", 15360, gpu__replicas="4", gpu__sharing_strategy="time-slicing")
    offer = only(labels, nvidia__gpu="16")
    assert (offer.name, offer.sharing, offer.gpu_model, offer.units) == ("t4-shared-4", "timeslice:4", "T4", 16)
    assert offer.node_selector["nvidia.com/gpu.replicas"] == "4"


def test_device_ids_of_amd_are_of_four_hexadecimal_digits_and_of_models_whose_memory_is_known():
    assert all(re.fullmatch("[0-9a-f]{4}", identity) for identity in AMD_DEVICE_IDS)
    assert all(map(usual_memory_mib, AMD_DEVICE_IDS.values()))


def test_a_label_that_does_not_say_the_number_of_shares_selects_no_node():
    labels = gfd("Tesla-T4-SHARED", 15360, gpu__replicas="1", gpu__count="4", gpu__sharing_strategy="time-slicing")
    offer = only(labels, nvidia__gpu="16")
    assert (offer.name, offer.units) == ("t4-shared-4", 16)
    assert "nvidia.com/gpu.replicas" not in offer.node_selector


def test_amd_in_its_labels_old_and_new():
    new = only({"amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM", "amd.com/gpu.vram": "192G"}, amd__gpu="8")
    old = only(
        {"beta.amd.com/gpu.product-name.AMD_Instinct_MI210": "4", "beta.amd.com/gpu.vram.64G": "4"}, amd__gpu="4"
    )
    bare = only({"amd.com/gpu.device-id": "74a1"}, amd__gpu="8")
    assert [(offer.vendor, offer.gpu_model, offer.gpu_memory_mib) for offer in (new, old, bare)] == [
        ("amd", "MI300X", 196608),
        ("amd", "MI210", 65536),
        ("amd", "MI300X", 196608),
    ]
    assert old.node_selector == {"beta.amd.com/gpu.product-name.AMD_Instinct_MI210": "4"}


def test_google_names_partitions_and_shares():
    base = {"cloud.google.com/gke-accelerator": "nvidia-tesla-a100"}
    whole = only(base, nvidia__gpu="8")
    sliced = only({**base, "cloud.google.com/gke-gpu-partition-size": "1g.5gb"}, nvidia__gpu="56")
    shared = only({**base, "cloud.google.com/gke-max-shared-clients-per-gpu": "3"}, nvidia__gpu="24")
    spot = only({**base, "cloud.google.com/gke-spot": "true"}, nvidia__gpu="8")
    assert [(offer.name, offer.sharing) for offer in (whole, sliced, shared, spot)] == [
        ("a100-40gb", "whole"),
        ("a100-40gb-mig-1g.5gb", "mig:1g.5gb"),
        ("a100-40gb-shared-3", "timeslice:3"),
        ("a100-40gb-spot", "whole"),
    ]
    assert spot.node_selector["cloud.google.com/gke-spot"] == "true"


def test_other_accelerators_are_told_apart():
    tpu = only({"cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice"}, google__tpu="4")
    intel, _ = flavors_of({"gpu.intel.com/product": "Max_1550"}, {"gpu.intel.com/xe": "2"})
    gaudi, _ = flavors_of({}, {"habana.ai/gaudi": "8"})
    assert (tpu.vendor, tpu.name) == ("google", "tpu-v5-lite-podslice")
    assert (intel[0].vendor, intel[0].name) == ("intel", "max-1550")
    assert (gaudi[0].vendor, gaudi[0].name) == ("intel", "gaudi")


def test_a_gpu_nobody_labelled_is_still_offered():
    offer = only({}, nvidia__gpu="2")
    assert (offer.name, offer.gpu_model, offer.units, dict(offer.node_selector)) == ("unknown", "unknown", 2, {})


def test_a_node_without_devices_offers_cpu():
    assert only({}) == FlavorOffer("cpu", "", "", 0, "whole", "on_demand", "", {})
    assert (only({}).device_class, only({}).cel, only({}).unplaceable) == ("", "", "")
    assert only({"karpenter.sh/capacity-type": "spot"}).name == "cpu-spot"
    assert only(gfd("NVIDIA-L4", 23034), nvidia__gpu="0").name == "cpu"


@pytest.mark.parametrize("claim", ["-1", "NaN", "1000000000000", "many"])
def test_an_implausible_count_is_told_and_left_out(claim):
    offers, problems = flavors_of(gfd("NVIDIA-L4", 23034), {"nvidia.com/gpu": claim})
    assert [offer.name for offer in offers] == ["cpu"]
    assert len(problems) == 1
    assert problems[0].startswith("nvidia.com/gpu: ")


def test_an_implausible_count_of_renamed_shares_makes_no_shared_gpu_whole():
    labels = gfd("NVIDIA-L4-SHARED", 23034, gpu__replicas="4")
    offers, problems = flavors_of(labels, {"nvidia.com/gpu": "4", "nvidia.com/gpu.shared": "many"})
    assert [(offer.sharing, offer.units) for offer in offers] == [("timeslice:4", 4)]
    assert len(problems) == 1


@pytest.mark.parametrize("junk", ["", "x" * 500, "-1", "\uff19", "1e9", "A100-MIG-" + "9" * 200])
def test_junk_in_labels_does_no_harm(junk):
    labels = gfd(junk, 0, gpu__memory=junk, gpu__replicas=junk)
    offers, _ = flavors_of(labels, {"nvidia.com/gpu": "8"})
    assert offers[0].units == 8
    assert len(offers[0].name) <= 120
    assert len(offers[0].gpu_model) <= 63
    assert re.fullmatch(r"whole|mig:[0-9a-z.+-]{1,30}|timeslice:[0-9]+", offers[0].sharing)


@pytest.mark.parametrize(
    ("labels", "capacity_type"),
    [
        ({}, "on_demand"),
        ({"eks.amazonaws.com/capacityType": "SPOT"}, "spot"),
        ({"eks.amazonaws.com/capacityType": "ON_DEMAND"}, "on_demand"),
        ({"eks.amazonaws.com/capacityType": "CAPACITY_BLOCK"}, "reserved"),
        ({"karpenter.sh/capacity-type": "reserved"}, "reserved"),
        ({"cloud.google.com/gke-provisioning": "spot"}, "spot"),
        ({"cloud.google.com/gke-preemptible": "true"}, "spot"),
        ({"kubernetes.azure.com/scalesetpriority": "spot"}, "spot"),
        ({"switchyard.dev/capacity-type": "reserved", "cloud.google.com/gke-spot": "true"}, "reserved"),
        ({"switchyard.dev/capacity-type": "on-demand", "cloud.google.com/gke-spot": "true"}, "on_demand"),
        ({"switchyard.dev/capacity-type": "nonsense"}, "on_demand"),
    ],
)
def test_how_a_node_was_bought(labels, capacity_type):
    assert capacity_of(labels)[0] == capacity_type


def test_flavors_of_a_cluster_exclude_each_others_nodes():
    h100 = gfd("NVIDIA-H100-80GB-HBM3", 81559)
    offers = [
        only(h100, nvidia__gpu="8"),
        only(h100 | {"eks.amazonaws.com/capacityType": "SPOT"}, nvidia__gpu="8"),
        only({}),
    ]
    flavors, names = unify(offers)
    assert sorted(flavors) == ["cpu", "h100-80gb", "h100-80gb-spot"]
    assert [names[key_of(offer)] for offer in offers] == ["h100-80gb", "h100-80gb-spot", "cpu"]
    assert flavors["h100-80gb"].node_selector == {
        "!eks.amazonaws.com/capacityType": "SPOT",
        "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
    }
    assert flavors["cpu"].node_selector == {"!eks.amazonaws.com/capacityType": "SPOT", "!nvidia.com/gpu.product": "*"}
    assert match_expressions(flavors["cpu"].node_selector) == [
        {"key": "eks.amazonaws.com/capacityType", "operator": "NotIn", "values": ["SPOT"]},
        {"key": "nvidia.com/gpu.product", "operator": "DoesNotExist"},
    ]
    assert all(flavor.units == 0 for flavor in flavors.values())


def test_two_products_of_one_canonical_name_stay_apart():
    offers = [only(gfd(product, 81920), nvidia__gpu="8") for product in ("NVIDIA-A100-SXM4-80GB", "A100-SXM-80GB")]
    flavors, names = unify(offers)
    assert sorted(flavors) == ["a100-80gb", "a100-80gb-v2"]
    assert {flavors[names[key_of(offer)]].node_selector["nvidia.com/gpu.product"] for offer in offers} == {
        "NVIDIA-A100-SXM4-80GB",
        "A100-SXM-80GB",
    }
    assert unify(reversed(offers)) == (flavors, names)


def test_only_taints_of_accelerators_and_spot_are_tolerated():
    gpu = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    spot = {"key": "kubernetes.azure.com/scalesetpriority", "value": "spot", "effect": "NoSchedule"}
    assert untolerated([gpu], "nvidia", "on_demand") == ""
    assert untolerated([gpu, spot], "nvidia", "spot") == ""
    assert untolerated([gpu], "", "on_demand") == "nvidia.com/gpu=present:NoSchedule"
    assert untolerated([spot], "nvidia", "on_demand") == "kubernetes.azure.com/scalesetpriority=spot:NoSchedule"
    assert untolerated([{"key": "team", "effect": "PreferNoSchedule"}], "", "on_demand") == ""
    assert (
        untolerated([{"key": "nvidia.com/gpu", "effect": "NoExecute"}], "nvidia", "spot") == "nvidia.com/gpu:NoExecute"
    )
    assert untolerated([{"key": "team", "value": "a", "effect": "NoSchedule"}], "nvidia", "spot") == "team=a:NoSchedule"
    assert tolerations_for("", "on_demand") == ()


@pytest.mark.parametrize(
    ("product", "model"),
    [
        ("H100", "H100-80GB"), ("A100", "A100-40GB"), ("V100", "V100-16GB"), ("P100", "P100-16GB"), ("A800", "A800-80GB"),
        ("H800", "H800-80GB"),
    ],
)  # fmt: skip
def test_a_model_of_several_sizes_has_its_usual_one_if_nothing_tells_it(product, model):
    assert nvidia_model(product) == nvidia_model(product, 0) == (model, "")
    assert usual_memory_mib(model) == int(model.partition("-")[2].removesuffix("GB")) * 1024
