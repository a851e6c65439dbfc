"""The calls to a cluster that all preparations share, and the meaning of their answers. Asynchronous, without a database.

Each call raises DriverError if its result is unknown or nothing was done: it is repeated later.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from clusters.drivers import AlreadyExists, ClusterDriver, JobSeen, NotThere, Refused, Stale
from federation.engine.objects import job_secrets
from federation.engine.objects.job_secrets import SecretVersion
from federation.engine.objects.rendering import Identity, namespace_labels
from federation.engine.prepulls import Outcome, Verdict

from .evidence import Standing, object_named, require_same_cluster, standing_of

LOCKED_SECRET = "Its secret cannot be opened with the gateway's keys. Restore the key, or store the secret again."  # noqa: S105
CHANGED_SECRET = "Its secret was changed or deleted meanwhile."  # noqa: S105


class Made(NamedTuple):
    """The object exists, with this uid; or it is released."""

    uid: str


class Seen(NamedTuple):
    """How the preparation stands."""

    verdict: Verdict


class Gone(NamedTuple):
    """The cluster has no such object any more."""


class Prepared(Protocol):
    """A preparation as these calls need it: a `Pull`, or a copy of a dataset."""

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
    @property
    def promised(self) -> Mapping[str, Any]: ...
    @property
    def values(self) -> Mapping[SecretVersion, bytes]: ...
    @property
    def closed(self) -> Collection[SecretVersion]: ...
    def render(self) -> dict[str, Any]:
        """Its suspended Job."""
        ...


async def create(driver: ClusterDriver, one: Prepared) -> Made | Seen:
    """Creates the Job, suspended, or adopts it if an earlier call for this one created it."""
    await require_same_cluster(driver, one.cluster_identity)
    manifest = one.render()
    try:
        labels = namespace_labels(one.identity.install, str(one.identity.tenant_id))
        await driver.ensure_namespace(one.namespace, labels, one.policies)
        return Made(await driver.create_job(manifest))
    except AlreadyExists:
        seen = await driver.get_job(one.namespace, one.name)
        if _is_ours(one, seen):
            return Made(seen.uid)
        told = f"{one.name} exists in {one.namespace} and does not belong to Switchyard; it was not changed."
        return failed(told)
    except NotThere:
        raise  # the namespace was deleted since it was last ensured; the next visit makes it again
    except Refused as error:
        return failed(error.reason)


async def release(driver: ClusterDriver, one: Prepared) -> Made | Seen:
    """Gives the Job the secret that it was promised, if any, then releases it."""
    missing = job_secrets.versions_of(one.promised) - set(one.values)
    if missing:
        return failed(LOCKED_SECRET if missing & set(one.closed) else CHANGED_SECRET)
    owner = (one.name, one.uid)
    try:
        for manifest in job_secrets.secret_manifests(one.promised, one.namespace, one.identity, owner, one.values):
            with suppress(AlreadyExists):  # its name is random: an earlier call for this one made it
                await driver.create_secret(manifest)
    except Refused as error:
        return await _unless_released(driver, one, error)
    return await _unsuspend(driver, one)


async def _unsuspend(driver: ClusterDriver, one: Prepared) -> Made | Seen:
    """Releases the Job by its uid."""
    try:
        await driver.release_job(one.namespace, one.name, one.uid, {})
    except Refused as error:
        return await _unless_released(driver, one, error)
    return Made(one.uid)


async def _unless_released(driver: ClusterDriver, one: Prepared, error: Refused) -> Made | Seen:
    """The refusal as a failure, unless an earlier call has released the Job."""
    standing = await standing_of(driver, one.cluster_identity, one.namespace, one.name, one.uid)
    return Made(one.uid) if standing == Standing.RELEASED else failed(error.reason)


async def remove(driver: ClusterDriver, one: Prepared) -> Gone | Seen:
    """Deletes the object by its uid, and confirms that it is gone. If its uid is not known, only an object with all its
    labels is deleted.
    """
    await require_same_cluster(driver, one.cluster_identity)
    seen = await object_named(driver, one.namespace, one.name, one.uid)
    if seen is None or not (one.uid or _is_ours(one, seen)):
        return Gone()
    if not seen.is_terminating:
        with suppress(NotThere, Stale):
            await driver.delete_job(one.namespace, one.name, seen.uid)
    left = await object_named(driver, one.namespace, one.name, seen.uid)
    return Gone() if left is None else Seen(Verdict("", "Its object is being deleted."))


def _is_ours(one: Prepared, seen: JobSeen) -> bool:
    return all(seen.labels.get(key) == value for key, value in one.labels.items())


def failed(reason: str) -> Seen:
    """The end of a preparation with this reason."""
    return Seen(Verdict(Outcome.FAILED, reason[:300]))
