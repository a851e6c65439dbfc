"""Why an attempt failed, and whether its job goes on: by cause, as often as its spec allows.

What a cluster does to a pod is written on the pod (the condition DisruptionTarget, whose reason says who did it) and, where a
pod is gone before anybody saw that, in the words of its Job. All else is the program's own doing.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import Any

from placement.values.reason_codes import ReasonCode

MOST_RETRIES = 100
USUAL_RETRIES = 10
LEAST_PAUSE_SECONDS = 60
MOST_PAUSE_SECONDS = 600
SPOT = "spot"
_SHUTDOWN = frozenset({"Terminated", "NodeShutdown", "Shutdown"})
"""Why a kubelet ends pods as its node goes down in good order."""


class Cause(StrEnum):
    """Why an attempt came to nothing; also the reason that it ends with."""

    PREEMPTED = ReasonCode.PREEMPTED.value
    """Its place was taken from it: by a pod of more weight, or by somebody who emptied the node."""
    NODE_LOST = ReasonCode.NODE_LOST.value
    """Its node is gone, or was given up."""
    SPOT = ReasonCode.SPOT.value
    """The same on spot capacity: it was reclaimed."""
    INFRASTRUCTURE = ReasonCode.INFRASTRUCTURE.value
    """The node could not go on with it, or the cluster does not say what happened."""
    PROGRAM = ReasonCode.PROGRAM_FAILED.value
    """Nobody did anything to it."""


_BY_REASON: Mapping[str, Cause] = {
    "PreemptionByScheduler": Cause.PREEMPTED,
    "EvictionByEvictionAPI": Cause.PREEMPTED,
    "DeletionByTaintManager": Cause.NODE_LOST,
    "DeletionByPodGC": Cause.NODE_LOST,
}
_RECLAIMED = frozenset({"EvictionByEvictionAPI", "DeletionByTaintManager", "DeletionByPodGC"})
"""What the end of a spot node looks like; a pod of more weight takes a place there as anywhere."""
INTERRUPTIONS = frozenset(Cause) - {Cause.PROGRAM}


@dataclass(frozen=True, slots=True)
class Retries:
    """How often a job goes on after an attempt failed, by cause. The program's own failure counts only when asked."""

    preempted: int = USUAL_RETRIES
    node_lost: int = USUAL_RETRIES
    spot: int = USUAL_RETRIES
    infrastructure: int = USUAL_RETRIES
    program: int = 0

    def of(self, cause: Cause) -> int:
        """How many retries this cause has."""
        return int(getattr(self, "program" if cause == Cause.PROGRAM else cause.value))


NO_WISHES = Retries()
RETRY_FIELDS = frozenset(field.name for field in fields(Retries))


def retries_json(retries: Retries) -> dict[str, int]:
    """The normal form, as it is stored and shown."""
    return asdict(retries)


def retries_of(stored: Mapping[str, Any]) -> Retries:
    """What a stored spec says of retries."""
    return Retries(**stored["retries"]) if "retries" in stored else NO_WISHES


@dataclass(frozen=True, slots=True)
class Told:
    """What is known of one pod of a failed attempt. `disruption`: the reason of its DisruptionTarget condition."""

    disruption: str
    reason: str
    capacity_type: str


@dataclass(frozen=True, slots=True)
class Failure:
    """What is known of a failed attempt: its pods, what its Jobs say of their failure, and the capacity it ran on."""

    pods: Sequence[Told]
    words: Sequence[str] = ()
    capacity_types: frozenset[str] = frozenset()


def cause_of(failure: Failure) -> Cause:
    """Why it failed. Where a pod was disrupted, its peers fail for want of it, whatever code they end with."""
    causes = {_cause_of_pod(pod) for pod in failure.pods if pod.disruption}
    if causes:
        return next(cause for cause in Cause if cause in causes)
    if any("DisruptionTarget" in words for words in failure.words):
        return Cause.SPOT if failure.capacity_types == {SPOT} else Cause.INFRASTRUCTURE
    return Cause.PROGRAM


def _cause_of_pod(pod: Told) -> Cause:
    is_shut_down = pod.disruption == "TerminationByKubelet" and pod.reason in _SHUTDOWN
    if pod.capacity_type == SPOT and (is_shut_down or pod.disruption in _RECLAIMED):
        return Cause.SPOT
    if is_shut_down:
        return Cause.NODE_LOST
    return _BY_REASON.get(pod.disruption, Cause.INFRASTRUCTURE)


def may_go_on(retries: Retries, cause: Cause, ends: Iterable[str]) -> bool:
    """Whether one more attempt is allowed. `ends` are the reasons of all attempts that have ended, this one among them."""
    return sum(end == cause for end in ends) <= retries.of(cause)


def pause_seconds(times: int) -> int:
    """How long a job keeps away from a cluster that has interrupted it so many times lately."""
    return min(LEAST_PAUSE_SECONDS << min(times - 1, 10), MOST_PAUSE_SECONDS)
