"""Derives flavors from a node's labels and extended resources: what it offers, under which name, and how to select it.

`devices` reads the devices. Capacity types: GKE, EKS, AKS and Karpenter; switchyard.dev/capacity-type overrides them.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

from .devices import INSTANCE_TYPE, Device, devices_of
from .gpu_facts import NO_FACTS, GpuFacts
from .quantities import PLAIN, Implausible, offered

CapacityType = Literal["on_demand", "spot", "reserved"]
FlavorKey = tuple[str, tuple[tuple[str, str], ...], str]
Labels = Mapping[str, str]

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
    """A flavor as one node offers it, with `units` of it. `match_expressions` reads `node_selector`."""

    name: str
    vendor: str
    gpu_model: str
    gpu_memory_mib: int
    sharing: str
    capacity_type: CapacityType
    resource_name: str
    node_selector: Mapping[str, str]
    units: int = 0
    slice_hosts: int = 1
    """Over one if this number of nodes makes up one accelerator, which a gang must not leave."""
    unplaceable: str = ""
    """Why no job can be started on it; empty if one can."""
    device_class: str = ""
    """Set if this DeviceClass claims its devices; `cel` then selects them from others of the class."""
    cel: str = ""
    facts: GpuFacts = NO_FACTS
    """Of the units on this node: nodes of one flavor may differ in them."""


def flavors_of(
    labels: Labels, allocatable: Mapping[str, str], claimable: Mapping[Device, int] = MappingProxyType({})
) -> tuple[tuple[FlavorOffer, ...], tuple[str, ...]]:
    """A node's offers, and its implausible claims (left out, as text that is safe to show).

    `claimable` are units of claimable devices there, shown even if the number is zero. A node without devices offers
    the CPU flavor with 0 units.
    """
    capacity_type, capacity_selector = capacity_of(labels)
    offers: list[FlavorOffer] = []
    problems: list[str] = []
    for device in devices_of(labels, allocatable):
        try:
            units = offered(allocatable[device.resource], PLAIN)
        except Implausible as error:
            problems.append(f"{device.resource}: {error}")
            continue
        if units:
            offers.append(replace(_named(device, capacity_type, capacity_selector), units=units))
    offers += [
        replace(_named(device, capacity_type, capacity_selector), units=units) for device, units in claimable.items()
    ]
    return tuple(offers) or (_cpu_flavor(capacity_type, capacity_selector),), tuple(problems)


def capacity_of(labels: Labels) -> tuple[CapacityType, Mapping[str, str]]:
    """How a node was bought, and the label that says so unless it is on demand. Nodes without a label are on demand."""
    for key, meanings in _CAPACITY_LABELS:
        value = labels.get(key)
        if value is not None and value in meanings:
            return meanings[value], {} if meanings[value] == "on_demand" else {key: value}
    return "on_demand", {}


def unify(offers: Iterable[FlavorOffer]) -> tuple[dict[str, FlavorOffer], dict[FlavorKey, str]]:
    """A cluster's flavors by name, and the name of each node's offer by `key_of`.

    Two products with the same canonical name but a different selector or resource remain separate: the later in the
    order of their selectors gets a number. On-demand flavors exclude the labels by which this cluster marks spot and
    reserved nodes, and CPU flavors those by which it marks nodes with accelerators.
    """
    distinct = {key_of(offer): offer for offer in offers}
    bought = {pair for offer in distinct.values() for pair in offer.node_selector.items() if pair[0] in _CAPACITY_KEYS}
    devices = {next(iter(offer.node_selector)) for offer in distinct.values() if offer.vendor and offer.node_selector}
    devices -= {*_CAPACITY_KEYS, INSTANCE_TYPE}
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
            selector |= {f"!{label}": "*" for label in devices}
        names[key] = name
        flavors[name] = replace(offer, name=name, units=0, node_selector=dict(sorted(selector.items())), facts=NO_FACTS)
    return flavors, names


def key_of(offer: FlavorOffer) -> FlavorKey:
    """The key that two nodes' offers of the same flavor share."""
    return offer.name, tuple(sorted(offer.node_selector.items())), offer.resource_name


def _joined(values: Iterable[str]) -> str:
    return ",".join(sorted(values))


def match_expressions(node_selector: Mapping[str, str]) -> list[dict[str, object]]:
    """A flavor's selector as `matchExpressions` of a required node affinity.

    A key with the prefix `!` must not have any of the comma-separated values; `*` means the label must be absent.
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


def offer_of(device: Device) -> FlavorOffer:
    """A device that no single node has, as a flavor."""
    return _named(device, "on_demand", {})


def _named(device: Device, capacity_type: CapacityType, capacity_selector: Mapping[str, str]) -> FlavorOffer:
    parts = [device.model, device.variant, device.arrangement]
    sharing = "whole"
    if device.profile:
        parts.append(f"mig-{device.profile}")
        sharing = f"mig:{device.profile}"
    elif device.shares != 1:
        sharing = f"timeslice:{max(device.shares, 1)}"
    if device.shares != 1:
        parts += [device.share, str(device.shares or "")] if device.share in {"shared", "mps"} else [device.share]
    return FlavorOffer(
        name=_slug("-".join(part for part in [*parts, _bought(capacity_type)] if part)),
        vendor=device.vendor,
        gpu_model=device.model[:63],
        gpu_memory_mib=min(device.memory_mib, 2**31 - 1),
        sharing=sharing,
        capacity_type=capacity_type,
        resource_name=device.resource,
        node_selector=dict(device.selector) | dict(capacity_selector),
        slice_hosts=device.slice_hosts,
        unplaceable=device.unplaceable,
        device_class=device.device_class,
        cel=device.cel,
        facts=device.facts,
    )


def _cpu_flavor(capacity_type: CapacityType, capacity_selector: Mapping[str, str]) -> FlavorOffer:
    name = "-".join(part for part in ("cpu", _bought(capacity_type)) if part)
    return FlavorOffer(name, "", "", 0, "whole", capacity_type, "", dict(capacity_selector))


def _bought(capacity_type: CapacityType) -> str:
    return "" if capacity_type == "on_demand" else capacity_type


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9.+]+", "-", text.lower()).strip("-")[:100]
