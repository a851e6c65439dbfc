"""Requests to one API server: pinned address, verified name, no redirects, no proxies, limits on time and size.

aiohttp parses HTTP in C, which halves the cost of a request here. Its automatic features (redirects, cookies, proxies
from the environment, decompression) are switched off.
"""

import asyncio
import ssl
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec
import yarl

from clusters.drivers.address import ClusterAddress, Credential
from clusters.drivers.memory import FREE_BYTES, Account, turn
from clusters.drivers.pacing import Pace
from clusters.drivers.port import AlreadyExists as NameTaken
from clusters.drivers.port import (
    Ambiguous,
    AuthFailed,
    DriverError,
    NotThere,
    Refused,
    Stale,
    Throttled,
    TlsFailed,
    TooMuch,
    Unreachable,
)
from foundation.clock import monotonic

from .connector import Connector, no_redirects
from .decoding import JSON_MISTAKES

_LONGEST_REASON = 300
_LONGEST_WAIT_SECONDS = 60.0
_IDLE_SECONDS = 60.0
_READ_BYTES = 64 * 1024


class Expired(Refused):
    """The requested version or continue token is no longer kept (410): list again."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of time and size for one API server."""

    connect_seconds: float = 3.0
    read_seconds: float = 10.0
    whole_request_seconds: float = 15.0
    whole_list_seconds: float = 120.0
    watch_silence_seconds: float = 90.0
    """Bookmarks arrive about once a minute, so a watch that is silent for longer has stalled."""
    relist_seconds: float = 300.0
    answer_bytes: int = 3 * 1024 * 1024
    """One object: etcd accepts 1.5 MiB, which can take twice as much in JSON."""
    body_bytes: int = 4 * 1024 * 1024
    """A page of a list. The driver requests a longer one again with half the number of items."""
    list_bytes: int = 2 * 1024 * 1024 * 1024
    error_bytes: int = 64 * 1024
    line_bytes: int = 3 * 1024 * 1024
    page_items: int = 500
    pages: int = 2000
    socket_bytes: int = 1024 * 1024
    socket_close_seconds: float = 1.0
    connections: int = 16
    grace_seconds: float = 3.0
    least_bytes_per_second: int = 512 * 1024
    """The minimum speed of a large response after a short grace period: it blocks others meanwhile."""
    burst_bytes: int = 512 * 1024 * 1024
    bytes_per_second: int = 8 * 1024 * 1024
    """The rate beyond a cluster's burst, over all lists and watches; the driver reads the excess later."""
    burst_events: int = 20_000
    events_per_second: int = 2_000
    """For each watch. A long event counts as one for each 8 KiB."""


class _StatusCause(msgspec.Struct):
    field: str = ""


class _StatusDetails(msgspec.Struct):
    causes: list[_StatusCause] | None = None


class Status(msgspec.Struct):
    """The API server's body of a refusal."""

    message: str = ""
    reason: str = ""
    code: int = 0
    details: _StatusDetails | None = None


_status_decoder = msgspec.json.Decoder(Status)
_NOT_APPLIED = "the server rejected our request due to an error in our request"
"""Kubernetes' words for a JSON patch of which a test failed; it does not say which. They come without a cause."""


class Wire:
    """Sends requests to one API server."""

    def __init__(self, address: ClusterAddress, limits: Limits) -> None:
        host, port = address.host, urlsplit(address.server).port or 443
        self.limits = limits
        self._secret = address.credential.secret.decode("ascii", "replace").strip()
        literal = f"[{address.address}]" if ":" in address.address else address.address
        self._origin = f"https://{literal}:{address.port}{address.path}"
        named = f"[{host}]" if ":" in host else host
        self._headers = {
            "Host": f"{named}:{port}" if port != 443 else named,  # noqa: PLR2004 - https
            "User-Agent": "switchyard",
            "Accept": "application/json",
            "Accept-Encoding": "identity",
        }
        if address.credential.kind == "token":
            self._headers["Authorization"] = f"Bearer {self._secret}"
        self._host = host
        self._tls = _tls_context(address.ca_pem, address.credential)
        self._calls = asyncio.Semaphore(limits.connections)
        self.large = asyncio.Lock()
        """Locked while something large is read: a cluster never occupies more than one of the process' turns."""
        self.account = Account()
        self.pace = Pace(limits.burst_bytes, limits.bytes_per_second)
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Closes every connection."""
        self.account.release()
        if self._session is not None:
            await self._session.close()
            await self._connector.abort()

    async def call(
        self,
        method: str,
        target: str,
        body: Any = None,
        content_type: str = "application/json",
        *,
        most_bytes: int = 0,
        is_cut: bool = False,
    ) -> bytes:
        """The body of a 2xx response. Everything else raises one of the port's errors.

        The body is at most one object long, or `most_bytes`. A longer one raises TooMuch, or with `is_cut` is truncated
        there.
        """
        content = b"" if body is None else msgspec.json.encode(body)
        answer, raw = await self._exchange(
            method, target, content, content_type, most_bytes or self.limits.answer_bytes, is_cut=is_cut
        )
        if 200 <= answer.status < 300:  # noqa: PLR2004 - HTTP success
            return raw
        raise self.refusal(answer.status, raw, answer.headers.get("Retry-After", ""))

    async def call_for_date(self, target: str) -> tuple[bytes, str]:
        """The body of a 2xx response to a GET, and its Date header."""
        answer, raw = await self._exchange("GET", target, b"", "", self.limits.answer_bytes)
        if answer.status == 200:  # noqa: PLR2004 - HTTP success
            return raw, answer.headers.get("Date", "")
        raise self.refusal(answer.status, raw, "")

    @asynccontextmanager
    async def stream(self, target: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """The chunks of a long response, each within `watch_silence_seconds` of the previous one."""
        async with self._request("GET", target, b"", "", self.limits.watch_silence_seconds) as answer:
            if answer.status != 200:  # noqa: PLR2004 - HTTP success
                async with asyncio.timeout(self.limits.whole_request_seconds):
                    raw = await self._body(answer, self.limits.error_bytes)
                raise self.refusal(answer.status, raw, answer.headers.get("Retry-After", ""))
            self._refuse_encoding(answer)
            yield answer.content.iter_any()

    @asynccontextmanager
    async def socket(
        self, target: str, protocol: str, *, is_long: bool = False
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """A WebSocket of this subprotocol, closed at the end of the block. No redirect is followed.

        One that is open for long takes none of the slots of connections once it is open: those are for short calls.
        """
        self._open_session()
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self.limits.connect_seconds)
        async with (
            AsyncExitStack() as slot,
            aiohttp.ClientSession(
                connector=self._connector,
                connector_owner=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=timeout,
                trace_configs=[no_redirects()],
            ) as session,
        ):
            await slot.enter_async_context(self._one_of_few())
            try:
                async with session.ws_connect(
                    yarl.URL(self._origin + target, encoded=True),
                    protocols=(protocol,),
                    headers=self._headers,
                    server_hostname=self._host,
                    max_msg_size=self.limits.socket_bytes,
                    timeout=aiohttp.ClientWSTimeout(ws_receive=None, ws_close=self.limits.socket_close_seconds),
                ) as socket:
                    if socket.protocol != protocol:
                        raise Refused("the server does not speak the protocol that was asked for")
                    if is_long:
                        await slot.aclose()
                    yield socket
            except aiohttp.WSServerHandshakeError as error:
                retry_after = "" if error.headers is None else error.headers.get("Retry-After", "")
                raise self.status_error(error.status, Status(), retry_after) from None
            except (aiohttp.ClientError, OSError) as error:
                raise _translated(error) from None

    def refusal(self, status: int, raw: bytes, retry_after: str) -> DriverError:
        """The port's error for an unsuccessful response. It never contains the credential, whatever the server sent."""
        try:
            said = _status_decoder.decode(raw)
        except JSON_MISTAKES:
            said = Status()
        return self.status_error(status, said, retry_after)

    def status_error(self, status: int, said: Status, retry_after: str = "") -> DriverError:
        """The port's error for a Status object, from a response or from inside a watch."""
        reason = self._safe(said.message) or f"the server answered {status}"
        if status == 429:  # noqa: PLR2004 - HTTP
            seconds = float(retry_after) if retry_after.isascii() and retry_after.isdigit() else 1.0
            return Throttled(reason, retry_after_seconds=min(seconds, _LONGEST_WAIT_SECONDS))
        if status >= 500 or status == 408:  # noqa: PLR2004 - HTTP
            return Ambiguous(reason, status=status)
        kind = _REFUSALS.get((status, said.reason)) or _REFUSALS.get((status, ""))
        if status == 422 and _has_failed_test(said):  # noqa: PLR2004 - HTTP
            kind = Stale
        return (kind or Refused)(reason, status=status)

    async def _exchange(
        self, method: str, target: str, content: bytes, content_type: str, most_bytes: int, *, is_cut: bool = False
    ) -> tuple[aiohttp.ClientResponse, bytes]:
        try:
            async with (
                asyncio.timeout(self.limits.whole_request_seconds),
                self._request(method, target, content, content_type, self.limits.read_seconds) as answer,
            ):
                self._refuse_encoding(answer)
                is_success = 200 <= answer.status < 300  # noqa: PLR2004 - HTTP
                most = most_bytes if is_success else self.limits.error_bytes
                return answer, await self._body(answer, most, is_cut=is_cut and is_success)
        except TimeoutError:
            raise Ambiguous(f"no complete answer within {self.limits.whole_request_seconds:g} s") from None

    @asynccontextmanager
    async def _request(
        self, method: str, target: str, content: bytes, content_type: str, silence_seconds: float
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """The response's head. Leaving the block returns its connection, or closes it if its body was not read."""
        headers = {**self._headers, "Content-Type": content_type} if content else self._headers
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self.limits.connect_seconds, sock_read=silence_seconds)
        async with self._one_of_few():
            try:
                async with self._open_session().request(
                    method,
                    yarl.URL(self._origin + target, encoded=True),
                    data=content or None,
                    headers=headers,
                    timeout=timeout,
                    server_hostname=self._host,
                    allow_redirects=False,
                ) as answer:
                    yield answer
            except (aiohttp.ClientError, OSError) as error:
                raise _translated(error) from None

    @asynccontextmanager
    async def _one_of_few(self) -> AsyncIterator[None]:
        """A slot for a connection. Raises Unreachable if none becomes free in time."""
        if self._calls.locked():
            try:
                # `asyncio.wait_for` may lose a cancellation in Python 3.11.
                async with asyncio.timeout(self.limits.read_seconds):
                    await self._calls.acquire()
            except TimeoutError:
                raise Unreachable("all connections to this cluster are busy") from None
        else:
            await self._calls.acquire()
        try:
            yield
        finally:
            self._calls.release()

    def _open_session(self) -> aiohttp.ClientSession:
        """Created on the first call, because it belongs to the loop that then runs."""
        if self._session is None:
            self._connector = Connector(ssl=self._tls, limit=0, keepalive_timeout=_IDLE_SECONDS)
            self._session = aiohttp.ClientSession(
                connector=self._connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                trust_env=False,
                read_bufsize=_READ_BYTES,
            )
        return self._session

    @staticmethod
    def _refuse_encoding(answer: aiohttp.ClientResponse) -> None:
        if answer.headers.get("Content-Encoding", "identity") != "identity":
            raise Ambiguous("the server answered in an encoding that was not requested", status=answer.status)

    async def _body(self, answer: aiohttp.ClientResponse, most_bytes: int, *, is_cut: bool = False) -> bytes:
        parts: list[bytes] = []
        size = 0
        slow_at = float("inf")
        async with AsyncExitStack() as large:
            async for part in answer.content.iter_any():
                if size <= FREE_BYTES < size + len(part):
                    await large.enter_async_context(self.large)
                    await large.enter_async_context(turn())
                    slow_at = monotonic() + self.limits.grace_seconds
                if monotonic() > slow_at + size / self.limits.least_bytes_per_second:
                    raise TooMuch("the server sends a large answer too slowly", status=answer.status)
                size += len(part)
                parts.append(part)
                if size > most_bytes:
                    if is_cut:
                        break
                    raise TooMuch(f"the server's answer is larger than {most_bytes} bytes", status=answer.status)
            return parts[0] if len(parts) == 1 else b"".join(parts)

    def _safe(self, message: str) -> str:
        """The server's own message, without our credential and control characters, cut to one line."""
        if self._secret and self._secret in message:
            message = message.replace(self._secret, "***")
        return "".join(letter if letter.isprintable() else " " for letter in message[:_LONGEST_REASON])


_REFUSALS: dict[tuple[int, str], type[DriverError]] = {
    (401, ""): AuthFailed,
    (404, ""): NotThere,
    (409, "AlreadyExists"): NameTaken,
    (409, ""): Stale,
    (410, ""): Expired,
    (412, ""): Stale,
}


def _has_failed_test(said: Status) -> bool:
    """Whether the object is not what a patch tests. A server calls another uid a change of an immutable field."""
    causes = (said.details.causes if said.details else None) or []
    return any(cause.field == "metadata.uid" for cause in causes) or (not causes and said.message == _NOT_APPLIED)


def _translated(error: aiohttp.ClientError | OSError) -> DriverError:
    """Before a connection exists, nothing was sent; after that, the request may have taken effect."""
    match error:
        case aiohttp.ClientConnectorCertificateError(certificate_error=ssl.SSLError() as cause):
            return TlsFailed(f"TLS failed: {getattr(cause, 'verify_message', '') or cause.reason or 'no handshake'}")
        case aiohttp.ClientSSLError():
            return TlsFailed(f"TLS failed: {getattr(error.os_error, 'reason', '') or 'no handshake'}")
        case aiohttp.ConnectionTimeoutError():
            return Unreachable("no connection within the time limit")
        case aiohttp.ClientConnectorError():
            return Unreachable("the connection failed")
        case TimeoutError():
            return Ambiguous("no answer within the time limit")
    return Ambiguous("the connection broke before the answer was complete")


def _tls_context(ca_pem: str, credential: Credential) -> ssl.SSLContext:
    """Verifies the host name against this cluster's authority only, or the system's if the cluster has none."""
    context = ssl.create_default_context(cadata=ca_pem or None)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Cluster authorities made by older installers lack extensions that strict checking (Python 3.13's default) demands.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if credential.kind == "certificate":
        with tempfile.NamedTemporaryFile(mode="wb", prefix="switchyard-") as chain:
            chain.write(credential.secret)
            chain.flush()
            context.load_cert_chain(chain.name)
    return context
