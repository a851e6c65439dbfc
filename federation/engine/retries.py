"""Why an attempt failed, and whether its job is retried: by cause, up to the number that its spec allows.

If the cluster interrupts a pod, the pod has the condition DisruptionTarget, whose reason names the actor. If the pod is
gone before the gateway sees that, the Job's failure message says so. Every other failure is the program's own.
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
"""The reason with which a kubelet ends pods in a graceful shutdown of its node."""


class Cause(StrEnum):
    """Why an attempt failed; also the reason that it ends with."""

    PREEMPTED = ReasonCode.PREEMPTED.value
    """A pod of higher priority or a drain of the node took its place."""
    NODE_LOST = ReasonCode.NODE_LOST.value
    """Its node is gone, or was declared lost."""
    SPOT = ReasonCode.SPOT.value
    """The same on spot capacity: it was reclaimed."""
    INFRASTRUCTURE = ReasonCode.INFRASTRUCTURE.value
    """The node could not continue it, or the cluster does not report what happened."""
    PROGRAM = ReasonCode.PROGRAM_FAILED.value
    """The program failed on its own."""


_BY_REASON: Mapping[str, Cause] = {
    "PreemptionByScheduler": Cause.PREEMPTED,
    "EvictionByEvictionAPI": Cause.PREEMPTED,
    "DeletionByTaintManager": Cause.NODE_LOST,
    "DeletionByPodGC": Cause.NODE_LOST,
}
_RECLAIMED = frozenset({"EvictionByEvictionAPI", "DeletionByTaintManager", "DeletionByPodGC"})
"""The causes that mean the end of a spot node; preemption by a pod of higher priority is the same as on other nodes."""
INTERRUPTIONS = frozenset(Cause) - {Cause.PROGRAM}


@dataclass(frozen=True, slots=True)
class Retries:
    """The number of retries after failed attempts, by cause. The program's own failure is retried only on request."""

    preempted: int = USUAL_RETRIES
    node_lost: int = USUAL_RETRIES
    spot: int = USUAL_RETRIES
    infrastructure: int = USUAL_RETRIES
    program: int = 0

    def of(self, cause: Cause) -> int:
        """The number of retries for this cause."""
        return int(getattr(self, "program" if cause == Cause.PROGRAM else cause.value))


NO_WISHES = Retries()
RETRY_FIELDS = frozenset(field.name for field in fields(Retries))


def retries_json(retries: Retries) -> dict[str, int]:
    """The normal form, as stored and shown."""
    return asdict(retries)


def retries_of(stored: Mapping[str, Any]) -> Retries:
    """The retries in a stored spec."""
    return Retries(**stored["retries"]) if "retries" in stored else NO_WISHES


@dataclass(frozen=True, slots=True)
class Told:
    """What is known of one pod of a failed attempt. `disruption`: the reason of its DisruptionTarget condition."""

    disruption: str
    reason: str
    capacity_type: str


@dataclass(frozen=True, slots=True)
class Failure:
    """What is known of a failed attempt: its pods, its Jobs' failure messages, and the capacity it ran on."""

    pods: Sequence[Told]
    words: Sequence[str] = ()
    capacity_types: frozenset[str] = frozenset()


def cause_of(failure: Failure) -> Cause:
    """Why it failed. If a pod was disrupted, its peers fail because they miss it, whatever their exit code."""
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
    """Whether one more attempt is allowed. `ends` are the reasons of all ended attempts, including this one."""
    return sum(end == cause for end in ends) <= retries.of(cause)


def pause_seconds(times: int) -> int:
    """The number of seconds for which a job avoids a cluster that has recently interrupted it `times` times."""
    return min(LEAST_PAUSE_SECONDS << min(times - 1, 10), MOST_PAUSE_SECONDS)
