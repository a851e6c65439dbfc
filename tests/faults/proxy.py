"""A TLS proxy in front of a real API server that lies about what becomes of a create, a release or a delete."""

import asyncio
import ipaddress
import json
import re
import ssl
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime, parsedate_to_datetime
from http import HTTPStatus

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from devtools.localfleet import ControlPlane
from devtools.localfleet.admin import trust
from tests.faults.relay import CHUNK, Relay, first_done
from tests.faults.watches import spoil

STEPS: Mapping[str, str] = {"create": "POST", "release": "PATCH", "delete": "DELETE"}
STATUSES = ("404", "409", "422", "429", "500", "503")
_INSTANT = re.compile(rb'"(20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z)"')
_BEGUN = re.compile(rb'"(2|20[0-9T:Z-]*)?$')
"""What may be the beginning of an instant, at the end of what has come so far."""
_DATE = re.compile(rb"\r\nDate: ([^\r]+ GMT)")
LATE_SECONDS = 25.0
"""Longer than the gateway waits for any answer to a write."""


@dataclass(frozen=True, slots=True)
class Lie:
    """What becomes of one request: `reply` is a status, `lost`, `late`, `repeated`, or `cut` in its middle; `applied`: the server
    gets it at all.
    """

    step: str
    reply: str
    applied: bool = True

    def __str__(self) -> str:
        return f"{self.step}-{self.reply}-{'applied' if self.applied else 'dropped'}"


@dataclass(slots=True)
class Mischief:
    """Lies by image tag, one request each. Objects are known by the image that their create named."""

    lies: dict[str, Lie] = field(default_factory=dict)
    told: dict[str, float] = field(default_factory=dict)
    """When each lie was told, by tag."""
    _tags: dict[str, str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def about(self, method: str, path: str, body: bytes) -> Lie | None:
        """The lie about this request, which is then told."""
        where = path.partition("?")[0]
        if "/batch/v1/" not in where or method not in STEPS.values() or "dryRun" in path:
            return None
        if method == "POST":
            manifest = json.loads(body)
            name = manifest["metadata"]["name"]
            tag = manifest["spec"]["template"]["spec"]["containers"][0]["image"].rpartition(":")[2]
        else:
            name, tag = where.rpartition("/")[2], ""
        with self._lock:
            tag = self._tags.setdefault(name, tag)
            lie = self.lies.get(tag)
            if lie is None or tag in self.told or STEPS[lie.step] != method:
                return None
            self.told[tag] = time.monotonic()
            return lie


class LyingProxy(Relay):
    """Passes everything through, but for what `mischief` says. It can be cut, like any relay."""

    def __init__(self, plane: ControlPlane, mischief: Mischief | None = None) -> None:
        self.mischief = mischief or Mischief()
        self.skew_seconds = 0
        """How far ahead the cluster's clock seems to be."""
        self._upstream_trust = trust(plane)
        self._spoiling = ""
        self._watchers: set[asyncio.StreamWriter] = set()
        self._spoiled = 0
        self.ca_pem, context = _certificate()
        super().__init__(int(plane.server.rpartition(":")[2]), context)
        self.address = f"https://127.0.0.1:{self.port}"

    def spoil_watches(self, way: str) -> None:
        """All watches end. Those that begin until it is healed are told that they come too late (`gone`), get half a line
        (`junk`), get nothing (`stall`), or get everything but deletions (`lost`).
        """
        self._at_once(self._change_watches, way)

    def heal_watches(self) -> bool:
        """All watches end, and those that begin are true again; whether any was spoiled."""
        self._at_once(self._change_watches, "")
        return self._spoiled > 0

    def _change_watches(self, way: str) -> None:
        self._spoiling = way
        if way:
            self._spoiled = 0
        for watcher in self._watchers:
            watcher.transport.abort()

    async def connect_upstream(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to the API server."""
        return await asyncio.open_connection("127.0.0.1", self.upstream_port, ssl=self._upstream_trust)

    async def pass_on(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        upstream_reader: asyncio.StreamReader,
        upstream_writer: asyncio.StreamWriter,
    ) -> None:
        """One connection. After a lie it is closed."""
        try:
            await first_done(self._requests(reader, writer, upstream_writer), self._answers(upstream_reader, writer))
        finally:
            self._watchers.discard(writer)

    async def _answers(self, upstream: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Bytes as they come; while the clock is to seem wrong, with every instant moved."""
        rest = b""
        while chunk := await upstream.read(CHUNK):
            chunk, rest = rest + chunk, b""
            if self.skew_seconds:
                if cut := _BEGUN.search(chunk):
                    chunk, rest = chunk[: cut.start()], chunk[cut.start() :]
                chunk = _DATE.sub(self._moved_date, _INSTANT.sub(self._moved, chunk))
            writer.write(chunk)
            await writer.drain()

    def _moved(self, found: re.Match[bytes]) -> bytes:
        at = datetime.fromisoformat(found[1].decode()) + timedelta(seconds=self.skew_seconds)
        return f'"{at:%Y-%m-%dT%H:%M:%S}Z"'.encode()

    def _moved_date(self, found: re.Match[bytes]) -> bytes:
        at = parsedate_to_datetime(found[1].decode()) + timedelta(seconds=self.skew_seconds)
        return f"\r\nDate: {format_datetime(at, usegmt=True)}".encode()

    async def _requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, upstream: asyncio.StreamWriter
    ) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(
                (int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0
            )
            body = await reader.readexactly(length)
            method, path, _ = head.split(b"\r\n", 1)[0].decode().split(" ", 2)
            if lie := self.mischief.about(method, path, body):
                writer.write(await self._answer(lie, head, body))
                await writer.drain()
                return
            if method == "GET" and "watch=" in path:
                self._watchers.add(writer)
                if self._spoiling:
                    self._spoiled += 1
                    await first_done(spoil(self._spoiling, head, writer, self.connect_upstream), reader.read(-1))
                    return
            else:
                self._watchers.discard(writer)
            upstream.write(head + body)
            await upstream.drain()

    async def _answer(self, lie: Lie, head: bytes, body: bytes) -> bytes:
        answer = await self._ask(head, body) if lie.applied else b""
        if lie.reply == "repeated":
            return await self._ask(head, body)
        if lie.reply == "late":
            await asyncio.sleep(LATE_SECONDS)
            # A request that was only delayed is applied when nobody waits for it any more.
            return answer or await self._ask(head, body)
        if lie.reply == "cut":
            return answer[: len(answer) * 2 // 3]
        return b"" if lie.reply == "lost" else _refusal(int(lie.reply))

    async def _ask(self, head: bytes, body: bytes) -> bytes:
        """The server's whole answer to a request that is sent on a connection of its own."""
        first, rest = head.split(b"\r\n", 1)
        reader, writer = await self.connect_upstream()
        try:
            writer.write(first + b"\r\nConnection: close\r\n" + rest + body)
            await writer.drain()
            return await reader.read(-1)
        finally:
            writer.transport.abort()


def _refusal(status: int) -> bytes:
    reasons = {404: "NotFound", 409: "Conflict", 422: "Invalid", 429: "TooManyRequests", 500: "InternalError"}
    told = {
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status, "message": "so says the proxy",
        "reason": reasons.get(status, "ServiceUnavailable"),
    }  # fmt: skip
    body = json.dumps(told).encode()
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nRetry-After: 1\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


def _certificate() -> tuple[str, ssl.SSLContext]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "proxy")])
    now = datetime.now(UTC)  # noqa: TID251 - certificates are judged by the real clock
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile() as chain:
        chain.write(pem + private)
        chain.flush()
        context.load_cert_chain(chain.name)
    return pem.decode(), context
