"""Which images nodes have: normal names, a compact form per node, and counts by flavor.

A node lists its images by their names (tags and digests) with their sizes. Per name, the gateway keeps a key of 8 bytes and
the size, so that the lists of 10,000 nodes take some tens of MiB. What a node lists in another form than Kubernetes' own
counts as no image.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Any, TypeAlias

import numpy as np

NodeImages: TypeAlias = bytes
"""Packed entries of `_ENTRY`, each key once."""
NO_IMAGES: NodeImages = b""
MOST_IMAGES = 128
"""Per node. A kubelet reports its 50 largest images unless it is configured otherwise, the largest first."""
MOST_NAMES = 8
"""Per image; a kubelet reports at most 5."""
LONGEST_NAME = 600
"""The longest that a job may name has 512 characters; the normal form adds at most 25."""
LARGEST_MIB = 1024 * 1024
MIB = 1024 * 1024
_ENTRY = np.dtype([("key", "<u8"), ("size_mib", "<u4")])
_HUB, _LIBRARY = "docker.io", "library/"
_ALIASES = frozenset({"index.docker.io", "registry-1.docker.io"})


@dataclass(frozen=True, slots=True)
class ImageCount:
    """How many nodes of a cluster have an image, in all and by the flavor that they offer."""

    size_mib: int
    nodes: int
    by_flavor: Mapping[str, int]
    on_nodes: tuple[str, ...] | None = None
    """The names of these nodes; None if they were not asked for."""


def normal_name(image: str) -> str:
    """The full name as nodes list it: `python:3.11` is `docker.io/library/python:3.11`. Of a tag and a digest, the digest
    counts; without either, the tag is `latest`.
    """
    path, _, digest = image.partition("@")
    host, slash, rest = path.partition("/")
    if not slash or not ("." in host or ":" in host or host == "localhost"):
        host, rest = _HUB, path
    host = host.lower()
    host = _HUB if host in _ALIASES else host
    if host == _HUB and "/" not in rest:
        rest = _LIBRARY + rest
    name, colon, tag = rest.rpartition(":")
    if not colon:
        name, tag = rest, "latest"
    return f"{host}/{name}@{digest}" if digest else f"{host}/{name}:{tag}"


@lru_cache(maxsize=16_384)
def key_of(image: str) -> int:
    """The same for all spellings of a name."""
    return int.from_bytes(blake2b(normal_name(image).encode("utf-8", "replace"), digest_size=8).digest(), "little")


def packed(listed: Iterable[tuple[Sequence[str], int]]) -> NodeImages:
    """The names and the size in bytes of each image of a node in compact form; of a name listed twice, the first counts.

    Names that no job can have (`<none>@<none>`, a bare id) do not count, nor do images beyond the first MOST_IMAGES.
    """
    sizes: dict[int, int] = {}
    for number, (names, size_bytes) in enumerate(listed):
        if number >= MOST_IMAGES:
            break
        size_mib = min(LARGEST_MIB, max(0, -(-size_bytes // MIB)))
        for name in names[:MOST_NAMES]:
            if len(name) <= LONGEST_NAME and not name.startswith(("<", "sha256:")):
                sizes.setdefault(key_of(name), size_mib)
    return np.array(list(sizes.items()), dtype=_ENTRY).tobytes() if sizes else NO_IMAGES


def size_on(images: NodeImages, key: int) -> int | None:
    """The size in MiB of the image with this key on a node; None if it is not there."""
    entries = np.frombuffer(images, dtype=_ENTRY)
    found = entries["size_mib"][entries["key"] == key]
    return int(found[0]) if found.size else None


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
    owner = np.repeat(np.arange(len(nodes)), [len(by_node[name]) // _ENTRY.itemsize for name in nodes])
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
