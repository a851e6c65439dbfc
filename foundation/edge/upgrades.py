"""Connections that leave the front: after a request with `Upgrade`, another part of the process speaks another protocol there."""

import socket
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

UPGRADE = "switchyard.upgrade"
"""The key in a request's environment. Servers other than the edge do not set it."""
Taker = Callable[[socket.socket, bytes], None]
"""Gets the connection, which does not block, and what was received behind the request. The taker does not block either."""


@dataclass(slots=True)
class Upgrade:
    """Who takes the request's connection, if any does. Then the response is not sent, and the front forgets the connection."""

    taker: Taker | None = None


class Holder(Protocol):
    """What has such connections in this process."""

    def stop(self) -> None:
        """Begins to end them. Returns immediately."""

    def wait(self, seconds: float) -> None:
        """Waits until they have ended, or so long."""


_holders: weakref.WeakSet[Holder] = weakref.WeakSet()


def hold(holder: Holder) -> None:
    """Has the holder's connections ended before the process ends."""
    _holders.add(holder)


def stop_all() -> None:
    """The process stops: its listeners are closed, and who reconnects reaches another."""
    for holder in _holders:
        holder.stop()


def wait_for_all(seconds: float) -> None:
    """Waits for the ends that `stop_all` began, for at most so long each."""
    for holder in _holders:
        holder.wait(seconds)
