"""Stops what has to stop for maintenance windows.

Placement keeps jobs from windows that they could run into (`placement.values.maintenance`), and dispatch commits to no
attempt that could (`transitions.commit_to_start`): a window may be made, or draw near, while an attempt is on its way.
Such an attempt is recalled, and its job placed elsewhere. What runs when a window begins is left alone, unless the window
drains: then it is stopped like an interrupted attempt, on its cluster first, and its job placed again.

A round reads everything again, so it does not matter where an earlier one was interrupted.
"""

from collections import defaultdict
from collections.abc import Collection
from uuid import UUID

from django.db import transaction

from federation.locks import lock_with_jobs
from federation.models import Attempt
from federation.queries.windows import Meeting, meetings
from foundation.transactions import retried

from . import transitions

BATCH = 100
"""The most attempts that one transaction locks."""


def yield_to_maintenance() -> int:
    """The number of attempts with a new stop request: those that have not started, and those on which a window that
    drains has begun.
    """
    ids = [met.attempt_id for met in meetings()]
    return sum(_stop(ids[first : first + BATCH]) for first in range(0, len(ids), BATCH))


@retried
def _stop(attempt_ids: Collection[UUID]) -> int:
    with transaction.atomic():
        attempts = lock_with_jobs(attempt_ids)
        # Again, with the locks: one may have started or ended since, or its window was cancelled.
        alike: dict[Meeting, list[Attempt]] = defaultdict(list)
        found = meetings(attempts)
        for met in found:
            alike[met._replace(attempt_id=_ANY)].append(attempts[met.attempt_id])
        for met, ours in alike.items():
            if met.has_begun:
                told = f"Its attempt is stopped. {met.message}."
                transitions.interrupt(ours, met.reason, met.message, told)
            else:
                transitions.ask_to_stop([one.id for one in ours], met.reason, met.message)
    return len(found)


_ANY = UUID(int=0)
"""Stands for the attempts that meet the same window."""
