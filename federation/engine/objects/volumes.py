"""The volumes of a pod and where its container has them: shared memory and local disk."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from placement.values.quantities import BYTES_PER_MIB, memory_text, whole_bytes

SHM = "shm"
SHM_PATH = "/dev/shm"  # noqa: S108 - the path in a pod
SCRATCH = "scratch"
RUNTIMES_SHM_BYTES = 64 * BYTES_PER_MIB
"""The size of /dev/shm that container runtimes give to a pod without a volume for it."""


@dataclass(frozen=True, slots=True)
class Volumes:
    """Volumes of a pod, and their mounts in its container."""

    volumes: tuple[Mapping[str, Any], ...] = ()
    mounts: tuple[Mapping[str, Any], ...] = ()

    def __add__(self, other: "Volumes") -> "Volumes":
        return Volumes(self.volumes + other.volumes, self.mounts + other.mounts)

    def pod_members(self) -> dict[str, Any]:
        """The pod spec's member, if there are any."""
        return {"volumes": list(self.volumes)} if self.volumes else {}

    def container_members(self) -> dict[str, Any]:
        """The container's member, if there are any."""
        return {"volumeMounts": list(self.mounts)} if self.mounts else {}


def volumes_of(pod_set: Mapping[str, Any]) -> Volumes:
    """The volumes of each pod of a stored pod set."""
    return _shm(shm_text(pod_set)) + _scratch(pod_set.get("scratch"))


def scratch_mounts(pod_set: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The mounts of local disk in a container of a stored pod set's pods, if there is any."""
    return list(_scratch(pod_set.get("scratch")).mounts)


def shm_text(pod_set: Mapping[str, Any]) -> str:
    """The size of /dev/shm in a stored pod set's pods; empty for the container runtime's own, which has 64 MiB.

    Pods with GPUs have half of their memory by default, as hosts have: data loaders and NCCL hand over their data there.
    What is written there counts as memory of the container, so it needs no separate request.
    """
    asked: str = pod_set.get("shm", "")
    if asked or not pod_set.get("gpu"):
        return asked
    half_mib = whole_bytes(pod_set["memory"]) // 2 // BYTES_PER_MIB
    return memory_text(half_mib * BYTES_PER_MIB) if half_mib * BYTES_PER_MIB > RUNTIMES_SHM_BYTES else ""


def ephemeral_storage(pod_set: Mapping[str, Any], own_limit: str) -> tuple[str, str]:
    """The request and the limit of local disk of a pod's container: `own_limit` for what it writes elsewhere, and all of
    the scratch directory, which the cluster reserves on the node.
    """
    scratch = pod_set.get("scratch")
    if not scratch:
        return "0", own_limit
    return scratch["size"], memory_text(whole_bytes(own_limit) + whole_bytes(scratch["size"]))


def _shm(size: str) -> Volumes:
    if not size:
        return Volumes()
    volume = {"name": SHM, "emptyDir": {"medium": "Memory", "sizeLimit": size}}
    return Volumes((volume,), ({"name": SHM, "mountPath": SHM_PATH},))


def _scratch(scratch: Mapping[str, str] | None) -> Volumes:
    if not scratch:
        return Volumes()
    volume = {"name": SCRATCH, "emptyDir": {"sizeLimit": scratch["size"]}}
    return Volumes((volume,), ({"name": SCRATCH, "mountPath": scratch["path"]},))
