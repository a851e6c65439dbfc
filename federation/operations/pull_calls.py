"""The calls to a cluster for one pull of an image, beside those of every preparation (`preparation_calls`)."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from clusters.drivers import AlreadyExists, ClusterDriver, Refused
from federation.engine import names
from federation.engine.objects import job_secrets
from federation.engine.objects.job_secrets import SecretVersion
from federation.engine.objects.prepull_jobs import labels_of, render_pull
from federation.engine.objects.rendering import Identity
from federation.engine.prepulls import verdict

from .evidence import object_of, pods_of
from .preparation_calls import Made, Seen, failed, unless_released, unsuspend

LOCKED_SECRET = "Its pull secret cannot be opened with the gateway's keys. Restore the key, or store the secret again."  # noqa: S105
CHANGED_SECRET = "Its pull secret was changed or deleted meanwhile."  # noqa: S105


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


def versions_of(promised: Mapping[str, Any]) -> set[SecretVersion]:
    """The promised versions."""
    return job_secrets.versions_of(promised)


async def release(driver: ClusterDriver, pull: Pull) -> Made | Seen:
    """Gives the Job its pull secret, then releases it."""
    missing = job_secrets.versions_of(pull.promised) - set(pull.values)
    if missing:
        return failed(LOCKED_SECRET if missing & set(pull.closed) else CHANGED_SECRET)
    owner = (pull.name, pull.uid)
    try:
        for manifest in job_secrets.secret_manifests(pull.promised, pull.namespace, pull.identity, owner, pull.values):
            with suppress(AlreadyExists):  # its name is random: an earlier call for this pull made it
                await driver.create_secret(manifest)
    except Refused as error:
        return await unless_released(driver, pull, error)
    return await unsuspend(driver, pull)


async def read(driver: ClusterDriver, pull: Pull) -> Seen:
    """How the pull stands, from its own pod and its Job."""
    pods = await pods_of(driver, pull.namespace, pull.name, pull.uid)
    job = await object_of(driver, pull.cluster_identity, pull.namespace, pull.name, pull.uid)
    return Seen(verdict(pull.node, pods, job, pull.lasted))
