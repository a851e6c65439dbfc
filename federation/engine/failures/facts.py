"""What is seen of a failed attempt. Everything here comes from a cluster or a program, and is not trusted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from federation.engine.retries import Cause

FIRST_SIGNAL_CODE = 128
MOST_SIGNAL = 64
DEVICE_TEXTS = ("xid", "ecc", "gpu-error", "gpuerror", "gpu-unhealthy", "gpuunhealthy", "gpu-fault", "device-fault")
_STORAGE_TEXTS = (
    "ephemeral-storage",
    "ephemeral storage",
    "ephemeral local storage",
    "diskpressure",
    "emptydir",
    "volume",
    "mount",
)


class Seen(StrEnum):
    """What the cluster, not the program, shows of a pod."""

    OUT_OF_MEMORY = "out_of_memory"
    """The kernel killed it, because its container exceeded its memory limit."""
    PREEMPTED = "preempted"
    """A pod of higher priority or a drain of its node took its place."""
    SPOT = "spot"
    """Its spot capacity was reclaimed."""
    NODE_LOST = "node_lost"
    """Its node is gone, or was given up."""
    INFRASTRUCTURE = "infrastructure"
    """Its node could not continue to run it, or the cluster does not report what happened."""
    EVICTED = "evicted"
    """The kubelet ended it, because its node ran out of something, or it used too much of it."""
    STORAGE = "storage"
    """The cluster names storage: the node's disk, or a volume."""
    IMAGE = "image"
    """Its image could not be pulled, or its container could not be started."""
    DEVICE = "device"
    """A taint of its node reports a failed device."""
    DEADLINE = "deadline"
    """The job reached its deadline."""


_BY_CAUSE: Mapping[str, Seen] = {
    Cause.PREEMPTED: Seen.PREEMPTED,
    Cause.SPOT: Seen.SPOT,
    Cause.NODE_LOST: Seen.NODE_LOST,
    Cause.INFRASTRUCTURE: Seen.INFRASTRUCTURE,
}


_NEVER_RAN = frozenset({"StartError", "ContainerCannotRun"})
"""Why a container ended whose program could not be started: its command is missing, or is for another architecture."""


@dataclass(frozen=True, slots=True)
class PodFacts:
    """One pod of a failed attempt. `reason` is the pod's own reason, `ending` that of its container's end, `message` what
    the cluster or the container said. `taints` are those of its node, as `key=value:effect`.
    """

    name: str = ""
    pod_set: str = ""
    node: str = ""
    exit_code: int | None = None
    signal: int | None = None
    reason: str = ""
    ending: str = ""
    message: str = ""
    disruption: str = ""
    memory: str = ""
    taints: tuple[str, ...] = ()
    init_step: int | None = None
    """The number of the init step that failed: the end is that of this step."""
    seen: frozenset[Seen] = frozenset()

    @property
    def killed_by(self) -> int | None:
        """The signal that ended its program, also if the runtime reports it as an exit code."""
        if self.signal:
            return self.signal
        code = self.exit_code or 0
        return code - FIRST_SIGNAL_CODE if FIRST_SIGNAL_CODE < code <= FIRST_SIGNAL_CODE + MOST_SIGNAL else None

    @property
    def told(self) -> str:
        """All that is said of it, in one text."""
        return "\n".join(filter(None, (self.reason, self.ending, self.message, self.disruption)))


@dataclass(frozen=True, slots=True)
class Facts:
    """A failed attempt: its pods, the first to end first. `cause` is why it failed as far as Kubernetes says; `told` are
    its Jobs' failure messages, or why it could not start. `logs` has the ends of pods' logs by pod, None if they were
    not read.
    """

    cause: str
    pods: Sequence[PodFacts] = ()
    told: Sequence[str] = ()
    is_late: bool = False
    cannot_start: bool = False
    logs: Mapping[str, str] | None = None


def with_seen(facts: Facts) -> tuple[PodFacts, ...]:
    """Its pods with what is seen of each; a pod without a name stands for an attempt of which no pod is known.

    If some pod was disrupted, its peers fail because they miss it: only disrupted pods count then.
    """
    pods = facts.pods
    if facts.cause in _BY_CAUSE and any(pod.disruption for pod in pods):
        pods = [pod for pod in pods if pod.disruption]
    elif any(pod.exit_code or pod.ending or pod.reason for pod in pods):
        pods = [pod for pod in pods if pod.exit_code or pod.ending or pod.reason]
    return tuple(replace(pod, seen=_seen(pod, facts)) for pod in pods) or (PodFacts(seen=_seen(PodFacts(), facts)),)


def _seen(pod: PodFacts, facts: Facts) -> frozenset[Seen]:
    told = "\n".join((pod.told, *facts.told)).lower() if not pod.name or facts.cannot_start else pod.told.lower()
    found = {_BY_CAUSE[facts.cause]} if facts.cause in _BY_CAUSE else set()
    if facts.is_late:
        found.add(Seen.DEADLINE)
    if pod.ending == "OOMKilled":
        found.add(Seen.OUT_OF_MEMORY)
    if pod.reason.partition(":")[0] == "Evicted":
        found.add(Seen.EVICTED)
    is_the_clusters_word = pod.reason or facts.cannot_start or found & {Seen.EVICTED}
    if is_the_clusters_word and any(text in told for text in _STORAGE_TEXTS):
        found.add(Seen.STORAGE)
    if (facts.cannot_start or pod.ending in _NEVER_RAN) and Seen.STORAGE not in found:
        found.add(Seen.IMAGE)
    if any(text in taint.lower() for taint in pod.taints for text in DEVICE_TEXTS):
        found.add(Seen.DEVICE)
    return frozenset(found)
