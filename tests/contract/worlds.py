"""The two kinds of cluster that the contract suite runs against, behind one set of levers that are not the driver's own."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit
from uuid import UUID

import httpx

from clusters.drivers import ClusterDriver, JobSeen, WatchEvent
from clusters.drivers.address import ClusterAddress, Credential
from clusters.drivers.kubernetes.driver import KubernetesDriver
from clusters.drivers.kubernetes.wire import Limits
from clusters.drivers.simulated import (
    Node,
    SimulatedDriver,
    add_foreign_claim,
    found_cluster,
    network_policies,
    put_node,
    put_slice,
    remove_node,
    remove_slice,
    secrets,
    suspend_job,
)
from devtools.localfleet import ControlPlane
from devtools.localfleet.admin import apply, client
from devtools.localfleet.devices import device_classes
from foundation import clock

WHOSE = {"switchyard.dev/tenant": "vision"}
INSTALL = "contract"
PATIENCE_SECONDS = 30
_numbers = itertools.count(1)


DEVICE_API = "/apis/resource.k8s.io/v1"


class World(Protocol):
    """A cluster with one node for CPU work and one with 8 GPUs."""

    def driver(self, install_id: str = INSTALL) -> ClusterDriver: ...
    def make_foreign_namespace(self, name: str) -> None: ...
    def make_foreign_job(self, manifest: Mapping[str, Any]) -> None: ...
    def suspend(self, namespace: str, name: str) -> None: ...
    def network_policies(self, namespace: str) -> dict[str, dict[str, Any]]: ...
    def secrets(self, namespace: str) -> dict[str, dict[str, Any]]: ...
    def add_node(self, name: str) -> None: ...
    def change_node(self, name: str) -> None: ...
    def drop_node(self, name: str) -> None: ...
    def publish(self, manifest: Mapping[str, Any]) -> None: ...
    def withdraw(self, name: str) -> None: ...
    def allocate_to_stranger(self, name: str, device: tuple[str, str, str]) -> None: ...


class Simulated:
    """A simulated cluster in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        found_cluster(path, [_simulated(node) for node in BASE_NODES])

    def driver(self, install_id: str = INSTALL) -> ClusterDriver:
        return SimulatedDriver(self.path, install_id)

    def make_foreign_namespace(self, name: str) -> None:
        asyncio.run(_use(SimulatedDriver(self.path, "stranger"), lambda driver: driver.ensure_namespace(name, {})))

    def make_foreign_job(self, manifest: Mapping[str, Any]) -> None:
        asyncio.run(_use(SimulatedDriver(self.path, "stranger"), lambda driver: driver.create_job(manifest)))

    def suspend(self, namespace: str, name: str) -> None:
        suspend_job(self.path, namespace, name, at=clock.now())

    def network_policies(self, namespace: str) -> dict[str, dict[str, Any]]:
        return {policy["metadata"]["name"]: policy for policy in network_policies(self.path, namespace)}

    def secrets(self, namespace: str) -> dict[str, dict[str, Any]]:
        return {found["metadata"]["name"]: found for found in secrets(self.path, namespace)}

    def add_node(self, name: str) -> None:
        put_node(self.path, _simulated(node_object(name)))

    def change_node(self, name: str) -> None:
        put_node(self.path, _simulated(node_object(name, labels={"changed": "yes"})))

    def drop_node(self, name: str) -> None:
        remove_node(self.path, name)

    def publish(self, manifest: Mapping[str, Any]) -> None:
        put_slice(self.path, manifest)

    def withdraw(self, name: str) -> None:
        remove_slice(self.path, name)

    def allocate_to_stranger(self, name: str, device: tuple[str, str, str]) -> None:
        add_foreign_claim(self.path, name, [device])


class Real:
    """A real control plane, spoken to with the published role's token alone."""

    def __init__(self, plane: ControlPlane, token: str) -> None:
        self.plane = plane
        self.token = token

    def address(self, token: str = "") -> ClusterAddress:
        return address_of(self.plane, token or self.token)

    def driver(self, install_id: str = INSTALL) -> ClusterDriver:
        return KubernetesDriver(self.address(), install_id)

    def make_foreign_namespace(self, name: str) -> None:
        self._admin("POST", "/api/v1/namespaces", {"metadata": {"name": name}})

    def make_foreign_job(self, manifest: Mapping[str, Any]) -> None:
        self._admin("POST", f"/apis/batch/v1/namespaces/{manifest['metadata']['namespace']}/jobs", manifest)

    def suspend(self, namespace: str, name: str) -> None:
        self._admin("PATCH", f"/apis/batch/v1/namespaces/{namespace}/jobs/{name}", {"spec": {"suspend": True}})

    def network_policies(self, namespace: str) -> dict[str, dict[str, Any]]:
        with client(self.plane) as http:
            answer = http.get(f"/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies").raise_for_status()
        return {policy["metadata"]["name"]: policy for policy in answer.json()["items"]}

    def secrets(self, namespace: str) -> dict[str, dict[str, Any]]:
        with client(self.plane) as http:
            answer = http.get(f"/api/v1/namespaces/{namespace}/secrets").raise_for_status()
        return {found["metadata"]["name"]: found for found in answer.json()["items"]}

    def add_node(self, name: str) -> None:
        self._admin("POST", "/api/v1/nodes", node_object(name))

    def change_node(self, name: str) -> None:
        self._admin("PATCH", f"/api/v1/nodes/{name}", {"metadata": {"labels": {"changed": "yes"}}})

    def drop_node(self, name: str) -> None:
        self._admin("DELETE", f"/api/v1/nodes/{name}", None)

    def publish(self, manifest: Mapping[str, Any]) -> None:
        apply(self.plane, device_classes())
        self._admin("PATCH", f"{DEVICE_API}/resourceslices/{manifest['metadata']['name']}", manifest)

    def withdraw(self, name: str) -> None:
        self._admin("DELETE", f"{DEVICE_API}/resourceslices/{name}", None)

    def allocate_to_stranger(self, name: str, device: tuple[str, str, str]) -> None:
        claim = allocated_claim(name, device)
        folder = f"{DEVICE_API}/namespaces/default/resourceclaims"
        self._admin("POST", folder, {key: value for key, value in claim.items() if key != "status"})
        self._admin("PATCH", f"{folder}/{name}/status", {"status": claim["status"]})

    def _admin(self, method: str, path: str, body: Mapping[str, Any] | None) -> None:
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        if body and body.get("kind") == "ResourceSlice":
            path, kind = f"{path}?fieldManager=test&force=true", "application/apply-patch+yaml"
        with client(self.plane) as http:
            answer = http.request(method, path, json=body, headers={"Content-Type": kind})
        assert answer.is_success, answer.text


def allocated_claim(name: str, device: tuple[str, str, str]) -> dict[str, Any]:
    """A ResourceClaim that was allocated this device (driver, pool, name)."""
    driver, pool, found = device
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
    result = {"request": "gpu", "driver": driver, "pool": pool, "device": found}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": {"requests": [request]}},
        "status": {"allocation": {"devices": {"results": [result]}}},
    }


def slice_object(
    name: str, node: str = "gpu-1", devices: int = 2, product: str = "NVIDIA H100 80GB HBM3", **pool: Any
) -> dict[str, Any]:
    """A ResourceSlice of NVIDIA's driver with so many GPUs, as that driver writes it."""
    gpus = [
        {
            "name": f"gpu-{number}",
            "attributes": {
                "type": {"string": "gpu"},
                "productName": {"string": product},
                "cudaComputeCapability": {"version": "9.0.0"},
                "gpu.nvidia.com/minor": {"int": number},
                "resource.kubernetes.io/pcieRoot": {"string": "pci0000:00"},
            },
            "capacity": {"memory": {"value": "81559Mi"}},
        }
        for number in range(devices)
    ]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {
            "driver": "gpu.nvidia.com",
            "nodeName": node,
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1, **pool},
            "devices": gpus,
        },
    }


def address_of(plane: ControlPlane, token: str) -> ClusterAddress:
    """A local control plane's address."""
    port = urlsplit(plane.server).port or 443
    return ClusterAddress(
        UUID(int=port), plane.name, plane.server, "127.0.0.1", port, plane.ca_pem, Credential("token", token.encode())
    )


def node_object(name: str, labels: Mapping[str, str] | None = None, **extended: str) -> dict[str, Any]:
    """A Node object, ready; `extended` adds to its allocatable (`nvidia_com__gpu="8"` stands for nvidia.com/gpu)."""
    devices = {key.replace("__", "/").replace("_", "."): value for key, value in extended.items()}
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110", "ephemeral-storage": "1Ti", **devices}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "spec": {},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True", "reason": "Test", "message": ""}],
        },
    }


BASE_NODES = [
    node_object("cpu-1"),
    node_object("gpu-1", {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}, nvidia_com__gpu="8"),
]


def _simulated(node: Mapping[str, Any]) -> Node:
    metadata = node["metadata"]
    return Node(metadata["name"], f"uid-{metadata['name']}", metadata["labels"], node["status"]["allocatable"])


async def _use(driver: SimulatedDriver, call: Callable[[SimulatedDriver], Awaitable[object]]) -> None:
    await call(driver)
    await driver.close()


def fresh_name(prefix: str = "c") -> str:
    """A name that no other test uses."""
    return f"{prefix}-{next(_numbers)}-{time.time_ns() % 10**9}"


async def until(ask: Callable[[], Any], *, seconds: float = PATIENCE_SECONDS) -> Any:
    """The first truthy answer of `ask` (a coroutine function); an AssertionError after the deadline."""
    async with asyncio.timeout(seconds):
        while not (answer := await ask()):  # noqa: ASYNC110 - the cluster can only be asked
            await asyncio.sleep(0.05)
    return answer


@asynccontextmanager
async def watching(stream: AsyncIterator[WatchEvent]) -> AsyncIterator["Watcher"]:
    """Collects a stream's events in the background."""
    watcher = Watcher()
    task = asyncio.create_task(watcher.collect(stream))
    try:
        yield watcher
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await stream.aclose()  # type: ignore[attr-defined]


class Watcher:
    """What a watch has said so far."""

    def __init__(self) -> None:
        self.events: list[WatchEvent] = []
        self.error: BaseException | None = None

    async def collect(self, stream: AsyncIterator[WatchEvent]) -> None:
        try:
            async for event in stream:
                self.events.append(event)
        except Exception as error:  # noqa: BLE001 - tests ask for it
            self.error = error

    async def find(self, kind: str, name: str = "", where: Callable[[Any], bool] = lambda _: True) -> Any:
        """The first object of that name in an event of that kind (or the whole event without a name)."""

        async def look() -> Any:
            if self.error is not None:
                raise self.error
            for event in self.events:
                if event.kind == kind and not name:
                    return event
                for thing in event.objects if event.kind == kind else ():
                    if thing.name == name and where(thing):
                        return thing
            return None

        return await until(look)

    def names(self, *kinds: str) -> list[str]:
        """The names of all objects in events of those kinds, in order."""
        return [thing.name for event in self.events if event.kind in kinds for thing in event.objects]


__all__ = ["INSTALL", "Limits", "Real", "Simulated", "World", "fresh_name", "httpx", "until", "watching"]


def in_namespace(world: World, use):
    """Runs `use(driver, namespace)` with a namespace of its own."""

    async def body():
        driver = world.driver()
        namespace = fresh_name("swy-ns")
        await driver.ensure_namespace(namespace, WHOSE)
        try:
            return await use(driver, namespace)
        finally:
            await driver.close()

    return asyncio.run(body())


async def finished(driver: ClusterDriver, namespace: str, name: str) -> JobSeen:
    """The Job, once it has ended."""

    async def ended() -> JobSeen | None:
        found = await driver.get_job(namespace, name)
        return found if found.outcome else None

    return await until(ended)
