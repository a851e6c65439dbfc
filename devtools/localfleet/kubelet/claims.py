"""Provisions PersistentVolumeClaims as folders, as the provisioner of a shared file system would.

The cluster's own controller binds a claim to the volume that is made for it. Every pod that uses the claim has the same folder, on
whatever node. The folder goes with the claim.
"""

import asyncio
import logging
import shutil
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

from .api import FAILURES, Api, ApiError, Object

PROVISIONER = "sim.switchyard.dev/folders"
WANTED = "volume.kubernetes.io/storage-provisioner"
"""The annotation by which the controller asks for a volume."""
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
STORAGE_CLASS: Object = {
    "metadata": {"name": "folders", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
    "provisioner": PROVISIONER,
    "reclaimPolicy": "Delete",
    "volumeBindingMode": "Immediate",
}
log = logging.getLogger(__name__)


class Claims:
    """The claims of a cluster and their folders, `folder / namespace / claim`."""

    def __init__(self, api: Api, folder: Path) -> None:
        self._api, self._folder = api, folder
        self.are_known = asyncio.Event()
        """All claims are known, and no folder is left of one that went while no kubelet watched."""

    async def follow(self) -> None:
        """Makes and removes volumes, for ever."""
        await self._tried("POST", CLASSES, STORAGE_CLASS)
        present: set[Path] = set()
        async for event in self._api.follow("/api/v1/persistentvolumeclaims"):
            if event is None:
                if not self.are_known.is_set():
                    self._remove_others(present)
                self.are_known.set()
                continue
            place, claim = self._place(event.seen["metadata"]), event.seen
            if event.is_gone:
                present.discard(place)
                shutil.rmtree(place, ignore_errors=True)
                await self._tried("DELETE", f"/api/v1/persistentvolumes/{_name(claim)}")
            else:
                present.add(place)
                if _is_wanted(claim):
                    await self._tried("POST", "/api/v1/persistentvolumes", _volume(claim, place))

    def _place(self, metadata: Mapping[str, Any]) -> Path:
        return self._folder / str(metadata["namespace"]) / str(metadata["name"])

    def _remove_others(self, present: set[Path]) -> None:
        for place in self._folder.glob("*/*"):
            if place not in present:
                shutil.rmtree(place, ignore_errors=True)

    async def _tried(self, method: str, path: str, body: Object | None = None) -> None:
        """Calls once; what a failure leaves undone is done at the claim's next change or after the next list."""
        try:
            await self._api.call(method, path, body)
        except ApiError as error:
            if error.status not in (HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND):
                log.warning("%s %s: %s", method, path, error)
        except FAILURES as failure:
            log.warning("%s %s: %r", method, path, failure)


def _is_wanted(claim: Object) -> bool:
    annotations = claim["metadata"].get("annotations", {})
    return annotations.get(WANTED) == PROVISIONER and not claim["spec"].get("volumeName")


def _name(claim: Object) -> str:
    return f"pvc-{claim['metadata']['uid']}"


def _volume(claim: Object, place: Path) -> Object:
    metadata, spec = claim["metadata"], claim["spec"]
    return {
        "metadata": {"name": _name(claim), "annotations": {"pv.kubernetes.io/provisioned-by": PROVISIONER}},
        "spec": {
            "capacity": {"storage": spec["resources"]["requests"]["storage"]},
            "accessModes": spec["accessModes"],
            "storageClassName": spec["storageClassName"],
            "persistentVolumeReclaimPolicy": "Delete",
            "hostPath": {"path": str(place)},
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                **{key: metadata[key] for key in ("name", "namespace", "uid")},
            },
        },
    }
