"""Visits clusters, several at a time: one that hangs does not delay the others.

Each visit has its own thread. A limited number of visits run side by side; one that hangs stops counting among them,
and its cluster is marked as slow. Until a visit is answered quickly, further visits there use a small separate
limit and hold no database connection while they wait. No round waits for them; one that is answered announces the next
round. A round with nothing else to begin does not wait for other long visits either, because it would notice new work
later than a new round does; they announce the next round when they end.

One visitor at a time is at a cluster, so that concurrent workers share the work. This right only saves work; claims
decide what a visitor may write. So a right whose holder has no valid claim is ignored.
"""

import logging
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from uuid import UUID

from django.db import connection, transaction

from federation.queries.due_clusters import DueCluster
from foundation import advisory
from foundation.clock import monotonic
from foundation.host import host
from foundation.outbox import announce
from foundation.threads import Threads, kept_threads, put_session_aside, wait_for_first
from foundation.turns import Turn

logger = logging.getLogger(__name__)
AT_ONCE = 8
SLOW_AT_ONCE = 4
SLOW_TOGETHER = 2
MOST_THREADS = 32
"""`AT_ONCE`, `SLOW_AT_ONCE`, and visits that hang."""
SLOW_AFTER_SECONDS = 3.0
SLOW_FOR_SECONDS = 600.0
"""A slow cluster is visited more often than this: its mark ends with a quick answer."""
LOOK_AROUND_SECONDS = 0.1
LONG_SECONDS = 0.25
"""A round without other work leaves visits that take longer to their threads."""
PAUSE_SECONDS = 1.0
"""The delay before another visit to a cluster whose right another visitor has, or that does not answer."""
MARK = {
    "dispatch": """
        INSERT INTO federation_clusterupkeep (cluster_id, slow_dispatch_until)
        VALUES (%s, clock_timestamp() + make_interval(secs => %s))
        ON CONFLICT (cluster_id) DO UPDATE SET slow_dispatch_until = excluded.slow_dispatch_until
    """,
    "compare": """
        INSERT INTO federation_clusterupkeep (cluster_id, slow_compare_until)
        VALUES (%s, clock_timestamp() + make_interval(secs => %s))
        ON CONFLICT (cluster_id) DO UPDATE SET slow_compare_until = excluded.slow_compare_until
    """,
}
"""By kind of visit."""


@dataclass(frozen=True, slots=True)
class Brought:
    """The result of one visit: the amount of work done, and whether the cluster answered."""

    count: int
    is_answering: bool

    @property
    def has_answered(self) -> bool:
        """Whether calls were answered. A visit that found nothing to do made none."""
        return self.count > 0 and self.is_answering


NOTHING = Brought(0, is_answering=False)


@dataclass(frozen=True, slots=True)
class Rounds:
    """A kind of visit. A visit to a slow cluster must not keep its database connection open during calls.
    `routine`: the name of the routine that makes these rounds; `is_claimed`: whether the cluster has a valid claim.
    """

    kind: str
    routine: str
    due: Callable[[], Sequence[DueCluster]]
    visit: Callable[[DueCluster], Brought]
    is_claimed: Callable[[UUID], bool]

    def go(self, turn: Turn) -> int:
        """The sum of the visits' counts. Visits begin while the turn lasts and visits are pending.

        Visits to slow clusters are left to their threads, unless the turn is endless.
        """
        return _Round(self, turn, kept_threads(self.kind, MOST_THREADS)).go()

    def visit_and_mark(self, under_way: "_UnderWay") -> Brought:
        """The result of the visit; nothing if another visitor is there, or if the visit failed."""
        cluster = under_way.cluster
        try:
            under_way.began = monotonic()
            brought = self._visit_alone(cluster)
            if monotonic() - under_way.began > SLOW_AFTER_SECONDS:
                self.mark(cluster.id, SLOW_FOR_SECONDS)
            elif cluster.is_slow and brought.has_answered:
                self._welcome_back(cluster.id)
        except Exception:
            # One cluster's failure must not affect the others.
            logger.exception("cluster %s: %s failed", cluster.id, self.kind)
            return NOTHING
        finally:
            if cluster.is_slow:
                put_session_aside()
        return brought

    def _visit_alone(self, cluster: DueCluster) -> Brought:
        if cluster.is_slow:  # a session's lock would need a connection all the time
            return NOTHING if self.is_claimed(cluster.id) else self.visit(cluster)
        with advisory.held(advisory.Kind.VISITS, f"{self.kind}:{cluster.id}") as is_ours:
            return self.visit(cluster) if is_ours or not self.is_claimed(cluster.id) else NOTHING

    def _welcome_back(self, cluster_id: UUID) -> None:
        """Ends the mark, and announces a round: the one that began this visit did not wait for it."""
        with transaction.atomic():
            self.mark(cluster_id, 0)
            announce(self.routine)

    def mark(self, cluster_id: UUID, seconds: float) -> None:
        """Marks the cluster as slow for `seconds`; 0 means not any more."""
        with connection.cursor() as cursor:
            cursor.execute(MARK[self.kind], [cluster_id, seconds])


@dataclass(slots=True)
class _UnderWay:
    kind: str
    cluster: DueCluster
    began: float | None = None
    """None while it waits for a thread."""
    is_marked: bool = False

    @property
    def hangs(self) -> bool:
        return self.began is not None and monotonic() - self.began > SLOW_AFTER_SECONDS

    @property
    def is_long(self) -> bool:
        return self.cluster.is_slow or (self.began is not None and monotonic() - self.began > LONG_SECONDS)

    @property
    def may_be_left(self) -> bool:
        return self.cluster.is_slow or self.hangs


_left_behind: dict[Future[Brought], _UnderWay] = {}
"""Visits in this process that outlast their round."""
os.register_at_fork(after_in_child=_left_behind.clear)


@dataclass(slots=True)
class _Round:
    rounds: Rounds
    turn: Turn
    threads: Threads
    _visits: dict[Future[Brought], _UnderWay] = field(default_factory=dict)
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
            if self._is_done(waiting):
                self._leave_behind()
                return self._total
            wait_for_first([*self._visits, *list(_left_behind)], LOOK_AROUND_SECONDS)
            self._collect()

    def _is_done(self, waiting: Sequence[DueCluster]) -> bool:
        if self.turn.is_endless:
            return not self._visits
        if self.turn.is_over:
            return all(one.may_be_left for one in self._visits.values())
        return not waiting and all(one.is_long for one in self._visits.values())

    def _present(self) -> list[_UnderWay]:
        """All visits of this kind in this process."""
        return [*self._visits.values(), *(one for one in list(_left_behind.values()) if one.kind == self.rounds.kind)]

    def _all_due(self) -> list[DueCluster]:
        at = monotonic()
        present = {one.cluster.id for one in self._present()}
        due = [one for one in self.rounds.due() if one.id not in present and self._not_before.get(one.id, 0.0) <= at]
        # At random, then the least recently visited: no cluster waits for others that always have more work.
        host().chance().shuffle(due)
        return sorted(due, key=lambda one: self._visited_at.get(one.id, 0.0))

    def _begin(self) -> list[DueCluster]:
        """Begins the visits that the limits allow; returns the answering clusters for which there is no room."""
        left = {False: AT_ONCE, True: SLOW_AT_ONCE}
        present = self._present()
        for one in present:
            if not one.hangs:
                left[one.cluster.is_slow] -= 1
        # Few at a time: visits that begin together also end together, and would then keep other visits waiting.
        left[True] = min(left[True], MOST_THREADS - AT_ONCE - len(present), SLOW_TOGETHER)
        waiting = []
        for cluster in self._all_due():
            if left[cluster.is_slow] > 0:
                left[cluster.is_slow] -= 1
                under_way = _UnderWay(self.rounds.kind, cluster)
                self._visited_at[cluster.id] = monotonic()
                self._visits[self.threads.submit(self.rounds.visit_and_mark, under_way)] = under_way
            elif not cluster.is_slow:
                waiting.append(cluster)
        return waiting

    def _collect(self) -> None:
        for future in [future for future in self._visits if future.done()]:
            one = self._visits.pop(future)
            if future.cancelled():
                continue
            brought = future.result()
            if not brought.is_answering:
                self._not_before[one.cluster.id] = monotonic() + PAUSE_SECONDS
            self._total += brought.count
        for one in self._present():
            if one.hangs and not one.cluster.is_slow and not one.is_marked:
                one.is_marked = True
                self.rounds.mark(one.cluster.id, SLOW_FOR_SECONDS)

    def _withdraw_those_that_wait(self) -> None:
        for future in self._visits:
            future.cancel()

    def _leave_behind(self) -> None:
        self._collect()
        for future, one in self._visits.items():
            _left_behind[future] = one
            future.add_done_callback(self._after_one_left_behind)

    def _after_one_left_behind(self, done: Future[Brought]) -> None:
        """Its cluster may have more work; a slow cluster that answers announces a round itself."""
        one = _left_behind.pop(done, None)
        if one is not None and not one.cluster.is_slow and not done.cancelled() and done.result().has_answered:
            with transaction.atomic():
                announce(self.rounds.routine)
