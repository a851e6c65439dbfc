"""The calls to a cluster for one pull of an image, beside those of every preparation (`preparation_calls`)."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from clusters.drivers import ClusterDriver
from federation.engine import names
from federation.engine.objects.job_secrets import SecretVersion
from federation.engine.objects.prepull_jobs import labels_of, render_pull
from federation.engine.objects.rendering import Identity
from federation.engine.prepulls import verdict

from .evidence import object_of, pods_of
from .preparation_calls import Seen


@dataclass(frozen=True, slots=True)
class Pull:
    """A pull with all that its calls need. `lasted` is the time since it was released, or begun before that."""

    image: str
    node: str
    identity: Identity
    cluster_identity: str
    uid: str
    tolerations: Sequence[Mapping[str, str]]
    promised: Mapping[str, Any]
    policies: Sequence[Mapping[str, Any]]
    lasted: timedelta
    values: Mapping[SecretVersion, bytes] = field(default_factory=dict, repr=False)
    closed: Collection[SecretVersion] = ()

    @property
    def labels(self) -> dict[str, str]:
        """Those by which its object is its own."""
        return labels_of(self.identity)

    def render(self) -> dict[str, Any]:
        """Its object."""
        return render_pull(self.image, self.node, self.identity, self.tolerations, self.promised)

    @property
    def name(self) -> str:
        """Its object's name."""
        return names.object_name(self.identity.attempt_id, 0)

    @property
    def namespace(self) -> str:
        """Its tenant's namespace."""
        return self.identity.namespace


async def read(driver: ClusterDriver, pull: Pull) -> Seen:
    """How the pull stands, from its own pod and its Job."""
    pods = await pods_of(driver, pull.namespace, pull.name, pull.uid)
    job = await object_of(driver, pull.cluster_identity, pull.namespace, pull.name, pull.uid)
    return Seen(verdict(pull.node, pods, job, pull.lasted))
