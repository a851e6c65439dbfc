"""ResourceSlices, by which drivers publish a cluster's devices, and ResourceClaims, to which devices are allocated.

A driver publishes a pool, usually all its devices on a node, in any number of slices of one generation. Devices may be
allocated, and count here, only if every slice of the pool's newest generation exists.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from .claimable import DRIVERS, DeviceSeen, device_of
from .devices import Device

SEVERAL_NODES = "its devices are accessible from several nodes, which the gateway does not support"


@dataclass(frozen=True, slots=True)
class SliceSeen:
    """A ResourceSlice. `node` is empty if its devices belong to several nodes, or each has its own."""

    name: str
    driver: str
    pool: str
    generation: int
    slice_count: int
    node: str
    devices: tuple[DeviceSeen, ...]


@dataclass(frozen=True, slots=True)
class ClaimSeen:
    """A ResourceClaim with its allocated devices, each as (driver, pool, name), without administrative access. `pod` is the
    uid of the pod that it was made for, of our own claims; else empty.
    """

    namespace: str
    name: str
    uid: str
    labels: Mapping[str, str]
    devices: tuple[tuple[str, str, str], ...]
    pod: str = ""


PoolKey = tuple[str, str]
"""Driver and pool."""


@dataclass(frozen=True, slots=True)
class Counted:
    """A device that counts as one unit of a node."""

    node: str
    device: Device


@dataclass(frozen=True, slots=True)
class PoolReading:
    """The result for one pool. `offers` are units by node and kind of device, 0 if they only show the kind. `taken_by`
    names the `counted` devices that become unavailable once a device of a name is allocated. `apart` are kinds on no
    single node.
    """

    counted: Mapping[str, Counted] = field(default_factory=dict)
    offers: Mapping[str, Mapping[Device, int]] = field(default_factory=dict)
    taken_by: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    apart: tuple[Device, ...] = ()


NOTHING_READ = PoolReading()


def key_of(seen: SliceSeen) -> PoolKey:
    """The pool of a slice."""
    return seen.driver, seen.pool


def read_pool(slices: Sequence[SliceSeen]) -> PoolReading:
    """The result of the slices of one pool. An incomplete pool shows its devices with zero units."""
    if not slices or slices[0].driver not in DRIVERS:
        return NOTHING_READ
    newest = max(each.generation for each in slices)
    current = [each for each in slices if each.generation == newest]
    is_complete = _is_complete(current)
    offers: dict[str, Counter[Device]] = {}
    counted: dict[str, Counted] = {}
    apart: dict[Device, None] = {}
    whole_of: dict[str, str] = {}
    published = [(each.node, seen, each.driver) for each in current or slices for seen in each.devices]
    for slice_node, seen, driver in sorted(published, key=lambda one: one[1].name):
        device = device_of(driver, seen)
        if device is None or (seen.counters and _is_part(device)):
            continue
        node = slice_node or seen.node
        if not node:
            apart[replace(device, unplaceable=SEVERAL_NODES, resource=f"{device.resource}/apart")] = None
            continue
        is_usable = is_complete and not seen.is_tainted and not any(each in whole_of for each in seen.counters)
        offers.setdefault(node, Counter())[device] += int(is_usable)
        if is_usable:
            counted[seen.name] = Counted(node, device)
            whole_of.update(dict.fromkeys(seen.counters, seen.name))
    taken_by = {
        seen.name: taken for _, seen, _ in published if (taken := tuple(sorted(_taken(seen, counted, whole_of))))
    }
    return PoolReading(counted, offers, taken_by, tuple(apart))


def _is_complete(current: Sequence[SliceSeen]) -> bool:
    """Whether every slice of the generation exists, they agree on their number, and no two devices have the
    same name.
    """
    names = [seen.name for each in current for seen in each.devices]
    return {each.slice_count for each in current} == {len(current)} and len(set(names)) == len(names)


def _is_part(device: Device) -> bool:
    """Whether it is part of another device, cut on demand if it draws on shared counters: then only the whole device
    counts.
    """
    return bool(device.profile) or device.shares != 1


def _taken(seen: DeviceSeen, counted: Mapping[str, Counted], whole_of: Mapping[str, str]) -> set[str]:
    own = {seen.name} if seen.name in counted else set()
    return own | {whole_of[counter] for counter in seen.counters if counter in whole_of}
