"""Requests to one API server: pinned address, verified name, no redirects, no proxies, limits on time and size.

Requests go straight through httpx's transport. The client around it adds redirects, cookies, proxies from the
environment and decompression, none of which may happen here, and most of a request's CPU time.
"""

import asyncio
import ssl
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx
import msgspec

from clusters.drivers.address import ClusterAddress, Credential
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
    Unreachable,
)

_LONGEST_REASON = 300
_LONGEST_WAIT_SECONDS = 60.0
_IDLE_SECONDS = 60.0


class Expired(Refused):
    """The version or the continue token asked for is no longer kept (410): list anew."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How long and how much we take from one API server."""

    connect_seconds: float = 3.0
    read_seconds: float = 10.0
    whole_request_seconds: float = 15.0
    whole_list_seconds: float = 120.0
    watch_silence_seconds: float = 90.0
    """Bookmarks come about once a minute, so a watch that is silent for longer has stalled."""
    relist_seconds: float = 300.0
    body_bytes: int = 64 * 1024 * 1024
    list_bytes: int = 1024 * 1024 * 1024
    error_bytes: int = 64 * 1024
    line_bytes: int = 4 * 1024 * 1024
    page_items: int = 500
    pages: int = 1000
    connections: int = 16


class _StatusCause(msgspec.Struct):
    field: str = ""


class _StatusDetails(msgspec.Struct):
    causes: list[_StatusCause] | None = None


class Status(msgspec.Struct):
    """What the API server answers when it refuses."""

    message: str = ""
    reason: str = ""
    code: int = 0
    details: _StatusDetails | None = None


_status_decoder = msgspec.json.Decoder(Status)
_JSON_MISTAKES = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)


T = TypeVar("T")


def decode(decoder: msgspec.json.Decoder[T], body: bytes | msgspec.Raw) -> T:
    """The decoded body. Raises Ambiguous when the server answered with something else than was asked for."""
    try:
        return decoder.decode(body)
    except _JSON_MISTAKES:
        raise Ambiguous("the server answered with JSON of an unexpected shape") from None


class Wire:
    """One API server as a place to send requests to."""

    def __init__(self, address: ClusterAddress, limits: Limits) -> None:
        host, port = address.host, urlsplit(address.server).port or 443
        self.limits = limits
        self._secret = address.credential.secret.decode("ascii", "replace").strip()
        self._prefix = address.path.encode("ascii")
        literal = f"[{address.address}]" if ":" in address.address else address.address
        self._url = httpx.URL(f"https://{literal}:{address.port}/")
        named = f"[{host}]" if ":" in host else host
        fixed = [
            (b"Host", f"{named}:{port}".encode() if port != 443 else named.encode()),  # noqa: PLR2004 - https
            (b"User-Agent", b"switchyard"),
            (b"Accept", b"application/json"),
            (b"Accept-Encoding", b"identity"),
        ]
        if address.credential.kind == "token":
            fixed.append((b"Authorization", b"Bearer " + address.credential.secret.strip()))
        self._fixed = fixed
        self._bare = httpx.Headers(fixed)
        self._timeout = MappingProxyType(
            {
                "connect": limits.connect_seconds,
                "read": limits.read_seconds,
                "write": limits.read_seconds,
                "pool": limits.read_seconds,
            }
        )
        self._host = host
        self._lines = _Lines(_tls_context(address.ca_pem, address.credential), limits)

    async def close(self) -> None:
        """Closes every connection."""
        await self._lines.close()

    async def call(
        self, method: str, target: str, body: Any = None, content_type: bytes = b"application/json"
    ) -> bytes:
        """The body of a 2xx answer. Everything else is raised as one of the port's errors."""
        content = b"" if body is None else msgspec.json.encode(body)
        answer, raw = await self._exchange(method, target, content, content_type)
        if 200 <= answer.status_code < 300:  # noqa: PLR2004 - HTTP success
            return raw
        raise self.refusal(answer.status_code, raw, answer.headers.get("retry-after", ""))

    async def call_for_date(self, target: str) -> tuple[bytes, str]:
        """The body of a 2xx answer to a GET, and its Date header."""
        answer, raw = await self._exchange("GET", target, b"", b"")
        if answer.status_code == 200:  # noqa: PLR2004 - HTTP success
            return raw, answer.headers.get("date", "")
        raise self.refusal(answer.status_code, raw, "")

    @asynccontextmanager
    async def stream(self, target: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """The chunks of a long answer, each within `watch_silence_seconds` of the one before."""
        timeout = {**self._timeout, "read": self.limits.watch_silence_seconds}
        async with self._lines.one() as line:
            try:
                answer = await line.handle_async_request(self._request("GET", target, b"", b"", timeout))
                try:
                    if answer.status_code != 200:  # noqa: PLR2004 - HTTP success
                        raw = await self._body(answer, self.limits.error_bytes)
                        raise self.refusal(answer.status_code, raw, answer.headers.get("retry-after", ""))
                    self._refuse_encoding(answer)
                    yield aiter(_stream_of(answer))
                finally:
                    await answer.aclose()
            except httpx.HTTPError as error:
                raise _translated(error) from None

    def refusal(self, status: int, raw: bytes, retry_after: str) -> DriverError:
        """The port's error for an answer that is not a success. Never holds the credential, whatever the server said."""
        try:
            said = _status_decoder.decode(raw)
        except _JSON_MISTAKES:
            said = Status()
        return self.status_error(status, said, retry_after)

    def status_error(self, status: int, said: Status, retry_after: str = "") -> DriverError:
        """The port's error for a Status object, whether it came as an answer or inside a watch."""
        reason = self._safe(said.message) or f"the server answered {status}"
        if status == 429:  # noqa: PLR2004 - HTTP
            seconds = float(retry_after) if retry_after.isascii() and retry_after.isdigit() else 1.0
            return Throttled(reason, retry_after_seconds=min(seconds, _LONGEST_WAIT_SECONDS))
        if status >= 500 or status == 408:  # noqa: PLR2004 - HTTP
            return Ambiguous(reason, status=status)
        kind = _REFUSALS.get((status, said.reason)) or _REFUSALS.get((status, ""))
        if status == 422 and _blames_identity(said):  # noqa: PLR2004 - HTTP
            kind = Stale
        return (kind or Refused)(reason, status=status)

    async def _exchange(
        self, method: str, target: str, content: bytes, content_type: bytes
    ) -> tuple[httpx.Response, bytes]:
        request = self._request(method, target, content, content_type, self._timeout)
        async with self._lines.one() as line:
            try:
                async with asyncio.timeout(self.limits.whole_request_seconds):
                    answer = await line.handle_async_request(request)
                    try:
                        self._refuse_encoding(answer)
                        return answer, await self._body(answer, self.limits.body_bytes)
                    finally:
                        await answer.aclose()
            except httpx.HTTPError as error:
                raise _translated(error) from None
            except TimeoutError:
                raise Ambiguous(f"no whole answer within {self.limits.whole_request_seconds:g} s") from None

    def _request(self, method: str, target: str, content: bytes, content_type: bytes, timeout: Any) -> httpx.Request:
        headers = self._bare
        if content:
            headers = httpx.Headers(
                [*self._fixed, (b"Content-Type", content_type), (b"Content-Length", str(len(content)).encode())]
            )
        extensions = {"timeout": timeout, "sni_hostname": self._host, "target": self._prefix + target.encode("ascii")}
        return httpx.Request(
            method, self._url, headers=headers, stream=httpx.ByteStream(content), extensions=extensions
        )

    @staticmethod
    def _refuse_encoding(answer: httpx.Response) -> None:
        if answer.headers.get("content-encoding", "identity") != "identity":
            raise Ambiguous("the server answered in an encoding that was not asked for", status=answer.status_code)

    @staticmethod
    async def _body(answer: httpx.Response, most_bytes: int) -> bytes:
        parts: list[bytes] = []
        size = 0
        async for part in _stream_of(answer):
            size += len(part)
            if size > most_bytes:
                raise Ambiguous(f"the server's answer is larger than {most_bytes} bytes", status=answer.status_code)
            parts.append(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _safe(self, message: str) -> str:
        """The server's own words, without our credential, without control characters, cut to a line."""
        if self._secret and self._secret in message:
            message = message.replace(self._secret, "***")
        return "".join(letter if letter.isprintable() else " " for letter in message[:_LONGEST_REASON])


class _Lines:
    """Connections to one server, each a transport of its own; the one used last is used next, while it is warm.

    A transport with many connections looks through all of them, with a system call each, at every request.
    """

    def __init__(self, tls: ssl.SSLContext, limits: Limits) -> None:
        self._tls = tls
        self._most = asyncio.Semaphore(limits.connections)
        self._wait_seconds = limits.read_seconds
        self._idle: list[httpx.AsyncHTTPTransport] = []
        self._all: list[httpx.AsyncHTTPTransport] = []

    @asynccontextmanager
    async def one(self) -> AsyncIterator[httpx.AsyncHTTPTransport]:
        """A connection to oneself. Raises Unreachable when none becomes free in time."""
        if self._most.locked():
            try:
                await asyncio.wait_for(self._most.acquire(), self._wait_seconds)
            except TimeoutError:
                raise Unreachable("all connections to this cluster are busy") from None
        else:
            await self._most.acquire()
        line = self._idle.pop() if self._idle else self._open()
        try:
            yield line
        finally:
            self._idle.append(line)
            self._most.release()

    async def close(self) -> None:
        """Closes all of them, and gives the loop a turn in which their sockets are really closed."""
        for line in self._all:
            await line.aclose()
        await asyncio.sleep(0)

    def _open(self) -> httpx.AsyncHTTPTransport:
        line = httpx.AsyncHTTPTransport(
            verify=self._tls,
            trust_env=False,
            http2=False,
            retries=0,
            limits=httpx.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=_IDLE_SECONDS),
        )
        self._all.append(line)
        return line


_REFUSALS: dict[tuple[int, str], type[DriverError]] = {
    (401, ""): AuthFailed,
    (404, ""): NotThere,
    (409, "AlreadyExists"): NameTaken,
    (409, ""): Stale,
    (410, ""): Expired,
    (412, ""): Stale,
}


def _blames_identity(said: Status) -> bool:
    """A patch that carries another object's uid is refused as a change of an immutable field (422)."""
    causes = (said.details.causes if said.details else None) or []
    return any(cause.field == "metadata.uid" for cause in causes)


def _stream_of(answer: httpx.Response) -> httpx.AsyncByteStream:
    assert isinstance(answer.stream, httpx.AsyncByteStream)
    return answer.stream


def _translated(error: httpx.HTTPError) -> DriverError:
    """Before a connection stands nothing was sent; after that anything may have happened."""
    if isinstance(error, httpx.ConnectError):
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, ssl.SSLError):
                return TlsFailed(
                    f"TLS failed: {getattr(cause, 'verify_message', '') or cause.reason or 'no handshake'}"
                )
            cause = cause.__cause__ or cause.__context__
        return Unreachable("no connection could be made")
    if isinstance(error, httpx.ConnectTimeout):
        return Unreachable("no connection within the time limit")
    if isinstance(error, httpx.PoolTimeout):
        return Unreachable("all connections to this cluster are busy")
    if isinstance(error, httpx.TimeoutException):
        return Ambiguous("no answer within the time limit")
    return Ambiguous("the connection broke before the answer was complete")


def _tls_context(ca_pem: str, credential: Credential) -> ssl.SSLContext:
    """Verifies the host name against this cluster's authority alone, or the system's where it has none of its own."""
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
