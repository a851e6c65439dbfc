"""The grammar of staging plans, and which of them may copy: storages and paths, without a database."""

import re
from typing import NamedTuple
from uuid import UUID

from .storages import KnownStorage, is_relative, sub_path_of

PATH_PATTERN = r"^[A-Za-z0-9._=+@,~/-]+\Z"
"""Without `.` and `..`, which `storages.DOTS_PATTERN` finds."""
SHA256_PATTERN = r"^[0-9a-f]{64}\Z"
SHA256 = "64 hex digits, in lower case"


class Place(NamedTuple):
    """A path of a volume or of a bucket, which ends with a slash."""

    volume: str
    path: str


def is_path(text: str) -> bool:
    """Whether this is the path of a dataset on a storage."""
    return is_relative(text)


def is_sha256(text: str) -> bool:
    """Whether this is a digest."""
    return re.match(SHA256_PATTERN, text) is not None


def overlap(source: KnownStorage, source_path: str, target: KnownStorage, target_path: str, tenant_id: UUID) -> bool:
    """Whether one of the two places is inside the other, so that a copy would copy itself."""
    return meet(place_of(source, source_path, tenant_id), place_of(target, target_path, tenant_id))


def place_of(storage: KnownStorage, path: str, tenant_id: UUID) -> Place:
    """Where a path of a tenant on a storage is."""
    return Place(storage.volume, f"{sub_path_of(storage.prefix, tenant_id, path)}/")


def meet(one: Place, other: Place) -> bool:
    """Whether one of the places is inside the other."""
    return one.volume == other.volume and (one.path.startswith(other.path) or other.path.startswith(one.path))


def why_not(source: KnownStorage, target: KnownStorage, tenant_path: str) -> str:
    """Why the dataset of a tenant may not be copied from the one to the other; empty if it may."""
    if not source.serves(tenant_path):
        return f"The storage {source.name} does not serve {tenant_path}."
    if not source.keeps_data:
        return f"The storage {source.name} is an image, which jobs mount themselves."
    if not target.serves(tenant_path):
        return f"The storage {target.name} does not serve {tenant_path}."
    if target.store is not None:
        return f"The storage {target.name} is an object store: data is copied from it, not to it."
    return "" if target.is_writable else f"The storage {target.name} is read-only."
