"""The port itself: values that come from clusters, errors, and the protocol both drivers fulfil."""

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol

from clusters.engine.escapes import Answered, Rehearsal
from clusters.engine.permissions import Right
from clusters.engine.resource_slices import ClaimSeen, SliceSeen

_IDENTITY = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,63}")


class DriverError(Exception):
    """A cluster did not do what was asked. `reason` is short and safe to show; it never holds a credential."""

    def __init__(self, reason: str, *, status: int = 0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.status = status


class Refused(DriverError):  # noqa: N818 - says what happened
    """The API server said no for good (4xx): nothing was changed, and asking again the same way is useless."""


class AlreadyExists(Refused):
    """An object of that name exists (409 on create)."""


class NotThere(Refused):
    """No such object (404)."""


class Stale(Refused):
    """A precondition (uid or resourceVersion) did not hold (409 or 422): another object bears that name now."""


class AuthFailed(DriverError):  # noqa: N818 - says what happened
    """The credential is no longer accepted (401)."""


class Throttled(DriverError):  # noqa: N818 - says what happened
    """The API server asks to wait (429); nothing was changed."""

    def __init__(self, reason: str, *, retry_after_seconds: float = 1.0) -> None:
        super().__init__(reason, status=429)
        self.retry_after_seconds = retry_after_seconds


class IdentityRefused(Refused):
    """The cluster says that it is something that no cluster can be: the uid of its kube-system namespace is none."""


class Unreachable(DriverError):  # noqa: N818 - says what happened
    """No connection could be made: nothing was sent, so nothing was changed."""


class TlsFailed(Unreachable):
    """The server's certificate could not be verified, or the handshake failed: nothing was sent."""


class Ambiguous(DriverError):  # noqa: N818 - says what happened
    """The request may or may not have taken effect (time-out, cut reply, 5xx). Look before acting."""


def checked_identity(uid: str) -> str:
    """The uid of a kube-system namespace, or IdentityRefused."""
    if _IDENTITY.fullmatch(uid) is None:
        raise IdentityRefused("the uid of its kube-system namespace is not a Kubernetes uid", status=200)
    return uid


class TooMuch(Ambiguous):
    """The cluster says more than the gateway takes or keeps of one cluster: asking again at once is useless."""


@dataclass(frozen=True, slots=True)
class RulesSeen:
    """The resource rules of a credential in one namespace. They are not complete where an authorizer (a webhook, say)
    decides case by case and can list nothing.
    """

    rules: Sequence[Mapping[str, Any]]
    is_complete: bool = True


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """A Node object, reduced to what placement needs. Quantities are Kubernetes' own strings in `allocatable`."""

    name: str
    uid: str
    labels: Mapping[str, str]
    taints: Sequence[Mapping[str, str]]
    allocatable: Mapping[str, str]
    is_ready: bool
    is_schedulable: bool


@dataclass(frozen=True, slots=True)
class PodSeen:
    """A Pod, ours or a stranger's. `requests` sums its containers' requests (init containers as Kubernetes counts them).

    `started_at`/`finished_at` are the pod's start (status.startTime) and its last container's end; `exit_code` is the
    first non-zero one, else 0 once all have ended. `gates` are the names of what still keeps it from being scheduled.
    `owner` is the uid of the batch/v1 Job that controls it, empty where none does, and `index` its index in that Job.
    `disruption` is who takes it from its node (the reason of the condition DisruptionTarget), of our own pods alone.
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


@dataclass(frozen=True, slots=True)
class JobSeen:
    """A batch/v1 Job of ours. `outcome` is `succeeded` or `failed` once Complete or Failed is true, else empty.

    `started_at` is when it was last unsuspended, and `ended_pods` how many of its pods have ended, as its controller counted
    them, whether they still exist or not.
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


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One step of a list-then-watch.

    `listed` carries everything that exists (a fresh list: what is missing from it is gone) and comes first and after
    every re-list; `changed` and `deleted` carry one object; `alive` carries nothing and proves that the stream lives.
    """

    kind: Literal["listed", "changed", "deleted", "alive"]
    objects: Sequence[NodeSeen | PodSeen | JobSeen | SliceSeen | ClaimSeen]


class ClusterDriver(Protocol):
    """What the gateway may ask of one cluster. Every method has its own time limit and raises only DriverError.

    An instance belongs to one event loop. Close it when done.
    """

    async def version(self) -> str:
        """The server's version, such as `v1.36.2`."""

    async def identity(self) -> str:
        """The uid of the kube-system namespace: who this cluster is."""

    async def clock_skew_ms(self) -> int:
        """The cluster's clock minus ours, in milliseconds, to within a round trip (from the Date header)."""

    async def rules(self, namespace: str) -> RulesSeen:
        """What our credential may do in `namespace`, as SelfSubjectRulesReview says it."""

    async def may(self, right: Right, namespace: str = "") -> bool:
        """Whether our credential has this right there, as SelfSubjectAccessReview says it; without a namespace, everywhere."""

    async def api_groups(self) -> frozenset[str]:
        """The API groups that the cluster serves, such as `batch`."""

    async def rehearse(self, rehearsal: Rehearsal) -> Answered:
        """Whether the cluster would do this with our credential; nothing is changed (a dry run, of verbs that the role has)."""

    async def any_pod(self, namespace: str) -> str:
        """The name of some pod there, empty if there is none."""

    async def ensure_namespace(
        self, name: str, labels: Mapping[str, str], policies: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        """Makes the namespace if it does not exist, with our labels and the pod security level `restricted`, and sees to
        it that these NetworkPolicies stand in it as they are written. Cheap to repeat.
        """

    async def put_network_policy(self, manifest: Mapping[str, Any]) -> None:
        """Creates the NetworkPolicy, or makes the one of that name say this. NotThere means its namespace does not exist."""

    async def ensure_claim_template(self, manifest: Mapping[str, Any]) -> None:
        """Sees to it that the ResourceClaimTemplate (`resource.k8s.io/v1`) stands. Cheap to repeat. NotThere means its namespace
        does not exist, Refused that another of its name says something else, which nobody can change.
        """

    async def create_job(self, manifest: Mapping[str, Any]) -> str:
        """Creates the batch/v1 Job; returns its uid. NotThere means its namespace does not exist."""

    async def get_job(self, namespace: str, name: str) -> JobSeen:
        """The Job as it is now."""

    async def release_job(self, namespace: str, name: str, uid: str, template_patch: Mapping[str, Any]) -> None:
        """Unsuspends the Job if it still has this uid (Stale otherwise), merging `template_patch` into its pod template."""

    async def delete_job(self, namespace: str, name: str, uid: str) -> None:
        """Deletes the Job with this uid and its pods (Stale if another object has the name, NotThere if gone)."""

    async def list_jobs(self) -> Sequence[JobSeen]:
        """All Jobs that carry our install label."""

    async def list_pods(self, namespace: str, job_name: str) -> Sequence[PodSeen]:
        """The pods of one Job."""

    async def open_gate(
        self, namespace: str, pod: str, uid: str, gate: str, wishes: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        """Takes a scheduling gate from the pod with this uid (Stale if another has the name, NotThere if gone), and in the
        same step has it prefer the nodes that `wishes` say: preferred terms of a node affinity, in place of those it has.
        Cheap to repeat: a pod that has no such gate any more and is told no wishes stays as it is.
        """

    async def read_log(self, namespace: str, pod: str, *, tail_lines: int, limit_bytes: int) -> str:
        """The end of a pod's log."""

    def watch_nodes(self) -> AsyncIterator[WatchEvent]:
        """All nodes, listed then watched, until cancelled; raises DriverError when the stream cannot be kept up."""

    def watch_pods(self) -> AsyncIterator[WatchEvent]:
        """All pods of the cluster, ours and strangers'."""

    def watch_jobs(self) -> AsyncIterator[WatchEvent]:
        """All Jobs that carry our install label."""

    async def device_classes(self) -> frozenset[str]:
        """The names of the cluster's DeviceClasses; none where devices cannot be claimed."""

    def watch_slices(self) -> AsyncIterator[WatchEvent]:
        """All ResourceSlices; a cluster that does not serve them has none. Raises Refused where we may not look."""

    def watch_claims(self) -> AsyncIterator[WatchEvent]:
        """All ResourceClaims, ours and strangers'; as `watch_slices`."""

    async def close(self) -> None:
        """Frees connections and tasks."""
