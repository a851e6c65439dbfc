"""Alerts as mail: the operator's server, addresses, and what a message says. Whatever names contain, a subject is one line."""

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import unquote, urlsplit
from uuid import UUID

from .budgets import Terms, period_name
from .hooks import ANOMALY, CONFIRMATION, DOCUMENT, DOCUMENTS, FORECAST, SPENT, text_of

PORTS = {"smtps": 465, "smtp+tls": 587, "smtp": 25}
"""TLS from the first byte; TLS after STARTTLS, without which nothing is sent; no TLS."""
THIS_HOST = frozenset({"127.0.0.1", "::1", "localhost"})
FORMS_OF_URL = (
    "must look like smtps://user:password@host:465 (TLS), smtp+tls://user:password@host:587 (STARTTLS), or"
    " smtp://127.0.0.1:25 on this host"
)
MOST_ADDRESS_LENGTH = 254
MOST_SUBJECT_LENGTH = 200
MOST_NAME_LENGTH = 200
"""Of a name in a message to an address that is not confirmed, so that no name can carry another message."""
_ADDRESS = re.compile(
    r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*"
    r"@([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)+[A-Za-z][A-Za-z0-9-]{0,61}[A-Za-z0-9]"
)
MOST_LOCAL_LENGTH = 64
_HOST = re.compile(r"[A-Za-z0-9._:-]+")
BREAKING = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Categories of characters that end lines, reverse them or are not shown."""


@dataclass(frozen=True, slots=True)
class MailServer:
    """The operator's SMTP server."""

    host: str
    port: int
    is_tls: bool = False
    starts_tls: bool = False
    user: str = ""
    password: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Mail:
    """One message in plain text."""

    to: str
    subject: str
    body: str = field(repr=False)
    message_id: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Envelope:
    """What a message needs besides its alert: the sender, the hook, and pages. The link of a confirmation is a secret."""

    sender: str
    to: str
    hook: str
    hook_page: str
    link: str = field(repr=False)


def read_mail_url(text: str) -> MailServer:
    """The server of SWITCHYARD_MAIL_URL. ValueError with the reason, which does not repeat the text."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise ValueError(FORMS_OF_URL) from None
    host = (parts.hostname or "").lower()
    if parts.scheme not in PORTS or not _HOST.fullmatch(host) or parts.path not in ("", "/") or port == 0:
        raise ValueError(FORMS_OF_URL)
    if parts.query or parts.fragment or not re.fullmatch(r"[!-~]+", text):
        raise ValueError(FORMS_OF_URL)
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    if bool(user) != bool(password) or not f"{user}{password}".isprintable():
        raise ValueError("must have a user and a password, percent-encoded, or neither")
    if parts.scheme == "smtp" and (host not in THIS_HOST or user):
        raise ValueError("must use smtps:// or smtp+tls://, except on this host without a password")
    return MailServer(
        host, port or PORTS[parts.scheme], parts.scheme == "smtps", parts.scheme == "smtp+tls", user, password
    )


def check_address(text: str) -> None:
    """ValueError unless it is one bare address in ASCII, such as finance@example.com."""
    if len(text) > MOST_ADDRESS_LENGTH or len(text.partition("@")[0]) > MOST_LOCAL_LENGTH:
        raise ValueError(f"must have at most {MOST_ADDRESS_LENGTH} characters, and {MOST_LOCAL_LENGTH} before the @")
    if not _ADDRESS.fullmatch(text):
        raise ValueError("must be one address such as finance@example.com, in ASCII and without a name")


def mail_of(envelope: Envelope, delivery_id: UUID, kind: str, facts: Mapping[str, Any]) -> Mail:
    """The message: the same for the same facts, with the same Message-ID at each attempt."""
    body = _confirmation(envelope, facts) if kind == CONFIRMATION else _alert(envelope, kind, facts)
    return Mail(
        to=envelope.to,
        subject=_cut(one_line(_subject(kind, facts)), MOST_SUBJECT_LENGTH),
        body=body,
        message_id=f"<{delivery_id}@{envelope.sender.rpartition('@')[2]}>",
        at=datetime.fromisoformat(facts["at"]),
    )


def one_line(text: str) -> str:
    """The text without characters that end a line, reverse it or are not shown."""
    return " ".join("".join(" " if unicodedata.category(one) in BREAKING else one for one in text).split())


def _subject(kind: str, facts: Mapping[str, Any]) -> str:
    tenant = facts["tenant"]
    if kind in (SPENT, FORECAST):
        span = datetime.fromisoformat(facts["period_start"]), datetime.fromisoformat(facts["period_end"])
        name = period_name(Terms(facts["measure"], facts["currency"], facts["period"]), span)
        verb = "spent" if kind == SPENT else "expected to be reached"
        return f"{facts['percent']} % of the budget for {name} is {verb}: {tenant}"
    if kind == ANOMALY:
        return f"Unusual spending on {facts['day']}: {tenant}, {facts['flavor']}"
    if kind == DOCUMENT:
        return f"{DOCUMENTS[facts['document']]} {facts['number']} for {facts['month']} is issued: {tenant}"
    if kind == CONFIRMATION:
        return f"Confirm this address for alerts of {tenant}"
    return f"Test of the alert hook {facts['hook']} of {tenant}"


def _alert(envelope: Envelope, kind: str, facts: Mapping[str, Any]) -> str:
    return (
        f"{one_line(text_of(kind, facts))}\n\n{envelope.link}\n\n"
        f"You get this mail because the alert hook {one_line(envelope.hook)} has your address. Its managers can pause or delete it:\n"
        f"{envelope.hook_page}\n"
    )


def _confirmation(envelope: Envelope, facts: Mapping[str, Any]) -> str:
    """Of a name that a user chose freely, it has none: this goes to an address that has not agreed to anything."""
    by, tenant = (_cut(one_line(facts[name]), MOST_NAME_LENGTH) for name in ("by", "tenant"))
    return (
        f"{by} asks for alerts of {tenant}, and of all tenants below it, to be mailed to this address.\n\n"
        f"To agree, open this page and choose Confirm. The link works once, until {facts['until']}:\n{envelope.link}\n\n"
        "If you do not expect this, ignore it: without your confirmation, no alert is mailed to you.\n"
    )


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
