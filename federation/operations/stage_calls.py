"""The calls to a cluster for one copy of a dataset, beside those of every preparation (`preparation_calls`)."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple

from clusters.drivers import ClusterDriver, DriverError, PodSeen
from federation.engine import names
from federation.engine.objects.job_secrets import SecretVersion
from federation.engine.objects.rendering import Identity
from federation.engine.objects.stage_jobs import labels_of, render_stage_in
from federation.engine.prepulls import Verdict
from federation.engine.staging import Progress, progress_in, verdict

from .evidence import object_of, pods_of

LOG_LINES, LOG_BYTES = 20, 8192
UNREAD = Progress()


class Copied(NamedTuple):
    """How a copy stands, and how far it is."""

    verdict: Verdict
    progress: Progress


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy with all that its calls need. `lasted` is the time since it was released, or begun before that."""

    image: str
    sha256: str
    mounts: Sequence[Mapping[str, Any]]
    identity: Identity
    cluster_identity: str
    uid: str
    policies: Sequence[Mapping[str, Any]]
    lasted: timedelta
    store: Mapping[str, str] = field(default_factory=dict)
    promised: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[SecretVersion, bytes] = field(default_factory=dict, repr=False)
    closed: Collection[SecretVersion] = ()

    @property
    def name(self) -> str:
        """Its object's name."""
        return names.object_name(self.identity.attempt_id, 0)

    @property
    def namespace(self) -> str:
        """Its tenant's namespace."""
        return self.identity.namespace

    @property
    def labels(self) -> dict[str, str]:
        """Those by which its object is its own."""
        return labels_of(self.identity)

    def render(self) -> dict[str, Any]:
        """Its object."""
        return render_stage_in(self.image, self.sha256, self.identity, self.mounts, self.store, self.promised)


async def read(driver: ClusterDriver, copy: Copy) -> Copied:
    """How the copy stands, from its own pod and its Job, and what it has written last."""
    pods = await pods_of(driver, copy.namespace, copy.name, copy.uid)
    job = await object_of(driver, copy.cluster_identity, copy.namespace, copy.name, copy.uid)
    progress = await _progress(driver, copy, pods)
    return Copied(verdict(pods, job, copy.lasted, progress, copy.sha256), progress)


async def _progress(driver: ClusterDriver, copy: Copy, pods: Sequence[PodSeen]) -> Progress:
    """What its pod has written; nothing if its log cannot be read, which ends no copy."""
    pod = next((one for one in pods if one.phase != "Pending"), None)
    if pod is None:
        return UNREAD
    try:
        log = await driver.read_log(copy.namespace, pod.name, tail_lines=LOG_LINES, limit_bytes=LOG_BYTES)
    except DriverError:  # the API server asks the node for it, which may not answer
        return UNREAD
    return progress_in(log)
