"""How many requests to sessions a process carries at a time: a slow program must not take the threads of the gateway's own pages."""

import threading
from collections import Counter
from uuid import UUID

from foundation.clock import monotonic

WAITING_SECONDS = 3.0


class Places:
    """A bounded number of places, of which one session, and one user, has at most three quarters. A few requests may wait for one; of
    one user at most half of these.
    """

    def __init__(self, threads: int) -> None:
        self._most = max(1, threads // 2)
        self._of_one = max(1, self._most * 3 // 4)
        self._most_waiting = threads // 4
        self._waiting_of_one = max(1, self._most_waiting // 2)
        self._changed = threading.Condition()
        self._taken = 0
        self._by: Counter[UUID] = Counter()
        """The places of each session, and of each user."""
        self._waiting: Counter[UUID | None] = Counter()

    def take(self, attempt_id: UUID, user_id: UUID | None) -> bool:
        """Whether the request has a place now; then the caller gives it back."""
        with self._changed:
            if self._is_free(attempt_id, user_id):
                self._count(attempt_id, user_id, 1)
                return True
            if self._waiting.total() >= self._most_waiting or self._waiting[user_id] >= self._waiting_of_one:
                return False
            self._waiting[user_id] += 1
            try:
                until = monotonic() + WAITING_SECONDS
                while not self._is_free(attempt_id, user_id):
                    left = until - monotonic()
                    if left <= 0 or not self._changed.wait(left):
                        return False
                self._count(attempt_id, user_id, 1)
                return True
            finally:
                self._waiting[user_id] -= 1
                self._waiting += Counter()  # without zeros

    def give_back(self, attempt_id: UUID, user_id: UUID | None) -> None:
        """Frees the place."""
        with self._changed:
            self._count(attempt_id, user_id, -1)
            self._changed.notify_all()

    def _is_free(self, attempt_id: UUID, user_id: UUID | None) -> bool:
        of_both = max(self._by[attempt_id], 0 if user_id is None else self._by[user_id])
        return self._taken < self._most and of_both < self._of_one

    def _count(self, attempt_id: UUID, user_id: UUID | None, more: int) -> None:
        self._taken += more
        for whose in (attempt_id, user_id):
            if whose is not None:
                self._by[whose] += more
        self._by += Counter()  # without zeros
