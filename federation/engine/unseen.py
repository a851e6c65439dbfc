"""Estimates the runs of pods that started and were gone before the observer saw them, from their ended Job.

A Job's controller counts each ended pod, and the count outlives the pods. If it exceeds the pods that were seen to
start, the others are assumed to have run from the Job's start to its end. No pod can have run longer.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

WHY = "Its start and end are those of its Job: no observer saw it run."
"""The reason of a pod whose run is assumed."""
LONGEST_WAITED = timedelta(minutes=10)
"""The longest assumed run of a pod that was last seen waiting, perhaps long ago."""


@dataclass(frozen=True, slots=True)
class Tally:
    """An ended Job of `indices` pods, `places` of them at the same time, of which `pods_over` have ended."""

    indices: int
    places: int
    pods_over: int
    began_at: datetime
    over_at: datetime


@dataclass(frozen=True, slots=True)
class Known:
    """A pod that was seen. It had its place from `held_from` until `held_until`: None if it was not seen to start.
    `last_seen_at` is the last sighting, if its end was not seen.
    """

    uid: str
    index: int
    place: int
    held_from: datetime | None
    held_until: datetime | None
    last_seen_at: datetime | None


@dataclass(frozen=True, slots=True)
class Unseen:
    """A pod with its assumed run; `uid` is empty if it was never seen."""

    uid: str
    index: int
    place: int
    started_at: datetime
    finished_at: datetime


@dataclass(frozen=True, slots=True)
class _Gap:
    """A period in which no pod is known to have had a place."""

    place: int
    since: datetime
    until: datetime

    @property
    def length(self) -> timedelta:
        return self.until - self.since


def unseen_uid(object_id: int, index: int) -> str:
    """The uid of a pod that was never seen."""
    return f"unseen/{object_id}/{index}"


def unseen_runs(job: Tally, pods: Sequence[Known]) -> list[Unseen]:
    """The pods that must have run unseen: first those last seen waiting, then those never seen."""
    seen_to_end = sum(1 for pod in pods if pod.held_from is not None or pod.last_seen_at is None)
    missing = min(job.pods_over, job.indices) - seen_to_end
    if missing <= 0:
        return []
    gaps = _gaps(job, pods)
    found: list[Unseen] = []
    waited = sorted((pod for pod in pods if pod.held_from is None and pod.last_seen_at), key=lambda pod: pod.index)[
        :missing
    ]
    for pod in waited:
        gap = _take_longest(gaps, [pod.place])
        if gap is not None:
            started_at = max(gap.since, gap.until - LONGEST_WAITED, pod.last_seen_at or gap.since)
            found.append(Unseen(pod.uid, pod.index, pod.place, min(started_at, gap.until), gap.until))
    seen = {pod.index for pod in pods}
    never_seen = [index for index in range(job.indices) if index not in seen]
    for index in never_seen[: missing - len(waited)]:
        gap = _take_longest(gaps, [index] if job.indices <= job.places else range(job.places))
        if gap is not None:
            found.append(Unseen("", index, gap.place, gap.since, gap.until))
    return found


def _gaps(job: Tally, pods: Iterable[Known]) -> list[_Gap]:
    held: dict[int, list[tuple[datetime, datetime]]] = {place: [] for place in range(job.places)}
    for pod in pods:
        if pod.held_from is not None:
            held[pod.place].append((pod.held_from, pod.held_until or job.over_at))
    gaps = []
    for place, spans in held.items():
        since = job.began_at
        for start, end in sorted(spans):
            gaps.append(_Gap(place, since, min(start, job.over_at)))
            since = max(since, end)
        gaps.append(_Gap(place, since, job.over_at))
    return [gap for gap in gaps if gap.since < gap.until]


def _take_longest(gaps: list[_Gap], places: Collection[int]) -> _Gap | None:
    """Removes and returns the longest gap of these places."""
    found = max((gap for gap in gaps if gap.place in places), key=lambda gap: gap.length, default=None)
    if found is not None:
        gaps.remove(found)
    return found
