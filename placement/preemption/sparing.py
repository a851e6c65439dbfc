"""What consolidation may ask of one job, of one user and of one tenant within a day.

Small jobs move for larger ones. So without a brake, users of small jobs would be moved again and again for the gangs of others.
A move counts for the user whose job moved unless the larger job is that user's too, and for its tenant unless the larger job is of
that tenant. Who has reached the number is spared until moves are older than a day: then other jobs move, or none.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from placement.values.consolidation import Consolidating, Movable
from placement.values.model import JobRequest
from placement.values.preemption import MOST_TIMES_PREEMPTED

MOST_MOVES_A_DAY = 3
"""A job that was moved this many times in 24 hours is not moved again."""
MOST_OF_A_USER = 8
"""The most moves of jobs of one user in 24 hours so that jobs of others fit."""
MOST_OF_A_TENANT = 32
"""Likewise of the jobs of one tenant, without the tenants below it, for jobs of other tenants."""


def is_movable(one: Movable, now: datetime) -> bool:
    """Whether it has run long enough, and has not moved, or been stopped for others, too often or recently."""
    if one.run.shield_until > now or (one.rests_until is not None and one.rests_until > now):
        return False
    return one.moves_today < MOST_MOVES_A_DAY and one.run.times_preempted < MOST_TIMES_PREEMPTED


class Brake:
    """How much may still be moved for one waiting job."""

    def __init__(self, rules: Consolidating, job: JobRequest) -> None:
        self._moved, self._job = rules.moved_for_others, job

    def allows(self, moved: Sequence[Movable]) -> bool:
        """Whether these may move together. If so, any of them may."""
        users = Counter(one.run.user for one in moved if one.run.user is not None and one.run.user != self._job.user)
        tenants = Counter(one.run.tenant_path for one in moved if one.run.tenant_path != self._job.tenant_path)
        before = self._moved
        return all(before.users.get(user, 0) + more <= MOST_OF_A_USER for user, more in users.items()) and all(
            before.tenants.get(path, 0) + more <= MOST_OF_A_TENANT for path, more in tenants.items()
        )

    def text(self, spared: Sequence[Movable]) -> str:
        """The sentence about jobs that do not move because of it; empty if there are none."""
        if not spared:
            return ""
        which = "a running job stays" if len(spared) == 1 else f"{len(spared)} running jobs stay"
        return (
            f"{which} in place, because within 24 hours {MOST_OF_A_USER} jobs of the same user, or {MOST_OF_A_TENANT} of the"
            " same tenant, were moved so that jobs of others fit"
        )
