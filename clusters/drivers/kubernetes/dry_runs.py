"""Dry runs on an API server. They distinguish a refusal from every other response."""

from typing import Any

import msgspec

from clusters.drivers.port import AlreadyExists, Ambiguous, NotThere, Refused
from clusters.engine.escapes import DEVICES, Answered, Rehearsal

from .decoding import decode
from .device_api import DeviceApi
from .shapes import Bare, Page
from .wire import Wire

_FORBIDDEN = 403
_QUERY = "dryRun=All&fieldManager=switchyard&fieldValidation=Strict"
_pods = msgspec.json.Decoder(Page[Bare])


class DryRuns:
    """Dry runs on one API server, which changes nothing."""

    def __init__(self, wire: Wire, devices: DeviceApi) -> None:
        self._wire = wire
        self._devices = devices

    async def rehearse(self, rehearsal: Rehearsal) -> Answered:
        """The response to one rehearsal. Only a plain `Forbidden` is a refusal. A write that is wrong in another way,
        or a server in trouble, leaves open what happens to the next write. Raises DriverError if the request cannot be
        sent.
        """
        try:
            await self._ask(rehearsal)
        except AlreadyExists:
            # the server looks up names last, after all other checks have passed
            return Answered(rehearsal, would=True)
        except NotThere as error:
            # likewise: the pod that it would connect to is not there
            return Answered(rehearsal, would=True if rehearsal.verb == "connect" else None, reason=error.reason)
        except (Refused, Ambiguous) as error:
            return Answered(rehearsal, would=False if error.status == _FORBIDDEN else None, reason=error.reason)
        return Answered(rehearsal, would=True)

    async def any_pod(self, namespace: str) -> str:
        """The name of the first pod of a list."""
        page = decode(_pods, await self._wire.call("GET", f"/api/v1/namespaces/{namespace}/pods?limit=1"))
        return next((pod.metadata.name for pod in page.items or ()), "")

    async def _ask(self, rehearsal: Rehearsal) -> None:
        body: Any = rehearsal.manifest
        root = f"/apis/{rehearsal.api}" if "/" in rehearsal.api else f"/api/{rehearsal.api}"
        folder = f"{root}/namespaces/{rehearsal.namespace}" if rehearsal.namespace else root
        target = f"{folder}/{rehearsal.resource}"
        match rehearsal.verb:
            case "create":
                await self._wire.call("POST", f"{target}?{_QUERY}", body)
            case "apply":
                path = f"{target}/{rehearsal.name}"
                if rehearsal.api.startswith(DEVICES):
                    path, body = await self._devices.claim_template(body)
                await self._wire.call("PATCH", f"{path}?{_QUERY}&force=true", body, "application/apply-patch+yaml")
            case "connect":
                await self._wire.call("GET", f"{target}/{rehearsal.name}/portforward?ports=8080")
            case "change":
                kind = "application/merge-patch+json"
                await self._wire.call("PATCH", f"{target}/{rehearsal.name}?{_QUERY}", body, kind)
