"""The stored objects of a simulated cluster, and their conversion to the port's values."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from clusters.drivers.exchanges import PortAnswer, PortRequest
from clusters.drivers.port import AS_CREATED, JobSeen, NodeSeen, NotAnswered, PodSeen
from clusters.engine.images import packed
from clusters.engine.resource_slices import ClaimSeen, SliceSeen


class Node(msgspec.Struct):
    """A node; `pods` in `allocatable` limits its number of pods. `images` are names and sizes in bytes."""

    name: str
    uid: str
    labels: dict[str, str]
    allocatable: dict[str, str]
    taints: list[dict[str, str]] = []
    is_ready: bool = True
    is_schedulable: bool = True
    images: list[tuple[list[str], int]] = []

    def seen(self) -> NodeSeen:
        """The port's view."""
        return NodeSeen(
            self.name,
            self.uid,
            self.labels,
            self.taints,
            self.allocatable,
            self.is_ready,
            self.is_schedulable,
            packed(self.images),
        )


class Pod(msgspec.Struct):
    """A pod. Times are seconds since 1970; a pod without `ends_at` runs until it is deleted."""

    namespace: str
    name: str
    uid: str
    labels: dict[str, str]
    requests: dict[str, str]
    spec: dict[str, Any]
    job_uid: str = ""
    index: int = 0
    run_seconds: float | None = None
    exit_code: int = 0
    node: str = ""
    phase: str = "Pending"
    reason: str = ""
    made_at: float = 0.0
    started_at: float | None = None
    ends_at: float | None = None
    finished_at: float | None = None
    disruption: str = ""
    ending: str = ""
    signal: int | None = None
    message: str = ""
    log: str = ""
    init_step: int | None = None
    """The number of its init step that fails, if one does."""

    @property
    def is_ended(self) -> bool:
        """Whether it has run to its end."""
        return self.phase in {"Succeeded", "Failed"}

    def seen(self) -> PodSeen:
        """The port's view."""
        return PodSeen(
            namespace=self.namespace,
            name=self.name,
            uid=self.uid,
            labels=self.labels,
            node=self.node,
            phase=self.phase,
            reason=self.reason,
            requests=self.requests,
            started_at=_instant(self.started_at),
            finished_at=_instant(self.finished_at),
            exit_code=self.exit_code if self.is_ended else None,
            is_terminating=False,
            gates=self.gates,
            owner=self.job_uid,
            index=self.index if self.job_uid else None,
            disruption=self.disruption,
            ending=self.ending if self.is_ended else "",
            signal=self.signal if self.is_ended else None,
            message=self.message if self.is_ended else "",
            init_step=self.init_step if self.is_ended else None,
        )

    @property
    def writer(self) -> str:
        """The name of the container that writes its log: the init step that failed, or its own."""
        containers = self.spec.get("initContainers" if self.init_step else "containers") or [{}]
        return str(containers[(self.init_step or 1) - 1].get("name", ""))

    def answer(self, port: int, request: PortRequest) -> PortAnswer:
        """What its program answers: the request, as text."""
        if self.phase != "Running":
            raise NotAnswered("nothing answers on this port of the pod", status=502)
        head = [
            f"{request.method} {request.target} on {port}",
            *(f"{name}: {value}" for name, value in request.headers),
        ]
        return PortAnswer(200, [("Content-Type", "text/plain")], "\n".join([*head, ""]).encode() + request.body)

    @property
    def gates(self) -> tuple[str, ...]:
        """The gates that keep it from being scheduled."""
        return tuple(gate["name"] for gate in self.spec.get("schedulingGates", ()))


class Job(msgspec.Struct):
    """A Job and what its controller has counted."""

    namespace: str
    name: str
    uid: str
    labels: dict[str, str]
    template: dict[str, Any]
    suspended: bool
    completions: int
    parallelism: int
    backoff_limit: int
    deadline_seconds: float | None = None
    started_at: float | None = None
    succeeded: list[int] = []
    failures: int = 0
    outcome: Literal["", "succeeded", "failed"] = ""
    reason: str = ""
    message: str = ""
    finished_at: float | None = None
    generation: int = AS_CREATED

    @property
    def due_at(self) -> float | None:
        """When its deadline ends it, unless it ends earlier."""
        if self.outcome or self.started_at is None or self.deadline_seconds is None:
            return None
        return self.started_at + self.deadline_seconds

    def seen(self) -> JobSeen:
        """The port's view."""
        return JobSeen(
            namespace=self.namespace,
            name=self.name,
            uid=self.uid,
            labels=self.labels,
            suspended=self.suspended,
            outcome=self.outcome,
            reason=self.reason,
            message=self.message,
            finished_at=_instant(self.finished_at),
            is_terminating=False,
            started_at=_instant(self.started_at),
            ended_pods=len(self.succeeded) + self.failures,
            parallelism=self.parallelism,
            generation=self.generation,
        )


class Slice(msgspec.Struct):
    """A ResourceSlice; `published` is its content."""

    name: str
    uid: str
    published: SliceSeen

    def seen(self) -> SliceSeen:
        """The port's view."""
        return self.published


class Claim(msgspec.Struct):
    """A ResourceClaim with its allocated devices; one made for a pod is deleted with the pod."""

    namespace: str
    name: str
    uid: str
    labels: dict[str, str]
    devices: tuple[tuple[str, str, str], ...]
    pod_uid: str = ""

    def seen(self) -> ClaimSeen:
        """The port's view."""
        return ClaimSeen(
            self.namespace, self.name, self.uid, self.labels, self.devices, self.pod_uid if self.labels else ""
        )


def _instant(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def merged(target: Any, patch: Any) -> Any:
    """RFC 7396: `patch` merged into a copy of `target`."""
    if not isinstance(patch, Mapping):
        return patch
    base = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            base.pop(key, None)
        else:
            base[key] = merged(base.get(key), value)
    return base
