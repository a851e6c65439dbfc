"""Typed readers for the environment. A wrong value stops the boot and names the variable.

Every variable NAME may instead be given as NAME_FILE, the path of a file that holds the value (for secrets).
"""

import ipaddress
import os
import re
import ssl
from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured
from django.http.request import validate_host

from clusters.engine.object_stores import HOST_PATTERN
from clusters.engine.resources import MOST_NAMES, name_fault
from federation.engine.names import image_fault
from federation.engine.sessions import SessionOrigin, read_origin

Network = IPv4Network | IPv6Network
TRUE_WORDS = {"1", "true", "yes", "on"}
FALSE_WORDS = {"0", "false", "no", "off", ""}


def text(name: str, default: str | None = None) -> str:
    """The variable's value; without a default, absence stops the boot."""
    path = os.environ.get(f"{name}_FILE")
    if path:
        try:
            return Path(path).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise ImproperlyConfigured(f"{name}_FILE: cannot read {path}: {error.strerror}") from error
    value = os.environ.get(name, default)
    if value is None:
        raise ImproperlyConfigured(f"{name} is not set. Set {name} or {name}_FILE; .env.example lists every setting.")
    return value


def switch(name: str, default: bool) -> bool:  # noqa: FBT001 - it is the value, not a mode
    """A yes or no."""
    word = text(name, "1" if default else "0").strip().lower()
    if word in TRUE_WORDS:
        return True
    if word in FALSE_WORDS:
        return False
    raise ImproperlyConfigured(f"{name} must be one of 1, 0, true, false, yes, no, on, off; it is {word!r}")


def choice(name: str, default: str, allowed: Sequence[str]) -> str:
    """One of the allowed words."""
    word = text(name, default).strip()
    if word not in allowed:
        raise ImproperlyConfigured(f"{name} must be one of {', '.join(allowed)}; it is {word!r}")
    return word


def checked(name: str, default: str | None, check: Callable[[str], object]) -> str:
    """A text that `check` accepts, or the default; `check` raises ValueError with a message that does not repeat the
    text.
    """
    value = text(name, default).strip()
    if value != default:
        try:
            check(value)
        except ValueError as error:
            raise ImproperlyConfigured(f"{name}: {error}") from None
    return value


def check_authorities(pem: str) -> None:
    """ValueError unless the text contains certificates in PEM form."""
    try:
        ssl.create_default_context(cadata=pem)
    except (ssl.SSLError, TypeError, ValueError):  # TypeError: not ASCII
        raise ValueError("must contain certificates in PEM form") from None


def check_public_url(url: str) -> None:
    """ValueError unless it is an address of the gateway that may carry tokens: https, or http to this host."""
    parts = urlsplit(url)
    if (
        parts.scheme not in ("https", "http")
        or not parts.hostname
        or url != f"{parts.scheme}://{parts.netloc}{parts.path}"
    ):
        raise ValueError("must be written as https://host[:port][/path]")
    if "@" in parts.netloc or url.endswith("/") or not re.fullmatch(r"[!-~]+", url) or parts.port == 0:
        raise ValueError("must be written as https://host[:port][/path], without a user and a slash at the end")
    if parts.scheme == "http" and parts.hostname not in ("127.0.0.1", "localhost", "::1"):
        raise ValueError("must begin with https://, except on this host, because jobs send tokens there")


def check_contact(address: str) -> None:
    """ValueError unless the text is one address to which users can report a vulnerability."""
    if not re.fullmatch(r"(mailto:[^\s@]+@[^\s@]+|https://[^\s/]+(/\S*)?|tel:\+[0-9-]+)", address):
        raise ValueError("must be one mailto:, https:// or tel: address")


def check_image(image: str) -> None:
    """ValueError unless the text is an image as jobs name them."""
    fault = image_fault(image, require_digest=False)
    if fault is not None:
        raise ValueError(fault[1])


def check_pinned_image(image: str) -> None:
    """ValueError unless the text is an image as jobs name them, with a digest."""
    fault = image_fault(image, require_digest=True)
    if fault is not None:
        raise ValueError(fault[1])


def session_origin(name: str, own_hosts: Sequence[str]) -> SessionOrigin | None:
    """The origins of sessions, none of which may be a host of the gateway itself: its cookies are sent there."""
    value = text(name, "").strip()
    if not value:
        return None
    try:
        origin = read_origin(value)
    except ValueError as error:
        raise ImproperlyConfigured(f"{name}: {error}") from None
    if validate_host(f"x.{origin.base}", own_hosts) or any(origin.covers(host) for host in own_hosts):
        raise ImproperlyConfigured(f"{name}: must not have a host of SWITCHYARD_ALLOWED_HOSTS")
    return origin


def number(name: str, default: int, *, least: int = 0, most: int = 2**31) -> int:
    """A whole number between `least` and `most`."""
    raw = text(name, str(default)).strip()
    try:
        value = int(raw)
    except ValueError:
        raise ImproperlyConfigured(f"{name} must be a whole number; it is {raw!r}") from None
    if not least <= value <= most:
        raise ImproperlyConfigured(f"{name} must be between {least} and {most}; it is {value}")
    return value


def decimal(name: str, default: str, *, most: int) -> Decimal:
    """A decimal number from 0 to `most`."""
    raw = text(name, default).strip()
    try:
        value = Decimal(raw)
    except InvalidOperation:
        value = Decimal("NaN")
    if not value.is_finite():
        raise ImproperlyConfigured(f"{name} must be a decimal number; it is {raw!r}")
    if not 0 <= value <= most:
        raise ImproperlyConfigured(f"{name} must be between 0 and {most}; it is {value}")
    return value


def words(name: str, default: str = "") -> list[str]:
    """A comma-separated list."""
    return [word.strip() for word in text(name, default).split(",") if word.strip()]


def resources(name: str, default: str) -> tuple[str, ...]:
    """A comma-separated list of resources besides CPU, memory and GPUs that jobs may request, sorted."""
    found = tuple(sorted(set(words(name, default))))
    for word in found:
        if fault := name_fault(word):
            raise ImproperlyConfigured(f"{name}: {word!r} {fault}")
    if len(found) > MOST_NAMES:
        raise ImproperlyConfigured(f"{name} must have at most {MOST_NAMES} names")
    return found


def hosts(name: str, default: str) -> list[str]:
    """A comma-separated list of DNS names, of `*.` and a domain for all names below it, or `*` for any."""
    found = [word.lower() for word in words(name, default)]
    for word in found:
        if re.fullmatch(HOST_PATTERN, word) is None:
            raise ImproperlyConfigured(f"{name}: {word!r} must be a host name, *.domain or *")
    return found


def networks(name: str, default: str = "", *, never: Sequence[Network] = ()) -> list[str]:
    """A comma-separated list of CIDR blocks, none of which lies inside one of `never`."""
    blocks = words(name, default)
    for block in blocks:
        try:
            network = ipaddress.ip_network(block)
        except ValueError as error:
            raise ImproperlyConfigured(f"{name}: {error}") from error
        for closed in never:
            if network.version == closed.version and network.subnet_of(closed):  # type: ignore[arg-type]
                raise ImproperlyConfigured(f"{name}: {block} is inside {closed}, which can never be allowed")
    return blocks
