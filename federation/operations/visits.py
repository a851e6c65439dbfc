"""Visits to a cluster: the calls for many attempts side by side, within the visit's time (`calls`).

Each method of a visit returns one outcome per attempt. Only `create_all` raises, if another cluster answered.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from clusters.drivers import Ambiguous, ClusterDriver, DriverError, Throttled, Unreachable
from clusters.drivers.connections import run
from federation.queries.claimed_attempts import ClaimedAttempt
from foundation.clock import monotonic
from placement.values.reason_codes import ReasonCode

from . import calls
from .evidence import require_same_cluster
from .outcomes import Created, Failed, Outcome

Result = TypeVar("Result")
Call = Callable[[ClusterDriver, ClaimedAttempt], Awaitable[Outcome]]
VISIT_SECONDS = 18.0
"""Shorter than a claim (`locks.CLAIM_SECONDS`)."""
RELEASE_SECONDS = 6.0
"""The last part of a visit is left for releases, so that a call that hangs does not delay the release of other attempts."""
SPARE_SECONDS = 1.0
"""The additional time in which a visit's results are collected."""
PROBES = 4
"""The number of calls at a slow cluster that show whether it answers."""
MOST_TIMES_FAILED = 8
MOST_TIMES_THROTTLED = 16
"""For a cluster that asks the gateway to wait, this is about six minutes."""


@dataclass(slots=True)
class Visit:
    """The calls of one visit. No call lasts longer than the visit's time.

    At a slow cluster the first calls are probes: if none is answered, the other attempts fail without a call.
    """

    driver: ClusterDriver
    is_slow: bool = False
    _until: float = field(init=False, default_factory=lambda: monotonic() + VISIT_SECONDS - RELEASE_SECONDS)
    _silence: DriverError | None = field(init=False, default=None)

    def create_all(self, attempts: Sequence[ClaimedAttempt]) -> list[Outcome]:
        """Creates every object of every attempt, suspended. After repeated failures an attempt is given up: nothing of
        it can run. Raises DriverError if another cluster answers: what it created must not be started there.
        """
        outcomes = self._each(attempts, calls.create)
        if any(isinstance(outcome, Created) for outcome in outcomes):
            self._run(require_same_cluster(self.driver, attempts[0].cluster_identity))
        return [_unless_given_up(attempt, outcome) for attempt, outcome in zip(attempts, outcomes, strict=True)]

    def release_all(self, attempts: Sequence[ClaimedAttempt]) -> list[Outcome]:
        """Unsuspends every object of every attempt. The last calls of a visit."""
        self._until += RELEASE_SECONDS
        return self._each(attempts, calls.release)

    def order_all(self, attempts: Sequence[ClaimedAttempt]) -> list[Outcome]:
        """Gives every existing pod of every attempt the preference for its index's node, and opens its gate."""
        return self._each(attempts, calls.order)

    def stop_all(self, attempts: Sequence[ClaimedAttempt]) -> list[Outcome]:
        """Deletes all existing objects of the attempts."""
        return self._each(attempts, calls.stop)

    def _each(self, attempts: Sequence[ClaimedAttempt], call: Call) -> list[Outcome]:
        return self._run(self._gather(attempts, call)) if attempts else []

    async def _gather(self, attempts: Sequence[ClaimedAttempt], call: Call) -> list[Outcome]:
        probed = PROBES if self.is_slow else len(attempts)
        outcomes = await asyncio.gather(*(self._outcome(attempt, call) for attempt in attempts[:probed]))
        if self.is_slow and all(_is_silence(outcome) for outcome in outcomes):
            self._silence = next(outcome.error for outcome in outcomes if isinstance(outcome, Failed))
        return outcomes + await asyncio.gather(*(self._outcome(attempt, call) for attempt in attempts[probed:]))

    async def _outcome(self, attempt: ClaimedAttempt, call: Call) -> Outcome:
        if self._silence is not None:
            return Failed(attempt.id, self._silence)
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
        return max(0.0, self._until - monotonic())


def _is_silence(outcome: Outcome) -> bool:
    """Whether there was no answer at all: an answer with an error has a status."""
    return (
        isinstance(outcome, Failed) and isinstance(outcome.error, Unreachable | Ambiguous) and not outcome.error.status
    )


def _unless_given_up(attempt: ClaimedAttempt, outcome: Outcome) -> Outcome:
    if not isinstance(outcome, Failed):
        return outcome
    most = MOST_TIMES_THROTTLED if isinstance(outcome.error, Throttled) else MOST_TIMES_FAILED
    return outcome if attempt.tries < most else calls.abandoned(attempt, ReasonCode.CREATE_FAILED, outcome.error.reason)
