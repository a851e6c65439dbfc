"""Servers that the gateway calls by a URL that a user or an administrator gave: policy hooks, and hooks for alerts."""

import re
from dataclasses import dataclass

from foundation.problems import Invalid

from .egress import HTTPS_PORT, Server, read_server

_PLAIN = re.compile(r"http://(?P<rest>(\[[^\]/]*\]|[^:/]*):[0-9]+(/.*)?)")


@dataclass(frozen=True, slots=True)
class HookServer:
    """The hook's server. `is_plain`: without TLS, which is allowed only on the same host."""

    server: Server
    is_plain: bool = False

    @property
    def shown(self) -> str:
        """Scheme, host and port, without the path: of a chat, the path is a secret."""
        return self.origin_at(self.server.host).removesuffix("" if self.is_plain else f":{HTTPS_PORT}")

    def origin_at(self, host: str) -> str:
        """Scheme, this name or address, and port."""
        shown = f"[{host}]" if ":" in host else host
        return f"{'http' if self.is_plain else 'https'}://{shown}:{self.server.port}"


def read_hook_url(text: str) -> HookServer:
    """The server in `https://host[:port][/path]`, or in `http://host:port[/path]`. ValueError with the reason."""
    plain = _PLAIN.fullmatch(text)
    try:
        return HookServer(read_server(f"https://{plain['rest']}" if plain else text), is_plain=plain is not None)
    except Invalid as refused:
        raise ValueError(f"{refused.detail} (or http://host:port of a hook on this host)") from None
