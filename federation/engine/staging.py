"""When a dataset is copied to a cluster, what became of the copy, and when a job waits for it no longer. Pure decisions."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from clusters.engine.datasets import MOST_BYTES

from .prepulls import PATIENCE, UNSCHEDULED, SeenJob, Verdict, pause_after
from .sightings import Pod

DEADLINE = timedelta(hours=24)
"""Of one copy."""
MOST_FAILURES = 3
"""In a row; then it waits for a user, and no job waits for it."""
USUAL_WAIT_SECONDS = 3600
"""How long a job waits for its data if it does not say."""
LONGEST_MESSAGE = 300
WRONG_DIGEST, NOTHING_THERE, NOT_WHOLE, LINK_IN_THE_WAY = 3, 4, 5, 6
"""Exit codes of the copy program."""
_SAID = {
    NOTHING_THERE: "There is nothing to copy at its source.",
    WRONG_DIGEST: "The copy has another sha256 than its plan says.",
    LINK_IN_THE_WAY: "A symbolic link at its target is in the place of a file or folder of its source.",
    NOT_WHOLE: "Files of its source are missing in the copy: something wrote to one of them meanwhile.",
}
_PATIENCE_WITH = {
    "InvalidImageName": timedelta(),
    "ErrImagePull": PATIENCE,
    "ImagePullBackOff": PATIENCE,
    "CreateContainerConfigError": UNSCHEDULED,
    "CreateContainerError": UNSCHEDULED,
    "RunContainerError": UNSCHEDULED,
    "Unschedulable": UNSCHEDULED,
}
_COPIED = re.compile(r"^switchyard-stage ([0-9]{1,18}) ([0-9]{1,18})$", re.MULTILINE)
_STAGED = re.compile(r"^switchyard-staged ([0-9]{1,18}) ([0-9a-f]{64})$", re.MULTILINE)


class Outcome(StrEnum):
    """How a copy ended."""

    STAGED = "staged"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Progress(NamedTuple):
    """What a copy has written of itself. `sha256` and the final size only at its end."""

    copied: int | None = None
    total: int | None = None
    sha256: str = ""
    last_line: str = ""


def progress_in(log: str) -> Progress:
    """The progress in the end of a copy's log. Other lines are its program's, and may be anything."""
    last = next((line.strip() for line in reversed(log.splitlines()) if line.strip()), "")
    said = "".join(letter if letter.isprintable() else " " for letter in last)[:LONGEST_MESSAGE]
    if staged := _STAGED.findall(log):
        size, sha256 = int(staged[-1][0]), staged[-1][1]
        known = size if 1 <= size <= MOST_BYTES else None
        return Progress(known, known, sha256, said)
    if copied := _COPIED.findall(log):
        done, total = (int(number) for number in copied[-1])
        return Progress(min(done, total), total, "", said)  # older files at the target count too
    return Progress(last_line=said)


def verdict(
    pods: Sequence[Pod], job: SeenJob | None, lasted: timedelta, progress: Progress, wanted: str = ""
) -> Verdict:
    """What the pods and the Job of a copy say of it. `job` is None if the cluster has no such object any more. Only the success
    that its own Job reports is one, and not with another digest than the `wanted` one.
    """
    waits_for = next((pod.reason for pod in pods if pod.reason and pod.phase == "Pending"), "")
    if job is None:
        return Verdict(Outcome.FAILED, "Its object was deleted on the cluster.")
    if job.outcome == "succeeded":
        if wanted and progress.sha256 not in ("", wanted):
            return Verdict(Outcome.FAILED, _SAID[WRONG_DIGEST])
        return Verdict(Outcome.STAGED)
    if job.outcome == "failed":
        return Verdict(Outcome.FAILED, _why(pods, progress) or _text(f"{job.reason}: {job.message}"))
    if lasted > DEADLINE:
        return too_late(waits_for)
    limit = _PATIENCE_WITH.get(waits_for.partition(":")[0])
    return Verdict(Outcome.FAILED if limit is not None and lasted >= limit else "", _text(waits_for))


def _why(pods: Sequence[Pod], progress: Progress) -> str:
    codes = {pod.exit_code for pod in pods if pod.phase == "Failed"}
    known = next((_SAID[code] for code in codes if code in _SAID), "")
    words = next((pod.message or pod.reason for pod in pods if pod.message or pod.reason), "")
    return _text(known or progress.last_line or words)


def too_late(waits_for: str) -> Verdict:
    """The verdict on a copy that has taken too long."""
    hours = int(DEADLINE.total_seconds() // 3600)
    return Verdict(Outcome.FAILED, _text(f"It did not end within {hours} hours. {waits_for}".strip()))


@dataclass(frozen=True, slots=True)
class Standing:
    """A stage-in with all that its next step depends on. `why_not` is why nothing may be copied now."""

    is_wanted: bool
    is_live: bool
    is_staged: bool
    failures: int
    ended_at: datetime | None
    why_not: str = ""

    @property
    def is_stopped(self) -> bool:
        """Whether only a user can continue it."""
        return not self.is_staged and not self.is_live and (self.failures >= MOST_FAILURES or not self.is_wanted)

    @property
    def next_at(self) -> datetime | None:
        """When it copies again at the earliest after a failure; None if it has not failed, or has stopped."""
        if self.is_live or self.is_stopped or not self.failures or self.ended_at is None:
            return None
        return self.ended_at + pause_after(self.failures)

    def may_begin(self, now: datetime) -> bool:
        """Whether to copy now."""
        if self.why_not or self.is_live or self.is_staged or self.is_stopped:
            return False
        return self.next_at is None or self.next_at <= now


def wait_ends(
    parts: Sequence[Standing | None], *, is_queued: bool, is_open: bool, until_at: datetime, now: datetime
) -> str:
    """Why a job's wait for data ends, as the outcome of its row; empty while it goes on. A part is None if its plan was removed.
    `is_open`: whether the cluster takes new work.
    """
    if not is_queued:
        return "over"
    if all(part is not None and part.is_staged for part in parts):
        return "ready"
    if not is_open:
        return "closed"
    if any(part is None or part.is_stopped for part in parts):
        return "failed"
    return "late" if until_at <= now else ""


def _text(words: str) -> str:
    return words[:LONGEST_MESSAGE]
