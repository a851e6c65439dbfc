"""Connections to hooks: to the one address that the egress guard accepted, with the TLS name of the server."""

import ssl
from functools import lru_cache
from ipaddress import ip_address

from clusters.engine.hook_servers import HookServer

from .port import DriverError
from .resolve import checked_address


def hook_address(hook: HookServer) -> str:
    """The address to connect to, resolved and checked now. Raises DriverError."""
    address = checked_address(hook.server)
    if hook.is_plain and not ip_address(address).is_loopback:
        raise DriverError("without TLS, only a hook on this host is allowed")
    return address


@lru_cache(maxsize=4)
def hook_tls(ca_pem: str) -> ssl.SSLContext:
    """The TLS context for these authorities (empty: the system's), made once because reading the system's takes longer than a
    whole question.
    """
    context = ssl.create_default_context(cadata=ca_pem or None)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def host_header(hook: HookServer) -> str:
    """What the header `Host` says."""
    host = f"[{hook.server.host}]" if ":" in hook.server.host else hook.server.host
    return f"{host}:{hook.server.port}"
