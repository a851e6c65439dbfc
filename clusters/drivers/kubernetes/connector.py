"""The connections of one API server."""

import asyncio
import weakref
from contextlib import suppress
from typing import Any, NoReturn

import aiohttp


class Connector(aiohttp.TCPConnector):
    """Tracks its connections, including those that a broken request leaves in the TLS shutdown for half a minute."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._made: weakref.WeakSet[asyncio.Transport] = weakref.WeakSet()

    async def connect(self, *arguments: Any, **named: Any) -> Any:
        connection = await super().connect(*arguments, **named)
        if connection.transport is not None:
            self._made.add(connection.transport)
        return connection

    async def abort(self) -> None:
        """Closes all connections without a TLS shutdown; their sockets close in the loop's next turns."""
        for transport in list(self._made):
            with suppress(AttributeError):  # Python before 3.11.4 raises it if the connection is already gone
                transport.abort()
        for _ in range(3):
            await asyncio.sleep(0)


def no_redirects() -> aiohttp.TraceConfig:
    """For requests that aiohttp makes for us, such as that for a WebSocket, and for which it follows redirects: a redirect
    is an error. Else a cluster could send the gateway, with its credential, to any address.
    """

    async def refuse(*_: object) -> NoReturn:
        raise aiohttp.ClientError("the server redirects")

    config = aiohttp.TraceConfig()
    config.on_request_redirect.append(refuse)
    return config
