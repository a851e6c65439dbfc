"""The sessions of all simulated processes in the database, which serve one actor after the other."""

from heapq import heappop, heappush
from typing import Any

from psycopg.pq import TransactionStatus

CLEAN = "SELECT pg_advisory_unlock_all()"
FORGET = f"DISCARD PLANS; {CLEAN}"
"""A plan follows from the state of the tables when it was made: in each run of a seed it must be made at the same step. And a run
that was ended as hanging may have left locks.
"""


class Sessions:
    """All sessions of simulated processes, and those that serve no actor now. The first of these serves next: it has planned the most
    statements.
    """

    def __init__(self) -> None:
        self._all: list[Any] = []
        self._free: list[int] = []
        self._knowing: set[int] = set()
        """Which of them have plans of this run."""

    def begin_run(self) -> None:
        """No actor has a session. The same ones serve first again, and must forget their plans. One that a run has left in the middle
        of something ends.
        """
        for raw in self._all:
            if not raw.closed and raw.pgconn.transaction_status != TransactionStatus.IDLE:
                raw.close()
        self._all = [raw for raw in self._all if not raw.closed]
        self._free = [*range(len(self._all))]
        self._knowing.clear()

    def add(self, raw: Any) -> None:
        """A new one, which serves now."""
        self._all.append(raw)

    def take(self) -> Any:
        """One that is free; None if there is none."""
        while self._free:
            raw = self._all[heappop(self._free)]
            if not raw.closed:
                return raw
        return None

    def give_back(self, raw: Any) -> None:
        """It holds nothing."""
        heappush(self._free, self._all.index(raw))

    def forget_plans(self, raw: Any) -> None:
        """Once in a run, before its first statement."""
        if id(raw) not in self._knowing:
            self._knowing.add(id(raw))
            raw.execute(FORGET, prepare=False)
