"""Simulated clusters for the demo, replay and tests: one file each. Every process that opens the file sees the same
state.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import msgspec
from django.conf import settings

from clusters.drivers.address import ClusterAddress
from clusters.drivers.kubernetes import device_shapes
from clusters.drivers.port import Unreachable

from . import life
from .driver import SimulatedDriver, Trouble
from .objects import Claim, Node, Pod, Slice
from .store import Store

SCHEME = "simulated"

__all__ = [
    "SCHEME",
    "Node",
    "SimulatedDriver",
    "Trouble",
    "add_foreign_claim",
    "add_foreign_pod",
    "begin_trouble",
    "disrupt_pod",
    "driver_at",
    "end_trouble",
    "found_cluster",
    "network_policies",
    "node_from_manifest",
    "path_of",
    "put_node",
    "put_slice",
    "remove_node",
    "remove_slice",
    "secrets",
    "suspend_job",
    "write_log",
]


def driver_at(address: ClusterAddress) -> SimulatedDriver:
    """The driver of this installation for the cluster that the server's URL names."""
    return SimulatedDriver(path_of(settings.HOME, address.server), settings.INSTALL_ID)


def path_of(home: Path, server: str) -> Path:
    """Where the cluster behind `simulated://NAME` is stored, under the gateway's data folder."""
    parts = urlsplit(server)
    name = parts.hostname or ""
    if parts.scheme != SCHEME or not name.replace("-", "").isalnum():
        raise Unreachable("a simulated cluster's server is simulated://NAME")
    return home / "simulated" / f"{name}.sqlite3"


def found_cluster(path: Path, nodes: Sequence[Node] = (), *, identity: str = "") -> str:
    """Creates the cluster with these nodes unless it exists already; returns its identity."""
    store = Store(path)
    try:
        with store.write():
            if not store.fact("identity"):
                store.set_fact("identity", identity or str(uuid4()))
                for name in ("default", "kube-system"):
                    store.add_namespace(name, {})
                for node in nodes:
                    store.put(node)
        return store.fact("identity")
    finally:
        store.close()


def node_from_manifest(manifest: Mapping[str, Any]) -> Node:
    """The node of a Kubernetes Node object, ready from the start."""
    metadata, spec, status = manifest["metadata"], manifest.get("spec", {}), manifest["status"]
    return Node(
        name=metadata["name"],
        uid=metadata.get("uid") or str(uuid4()),
        labels=dict(metadata.get("labels", {})),
        allocatable={resource: str(text) for resource, text in status["allocatable"].items()},
        taints=list(spec.get("taints", [])),
        is_schedulable=not spec.get("unschedulable", False),
    )


def network_policies(path: Path, namespace: str) -> list[dict[str, Any]]:
    """The NetworkPolicies of a namespace."""
    store = Store(path)
    try:
        return store.policies(namespace)
    finally:
        store.close()


def secrets(path: Path, namespace: str) -> list[dict[str, Any]]:
    """The Secrets of a namespace, without their values."""
    store = Store(path)
    try:
        return store.secrets(namespace)
    finally:
        store.close()


def put_node(path: Path, node: Node) -> None:
    """Adds the node, or changes the one of its name."""
    store = Store(path)
    with store.write():
        store.put(node)
    store.close()


def remove_node(path: Path, name: str) -> None:
    """Removes the node; its pods do not change."""
    store = Store(path)
    with store.write():
        for node in store.nodes():
            if node.name == name:
                store.remove(node)
    store.close()


def put_slice(path: Path, manifest: Mapping[str, Any]) -> None:
    """Adds the ResourceSlice of a Kubernetes object, or changes the one of its name."""
    published = device_shapes.slice_seen(msgspec.convert(manifest, device_shapes.Slice))
    store = Store(path)
    with store.write():
        store.put(Slice(published.name, str(uuid4()), published))
    store.close()


def remove_slice(path: Path, name: str) -> None:
    """Removes the ResourceSlice."""
    store = Store(path)
    with store.write():
        for found in store.slices():
            if found.name == name:
                store.remove(found)
    store.close()


def add_foreign_claim(path: Path, name: str, devices: Sequence[tuple[str, str, str]]) -> None:
    """A foreign ResourceClaim with these devices (driver, pool, name) allocated until the cluster ends."""
    store = Store(path)
    with store.write():
        store.put(Claim("default", name, str(uuid4()), {}, tuple(devices)))
    store.close()


def begin_trouble(path: Path, kind: Trouble, since: datetime) -> None:
    """Puts the cluster into this trouble from `since` on, for the demo and for tests. Only `end_trouble` ends it."""
    _set_facts(path, {"trouble": kind, "trouble_since": str(since.timestamp())})


def end_trouble(path: Path) -> None:
    """Ends the cluster's trouble."""
    _set_facts(path, {"trouble": ""})


def suspend_job(path: Path, namespace: str, name: str, *, at: datetime) -> None:
    """Suspends a Job, as its cluster's administrators or Kueue may."""
    store = Store(path)
    with store.write():
        job = store.job(namespace, name)
        if job is not None:
            life.suspend_job(store, job, at.timestamp())
    store.close()


def disrupt_pod(path: Path, namespace: str, name: str, disruption: str, *, at: datetime, reason: str = "") -> None:
    """Takes a running pod from its node, as the named component of Kubernetes would."""
    store = Store(path)
    with store.write():
        pod = store.pod(namespace, name)
        if pod is not None:
            life.disrupt(store, pod, at.timestamp(), disruption, reason)
    store.close()


def write_log(
    path: Path, namespace: str, name: str, text: str, *, message: str = "", signal: int | None = None
) -> None:
    """Makes a pod write this text at the end of its log, end with this termination message, and by this signal."""
    store = Store(path)
    with store.write():
        pod = store.pod(namespace, name)
        if pod is not None:
            pod.log, pod.message, pod.signal = text, message or pod.message, signal
            store.put(pod)
    store.close()


def _set_facts(path: Path, facts: Mapping[str, str]) -> None:
    store = Store(path)
    try:
        with store.write():
            for name, value in facts.items():
                store.set_fact(name, value)
    finally:
        store.close()


def add_foreign_pod(path: Path, node: str, requests: Mapping[str, str], *, name: str = "") -> None:
    """A foreign pod, running on the node until the cluster ends."""
    store = Store(path)
    uid = str(uuid4())
    with store.write():
        pod = Pod("default", name or f"stranger-{uid[:8]}", uid, {}, dict(requests), {}, node=node, phase="Running")
        store.put(pod)
    store.close()
