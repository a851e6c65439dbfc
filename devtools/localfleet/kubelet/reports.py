"""Writes a pod's status until the API server has it, and deletes the object at the end."""

import asyncio
import logging
from collections.abc import Callable
from http import HTTPStatus

from .api import FAILURES, STRATEGIC, Api, ApiError, Object
from .status import Status

RETRY_SECONDS = 1
log = logging.getLogger(__name__)


class Report:
    """The status of one pod at the API server. `status` gives what it is now."""

    def __init__(self, manifest: Object, api: Api, status: Callable[[], Status]) -> None:
        metadata = manifest["metadata"]
        self.is_gone = False
        """The object is gone: there is nothing to write to."""
        self._api, self._status = api, status
        self._uid = metadata["uid"]
        self._path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        self._is_due = asyncio.Event()
        self._writing = asyncio.Lock()

    def changed(self) -> None:
        """The status is to be written soon."""
        self._is_due.set()

    async def keep(self) -> None:
        """Writes every change, for ever; changes while one is written become one."""
        while True:
            await self._is_due.wait()
            await self.flush()

    async def flush(self) -> None:
        """Returns once the status of now, or a later one, is written or has no object any more."""
        async with self._writing:
            while self._is_due.is_set() and not self.is_gone:
                self._is_due.clear()
                body = {"metadata": {"uid": self._uid}, "status": self._status()}
                if not await self._is_done("PATCH", f"{self._path}/status", body, STRATEGIC):
                    self._is_due.set()
                    await asyncio.sleep(RETRY_SECONDS)
            self._is_due.clear()

    async def delete(self) -> None:
        """Deletes the object, unless another one has its name by now."""
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": self._uid}}
        while not self.is_gone:
            if await self._is_done("DELETE", self._path, body, "application/json"):
                return
            await asyncio.sleep(RETRY_SECONDS)

    async def _is_done(self, method: str, path: str, body: Object, kind: str) -> bool:
        """Whether the call is not to be made again: it succeeded, or it would be refused for ever."""
        try:
            await self._api.call(method, path, body, kind=kind)
        except ApiError as error:
            log.warning("%s %s: %s", method, path, error)
            # A conflict of a status passes, or the uid is another's: then the watch will say that ours is gone.
            return error.is_final and (method, error.status) != ("PATCH", HTTPStatus.CONFLICT)
        except FAILURES as failure:
            log.warning("%s %s: %r", method, path, failure)
            return False
        return True
