"""Records histories: each operation with its call, its return and its answer."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from foundation.clock import monotonic

NANOSECONDS = 1_000_000_000


@dataclass(slots=True)
class Operation:
    """One operation of a client; `answer` is written by the caller and stays None if there was none."""

    kind: str
    object: str
    client: int
    op: str
    args: Mapping[str, Any]
    called: int
    returned: int | None = None
    answer: dict[str, Any] | None = None

    def as_json(self) -> str:
        """The line of the history; an operation without an answer has no return either."""
        line = {name: getattr(self, name) for name in ("kind", "object", "client", "op", "args", "called")}
        if self.answer is not None:
            line |= {"returned": self.returned, "answer": self.answer}
        return json.dumps(line)


@dataclass(slots=True)
class History:
    """Operations of any number of clients. `clock` gives seconds and never goes back."""

    moves: Mapping[str, frozenset[str]]
    clock: Callable[[], float] = monotonic
    operations: list[Operation] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def asks(self, kind: str, of: str, client: int, op: str, **args: Any) -> Iterator[Operation]:
        """Records the operation that the block performs; the block sets its `answer`, or leaves it unknown."""
        operation = Operation(kind, of, client, op, args, self._now())
        with self._lock:
            self.operations.append(operation)
        yield operation
        operation.returned = self._now()

    def write(self, path: Path) -> Path:
        """Writes the history as JSON lines."""
        moves = json.dumps({"moves": {state: sorted(after) for state, after in self.moves.items()}})
        path.write_text("\n".join([moves, *(one.as_json() for one in self.operations)]) + "\n", encoding="utf-8")
        return path

    def _now(self) -> int:
        return int(self.clock() * NANOSECONDS)
