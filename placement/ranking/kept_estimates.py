"""How far the estimates of users have been kept: a later estimate counts as that much longer, in the order of the queue and
where a job may run on nodes that are kept for others.

A record has the seconds that were stated and the seconds that the runs then took. Their ratio is what a stated second
took on average, so that stating less than one takes gains no place in expectation. Recent runs count more. A run that
failed or was cancelled shows only that it takes at least so long: it counts if it took longer than stated. Estimates
that were too long never count for less.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2s
from typing import NamedTuple
from uuid import UUID

from placement.values.model import JobRequest

from .runtimes import HALF_LIFE

SHORTEST_SECONDS = 60
"""Shorter runs count as this long, because placing and starting them takes longer than running."""
LEFT_PER_RUN = 0.5 ** (1 / HALF_LIFE)
"""What is left of a record after one more run."""


class Kept(NamedTuple):
    """Seconds stated, and taken."""

    stated: float
    taken: float


def counted(stated: float, taken: float, *, is_success: bool) -> Kept | None:
    """What a run adds to the record; None if it shows nothing."""
    stated, taken = max(SHORTEST_SECONDS, stated), max(SHORTEST_SECONDS, taken)
    return Kept(stated, taken) if is_success or taken > stated else None


def added(record: Kept | None, run: Kept) -> Kept:
    """The record with one more run."""
    if record is None:
        return run
    return Kept(record.stated * LEFT_PER_RUN + run.stated, record.taken * LEFT_PER_RUN + run.taken)


def factor_of(record: Kept) -> float:
    """How many times longer than stated the runs took, at least 1."""
    return max(1.0, record.taken / record.stated)


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
