"""Visits clusters, several at a time: one that hangs does not delay the others.

Each visit has its own thread and an exclusive right to its cluster, so that concurrent workers share the work. A
limited number of visits run side by side. A slow visit stops counting among them, and its cluster is remembered for a
while: further visits to it use a small separate limit. The right only saves work; claims decide what a visitor may
write. So a right whose holder has no valid claim is ignored.
"""

import logging
import random
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from uuid import UUID

from django.db import connection

from federation.queries.claimed_attempts import DueCluster
from foundation import advisory
from foundation.clock import monotonic
from foundation.threads import DatabaseThreads, kept_threads
from foundation.turns import Turn

logger = logging.getLogger(__name__)
AT_ONCE = 8
SLOW_AT_ONCE = 4
MOST_THREADS = 32
"""Visits that hang at the same time, plus `AT_ONCE`."""
SLOW_AFTER_SECONDS = 3.0
SLOW_FOR_SECONDS = 60.0
LOOK_AROUND_SECONDS = 0.1
PAUSE_SECONDS = 1.0
"""The delay before another visit to a cluster whose right another visitor has, or that does not answer."""


@dataclass(frozen=True, slots=True)
class Brought:
    """The result of one visit: the amount of work done, and whether the cluster answered."""

    count: int
    is_answering: bool


@dataclass(frozen=True, slots=True)
class Rounds:
    """A kind of visit. `is_claimed`: whether the cluster has a valid claim."""

    kind: str
    due: Callable[[], Sequence[DueCluster]]
    visit: Callable[[UUID], Brought]
    is_claimed: Callable[[UUID], bool]

    def go(self, turn: Turn) -> int:
        """The sum of the visits' counts. Visits begin while the turn lasts and something is due.

        At the end, visits that hang are left to their threads, unless the turn is endless.
        """
        return _Round(self, turn, kept_threads(self.kind, MOST_THREADS)).go()

    def visit_with_right(self, under_way: "_UnderWay") -> Brought | None:
        """The result of the visit; None if another visitor has the right."""
        under_way.began = monotonic()
        try:
            with advisory.held(advisory.Kind.VISITS, f"{self.kind}:{under_way.cluster_id}") as is_ours:
                if not is_ours and self.is_claimed(under_way.cluster_id):
                    return None
                return self.visit(under_way.cluster_id)
        finally:
            under_way.took = monotonic() - under_way.began


@dataclass(slots=True)
class _UnderWay:
    cluster_id: UUID
    was_slow: bool
    began: float | None = None
    """None while it waits for a thread."""
    took: float | None = None
    is_marked: bool = False

    @property
    def is_slow(self) -> bool:
        return self.began is not None and (self.took or monotonic() - self.began) > SLOW_AFTER_SECONDS


@dataclass(slots=True)
class _Round:
    rounds: Rounds
    turn: Turn
    threads: DatabaseThreads
    _visits: dict[Future[Brought | None], _UnderWay] = field(default_factory=dict)
    _not_before: dict[UUID, float] = field(default_factory=dict)
    _visited_at: dict[UUID, float] = field(default_factory=dict)
    _total: int = 0

    def go(self) -> int:
        while True:
            self.turn.beat()
            waiting = self._begin() if not self.turn.is_over else self._all_due()
            if self.turn.is_over:
                self.turn.has_more = bool(waiting)
                self._withdraw_those_that_wait()
            elif waiting:
                self.turn.ask_for_help()
            if all(one.is_slow and not self.turn.is_endless for one in self._visits.values()):
                return self._total
            wait(self._visits, timeout=LOOK_AROUND_SECONDS, return_when=FIRST_COMPLETED)
            self._collect()

    def _all_due(self) -> list[DueCluster]:
        at = monotonic()
        underway = {one.cluster_id for one in self._visits.values()}
        due = [one for one in self.rounds.due() if one.id not in underway and self._not_before.get(one.id, 0.0) <= at]
        # At random, then the least recently visited: no cluster waits for others that always have more work.
        random.shuffle(due)
        return sorted(due, key=lambda one: self._visited_at.get(one.id, 0.0))

    def _begin(self) -> list[DueCluster]:
        """Begins the visits that the limits allow; returns the answering clusters for which there is no room."""
        left = {False: AT_ONCE, True: SLOW_AT_ONCE}
        for one in self._visits.values():
            if one.was_slow or not one.is_slow:
                left[one.was_slow] -= 1
        waiting = []
        for cluster in self._all_due():
            if left[cluster.is_slow] > 0:
                left[cluster.is_slow] -= 1
                under_way = _UnderWay(cluster.id, cluster.is_slow)
                self._visited_at[cluster.id] = monotonic()
                self._visits[self.threads.submit(self.rounds.visit_with_right, under_way)] = under_way
            elif not cluster.is_slow:
                waiting.append(cluster)
        return waiting

    def _collect(self) -> None:
        for future in [future for future in self._visits if future.done()]:
            one = self._visits.pop(future)
            if future.cancelled():
                continue
            if error := future.exception():
                # One cluster's failure must not affect the others.
                logger.error("cluster %s: %s failed", one.cluster_id, self.rounds.kind, exc_info=error)
            brought = None if error else future.result()
            if brought is None or not brought.is_answering:
                self._not_before[one.cluster_id] = monotonic() + PAUSE_SECONDS
            if one.is_slow:
                self._mark(one)
            elif one.was_slow and brought is not None and brought.is_answering:
                _remember(self.rounds.kind, one.cluster_id, 0)
            self._total += brought.count if brought else 0
        for one in self._visits.values():
            if one.is_slow:
                self._mark(one)

    def _mark(self, one: _UnderWay) -> None:
        if not one.is_marked:
            one.is_marked = True
            _remember(self.rounds.kind, one.cluster_id, SLOW_FOR_SECONDS)

    def _withdraw_those_that_wait(self) -> None:
        for future in self._visits:
            future.cancel()


def _remember(kind: str, cluster_id: UUID, seconds: float) -> None:
    """Marks the cluster as slow for `seconds`; 0 means not any more."""
    column = f"slow_{kind}_until"
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO federation_clusterupkeep AS upkeep (cluster_id, {column})"  # noqa: S608 - our own column
            " VALUES (%s, clock_timestamp() + make_interval(secs => %s))"
            f" ON CONFLICT (cluster_id) DO UPDATE SET {column} = excluded.{column}",
            [cluster_id, seconds],
        )
