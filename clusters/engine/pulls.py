"""How long clusters take to pull images: samples from the gateway's own pods, and what follows from them.

A sample is the time from when a pod's sandbox was ready (its volumes were mounted and its network existed) until its
container ran, on a node that did not have the image. Both times are from the same kubelet, so clocks need not agree.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from .device_inventory import EventKind
from .images import NO_IMAGES, NodeImages, key_of, size_on
from .weights import KNOWN_UID

CLASSES_MIB = (64, 256, 1024, 4096, 16384)
"""Sizes up to which images count as equally large; the last class has no bound."""
USUAL_SECONDS = (3, 8, 25, 90, 300, 600)
"""By class: what a pull takes where too few were seen."""
FEWEST_PULLS = 3
MOST_PULLS = 15
"""Per cluster and class, the newest ones count: their median."""
LONGEST_SECONDS = 3600
MOST_OPEN = 2000
"""Pods of one cluster whose pulls are followed at the same time; further ones are not."""
MOST_ROUNDS = 20
"""How often a node is checked for the size of an image that it has pulled."""


class PullSample(NamedTuple):
    """One pull: the class of the image's size, and its duration."""

    size_class: int
    seconds: int


class PulledPod(Protocol):
    """A pod as a driver reports it."""

    @property
    def uid(self) -> str: ...
    @property
    def node(self) -> str: ...
    @property
    def image(self) -> str: ...
    @property
    def pull_seconds(self) -> int | None: ...


class ImagedNode(Protocol):
    """A node as a driver reports it."""

    @property
    def name(self) -> str: ...
    @property
    def images(self) -> NodeImages: ...


def class_of(size_mib: int) -> int:
    """The class of an image of this size."""
    return bisect_left(CLASSES_MIB, size_mib)


def expected_seconds(recent: Sequence[int], size_class: int) -> int:
    """How long a pull is expected to take on a cluster whose newest pulls of this class took `recent` seconds."""
    if len(recent) < FEWEST_PULLS:
        return USUAL_SECONDS[size_class]
    middle = sorted(recent[:MOST_PULLS])[min(len(recent), MOST_PULLS) // 2]
    return min(LONGEST_SECONDS, max(0, middle))


class _Seen(NamedTuple):
    """A pull that has ended; the node does not list the image yet."""

    node: str
    key: int
    seconds: int
    rounds: int


class ImageInventory:
    """The images of one cluster's nodes, and the pulls of the gateway's own pods there. Not thread-safe: one loop feeds it."""

    def __init__(self) -> None:
        self._images: dict[str, NodeImages] = {}
        self._starting: dict[str, tuple[str, int]] = {}
        """By uid of a pod whose node did not have its image: the node, and the image's key."""
        self._seen: list[_Seen] = []
        self._pulls: list[PullSample] = []
        self.has_changed = False
        """Whether the images of some node have changed since the last snapshot."""

    @property
    def weight(self) -> int:
        """The estimated size of the contents, in bytes, besides the nodes' images, which count with the nodes."""
        return KNOWN_UID * (len(self._starting) + len(self._seen) + len(self._pulls))

    def see_nodes(self, kind: EventKind, nodes: Sequence[ImagedNode]) -> None:
        """Applies one event of `watch_nodes`."""
        if kind == "listed":
            fresh = {node.name: node.images for node in nodes}
            self.has_changed |= fresh != self._images
            self._images = fresh
            return
        for node in nodes:
            if kind == "deleted":
                self.has_changed |= bool(self._images.pop(node.name, NO_IMAGES))
            elif self._images.get(node.name) != node.images:
                self._images[node.name] = node.images
                self.has_changed = True

    def see_pods(self, kind: EventKind, pods: Sequence[PulledPod]) -> None:
        """Applies one event of `watch_pods`; only our own pods have an image here."""
        if kind == "listed":
            there = {pod.uid for pod in pods}
            self._starting = {uid: one for uid, one in self._starting.items() if uid in there}
        for pod in pods:
            started = self._starting.get(pod.uid)
            if started is None:
                if pod.image and pod.node and pod.pull_seconds is None and kind != "deleted":
                    self._begin(pod)
                continue
            if pod.pull_seconds is not None and started[0] == pod.node and len(self._seen) < MOST_OPEN:
                self._seen.append(_Seen(*started, min(LONGEST_SECONDS, pod.pull_seconds), 0))
            if pod.pull_seconds is not None or kind == "deleted":
                del self._starting[pod.uid]

    def _begin(self, pod: PulledPod) -> None:
        images, key = self._images.get(pod.node, NO_IMAGES), key_of(pod.image)
        # A node that lists nothing is not known to lack the image.
        if images and size_on(images, key) is None and len(self._starting) < MOST_OPEN:
            self._starting[pod.uid] = pod.node, key

    def snapshot(self) -> Mapping[str, NodeImages]:
        """The images by node as of now; clears `has_changed`."""
        self.has_changed = False
        return dict(self._images)

    def take_pulls(self) -> list[PullSample]:
        """The pulls that have ended since the last call. The size of each is what its node lists after it."""
        pending: list[_Seen] = []
        for one in self._seen:
            size_mib = size_on(self._images.get(one.node, NO_IMAGES), one.key)
            if size_mib is not None:
                self._pulls.append(PullSample(class_of(size_mib), one.seconds))
            elif one.rounds < MOST_ROUNDS:
                pending.append(one._replace(rounds=one.rounds + 1))
        self._seen = pending
        taken, self._pulls = self._pulls, []
        return taken

    def give_back(self, pulls: Sequence[PullSample]) -> None:
        """Puts back what could not be recorded."""
        self._pulls = [*pulls, *self._pulls][:MOST_OPEN]
