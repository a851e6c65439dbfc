"""Storages that are neither a claim nor a bucket: new volumes of a StorageClass, and images whose files are mounted."""

import re

from .quantities import Implausible, bytes_text, parse

MOST_CLASS, MOST_IMAGE, MOST_SIZE_TEXT = 253, 512, 32
CLASS_PATTERN = r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?\Z"
CLASS = "the name of a StorageClass: lower-case letters, digits, '-' and '.'"
_LABEL, _PART = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", r"[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*"
IMAGE_PATTERN = (
    rf"^({_LABEL}\.)+[a-z]([a-z0-9-]{{0,61}}[a-z0-9])?(:[0-9]{{1,5}})?(/{_PART})+"
    r"(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?@sha256:[0-9a-f]{64}\Z"
)
"""With its registry's DNS name, which no setting of a node completes, and its digest: a tag could be moved under running jobs."""
IMAGE = "an image with its registry and its digest: registry.example/path@sha256:… (64 hex digits), in lower case"
LEAST_BYTES, MOST_BYTES = 2**20, 64 * 2**40
SIZE = "a Kubernetes quantity of whole bytes, from 1Mi to 64Ti"


class BadSize(ValueError):
    """Not a quantity of whole bytes, or out of bounds."""


def is_class(text: str) -> bool:
    """Whether this can be the name of a StorageClass."""
    return re.match(CLASS_PATTERN, text) is not None


def is_pinned_image(text: str) -> bool:
    """Whether this is an image with its registry and its digest."""
    return len(text) <= MOST_IMAGE and re.match(IMAGE_PATTERN, text) is not None


def size_bytes_of(text: str) -> int:
    """The size of a volume in bytes. Raises BadSize."""
    try:
        size = parse(text)
    except Implausible:
        raise BadSize(SIZE) from None
    if size.denominator != 1 or not LEAST_BYTES <= size <= MOST_BYTES:
        raise BadSize(SIZE)
    return size.numerator


def size_text(size_bytes: int) -> str:
    """The canonical quantity; empty for 0, which is no volume."""
    return bytes_text(size_bytes) if size_bytes else ""
