"""Reads the ports and the volumes of a manifest's pod: those that a pod set can have, which are shared memory and local
disk. Each result comes with the manifest's path of every part.
"""

from dataclasses import dataclass
from typing import Any

from .reading import Fields
from .spec import MAX_PORTS

MOST_VOLUMES = 2
SHM_PATH = "/dev/shm"  # noqa: S108 - the path in a pod
_MOUNT_FIELDS = frozenset({"name", "mountPath"})
_WHY_NOT_VOLUME = dict.fromkeys(
    ("hostPath", "configMap", "secret", "projected", "downwardAPI", "persistentVolumeClaim", "ephemeral", "csi", "nfs"),
    "only emptyDir: shared memory at /dev/shm, or local disk",
)
_WHY_NOT_PORT = dict.fromkeys(("hostPort", "hostIP"), "pods cannot share the host's namespaces, ports or paths")
Part = tuple[dict[str, Any], dict[str, str]]


@dataclass(frozen=True, slots=True)
class _Volume:
    """An emptyDir volume of the manifest, with the fields of its size."""

    given: Fields
    source: Fields

    @property
    def size(self) -> Any:
        """Its size, unchecked; a fault if it has none."""
        if self.source.values.get("sizeLimit") is None:
            self.source.fault("sizeLimit", "required", "give the size")
        return self.source.values.get("sizeLimit")


def read_ports(container: Fields) -> Part:
    """The pod set's ports."""
    found, origin = [], {}
    for index, item in enumerate(container.array("ports", most=MAX_PORTS)):
        path = container.at(f"ports[{index}]")
        port = Fields(
            item, path, container.faults, frozenset({"name", "containerPort", "protocol"}), why_not=_WHY_NOT_PORT
        )
        port.choice("protocol", ("TCP",), "TCP")
        number = port.values.get("containerPort")
        found.append({"name": port.values.get("name") or f"port-{number}", "number": number})
        origin[f"pod_sets[0].ports[{index}].number"] = f"{path}.containerPort"
    return ({"ports": found} if found else {}), origin


def read_volumes(pod: Fields, container: Fields) -> Part:
    """The pod set's shared memory and local disk: each volume is mounted once, and there is at most one of each kind."""
    volumes = _volumes(pod)
    found: dict[str, Any] = {}
    origin: dict[str, str] = {}
    for index, item in enumerate(container.array("volumeMounts", most=MOST_VOLUMES)):
        mount = Fields(item, container.at(f"volumeMounts[{index}]"), container.faults, _MOUNT_FIELDS)
        name, path = mount.text("name", most_bytes=63), mount.text("mountPath")
        volume = volumes.pop(name, None)
        if volume is None:
            mount.fault("name", "bad_format", "name a volume of the pod that is not mounted elsewhere")
            continue
        kind, part = _part_of(volume, mount, path)
        if kind in found:
            mount.fault("name", "conflict", "a pod has at most one volume of each kind")
        found[kind] = part
        sized = f"pod_sets[0].{kind}" if kind == "shm" else f"pod_sets[0].{kind}.size"
        origin |= {sized: volume.source.at("sizeLimit"), "pod_sets[0].scratch.path": mount.at("mountPath")}
    for volume in volumes.values():
        volume.given.fault("name", "required", "mount the volume in the container")
    return found, origin


def _part_of(volume: _Volume, mount: Fields, path: str) -> tuple[str, Any]:
    if volume.source.choice("medium", ("", "Memory"), "") != "Memory":
        return "scratch", {"size": volume.size, "path": path}
    if path != SHM_PATH:
        mount.fault("mountPath", "not_allowed", f"a volume in memory is mounted at {SHM_PATH}")
    return "shm", volume.size


def _volumes(pod: Fields) -> dict[str, _Volume]:
    """The manifest's volumes by name."""
    found: dict[str, _Volume] = {}
    for index, item in enumerate(pod.array("volumes", most=MOST_VOLUMES)):
        given = Fields(
            item, pod.at(f"volumes[{index}]"), pod.faults, frozenset({"name", "emptyDir"}), why_not=_WHY_NOT_VOLUME
        )
        name = given.text("name", most_bytes=63)
        if name in found:
            given.fault("name", "duplicate", "another volume has this name")
        if set(given.values) <= {"name", "emptyDir"}:
            source = given.values.get("emptyDir")
            empty_dir = Fields(source, given.at("emptyDir"), pod.faults, frozenset({"medium", "sizeLimit"}))
            found[name] = _Volume(given, empty_dir)
    return found
