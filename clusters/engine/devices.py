"""The devices of a node, as each vendor's plugin and labeller report them, before they get a flavor's name.

Sources: NVIDIA's GPU feature discovery and device plugin (nvidia.com/*), AMD's device plugin and node labeller
(amd.com/*, beta.amd.com/*), Intel's GPU plugin with its node feature rules (gpu.intel.com/*), the Gaudi plugin
(habana.ai/gaudi), GKE's labels on GPU and TPU nodes (cloud.google.com/gke-*).
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from . import gpu_models
from .gpu_facts import NO_FACTS, GpuFacts, labelled
from .quantities import PLAIN, Implausible, offered
from .topology import TPU_SLICE, TPU_TOPOLOGY, tpu_slice_hosts

Labels = Mapping[str, str]

INSTANCE_TYPE = "node.kubernetes.io/instance-type"
_MIG_RESOURCE = re.compile(r"nvidia\.com/mig-([0-9a-z.+-]+?)(\.shared)?")
_MIG_PRODUCT = re.compile(r"-MIG-([0-9a-z.+-]+?)(?:-SHARED)?$")
_PROFILE = re.compile(r"[1-9]g\.[0-9]{1,4}gb[0-9a-z.+-]{0,20}")
AMD_PARTITION = re.compile(r"(spx|dpx|tpx|qpx|cpx)_nps[0-9]")
_AMD_RESOURCE = re.compile(r"amd\.com/((?:spx|dpx|tpx|qpx|cpx)_nps[0-9])")
AMD_CUTS = {"spx": 1, "dpx": 2, "tpx": 3, "qpx": 4}
_NVIDIA_SHARING = "nvidia.com/gpu.sharing-strategy"
_GKE_SHARING = "cloud.google.com/gke-gpu-sharing-strategy"
_GKE_CLIENTS = "cloud.google.com/gke-max-shared-clients-per-gpu"
UNKNOWN_SHARES = "its GPUs are shared, and no label gives the number of shares"
UNKNOWN_PROFILE = "its MIG slices have a profile that the gateway does not support"
SHARED_SLICE = "its MIG slices are shared further, which no job can request"
UNKNOWN_PARTS = "its GPUs are partitioned, and the number of parts of this model is unknown"
SLICES_ON_DEMAND = "its TPU slices are formed on demand by a controller that the gateway does not support"


@dataclass(frozen=True, slots=True)
class Device:
    """One kind of device on a node. `selector` is the labels that pick its nodes.

    Claimed devices, unlike extended resources, have a `device_class` and an expression in `cel` that identifies their
    kind; `resource` is then only the name they are counted by. If a unit is a part of a GPU, the GPU has `shares` parts
    of the kind `share` (shared, mps, a partition). `slice_hosts` is over one if several nodes make up one accelerator.
    `unplaceable` says why no job can be started on it.
    """

    vendor: str
    model: str
    variant: str
    memory_mib: int
    resource: str
    selector: tuple[tuple[str, str], ...]
    profile: str = ""
    shares: int = 1
    share: str = "shared"
    arrangement: str = ""
    slice_hosts: int = 1
    unplaceable: str = ""
    device_class: str = ""
    cel: str = ""
    facts: GpuFacts = NO_FACTS


def announced(labels: Labels, allocatable: Mapping[str, str]) -> Iterator[tuple[Device, int]]:
    """Each device of `devices_of` with its number of units; devices with an implausible amount are omitted."""
    for device in devices_of(labels, allocatable):
        yield device, _units(allocatable, device.resource)


def devices_of(labels: Labels, allocatable: Mapping[str, str]) -> Iterator[Device]:
    """A device for each known extended resource; the resource's amount is the number of units."""
    for resource in sorted(allocatable):
        if resource in {"nvidia.com/gpu", "nvidia.com/gpu.shared"}:
            yield (_gke if _is_gke(labels) else _nvidia)(labels, resource, allocatable)
        elif (found := _MIG_RESOURCE.fullmatch(resource)) and mig_profile(found.group(1)):
            yield _mig(labels, resource, found.group(1), allocatable)
        elif resource == "amd.com/gpu":
            partition = _first(labels, "amd.com/compute-memory-partition", "amd.com/gpu.compute-memory-partition")
            yield _amd(labels, resource, partition.lower())
        elif sliced := _AMD_RESOURCE.fullmatch(resource):
            yield _amd(labels, resource, sliced.group(1))
        elif resource == "google.com/tpu":
            yield _tpu(labels, resource)
        elif resource in {"gpu.intel.com/i915", "gpu.intel.com/xe"}:
            yield _intel(labels, resource, allocatable)
        elif resource == "habana.ai/gaudi":
            yield _gaudi(labels, resource)


def _is_gke(labels: Labels) -> bool:
    return "cloud.google.com/gke-accelerator" in labels and "nvidia.com/gpu.product" not in labels


def _nvidia(labels: Labels, resource: str, allocatable: Mapping[str, str]) -> Device:
    product = labels.get("nvidia.com/gpu.product", "")
    memory_mib = _whole(labels.get("nvidia.com/gpu.memory"))
    sliced = _MIG_PRODUCT.search(product)
    profile = mig_profile(sliced.group(1)) if sliced else ""
    plain = product[: sliced.start()] if sliced else product.removesuffix("-SHARED")
    model, variant = gpu_models.nvidia_model(plain, 0 if sliced else memory_mib)
    device = Device(
        vendor="nvidia",
        model=model or "unknown",
        variant=variant,
        memory_mib=memory_mib or gpu_models.memory_in_profile_mib(profile) or gpu_models.usual_memory_mib(model),
        resource=resource,
        selector=_present(labels, "nvidia.com/gpu.product"),
        profile=profile,
        unplaceable=UNKNOWN_PROFILE if sliced and not profile else "",
        facts=labelled(labels),
    )
    is_shared = product.endswith("-SHARED") or labels.get(_NVIDIA_SHARING) in {"time-slicing", "mps"}
    replicas = _whole(labels.get("nvidia.com/gpu.replicas"))
    if resource == "nvidia.com/gpu" and _units(allocatable, "nvidia.com/gpu.shared"):
        return device  # renamed shares are listed separately: devices that kept the name are whole
    if resource == "nvidia.com/gpu" and not is_shared and replicas <= 1:
        return device
    shares = replicas if replicas > 1 else _ratio(_units(allocatable, resource), labels.get("nvidia.com/gpu.count"))
    chosen = _present(labels, "nvidia.com/gpu.replicas") if replicas > 1 else ()
    return _shared(replace(device, selector=device.selector + chosen), shares, labels, _NVIDIA_SHARING)


def _shared(device: Device, shares: int, labels: Labels, strategy_label: str) -> Device:
    """The device divided into `shares` shares. With MPS each share has its part of the memory, with time-slicing all of
    it.
    """
    if device.profile:
        return replace(device, shares=max(shares, 1), unplaceable=SHARED_SLICE)
    if shares <= 1:
        return replace(device, shares=0, unplaceable=UNKNOWN_SHARES)
    if labels.get(strategy_label) != "mps":
        return replace(device, shares=shares)
    selector = device.selector + _present(labels, strategy_label)
    facts = replace(device.facts, memory_mib=0)  # the label is about the GPU, of which a pod gets only a part
    return replace(
        device, shares=shares, share="mps", memory_mib=device.memory_mib // shares, selector=selector, facts=facts
    )


def _mig(labels: Labels, resource: str, profile: str, allocatable: Mapping[str, str]) -> Device:
    whole = _nvidia(
        {**labels, "nvidia.com/gpu.replicas": ""}, "nvidia.com/gpu", {**allocatable, "nvidia.com/gpu.shared": "1"}
    )
    prefix = f"nvidia.com/mig-{profile}"
    memory_mib = _whole(labels.get(f"{prefix}.memory"))
    shares = max(_whole(labels.get(f"{prefix}.replicas")), 1)
    return replace(
        whole,
        resource=resource,
        profile=mig_profile(profile),
        memory_mib=memory_mib or gpu_models.memory_in_profile_mib(profile),
        shares=shares,
        unplaceable=SHARED_SLICE if shares > 1 or resource.endswith(".shared") else "",
        facts=labelled(labels, f"{prefix}.memory"),
    )


def _gke(labels: Labels, resource: str, _: Mapping[str, str]) -> Device:
    model, variant = gpu_models.nvidia_model(labels["cloud.google.com/gke-accelerator"])
    profile = mig_profile(labels.get("cloud.google.com/gke-gpu-partition-size"))
    device = Device(
        vendor="nvidia",
        model=model,
        variant=variant,
        memory_mib=gpu_models.memory_in_profile_mib(profile) or gpu_models.usual_memory_mib(model),
        resource=resource,
        selector=_present(
            labels, "cloud.google.com/gke-accelerator", "cloud.google.com/gke-gpu-partition-size", _GKE_CLIENTS
        ),
        profile=profile,
        facts=labelled(labels),
    )
    shares = _whole(labels.get(_GKE_CLIENTS))
    if shares <= 1 and _GKE_SHARING not in labels:
        return device
    return _shared(device, shares, labels, _GKE_SHARING)


def _amd(labels: Labels, resource: str, partition: str) -> Device:
    selector: tuple[tuple[str, str], ...] = ()
    model = memory = ""
    for prefix in ("amd.com/gpu", "beta.amd.com/gpu"):
        for fact in ("product-name", "device-id"):
            found = _fact(labels, f"{prefix}.{fact}")
            if found and not model:
                pair, value = found
                selector = (pair,)
                model = (
                    gpu_models.amd_model(value)
                    if fact == "product-name"
                    else gpu_models.AMD_DEVICE_IDS.get(value, value)
                )
        vram = _fact(labels, f"{prefix}.vram")
        memory = memory or (vram[1] if vram else "")
    gib = _whole(memory.removesuffix("B").removesuffix("i").removesuffix("G"))
    usual = gpu_models.usual_memory_mib(model)
    device = Device("amd", model or "unknown", "", gib * 1024 or usual, resource, selector)
    if not AMD_PARTITION.fullmatch(partition) or partition.startswith("spx"):
        return device
    cut = partition.partition("_")[0]
    shares = AMD_CUTS.get(cut) or gpu_models.AMD_COMPUTE_DIES.get(model, 0)
    return replace(
        device,
        shares=shares,
        share=partition,
        memory_mib=usual // shares if shares else 0,
        selector=selector
        + _present(labels, "amd.com/compute-memory-partition", "amd.com/gpu.compute-memory-partition"),
        unplaceable="" if shares else UNKNOWN_PARTS,
    )


def _fact(labels: Labels, key: str) -> tuple[tuple[str, str], str] | None:
    """The selecting label and the value. AMD's labeller writes `key=value`, and in its beta form `key.value=count`."""
    if labels.get(key):
        return (key, labels[key]), labels[key]
    if key.startswith("beta."):
        for name in sorted(labels):
            if name.startswith(f"{key}."):
                return (name, labels[name]), name.removeprefix(f"{key}.")
    return None


def _intel(labels: Labels, resource: str, allocatable: Mapping[str, str]) -> Device:
    """Intel's plugin does not report that containers share its devices, but counts each device once per allowed
    container.
    """
    model = gpu_models.intel_model(labels.get("gpu.intel.com/product", "")) or "intel-gpu"
    memory_mib = gpu_models.usual_memory_mib(model)
    shares = _ratio(_units(allocatable, resource), labels.get("gpu.intel.com/device.count"))
    selector = _present(labels, "gpu.intel.com/product")
    return Device("intel", model, "", memory_mib, resource, selector, shares=max(shares, 1))


def _gaudi(labels: Labels, resource: str) -> Device:
    """Gaudi's plugin labels no product; if a cloud's instance type names the generation, that label selects it."""
    for key in ("habana.ai/hpu.product", INSTANCE_TYPE):
        model = gpu_models.gaudi_model(labels.get(key, ""))
        if model:
            return Device("intel", model, "", gpu_models.usual_memory_mib(model), resource, _present(labels, key))
    return Device("intel", "Gaudi", "", 0, resource, ())


def _tpu(labels: Labels, resource: str) -> Device:
    """A TPU node. Nodes of one arrangement (`2x4`) are one flavor: a program is compiled for it."""
    model = labels.get("cloud.google.com/gke-tpu-accelerator", "")
    is_on_demand = labels.get("cloud.google.com/gke-accelerator-topology-mode") == "PROVISION_ONLY"
    return Device(
        vendor="google",
        model=model or "tpu",
        variant="",
        memory_mib=gpu_models.usual_memory_mib(model),
        resource=resource,
        selector=_present(labels, "cloud.google.com/gke-tpu-accelerator", TPU_TOPOLOGY),
        arrangement=labels.get(TPU_TOPOLOGY, ""),
        slice_hosts=tpu_slice_hosts(labels),
        unplaceable=SLICES_ON_DEMAND if is_on_demand and not labels.get(TPU_SLICE) else "",
    )


def mig_profile(text: str | None) -> str:
    """A MIG profile as users write it (`+me` is not allowed in a resource name); empty if it is missing or not one."""
    return re.sub(r"\.me$", "+me", text) if text and _PROFILE.fullmatch(text) else ""


def _present(labels: Labels, *keys: str) -> tuple[tuple[str, str], ...]:
    return tuple((key, labels[key]) for key in keys if labels.get(key))


def _first(labels: Labels, *keys: str) -> str:
    return next((labels[key] for key in keys if labels.get(key)), "")


def _units(allocatable: Mapping[str, str], resource: str) -> int:
    try:
        return offered(allocatable.get(resource, "0"), PLAIN)
    except Implausible:
        return 0


def _ratio(units: int, devices: str | None) -> int:
    """The number of units of each device; 0 if it is not a whole number."""
    count = _whole(devices)
    return units // count if count and units % count == 0 else 0


def _whole(text: str | None) -> int:
    """A label's whole number; 0 if it is missing, invalid or implausible."""
    return int(text) if text and text.isascii() and text.isdigit() and len(text) <= 9 else 0  # noqa: PLR2004 - up to a billion
