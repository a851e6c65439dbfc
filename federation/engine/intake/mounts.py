"""The storages that a pod set mounts: read from untrusted JSON, and written in the normal form.

A user chooses the storage, where it appears in the container, and which part of the tenant's own part of it. Nothing
else of a volume comes from a user.
"""

import re
from collections.abc import Sequence
from typing import Any

from clusters.engine.storages import MOST_PATH, PATH, is_relative
from clusters.engine.volumes import LEAST_BYTES, MOST_BYTES
from federation.engine import names
from placement.values.quantities import memory_text, whole_bytes

from .amounts import read_amount
from .reading import Fields
from .spec import DNS_LABEL, MAX_MOUNTS, Mount

MOUNT_FIELDS = frozenset(["storage", "path", "sub_path", "read_only", "size"])
CONTAINER_PATH = "an absolute path of letters, digits and `._-`, without '.', '..' and a slash at its end"
CLOSED = ("/proc", "/sys", "/dev", "/run", "/var/run", "/etc")
"""Directories of the container that its runtime makes, or by which programs find accounts and libraries."""
TWICE = "a pod gets one new volume of a storage, mounted once"
_container_path = re.compile(r"(/[A-Za-z0-9._-]+)+").fullmatch


def read_mounts(fields: Fields, taken: Sequence[str] = ()) -> tuple[Mount, ...]:
    """The mounts of a pod set, in their order, outside of paths that are `taken`; the caller checks that the storages exist."""
    found: list[Mount] = []
    for index, value in enumerate(fields.array("mounts", most=MAX_MOUNTS)):
        given = Fields(value, f"{fields.at('mounts')}[{index}]", fields.faults, MOUNT_FIELDS)
        storage = given.checked("storage", names.dns_label, DNS_LABEL, most_bytes=names.MAX_LABEL)
        path = read_path(given, [*taken, *(mount.path for mount in found)])
        size = _read_size(given, storage, found)
        found.append(Mount(storage, path, _read_sub_path(given), given.flag("read_only", default=not size), size))
    return tuple(found)


def _read_size(given: Fields, storage: str, found: Sequence[Mount]) -> int:
    """The size of a new volume in bytes; 0 without one."""
    if given.values.get("size") is None:
        if any(mount.storage == storage and mount.size_bytes for mount in found):
            given.fault("storage", "duplicate", TWICE)
        return 0
    if given.values.get("sub_path") not in (None, ""):
        given.fault("sub_path", "not_allowed", "a new volume is empty")
    if given.values.get("read_only") is True:
        given.fault("read_only", "not_allowed", "a new volume is empty: leave it out, or set it to false")
    if any(mount.storage == storage for mount in found):
        given.fault("storage", "duplicate", TWICE)
    return read_amount(given, "size", whole_bytes, memory_text, LEAST_BYTES, MOST_BYTES)


def mounts_json(mounts: Sequence[Mount]) -> list[dict[str, Any]]:
    """The normal form of the mounts."""
    return [
        {"storage": one.storage, "path": one.path, "sub_path": one.sub_path, "read_only": one.is_read_only}
        | ({"size": memory_text(one.size_bytes)} if one.size_bytes else {})
        for one in mounts
    ]


def read_path(given: Fields, taken: Sequence[str]) -> str:
    """A path in the container, outside of what is `taken`."""
    before = len(given.faults.found)
    path = given.checked("path", is_container_path, CONTAINER_PATH, most_bytes=MOST_PATH)
    if len(given.faults.found) == before:
        if any(is_inside(path, closed) for closed in CLOSED):
            given.fault("path", "not_allowed", f"nothing can be mounted in {', '.join(CLOSED)}")
        elif other := next((one for one in taken if is_inside(path, one) or is_inside(one, path)), ""):
            given.fault("path", "duplicate", f"overlaps with {other}")
    return path


def is_container_path(text: str) -> bool:
    """Whether this is a plain absolute path, and not the root."""
    return _container_path(text) is not None and not {".", ".."} & set(text.split("/"))


def is_inside(path: str, directory: str) -> bool:
    """Whether a path is the directory, or below it."""
    return path == directory or path.startswith(f"{directory}/")


def _read_sub_path(given: Fields) -> str:
    if given.values.get("sub_path") in (None, ""):
        return ""
    return given.checked("sub_path", is_relative, PATH, most_bytes=MOST_PATH)
