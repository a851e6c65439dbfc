"""The volumes of storages in a pod: what is promised to an attempt when it is placed, and how it is rendered.

The cluster's claim, StorageClass or image, the part of the volume, and whether it may be written come from the storage and the
tenant. A user only narrows them, and says how large a new volume is.
"""

from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any
from uuid import UUID

from clusters.engine.storages import KnownStorage, sub_path_of


def promised_mount(mount: Mapping[str, Any], storage: KnownStorage, tenant_id: UUID) -> dict[str, Any]:
    """A stored mount with the part of the volume that the tenant's jobs get there."""
    return {
        "storage": storage.name,
        **_source_of(storage, mount),
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
        volumes[name] = {"name": name, **_volume(mount)}
        mounts.append(_volume_mount(name, mount))
    pod.setdefault("volumes", []).extend(volumes.values())
    for container in [*pod["containers"], *pod.get("initContainers", ())]:
        container.setdefault("volumeMounts", []).extend(mounts)


def _volume_mount(volume: str, mount: Mapping[str, Any]) -> dict[str, Any]:
    rendered = {"name": volume, "mountPath": mount["path"]}
    if mount["sub_path"]:
        rendered["subPath"] = mount["sub_path"]
    return {**rendered, "readOnly": True} if mount["read_only"] else rendered


def _source_of(storage: KnownStorage, mount: Mapping[str, Any]) -> dict[str, str]:
    if storage.storage_class:
        return {"storage_class": storage.storage_class, "size": mount["size"]}
    return {"image": storage.image} if storage.image else {"claim": storage.claim}


def _volume(mount: Mapping[str, Any]) -> dict[str, Any]:
    if "storage_class" in mount:
        wanted = {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": mount["storage_class"],
            "resources": {"requests": {"storage": mount["size"]}},
        }
        # Kubernetes makes the claim for the pod, which owns it: it goes with the pod, and the gateway needs no right to claims
        return {"ephemeral": {"volumeClaimTemplate": {"spec": wanted}}}
    if "image" in mount:
        # always, as for containers: else a pod could read what another tenant's secret pulled to the node
        return {"image": {"reference": mount["image"], "pullPolicy": "Always"}}
    # a storage that no job may write to is not even mounted for writing on the node
    return {
        "persistentVolumeClaim": {"claimName": mount["claim"], **({} if mount["is_writable"] else {"readOnly": True})}
    }
