"""Counts of images on nodes, by flavor."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .images import ENTRY, NodeImages, key_of

_ENTRY = np.dtype([("key", "<u8"), ("size_mib", "<u4")])
"""`ENTRY` as numpy reads it."""


@dataclass(frozen=True, slots=True)
class ImageCount:
    """How many nodes of a cluster have an image, in all and by the flavor that they offer."""

    size_mib: int
    nodes: int
    by_flavor: Mapping[str, int]
    on_nodes: tuple[str, ...] | None = None
    """The names of these nodes; None if they were not asked for."""


def counts(
    by_node: Mapping[str, NodeImages],
    names: Sequence[str],
    flavors: Mapping[str, Sequence[str]],
    kept: Collection[str] = (),
) -> dict[str, ImageCount]:
    """Which of the images with these normal names are on nodes of a cluster, and on how many; of those `kept`, on which.

    `flavors` is what each known node offers; others do not count. If nodes disagree about the size, the lower median counts.
    """
    nodes = [name for name in by_node if name in flavors]
    wanted = np.array([key_of(name) for name in names], dtype=np.uint64)
    if not nodes or not wanted.size:
        return {}
    entries = np.frombuffer(b"".join([by_node[name] for name in nodes]), dtype=_ENTRY)
    owner = np.repeat(np.arange(len(nodes)), [len(by_node[name]) // ENTRY.size for name in nodes])
    kinds = sorted({tuple(flavors[name]) for name in nodes})
    number_of = {kind: number for number, kind in enumerate(kinds)}
    kind = np.array([number_of[tuple(flavors[name])] for name in nodes], dtype=np.int64)[owner]
    result: dict[str, ImageCount] = {}
    for number, those in _by_image(entries["key"], wanted):
        sizes = np.sort(entries["size_mib"][those])
        by_flavor: Counter[str] = Counter()
        seen, times = np.unique(kind[those], return_counts=True)
        for one, count in zip(seen.tolist(), times.tolist(), strict=True):
            by_flavor.update(dict.fromkeys(kinds[one], count))
        on_nodes = tuple(sorted(nodes[at] for at in owner[those].tolist())) if names[number] in kept else None
        result[names[number]] = ImageCount(
            int(sizes[(sizes.size - 1) // 2]), those.size, dict(sorted(by_flavor.items())), on_nodes
        )
    return result


def _by_image(keys: "np.ndarray[Any, Any]", wanted: "np.ndarray[Any, Any]") -> "list[tuple[int, np.ndarray[Any, Any]]]":
    """The number of each wanted key that occurs, with the positions at which it does."""
    order = np.argsort(wanted, kind="stable")
    at = np.minimum(np.searchsorted(wanted[order], keys), wanted.size - 1)
    hits = np.flatnonzero(wanted[order][at] == keys)
    image = order[at[hits]]
    in_order = np.argsort(image, kind="stable")
    found, starts = np.unique(image[in_order], return_index=True)
    return list(zip(found.tolist(), np.split(hits[in_order], starts[1:]), strict=True)) if found.size else []
