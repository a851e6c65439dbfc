"""PostgreSQL and Valkey from wheels, as children that end with their parent. For trials, the demo and tests (ADR 2)."""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from .postgresql import copy_data as copy_data
from .postgresql import owner_url as owner_url
from .postgresql import postgres as postgres
from .postgresql import runtime_url as runtime_url
from .running import Service as Service
from .running import Unavailable as Unavailable
from .running import free_port as free_port
from .running import free_ports as free_ports
from .running import is_free as is_free
from .running import kept_secret as kept_secret
from .running import make_home as make_home
from .running import spawn as spawn
from .running import stop as stop
from .running import tail as tail
from .running import write_private as write_private
from .valkey_server import valkey as valkey


def services(home: Path, *, durable: bool = True, sockets: Path | None = None) -> dict[str, Service]:
    """The servers without a configured variable, by that variable; the others as for `postgres`."""
    wanted: dict[str, Callable[[], Service]] = {
        "DATABASE_URL": lambda: postgres(home, durable=durable, sockets=sockets),
        "REDIS_URL": lambda: valkey(home),
    }
    return {name: make() for name, make in wanted.items() if not is_configured(name)}


def is_configured(name: str) -> bool:
    """Whether the environment gives this setting, as a value or as a file."""
    return bool(os.environ.get(name) or os.environ.get(f"{name}_FILE"))


@contextmanager
def servers(home: Path, *, durable: bool = True, sockets: Path | None = None) -> Iterator[dict[str, str]]:
    """DATABASE_URL and REDIS_URL: those already configured, or embedded servers for as long as the context lasts."""
    found = {name: os.environ[name] for name in ("DATABASE_URL", "REDIS_URL") if os.environ.get(name)}
    started: list[tuple[Service, subprocess.Popen[bytes]]] = []
    try:
        for name, service in services(home, durable=durable, sockets=sockets).items():
            started.append((service, service.start()))
            found[name] = service.url
        yield found
    finally:
        for service, process in reversed(started):
            stop(process, first=service.stop_signal)
