"""Which servers the gateway may connect to: parses a server's URL and checks the addresses that its name resolves to.

Public addresses are allowed. All others (loopback, link-local, private, shared, reserved, multicast, the metadata
services of clouds) are allowed only if an administrator listed their block. The check uses the addresses that a name
resolves to, and the caller connects to the checked address. So a name that later resolves differently gains nothing.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from ipaddress import (
    AddressValueError,
    IPv4Address,
    IPv6Address,
    ip_address,
    ip_network,
)

from foundation.problems import Invalid

from .addresses import METADATA, NOT_PUBLIC, TRANSLATED, Address, Network

MAX_URL_LENGTH = 500
MAX_PORT = 65_535
HTTPS_PORT = 443
_URL = re.compile(r"https://(?P<host>\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+)(?P<port>:[0-9]*)?(?P<path>/[A-Za-z0-9._~/-]*)?")
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_LOOKS_NUMERIC = re.compile(r"(0x[0-9a-f]*|[0-9]+)")
MAX_NAME_LENGTH = 253


@dataclass(frozen=True, slots=True)
class Server:
    """An API server's URL in its parts. `host` is a lower-case DNS name or an IP literal without brackets."""

    host: str
    port: int
    path: str = ""

    @property
    def url(self) -> str:
        """The URL in its one normal form: no trailing slash, no default port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"https://{host}{'' if self.port == HTTPS_PORT else f':{self.port}'}{self.path}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The one address to connect to, or empty and the reason, as a message for the user who gave the server."""

    address: str
    why_not: str = ""


def read_server(text: str, field: str = "server") -> Server:
    """The server that `text` names; Invalid for anything but `https://host[:port][/path]` in its plainest spelling.

    Spellings that only some resolvers take for an address (`0x7f.1`, `017700000001`, `127.1`) are refused, as are
    user names, queries, fragments, percent signs and odd ports.
    """
    if len(text) > MAX_URL_LENGTH:
        raise Invalid.field(field, "too_long", f"a server's URL has at most {MAX_URL_LENGTH} characters")
    if not text.startswith("https://"):
        raise Invalid.field(field, "not_https", "the server must be given as https://host[:port]")
    match = _URL.fullmatch(text)
    if match is None:
        raise Invalid.field(
            field, "bad_url", "give https://host[:port][/path] without user name, query, fragment or escapes"
        )
    return Server(
        host=_host(match["host"], field), port=_port(match["port"], field), path=_path(match["path"] or "", field)
    )


def _host(text: str, field: str) -> str:
    name = text.lower()
    if name.startswith("["):
        try:
            return str(IPv6Address(name[1:-1]))
        except AddressValueError:
            raise Invalid.field(field, "bad_host", "this is not an IPv6 address") from None
    labels = name.split(".")
    if _LOOKS_NUMERIC.fullmatch(labels[-1]):
        try:
            return str(IPv4Address(name))
        except AddressValueError:
            raise Invalid.field(field, "bad_host", "write an IPv4 address as four decimal numbers") from None
    if len(name) > MAX_NAME_LENGTH or not all(_LABEL.fullmatch(label) for label in labels):
        raise Invalid.field(field, "bad_host", "this is not a DNS name")
    return name


def _port(text: str | None, field: str) -> int:
    if text is None:
        return HTTPS_PORT
    digits = text[1:]
    if not re.fullmatch(r"[1-9][0-9]{0,4}", digits) or int(digits) > MAX_PORT:
        raise Invalid.field(field, "bad_port", f"a port is a number from 1 to {MAX_PORT} without leading zeros")
    return int(digits)


def _path(text: str, field: str) -> str:
    segments = text.rstrip("/").split("/")[1:]
    if any(segment in {"", ".", ".."} for segment in segments):
        raise Invalid.field(field, "bad_url", "the path cannot have empty, `.` or `..` segments")
    return "".join(f"/{segment}" for segment in segments)


def judge(
    addresses: Sequence[str], port: int, *, allowed: Sequence[str], own: Collection[tuple[str, int]] = ()
) -> Verdict:
    """The first of `addresses` that the gateway may connect to on `port`, or why none is.

    `allowed` are the administrator's CIDR blocks; `own` the gateway's own database and broker as (address, port):
    those ports are refused always, those addresses unless listed.
    """
    networks = [ip_network(block) for block in allowed]
    why_not = "the name has no address"
    for text in addresses:
        try:
            address = ip_address(text)
        except ValueError:
            why_not = "the resolver did not return an address"
            continue
        why_not = _why_not(_unwrapped(address), port, networks, own)
        if not why_not:
            return Verdict(str(address))
    return Verdict("", why_not)


def _unwrapped(address: Address) -> Address:
    """The IPv4 address inside an IPv6 one, if the network would deliver to it."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address in TRANSLATED:
            return IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def _why_not(address: Address, port: int, networks: Sequence[Network], own: Collection[tuple[str, int]]) -> str:
    """Empty if allowed. The text names kinds of address, never which name resolved to what: that would map
    our network.
    """
    listed = [network for network in networks if network.version == address.version and address in network]
    if (str(address), port) in own:
        return "this is one of the gateway's own servers"
    if address in METADATA:
        # A wide block such as 169.254.0.0/16 must not open the metadata service by accident.
        exact = any(network.num_addresses == 1 for network in listed)
        return "" if exact else "metadata services are not clusters"
    if listed:
        return ""
    if not _is_public(address):
        return "the address is not public; an administrator allows it by listing its network in SWITCHYARD_EGRESS_ALLOW"
    if any(str(address) == host for host, _ in own):
        return "this is one of the gateway's own servers"
    return ""


def _is_public(address: Address) -> bool:
    return not any(network.version == address.version and address in network for network in NOT_PUBLIC)
