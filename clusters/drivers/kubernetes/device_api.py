"""Kubernetes' API of dynamic resource allocation, in the version that a cluster serves; many clusters serve none."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import msgspec

from clusters.drivers.port import NotThere, Refused, TooMuch, WatchEvent
from clusters.engine.weights import weight_of_claim, weight_of_slice
from foundation.clock import monotonic

from .decoding import decode
from .device_shapes import Claim, Slice, claim_seen, slice_seen
from .reflector import Kind, Reflector
from .shapes import Bare, Page
from .wire import Wire

GROUP = "resource.k8s.io"
VERSIONS = ("v1", "v1beta2", "v1beta1")
"""The versions that this driver reads, preferred first."""
ALIVE_SECONDS = 15.0
MOST_SLICES = 20_000
MOST_CLAIMS = 200_000
MOST_CLASSES = 1_000


class _Version(msgspec.Struct):
    version: str = ""


class _Group(msgspec.Struct):
    versions: list[_Version] | None = None


_group_decoder = msgspec.json.Decoder(_Group)
_class_pages = msgspec.json.Decoder(Page[Bare])
_slice_pages = msgspec.json.Decoder(Page[Slice])
_slice_decoder = msgspec.json.Decoder(Slice)
_claim_pages = msgspec.json.Decoder(Page[Claim])
_claim_decoder = msgspec.json.Decoder(Claim)


class DeviceApi:
    """Reads one API server's resources of dynamic resource allocation."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def folder(self) -> str:
        """The path of the preferred version that is served; empty if none is."""
        try:
            group = decode(_group_decoder, await self._wire.call("GET", f"/apis/{GROUP}"))
        except NotThere:
            return ""
        served = {each.version for each in group.versions or ()}
        best = next((version for version in VERSIONS if version in served), "")
        return f"/apis/{GROUP}/{best}" if best else ""

    async def classes(self) -> frozenset[str]:
        """The names of the DeviceClasses."""
        folder = await self.folder()
        if not folder:
            return frozenset()
        page = decode(_class_pages, await self._wire.call("GET", f"{folder}/deviceclasses"))
        items = page.items or ()
        if len(items) > MOST_CLASSES:
            raise TooMuch(f"the cluster has more than {MOST_CLASSES} DeviceClasses")
        return frozenset(found.metadata.name for found in items)

    async def claim_template(self, manifest: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
        """The path for this ResourceClaimTemplate of `v1`, and the manifest in the version that is served."""
        folder = await self.folder()
        if not folder:
            raise Refused("the cluster serves no version of resource.k8s.io that the gateway supports", status=404)
        version, metadata = folder.rpartition("/")[2], manifest["metadata"]
        body = {**manifest, "apiVersion": f"{GROUP}/{version}"}
        if version == "v1beta1":
            body["spec"] = _flattened(manifest["spec"])
        return f"{folder}/namespaces/{metadata['namespace']}/resourceclaimtemplates/{metadata['name']}", body

    def watch_slices(self) -> AsyncIterator[WatchEvent]:
        """All ResourceSlices."""
        return self._events(
            lambda folder: Kind(
                f"{folder}/resourceslices",
                "",
                _slice_pages,
                _slice_decoder,
                slice_seen,
                _version_of,
                MOST_SLICES,
                weight_of_slice,
            )
        )

    def watch_claims(self) -> AsyncIterator[WatchEvent]:
        """All ResourceClaims."""
        return self._events(
            lambda folder: Kind(
                f"{folder}/resourceclaims",
                "",
                _claim_pages,
                _claim_decoder,
                claim_seen,
                _version_of,
                MOST_CLAIMS,
                weight_of_claim,
            )
        )

    async def _events(self, kind_in: Callable[[str], Kind[Any]]) -> AsyncIterator[WatchEvent]:
        """Lists and watches; yields nothing while the API is not served."""
        gone = ""
        while True:
            folder = await self.folder()
            if folder and folder != gone:
                try:
                    async for event in Reflector(self._wire, kind_in(folder)).events():
                        yield event
                except NotThere:
                    # an upgrade removed this version, or it is served without this resource: look for another version
                    gone = folder
                    continue
            gone = ""
            yield WatchEvent("listed", ())
            asked_at = monotonic()
            while monotonic() - asked_at < self._wire.limits.relist_seconds:
                await asyncio.sleep(min(ALIVE_SECONDS, self._wire.limits.relist_seconds))
                yield WatchEvent("alive", ())


def _flattened(spec: Mapping[str, Any]) -> dict[str, Any]:
    """A template's spec in the shape of v1beta1, where a request has the fields that `exactly` has in later
    versions.
    """
    devices = spec["spec"]["devices"]
    requests = [{"name": request["name"], **request["exactly"]} for request in devices["requests"]]
    return {**spec, "spec": {"devices": {**devices, "requests": requests}}}


def _version_of(found: Slice | Claim) -> str:
    return found.metadata.resource_version
