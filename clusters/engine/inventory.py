"""A cluster's inventory: its current nodes, and what foreign pods use on them, updated event by event."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal, Protocol

from . import flavors, topology
from .device_inventory import ClaimableDevices, DeviceInventory, EventKind
from .devices import Device
from .kept_labels import is_plain, kept_labels
from .quantities import MEBIBYTES, MILLICORES, PLAIN, Implausible, asked, offered
from .resource_slices import ClaimSeen, SliceSeen
from .resources import amounts_offered, huge_pages_used
from .weights import ENTRY, PLACED_POD, weight_of_node

INSTALL_LABEL = "switchyard.dev/install"
PREPARATION_LABEL = "switchyard.dev/preparation"
"""Of our own pods that no hold counts."""
MOST_USES = 10_000
"""Kinds of pods whose requests are shared in memory; pods of further kinds have their own."""
_NODE_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_RESOURCE_NAME = re.compile(r"[A-Za-z0-9.-]{1,253}/[A-Za-z0-9._-]{1,63}")
_ENDED = frozenset({"Succeeded", "Failed"})


class SeenNode(Protocol):
    """A node as a driver reports it."""

    @property
    def name(self) -> str: ...
    @property
    def uid(self) -> str: ...
    @property
    def labels(self) -> Mapping[str, str]: ...
    @property
    def taints(self) -> Sequence[Mapping[str, str]]: ...
    @property
    def allocatable(self) -> Mapping[str, str]: ...
    @property
    def is_ready(self) -> bool: ...
    @property
    def is_schedulable(self) -> bool: ...
    @property
    def images(self) -> bytes: ...


class SeenPod(Protocol):
    """A pod as a driver reports it."""

    @property
    def uid(self) -> str: ...
    @property
    def labels(self) -> Mapping[str, str]: ...
    @property
    def node(self) -> str: ...
    @property
    def phase(self) -> str: ...
    @property
    def requests(self) -> Mapping[str, str]: ...


@dataclass(frozen=True, slots=True)
class ForeignUse:
    """What foreign pods request on one node. `devices` is by resource: of extended ones in units, of huge pages in MiB."""

    cpu_millicores: int = 0
    memory_mib: int = 0
    pods: int = 0
    devices: Mapping[str, int] = field(default_factory=dict)


NOTHING = ForeignUse()
_UseKey = tuple[int, int, tuple[tuple[str, int], ...]]


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """The stored fields of a node. `problems` lists its implausible claims (stored as 0)."""

    name: str
    uid: str
    domain: tuple[str, ...]
    labels: Mapping[str, str]
    taints: tuple[Mapping[str, str], ...]
    offers: tuple[flavors.FlavorOffer, ...]
    cpu_millicores: int
    memory_mib: int
    pods: int
    is_ready: bool
    is_schedulable: bool
    resources: Mapping[str, int] = field(default_factory=dict)
    """Amounts of the resources that jobs may request besides (`resources`)."""
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class InventorySnapshot:
    """The input of `record_inventory`."""

    nodes: tuple[SeenNode, ...]
    foreign: Mapping[str, ForeignUse]
    used_devices: Mapping[str, Mapping[str, int]]
    claimable: ClaimableDevices = field(default_factory=ClaimableDevices)


def is_nameable(node: SeenNode) -> bool:
    """Whether a node has a name and uid in Kubernetes' form; an object without them is not a node."""
    return _NODE_NAME.fullmatch(node.name) is not None and re.fullmatch(r"[!-~]{1,64}", node.uid) is not None


def node_record(
    node: SeenNode, claimable: Mapping[Device, int] = MappingProxyType({}), allowed: Collection[str] = ()
) -> NodeRecord:
    """The stored values of a node: flavors, domain and whole-number capacity, rounded down. `claimable` are units of
    devices that are claimed there, `allowed` the other resources that jobs may request.
    """
    problems: list[str] = []
    amounts: list[int] = []
    for resource, unit in (("cpu", MILLICORES), ("memory", MEBIBYTES), ("pods", PLAIN)):
        try:
            amounts.append(offered(node.allocatable.get(resource, "0"), unit))
        except Implausible as error:
            amounts.append(0)
            problems.append(f"{resource}: {error}")
    plain = {key: value for key, value in node.labels.items() if is_plain(key) and is_plain(value)}
    offers, refused = flavors.flavors_of(plain, node.allocatable, claimable)
    cpu_millicores, memory_mib, pods = amounts
    resources, overstated = amounts_offered(node.allocatable, allowed)
    return NodeRecord(
        name=node.name,
        uid=node.uid,
        domain=topology.domain_of(node.name, plain),
        labels=kept_labels(plain, offers),
        taints=tuple(
            {key: text if is_plain(text := str(taint.get(key, ""))) else "?" for key in ("key", "value", "effect")}
            for taint in node.taints
        ),
        offers=offers,
        cpu_millicores=cpu_millicores,
        memory_mib=memory_mib,
        pods=pods,
        is_ready=node.is_ready,
        is_schedulable=node.is_schedulable and plain.get("kubernetes.io/os", "linux") == "linux",
        resources=resources,
        problems=(*problems, *refused, *overstated),
    )


def unify_flavors(
    records: Sequence[NodeRecord], apart: Sequence[Device] = ()
) -> tuple[dict[str, flavors.FlavorOffer], dict[str, list[tuple[str, int]]]]:
    """The cluster's flavors by name, and each node's (flavor name, units). No single node has the devices
    in `apart`.
    """
    offers = [offer for record in records for offer in record.offers]
    found, names = flavors.unify([*offers, *(flavors.offer_of(device) for device in apart)])
    devices = {
        record.name: [(names[flavors.key_of(offer)], offer.units) for offer in record.offers] for record in records
    }
    return found, devices


def use_of(pod: SeenPod) -> ForeignUse:
    """A pod's requests, rounded up. An implausible request counts as nothing: no kubelet would admit it."""
    amounts: dict[str, int] = {}
    devices: dict[str, int] = dict(huge_pages_used(pod.requests))
    for resource, text in pod.requests.items():
        unit = {"cpu": MILLICORES, "memory": MEBIBYTES}.get(resource, PLAIN)
        if unit is PLAIN and _RESOURCE_NAME.fullmatch(resource) is None:
            continue
        try:
            (devices if unit is PLAIN else amounts)[resource] = asked(text, unit)
        except Implausible:
            continue
    return ForeignUse(amounts.get("cpu", 0), amounts.get("memory", 0), 1, devices)


@dataclass(frozen=True, slots=True)
class NodeUse:
    """Use on one node: by foreign pods, and of devices by any pod."""

    foreign: ForeignUse
    devices: Mapping[str, int]


class ClusterInventory:
    """Nodes, claimable devices and foreign use of one cluster, updated by events. Not thread-safe: one loop feeds it.

    It keeps a few words per foreign pod, so that 100,000 pods fit in some tens of MiB.
    """

    def __init__(self, install_id: str) -> None:
        self._install_id = install_id
        self._nodes: dict[str, SeenNode] = {}
        self._placed: dict[str, tuple[str, ForeignUse, bool]] = {}
        self._uses: dict[_UseKey, ForeignUse] = {}
        self._totals: dict[str, _Total] = {}
        self._devices = DeviceInventory(INSTALL_LABEL, install_id)
        self._dirty = False
        self._is_new = True
        """More than the use of some nodes has changed since the last snapshot."""
        self._touched: set[str] = set()
        """Nodes whose use has changed since the last snapshot."""
        self._claimable = ClaimableDevices()
        self._has_nodes = self._has_pods = False
        self._node_weight = self._pod_weight = 0

    @property
    def size(self) -> int:
        """The number of nodes."""
        return len(self._nodes)

    @property
    def weight(self) -> int:
        """Estimated bytes of all data that this process keeps for the cluster."""
        return self._node_weight + self._pod_weight + self._devices.weight

    @property
    def is_complete(self) -> bool:
        """Whether everything has been listed at least once; before that, a snapshot would promise too much."""
        return self._has_nodes and self._has_pods and self._devices.is_complete

    @property
    def sees_devices(self) -> bool:
        """Whether claimable devices and claims have been listed since the last refusal of access."""
        return self._devices.is_known

    @property
    def dirty(self) -> bool:
        """Whether the content of a snapshot has changed since the last one, and all lists are complete."""
        return self._dirty and self.is_complete

    def see_nodes(self, kind: EventKind, nodes: Sequence[SeenNode]) -> None:
        """Applies one event of `watch_nodes`."""
        changed = False
        if kind == "listed":
            fresh = {node.name: node for node in nodes}
            changed = fresh != self._nodes or not self._has_nodes
            self._nodes, self._has_nodes = fresh, True
            self._node_weight = sum(map(weight_of_node, fresh.values()))
        for node in nodes:
            known = self._nodes.get(node.name)
            if kind == "deleted":
                changed |= self._nodes.pop(node.name, None) is not None
                self._node_weight -= weight_of_node(known) if known else 0
            elif known != node:
                self._nodes[node.name] = node
                self._node_weight += weight_of_node(node) - (weight_of_node(known) if known else 0)
                changed = True
        if changed:
            self._devices.nodes_changed()
        self._is_new |= changed
        self._dirty |= changed

    def see_pods(self, kind: EventKind, pods: Sequence[SeenPod]) -> None:
        """Applies one event of `watch_pods`. The pods of our jobs are no foreign use: holds already count them."""
        if kind == "listed":
            present = {pod.uid for pod in pods}
            for uid in [uid for uid in self._placed if uid not in present]:
                self._remove(uid)
            self._see(not self._has_pods)
            self._has_pods = True
        for pod in pods:
            if kind != "deleted" and pod.node and pod.phase not in _ENDED:
                is_ours = pod.labels.get(INSTALL_LABEL) == self._install_id and PREPARATION_LABEL not in pod.labels
                self._put(pod, is_ours=is_ours)
            else:
                self._remove(pod.uid)

    def see_slices(self, kind: EventKind, slices: Sequence[SliceSeen]) -> None:
        """Applies one event of `watch_slices`."""
        self._see(self._devices.see_slices(kind, slices))

    def see_claims(self, kind: EventKind, claims: Sequence[ClaimSeen]) -> None:
        """Applies one event of `watch_claims`. Devices of our own claims are no foreign use."""
        self._see(self._devices.see_claims(kind, claims))

    def see_classes(self, names: Collection[str]) -> None:
        """Sets the names of the cluster's DeviceClasses."""
        self._see(self._devices.see_classes(names))

    def close_devices(self) -> None:
        """Records that access to claims is refused: no such device counts until slices and claims have been listed."""
        self._see(self._devices.close())

    def _see(self, changed: bool) -> None:  # noqa: FBT001 - what a call found
        self._is_new |= changed
        self._dirty |= changed

    def mark_dirty(self) -> None:
        """The last snapshot or change could not be stored: it is still pending."""
        self._dirty = self._is_new = True

    def changed_use(self) -> Mapping[str, NodeUse] | None:
        """The use by node, where it has changed; clears `dirty`. None if a snapshot is needed."""
        if self._is_new:
            return None
        touched, self._touched = self._touched, set()
        self._dirty = False
        return {name: self._use_of(name) for name in sorted(touched) if name in self._nodes}

    def snapshot(self) -> InventorySnapshot:
        """The inventory as of now, nodes by name; clears `dirty`."""
        self._dirty = self._is_new = False
        self._touched = set()
        self._claimable = self._devices.snapshot(self._nodes)
        named = {*self._totals, *self._claimable.foreign, *self._claimable.used}
        uses = {name: self._use_of(name) for name in named}
        return InventorySnapshot(
            nodes=tuple(self._nodes[name] for name in sorted(self._nodes)),
            foreign={name: use.foreign for name, use in uses.items() if use.foreign != NOTHING},
            used_devices={name: use.devices for name, use in uses.items() if use.devices},
            claimable=self._claimable,
        )

    def _use_of(self, name: str) -> NodeUse:
        total = self._totals.get(name, _NO_PODS)
        foreign, devices = total.foreign(), total.used_devices()
        if name in self._claimable.foreign:
            foreign = replace(foreign, devices=_summed(foreign.devices, self._claimable.foreign[name]))
        if name in self._claimable.used:
            devices = _summed(devices, self._claimable.used[name])
        return NodeUse(foreign, devices)

    def _put(self, pod: SeenPod, *, is_ours: bool) -> None:
        use = use_of(pod)
        if len(self._uses) >= MOST_USES:
            self._uses.clear()
        use = self._uses.setdefault((use.cpu_millicores, use.memory_mib, tuple(sorted(use.devices.items()))), use)
        placed = (pod.node, use, is_ours)
        if self._placed.get(pod.uid) == placed:
            return
        self._remove(pod.uid)
        self._placed[pod.uid] = placed
        self._touched.add(pod.node)
        self._pod_weight += _weight_of_placed(use)
        self._totals.setdefault(pod.node, _Total()).add(use, 1, is_ours=is_ours)
        self._dirty = True

    def _remove(self, uid: str) -> None:
        placed = self._placed.pop(uid, None)
        if placed is not None:
            node, use, is_ours = placed
            self._touched.add(node)
            self._pod_weight -= _weight_of_placed(use)
            total = self._totals[node]
            total.add(use, -1, is_ours=is_ours)
            if not total.bound:
                del self._totals[node]
            self._dirty = True


def _weight_of_placed(use: ForeignUse) -> int:
    return PLACED_POD + ENTRY * len(use.devices)


class _Total:
    """The running sums of one node: foreign use, and devices used by any pod."""

    __slots__ = ("bound", "cpu_millicores", "devices", "foreign_devices", "memory_mib", "pods")

    def __init__(self) -> None:
        self.cpu_millicores = self.memory_mib = self.pods = self.bound = 0
        self.devices: dict[str, int] = {}
        self.foreign_devices: dict[str, int] = {}

    def add(self, use: ForeignUse, sign: Literal[1, -1], *, is_ours: bool) -> None:
        self.bound += sign
        for resource, units in use.devices.items():
            self.devices[resource] = self.devices.get(resource, 0) + sign * units
        if is_ours:
            return
        self.cpu_millicores += sign * use.cpu_millicores
        self.memory_mib += sign * use.memory_mib
        self.pods += sign
        for resource, units in use.devices.items():
            self.foreign_devices[resource] = self.foreign_devices.get(resource, 0) + sign * units

    def foreign(self) -> ForeignUse:
        return ForeignUse(self.cpu_millicores, self.memory_mib, self.pods, _filled(self.foreign_devices))

    def used_devices(self) -> dict[str, int]:
        return _filled(self.devices)


_NO_PODS = _Total()


def _summed(devices: Mapping[str, int], more: Mapping[str, int]) -> dict[str, int]:
    return {name: devices.get(name, 0) + more.get(name, 0) for name in sorted({*devices, *more})}


def _filled(devices: Mapping[str, int]) -> dict[str, int]:
    return {resource: units for resource, units in sorted(devices.items()) if units}
