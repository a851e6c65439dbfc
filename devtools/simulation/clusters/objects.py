"""The objects of a simulated cluster, and what really ran on its nodes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from clusters.drivers import JobSeen, NodeSeen, PodSeen, Stale
from clusters.drivers.kubernetes.requests import effective_requests
from clusters.drivers.port import AS_CREATED
from clusters.engine.inventory import INSTALL_LABEL
from clusters.engine.quantities import parse
from devtools.simulation.core.scheduler import MICROSECONDS

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
GPU = "nvidia.com/gpu"
Key = tuple[str, str]


@dataclass(slots=True)
class Node:
    """A node with GPUs. A dead one runs nothing."""

    name: str
    uid: str
    gpus: int
    cpu: int = 96
    is_ready: bool = True
    product: str = "NVIDIA-H100-80GB-HBM3"
    rack: str = ""
    taints: list[dict[str, str]] = field(default_factory=list)

    @property
    def is_open(self) -> bool:
        """Whether pods may be scheduled there."""
        return self.is_ready and all(taint["effect"] == "PreferNoSchedule" for taint in self.taints)

    def seen(self) -> NodeSeen:
        """The port's view."""
        labels = {"kubernetes.io/hostname": self.name, "nvidia.com/gpu.product": self.product}
        if self.rack:
            labels["topology.kubernetes.io/rack"] = self.rack
        amounts = {"cpu": str(self.cpu), "memory": "1024Gi", "pods": "110", GPU: str(self.gpus)}
        return NodeSeen(
            self.name, self.uid, labels, list(self.taints), amounts, is_ready=self.is_ready, is_schedulable=True
        )


@dataclass(slots=True)
class Job:
    """A Job and what its controller has counted."""

    namespace: str
    name: str
    uid: str
    labels: dict[str, str]
    template: dict[str, Any]
    suspended: bool
    completions: int
    parallelism: int
    deadline_seconds: float | None
    started_us: int | None = None
    finished_us: int | None = None
    succeeded: set[int] = field(default_factory=set)
    failed: int = 0
    outcome: Literal["", "succeeded", "failed"] = ""
    reason: str = ""
    message: str = ""
    is_terminating: bool = False
    generation: int = AS_CREATED
    waits_for_kueue: bool = False
    """Kueue took its quota away, and admits it again."""

    @property
    def key(self) -> Key:
        """Its name in its namespace."""
        return self.namespace, self.name

    @property
    def is_as_created(self) -> bool:
        """Whether it is suspended by its creation."""
        return self.suspended and self.generation == AS_CREATED

    def turn(self, *, suspended: bool) -> None:
        """Kueue suspends it, or resumes it."""
        self.suspended = self.waits_for_kueue = suspended
        self.generation += 1

    def require_as_created(self) -> None:
        """Raises Stale if anyone has changed its spec."""
        if self.generation != AS_CREATED:
            raise Stale("the server rejected our request due to an error in our request", status=422)


def _asked(container: Mapping[str, Any]) -> Mapping[str, str]:
    found: Mapping[str, str] = container.get("resources", {}).get("requests", {})
    return found


@dataclass(slots=True)
class Pod:
    """A pod as its API server shows it."""

    namespace: str
    name: str
    uid: str
    labels: dict[str, str]
    job_uid: str
    index: int
    spec: dict[str, Any]
    run_seconds: float
    exit_code: int
    node: str = ""
    phase: str = "Pending"
    reason: str = ""
    started_us: int | None = None
    finished_us: int | None = None
    code: int | None = None
    is_terminating: bool = False
    is_let_go: bool = False
    """Its Job was suspended: its controller removed the finalizer, and does not count how the pod ends."""
    disruption: str = ""
    ending: str = ""
    """Why its container ends, if its program ends."""
    init_step: int | None = None
    """The number of the init step that failed."""
    gates: set[str] = field(default_factory=set)
    """Its scheduling gates: with one, it gets no node."""

    @property
    def is_ended(self) -> bool:
        """Whether it has run to its end."""
        return self.phase in {"Succeeded", "Failed"}

    @property
    def requests(self) -> Mapping[str, str]:
        """What it asks for, as Kubernetes counts it."""
        own, beside = self.spec["containers"], self.spec.get("initContainers", ())
        return effective_requests(
            [_asked(one) for one in own], [(_asked(one), "restartPolicy" in one) for one in beside]
        )

    @property
    def init_steps(self) -> int:
        """The number of programs that run before its own."""
        return sum("restartPolicy" not in one for one in self.spec.get("initContainers", ()))


@dataclass(slots=True)
class Run:
    """What really happened on a node: the judges' evidence. `is_residue`: Kubernetes made the pod, although the gateway
    had not asked for another (a control plane put back to an earlier state).
    """

    cluster: str
    pod_uid: str
    job_uid: str
    job_id: str
    attempt_id: str
    index: int
    gpus: int
    node: str
    from_us: int
    to_us: int | None = None
    shown_us: int | None = None
    """When its API server says that it ended: later, if the node died."""
    code: int | None = None
    is_residue: bool = False
    is_disrupted: bool = False
    """Whether an eviction or the death of its node ended it."""
    is_late: bool = False
    """Whether its Job was already being deleted when it began."""
    was_committed: bool = True
    """Whether the gateway's database had committed to the attempt when the pod started."""


def seen(thing: Node | Pod | Job) -> NodeSeen | PodSeen | JobSeen:
    """The port's view."""
    if isinstance(thing, Node):
        return thing.seen()
    if isinstance(thing, Pod):
        return PodSeen(
            thing.namespace, thing.name, thing.uid, dict(thing.labels), thing.node, thing.phase, thing.reason,
            dict(thing.requests), instant(thing.started_us), instant(thing.finished_us), thing.code,
            is_terminating=thing.is_terminating, owner=thing.job_uid, index=thing.index, disruption=thing.disruption,
            gates=tuple(sorted(thing.gates)), ending=thing.ending if thing.is_ended else "",
            init_step=thing.init_step,
        )  # fmt: skip
    return JobSeen(
        thing.namespace, thing.name, thing.uid, dict(thing.labels), suspended=thing.suspended, outcome=thing.outcome,
        reason=thing.reason, message=thing.message, finished_at=instant(thing.finished_us),
        is_terminating=thing.is_terminating, started_at=instant(thing.started_us),
        ended_pods=len(thing.succeeded) + thing.failed, parallelism=thing.parallelism, generation=thing.generation,
    )  # fmt: skip


def is_ours(job: Job, install: str) -> bool:
    """Whether the Job carries our label."""
    return job.labels.get(INSTALL_LABEL) == install


def gpus_of(pod: Pod) -> int:
    """How many GPUs it asks for."""
    return int(parse(pod.requests.get(GPU, "0")))


def secrets_of(pod: Pod) -> set[str]:
    """The names of the Secrets that it needs to start."""
    containers = [*pod.spec["containers"], *pod.spec.get("initContainers", ())]
    variables = [one.get("valueFrom", {}).get("secretKeyRef") for each in containers for one in each.get("env", ())]
    found = {one["name"] for one in (*pod.spec.get("imagePullSecrets", ()), *variables) if one}
    return found | {one["secret"]["secretName"] for one in pod.spec.get("volumes", ()) if "secret" in one}


def instant(microseconds: int | None) -> datetime | None:
    """The time as Kubernetes shows it: in whole seconds."""
    if microseconds is None:
        return None
    return EPOCH + timedelta(seconds=microseconds // MICROSECONDS)


def accepts(terms: Any, node: Node) -> bool:
    """Whether the node fits one of the terms of a required node affinity."""
    if terms is None:
        return True
    labels: dict[str, str] = dict(node.seen().labels)
    return any(
        all(_test(one, node.name) for one in term.get("matchFields", ()))
        and all(_test(one, labels.get(one["key"])) for one in term.get("matchExpressions", ()))
        for term in terms
    )


def _test(expression: Mapping[str, Any], value: str | None) -> bool:
    match expression["operator"]:
        case "In":
            return value in expression["values"]
        case "NotIn":
            return value not in expression["values"]
        case "Exists":
            return value is not None
        case "Gt" | "Lt":
            if not (value or "").isdigit():
                return False
            number, bound = int(value or ""), int(expression["values"][0])
            return number > bound if expression["operator"] == "Gt" else number < bound
        case _:
            return value is None
