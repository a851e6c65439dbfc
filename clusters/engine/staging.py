"""The grammar of staging plans, and which of them may copy: storages and paths, without a database."""

import re
from uuid import UUID

from .storages import KnownStorage, is_relative, sub_path_of

PATH_PATTERN = r"^[A-Za-z0-9._=+@,~/-]+\Z"
"""Without `.` and `..`, which `storages.DOTS_PATTERN` finds."""
SHA256_PATTERN = r"^[0-9a-f]{64}\Z"
SHA256 = "64 hex digits, in lower case"


def is_path(text: str) -> bool:
    """Whether this is the path of a dataset on a storage."""
    return is_relative(text)


def is_sha256(text: str) -> bool:
    """Whether this is a digest."""
    return re.match(SHA256_PATTERN, text) is not None


def overlap(source: KnownStorage, source_path: str, target: KnownStorage, target_path: str, tenant_id: UUID) -> bool:
    """Whether one of the two places is inside the other, so that a copy would copy itself."""
    if source.claim != target.claim:
        return False
    one, other = (
        f"{sub_path_of(storage.prefix, tenant_id, path)}/"
        for storage, path in ((source, source_path), (target, target_path))
    )
    return one.startswith(other) or other.startswith(one)


def why_not(source: KnownStorage, target: KnownStorage, tenant_path: str) -> str:
    """Why the dataset of a tenant may not be copied from the one to the other; empty if it may."""
    if not source.serves(tenant_path):
        return f"The storage {source.name} does not serve {tenant_path}."
    if not target.serves(tenant_path):
        return f"The storage {target.name} does not serve {tenant_path}."
    return "" if target.is_writable else f"The storage {target.name} is read-only."
