"""Devices that drivers of Kubernetes' dynamic resource allocation publish, read into the same values as labelled
devices.

Sources: NVIDIA's driver (gpu.nvidia.com: `type`, `productName`, `profile`), AMD's (gpu.amd.com: `type`, `productName`,
`deviceID`, `partitionProfile`), Intel's for GPUs and Gaudi (gpu.intel.com, gaudi.intel.com: `model`), Google's for TPUs
(tpu.google.com: `accelerator`, `topology`, `chipCount`). All publish `memory` as capacity except Google's and Gaudi's.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import blake2s

from . import gpu_models
from .devices import AMD_CUTS, AMD_PARTITION, UNKNOWN_PARTS, UNKNOWN_PROFILE, Device, mig_profile
from .gpu_facts import FACT_ATTRIBUTES, published
from .quantities import MEBIBYTES, Implausible, offered
from .topology import hosts_of, is_arrangement

SHARED_BY_CAPACITY = "several claims can share one of its devices by capacity, which no job can request"
UNSELECTABLE = "its devices publish no name that a claim could request"
_SELECTABLE = re.compile(r"[!-~ ]{1,64}")

ATTRIBUTES = frozenset(
    {"type", "productName", "profile", "deviceID", "partitionProfile", "model", "accelerator", "tpuGen", "topology"}
    | {"chipCount", *FACT_ATTRIBUTES}
)
"""The attributes that are read, of any driver; a device's other attributes are not kept."""
Attributes = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class DeviceSeen:
    """One device of a ResourceSlice. `attributes` are the driver's own in ATTRIBUTES, by plain name, with values of any
    type as text.

    `memory` is its capacity of that name, a quantity, empty if it has none. `counters` are the sets of shared counters
    that it draws on. `is_shared` means that several claims may be allocated it at the same time. `node` is its own node
    if the slice gives each device one.
    """

    name: str
    attributes: Mapping[str, str]
    memory: str = ""
    node: str = ""
    is_tainted: bool = False
    is_shared: bool = False
    counters: tuple[str, ...] = ()


def device_of(driver: str, seen: DeviceSeen) -> Device | None:
    """A published device, with the claim for its kind; None if it is not a known accelerator."""
    told = tuple((key, value) for key, value in sorted(seen.attributes.items()) if key in ATTRIBUTES)
    return _read(driver, told, seen.memory, is_shared=seen.is_shared)


@lru_cache(maxsize=4096)
def _read(driver: str, told: tuple[tuple[str, str], ...], memory: str, *, is_shared: bool) -> Device | None:
    """Cached, because a cluster's thousands of devices are of a few kinds."""
    attributes, read = dict(told), _READERS.get(driver)
    found = read(attributes, _memory_mib(memory)) if read else None
    if found is None:
        return None
    device, device_class, named_by = found
    asked = [(key, attributes[key]) for key in named_by if attributes.get(key)]
    is_selectable = any(key != "type" for key, _ in asked) and all(_SELECTABLE.fullmatch(value) for _, value in asked)
    faults = (
        device.unplaceable,
        "" if is_selectable else UNSELECTABLE,
        SHARED_BY_CAPACITY if is_shared else "",
    )
    return replace(
        device,
        model=device.model if _SELECTABLE.fullmatch(device.model) else "unknown",
        resource=_resource(driver, device_class, asked) + ("/shared" if is_shared else ""),
        device_class=device_class,
        cel=_expression(driver, asked) if is_selectable else "",
        unplaceable=next((fault for fault in faults if fault), ""),
        facts=published(attributes, _memory_mib(memory)),
    )


def _expression(driver: str, asked: Sequence[tuple[str, str]]) -> str:
    """A CEL expression. It checks each attribute first, because a missing attribute fails the whole allocation."""
    domain = json.dumps(driver)
    tests = [f"device.driver == {domain}"]
    for key, value in asked:
        tests.append(f"{json.dumps(key)} in device.attributes[{domain}]")
        tests.append(f"device.attributes[{domain}].{key} == {json.dumps(value)}")
    return " && ".join(tests)


def _resource(driver: str, device_class: str, asked: Sequence[tuple[str, str]]) -> str:
    """A name to count by, in a form that no extended resource can have."""
    words = "-".join(value for key, value in asked if key != "type")
    slug = re.sub(r"[^a-z0-9.]+", "-", words.lower()).strip("-.")[:60]
    digest = blake2s(json.dumps([device_class, *asked]).encode(), digest_size=4).hexdigest()
    return f"claim/{driver}/{slug}-{digest}" if slug else f"claim/{driver}/{digest}"


_Found = tuple[Device, str, tuple[str, ...]]
"""The device, its DeviceClass, and the attributes that identify its kind."""


def _nvidia(attributes: Attributes, memory_mib: int) -> _Found | None:
    kind = attributes.get("type")
    if kind not in {"gpu", "mig"}:
        return None
    is_slice = kind == "mig"
    model, variant = gpu_models.nvidia_model(
        attributes.get("productName", "").replace(" ", "-"), 0 if is_slice else memory_mib
    )
    profile = mig_profile(attributes.get("profile")) if is_slice else ""
    usual = gpu_models.memory_in_profile_mib(profile) if is_slice else gpu_models.usual_memory_mib(model)
    device = Device(
        vendor="nvidia",
        model=model or "unknown",
        variant=variant,
        memory_mib=memory_mib or usual,
        resource="",
        selector=(),
        profile=profile,
        unplaceable=UNKNOWN_PROFILE if is_slice and not profile else "",
    )
    return device, "mig.nvidia.com" if is_slice else "gpu.nvidia.com", ("type", "productName", "profile")


def _amd(attributes: Attributes, memory_mib: int) -> _Found | None:
    if attributes.get("type", "amdgpu") not in {"amdgpu", "amdgpu-partition"}:
        return None
    product = attributes.get("productName", "")
    identity = attributes.get("deviceID", "").lower().removeprefix("0x")
    model = gpu_models.amd_model(product) or gpu_models.AMD_DEVICE_IDS.get(identity, identity)
    device = Device("amd", model or "unknown", "", memory_mib or gpu_models.usual_memory_mib(model), "", ())
    names = ("type", "productName" if product else "deviceID", "partitionProfile")
    partition = attributes.get("partitionProfile", "").lower()
    if not AMD_PARTITION.fullmatch(partition) or partition.startswith("spx"):
        return device, "gpu.amd.com", names
    shares = AMD_CUTS.get(partition.partition("_")[0]) or gpu_models.AMD_COMPUTE_DIES.get(model, 0)
    memory_mib = memory_mib or (device.memory_mib // shares if shares else 0)
    unplaceable = "" if shares else UNKNOWN_PARTS
    part = replace(device, shares=shares, share=partition, memory_mib=memory_mib, unplaceable=unplaceable)
    return part, "gpu.amd.com", names


def _intel(attributes: Attributes, memory_mib: int) -> _Found | None:
    model = gpu_models.intel_model(attributes.get("model", "").replace(" ", "-")) or "intel-gpu"
    device = Device("intel", model, "", memory_mib or gpu_models.usual_memory_mib(model), "", ())
    return device, "gpu.intel.com", ("model",)


def _gaudi(attributes: Attributes, memory_mib: int) -> _Found | None:
    model = gpu_models.gaudi_model(attributes.get("model", "")) or "Gaudi"
    device = Device("intel", model, "", memory_mib or gpu_models.usual_memory_mib(model), "", ())
    return device, "gaudi.intel.com", ("model",)


def _tpu(attributes: Attributes, memory_mib: int) -> _Found | None:
    model = attributes.get("accelerator", "") or attributes.get("tpuGen", "")
    told = attributes.get("topology")
    arrangement = told if told and is_arrangement(told) else ""
    device = Device(
        vendor="google",
        model=model or "tpu",
        variant="",
        memory_mib=memory_mib or gpu_models.usual_memory_mib(model),
        resource="",
        selector=(),
        arrangement=arrangement,
        slice_hosts=hosts_of(arrangement, attributes.get("chipCount")),
    )
    return device, "tpu.google.com", ("accelerator" if attributes.get("accelerator") else "tpuGen", "topology")


def _memory_mib(quantity: str) -> int:
    """0 if it is missing or implausible for a device."""
    try:
        return offered(quantity, MEBIBYTES) if quantity else 0
    except Implausible:
        return 0


_READERS: Mapping[str, Callable[[Attributes, int], _Found | None]] = {
    "gpu.nvidia.com": _nvidia,
    "gpu.amd.com": _amd,
    "gpu.intel.com": _intel,
    "gaudi.intel.com": _gaudi,
    "tpu.google.com": _tpu,
}
DRIVERS = frozenset(_READERS)
"""The drivers whose devices are known."""
