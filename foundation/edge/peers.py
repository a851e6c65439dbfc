"""The client's address: the address of a peer, or the one that trusted proxies report."""

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Literal

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
ProxyHeader = Literal["x-forwarded-for", "forwarded"]
MOST_HOPS = 32
LONGEST_HOP = 64


@dataclass(frozen=True, slots=True)
class Trust:
    """The trusted proxies, and the header that they write; any client can set the other header."""

    proxies: Sequence[Network] = ()
    header: ProxyHeader = "x-forwarded-for"

    def covers(self, address: Address) -> bool:
        """Whether a trusted proxy has this address."""
        return any(address.version == network.version and address in network for network in self.proxies)


@dataclass(frozen=True, slots=True)
class Caller:
    """The client's address as text, and its scheme if a trusted proxy reports it (else empty)."""

    address: str
    scheme: str = ""


def address_of(text: str) -> Address | None:
    """The address in `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1` or `[2001:db8::1]:80`; None for any other text."""
    text = text.strip().strip('"')
    if not text or len(text) > LONGEST_HOP or "%" in text:
        return None
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def caller_of(peer: str, headers: Iterable[tuple[str, str]], trust: Trust) -> Caller:
    """The client behind `peer`: going backwards from it, the first hop that is not a trusted proxy.

    A hop that is not an address ends the search: hops behind it are not trusted. `headers` have upper-case names.
    """
    hop = address_of(peer)
    if hop is None or not trust.covers(hop):
        return Caller(str(hop) if hop else "")
    named = list(headers)
    hops, scheme = _forwarded(named) if trust.header == "forwarded" else _x_forwarded(named)
    for text in hops[: -MOST_HOPS - 1 : -1]:
        earlier = address_of(text)
        if earlier is None:
            break
        hop = earlier
        if not trust.covers(hop):
            break
    return Caller(str(hop), scheme)


def source_of(address: str) -> str:
    """The key that limits count by: the address, or for IPv6 its /64, from which one client can use any address."""
    parsed = address_of(address)
    if isinstance(parsed, IPv6Address):
        return str(ipaddress.ip_network((parsed, 64), strict=False))
    return str(parsed or "")


def _x_forwarded(headers: Sequence[tuple[str, str]]) -> tuple[list[str], str]:
    hops = [hop for name, value in headers if name == "X-FORWARDED-FOR" for hop in value.split(",")]
    schemes = [word for name, value in headers if name == "X-FORWARDED-PROTO" for word in value.split(",")]
    return hops, _scheme(schemes[-1]) if schemes else ""


def _forwarded(headers: Sequence[tuple[str, str]]) -> tuple[list[str], str]:
    """RFC 7239: `for=192.0.2.1;proto=https, for="[2001:db8::1]"`."""
    hops, scheme = [], ""
    for element in (part for name, value in headers if name == "FORWARDED" for part in value.split(",")):
        pairs = dict(_pair(piece) for piece in element.split(";"))
        hops.append(pairs.get("for", ""))
        scheme = _scheme(pairs.get("proto", ""))
    return hops, scheme


def _pair(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name.strip().lower(), value.strip()


def _scheme(word: str) -> str:
    word = word.strip().strip('"').lower()
    return word if word in {"http", "https"} else ""
