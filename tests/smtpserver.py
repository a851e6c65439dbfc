"""An SMTP server on loopback that speaks what the gateway needs, over TLS or not, and misbehaves at a step as a test says."""

import asyncio
import base64
import contextlib
import ssl
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path

from tests.apiserver import make_certificate

STEPS = ("greet", "ehlo", "starttls", "auth", "mail", "rcpt", "data", "end")
DROP, SLOW, DRIBBLE, GARBAGE = "drop", "slow", "dribble", "garbage"
USER, PASSWORD = "gateway", "canary p@ss/44c0"
SLOW_SECONDS = 60.0
REPLIES = {
    "greet": "220 here", "starttls": "220 go on", "auth": "235 ok", "mail": "250 ok", "rcpt": "250 ok", "data": "354 go on", "end": "250 taken",
}  # fmt: skip


@dataclass
class SmtpServer:
    """What it took, and how it replies. `script`: a reply by step, or DROP, SLOW, DRIBBLE (a byte each second), GARBAGE. `starttls`:
    whether that is offered. `by_recipient`: a reply to RCPT for an address.
    """

    ca_pem: str
    port: int = 0
    script: dict[str, str] = field(default_factory=dict)
    by_recipient: dict[str, str] = field(default_factory=dict)
    offers_starttls: bool = True
    taken: list[tuple[str, str, bytes, bool]] = field(default_factory=list)
    """Of each message: sender, recipient, what followed DATA, and whether that came over TLS."""
    sessions: int = 0
    heard: list[str] = field(default_factory=list)
    """The first word of each command."""

    @property
    def messages(self) -> list[EmailMessage]:
        """The messages, parsed."""
        return [message_from_bytes(raw, policy=policy.default) for _, _, raw, _ in self.taken]

    def url(self, scheme: str = "smtp+tls") -> str:
        """What SWITCHYARD_MAIL_URL is set to."""
        secret = "" if scheme == "smtp" else "gateway:canary%20p%40ss%2F44c0@"
        return f"{scheme}://{secret}127.0.0.1:{self.port}"


class _Gone(Exception):
    """The session ends."""


@contextlib.contextmanager
def smtp_server(*, implicit_tls: bool = False) -> Iterator[SmtpServer]:
    """A server that runs until the end of the block."""
    certificate, key = make_certificate("127.0.0.1", "localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:
        pem = Path(folder, "server.pem")
        pem.write_text(certificate + key)
        context.load_cert_chain(pem)
    server, ready, begun = SmtpServer(certificate), threading.Event(), []

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _Session(server, context, reader, writer, is_tls=implicit_tls).run()

    async def serve() -> None:
        stop = asyncio.Event()
        listening = await asyncio.start_server(take, "127.0.0.1", 0, ssl=context if implicit_tls else None)
        server.port = listening.sockets[0].getsockname()[1]
        begun.append((asyncio.get_running_loop(), stop))
        ready.set()
        async with listening:
            await stop.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),), daemon=True)
    thread.start()
    ready.wait(10)
    try:
        yield server
    finally:
        [(loop, stop)] = begun
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)


class _Session:
    def __init__(
        self,
        server: SmtpServer,
        context: ssl.SSLContext,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        is_tls: bool,
    ) -> None:
        self.server, self.context, self.reader, self.writer, self.is_tls = server, context, reader, writer, is_tls
        self.sender = self.recipient = ""

    async def run(self) -> None:
        self.server.sessions += 1
        with contextlib.suppress(_Gone, OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await self._say("greet")
            while line := await self.reader.readline():
                await self._answer(line.decode(errors="replace").rstrip("\r\n"))
        with contextlib.suppress(Exception):
            self.writer.transport.abort()

    async def _answer(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        verb = word.upper()
        self.server.heard.append(verb)
        steps = {"EHLO": self._ehlo, "STARTTLS": self._starttls, "AUTH": self._auth, "MAIL": self._mail, "RCPT": self._rcpt, "DATA": self._data}  # fmt: skip
        if verb in steps:
            await steps[verb](rest)
        elif verb == "QUIT":
            raise _Gone
        else:
            await self._write("250 ok" if verb == "RSET" else "502 unknown")

    async def _ehlo(self, _: str) -> None:
        offers = [*(["STARTTLS"] if self.server.offers_starttls and not self.is_tls else []), "AUTH PLAIN LOGIN"]
        await self._say("ehlo", "\r\n".join([*(f"250-{one}" for one in ["here", *offers]), "250 HELP"]))

    async def _starttls(self, _: str) -> None:
        if (await self._say("starttls")).startswith("220"):
            await self.writer.start_tls(self.context)
            self.is_tls = True

    async def _auth(self, rest: str) -> None:
        word, _, initial = rest.partition(" ")
        right = word.upper() == "PLAIN" and base64.b64decode(initial) == f"\0{USER}\0{PASSWORD}".encode()
        await self._say("auth", None if right else "535 wrong")

    async def _mail(self, rest: str) -> None:
        self.sender = rest.partition("<")[2].partition(">")[0]
        await self._say("mail")

    async def _rcpt(self, rest: str) -> None:
        self.recipient = rest.partition("<")[2].partition(">")[0]
        await self._say("rcpt", self.server.by_recipient.get(self.recipient))

    async def _data(self, _: str) -> None:
        if not (await self._say("data")).startswith("354"):
            return
        lines = []
        while (line := await self.reader.readline()) not in (b".\r\n", b""):
            lines.append(line.removeprefix(b".") if line.startswith(b"..") else line)
        if self.server.script.get("end", "") in ("", DROP, SLOW, DRIBBLE, GARBAGE):
            self.server.taken.append((self.sender, self.recipient, b"".join(lines), self.is_tls))
        await self._say("end")

    async def _say(self, step: str, usual: str | None = None) -> str:
        """Writes the reply of a step, or what the script has for it, and returns it."""
        reply = self.server.script.get(step) or usual or REPLIES[step]
        if reply == DROP:
            raise _Gone
        if reply == SLOW:
            await asyncio.sleep(SLOW_SECONDS)
            raise _Gone
        if reply == DRIBBLE:
            while True:
                self.writer.write(b"2")
                await self.writer.drain()
                await asyncio.sleep(0.2)
        await self._write("what is this\x00\xff" if reply == GARBAGE else reply)
        return reply

    async def _write(self, text: str) -> None:
        self.writer.write(f"{text}\r\n".encode())
        await self.writer.drain()
