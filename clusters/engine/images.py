"""Which images nodes have: normal names, and a compact form per node.

A node lists its images by their names (tags and digests) with their sizes. Per name, the gateway keeps a key of 8 bytes and
the size, so that the lists of 10,000 nodes take some tens of MiB. What a node lists in another form than Kubernetes' own
counts as no image.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from struct import Struct
from typing import TypeAlias

NodeImages: TypeAlias = bytes
"""Packed entries of `ENTRY`, each key once."""
NO_IMAGES: NodeImages = b""
MOST_IMAGES = 128
"""Per node. A kubelet reports its 50 largest images unless it is configured otherwise, the largest first."""
MOST_NAMES = 8
"""Per image; a kubelet reports at most 5."""
LONGEST_NAME = 600
"""The longest that a job may name has 512 characters; the normal form adds at most 25."""
LARGEST_MIB = 1024 * 1024
MIB = 1024 * 1024
ENTRY = Struct("<QI")
"""A key and a size in MiB. Packed without numpy, which most management commands need not import."""
_HUB, _LIBRARY = "docker.io", "library/"
_ALIASES = frozenset({"index.docker.io", "registry-1.docker.io"})


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
    return b"".join([ENTRY.pack(key, size) for key, size in sizes.items()]) if sizes else NO_IMAGES


def size_on(images: NodeImages, key: int) -> int | None:
    """The size in MiB of the image with this key on a node; None if it is not there."""
    sought = key.to_bytes(8, "little")
    at = images.find(sought)
    while at >= 0:
        if at % ENTRY.size == 0:
            size: int = ENTRY.unpack_from(images, at)[1]
            return size
        at = images.find(sought, at + 1)
    return None
