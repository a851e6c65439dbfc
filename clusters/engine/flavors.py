"""From a node's labels and extended resources to flavors: what it offers, under which name, and how to select it.

Sources: GPU feature discovery and the device plugin (nvidia.com/*), AMD's node labeller (amd.com/*, beta.amd.com/*),
GKE (cloud.google.com/gke-*), EKS, AKS and Karpenter for capacity types; switchyard.dev/capacity-type overrides them.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from . import gpu_models
from .quantities import PLAIN, Implausible, offered

CapacityType = Literal["on_demand", "spot", "reserved"]
FlavorKey = tuple[str, tuple[tuple[str, str], ...]]
Labels = Mapping[str, str]

_MIG_RESOURCE = re.compile(r"nvidia\.com/mig-([0-9a-z.+-]+?)(\.shared)?")
_MIG_PRODUCT = re.compile(r"-MIG-([0-9a-z.+-]+?)(?:-SHARED)?$")
_PROFILE = re.compile(r"[0-9a-z][0-9a-z.+-]{0,29}")
_CAPACITY_LABELS: tuple[tuple[str, Mapping[str, CapacityType]], ...] = (
    (
        "switchyard.dev/capacity-type",
        {"spot": "spot", "reserved": "reserved", "on-demand": "on_demand", "on_demand": "on_demand"},
    ),
    ("karpenter.sh/capacity-type", {"spot": "spot", "reserved": "reserved", "on-demand": "on_demand"}),
    ("eks.amazonaws.com/capacityType", {"SPOT": "spot", "CAPACITY_BLOCK": "reserved", "ON_DEMAND": "on_demand"}),
    ("cloud.google.com/gke-spot", {"true": "spot"}),
    ("cloud.google.com/gke-preemptible", {"true": "spot"}),
    ("cloud.google.com/gke-provisioning", {"spot": "spot", "preemptible": "spot", "standard": "on_demand"}),
    ("kubernetes.azure.com/scalesetpriority", {"spot": "spot", "regular": "on_demand"}),
    ("node.kubernetes.io/lifecycle", {"spot": "spot", "normal": "on_demand"}),
)
_CAPACITY_KEYS = frozenset(key for key, _ in _CAPACITY_LABELS)


@dataclass(frozen=True, slots=True)
class FlavorOffer:
    """A flavor as one node offers it, `units` of it. `node_selector` is read by `match_expressions`."""

    name: str
    vendor: str
    gpu_model: str
    gpu_memory_mib: int
    sharing: str
    capacity_type: CapacityType
    resource_name: str
    node_selector: Mapping[str, str]
    units: int = 0


@dataclass(frozen=True, slots=True)
class _Device:
    """One kind of device on a node before it has a name: `selector` is the labels that pick its nodes."""

    vendor: str
    model: str
    variant: str
    memory_mib: int
    resource: str
    selector: tuple[tuple[str, str], ...]
    profile: str = ""
    shares: int = 1


def flavors_of(labels: Labels, allocatable: Mapping[str, str]) -> tuple[tuple[FlavorOffer, ...], tuple[str, ...]]:
    """What a node offers, and what it claims that no node could have (left out, in words fit to show).

    A node without devices offers the CPU flavor with 0 units.
    """
    capacity_type, capacity_selector = capacity_of(labels)
    offers: list[FlavorOffer] = []
    problems: list[str] = []
    for device in _devices(labels, allocatable):
        try:
            units = offered(allocatable[device.resource], PLAIN)
        except Implausible as error:
            problems.append(f"{device.resource}: {error}")
            continue
        if units:
            offers.append(replace(_named(device, capacity_type, capacity_selector), units=units))
    return tuple(offers) or (_cpu_flavor(capacity_type, capacity_selector),), tuple(problems)


def capacity_of(labels: Labels) -> tuple[CapacityType, Mapping[str, str]]:
    """How a node was bought, and the label that says so if it is not on demand. Unlabelled means on demand."""
    for key, meanings in _CAPACITY_LABELS:
        value = labels.get(key, "")
        if value in meanings:
            return meanings[value], {} if meanings[value] == "on_demand" else {key: value}
    return "on_demand", {}


def unify(offers: Iterable[FlavorOffer]) -> tuple[dict[str, FlavorOffer], dict[FlavorKey, str]]:
    """A cluster's flavors by name, and the name of each node's offer by `key_of`.

    Two products that share a canonical name but not a selector stay apart: the later in the selectors' order is numbered.
    On-demand flavors exclude the labels by which this cluster marks spot and reserved nodes, and CPU flavors those by
    which it marks nodes with accelerators.
    """
    distinct = {key_of(offer): offer for offer in offers}
    bought = {pair for offer in distinct.values() for pair in offer.node_selector.items() if pair[0] in _CAPACITY_KEYS}
    devices = {next(iter(offer.node_selector)) for offer in distinct.values() if offer.vendor and offer.node_selector}
    flavors: dict[str, FlavorOffer] = {}
    names: dict[FlavorKey, str] = {}
    for key in sorted(distinct):
        offer, number = distinct[key], 1
        name = offer.name
        while name in flavors:
            number += 1
            name = f"{offer.name}-v{number}"
        selector = dict(offer.node_selector)
        if offer.capacity_type == "on_demand":
            selector |= {
                f"!{label}": _joined(value for found, value in bought if found == label) for label, _ in bought
            }
        if not offer.vendor:
            selector |= {f"!{label}": "*" for label in devices - _CAPACITY_KEYS}
        names[key] = name
        flavors[name] = replace(offer, name=name, units=0, node_selector=dict(sorted(selector.items())))
    return flavors, names


def key_of(offer: FlavorOffer) -> FlavorKey:
    """What makes two nodes' offers the same flavor."""
    return offer.name, tuple(sorted(offer.node_selector.items()))


def _joined(values: Iterable[str]) -> str:
    return ",".join(sorted(values))


def match_expressions(node_selector: Mapping[str, str]) -> list[dict[str, object]]:
    """A flavor's selector as `matchExpressions` of a required node affinity.

    A key with `!` in front must not have any of the comma-separated values; `*` means the label must be absent.
    """
    expressions: list[dict[str, object]] = []
    for key, value in sorted(node_selector.items()):
        if not key.startswith("!"):
            expressions.append({"key": key, "operator": "In", "values": [value]})
        elif value == "*":
            expressions.append({"key": key[1:], "operator": "DoesNotExist"})
        else:
            expressions.append({"key": key[1:], "operator": "NotIn", "values": value.split(",")})
    return expressions


def _devices(labels: Labels, allocatable: Mapping[str, str]) -> Iterator[_Device]:
    for resource in sorted(allocatable):
        if resource in {"nvidia.com/gpu", "nvidia.com/gpu.shared"}:
            yield _google(labels, resource) if _is_google(labels) else _nvidia(labels, resource)
        elif (found := _MIG_RESOURCE.fullmatch(resource)) and _profile(found.group(1)):
            yield _mig(labels, resource, found.group(1))
        elif resource == "amd.com/gpu":
            yield _amd(labels)
        elif resource == "google.com/tpu":
            yield _labelled(labels, "google", resource, "cloud.google.com/gke-tpu-accelerator", "tpu")
        elif resource in {"gpu.intel.com/i915", "gpu.intel.com/xe"}:
            yield _labelled(labels, "intel", resource, "gpu.intel.com/product", "intel-gpu")
        elif resource == "habana.ai/gaudi":
            yield _labelled(labels, "intel", resource, "habana.ai/hpu.product", "gaudi")


def _is_google(labels: Labels) -> bool:
    return "cloud.google.com/gke-accelerator" in labels and "nvidia.com/gpu.product" not in labels


def _nvidia(labels: Labels, resource: str) -> _Device:
    product = labels.get("nvidia.com/gpu.product", "")
    memory_mib = _whole(labels.get("nvidia.com/gpu.memory", ""))
    sliced = _MIG_PRODUCT.search(product)
    profile = _profile(sliced.group(1)) if sliced else ""
    plain = product[: sliced.start()] if sliced else product.removesuffix("-SHARED")
    model, variant = gpu_models.nvidia_model(plain, 0 if sliced else memory_mib)
    shares = _whole(labels.get("nvidia.com/gpu.replicas", ""))
    return _Device(
        vendor="nvidia",
        model=model or "unknown",
        variant=variant,
        memory_mib=memory_mib or gpu_models.memory_in_profile_mib(profile) or gpu_models.usual_memory_mib(model),
        resource=resource,
        selector=_present(labels, "nvidia.com/gpu.product", *(["nvidia.com/gpu.replicas"] if shares > 1 else [])),
        profile=profile,
        shares=max(shares, 1),
    )


def _mig(labels: Labels, resource: str, profile: str) -> _Device:
    whole = _nvidia(labels, resource)
    prefix = f"nvidia.com/mig-{profile}"
    memory_mib = _whole(labels.get(f"{prefix}.memory", ""))
    return replace(
        whole,
        selector=_present(labels, "nvidia.com/gpu.product"),
        profile=_profile(profile),
        memory_mib=memory_mib or gpu_models.memory_in_profile_mib(profile),
        shares=max(_whole(labels.get(f"{prefix}.replicas", "")), 1),
    )


def _google(labels: Labels, resource: str) -> _Device:
    accelerator = labels["cloud.google.com/gke-accelerator"]
    model, variant = gpu_models.nvidia_model(accelerator)
    profile = _profile(labels.get("cloud.google.com/gke-gpu-partition-size", ""))
    return _Device(
        vendor="nvidia",
        model=model,
        variant=variant,
        memory_mib=gpu_models.memory_in_profile_mib(profile) or gpu_models.usual_memory_mib(model),
        resource=resource,
        selector=_present(
            labels,
            "cloud.google.com/gke-accelerator",
            "cloud.google.com/gke-gpu-partition-size",
            "cloud.google.com/gke-max-shared-clients-per-gpu",
        ),
        profile=profile,
        shares=max(_whole(labels.get("cloud.google.com/gke-max-shared-clients-per-gpu", "")), 1),
    )


def _amd(labels: Labels) -> _Device:
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
    return _Device(
        "amd", model or "unknown", "", gib * 1024 or gpu_models.usual_memory_mib(model), "amd.com/gpu", selector
    )


def _fact(labels: Labels, key: str) -> tuple[tuple[str, str], str] | None:
    """AMD's labeller writes `key=value`, and in its beta form `key.value=count`: the selecting label and the value."""
    if labels.get(key):
        return (key, labels[key]), labels[key]
    if key.startswith("beta."):
        for name in sorted(labels):
            if name.startswith(f"{key}."):
                return (name, labels[name]), name.removeprefix(f"{key}.")
    return None


def _labelled(labels: Labels, vendor: str, resource: str, key: str, default: str) -> _Device:
    model = labels.get(key, "")
    return _Device(vendor, model or default, "", 0, resource, _present(labels, key))


def _named(device: _Device, capacity_type: CapacityType, capacity_selector: Mapping[str, str]) -> FlavorOffer:
    parts = [device.model, device.variant]
    sharing = "whole"
    if device.profile:
        parts.append(f"mig-{device.profile}")
        sharing = f"mig:{device.profile}"
    if device.shares > 1:
        parts.append(f"shared-{device.shares}")
        sharing = f"timeslice:{device.shares}"
    if device.vendor == "nvidia" and device.resource.endswith(".shared") and device.shares == 1:
        parts.append("shared")
    return FlavorOffer(
        name=_slug("-".join(part for part in [*parts, _bought(capacity_type)] if part)),
        vendor=device.vendor,
        gpu_model=device.model[:63],
        gpu_memory_mib=min(device.memory_mib, 2**31 - 1),
        sharing=sharing,
        capacity_type=capacity_type,
        resource_name=device.resource,
        node_selector=dict(device.selector) | dict(capacity_selector),
    )


def _cpu_flavor(capacity_type: CapacityType, capacity_selector: Mapping[str, str]) -> FlavorOffer:
    name = "-".join(part for part in ("cpu", _bought(capacity_type)) if part)
    return FlavorOffer(name, "", "", 0, "whole", capacity_type, "", dict(capacity_selector))


def _bought(capacity_type: CapacityType) -> str:
    return "" if capacity_type == "on_demand" else capacity_type


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9.+]+", "-", text.lower()).strip("-")[:100]


def _profile(text: str) -> str:
    """A MIG profile as users write it (`+me` cannot stand in a resource name); empty for what is none."""
    return re.sub(r"\.me$", "+me", text) if _PROFILE.fullmatch(text) else ""


def _present(labels: Labels, *keys: str) -> tuple[tuple[str, str], ...]:
    return tuple((key, labels[key]) for key in keys if labels.get(key))


def _whole(text: str) -> int:
    """A label's whole number; 0 when it is missing, junk or absurd."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else 0  # noqa: PLR2004 - up to a billion
