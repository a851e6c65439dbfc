"""What one visit of dispatch to a cluster found for an attempt."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from clusters.drivers import DriverError, JobSeen, PodSeen
from federation.engine.lifecycle import AttemptState


@dataclass(frozen=True, slots=True)
class Created:
    """All objects of the attempt exist, suspended; `uids` by row id."""

    attempt_id: UUID
    uids: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class Released:
    """All objects of the attempt are unsuspended."""

    attempt_id: UUID
    cluster: str


@dataclass(frozen=True, slots=True)
class Ordered:
    """All gates of the attempt's pods are open."""

    attempt_id: UUID


@dataclass(frozen=True, slots=True)
class Ordering:
    """Some of its pods do not exist yet: check again."""

    attempt_id: UUID
    tries: int


@dataclass(frozen=True, slots=True)
class Looked:
    """What there is of an attempt that must stop: its started pods and its objects. Nothing of it is deleted before that is
    stored, so that its runs are known even if no observer watches now.
    """

    attempt_id: UUID
    pods: Sequence[PodSeen]
    found: Sequence[JobSeen]

    @property
    def ended(self) -> Sequence[JobSeen]:
        """Its Jobs that have ended."""
        return [seen for seen in self.found if seen.outcome and not seen.is_terminating]


@dataclass(frozen=True, slots=True)
class Stopping:
    """Deletion was accepted; its objects are not gone yet."""

    attempt_id: UUID


@dataclass(frozen=True, slots=True)
class Stopped:
    """The attempt has ended in `state`."""

    attempt_id: UUID
    state: AttemptState
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """The attempt cannot continue there: its objects are removed first, and only then it ends with `stop_reason`."""

    attempt_id: UUID
    stop_reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Doomed:
    """Its objects are there, and its deletion has to be decided before it begins."""

    attempt_id: UUID


@dataclass(frozen=True, slots=True)
class Underway:
    """It need not stop, and these pods run: it was recalled because it did not seem to start, or the plan of its move has ended."""

    attempt_id: UUID
    stop_reason: str
    pods: Sequence[PodSeen]


@dataclass(frozen=True, slots=True)
class Failed:
    """The cluster did not answer, or its answer was inconclusive: visit again."""

    attempt_id: UUID
    error: DriverError


Outcome = Created | Released | Ordered | Ordering | Looked | Stopping | Stopped | Withdrawn | Doomed | Underway | Failed
