"""How long nodes take to pull the images of a job's pods, where it is known which nodes have them.

It decides only between candidates whose sums are equal (`contest`), in steps of STEP_SECONDS: less is not worth crowding one
cluster. Of images that no node is known to have, nothing is assumed.
"""

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from clusters.engine.pulls import USUAL_SECONDS
from placement.fleet.fleet import Fleet
from placement.fleet.pools import Ints
from placement.values.decisions import Pull
from placement.values.images import KnownImage, image_key
from placement.values.model import JobRequest, Snapshot

from .candidates import Ask
from .runtimes import rough_text

STEP_SECONDS = 10


class _Found(NamedTuple):
    """An image on the fleet, per pool: the number of nodes that have it, how long others take, and the steps expected."""

    name: str
    nodes: Ints
    seconds: Ints
    steps: Ints

    @property
    def is_equal_everywhere(self) -> bool:
        """Whether it decides nothing."""
        return self.steps.size == 0 or bool((self.steps == self.steps[0]).all())


class Pulling:
    """The pulls of jobs with equal images."""

    def __init__(self, found: Sequence[_Found | None], size: Ints) -> None:
        self._found = found
        """By pod set; None for an image of which nothing is known."""
        self._size = size
        self.key: object = tuple(
            (position, one.steps.tobytes())
            for position, one in enumerate(found)
            if one is not None and not one.is_equal_everywhere
        )
        """Equal for images with equal effect on the ranking; empty if they have none."""

    def steps(self, ask: Ask) -> Ints:
        """Per candidate, the expected pull in steps. The pods start together, so the slowest decides."""
        found = np.zeros(len(ask.pools), dtype=np.int64)
        for column, one in enumerate(self._found):
            if one is not None:
                np.maximum(found, one.steps[ask.pools[:, column]], out=found)
        return found

    def at(self, pools: Sequence[int]) -> Pull | None:
        """The slowest pull in these pools, one for each pod set; None if nothing is known."""
        known = [self._pull(one, pool) for one, pool in zip(self._found, pools, strict=True) if one is not None]
        return max(known, key=lambda pull: pull.seconds, default=None)

    def _pull(self, found: _Found, pool: int) -> Pull:
        nodes, size = found.nodes.item(pool), self._size.item(pool)
        return Pull(found.name, nodes, size, 0 if nodes >= size else found.seconds.item(pool))


class Pulls:
    """The pulls of each job of a cycle. A snapshot without known images costs nothing."""

    def __init__(self, fleet: Fleet, snapshot: Snapshot) -> None:
        self._fleet = fleet
        self._images = snapshot.images
        self._learned = snapshot.pull_seconds
        self._found: dict[str, _Found | None] = {}
        self._pulling: dict[tuple[str, tuple[str, ...]], Pulling | None] = {}

    def of(self, job: JobRequest) -> Pulling | None:
        """The job's pulls; None if nothing is known of its images."""
        if not self._images or not job.images:
            return None
        asked = image_key(job.tenant_path, ""), job.images
        if asked not in self._pulling:
            found = [self._find(image_key(job.tenant_path, name), name) for name in job.images]
            self._pulling[asked] = None if all(one is None for one in found) else Pulling(found, self._size)
        return self._pulling[asked]

    @cached_property
    def _size(self) -> Ints:
        """The number of nodes per pool."""
        return np.array([len(pool.node_names) for pool in self._fleet.pools], dtype=np.int64)

    @cached_property
    def _seconds(self) -> Ints:
        """A row per cluster, a column per class of size."""
        rows = [self._learned.get(cluster.id, USUAL_SECONDS) for cluster in self._fleet.clusters]
        return np.array(rows, dtype=np.int64).reshape(-1, len(USUAL_SECONDS))

    def _find(self, key: str, name: str) -> _Found | None:
        if key not in self._found:
            known = self._images.get(key)
            self._found[key] = None if known is None else self._on_fleet(known, name)
        return self._found[key]

    def _on_fleet(self, known: KnownImage, name: str) -> _Found:
        fleet = self._fleet
        nodes = np.zeros(len(fleet.pools), dtype=np.int64)
        for number, (first, end) in enumerate(pairwise(fleet.first_pool_of_cluster)):
            there = known.nodes.get(fleet.clusters[number].id)
            if there:
                nodes[first:end] = [there.get(pool.flavor.name, 0) for pool in fleet.pools[first:end]]
        nodes = np.clip(nodes, 0, self._size)
        seconds = self._seconds[:, known.size_class][fleet.cluster_of_pool]
        return _Found(
            name, nodes, seconds, seconds * (self._size - nodes) // (np.maximum(self._size, 1) * STEP_SECONDS)
        )


def pull_text(pull: Pull) -> str:
    """The text for users: `its image is on 3 of 8 nodes there, and pulling it takes about 40 s`."""
    if pull.nodes >= pull.of_nodes:
        return (
            "its image is on the node there"
            if pull.of_nodes == 1
            else f"its image is on all {pull.of_nodes} nodes there"
        )
    takes = f"pulling it takes about {rough_text(pull.seconds)}"
    if not pull.nodes:
        return f"no node there reports its image, and {takes}"
    return f"its image is on {pull.nodes} of {pull.of_nodes} nodes there, and {takes}"
