"""Quota limits in a cycle: what earlier jobs left of each limit on the path from the root of the tenant tree to a leaf.

How limits lend to each other is a rule of the room below: `quotas/engine/borrowing.py`.
"""

from typing import TypeAlias
from uuid import UUID

from placement.values.model import LimitState, Snapshot
from placement.values.preemption import RoomClaim
from quotas.engine.borrowing import Book, Chains, Obstacle, take

LimitBook: TypeAlias = Book[LimitState]
"""The limits of all tenants; what is held there grows as jobs are placed."""
Lines: TypeAlias = Chains[LimitState]
"""By resource, the limits that apply to a tenant on a cluster."""
Refusal: TypeAlias = Obstacle[LimitState]
"""A limit with too little left, and the requested amount."""


def limit_book(snapshot: Snapshot) -> LimitBook:
    """The limits of a cycle's input, with what is held there now."""
    return Book(snapshot.limits, snapshot.user_limits)


def keep_claimed(book: LimitBook, snapshot: Snapshot) -> dict[UUID, tuple[Lines, RoomClaim]]:
    """Counts what waiting jobs will hold as held, if others are being stopped for them: no other job takes it meanwhile.
    Returns, by job, where it is kept.
    """
    if not snapshot.claims:
        return {}
    kept: dict[UUID, tuple[Lines, RoomClaim]] = {}
    waiting = {job.id: job for job in snapshot.queue}
    for claim in snapshot.claims:
        job = waiting.get(claim.job_id)
        if job is not None:
            limits = book.chains(job.tenant_path, claim.cluster, job.user)
            take(limits, claim.amounts)
            kept[job.id] = limits, claim
    return kept
