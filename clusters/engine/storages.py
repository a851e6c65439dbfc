"""What jobs may mount on a cluster, and the part of a volume that a tenant's jobs get.

Every path here is relative and plain: names of a closed set of characters, joined by single slashes, without `.` and
`..`. So no path that a user writes leads out of the prefix that an administrator set.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from .declared import is_for
from .object_stores import ObjectStore

TENANT = "{tenant}"
"""In a prefix, stands for the id of the job's tenant: paths of tenants change, and another tenant may get an old one."""
_CHARACTERS = r"A-Za-z0-9._=+@,~"
PREFIX_PATTERN = rf"^[{_CHARACTERS}/-]*(\{{tenant\}}[{_CHARACTERS}/-]*)?\Z"
DOTS_PATTERN = r"(^|/)\.{0,2}(/|$)"
"""An empty name, `.` or `..` anywhere in a path, so also a slash at its start or end."""
CLAIM_PATTERN = r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?\Z"
CLAIM = "the name of a PersistentVolumeClaim: lower-case letters, digits, '-' and '.'"
MOST_PREFIX = 120
MOST_PATH = 512
MOST_NAME = 255
PREFIX = "names joined by '/', of letters, digits and `._=+@,~-`, without '.' and '..'; at most one {tenant}"
PATH = "names joined by '/', of letters, digits and `._=+@,~-`, each at most 255, without '.' and '..'"


class Kind(StrEnum):
    """Where a storage's data is."""

    CLAIM = "claim"
    """In a volume of the cluster, which jobs mount."""
    OBJECT_STORE = "object_store"
    """In a bucket, from which datasets are copied to claims. Jobs do not mount it."""
    STORAGE_CLASS = "storage_class"
    """In a new, empty volume of each pod, which goes with the pod."""
    IMAGE = "image"
    """In an image, whose files jobs mount and read."""


class Mode(StrEnum):
    """What the administrator allows jobs to do with a storage."""

    READ_ONLY = "read_only"
    READ_WRITE = "read_write"


class Escape(ValueError):
    """A path that is not plain, and so might lead out of its prefix."""


def is_prefix(text: str) -> bool:
    """Whether this can be a storage's prefix; the empty one is the whole volume."""
    return not text or (
        len(text) <= MOST_PREFIX
        and re.match(PREFIX_PATTERN, text) is not None
        and re.search(DOTS_PATTERN, text) is None
    )


def is_claim(text: str) -> bool:
    """Whether this can be the name of a PersistentVolumeClaim."""
    return re.match(CLAIM_PATTERN, text) is not None


def is_relative(text: str) -> bool:
    """Whether this is a plain path below a prefix."""
    return (
        0 < len(text) <= MOST_PATH
        and re.fullmatch(rf"[{_CHARACTERS}/-]+", text) is not None
        and re.search(DOTS_PATTERN, text) is None
        and all(len(name) <= MOST_NAME for name in text.split("/"))
    )


def sub_path_of(prefix: str, tenant_id: UUID, within: str) -> str:
    """The part of the volume that a tenant's job gets: `within` below the prefix; empty: all of it. Raises Escape."""
    if not is_prefix(prefix):
        raise Escape("the storage's prefix is not a plain path")
    if within and not is_relative(within):
        raise Escape("the job's sub_path is not a plain path")
    return "/".join(part for part in (prefix.replace(TENANT, str(tenant_id)), within) if part)


@dataclass(frozen=True, slots=True)
class KnownStorage:
    """A storage of a registered cluster, as jobs of `tenant_path` and of the tenants below it see it.

    It has one of these: `claim`, `store`, `storage_class` with the largest volume of a pod in `most_bytes`, or `image`.
    """

    cluster_id: UUID
    cluster_owner_path: str
    tenant_path: str
    name: str
    claim: str
    is_writable: bool
    prefix: str
    store: ObjectStore | None = None
    storage_class: str = ""
    most_bytes: int = 0
    image: str = ""

    @property
    def volume(self) -> str:
        """What its paths are in, if it keeps data: its claim, or its bucket."""
        return self.store.volume if self.store else self.claim

    @property
    def keeps_data(self) -> bool:
        """Whether datasets can be copied from it."""
        return bool(self.claim or self.store)

    def serves(self, tenant_path: str, *, is_written: bool = False, size_bytes: int = 0) -> bool:
        """Whether a tenant's jobs may mount it there, write to it if they want to, and get a volume of this size. Those that ask for
        a size want a new volume, and only those get one.
        """
        gives = bool(size_bytes) == bool(self.storage_class) and size_bytes <= self.most_bytes
        return is_for(self, tenant_path) and (self.is_writable or not is_written) and gives


Shelves = Mapping[str, Mapping[UUID, KnownStorage]]
"""Storages by name, then by cluster."""
