"""How an actor waits for the answer of its session: it notices when there is none yet, so that others can run."""

import select
from collections.abc import Callable, Generator
from typing import Any, TypeVar

import psycopg
from psycopg.waiting import Ready

Result = TypeVar("Result")
PATIENCE_MS = 5
"""A statement that takes longer may be waiting for a lock."""
READ, WRITE = 1, 2
EVENTS = {READ: select.POLLIN, WRITE: select.POLLOUT, READ | WRITE: select.POLLIN | select.POLLOUT}


class Patience:
    """Replaces `psycopg.Connection.wait` of one session. `bide` is called every five milliseconds without an answer."""

    def __init__(self, socket: int, bide: Callable[[], None]) -> None:
        self._socket = socket
        self._bide = bide
        self._poll = select.poll()
        self._poll.register(socket, select.POLLIN)
        self._events = select.POLLIN

    def await_(self, raw: psycopg.Connection[Any], steps: Generator[Any, Any, Result], *_: Any, **given: Any) -> Result:
        """The result of psycopg's steps, each of which waits for the socket."""
        if given.get("timeout") is not None:
            return type(raw).wait(raw, steps, **given)
        try:
            wanted = next(steps)
            while True:
                wanted = steps.send(self._ready(EVENTS[wanted]))
        except StopIteration as done:
            result: Result = done.value
            return result

    def _ready(self, events: int) -> int:
        if events != self._events:
            self._poll.modify(self._socket, events)
            self._events = events
        while not (found := self._poll.poll(PATIENCE_MS)):
            self._bide()
        event = found[0][1]
        # A closed connection is ready to be read: libpq finds out.
        is_readable = event & ~select.POLLOUT
        return (Ready.R if is_readable else 0) | (Ready.W if event & select.POLLOUT else 0)
