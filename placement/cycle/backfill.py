"""Backfill: jobs that wait for room take nodes that are kept for others, if they end before those need them."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import NamedTuple

from placement.fleet.budgets import BudgetBook
from placement.fleet.fleet_state import FleetState
from placement.fleet.limits import LimitBook
from placement.ranking.runtimes import longest_seconds
from placement.values.advance import AdvanceReservation
from placement.values.model import JobRequest, Snapshot
from placement.values.reason_codes import ReasonCode
from quotas.engine.borrowing import obstacle

from .scopes import Choice, Scope, Scopes
from .verdicts import WAITING_FOR_ROOM

MAY_BORROW = WAITING_FOR_ROOM | {ReasonCode.RESERVED_FOR_GANG, ReasonCode.WAITING_FOR_SHARE}


class Borrowed(NamedTuple):
    """A candidate with room on nodes that are kept for others until later than `end`."""

    choice: Choice
    end: datetime


class Backfill:
    """Lends kept nodes to jobs in a cycle."""

    def __init__(
        self,
        snapshot: Snapshot,
        state: FleetState,
        book: LimitBook,
        budgets: BudgetBook,
        scopes: Scopes,
        counted: Sequence[AdvanceReservation] = (),
    ) -> None:
        self._snapshot = snapshot
        self._state = state
        self._fleet = state.fleet
        self._book = book
        self._budgets = budgets
        self._scopes = scopes
        self._counted = counted

    def borrow(self, job: JobRequest, scope: Scope) -> Borrowed | None:
        """Where the job could go on nodes that are kept for others, if it ends before those need
        them. Deducts nothing.
        """
        if not self._state.lendable or scope.verdict is None or scope.verdict.code not in MAY_BORROW:
            return None
        seconds = longest_seconds(job, self._snapshot.runtimes)
        if seconds is None or seconds >= scope.too_long:
            return None
        end = self._snapshot.now + timedelta(seconds=seconds)
        with self.lending(end) as pools:
            clusters = {int(self._fleet.cluster_of_pool[number]) for number in pools}
            choice = self._choose_among(job, scope, clusters)
        if choice is None:
            scope.too_long = seconds
            return None
        return Borrowed(choice, end)

    @contextmanager
    def lending(self, end: datetime) -> Iterator[Collection[int]]:
        """The pools that lend nodes to jobs which end by `end`, while they lend them."""
        lent = self._state.lend(end)
        try:
            yield lent
        finally:
            self._state.take_back(lent)

    def _choose_among(self, job: JobRequest, scope: Scope, clusters: set[int]) -> Choice | None:
        """The cheapest place on one of the clusters that has room, quota and budget."""
        if clusters and scope.seeker is None:
            scope.seeker = self._scopes.seeker_now(job)
        while clusters and scope.seeker is not None:
            fit = scope.seeker.fit(self._state, frozenset(clusters))
            if fit is None:
                return None
            candidate, sites = fit
            terms = self._scopes.terms(job, candidate)
            limits = self._book.open_to(job, self._fleet.clusters[terms.cluster].name, self._counted)
            if (obstacle(limits, terms.amounts) or self._budgets.refusing(job, terms.flavors)) is None:
                return Choice(candidate.number, terms, sites, limits)
            clusters.discard(terms.cluster)
        return None
