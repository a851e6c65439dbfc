"""How many requests to sessions a process carries at a time: a slow program must not take the threads of the gateway's own pages."""

import threading
from collections import Counter
from uuid import UUID

from foundation.clock import monotonic

WAITING_SECONDS = 3.0


class Places:
    """A bounded number of places, of which one session has at most three quarters. A few requests may wait for one."""

    def __init__(self, threads: int) -> None:
        self._most = max(1, threads // 2)
        self._of_one = max(1, self._most * 3 // 4)
        self._most_waiting = threads // 4
        self._changed = threading.Condition()
        self._taken: Counter[UUID] = Counter()
        self._waiting = 0

    def take(self, attempt_id: UUID) -> bool:
        """Whether the request has a place now; then the caller gives it back."""
        with self._changed:
            if self._is_free(attempt_id):
                self._taken[attempt_id] += 1
                return True
            if self._waiting >= self._most_waiting:
                return False
            self._waiting += 1
            try:
                until = monotonic() + WAITING_SECONDS
                while not self._is_free(attempt_id):
                    left = until - monotonic()
                    if left <= 0 or not self._changed.wait(left):
                        return False
                self._taken[attempt_id] += 1
                return True
            finally:
                self._waiting -= 1

    def give_back(self, attempt_id: UUID) -> None:
        """Frees the place."""
        with self._changed:
            self._taken[attempt_id] -= 1
            if not self._taken[attempt_id]:
                del self._taken[attempt_id]
            self._changed.notify_all()

    def _is_free(self, attempt_id: UUID) -> bool:
        return self._taken.total() < self._most and self._taken[attempt_id] < self._of_one
