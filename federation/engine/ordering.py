"""The order of the queue. Priority always comes first; within one priority there are two orders.

submitted    who came first
ratio        who has waited longest for how long it will run: highest response ratio next (Brinch Hansen, "An Analysis of
Response Ratio Scheduling", IFIP Congress 1971). Short jobs pass long ones, and nobody starves, since
everybody's ratio grows without end. A job of which nothing is known counts as the median of the others
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from statistics import median

from .model import JobRequest, Runtime
from .runtimes import runtime_of

ORDERS = ("submitted", "ratio")
SHORTEST_SECONDS = 60
"""Shorter runs count as so long: below that, placing and starting takes longer than running."""
UNKNOWN_SECONDS = 3600


def by_response_ratio(
    queue: Sequence[JobRequest], runtimes: Mapping[str, Runtime], now: datetime
) -> tuple[JobRequest, ...]:
    """The queue by falling priority, then by falling waiting time per expected run time, then as it was."""
    known = [None if found is None else found.p50_seconds for found in (runtime_of(job, runtimes) for job in queue)]
    usual = median([one for one in known if one is not None] or [UNKNOWN_SECONDS])
    expected = [max(SHORTEST_SECONDS, usual if one is None else one) for one in known]

    def rank(number: int) -> tuple[int, float, int]:
        job = queue[number]
        waited = 0.0 if job.submitted_at is None else (now - job.submitted_at).total_seconds()
        return -job.priority, -max(0.0, waited) / expected[number], number

    return tuple(queue[number] for number in sorted(range(len(queue)), key=rank))
