"""Visits to a cluster: the calls for many attempts side by side, within the visit's time (`calls`).

Attempts that must stop come first: they are looked up, and removed when what was seen is stored. Only `begin_all` raises, if
another cluster answered.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
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
from .outcomes import Created, Failed, Looked, Outcome, Stopped

Result = TypeVar("Result")
Call = Callable[[ClusterDriver, ClaimedAttempt], Awaitable[Outcome]]
VISIT_SECONDS = 18.0
"""Shorter than a claim (`locks.CLAIM_SECONDS`)."""
RELEASE_SECONDS = 6.0
"""The last part of a visit is left for releases, so that a call that hangs does not delay the release of other attempts."""
LOOK_SHARE = 0.5
"""The part of the time before it that looks may take, so that one that hangs does not prevent the removal of other attempts."""
TOO_LATE = "no answer within the time of the visit"
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
    _reserved_seconds: float = field(init=False, default=RELEASE_SECONDS)
    """The time that the present calls leave to later ones."""

    def look_all(self, attempts: Sequence[ClaimedAttempt]) -> list[Outcome]:
        """What there is of each attempt that must stop. Nothing is changed."""
        self._reserved_seconds = RELEASE_SECONDS + (VISIT_SECONDS - RELEASE_SECONDS) * LOOK_SHARE
        return self._stop([attempt for attempt in attempts if attempt.must_stop], calls.look)

    def remove_all(
        self, attempts: Sequence[ClaimedAttempt], looks: Sequence[Outcome], stored: Collection[UUID]
    ) -> list[Outcome]:
        """The looks; those that are stored replaced by what became of the objects, which are deleted now."""
        self._reserved_seconds = RELEASE_SECONDS
        seen = {one.attempt_id: one for one in looks if isinstance(one, Looked) and one.attempt_id in stored}

        async def remove(driver: ClusterDriver, attempt: ClaimedAttempt) -> Outcome:
            return await calls.remove(driver, attempt, seen[attempt.id])

        removed = self._stop([attempt for attempt in attempts if attempt.id in seen], remove)
        by_id = {one.attempt_id: one for one in removed}
        return [by_id.get(one.attempt_id, one) for one in looks]

    def begin_all(self, attempts: Sequence[ClaimedAttempt], stops: Sequence[Outcome]) -> list[Outcome]:
        """The outcomes of `stops` and of all other calls but releases: opens the gates of pods whose order is known, and
        creates every object of the others, suspended. After repeated failures an attempt is given up: nothing of it can run.
        Raises DriverError if another cluster answers: what it created must not be started there.
        """
        self._reserved_seconds = RELEASE_SECONDS
        ordered = [attempt for attempt in attempts if not attempt.must_stop and attempt.is_released]
        reserved = [attempt for attempt in attempts if not attempt.must_stop and attempt.state == AttemptState.RESERVED]
        others = [*stops, *self._each(ordered, calls.order)]
        created = self._each(reserved, calls.create)
        if any(isinstance(outcome, Created) for outcome in created):
            self._run(require_same_cluster(self.driver, reserved[0].cluster_identity))
        self.silence = _silence_in([*others, *created])
        return [*others, *(_unless_given_up(attempt, one) for attempt, one in zip(reserved, created, strict=True))]

    def release_all(self, attempts: Sequence[ClaimedAttempt]) -> list[Outcome]:
        """Unsuspends every object of every attempt. The last calls of a visit."""
        self._reserved_seconds = 0.0
        outcomes = self._each(attempts, calls.release)
        if outcomes:
            self.silence = _silence_in(outcomes)
        return outcomes

    def _stop(self, attempts: Sequence[ClaimedAttempt], call: Call) -> list[Outcome]:
        outcomes = self._each(attempts, call)
        return [_unless_inert(attempt, one) for attempt, one in zip(attempts, outcomes, strict=True)]

    def _each(self, attempts: Sequence[ClaimedAttempt], call: Call) -> list[Outcome]:
        return self._run(self._gather(attempts, call)) if attempts else []

    async def _gather(self, attempts: Sequence[ClaimedAttempt], call: Call) -> list[Outcome]:
        return await asyncio.gather(*(self._outcome(attempt, call) for attempt in attempts))

    async def _outcome(self, attempt: ClaimedAttempt, call: Call) -> Outcome:
        seconds = self._left()
        if not seconds:  # storing what was seen took all of it: another worker may have claimed the attempt
            return Failed(attempt.id, Ambiguous(TOO_LATE))
        try:
            async with asyncio.timeout(seconds):
                return await call(self.driver, attempt)
        except DriverError as error:
            return Failed(attempt.id, error)
        except TimeoutError:
            return Failed(attempt.id, Ambiguous(TOO_LATE))

    def _run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        return run(coroutine, timeout_seconds=self._left() + SPARE_SECONDS)

    def _left(self) -> float:
        return max(0.0, self._ends - self._reserved_seconds - monotonic())


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
    is_inert = attempt.state in (AttemptState.RESERVED, AttemptState.CREATED)
    if not isinstance(outcome, Failed) or not is_inert or attempt.tries < MOST_TIMES_NOT_STOPPED:
        return outcome
    return Stopped(attempt.id, AttemptState.ABANDONED, attempt.stop_reason, attempt.stop_message)


def given_up(attempt_id: UUID, error: DriverError) -> Stopped:
    """The outcome of a creation that is not tried any more."""
    return Stopped(attempt_id, AttemptState.ABANDONED, ReasonCode.CREATE_FAILED, error.reason)
