"""Sends mail by the operator's SMTP server, through Django's mail API: one session for several messages, within one time limit.

Without TLS, nothing is sent, except on this host. Of a reply only the code counts: its text could repeat what was sent.
"""

import asyncio
import contextlib
import smtplib
import socket
import ssl
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from email.utils import format_datetime
from typing import Any

from django.conf import settings
from django.core.mail import EmailMessage
from django.core.mail.backends.smtp import EmailBackend
from django.core.mail.message import utf8_charset_qp

from billing.engine.mail import Mail, MailServer, read_mail_url
from clusters.drivers.connections import start
from clusters.drivers.hook_servers import hook_tls
from clusters.drivers.port import DriverError
from clusters.drivers.posting import Answer
from clusters.drivers.resolve import resolve
from foundation.clock import monotonic

MAIL_SECONDS = 15.0
"""For all messages of one call: name, connection, TLS, signing in, and every reply."""
GREETING, ACCEPTED, TRANSIENT, CLOSING, PERMANENT = 220, 250, 400, 421, 500
"""Codes of replies: a session begins, a message is taken, the least of refusals, the session ends, and the least of final refusals."""
NOT_SET = "SWITCHYARD_MAIL_URL or SWITCHYARD_MAIL_FROM is not set where mail is sent"
TOO_SLOW = f"the mail server did not take it within {MAIL_SECONDS:g} s"


def send_all(mails: Sequence[Mail]) -> list[Answer]:
    """What the server replied to each, in order, within MAIL_SECONDS for all together. A mail without a reply may have arrived.

    `is_gone`: it refused the address, for good.
    """
    if not mails:
        return []
    if not settings.MAIL_URL or not settings.MAIL_FROM:
        return [Answer(None, NOT_SET) for _ in mails]
    session = _Session(read_mail_url(settings.MAIL_URL), settings.MAIL_FROM, settings.MAIL_CA)
    with session.limited():
        return [session.send(mail) for mail in mails]


class _Session(EmailBackend):
    """A session with the server that ends at a fixed time, whatever the server does. After a failure to open it, it is not opened again."""

    def __init__(self, server: MailServer, sender: str, ca_pem: str) -> None:
        super().__init__(
            host=server.host,
            port=server.port,
            username=server.user,
            password=server.password,
            use_tls=server.starts_tls,
            use_ssl=server.is_tls,
            timeout=MAIL_SECONDS,
        )
        self._sender, self._ca_pem = sender, ca_pem
        self._until = monotonic() + MAIL_SECONDS
        self._failure: Answer | None = None

    @contextlib.contextmanager
    def limited(self) -> Iterator[None]:
        """Hangs up when the time has ended, in the process' loop, since a server that sends a byte now and then keeps every time-out of the
        socket from passing.
        """
        watch: Future[None] = start(self._hang_up_later(MAIL_SECONDS))
        try:
            yield
        finally:
            if self.connection is not None and not self._has_ended():
                with contextlib.suppress(Exception):
                    self.connection.putcmd("quit")  # the reply is not awaited
            watch.cancel()
            self._end()

    def send(self, mail: Mail) -> Answer:
        """The reply to one message."""
        if self._failure is not None:
            return self._failure
        if self._has_ended():
            return Answer(None, TOO_SLOW)
        try:
            self.open()
        except Exception as error:  # noqa: BLE001 - whatever a server does here concerns all messages, and none was sent
            self._end()
            self._failure = self._why("the mail server refused the session", error)
            return self._failure
        return self._exchange(mail)

    def open(self) -> bool:
        """As Django does, without asking for this host's name, and over TLS or not at all."""
        if self.connection is not None:
            return False
        kind = _TlsConnection if self.use_ssl else _Connection
        options: dict[str, Any] = {"context": self._tls()} if self.use_ssl else {}
        domain = self._sender.rpartition("@")[2]
        self.connection = kind(local_hostname=domain, timeout=self._left(), **options)
        code, text = self.connection.connect(self.host, self.port)
        if code != GREETING:
            raise smtplib.SMTPConnectError(code, text)
        if self.use_tls:
            self.connection.starttls(context=self._tls())
        if self.username and self.password:
            self.connection.login(self.username, self.password)
        return True

    def _exchange(self, mail: Mail) -> Answer:
        try:
            sent = self.send_messages([message_of(mail, self._sender, self)])
        except smtplib.SMTPRecipientsRefused as error:
            [(code, _)] = error.recipients.values()
            answer = _refusal("the mail server refused the address", code)
            return self._unless_closing(code, replace(answer, is_gone=code >= PERMANENT))
        except smtplib.SMTPResponseException as error:
            return self._unless_closing(error.smtp_code, self._why("the mail server refused the message", error))
        except Exception as error:  # noqa: BLE001 - one message that fails keeps no other from being sent
            self._end()
            return self._why("the mail server did not take it", error)
        return Answer(ACCEPTED) if sent else Answer(None, "there was nothing to send")

    def _unless_closing(self, code: int, answer: Answer) -> Answer:
        """The answer; that of a server which ends the session is for all further messages too."""
        if code == CLOSING:
            self._failure = answer
        if self.connection is not None and self.connection.sock is None:
            self._end()
        return answer

    def _why(self, what: str, error: Exception) -> Answer:
        """Without the server's text."""
        if self._has_ended():
            return Answer(None, TOO_SLOW)
        if isinstance(error, smtplib.SMTPResponseException):
            return _refusal(what, error.smtp_code)
        if isinstance(error, smtplib.SMTPNotSupportedError):
            return Answer(None, f"{what}: it offers no STARTTLS, or no way to sign in")
        if isinstance(error, DriverError):
            return Answer(None, f"{what}: {error}")
        return Answer(None, f"{what} ({type(error).__name__})")

    def _tls(self) -> ssl.SSLContext:
        return hook_tls(self._ca_pem)

    def _left(self) -> float:
        return max(self._until - monotonic(), 0.1)

    def _has_ended(self) -> bool:
        return monotonic() >= self._until

    async def _hang_up_later(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self._hang_up()

    def _hang_up(self) -> None:
        """Ends what another thread reads or writes."""
        connection = self.connection
        raw = None if connection is None else connection.sock
        if raw is not None:
            with contextlib.suppress(OSError):
                # Of TLS sockets too, whose own method would race with the reader.
                socket.socket.shutdown(raw, socket.SHUT_RDWR)

    def _end(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()


class _Connection(smtplib.SMTP):
    """Resolves the name within the resolver's limit."""

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        self._host = host  # what TLS verifies
        return _connected(host, port, timeout)


class _TlsConnection(smtplib.SMTP_SSL):
    """The same over TLS."""

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        return self.context.wrap_socket(_connected(host, port, timeout), server_hostname=host)


def message_of(mail: Mail, sender: str, connection: EmailBackend | None = None) -> EmailMessage:
    """The message with its headers. The same Message-ID at each attempt lets a repetition be recognised."""
    message = EmailMessage(
        subject=mail.subject,
        body=mail.body,
        from_email=sender,
        to=[mail.to],
        headers={
            "Message-ID": mail.message_id,
            "Date": format_datetime(mail.at),
            "Auto-Submitted": "auto-generated",
            "X-Auto-Response-Suppress": "All",
        },
        connection=connection,
    )
    message.encoding = utf8_charset_qp  # not every server takes eight bits, nor lines of any length
    return message


def _refusal(what: str, code: int) -> Answer:
    """A reply that is no refusal, or no reply at all, has no status: what was cut off may look like the code of success."""
    if code < TRANSIENT:
        return Answer(None, f"{what}: it replied something else")
    return Answer(code, f"{what} ({code})")


def _connected(host: str, port: int, timeout: float) -> socket.socket:
    """A connection to the first address that accepts one."""
    addresses = resolve(host, port)
    each = timeout / len(addresses)
    for address in addresses[:-1]:
        with contextlib.suppress(OSError):
            return socket.create_connection((address, port), each)
    return socket.create_connection((addresses[-1], port), each)
