"""The volumes of storages in a pod: what is promised to an attempt when it is placed, and how it is rendered.

The cluster's claim, the part of the volume, and whether it may be written come from the storage and the tenant. A user
only narrows them.
"""

from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any
from uuid import UUID

from clusters.engine.storages import KnownStorage, sub_path_of


def promised_mount(mount: Mapping[str, Any], storage: KnownStorage, tenant_id: UUID) -> dict[str, Any]:
    """A stored mount with the part of the volume that the tenant's jobs get there."""
    return {
        "storage": storage.name,
        "claim": storage.claim,
        "path": mount["path"],
        "sub_path": sub_path_of(storage.prefix, tenant_id, mount["sub_path"]),
        "read_only": mount["read_only"] or not storage.is_writable,
        "is_writable": storage.is_writable,
    }


def lay_mounts(pod: MutableMapping[str, Any], promised: Sequence[Mapping[str, Any]]) -> None:
    """Adds the promised mounts to a rendered pod spec: one volume for each storage, and its mounts in all containers."""
    if not promised:
        return
    storages = list(dict.fromkeys(mount["storage"] for mount in promised))
    numbers = {name: number for number, name in enumerate(storages)}
    volumes: dict[str, dict[str, Any]] = {}
    mounts: list[dict[str, Any]] = []
    for mount in promised:
        name = f"storage-{numbers[mount['storage']]}"
        # a storage that no job may write to is not even mounted for writing on the node
        source = {"claimName": mount["claim"], **({} if mount["is_writable"] else {"readOnly": True})}
        volumes[name] = {"name": name, "persistentVolumeClaim": source}
        mounts.append(_volume_mount(name, mount))
    pod.setdefault("volumes", []).extend(volumes.values())
    for container in [*pod["containers"], *pod.get("initContainers", ())]:
        container.setdefault("volumeMounts", []).extend(mounts)


def _volume_mount(volume: str, mount: Mapping[str, Any]) -> dict[str, Any]:
    rendered = {"name": volume, "mountPath": mount["path"]}
    if mount["sub_path"]:
        rendered["subPath"] = mount["sub_path"]
    return {**rendered, "readOnly": True} if mount["read_only"] else rendered
