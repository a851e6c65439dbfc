"""Visits to a cluster: the calls for many attempts side by side, within the visit's time (`calls`).

Each method of a visit returns one outcome per attempt. Only `begin_all` raises, if another cluster answered.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import UUID

from clusters.drivers import Ambiguous, ClusterDriver, DriverError, Throttled, Unreachable
from clusters.drivers.connections import run
from federation.engine.lifecycle import AttemptState
from federation.queries.claimed_attempts import ClaimedAttempt
from foundation.clock import monotonic
from placement.values.reason_codes import ReasonCode

from . import calls
from .evidence import require_same_cluster
from .outcomes import Created, Failed, Outcome, Stopped

Result = TypeVar("Result")
Call = Callable[[ClusterDriver, ClaimedAttempt], Awaitable[Outcome]]
VISIT_SECONDS = 18.0
"""Shorter than a claim (`locks.CLAIM_SECONDS`)."""
RELEASE_SECONDS = 6.0
"""The last part of a visit is left for releases, so that a call that hangs does not delay the release of other attempts."""
SPARE_SECONDS = 1.0
"""The additional time in which a visit's results are collected."""
MOST_TIMES_FAILED = 8
MOST_TIMES_THROTTLED = 16
"""For a cluster that asks the gateway to wait, this is about six minutes."""
MOST_TIMES_NOT_STOPPED = 16
"""The same for the removal of what was never released."""


@dataclass(slots=True)
class Visit:
    """The calls of one visit. No call lasts longer than the visit's time."""

    driver: ClusterDriver
    silence: DriverError | None = field(init=False, default=None)
    """The error of a cluster that answered none of the calls made last."""
    _ends: float = field(init=False, default_factory=lambda: monotonic() + VISIT_SECONDS)
    _is_releasing: bool = field(init=False, default=False)

    def begin_all(self, attempts: Sequence[ClaimedAttempt]) -> list[Outcome]:
        """All calls but releases: deletes the objects of attempts that must stop, opens the gates of pods whose order is
        known, and creates every object of the others, suspended. After repeated failures an attempt is given up: nothing
        of it can run. Raises DriverError if another cluster answers: what it created must not be started there.
        """
        stops = [attempt for attempt in attempts if attempt.must_stop]
        ordered = [attempt for attempt in attempts if not attempt.must_stop and attempt.is_released]
        reserved = [attempt for attempt in attempts if not attempt.must_stop and attempt.state == AttemptState.RESERVED]
        others = self._each(stops, calls.stop) + self._each(ordered, calls.order)
        created = self._each(reserved, calls.create)
        if any(isinstance(outcome, Created) for outcome in created):
            self._run(require_same_cluster(self.driver, reserved[0].cluster_identity))
        self.silence = _silence_in([*others, *created])
        return [
            *(_unless_inert(attempt, one) for attempt, one in zip([*stops, *ordered], others, strict=True)),
            *(_unless_given_up(attempt, one) for attempt, one in zip(reserved, created, strict=True)),
        ]

    def release_all(self, attempts: Sequence[ClaimedAttempt]) -> list[Outcome]:
        """Unsuspends every object of every attempt. The last calls of a visit."""
        self._is_releasing = True
        outcomes = self._each(attempts, calls.release)
        if outcomes:
            self.silence = _silence_in(outcomes)
        return outcomes

    def _each(self, attempts: Sequence[ClaimedAttempt], call: Call) -> list[Outcome]:
        return self._run(self._gather(attempts, call)) if attempts else []

    async def _gather(self, attempts: Sequence[ClaimedAttempt], call: Call) -> list[Outcome]:
        return await asyncio.gather(*(self._outcome(attempt, call) for attempt in attempts))

    async def _outcome(self, attempt: ClaimedAttempt, call: Call) -> Outcome:
        try:
            async with asyncio.timeout(self._left()):
                return await call(self.driver, attempt)
        except DriverError as error:
            return Failed(attempt.id, error)
        except TimeoutError:
            return Failed(attempt.id, Ambiguous("no answer within the time of the visit"))

    def _run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        return run(coroutine, timeout_seconds=self._left() + SPARE_SECONDS)

    def _left(self) -> float:
        reserved = 0.0 if self._is_releasing else RELEASE_SECONDS
        return max(0.0, self._ends - reserved - monotonic())


def _silence_in(outcomes: Sequence[Outcome]) -> DriverError | None:
    """An error without an answer, if no call was answered. An answer with an error has a status."""
    errors = [outcome.error for outcome in outcomes if isinstance(outcome, Failed)]
    silent = [error for error in errors if isinstance(error, Unreachable | Ambiguous) and not error.status]
    return silent[0] if silent and len(silent) == len(outcomes) else None


def _unless_given_up(attempt: ClaimedAttempt, outcome: Outcome) -> Outcome:
    if not isinstance(outcome, Failed):
        return outcome
    most = MOST_TIMES_THROTTLED if isinstance(outcome.error, Throttled) else MOST_TIMES_FAILED
    return outcome if attempt.tries < most else given_up(attempt.id, outcome.error)


def _unless_inert(attempt: ClaimedAttempt, outcome: Outcome) -> Outcome:
    """The end of an attempt that was never released, if its cluster repeatedly fails to remove its objects: they are
    suspended, and removed when the cluster can be compared (`reconciliation`).
    """
    is_inert = attempt.must_stop and attempt.state in (AttemptState.RESERVED, AttemptState.CREATED)
    if not isinstance(outcome, Failed) or not is_inert or attempt.tries < MOST_TIMES_NOT_STOPPED:
        return outcome
    return Stopped(attempt.id, AttemptState.ABANDONED, attempt.stop_reason, attempt.stop_message)


def given_up(attempt_id: UUID, error: DriverError) -> Stopped:
    """The outcome of a creation that is not tried any more."""
    return Stopped(attempt_id, AttemptState.ABANDONED, ReasonCode.CREATE_FAILED, error.reason)
