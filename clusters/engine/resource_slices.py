"""ResourceSlices, by which drivers publish a cluster's devices, and ResourceClaims, to which devices are allocated.

A driver publishes a pool, usually all its devices on a node, in any number of slices of one generation. Only a pool of
which every slice of the newest generation is there may be allocated from, and only such a one counts here.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from .claimable import DRIVERS, DeviceSeen, device_of
from .devices import Device

SEVERAL_NODES = "its devices are accessible from several nodes, which the gateway does not support"


@dataclass(frozen=True, slots=True)
class SliceSeen:
    """A ResourceSlice. `node` is empty where its devices are not one node's, or each has its own."""

    name: str
    driver: str
    pool: str
    generation: int
    slice_count: int
    node: str
    devices: tuple[DeviceSeen, ...]


@dataclass(frozen=True, slots=True)
class ClaimSeen:
    """A ResourceClaim with the devices that it was allocated, each as (driver, pool, name); administrators' looks apart."""

    namespace: str
    name: str
    uid: str
    labels: Mapping[str, str]
    devices: tuple[tuple[str, str, str], ...]


PoolKey = tuple[str, str]
"""Driver and pool."""


@dataclass(frozen=True, slots=True)
class Counted:
    """A device that counts as one unit of a node's."""

    node: str
    device: Device


@dataclass(frozen=True, slots=True)
class PoolReading:
    """What one pool gives. `offers` are units by node and kind of device, 0 where they only show what it is. `taken_by`
    says which of the `counted` devices are gone once a device of a name is allocated. `apart` are kinds on no one node.
    """

    counted: Mapping[str, Counted] = field(default_factory=dict)
    offers: Mapping[str, Mapping[Device, int]] = field(default_factory=dict)
    taken_by: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    apart: tuple[Device, ...] = ()


NOTHING_READ = PoolReading()


def key_of(seen: SliceSeen) -> PoolKey:
    """The pool that a slice is of."""
    return seen.driver, seen.pool


def read_pool(slices: Sequence[SliceSeen]) -> PoolReading:
    """What the slices of one pool give. An incomplete pool shows its devices, and has none of them."""
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
    """Every slice of the generation is there, they agree on how many there are, and no two devices bear one name."""
    names = [seen.name for each in current for seen in each.devices]
    return {each.slice_count for each in current} == {len(current)} and len(set(names)) == len(names)


def _is_part(device: Device) -> bool:
    """It is cut from another device, on demand where it draws on shared counters: the whole stands for it then."""
    return bool(device.profile) or device.shares != 1


def _taken(seen: DeviceSeen, counted: Mapping[str, Counted], whole_of: Mapping[str, str]) -> set[str]:
    own = {seen.name} if seen.name in counted else set()
    return own | {whole_of[counter] for counter in seen.counters if counter in whole_of}
