"""What a pod has beside its program, in a spec: its ports, its shared memory and its local disk. Read from
untrusted JSON, and written in the normal form.
"""

import re
from typing import Any

from placement.values.quantities import memory_text, whole_bytes

from .amounts import read_amount
from .reading import Fields
from .spec import (
    DEFAULT_SCRATCH_PATH,
    MAX_PATH_BYTES,
    MAX_PORT,
    MAX_PORTS,
    MAX_SCRATCH_BYTES,
    MIN_LOCAL_BYTES,
    PodSet,
    Port,
    Scratch,
)

PORT_FIELDS = frozenset(["name", "number"])
SCRATCH_FIELDS = frozenset(["size", "path"])
PORT_NAME = "up to 15 lower-case letters, digits and single '-' in between, with at least one letter"
SCRATCH_PATH = (
    "an absolute path of letters, digits, '-', '_' and '.', without '.' and '..' as a part, "
    "outside /dev, /proc, /sys and /etc"
)
_KEPT_PATHS = frozenset({"dev", "proc", "sys", "etc"})
"""Folders of the kernel, of the container's runtime and of the gateway."""
_parts = re.compile(r"(/[A-Za-z0-9._-]+)+").fullmatch
_port_name = re.compile(r"(?=.*[a-z])[a-z0-9]+(-[a-z0-9]+)*").fullmatch
_LONGEST_PORT_NAME = 15


def is_port_name(text: str) -> bool:
    """Whether Kubernetes accepts it as the name of a port."""
    return len(text) <= _LONGEST_PORT_NAME and _port_name(text) is not None


def is_scratch_path(text: str) -> bool:
    """Whether a local disk can be mounted there without hiding what the pod needs."""
    parts = text.split("/")[1:]
    return _parts(text) is not None and not {".", ".."} & {*parts} and parts[0] not in _KEPT_PATHS


def read_ports(fields: Fields) -> tuple[Port, ...]:
    """The ports, with names and numbers that are unique in the pod set."""
    found: list[Port] = []
    for index, value in enumerate(fields.array("ports", most=MAX_PORTS)):
        given = Fields(value, f"{fields.at('ports')}[{index}]", fields.faults, PORT_FIELDS)
        name = given.checked("name", is_port_name, PORT_NAME, most_bytes=63)
        number = given.whole("number", 1, MAX_PORT, required=True) or 1
        if name and any(port.name == name for port in found):
            given.fault("name", "duplicate", "another port has this name")
        if any(port.number == number for port in found):
            given.fault("number", "duplicate", "another port has this number")
        found.append(Port(name, number))
    return tuple(found)


def read_shm(fields: Fields, memory_bytes: int) -> int | None:
    """The size of /dev/shm, at most the pod's memory, of which it is a part. None if it is not given."""
    if fields.values.get("shm") is None:
        return None
    return read_amount(fields, "shm", whole_bytes, memory_text, MIN_LOCAL_BYTES, max(memory_bytes, MIN_LOCAL_BYTES))


def read_scratch(fields: Fields) -> Scratch | None:
    """The local disk. None if it is not given."""
    if fields.values.get("scratch") is None:
        return None
    given = Fields(fields.values["scratch"], fields.at("scratch"), fields.faults, SCRATCH_FIELDS)
    path = DEFAULT_SCRATCH_PATH
    if given.values.get("path") is not None:
        path = given.checked("path", is_scratch_path, SCRATCH_PATH, most_bytes=MAX_PATH_BYTES)
    size = read_amount(given, "size", whole_bytes, memory_text, MIN_LOCAL_BYTES, MAX_SCRATCH_BYTES)
    return Scratch(size, path)


def local_state_json(pod_set: PodSet) -> dict[str, Any]:
    """The normal form of what is set: specs that set nothing keep their bytes."""
    found: dict[str, Any] = {}
    if pod_set.ports:
        found["ports"] = [{"name": port.name, "number": port.number} for port in pod_set.ports]
    if pod_set.shm_bytes is not None:
        found["shm"] = memory_text(pod_set.shm_bytes)
    if pod_set.scratch is not None:
        found["scratch"] = {"size": memory_text(pod_set.scratch.size_bytes), "path": pod_set.scratch.path}
    return found
