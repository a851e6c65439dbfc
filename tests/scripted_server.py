"""An API server that answers as a test says: a TLS server with an authority of its own."""

import asyncio
import json
import ssl
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import Any
from uuid import UUID

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from clusters.drivers.address import ClusterAddress, Credential
from clusters.drivers.kubernetes.driver import KubernetesDriver
from clusters.drivers.kubernetes.wire import Limits

SECRET = "canary-4f1d9c"
HOST = "cluster.example"
LIMITS = Limits(
    connect_seconds=0.5,
    read_seconds=0.5,
    whole_request_seconds=1.5,
    whole_list_seconds=2.0,
    watch_silence_seconds=0.6,
    relist_seconds=60,
    body_bytes=200_000,
    line_bytes=50_000,
    pages=20,
)


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


class Authority:
    """A certificate for `host`, signed by itself."""

    def __init__(self, host: str = HOST) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
        now = datetime.now(UTC)  # noqa: TID251 - certificates are judged by the real clock
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.SubjectAlternativeName([_alternative(host)]), critical=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(key, hashes.SHA256())
        )
        self.pem = certificate.public_bytes(serialization.Encoding.PEM).decode()
        encoding = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        self.key_pem = key.private_bytes(*encoding).decode()

    def context(self) -> ssl.SSLContext:
        """The server's side."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.NamedTemporaryFile("w") as chain:
            chain.write(self.pem + self.key_pem)
            chain.flush()
            context.load_cert_chain(chain.name)
        return context


AUTHORITY = Authority()


class Connection:
    """One request, and ways to answer it."""

    def __init__(self, writer: asyncio.StreamWriter, method: str, target: str, headers: Mapping[str, str], body: bytes):
        self.writer = writer
        self.method, self.target, self.headers, self.body = method, target, headers, body

    async def send(self, raw: bytes) -> None:
        if self.writer.transport.is_closing():
            raise ConnectionResetError
        self.writer.write(raw)
        await self.writer.drain()
        await asyncio.sleep(0)  # where nobody reads any more, only the loop learns of it

    async def answer(self, status: int, body: Any = b"", **headers: str) -> None:
        """A whole answer; anything but bytes becomes JSON."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        fields = {"Content-Type": "application/json", "Content-Length": str(len(raw)), **headers}
        head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items())
        await self.send(f"HTTP/1.1 {status} Said\r\n{head}\r\n".encode() + raw)

    async def begin(self) -> None:
        """The head of an endless chunked answer."""
        await self.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")

    async def chunk(self, raw: bytes) -> None:
        """A piece of it."""
        await self.send(f"{len(raw):x}\r\n".encode() + raw + b"\r\n")

    async def line(self, kind: str, thing: Any) -> None:
        """An event of a watch."""
        await self.chunk(json.dumps({"type": kind, "object": thing}).encode() + b"\n")

    async def end(self) -> None:
        """The end of it."""
        await self.send(b"0\r\n\r\n")

    def cut(self) -> None:
        """Drops the connection."""
        self.writer.transport.abort()


Behaviour = Callable[[Connection], Awaitable[None]]


class Server:
    """Everything that was asked of it, in order."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.requests: list[Connection] = []

    def address(self, *, host: str = HOST, ca_pem: str = "", port: int = 0) -> ClusterAddress:
        return ClusterAddress(
            cluster_id=UUID(int=1),
            name="hostile",
            server=f"https://{host}:{port or self.port}",
            address="127.0.0.1",
            port=port or self.port,
            ca_pem=ca_pem or AUTHORITY.pem,
            credential=Credential("token", SECRET.encode()),
        )

    def targets(self) -> list[str]:
        return [request.target for request in self.requests]


@asynccontextmanager
async def serving(behave: Behaviour) -> AsyncIterator[tuple[KubernetesDriver, Server]]:
    """A driver that talks to a server that behaves like this."""
    tasks: set[asyncio.Task[Any]] = set()

    async def turn(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            while request := await read_request(reader, writer):
                server.requests.append(request)
                await behave(request)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            tasks.discard(task)
            writer.transport.abort()

    listener = await asyncio.start_server(turn, "127.0.0.1", 0, ssl=AUTHORITY.context())
    server = Server(listener.sockets[0].getsockname()[1])
    driver = KubernetesDriver(server.address(), "test", LIMITS)
    try:
        yield driver, server
    finally:
        await driver.close()
        listener.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await listener.wait_closed()
        await asyncio.sleep(0)


async def read_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Connection | None:
    """The next request of a connection; None if it ended."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.strip().split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Connection(writer, method, target, headers, body)


def listed(*items: Mapping[str, Any], version: str = "100", following: str = "") -> dict[str, Any]:
    """A page of a list."""
    return {"metadata": {"resourceVersion": version, "continue": following}, "items": list(items)}


def job_object(name: str, version: str = "101") -> dict[str, Any]:
    """A Job as a server writes it."""
    metadata = {"name": name, "namespace": "swy-a", "uid": f"uid-{name}", "resourceVersion": version, "labels": {}}
    return {"metadata": metadata, "spec": {"suspend": True}, "status": {}}


def status(code: int, reason: str, message: str = "", **details: Any) -> dict[str, Any]:
    """A Status object."""
    return {
        "kind": "Status",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
        "details": details,
    }
