"""The fields that the gateway reads of dynamic resource allocation: ResourceSlices, ResourceClaims, DeviceClasses.

One set of shapes serves every version: v1beta1 has a device's fields one level deeper, under `basic`.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeVar

import msgspec

from clusters.engine.claimable import ATTRIBUTES, DRIVERS, DeviceSeen
from clusters.engine.inventory import INSTALL_LABEL
from clusters.engine.resource_slices import ClaimSeen, SliceSeen

from .shapes import Meta, OwnedMeta, Struct, controller_of

_KEEPS_OUT = frozenset({"NoSchedule", "NoExecute"})
_NO_LABELS: Mapping[str, str] = MappingProxyType({})
Value = TypeVar("Value")


class _Attribute(Struct):
    string: str | None = None
    version: str | None = None
    int_: int | None = msgspec.field(default=None, name="int")
    bool_: bool | None = msgspec.field(default=None, name="bool")


class _Capacity(Struct):
    value: str = ""


class _Taint(Struct):
    effect: str = ""


class _Counters(Struct):
    counter_set: str = ""


class _Basic(Struct):
    attributes: dict[str, _Attribute] | None = None
    capacity: dict[str, _Capacity] | None = None
    consumes_counters: list[_Counters] | None = None
    node_name: str | None = None
    taints: list[_Taint] | None = None
    allow_multiple_allocations: bool | None = None


class _Device(_Basic):
    name: str = ""
    basic: _Basic | None = None


class _Pool(Struct):
    name: str = ""
    generation: int = 0
    resource_slice_count: int = 0


class _SliceSpec(Struct):
    driver: str = ""
    pool: _Pool = msgspec.field(default_factory=_Pool)
    node_name: str | None = None
    devices: list[_Device] | None = None


class Slice(Struct):
    """A ResourceSlice."""

    metadata: Meta
    spec: _SliceSpec = msgspec.field(default_factory=_SliceSpec)


class _Allocated(Struct):
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None


class _Results(Struct):
    results: list[_Allocated] | None = None


class _Allocation(Struct):
    devices: _Results = msgspec.field(default_factory=_Results)


class _ClaimStatus(Struct):
    allocation: _Allocation | None = None


class Claim(Struct):
    """A ResourceClaim."""

    metadata: OwnedMeta
    status: _ClaimStatus = msgspec.field(default_factory=_ClaimStatus)


def slice_seen(found: Slice) -> SliceSeen:
    """The port's view of a ResourceSlice. It omits the devices of unknown drivers."""
    spec = found.spec
    is_known = spec.driver in DRIVERS
    return SliceSeen(
        name=found.metadata.name,
        driver=spec.driver,
        pool=spec.pool.name,
        generation=spec.pool.generation,
        slice_count=spec.pool.resource_slice_count,
        node=spec.node_name or "",
        devices=tuple(_device(spec.driver, device) for device in spec.devices or ()) if is_known else (),
    )


def claim_seen(found: Claim) -> ClaimSeen:
    """The port's view of a ResourceClaim. It omits the labels and the pod of foreign claims."""
    labels = found.metadata.labels or _NO_LABELS
    allocation = found.status.allocation
    results = (allocation.devices.results if allocation else None) or ()
    is_known = INSTALL_LABEL in labels
    return ClaimSeen(
        namespace=found.metadata.namespace,
        name=found.metadata.name,
        uid=found.metadata.uid,
        labels=labels if is_known else _NO_LABELS,
        devices=tuple(
            (each.driver, each.pool, each.device)
            for each in results
            if each.driver in DRIVERS and not each.admin_access
        ),
        pod=controller_of(found.metadata, "v1", "Pod") if is_known else "",
    )


def _device(driver: str, device: _Device) -> DeviceSeen:
    found = device.basic or device
    capacity = _own(driver, found.capacity).get("memory")
    return DeviceSeen(
        name=device.name,
        attributes={key: _text(value) for key, value in _own(driver, found.attributes).items() if key in ATTRIBUTES},
        memory=capacity.value if capacity else "",
        node=found.node_name or "",
        is_tainted=any(taint.effect in _KEEPS_OUT for taint in found.taints or ()),
        is_shared=bool(found.allow_multiple_allocations),
        counters=tuple(each.counter_set for each in found.consumes_counters or ()),
    )


def _own(driver: str, members: Mapping[str, Value] | None) -> dict[str, Value]:
    """The driver's own attributes by plain name: a name without a domain belongs to the driver."""
    prefix = f"{driver}/"
    plain = {key.removeprefix(prefix): value for key, value in (members or {}).items()}
    return {key: value for key, value in plain.items() if "/" not in key}


def _text(value: _Attribute) -> str:
    if value.bool_ is not None:
        return "true" if value.bool_ else "false"
    return value.string or value.version or ("" if value.int_ is None else str(value.int_))
