"""Heartbeats of one adopted Node: its Lease, and its status when that needs a change."""

import asyncio
import logging
import os
import platform
import time
from datetime import UTC, datetime
from http import HTTPStatus
from uuid import uuid4

from .api import FAILURES, MERGE, STRATEGIC, Api, ApiError, Object
from .status import now

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
LEASE_SECONDS = 40
RENEW_SECONDS = 10
RETRY_SECONDS = 1
CONDITIONS = (
    ("Ready", "True", "KubeletReady", "the test kubelet is ready"),
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", ""),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", ""),
    ("PIDPressure", "False", "KubeletHasSufficientPID", ""),
    ("NetworkUnavailable", "False", "RouteCreated", ""),
)
log = logging.getLogger(__name__)


class Node:
    """A Node whose pods we run."""

    def __init__(self, manifest: Object, api: Api, host_ip: str, port: int) -> None:
        self.manifest = manifest
        self.name = str(manifest["metadata"]["name"])
        self._api, self._host_ip, self._port = api, host_ip, port
        self._is_reported = False
        self._boot_id = str(uuid4())

    async def keep(self) -> None:
        """Keeps the Node ready, for ever."""
        while True:
            try:
                if not (self._is_reported and self._is_ready()):
                    await self._report()
                await self._renew()
            except FAILURES as failure:
                log.warning("node %s: %r", self.name, failure)
                await asyncio.sleep(RETRY_SECONDS)
            else:
                await asyncio.sleep(RENEW_SECONDS)

    def _is_ready(self) -> bool:
        conditions = self.manifest.get("status", {}).get("conditions", ())
        return any((one["type"], one["status"]) == ("Ready", "True") for one in conditions)

    async def _report(self) -> None:
        kernel = os.uname()
        status = {
            "conditions": [
                {"type": kind, "status": status, "reason": reason, "message": message}
                | {"lastHeartbeatTime": now(), "lastTransitionTime": now()}
                for kind, status, reason, message in CONDITIONS
            ],
            "addresses": [{"type": "InternalIP", "address": self._host_ip}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._port}},
            "nodeInfo": {
                "architecture": "amd64" if kernel.machine == "x86_64" else "arm64",
                "bootID": self._boot_id,
                "containerRuntimeVersion": f"processes://python-{platform.python_version()}",
                "kernelVersion": kernel.release,
                "kubeProxyVersion": "",
                "kubeletVersion": "v0.0.0-test",
                "machineID": "",
                "operatingSystem": "linux",
                "osImage": platform.platform(),
                "systemUUID": "",
            },
        }
        await self._api.call("PATCH", f"/api/v1/nodes/{self.name}/status", {"status": status}, kind=STRATEGIC)
        self._is_reported = True

    async def _renew(self) -> None:
        moment = f"{datetime.fromtimestamp(time.time(), UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
        spec = {"holderIdentity": self.name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": moment}
        try:
            await self._api.call("PATCH", f"{LEASES}/{self.name}", {"spec": spec}, kind=MERGE)
        except ApiError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            metadata = self.manifest["metadata"]
            owner = {"apiVersion": "v1", "kind": "Node", "name": self.name, "uid": metadata["uid"]}
            body = {"metadata": {"name": self.name, "ownerReferences": [owner]}, "spec": spec}
            await self._api.call("POST", LEASES, body)
