"""Quota limits in a cycle: what earlier jobs left of each limit on the path from the root of the tenant tree to a leaf.

How limits lend to each other is a rule of the room below: `quotas/engine/borrowing.py`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias
from uuid import UUID

from placement.values.advance import AdvanceReservation
from placement.values.model import JobRequest, LimitState, Snapshot, UserLimitState
from placement.values.preemption import Leaving, RoomClaim
from quotas.engine.borrowing import Book, Chains, Obstacle, give_back, take
from quotas.engine.reserved import Reserves

Lines: TypeAlias = Chains[LimitState]
"""By resource, the limits that apply to a tenant on a cluster."""
Refusal: TypeAlias = Obstacle[LimitState]
"""A limit with too little left, and the requested amount."""


class LimitBook(Book[LimitState]):
    """The limits of all tenants, and the quota that is reserved; what is held there grows as jobs are placed."""

    def __init__(
        self,
        limits: Iterable[LimitState],
        per_user: Iterable[UserLimitState] = (),
        reservations: Iterable[AdvanceReservation] = (),
    ) -> None:
        super().__init__(limits, per_user)
        self._reserves = Reserves(self, reservations)

    def open_to(self, job: JobRequest, cluster: str, counted: Sequence[AdvanceReservation]) -> Lines:
        """The limits that apply to the job on this cluster, also as they are while the `counted` reservations are in force."""
        chains = self.chains(job.tenant_path, cluster, job.user, job.class_name)
        return self._reserves.beside(chains, job.tenant_path, counted) if counted and self._reserves else chains

    def take(self, limits: Lines, amounts: Mapping[str, int], reservation: str = "") -> None:
        """Adds the amounts to what is held, and to what jobs of the reservation with this id use of it."""
        take(limits, amounts)
        self.use(reservation, amounts)

    def give_back(self, limits: Lines, amounts: Mapping[str, int], reservation: str = "") -> None:
        """Takes the amounts from what is held, likewise."""
        give_back(limits, amounts)
        self.use(reservation, amounts, -1)

    def use(self, reservation: str, amounts: Mapping[str, int], times: int = 1) -> None:
        """Counts only what jobs of a reservation use of it."""
        if reservation and self._reserves:
            self._reserves.use(UUID(reservation), amounts, times)


def limit_book(snapshot: Snapshot) -> LimitBook:
    """The limits of a cycle's input, with what is held there now."""
    return LimitBook((*snapshot.limits, *snapshot.class_limits), snapshot.user_limits, snapshot.reservations)


def keep_claimed(book: LimitBook, snapshot: Snapshot) -> dict[UUID, tuple[Lines, RoomClaim]]:
    """Counts what waiting jobs will hold as held, if others are being stopped for them: no other job takes it meanwhile. So for
    jobs that are still being stopped and have a place kept elsewhere, as far as they do not hold it already. Returns, by waiting
    job, where it is kept.
    """
    if not snapshot.claims:
        return {}
    kept: dict[UUID, tuple[Lines, RoomClaim]] = {}
    waiting = {job.id: job for job in snapshot.queue}
    for claim in snapshot.claims:
        job = waiting.get(claim.job_id)
        if job is not None:
            limits = book.chains(job.tenant_path, claim.cluster, job.user, job.class_name)
            book.take(limits, claim.amounts, job.constraints.reservation)
            kept[job.id] = limits, claim
        elif claim.leaving is not None:
            _exchange(book, claim, claim.leaving)
    return kept


def _exchange(book: LimitBook, claim: RoomClaim, leaving: Leaving) -> None:
    """Counts at each limit the larger of what the job holds and what it will hold."""
    old, new = (book.chains(leaving.tenant_path, name) for name in (leaving.cluster, claim.cluster))
    lines = [line for chains in (old, new) for each in chains.values() for chain in each for line in chain]
    before = [line.held for line in lines]
    give_back(old, leaving.amounts)
    take(new, claim.amounts)
    for line, held in zip(lines, before, strict=True):
        line.held = max(line.held, held)
