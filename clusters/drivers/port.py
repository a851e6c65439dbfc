"""The port itself: values from clusters, errors, and the protocol of both drivers."""

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol, TypeVar

from clusters.engine.escapes import Answered, Rehearsal
from clusters.engine.images import NO_IMAGES, NodeImages
from clusters.engine.permissions import Right
from clusters.engine.resource_slices import ClaimSeen, SliceSeen

from .exchanges import PortAnswer, PortRequest, PortStream

_Method = TypeVar("_Method")
_IDENTITY = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,63}")
AS_CREATED = 1
"""The generation of an object whose spec was never changed."""


class DriverError(Exception):
    """A cluster did not do what was asked. `reason` is short and safe to show; it never contains a credential."""

    def __init__(self, reason: str, *, status: int = 0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.status = status


class Refused(DriverError):
    """The API server refused permanently (4xx): no change was made, and the same request will fail again."""


class AlreadyExists(Refused):
    """An object of that name exists (409 on create)."""


class NotThere(Refused):
    """No such object (404)."""


class Stale(Refused):
    """A precondition (uid or resourceVersion) failed (409 or 422): another object has that name now."""


class AuthFailed(DriverError):
    """The credential is no longer accepted (401)."""


class Throttled(DriverError):
    """The API server asks the client to wait (429); no change was made."""

    def __init__(self, reason: str, *, retry_after_seconds: float = 1.0) -> None:
        super().__init__(reason, status=429)
        self.retry_after_seconds = retry_after_seconds


class IdentityRefused(Refused):
    """The cluster's identity is invalid: the uid of its kube-system namespace is not a uid."""


class Unreachable(DriverError):
    """No connection could be made: no request was sent, so no change was made."""


class TlsFailed(Unreachable):
    """The server's certificate could not be verified, or the handshake failed: no request was sent."""


class Ambiguous(DriverError):
    """The request may or may not have taken effect (time-out, cut response, 5xx). Check before acting."""


class NotAnswered(Refused):
    """A program in a pod gave no answer, or none that the gateway passes on. That is no fault of its cluster."""


def checked_identity(uid: str) -> str:
    """The uid of a kube-system namespace, or IdentityRefused."""
    if _IDENTITY.fullmatch(uid) is None:
        raise IdentityRefused("the uid of its kube-system namespace is not a Kubernetes uid", status=200)
    return uid


class TooMuch(Ambiguous):
    """The cluster sends more than the gateway accepts or keeps of one cluster: an immediate retry will fail too."""


@dataclass(frozen=True, slots=True)
class RulesSeen:
    """The resource rules of a credential in one namespace. They are incomplete if an authorizer (a webhook, say)
    decides case by case and cannot list its rules.
    """

    rules: Sequence[Mapping[str, Any]]
    is_complete: bool = True


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """A Node object, reduced to what placement needs. Quantities in `allocatable` are Kubernetes' own strings.

    `images` changes with every pull, so nodes that differ only in it are equal: their inventory is not written again.
    """

    name: str
    uid: str
    labels: Mapping[str, str]
    taints: Sequence[Mapping[str, str]]
    allocatable: Mapping[str, str]
    is_ready: bool
    is_schedulable: bool
    images: NodeImages = field(default=NO_IMAGES, compare=False)


@dataclass(frozen=True, slots=True)
class PodSeen:
    """A Pod, ours or foreign. `requests` sums its containers' requests (init containers as Kubernetes counts them).

    `started_at` is the pod's start (status.startTime) and `finished_at` its last container's end. `exit_code` is the
    first non-zero one, else 0 once all have ended. `gates` are the names of the scheduling gates that it still has.
    `owner` is the uid of the batch/v1 Job that controls it, empty if none does, and `index` its index in that Job.
    Only for our own pods: `disruption` is what removes it from its node (the reason of the condition DisruptionTarget),
    `ending` why the container ended (`OOMKilled`) whose exit code it has, `signal` the signal that ended it, and `message`
    what the container or the cluster says of its end (at most 300 printable characters), `image` its image as its spec
    names it, and `pull_seconds` the time from when its sandbox was ready until the container first ran; None if that is
    not known. `init_step` is the number, from 1, of the init step that failed: then the end is that of this step, and
    the pod's own container never ran.
    """

    namespace: str
    name: str
    uid: str
    labels: Mapping[str, str]
    node: str
    phase: str
    reason: str
    requests: Mapping[str, str]
    started_at: datetime | None
    finished_at: datetime | None
    exit_code: int | None
    is_terminating: bool
    gates: Sequence[str] = ()
    owner: str = ""
    index: int | None = None
    disruption: str = ""
    ending: str = ""
    signal: int | None = None
    message: str = ""
    image: str = ""
    pull_seconds: int | None = None
    init_step: int | None = None


@dataclass(frozen=True, slots=True)
class JobSeen:
    """A batch/v1 Job of ours. `outcome` is `succeeded` or `failed` once Complete or Failed is true, else empty.

    `started_at` is when it was last unsuspended. `ended_pods` is the number of its pods that have ended, as its
    controller counted them, whether they still exist or not. `parallelism` is how many run at the same time.
    `generation` is 1 as it was created, and grows with each change of its spec, such as a release or a suspension.
    """

    namespace: str
    name: str
    uid: str
    labels: Mapping[str, str]
    suspended: bool
    outcome: Literal["", "succeeded", "failed"]
    reason: str
    message: str
    finished_at: datetime | None
    is_terminating: bool
    started_at: datetime | None = None
    ended_pods: int = 0
    parallelism: int = 1
    generation: int = AS_CREATED

    @property
    def is_as_created(self) -> bool:
        """Whether it is still suspended by its creation, and was not released since: then others may have suspended it again."""
        return self.suspended and self.generation == AS_CREATED


@dataclass(frozen=True, slots=True)
class ServiceSeen:
    """A Service. `owners` are the uids of its owners, and `selector` is the labels by which it selects pods.

    `is_headless`: it has no address and forwards nothing, neither inside the cluster nor outside; it only gives pods names.
    """

    namespace: str
    name: str
    uid: str
    labels: Mapping[str, str]
    owners: Sequence[str]
    selector: Mapping[str, str]
    is_headless: bool
    is_terminating: bool


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One step of a list-then-watch.

    `listed` carries all objects and comes first and after every new list: an object that is missing from it is gone.
    `changed` and `deleted` carry one object. `alive` carries nothing and shows that the stream works.
    """

    kind: Literal["listed", "changed", "deleted", "alive"]
    objects: Sequence[NodeSeen | PodSeen | JobSeen | SliceSeen | ClaimSeen]


def unguarded(method: _Method) -> _Method:
    """Marks a method of the port that works without the guard's limit of concurrent calls and its circuit breaker."""
    method.__unguarded__ = True  # type: ignore[attr-defined]
    return method


def is_unguarded(method: object) -> bool:
    """Whether the method is marked so."""
    return getattr(method, "__unguarded__", False)


class ClusterDriver(Protocol):
    """The calls that the gateway may make to one cluster. Every method has its own time limit and raises only
    DriverError. The guard (`guard.py`) applies to every method that is not marked `unguarded`.

    An instance belongs to one event loop. Close it when done.
    """

    async def version(self) -> str:
        """The server's version, such as `v1.36.2`."""

    async def identity(self) -> str:
        """The uid of the kube-system namespace, which identifies the cluster."""

    async def clock_skew_ms(self) -> int:
        """The cluster's clock minus ours, in milliseconds, to within a round trip (from the Date header)."""

    async def rules(self, namespace: str) -> RulesSeen:
        """The rights of our credential in `namespace`, from SelfSubjectRulesReview."""

    async def may(self, right: Right, namespace: str = "") -> bool:
        """Whether our credential has this right there, from SelfSubjectAccessReview; without a namespace,
        everywhere.
        """

    async def api_groups(self) -> frozenset[str]:
        """The API groups that the cluster serves, such as `batch`."""

    async def rehearse(self, rehearsal: Rehearsal) -> Answered:
        """Whether the cluster would do this with our credential, by a dry run of verbs in the role. It
        changes nothing.
        """

    async def any_pod(self, namespace: str) -> str:
        """The name of any pod there, empty if there is none."""

    async def ensure_namespace(
        self, name: str, labels: Mapping[str, str], policies: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        """Creates the namespace if it does not exist, with our labels and the pod security level `restricted`. Ensures
        that these NetworkPolicies exist in it as written. Cheap to repeat.
        """

    async def put_network_policy(self, manifest: Mapping[str, Any]) -> None:
        """Creates the NetworkPolicy, or updates the existing one to this manifest. NotThere: its namespace does not
        exist.
        """

    async def ensure_claim_template(self, manifest: Mapping[str, Any]) -> None:
        """Ensures that the ResourceClaimTemplate (`resource.k8s.io/v1`) exists. Cheap to repeat. NotThere: its
        namespace does not exist. Refused: another template of its name has a different spec, which is immutable.
        """

    async def create_service(self, manifest: Mapping[str, Any]) -> None:
        """Creates the Service. It is deleted with the last of its owners. NotThere means its namespace does not exist."""

    async def get_service(self, namespace: str, name: str) -> ServiceSeen:
        """The Service as it is now."""

    async def create_secret(self, manifest: Mapping[str, Any]) -> None:
        """Creates the Secret, which its owner's deletion deletes. AlreadyExists: one of its name exists. NotThere: its
        namespace does not exist. No error repeats what the cluster says, which may be the values.
        """

    async def create_job(self, manifest: Mapping[str, Any]) -> str:
        """Creates the batch/v1 Job; returns its uid. NotThere means its namespace does not exist."""

    async def get_job(self, namespace: str, name: str) -> JobSeen:
        """The Job as it is now."""

    async def release_job(self, namespace: str, name: str, uid: str, template_patch: Mapping[str, Any]) -> None:
        """Unsuspends the Job with this uid, as it was created, and sets these fields of its pods' spec. Stale if another object has
        the name, or if anyone has changed its spec: it was released before, and may have been suspended again since.
        """

    async def delete_job(self, namespace: str, name: str, uid: str) -> None:
        """Deletes the Job with this uid and its pods (Stale if another object has the name, NotThere if gone)."""

    async def list_jobs(self) -> Sequence[JobSeen]:
        """All Jobs that carry our install label."""

    async def list_pods(self, namespace: str, job_name: str) -> Sequence[PodSeen]:
        """The pods of one Job."""

    async def open_gate(
        self, namespace: str, pod: str, uid: str, gate: str, wishes: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        """Removes a scheduling gate from the pod with this uid (Stale if another has the name, NotThere if gone). The
        same step makes the pod prefer the nodes in `wishes`: they replace the preferred terms of its node affinity.
        Cheap to repeat: a pod without this gate does not change if `wishes` is empty.
        """

    async def read_log(
        self, namespace: str, pod: str, *, tail_lines: int, limit_bytes: int, container: str = ""
    ) -> str:
        """The end of the log of one container of a pod; empty: of its only one besides init steps and sidecars."""

    @unguarded
    async def ask_pod(self, namespace: str, pod: str, port: int, request: PortRequest) -> PortAnswer:
        """The answer of the program that listens on this port of the pod, on its loopback address.

        Unguarded: how long it takes is up to the program, which must not use up the cluster's calls or open its breaker.
        Raises NotAnswered if the program does not answer, NotThere for the pod, Refused if the gateway's account may not
        reach pods.
        """

    @unguarded
    def open_port(self, namespace: str, pod: str, port: int) -> AbstractAsyncContextManager[PortStream]:
        """A connection to that program, for as long as the block lasts: hours, if its user works with it.

        Unguarded, and raises the same as `ask_pod`.
        """

    @unguarded
    def watch_nodes(self) -> AsyncIterator[WatchEvent]:
        """All nodes, listed then watched, until cancelled; raises DriverError if the stream cannot be maintained."""

    @unguarded
    def watch_pods(self) -> AsyncIterator[WatchEvent]:
        """All pods of the cluster, ours and foreign."""

    @unguarded
    def watch_jobs(self) -> AsyncIterator[WatchEvent]:
        """All Jobs that carry our install label."""

    async def device_classes(self) -> frozenset[str]:
        """The names of the cluster's DeviceClasses; empty if devices cannot be claimed."""

    @unguarded
    def watch_slices(self) -> AsyncIterator[WatchEvent]:
        """All ResourceSlices; none on a cluster that does not serve them. Raises Refused if we may not read them."""

    @unguarded
    def watch_claims(self) -> AsyncIterator[WatchEvent]:
        """All ResourceClaims, ours and foreign; otherwise as `watch_slices`."""

    @unguarded
    async def close(self) -> None:
        """Frees connections and tasks."""
