"""Sessions: what a request of a browser says to a program in a pod, and what of its answer returns to the browser.

Each run of a session has an origin for itself: a host below that of `SWITCHYARD_SESSION_ORIGIN`. Nothing that its program serves
can therefore read or send anything as a page of the gateway, or of another session.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit
from uuid import UUID

from clusters.drivers.exchanges import Headers

MIN_PORT, MAX_PORT = 1024, 65_535
"""The cluster's admission policy allows no port below: pods run without root."""
MIN_IDLE_SECONDS, MAX_IDLE_SECONDS = 300, 86_400
MAX_SESSION_SECONDS = 7 * 86_400
TICKET_SECONDS = 60
ACCESS_SECONDS = 3600
SEEN_SECONDS = 60
"""The use of a session is noted once in this time, not for each request."""
MOST_OPEN_TICKETS = 20
"""Of one run, neither used nor expired."""
OPENING_PATH = "/.switchyard/open"
_LABEL = re.compile(r"[0-9a-f]{32}")
_HOP_BY_HOP = frozenset(
    [
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ]
)
_KEPT_BACK = _HOP_BY_HOP | frozenset(
    [
        "accept-encoding",
        "authorization",
        "content-length",
        "content-type",
        "cookie",
        "expect",
        "forwarded",
        "host",
        "http2-settings",
        "referer",
        "via",
        "x-real-ip",
        "x-request-id",
    ]
)
_KEPT_BACK_PREFIXES = ("x-forwarded-", "proxy-", "sec-websocket-")
_RETURNED = {
    name.lower(): name
    for name in (
        "Accept-Ranges", "Allow", "Content-Disposition", "Content-Language", "Content-Range", "Content-Type", "ETag",
        "Last-Modified", "Location", "Retry-After",
    )
}  # fmt: skip
"""All else stays behind: cookies, policies, permissions for other sites, and what steers a browser or a proxy."""
_LONGEST_BASE = 200
_PLAIN = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_METHODS = frozenset(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
SAFE_METHODS = frozenset({"GET", "HEAD"})


@dataclass(frozen=True, slots=True)
class Session:
    """What a job says of its session: where its program listens in the pod, and after which time without use it is stopped."""

    port: int
    idle_seconds: int


@dataclass(frozen=True, slots=True)
class SessionOrigin:
    """The origins of sessions: `https://*.sessions.example.org`, in which a run's id stands for the star."""

    scheme: str
    base: str
    port: str

    @property
    def is_secure(self) -> bool:
        return self.scheme == "https"

    @property
    def cookie(self) -> str:
        """Browsers accept a name with this prefix only over TLS and only for this whole host: no other session can set one."""
        return "__Host-switchyard-session" if self.is_secure else "switchyard-session"

    def of(self, attempt_id: UUID) -> str:
        """The origin of a run."""
        return f"{self.scheme}://{attempt_id.hex}.{self.base}{self.port}"

    def covers(self, host: str) -> bool:
        """Whether a Host header names an origin of sessions, also one that no run has."""
        name = _name_of(host)
        return name == self.base or name.endswith(f".{self.base}")

    def attempt_at(self, host: str) -> UUID | None:
        """The run whose origin a Host header names."""
        label = _name_of(host).removesuffix(f".{self.base}")
        return UUID(label) if _LABEL.fullmatch(label) else None


def _name_of(host: str) -> str:
    return re.sub(r":[0-9]*$", "", host.strip().lower()).rstrip(".")


def read_origin(text: str) -> SessionOrigin:
    """The setting. Raises ValueError, which does not repeat it."""
    form = "must be written as https://*.host[:port]"
    try:
        parts = urlsplit(text)
    except ValueError:
        raise ValueError(form) from None
    name, colon, port = parts.netloc.removeprefix("*.").partition(":")
    if text != f"{parts.scheme}://*.{name}{colon}{port}" or parts.scheme not in ("https", "http"):
        raise ValueError(form)
    if (
        not re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*", name)
        or len(name) > _LONGEST_BASE
    ):
        raise ValueError(f"{form}, in lower case")
    if colon and not (port.isascii() and port.isdigit() and 1 <= int(port[:6]) <= MAX_PORT):
        raise ValueError(form)
    if parts.scheme == "http" and name != "localhost" and not name.endswith(".localhost"):
        raise ValueError("must begin with https://, except below localhost, because it carries cookies")
    return SessionOrigin(parts.scheme, name, f"{colon}{port}")


def is_method(method: str) -> bool:
    """Whether the gateway passes on requests of this method."""
    return method in _METHODS


def comes_from_itself(method: str, headers: Mapping[str, str], origin: str) -> bool:
    """Whether a request with the session's cookie was made by the session's own pages, or by its user, who opens an address.

    Sessions of one installation are one site for browsers, so SameSite alone would let each act in the others. `headers` have
    names in lower case.
    """
    sent = headers.get("origin")
    if sent is not None and sent != origin:
        return False
    site = headers.get("sec-fetch-site")
    if site is None:
        return sent is not None or method in SAFE_METHODS
    return site in ("same-origin", "none")


def passed_on(headers: Mapping[str, str], host: str, content_type: str) -> Headers:
    """The headers for the program: those of the browser, without its credentials and what belongs to a connection.
    `headers` have names in lower case.
    """
    named = {name.strip().lower() for name in headers.get("connection", "").split(",")}
    kept = [
        (name, value)
        for name, value in sorted(headers.items())
        if name not in _KEPT_BACK and name not in named and not name.startswith(_KEPT_BACK_PREFIXES)
        if _PLAIN.fullmatch(value)
    ]
    typed = [("content-type", content_type)] if content_type and _PLAIN.fullmatch(content_type) else []
    return [("host", host), ("accept-encoding", "identity"), *kept, *typed]


def returned(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The headers for the browser: those on a short list, each once."""
    found: dict[str, str] = {}
    for name, value in headers:
        known = _RETURNED.get(name.lower())
        if known is not None and known not in found and _PLAIN.fullmatch(value):
            found[known] = value
    return found


def is_encoded(headers: Iterable[tuple[str, str]]) -> bool:
    """Whether an answer is in an encoding that was not asked for."""
    return any(name.lower() == "content-encoding" and value.strip().lower() != "identity" for name, value in headers)
