"""A small client that speaks to a local control plane as its administrator."""

import asyncio
import json
import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import yaml

from .controlplane import ControlPlane

PARALLEL_REQUESTS = 16
FIELD_MANAGER = "localfleet"


def trust(plane: ControlPlane) -> ssl.SSLContext:
    """A TLS context that trusts only this control plane."""
    return ssl.create_default_context(cadata=plane.ca_pem)


def client(plane: ControlPlane, token: str = "", *, timeout_seconds: float = 10) -> httpx.Client:
    """A client of the API server, as its administrator or as the bearer of `token`."""
    return httpx.Client(
        base_url=plane.server,
        headers={"Authorization": f"Bearer {token or plane.admin_token}"},
        verify=trust(plane),
        timeout=timeout_seconds,
        trust_env=False,
    )


def apply_file(plane: ControlPlane, path: Path) -> None:
    """Applies every object of a YAML file, as `kubectl apply --server-side` would."""
    apply(plane, _documents(path.read_text(encoding="utf-8")))


@cache
def _documents(text: str) -> Sequence[Mapping[str, Any]]:
    """One file is applied to many control planes."""
    return [document for document in yaml.safe_load_all(text) if document]


def apply(plane: ControlPlane, objects: Iterable[Mapping[str, Any]]) -> None:
    """Server-side apply of each object, in order."""
    with client(plane) as http:
        kinds_at = cache(lambda root: http.get(root).raise_for_status().json()["resources"])
        for manifest in objects:
            path = _path(kinds_at, manifest)
            answer = http.patch(
                path,
                params={"fieldManager": FIELD_MANAGER, "force": "true"},
                headers={"Content-Type": "application/apply-patch+yaml"},
                content=json.dumps(manifest),  # which is YAML too
            )
            if answer.is_error:
                raise RuntimeError(f"{plane.name}: {path}: {answer.status_code} {answer.text}")


def _path(kinds_at: Callable[[str], Any], manifest: Mapping[str, Any]) -> str:
    version, kind, metadata = manifest["apiVersion"], manifest["kind"], manifest["metadata"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    found = next(entry for entry in kinds_at(root) if entry["kind"] == kind and "/" not in entry["name"])
    where = f"/namespaces/{metadata.get('namespace', 'default')}" if found["namespaced"] else ""
    return f"{root}{where}/{found['name']}/{metadata['name']}"


def mint_token(plane: ControlPlane, namespace: str, service_account: str, *, valid_seconds: int = 86_400) -> str:
    """A bearer token of the ServiceAccount (TokenRequest)."""
    with client(plane) as http:
        answer = http.post(
            f"/api/v1/namespaces/{namespace}/serviceaccounts/{service_account}/token",
            json={
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"expirationSeconds": valid_seconds},
            },
        )
        token: str = answer.raise_for_status().json()["status"]["token"]
        return token


def taint(plane: ControlPlane, node: str, *taints: Mapping[str, str]) -> None:
    """These are the node's taints from now on, as a monitor of devices or a handler of spot notices marks it."""
    with client(plane) as http:
        http.patch(
            f"/api/v1/nodes/{node}",
            json={"spec": {"taints": list(taints)}},
            headers={"Content-Type": "application/merge-patch+json"},
        ).raise_for_status()


async def create_nodes(plane: ControlPlane, nodes: Iterable[Mapping[str, Any]]) -> None:
    """Creates the nodes, many at a time, and returns once each is ready and free of `node.kubernetes.io/` taints."""
    gate = asyncio.Semaphore(PARALLEL_REQUESTS)
    async with httpx.AsyncClient(
        base_url=plane.server,
        headers={"Authorization": f"Bearer {plane.admin_token}"},
        verify=trust(plane),
        timeout=30,
        trust_env=False,
    ) as http:

        async def create(node: Mapping[str, Any]) -> None:
            async with gate:
                answer = await http.post("/api/v1/nodes", json=node)
                if answer.is_error and answer.status_code != httpx.codes.CONFLICT:
                    raise RuntimeError(f"{plane.name}: node {node['metadata']['name']}: {answer.text}")

        await asyncio.gather(*(create(node) for node in nodes))
        while not await _all_ready(http):  # noqa: ASYNC110 - readiness can only be asked for
            await asyncio.sleep(0.1)


async def _all_ready(http: httpx.AsyncClient) -> bool:
    items = (await http.get("/api/v1/nodes")).raise_for_status().json()["items"]
    return all(_is_ready(node) for node in items)


def _is_ready(node: Mapping[str, Any]) -> bool:
    taints = node["spec"].get("taints", ())
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions", ()))
    return ready and not any(taint["key"].startswith("node.kubernetes.io/") for taint in taints)
