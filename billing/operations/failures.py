"""Work on many rows, of which one that fails does not keep the others from being done."""

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from django.db import Error, connection

from foundation.turns import Turn

log = logging.getLogger(__name__)


class FirstFailure:
    """The first error of several independent steps. Each is logged; `raise_it` raises the first one at the end."""

    def __init__(self) -> None:
        self._error: Exception | None = None

    @contextmanager
    def kept(self, what: str) -> Iterator[None]:
        """Runs one step. An error after which the connection is of no use ends them all."""
        try:
            yield
        except Exception as error:
            if isinstance(error, Error) and not connection.is_usable():
                raise
            log.exception("%s", what)
            self._error = self._error or error

    def raise_it(self) -> None:
        """Raises the first error, if there was one."""
        if self._error is not None:
            raise self._error


def done_in_turn(turn: Turn, rows: Iterable[tuple[int, str]], work: Callable[[int], bool]) -> int:
    """The number of waiting rows, each with what to log if it fails, that `work` says are done: while the turn lasts. A row that
    fails keeps no other from being done; its error is raised at the end.
    """
    done, failure = 0, FirstFailure()
    for id_, what in rows:
        if turn.is_over:
            turn.has_more = True
            break
        turn.beat()
        with failure.kept(what):
            done += work(id_)
    failure.raise_it()
    return done
