"""Calls to the API server."""

import asyncio
import json
import logging
import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp

STRATEGIC = "application/strategic-merge-patch+json"
MERGE = "application/merge-patch+json"
CALL_SECONDS = 15
WATCH_SECONDS = 280
SILENCE_SECONDS = 90
"""A watch gets a bookmark each minute; one that is silent for longer is dead."""
RETRY_SECONDS = 0.5

Object = dict[str, Any]
log = logging.getLogger(__name__)


class ApiError(Exception):
    """The API server refused a call."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status

    @property
    def is_missing(self) -> bool:
        """Whether the object does not exist."""
        return self.status == HTTPStatus.NOT_FOUND

    @property
    def is_final(self) -> bool:
        """Whether the same call would be refused again."""
        return HTTPStatus.BAD_REQUEST <= self.status < HTTPStatus.INTERNAL_SERVER_ERROR and self.status not in (
            HTTPStatus.UNAUTHORIZED,
            HTTPStatus.TOO_MANY_REQUESTS,
        )


FAILURES = (aiohttp.ClientError, TimeoutError, ApiError, OSError, ValueError)
"""What a call may raise: refusals, lost connections, and replies that are no JSON."""


@dataclass(frozen=True, slots=True)
class Event:
    """An object as it is now, or as it was last seen if it is gone."""

    is_gone: bool
    seen: Object


class Api:
    """A client with the rights of its kubeconfig's user."""

    def __init__(self, server: str, token: str, context: ssl.SSLContext) -> None:
        self._server = server
        self._session = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {token}"},
            connector=aiohttp.TCPConnector(ssl=context, limit=0),
            timeout=aiohttp.ClientTimeout(total=CALL_SECONDS),
        )

    @classmethod
    def of_kubeconfig(cls, path: Path) -> "Api":
        """The client for a control plane's kubeconfig, which is JSON."""
        document = json.loads(path.read_text(encoding="utf-8"))
        cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
        context = ssl.create_default_context(cafile=cluster["certificate-authority"])
        return cls(cluster["server"], user["token"], context)

    async def close(self) -> None:
        """Ends its connections."""
        await self._session.close()

    async def call(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, kind: str = "application/json"
    ) -> Object:
        """The JSON of the reply."""
        content = None if body is None else json.dumps(body)
        async with self._session.request(
            method, self._server + path, data=content, headers={"Content-Type": kind}
        ) as reply:
            await self._check(reply)
            found: Object = await reply.json()
            return found

    async def get(self, path: str) -> Object:
        """The object at `path`."""
        return await self.call("GET", path)

    async def follow(self, path: str, selector: str = "") -> AsyncIterator[Event | None]:
        """Every change of a list, and None whenever the list is complete; never ends.

        After a lost connection, a 410 or an error it lists again, and reports what is gone since.
        """
        known: dict[str, Object] = {}
        while True:
            try:
                listed = await self.get(f"{path}?{selector}")
                found = {item["metadata"]["uid"]: item for item in listed["items"]}
                for item in [old for uid, old in known.items() if uid not in found]:
                    yield Event(is_gone=True, seen=item)
                for item in found.values():
                    yield Event(is_gone=False, seen=item)
                known = found
                yield None
                async for kind, item in self._watch(path, selector, listed["metadata"]["resourceVersion"]):
                    uid = item["metadata"]["uid"]
                    if kind == "DELETED":
                        known.pop(uid, None)
                    else:
                        known[uid] = item
                    yield Event(kind == "DELETED", item)
            except FAILURES as failure:
                log.warning("%s?%s: %r", path, selector, failure)
            await asyncio.sleep(RETRY_SECONDS)

    async def _watch(self, path: str, selector: str, version: str) -> AsyncIterator[tuple[str, Object]]:
        query = f"watch=1&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}&resourceVersion={version}"
        patience = aiohttp.ClientTimeout(total=None, sock_read=SILENCE_SECONDS)
        async with self._session.get(f"{self._server}{path}?{selector}&{query}", timeout=patience) as reply:
            await self._check(reply)
            rest = b""
            async for piece in reply.content.iter_any():
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        status = event["object"]
                        raise ApiError(status.get("code", HTTPStatus.GONE), status.get("message", ""))
                    if event["type"] != "BOOKMARK":
                        yield event["type"], event["object"]

    @staticmethod
    async def _check(reply: aiohttp.ClientResponse) -> None:
        if reply.ok:
            return
        text = await reply.text()
        try:
            message = str(json.loads(text).get("message", ""))
        except ValueError:
            message = text[:200]
        raise ApiError(reply.status, message)
