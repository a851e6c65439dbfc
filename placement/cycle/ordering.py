"""The order of the queue: by descending priority, and within one priority by one of two rules.

- `submitted`: first come, first served.
- `ratio`: highest waiting time per expected run time, that is, highest response ratio next (Brinch Hansen, "An Analysis
  of Response Ratio Scheduling", IFIP Congress 1971). Short jobs pass long ones. No job starves, since every ratio grows
  without bound. A job with an unknown run time counts as the median of the others.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from statistics import median

from placement.ranking.kept_estimates import SHORTEST_SECONDS
from placement.ranking.runtimes import runtime_of
from placement.values.model import JobRequest, Runtime

ORDERS = ("ratio", "submitted")
"""The first is the default."""


def by_response_ratio(
    queue: Sequence[JobRequest], runtimes: Mapping[str, Runtime], now: datetime
) -> tuple[JobRequest, ...]:
    """The queue by descending priority, then by descending waiting time per expected run time, then
    in its given order.
    """
    known = _expected(queue, runtimes)
    if not any(known):
        return tuple(sorted(queue, key=lambda job: -job.priority))
    usual = median(one for one in known if one)
    expected = [max(SHORTEST_SECONDS, one or usual) for one in known]

    def rank(number: int) -> tuple[int, float, int]:
        job = queue[number]
        waited = 0.0 if job.submitted_at is None else (now - job.submitted_at).total_seconds()
        return -job.priority, -max(0.0, waited) / expected[number], number

    return tuple(queue[number] for number in sorted(range(len(queue)), key=rank))


def _expected(queue: Sequence[JobRequest], runtimes: Mapping[str, Runtime]) -> list[int]:
    """The median run time of each job, at least a second; 0 if unknown. Jobs of one kind are looked up once."""
    found: dict[tuple[str, int | None, int | None], int] = {}
    for job in queue:
        key = (job.kind, job.estimated_seconds, job.deadline_seconds)
        if key not in found:
            runtime = runtime_of(job, runtimes)
            found[key] = 0 if runtime is None else max(1, runtime.p50_seconds)
    return [found[job.kind, job.estimated_seconds, job.deadline_seconds] for job in queue]
