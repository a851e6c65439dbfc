"""The fields of Kubernetes' objects that the gateway reads, and their conversion to the port's values.

The decoder skips all other fields (managedFields, specs, annotations), which never become Python objects.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import lru_cache
from types import MappingProxyType
from typing import Annotated, Generic, Literal, TypeVar

import msgspec

from clusters.drivers.port import AS_CREATED, JobSeen, PodSeen
from clusters.engine.images import LONGEST_NAME
from clusters.engine.inventory import INSTALL_LABEL

from .decoding import decode
from .endings import end_of, line
from .requests import Requests, effective_requests, summed

_NO_LABELS: Mapping[str, str] = MappingProxyType({})
_INDEX = "batch.kubernetes.io/job-completion-index"
_MOST_DIGITS = 9


# Limits that Kubernetes itself never exceeds. A list that exceeds one is not from Kubernetes and is refused whole.
Name = Annotated[str, msgspec.Meta(max_length=253)]
Uid = Annotated[str, msgspec.Meta(max_length=64)]
Key = Annotated[str, msgspec.Meta(max_length=317)]
Value = Annotated[str, msgspec.Meta(max_length=63)]
Word = Annotated[str, msgspec.Meta(max_length=1024)]
Quantity = Annotated[str, msgspec.Meta(max_length=64)]
Quantities = Annotated[dict[Key, Quantity], msgspec.Meta(max_length=256)]
Many = msgspec.Meta(max_length=1000)
Instant = Annotated[datetime, msgspec.Meta(tz=True)]
LONGEST_REASON = 300


class Struct(msgspec.Struct, rename="camel", gc=False):
    """Structs of plain values: the garbage collector need not track them."""


class _Owner(Struct):
    api_version: Word = ""
    kind: Word = ""
    uid: Uid = ""
    controller: bool | None = None


class Meta(Struct):
    name: Name = ""
    namespace: Value = ""
    uid: Uid = ""
    resource_version: Word = ""
    labels: dict[str, str] | None = None
    deletion_timestamp: Instant | None = None


class _OwnMeta(Struct):
    uid: str = ""


class WhoItIs(Struct):
    """The namespace kube-system with any uid: the driver checks the uid later and reports it separately."""

    metadata: _OwnMeta


class OwnedMeta(Meta):
    """Decodes owners only of our own objects."""

    owner_references: msgspec.Raw = msgspec.Raw()


class _JobMeta(Meta):
    generation: int = AS_CREATED


class Bare(Struct):
    """Any object by its metadata only: bookmarks, namespaces, created jobs."""

    metadata: Meta


class Condition(Struct):
    type: Word = ""
    status: Word = ""
    reason: Word = ""
    message: str = ""
    last_transition_time: Instant | None = None


class _Resources(Struct):
    requests: Annotated[dict[Key, Quantity], msgspec.Meta(max_length=64)] | None = None


class _Container(Struct):
    image: str = ""
    resources: _Resources | None = None
    restart_policy: str | None = None


class _Gate(Struct):
    name: Key = ""


class _PodSpec(Struct):
    node_name: Name = ""
    scheduling_gates: Annotated[list[_Gate], msgspec.Meta(max_length=64)] | None = None
    containers: Annotated[list[_Container], Many] | None = None
    init_containers: Annotated[list[_Container], Many] | None = None
    overhead: Annotated[dict[Key, Quantity], msgspec.Meta(max_length=64)] | None = None
    resources: _Resources | None = None


class _Terminated(Struct):
    exit_code: Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)] = 0
    signal: Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)] = 0
    reason: Word = ""
    message: str = ""
    started_at: Instant | None = None
    finished_at: Instant | None = None


class _Waiting(Struct):
    reason: Word = ""
    message: str = ""


class _Running(Struct):
    started_at: Instant | None = None


class _ContainerState(Struct):
    running: _Running | None = None
    terminated: _Terminated | None = None
    waiting: _Waiting | None = None


class _ContainerStatus(Struct):
    state: _ContainerState | None = None


class _PodStatus(Struct):
    phase: Value = ""
    reason: Word = ""
    message: str = ""
    start_time: Instant | None = None
    container_statuses: Annotated[list[_ContainerStatus], Many] | None = None
    init_container_statuses: Annotated[list[_ContainerStatus], Many] | None = None
    conditions: Annotated[list[Condition], Many] | None = None


class Pod(Struct):
    metadata: OwnedMeta
    spec: _PodSpec = msgspec.field(default_factory=_PodSpec)
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)


class _JobSpec(Struct):
    suspend: bool | None = None
    parallelism: int | None = None


class _JobStatus(Struct):
    conditions: Annotated[list[Condition], Many] | None = None
    start_time: Instant | None = None
    completion_time: Instant | None = None
    succeeded: int | None = None
    failed: int | None = None


class Job(Struct):
    metadata: _JobMeta
    spec: _JobSpec = msgspec.field(default_factory=_JobSpec)
    status: _JobStatus = msgspec.field(default_factory=_JobStatus)


class ListMeta(msgspec.Struct, rename="camel"):
    resource_version: Word = ""
    continue_: Annotated[str, msgspec.Meta(max_length=8192)] = msgspec.field(default="", name="continue")


Item = TypeVar("Item")


class Page(msgspec.Struct, Generic[Item]):
    """One page of a list."""

    metadata: ListMeta
    items: list[Item] | None = None


def job_seen(job: Job) -> JobSeen:
    """The port's view of a Job. Only Complete and Failed end it; their precursors (SuccessCriteriaMet) do not."""
    outcome: Literal["", "succeeded", "failed"] = ""
    ended: Condition | None = None
    for condition in job.status.conditions or ():
        if condition.status == "True" and condition.type in {"Complete", "Failed"}:
            outcome, ended = ("succeeded" if condition.type == "Complete" else "failed"), condition
    return JobSeen(
        namespace=job.metadata.namespace,
        name=job.metadata.name,
        uid=job.metadata.uid,
        labels=job.metadata.labels or {},
        suspended=bool(job.spec.suspend),
        outcome=outcome,
        reason=line(ended.reason, 100) if ended else "",
        message=line(ended.message, 1000) if ended else "",
        finished_at=(job.status.completion_time or ended.last_transition_time) if ended else None,
        is_terminating=job.metadata.deletion_timestamp is not None,
        started_at=job.status.start_time,
        ended_pods=(job.status.succeeded or 0) + (job.status.failed or 0),
        parallelism=1 if job.spec.parallelism is None else job.spec.parallelism,
        generation=job.metadata.generation,
    )


def pod_seen(pod: Pod) -> PodSeen:
    """The port's view of a Pod. It omits foreign pods' labels: no code reads them, and there may be 100,000 of them."""
    labels = pod.metadata.labels or _NO_LABELS
    is_known = INSTALL_LABEL in labels
    failed = failed_step(pod) if pod.spec.init_containers else None
    finished_at, exit_code = _ending(pod)
    if failed is not None:
        finished_at, exit_code = failed[1].finished_at or finished_at, failed[1].exit_code
    return PodSeen(
        namespace=_shared(pod.metadata.namespace),
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        labels=labels if is_known else _NO_LABELS,
        node=_shared(pod.spec.node_name),
        phase=_shared(pod.status.phase),
        reason=_reason(pod),
        requests=_requests(pod.spec),
        started_at=pod.status.start_time,
        finished_at=finished_at,
        exit_code=exit_code,
        is_terminating=pod.metadata.deletion_timestamp is not None,
        gates=tuple(gate.name for gate in pod.spec.scheduling_gates) if pod.spec.scheduling_gates else (),
        owner=controller_of(pod.metadata, "batch/v1", "Job") if is_known else "",
        index=_index(pod.metadata) if is_known else None,
        disruption=_disruption(pod.status) if is_known else "",
        image=_image(pod.spec) if is_known else "",
        pull_seconds=_pull_seconds(pod.status) if is_known and not pod.spec.init_containers else None,
        init_step=failed[0] if failed is not None and is_known else None,
        **(end_of(_terminated(pod.status) if failed is None else [failed[1]], pod.status.message) if is_known else {}),
    )


def _step_states(pod: Pod) -> Iterable[tuple[bool, _ContainerState]]:
    """Each init container: whether it is a sidecar, and its state. Kubernetes lists both in the same order."""
    states = [status.state or _ContainerState() for status in pod.status.init_container_statuses or ()]
    sidecars = [container.restart_policy == "Always" for container in pod.spec.init_containers or ()]
    return zip(sidecars, states, strict=False)


def failed_step(pod: Pod) -> tuple[int, _Terminated] | None:
    """The number of the init step that ended the pod, and how it ended. None if the pod's own containers ran."""
    own = [container.state for container in pod.status.container_statuses or () if container.state]
    if pod.status.phase != "Failed" or any(state.terminated or state.running for state in own):
        return None
    steps = [state for is_sidecar, state in _step_states(pod) if not is_sidecar]
    ended = ((number, state.terminated) for number, state in enumerate(steps, 1) if state.terminated)
    return next(((number, end) for number, end in ended if end.exit_code), None)


def _image(spec: _PodSpec) -> str:
    """The image of the pod's only container; empty if it has several, or a name that no job may have."""
    images = [container.image for container in spec.containers or ()]
    return _shared(images[0]) if len(images) == 1 and len(images[0]) <= LONGEST_NAME else ""


def _pull_seconds(status: _PodStatus) -> int | None:
    """How long after its sandbox was ready the pod's container ran, in whole seconds, as Kubernetes writes times."""
    states = [container.state for container in status.container_statuses or () if container.state]
    began = [ran.started_at for state in states if (ran := state.running or state.terminated) and ran.started_at]
    told = (c for c in status.conditions or () if (c.type, c.status) == ("PodReadyToStartContainers", "True"))
    ready_at = next((condition.last_transition_time for condition in told), None)
    if not began or ready_at is None:
        return None
    seconds = int((min(began) - ready_at).total_seconds())
    return seconds if seconds >= 0 else None


_owners_decoder = msgspec.json.Decoder(list[_Owner] | None)


def controller_of(metadata: OwnedMeta, api_version: str, kind: str) -> str:
    """The uid of the object of this kind that controls it: the API server allows one controller per object. Empty if
    something else does, or nothing.
    """
    said = metadata.owner_references
    for owner in (decode(_owners_decoder, said) if bytes(said) else None) or ():
        if owner.controller:
            return owner.uid if (owner.api_version, owner.kind) == (api_version, kind) else ""
    return ""


def _index(metadata: OwnedMeta) -> int | None:
    text = (metadata.labels or {}).get(_INDEX, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else None


def _reason(pod: Pod) -> str:
    """The reason for the pod's state: its own reason, or before it runs, what its container or the
    scheduler waits for.
    """
    status = pod.status
    if status.reason or status.phase != "Pending":
        return line(status.reason, 100)
    states = [container.state for container in status.container_statuses or () if container.state]
    waiting = _step_waiting(pod) if pod.spec.init_containers and status.init_container_statuses else None
    waiting = waiting or next((state.waiting for state in states if state.waiting and state.waiting.reason), None)
    if waiting is None:
        told = (c for c in status.conditions or () if (c.type, c.status) == ("PodScheduled", "False") and c.reason)
        waiting = next((_Waiting(condition.reason, condition.message) for condition in told), None)
    if waiting is None:
        return ""
    return line(f"{waiting.reason}: {waiting.message}" if waiting.message else waiting.reason, LONGEST_REASON)


def _step_waiting(pod: Pod) -> _Waiting | None:
    """What an init step or sidecar waits for, or which init step runs."""
    found = list(_step_states(pod))
    for _, state in found:
        if state.waiting and state.waiting.reason not in ("", "PodInitializing"):
            return state.waiting
    steps = [state for is_sidecar, state in found if not is_sidecar]
    number = next((number for number, state in enumerate(steps, 1) if state.running), None)
    return None if number is None else _Waiting("Initializing", f"init step {number} of {len(steps)} runs")


def _disruption(status: _PodStatus) -> str:
    """What removes the pod from its node; empty if nothing does."""
    told = (c for c in status.conditions or () if (c.type, c.status) == ("DisruptionTarget", "True"))
    return next((line(condition.reason, 60) or "Unknown" for condition in told), "")


def _terminated(status: _PodStatus) -> list[_Terminated | None]:
    return [container.state.terminated if container.state else None for container in status.container_statuses or ()]


def _ending(pod: Pod) -> tuple[datetime | None, int | None]:
    """When the pod's last container ended, sidecars too, and the exit code of its program; a pod that ended without
    container states has none.
    """
    status, is_over = pod.status, pod.status.phase in {"Succeeded", "Failed"}
    own = _terminated(status)
    sidecars = [state.terminated for is_sidecar, state in _step_states(pod) if is_sidecar]
    if own and None not in own and (is_over or None not in sidecars):
        instants = [state.finished_at for state in (*own, *sidecars) if state and state.finished_at]
        return max(instants, default=None), next((state.exit_code for state in own if state and state.exit_code), 0)
    if is_over:
        instants = [found.last_transition_time for found in status.conditions or () if found.last_transition_time]
        return max(instants, default=None), None
    return None, None


@lru_cache(maxsize=65536)
def _shared(text: str) -> str:
    """The same string object for equal strings: 100,000 pods share their namespaces, nodes and phases."""
    return text


def _requests(spec: _PodSpec) -> Requests:
    containers = [_of(container) for container in spec.containers or ()]
    pod_level = (spec.resources.requests if spec.resources else None) or {}
    if len(containers) == 1 and not spec.init_containers and not spec.overhead and not pod_level:
        return _interned(tuple(containers[0].items()))
    init = [(_of(container), container.restart_policy == "Always") for container in spec.init_containers or ()]
    total = effective_requests(containers, init)
    total.update(pod_level)
    return _interned(tuple(summed([total, spec.overhead or {}]).items()))


@lru_cache(maxsize=8192)
def _interned(items: tuple[tuple[str, str], ...]) -> Requests:
    return MappingProxyType(dict(items))


def _of(container: _Container) -> dict[str, str]:
    return (container.resources.requests if container.resources else None) or {}
