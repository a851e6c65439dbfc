"""Packets that vanish: the kernel drops what arrives at a socket, so its peer sees neither data nor reset nor acknowledgement.

A proxy that merely stops reading still acknowledges, keepalives too, which no cut cable does. A socket filter that keeps
nothing of any packet does what the cable does, and needs no rights; once it is taken away, TCP sends again what is missing.
"""

import ctypes
import socket
import struct
from typing import Protocol

_ATTACH_FILTER, _DETACH_FILTER = 26, 27
_RETURN = 0x06


class Socket(Protocol):
    """A socket, or what asyncio shows of one."""

    def setsockopt(self, level: int, option: int, value: int | bytes, /) -> None: ...


def swallow(endpoint: Socket) -> None:
    """From now on nothing arrives there; at a listening socket, no connection is made."""
    keep_nothing = ctypes.create_string_buffer(struct.pack("HBBI", _RETURN, 0, 0, 0))
    program = struct.pack("HL", 1, ctypes.addressof(keep_nothing))
    try:
        endpoint.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, program)
    except PermissionError:
        raise PermissionError("packets can be dropped only as root: run the tests as root, as CI does") from None


def let_through(endpoint: Socket) -> None:
    """Packets arrive again."""
    endpoint.setsockopt(socket.SOL_SOCKET, _DETACH_FILTER, 0)
