"""The end of an attempt and its consequence for its job, as values."""

from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from federation.engine.failures.diagnoses import Diagnosis
from federation.engine.lifecycle import AttemptState, JobState
from federation.models import Attempt, Job


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of one attempt. With a `token`, it applies only while the attempt is still claimed with that token."""

    attempt_id: UUID
    state: AttemptState
    reason: str
    message: str = ""
    exit_code: int | None = None
    token: int | None = None
    diagnosis: Diagnosis | None = None
    """Why it failed, if that is judged with its end."""


class Consequence(NamedTuple):
    """The consequence of an attempt's end for its job."""

    state: JobState
    reason: str = ""
    message: str = ""
    exit_code: int | None = None
    wait_seconds: int = 0
    """A job that goes back to the queue is placed no sooner."""


class Ended(NamedTuple):
    """An attempt that ends, and the consequence for its job; both are locked."""

    attempt: Attempt
    ending: Ending
    job: Job
    consequence: Consequence
