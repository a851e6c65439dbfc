"""What is said to a cluster for one attempt, and what its answer means. Asynchronous, without any database.

Each function answers with outcomes, one an attempt, and never raises for what a cluster may do.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from clusters.drivers import (
    AlreadyExists,
    ClusterDriver,
    DriverError,
    JobSeen,
    NotThere,
    Refused,
    Stale,
)
from clusters.drivers.connections import run
from federation.engine.lifecycle import AttemptState
from federation.engine.names import LABEL_ATTEMPT
from federation.engine.rendering import namespace_labels
from federation.queries.visits import Visit, VisitedObject

from .endings import REFUSED

CALLS_SECONDS = 18.0
FORBIDDEN = 403
MOST_TIMES_FORBIDDEN = 8
"""With growing pauses, about two minutes."""


@dataclass(frozen=True, slots=True)
class Created:
    """All objects of the attempt exist, suspended; `uids` by row id."""

    attempt_id: UUID
    uids: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class Released:
    """All objects of the attempt are unsuspended."""

    attempt_id: UUID
    cluster: str


@dataclass(frozen=True, slots=True)
class Stopping:
    """Deletion was accepted; its objects are not gone yet."""

    attempt_id: UUID


@dataclass(frozen=True, slots=True)
class Stopped:
    """The attempt is over in `state`."""

    attempt_id: UUID
    state: AttemptState
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Unwelcome:
    """The cluster will not start what it holds: take it back, so that the job can go elsewhere."""

    attempt_id: UUID
    reason: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The cluster could not be asked, or its answer left things open: visit again."""

    attempt_id: UUID
    error: DriverError


Outcome = Created | Released | Stopping | Stopped | Unwelcome | Failed
Call = Callable[[ClusterDriver, Visit], Awaitable[Outcome]]


def create_all(driver: ClusterDriver, visits: Sequence[Visit]) -> list[Outcome]:
    """Creates every object of every attempt, suspended."""
    return _each(driver, visits, _create)


def release_all(driver: ClusterDriver, visits: Sequence[Visit]) -> list[Outcome]:
    """Unsuspends every object of every attempt."""
    return _each(driver, visits, _release)


def stop_all(driver: ClusterDriver, visits: Sequence[Visit]) -> list[Outcome]:
    """Deletes whatever exists of the attempts."""
    return _each(driver, visits, _stop)


def _each(driver: ClusterDriver, visits: Sequence[Visit], call: Call) -> list[Outcome]:
    if not visits:
        return []

    async def gather() -> list[Outcome]:
        return await asyncio.gather(*(_guarded(driver, visit, call) for visit in visits))

    return run(gather(), timeout_seconds=CALLS_SECONDS)


async def _guarded(driver: ClusterDriver, visit: Visit, call: Call) -> Outcome:
    try:
        return await call(driver, visit)
    except DriverError as error:
        return Failed(visit.attempt_id, error)


async def _create(driver: ClusterDriver, visit: Visit) -> Outcome:
    uids = {}
    try:
        for item in visit.objects:
            uids[item.id] = item.uid or await _create_or_adopt(driver, visit, item)
        if visit.is_gang:
            await driver.put_network_policy(visit.gang_policy(uids))
    except AlreadyExists as error:
        return _abandoned(visit, "name_taken", error.reason)
    except Refused as error:
        if _may_pass(visit, error):
            return Failed(visit.attempt_id, error)
        return _abandoned(visit, REFUSED, error.reason)
    return Created(visit.attempt_id, uids)


def _may_pass(visit: Visit, error: Refused) -> bool:
    """An API server that has just started forbids everything for a moment, and a full object quota empties again."""
    return error.status == FORBIDDEN and visit.tries < MOST_TIMES_FORBIDDEN


async def _create_or_adopt(driver: ClusterDriver, visit: Visit, item: VisitedObject) -> str:
    """The uid of our object: made now, or found where an earlier try of this very attempt has left it."""
    try:
        return await _create_in_namespace(driver, visit, item)
    except AlreadyExists:
        seen = await driver.get_job(visit.namespace, item.name)
        if not _is_ours(visit, seen):
            raise AlreadyExists(
                f"{item.name} exists in {visit.namespace} and is not ours; it was left untouched"
            ) from None
        return seen.uid


async def _create_in_namespace(driver: ClusterDriver, visit: Visit, item: VisitedObject) -> str:
    """The created Job's uid."""
    manifest = visit.manifest(item)
    try:
        await _prepare_namespace(driver, visit, item)
        return await driver.create_job(manifest)
    except NotThere:
        # somebody deleted it since
        await _prepare_namespace(driver, visit, item)
        return await driver.create_job(manifest)


async def _prepare_namespace(driver: ClusterDriver, visit: Visit, item: VisitedObject) -> None:
    """No Job comes to stand in a namespace before the policies that its pods must obey do, and what they claim by."""
    labels = namespace_labels(visit.identity.install, str(visit.identity.tenant_id))
    await driver.ensure_namespace(visit.namespace, labels, visit.network_policies)
    for template in visit.claim_templates(item):
        await driver.ensure_claim_template(template)


def _is_ours(visit: Visit, seen: JobSeen) -> bool:
    """Every label agrees, so an earlier try of this very attempt has made it."""
    labels = visit.identity.labels
    return not seen.is_terminating and all(seen.labels.get(key) == value for key, value in labels.items())


async def _release(driver: ClusterDriver, visit: Visit) -> Outcome:
    for item in visit.objects:
        try:
            await driver.release_job(visit.namespace, item.name, item.uid, visit.template_patch(item))
        except (NotThere, Stale) as error:
            return _vanished(visit, error)
        except Refused as error:
            if _may_pass(visit, error):
                return Failed(visit.attempt_id, error)
            return Unwelcome(visit.attempt_id, error.reason)
    return Released(visit.attempt_id, visit.cluster)


def _vanished(visit: Visit, error: Refused) -> Stopped:
    """Someone deleted the object. If an earlier release may have reached it, it may have run: then it is not run again."""
    if visit.may_have_run:
        return Stopped(
            visit.attempt_id, AttemptState.FAILED, "object_deleted", "Its object was deleted on the cluster."
        )
    return Stopped(
        visit.attempt_id,
        AttemptState.PREEMPTED,
        "object_deleted",
        f"Its object was deleted before it ran: {error.reason}",
    )


async def _stop(driver: ClusterDriver, visit: Visit) -> Outcome:
    if visit.was_sent and not await _delete_objects(driver, visit):
        return Stopping(visit.attempt_id)
    if visit.state in (AttemptState.RESERVED, AttemptState.CREATED):
        return _abandoned(visit, visit.stop_reason, visit.stop_message)
    state = AttemptState.CANCELLED if visit.stop_reason == "cancelled" else AttemptState.PREEMPTED
    return Stopped(visit.attempt_id, state, visit.stop_reason, visit.stop_message)


async def _delete_objects(driver: ClusterDriver, visit: Visit) -> bool:
    """Whether nothing of the attempt exists any more. Objects that are not ours are never touched."""
    gone = True
    for item in visit.objects:
        try:
            seen = await driver.get_job(visit.namespace, item.name)
            if item.uid not in ("", seen.uid) or seen.labels.get(LABEL_ATTEMPT) != str(visit.attempt_id):
                continue
            gone = False
            if not seen.is_terminating:
                await driver.delete_job(visit.namespace, item.name, seen.uid)
        except (NotThere, Stale):
            continue
    return gone


def _abandoned(visit: Visit, reason: str, message: str) -> Stopped:
    return Stopped(visit.attempt_id, AttemptState.ABANDONED, reason, message)
