"""The calls to a cluster for one preparation, such as a pull of an image, and the meaning of their answers. Asynchronous, without a
database.

Each call raises DriverError if its result is unknown or nothing was done: it is repeated later.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple, Protocol

from clusters.drivers import AlreadyExists, ClusterDriver, JobSeen, NotThere, Refused, Stale
from federation.engine import names
from federation.engine.objects import job_secrets
from federation.engine.objects.job_secrets import SecretVersion
from federation.engine.objects.prepull_jobs import labels_of, render_pull
from federation.engine.objects.rendering import Identity, namespace_labels
from federation.engine.prepulls import Outcome, Verdict, verdict

from .evidence import Standing, object_named, object_of, pods_of, require_same_cluster, standing_of

LOCKED_SECRET = "Its pull secret cannot be opened with the gateway's keys. Restore the key, or store the secret again."  # noqa: S105
CHANGED_SECRET = "Its pull secret was changed or deleted meanwhile."  # noqa: S105


class Made(NamedTuple):
    """The object exists, with this uid; or it is released."""

    uid: str


class Seen(NamedTuple):
    """How the pull stands."""

    verdict: Verdict


class Gone(NamedTuple):
    """The cluster has no such object any more."""


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


class Prepared(Protocol):
    """A preparation as `create`, `release` and `remove` need it: a `Pull`, or a copy of a dataset."""

    @property
    def identity(self) -> Identity: ...
    @property
    def cluster_identity(self) -> str: ...
    @property
    def uid(self) -> str: ...
    @property
    def policies(self) -> Sequence[Mapping[str, Any]]: ...
    @property
    def labels(self) -> dict[str, str]: ...
    @property
    def name(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    def render(self) -> dict[str, Any]:
        """Its suspended Job."""
        ...


def versions_of(promised: Mapping[str, Any]) -> set[SecretVersion]:
    """The promised versions."""
    return job_secrets.versions_of(promised)


async def create(driver: ClusterDriver, pull: Prepared) -> Made | Seen:
    """Creates the Job, suspended, or adopts it if an earlier call for this pull created it."""
    await require_same_cluster(driver, pull.cluster_identity)
    manifest = pull.render()
    try:
        labels = namespace_labels(pull.identity.install, str(pull.identity.tenant_id))
        await driver.ensure_namespace(pull.namespace, labels, pull.policies)
        return Made(await driver.create_job(manifest))
    except AlreadyExists:
        seen = await driver.get_job(pull.namespace, pull.name)
        if _is_ours(pull, seen):
            return Made(seen.uid)
        told = f"{pull.name} exists in {pull.namespace} and does not belong to Switchyard; it was not changed."
        return _failed(told)
    except NotThere:
        raise  # the namespace was deleted since it was last ensured; the next visit makes it again
    except Refused as error:
        return _failed(error.reason)


async def release(driver: ClusterDriver, pull: Pull) -> Made | Seen:
    """Gives the Job its pull secret, then releases it."""
    missing = job_secrets.versions_of(pull.promised) - set(pull.values)
    if missing:
        return _failed(LOCKED_SECRET if missing & set(pull.closed) else CHANGED_SECRET)
    owner = (pull.name, pull.uid)
    try:
        for manifest in job_secrets.secret_manifests(pull.promised, pull.namespace, pull.identity, owner, pull.values):
            with suppress(AlreadyExists):  # its name is random: an earlier call for this pull made it
                await driver.create_secret(manifest)
    except Refused as error:
        return await _unless_released(driver, pull, error)
    return await unsuspend(driver, pull)


async def unsuspend(driver: ClusterDriver, pull: Prepared) -> Made | Seen:
    """Releases the Job by its uid."""
    try:
        await driver.release_job(pull.namespace, pull.name, pull.uid, {})
    except Refused as error:
        return await _unless_released(driver, pull, error)
    return Made(pull.uid)


async def _unless_released(driver: ClusterDriver, pull: Prepared, error: Refused) -> Made | Seen:
    """The refusal as a failure, unless an earlier call has released the Job."""
    standing = await standing_of(driver, pull.cluster_identity, pull.namespace, pull.name, pull.uid)
    return Made(pull.uid) if standing == Standing.RELEASED else _failed(error.reason)


async def read(driver: ClusterDriver, pull: Pull) -> Seen:
    """How the pull stands, from its own pod and its Job."""
    pods = await pods_of(driver, pull.namespace, pull.name, pull.uid)
    job = await object_of(driver, pull.cluster_identity, pull.namespace, pull.name, pull.uid)
    return Seen(verdict(pull.node, pods, job, pull.lasted))


async def remove(driver: ClusterDriver, pull: Prepared) -> Gone | Seen:
    """Deletes the object by its uid, and confirms that it is gone. Of a pull whose uid is not known, only an object with all its
    labels is deleted.
    """
    await require_same_cluster(driver, pull.cluster_identity)
    seen = await object_named(driver, pull.namespace, pull.name, pull.uid)
    if seen is None or not (pull.uid or _is_ours(pull, seen)):
        return Gone()
    if not seen.is_terminating:
        with suppress(NotThere, Stale):
            await driver.delete_job(pull.namespace, pull.name, seen.uid)
    left = await object_named(driver, pull.namespace, pull.name, seen.uid)
    return Gone() if left is None else Seen(Verdict("", "Its object is being deleted."))


def _is_ours(pull: Prepared, seen: JobSeen) -> bool:
    return all(seen.labels.get(key) == value for key, value in pull.labels.items())


def _failed(reason: str) -> Seen:
    return Seen(Verdict(Outcome.FAILED, reason[:300]))
