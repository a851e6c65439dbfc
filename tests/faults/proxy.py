"""A TLS proxy in front of a real API server that can lie about creates: applied there, reported otherwise here."""

import asyncio
import ipaddress
import ssl
import tempfile
import threading
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from devtools.localfleet import ControlPlane
from devtools.localfleet.admin import trust

DENIAL = b"HTTP/1.1 500 Internal Server Error\r\nContent-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"
CHUNK = 65536


class LyingProxy:
    """Passes everything through, but for the next few creates of Jobs."""

    def __init__(self, plane: ControlPlane) -> None:
        self.spoiled = 0
        self._mischief, self._left = "", 0
        self._upstream_port = int(plane.server.rpartition(":")[2])
        self._upstream_trust = trust(plane)
        self.ca_pem, self._context = _certificate()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._context), self._loop
        ).result(10)
        self.address = f"https://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def spoil_creates(self, mischief: str, count: int) -> None:
        """The next `count` creates are applied and then answered not at all (`swallow`) or with 500 (`deny`)."""
        self._mischief, self._left, self.spoiled = mischief, count, 0

    def close(self) -> None:
        """Ends it, connections included."""
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _end(self) -> None:
        self._server.close()
        connections = asyncio.all_tasks() - {asyncio.current_task()}
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        # A closed transport lets go of its socket in the loop's next turns.
        await asyncio.sleep(0.1)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            upstream = await asyncio.open_connection("127.0.0.1", self._upstream_port, ssl=self._upstream_trust)
        except OSError:
            writer.close()
            return
        connection = _Connection(self, reader, writer, *upstream)
        tasks = [asyncio.create_task(connection.requests()), asyncio.create_task(connection.answers())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for end in (writer, upstream[1]):
                end.close()

    def wants_to_spoil(self, request_line: bytes) -> bool:
        if not (self._left and request_line.startswith(b"POST") and b"/jobs" in request_line):
            return False
        self._left -= 1
        return True


class _Connection:
    def __init__(self, proxy: LyingProxy, reader, writer, upstream_reader, upstream_writer) -> None:
        self._proxy = proxy
        self._reader, self._writer = reader, writer
        self._upstream_reader, self._upstream_writer = upstream_reader, upstream_writer
        self._is_spoiling = False

    async def requests(self) -> None:
        while True:
            head = await self._reader.readuntil(b"\r\n\r\n")
            length = next(
                (int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0
            )
            body = await self._reader.readexactly(length)
            self._is_spoiling = self._proxy.wants_to_spoil(head)
            self._upstream_writer.write(head + body)
            await self._upstream_writer.drain()

    async def answers(self) -> None:
        while chunk := await self._upstream_reader.read(CHUNK):
            if self._is_spoiling:
                # The real server has answered, so the object exists.
                self._proxy.spoiled += 1
                if self._proxy._mischief == "deny":
                    self._writer.write(DENIAL)
                    await self._writer.drain()
                return
            self._writer.write(chunk)
            await self._writer.drain()


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
