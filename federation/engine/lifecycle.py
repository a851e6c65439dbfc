"""The states of jobs and attempts, and their allowed transitions (reference: docs/reference/states.md).

    job      queued → dispatching → running → succeeded | failed
             queued, dispatching, running → cancelling → cancelled
             dispatching, running → queued   (the attempt ended without a result, and the job may run again)
             queued, dispatching, running → suspended → queued, cancelling   (a user suspended it, and resumes it)
    attempt  reserved → created → starting → running → succeeded | failed | cancelled | preempted
             reserved, created → abandoned   (never started)
             starting, running ⇄ unknown   (the cluster is lost);   unknown → lost   (attested as dead)

Terminal states absorb. A queued job that is cancelled passes through `cancelling` too, in the same transaction.
A job that a user suspends while it has a live attempt becomes `suspended` when that attempt has ended, never before.
The gateway may see a fast job end before it sees it run, so `dispatching` and `starting` also lead to terminal states.
Each transition has a writer (`operations.transitions`) and a test (tests/rooms/federation/test_transitions.py).
"""

from collections.abc import Mapping
from enum import StrEnum


class JobState(StrEnum):
    QUEUED = "queued"
    DISPATCHING = "dispatching"
    RUNNING = "running"
    SUSPENDED = "suspended"
    CANCELLING = "cancelling"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class AttemptState(StrEnum):
    RESERVED = "reserved"
    CREATED = "created"
    STARTING = "starting"
    RUNNING = "running"
    UNKNOWN = "unknown"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    PREEMPTED = "preempted"
    ABANDONED = "abandoned"
    LOST = "lost"


def _moves(**successors: str) -> Mapping[str, frozenset[str]]:
    return {state: frozenset(names.split()) for state, names in successors.items()}


JOB_MOVES = _moves(
    queued="dispatching suspended cancelling",
    dispatching="running succeeded failed queued suspended cancelling",
    running="succeeded failed queued suspended cancelling",
    suspended="queued cancelling",
    cancelling="cancelled",
    succeeded="",
    failed="",
    cancelled="",
)
"""`cancelling` leads only to `cancelled`: cancellation is final, whatever the cluster still reports."""

ATTEMPT_MOVES = _moves(
    reserved="created abandoned",
    created="starting abandoned",
    starting="running succeeded failed cancelled preempted unknown",
    running="succeeded failed cancelled preempted unknown",
    unknown="starting running succeeded failed cancelled preempted lost",
    succeeded="",
    failed="",
    cancelled="",
    preempted="",
    abandoned="",
    lost="",
)

KEPT_ATTEMPTS = frozenset({AttemptState.SUCCEEDED, AttemptState.FAILED})
"""Final states whose objects are kept for a while, so that users can read logs; all others are removed immediately."""
