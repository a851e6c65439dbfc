"""Checks of a container: exec, HTTP and TCP, with the thresholds of its probes."""

import asyncio
from collections.abc import Mapping
from typing import Any

import aiohttp

from .processes import Running, execute

FIRST_BAD_STATUS = 400


async def passes(probe: Mapping[str, Any], running: Running, container: Mapping[str, Any], address: str) -> bool:
    """Whether one check succeeds within its time."""
    seconds = probe.get("timeoutSeconds", 1)
    try:
        async with asyncio.timeout(seconds):
            if "exec" in probe:
                code, _ = await execute(running, probe["exec"]["command"], seconds)
                return code == 0
            if "httpGet" in probe:
                return await _http(probe["httpGet"], container, address)
            settings = probe["tcpSocket"]
            _, writer = await asyncio.open_connection(
                settings.get("host") or address, _port(settings["port"], container)
            )
            writer.close()
            return True
    except (OSError, TimeoutError, aiohttp.ClientError):
        return False


async def _http(settings: Mapping[str, Any], container: Mapping[str, Any], address: str) -> bool:
    scheme, host = settings.get("scheme", "HTTP").lower(), settings.get("host") or address
    url = f"{scheme}://{host}:{_port(settings['port'], container)}{settings.get('path', '/')}"
    headers = {entry["name"]: entry["value"] for entry in settings.get("httpHeaders", ())}
    async with (
        aiohttp.ClientSession() as session,
        session.get(url, headers=headers, ssl=False, allow_redirects=False) as reply,
    ):
        return reply.status < FIRST_BAD_STATUS


def _port(port: int | str, container: Mapping[str, Any]) -> int:
    named = {entry.get("name"): entry["containerPort"] for entry in container.get("ports", ())}
    return port if isinstance(port, int) else int(named.get(port, port))


class Verdict:
    """Whether a container passes a probe, after as many equal results in a row as the probe asks for."""

    def __init__(self, probe: Mapping[str, Any], *, initially: bool) -> None:
        self.passes = initially
        self._needed = {True: probe.get("successThreshold", 1), False: probe.get("failureThreshold", 3)}
        self._last: bool | None = None
        self._count = 0

    def add(self, *, result: bool) -> bool:
        """True if the result completes a row: `passes` is what it says."""
        self._count = self._count + 1 if result == self._last else 1
        self._last = result
        if self._count < self._needed[result]:
            return False
        self.passes = result
        return True
