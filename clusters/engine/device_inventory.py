"""The claimable devices of a cluster, updated event by event: what each node has, and what is allocated.

If a node also announces a vendor's devices as extended resources, those count and the published ones do not: they are
the same devices. The allocated published devices are then deducted from the announced ones.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from . import topology
from .devices import Device, announced
from .gpu_facts import joined
from .resource_slices import NOTHING_READ, ClaimSeen, PoolKey, PoolReading, SliceSeen, key_of, read_pool
from .weights import ENTRY, KNOWN_UID, weight_of_slice

UNLABELLED_SLICE = "no label shows which nodes form its accelerator"
EventKind = Literal["listed", "changed", "deleted", "alive"]
_DeviceKey = tuple[str, str, str]


class LabelledNode(Protocol):
    """The fields of a node that this module reads."""

    @property
    def name(self) -> str: ...
    @property
    def labels(self) -> Mapping[str, str]: ...
    @property
    def allocatable(self) -> Mapping[str, str]: ...


@dataclass(frozen=True, slots=True)
class ClaimableDevices:
    """`by_node` are units by node and kind of device. `used` are the units allocated to any workload and `foreign`
    those allocated to foreign ones, by node and resource. `apart` are kinds that no single node has.
    """

    by_node: Mapping[str, Mapping[Device, int]] = field(default_factory=dict)
    used: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    foreign: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    apart: tuple[Device, ...] = ()


@dataclass(frozen=True, slots=True)
class _There:
    """The nodes' claimable devices, what they announce instead, and the kinds that no single node has."""

    by_node: Mapping[str, Mapping[Device, int]]
    instead: Mapping[str, Mapping[str, Mapping[Device, int]]]
    apart: tuple[Device, ...]


class DeviceInventory:
    """Slices and claims of one cluster, fed with a driver's events. Not thread-safe: one loop feeds it."""

    def __init__(self, install_label: str, install_id: str) -> None:
        self._install = (install_label, install_id)
        self._slices: dict[str, SliceSeen] = {}
        self._members: dict[PoolKey, set[str]] = defaultdict(set)
        self._readings: dict[PoolKey, PoolReading] = {}
        self._stale: set[PoolKey] = set()
        self._claims: dict[str, tuple[bool, tuple[_DeviceKey, ...]]] = {}
        self._classes: frozenset[str] = frozenset()
        self._there: _There | None = None
        """The nodes' devices, cached until slices, classes or nodes change: claims change far more often."""
        self._listed: set[str] = set()
        self._is_closed = False
        self._weights = {"slices": 0, "claims": 0}

    @property
    def weight(self) -> int:
        """Estimated bytes of all data that is kept."""
        return sum(self._weights.values())

    @property
    def is_complete(self) -> bool:
        """Whether slices and claims have both been listed, or access to them was refused."""
        return self._is_closed or self.is_known

    @property
    def is_known(self) -> bool:
        """Whether both have been listed, without a refusal since."""
        return self._listed == {"slices", "claims"}

    def see_slices(self, kind: EventKind, slices: Sequence[SliceSeen]) -> bool:
        """Applies one event of `watch_slices`; returns whether anything changed."""
        changed = False
        if kind == "listed":
            present = {each.name for each in slices}
            changed = self._note_listed("slices")
            for name in [name for name in self._slices if name not in present]:
                changed |= self._drop(name)
        for each in slices:
            changed |= self._drop(each.name) if kind == "deleted" else self._put(each)
        return changed

    def see_claims(self, kind: EventKind, claims: Sequence[ClaimSeen]) -> bool:
        """Applies one event of `watch_claims`; returns whether anything changed."""
        changed = False
        if kind == "listed":
            before = len(self._claims)
            present = {claim.uid for claim in claims}
            self._claims = {uid: held for uid, held in self._claims.items() if uid in present}
            self._weights["claims"] = sum(_weight(*held[1]) for held in self._claims.values())
            changed = self._note_listed("claims") or len(self._claims) != before
        label, ours = self._install
        for claim in claims:
            held = (claim.labels.get(label) == ours, claim.devices)
            if kind == "deleted" or not claim.devices:
                changed |= self._forget(claim.uid)
            elif self._claims.get(claim.uid) != held:
                self._forget(claim.uid)
                self._claims[claim.uid] = held
                self._weights["claims"] += _weight(*claim.devices)
                changed = True
        return changed

    def _forget(self, uid: str) -> bool:
        held = self._claims.pop(uid, None)
        self._weights["claims"] -= _weight(*held[1]) if held else 0
        return held is not None

    def see_classes(self, names: Collection[str]) -> bool:
        """Sets the names of the cluster's DeviceClasses; returns whether they changed."""
        changed = self._classes != frozenset(names)
        self._classes = frozenset(names)
        if changed:
            self._there = None
        return changed

    def nodes_changed(self) -> None:
        """The nodes of the next snapshot have changed."""
        self._there = None

    def close(self) -> bool:
        """Records that access is refused: no device counts until both have been listed again. Returns whether anything
        changed.
        """
        changed = not self._is_closed
        self._is_closed = True
        self._listed.clear()
        return changed

    def snapshot(self, nodes: Mapping[str, LabelledNode]) -> ClaimableDevices:
        """The devices of these nodes, and how many are allocated; empty while slices or claims are not known."""
        if not self.is_known:
            return ClaimableDevices()
        if self._stale or self._there is None:
            self._reread()
            self._there = self._look(nodes)
        used, foreign = self._allocated(self._there.instead)
        return ClaimableDevices(self._there.by_node, used, foreign, self._there.apart)

    def _look(self, nodes: Mapping[str, LabelledNode]) -> "_There":
        by_node: dict[str, dict[str, tuple[Device, int]]] = {}
        instead: dict[str, dict[str, Mapping[Device, int]]] = {}
        for reading in self._readings.values():
            for name, offers in reading.offers.items():
                if name not in nodes:
                    continue
                if name not in instead:
                    instead[name] = _announced_by_vendor(nodes[name])
                for device, units in offers.items():
                    if device.vendor not in instead[name]:
                        _add(by_node.setdefault(name, {}), self._judged(device, nodes[name].labels), units)
        apart = dict.fromkeys(device for reading in self._readings.values() for device in reading.apart)
        return _There({name: dict(own.values()) for name, own in by_node.items()}, instead, tuple(apart))

    def _note_listed(self, what: str) -> bool:
        """Whether both are now known for the first time."""
        was_known = self.is_known
        self._listed.add(what)
        self._is_closed &= not self.is_known
        return self.is_known and not was_known

    def _put(self, seen: SliceSeen) -> bool:
        known = self._slices.get(seen.name)
        if known == seen:
            return False
        if known is not None:
            self._drop(seen.name)
        self._slices[seen.name] = seen
        self._weights["slices"] += weight_of_slice(seen)
        self._members[key_of(seen)].add(seen.name)
        self._stale.add(key_of(seen))
        return True

    def _drop(self, name: str) -> bool:
        known = self._slices.pop(name, None)
        if known is None:
            return False
        self._weights["slices"] -= weight_of_slice(known)
        self._members[key_of(known)].discard(name)
        self._stale.add(key_of(known))
        return True

    def _reread(self) -> None:
        """Reads the pools with changed slices again."""
        for key in self._stale:
            reading = read_pool([self._slices[name] for name in sorted(self._members[key])])
            if reading == NOTHING_READ:
                self._readings.pop(key, None)
            else:
                self._readings[key] = reading
            if not self._members[key]:
                del self._members[key]
        self._stale.clear()

    def _judged(self, device: Device, labels: Mapping[str, str]) -> Device:
        """The device, with the reason if this cluster or node prevents jobs from starting on it."""
        if device.unplaceable:
            return device
        if device.device_class not in self._classes:
            return replace(device, unplaceable=f"its cluster has no DeviceClass {device.device_class}")
        if device.slice_hosts > 1 and topology.tpu_slice_hosts(labels) != device.slice_hosts:
            return replace(device, unplaceable=UNLABELLED_SLICE, resource=f"{device.resource}/unlabelled")
        return device

    def _allocated(
        self, instead: Mapping[str, Mapping[str, Mapping[Device, int]]]
    ) -> tuple[dict[str, dict[str, int]], dict[str, dict[str, int]]]:
        """Units allocated to any workload, and to foreign ones, by node and resource. A device counts once, even if
        allocated repeatedly.
        """
        taken: dict[tuple[PoolKey, str], bool] = {}
        for is_ours, devices in self._claims.values():
            for driver, pool, name in devices:
                reading = self._readings.get((driver, pool), NOTHING_READ)
                for each in reading.taken_by.get(name, ()):
                    where = ((driver, pool), each)
                    taken[where] = taken.get(where, True) and is_ours
        used: dict[str, dict[str, int]] = {}
        foreign: dict[str, dict[str, int]] = {}
        for (key, name), is_ours in taken.items():
            counted = self._readings[key].counted[name]
            if counted.node not in instead:
                continue
            resource, units = _counted_as(counted.device, instead[counted.node])
            for totals in (used,) if is_ours else (used, foreign):
                own = totals.setdefault(counted.node, {})
                own[resource] = own.get(resource, 0) + units
        return used, foreign


def _weight(*devices: _DeviceKey) -> int:
    """The weight of a stored claim."""
    return KNOWN_UID + sum(ENTRY + sum(map(len, device)) for device in devices)


def _add(own: dict[str, tuple[Device, int]], device: Device, units: int) -> None:
    """One claim requests all devices of a resource, so they count as one kind, with the lowest value of
    each property.
    """
    known, so_far = own.get(device.resource, (device, 0))
    facts = joined(known.facts, device.facts)
    least = replace(known, memory_mib=min(known.memory_mib, device.memory_mib), facts=facts)
    own[device.resource] = (least, so_far + units)


def _announced_by_vendor(node: LabelledNode) -> dict[str, Mapping[Device, int]]:
    found: dict[str, dict[Device, int]] = {}
    for device, units in announced(node.labels, node.allocatable):
        if units:
            found.setdefault(device.vendor, {})[device] = units
    return dict(found)


def _counted_as(device: Device, instead: Mapping[str, Mapping[Device, int]]) -> tuple[str, int]:
    """The resource of an allocated device, and its units: the node's extended resource for the same device, if it
    announces one.
    """
    for other in instead.get(device.vendor, {}):
        if other.profile == device.profile:
            return other.resource, max(other.shares // max(device.shares, 1), 1)
    return device.resource, 1
