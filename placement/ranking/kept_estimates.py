"""How far the estimates of users have been kept: a later estimate counts as that much longer, in the order of the queue and
where a job may run on nodes that are kept for others.

A record says how many times longer than stated the runs took, as a mean over the seconds that they took; recent ones count more.
So long runs count most: those for which a short estimate gains most. If all runs counted the same seconds that were stated, a user who states
a minute for everything would be believed about the mean of all his runs. His long runs would then go before honest ones that are
shorter, and gain more than his short ones lose. A run that failed or was cancelled shows only that it takes at least so long: it
counts if it took longer than stated. An estimate that was too long counts as kept, and makes up for no other: so trivial jobs that
are said to run for days buy no belief. Records fade with the time of runs, not with their number, so trivial jobs do not wash off a
lie either: honest runs of as much time do.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2s
from typing import NamedTuple
from uuid import UUID

from placement.values.model import JobRequest

SHORTEST_SECONDS = 60
"""Shorter runs count as this long, because placing and starting them takes longer than running."""
HALF_LIFE_SECONDS = 7 * 24 * 3600
"""A run counts half as much after runs of this time."""


class Kept(NamedTuple):
    """Sums over runs."""

    seconds: float
    """The time that they took."""
    weighed: float
    """That of each run, times what it took of what was stated, at least 1."""


def counted(stated: float, taken: float, *, is_success: bool) -> Kept | None:
    """What a run adds to the record, from seconds; None if it shows nothing."""
    stated, taken = max(SHORTEST_SECONDS, stated), max(SHORTEST_SECONDS, taken)
    if not is_success and taken <= stated:
        return None
    return Kept(taken, taken * max(1.0, taken / stated))


def added(record: Kept | None, run: Kept) -> Kept:
    """The record with one more run."""
    if record is None:
        return run
    left = left_after(run.seconds)
    return Kept(record.seconds * left + run.seconds, record.weighed * left + run.weighed)


def left_after(seconds: float) -> float:
    """What is left of a record after further runs of so much time."""
    return float(0.5 ** (seconds / HALF_LIFE_SECONDS))


def factor_of(record: Kept) -> float:
    """How many times longer than stated the runs took, at least 1."""
    return max(1.0, record.weighed / record.seconds)


def as_kept(queue: Iterable[JobRequest], exceeded: Mapping[str, float]) -> Sequence[JobRequest]:
    """The jobs with their estimates as much longer as those of the same user were exceeded; `exceeded` is by `stated_by`."""
    return [_as_kept(job, exceeded.get(job.stated_by, 1.0)) for job in queue]


def _as_kept(job: JobRequest, factor: float) -> JobRequest:
    if factor == 1.0 or job.estimated_seconds is None:
        return job
    # estimates below the shortest were exceeded like the others
    return replace(job, estimated_seconds=round(max(SHORTEST_SECONDS, job.estimated_seconds) * factor))


def stater(tenant_id: UUID, user_id: UUID) -> str:
    """Equal for the estimates of one user in one tenant; it does not show who that is."""
    return blake2s(f"{tenant_id}\0{user_id}".encode(), digest_size=8).hexdigest()
