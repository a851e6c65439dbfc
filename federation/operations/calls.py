"""The calls to a cluster for one attempt, and the meaning of its answers. Asynchronous, without a database.

Each call raises DriverError if its result is unknown or nothing was done: it is repeated later.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress

from clusters.drivers import (
    AlreadyExists,
    ClusterDriver,
    DriverError,
    JobSeen,
    NotThere,
    PodSeen,
    Refused,
    Stale,
)
from clusters.engine.permissions import CREATE_SECRETS, Right
from federation.engine.in_part import IN_PART
from federation.engine.lifecycle import AttemptState
from federation.engine.names import LABEL_ATTEMPT
from federation.engine.objects.ranks import GATE, INDEX_LABEL, wishes_of
from federation.engine.objects.rendering import namespace_labels
from federation.engine.retries import Cause
from federation.engine.stuck import is_stuck
from federation.queries.claimed_attempts import ClaimedAttempt, ClaimedObject
from placement.values.reason_codes import ReasonCode

from .endings import OBJECT_DELETED, REFUSED
from .evidence import (
    Standing,
    object_named,
    pods_of,
    require_same_cluster,
    standing_of,
    started_pods,
    unended_pods,
)
from .gang_services import ServicesDenied, create_or_adopt_service
from .outcomes import (
    Created,
    Doomed,
    Failed,
    Looked,
    Ordered,
    Ordering,
    Outcome,
    Released,
    Stopped,
    Stopping,
    Underway,
    Withdrawn,
)
from .part_looks import pods_unless_in_part

MOST_DIGITS = 9
AT_ONCE = 16
"""The number of pods of one gang whose gates are opened at the same time, in the order of their indices."""
PATCH_PODS = Right("", "pods", "patch")
RECALLS = frozenset({ReasonCode.DID_NOT_START, ReasonCode.CLUSTER_DRAINING, ReasonCode.MAINTENANCE_AHEAD})
"""Reasons to stop an attempt that apply only while none of its pods has started."""
ENDS_BY_STOP: Mapping[str, AttemptState] = {
    ReasonCode.CANCELLED: AttemptState.CANCELLED,
    OBJECT_DELETED: AttemptState.FAILED,
    Cause.PROGRAM: AttemptState.FAILED,
}
"""The final state of an attempt stopped for this reason; for any other reason it is preempted, and its job may run
again."""
FORBIDDEN = 403
MAY_NOT_CREATE_SECRETS = "The gateway's account may not create Secrets on the cluster. Its administrator has to apply cluster-access.yaml again."
MOST_TIMES_FORBIDDEN = 8
"""With growing pauses, this is about two minutes."""
MOST_TIMES_UNSEEN = 4
"""With growing pauses, this is about four seconds."""


async def create(driver: ClusterDriver, attempt: ClaimedAttempt) -> Outcome:
    """Creates every object of the attempt, suspended."""
    if why_not := _lost_promise(attempt):
        return why_not
    uids = {}
    try:
        await _require_rights(driver, attempt)
        # without the permission to open it, no gate: the pods are then scheduled in any order
        is_gated = attempt.is_ordered and await driver.may(PATCH_PODS, attempt.namespace)
        for item in attempt.objects:
            uids[item.id] = item.uid or await _create_or_adopt(driver, attempt, item, is_gated=is_gated)
        await _let_meet(driver, attempt, uids)
        for item in attempt.objects:
            await _create_secrets(driver, attempt, item, uids[item.id])
    except AlreadyExists as error:
        return abandoned(attempt, ReasonCode.NAME_TAKEN, error.reason)
    except Refused as error:
        if _may_pass(attempt, error):
            return Failed(attempt.id, error)
        reason = ReasonCode.SERVICES_CLOSED if isinstance(error, ServicesDenied) else REFUSED
        return abandoned(attempt, reason, error.reason)
    return Created(attempt.id, uids)


async def _let_meet(driver: ClusterDriver, attempt: ClaimedAttempt, uids: Mapping[int, str]) -> None:
    """Allows the pods of a gang to talk to each other, and gives them names. A single pod needs neither."""
    if attempt.is_gang:
        await driver.put_network_policy(attempt.gang_policy(uids))
    if attempt.meets:
        await create_or_adopt_service(driver, attempt, uids)


def _lost_promise(attempt: ClaimedAttempt) -> Outcome | None:
    """The end of an attempt whose flavor or secrets are no longer what it was promised; None if it can be created."""
    for item in attempt.objects:
        if not item.is_promised:
            message = f"{attempt.cluster} no longer offers {item.flavor}."
            return abandoned(attempt, ReasonCode.FLAVOR_GONE, message)
    if attempt.has_closed_secret:
        told = (
            "One of its secrets cannot be opened with the gateway's keys. Restore the key, or store the secret again."
        )
        return abandoned(attempt, ReasonCode.CREATE_FAILED, told)
    if attempt.secret_versions - set(attempt.secret_values):
        told = "One of its secrets was changed or deleted after it was placed."
        return abandoned(attempt, ReasonCode.SECRET_CHANGED, told)
    return None


async def _require_rights(driver: ClusterDriver, attempt: ClaimedAttempt) -> None:
    """Raises Refused before anything is created, if the cluster would refuse the attempt's Secrets."""
    if attempt.has_secrets and not await driver.may(CREATE_SECRETS, attempt.namespace):
        raise Refused(MAY_NOT_CREATE_SECRETS, status=FORBIDDEN)


async def _create_secrets(driver: ClusterDriver, attempt: ClaimedAttempt, item: ClaimedObject, uid: str) -> None:
    """Creates the Secrets of an object, which owns them. One that exists is ours: its name is random, was stored before
    it was first sent, and stands for one version of each secret.
    """
    for manifest in attempt.secret_manifests(item, uid):
        with suppress(AlreadyExists):
            await driver.create_secret(manifest)


def _may_pass(attempt: ClaimedAttempt, error: Refused) -> bool:
    """Whether the error may pass: a starting API server forbids everything briefly, and a full object quota becomes
    free.
    """
    return error.status == FORBIDDEN and attempt.tries < MOST_TIMES_FORBIDDEN


async def _create_or_adopt(
    driver: ClusterDriver, attempt: ClaimedAttempt, item: ClaimedObject, *, is_gated: bool
) -> str:
    """The uid of our object: created now, or found because an earlier call for this attempt created it."""
    try:
        return await _create_in_namespace(driver, attempt, item, is_gated=is_gated)
    except AlreadyExists:
        seen = await driver.get_job(attempt.namespace, item.name)
        if not _is_ours(attempt, seen):
            raise AlreadyExists(
                f"{item.name} exists in {attempt.namespace} and does not belong to Switchyard; it was not changed"
            ) from None
        return seen.uid


async def _create_in_namespace(
    driver: ClusterDriver, attempt: ClaimedAttempt, item: ClaimedObject, *, is_gated: bool
) -> str:
    """The created Job's uid."""
    manifest = attempt.manifest(item, is_gated=is_gated)
    try:
        await _prepare_namespace(driver, attempt, item)
        return await driver.create_job(manifest)
    except NotThere:
        # it was deleted since
        await _prepare_namespace(driver, attempt, item)
        return await driver.create_job(manifest)


async def _prepare_namespace(driver: ClusterDriver, attempt: ClaimedAttempt, item: ClaimedObject) -> None:
    """Creates the namespace with the policies and claim templates that pods need, before any Job exists in it."""
    labels = namespace_labels(attempt.identity.install, str(attempt.identity.tenant_id))
    await driver.ensure_namespace(attempt.namespace, labels, attempt.network_policies)
    for template in attempt.resource_claim_templates(item):
        await driver.ensure_claim_template(template)


def _is_ours(attempt: ClaimedAttempt, seen: JobSeen) -> bool:
    """Whether every label agrees, so that an earlier call for this attempt created it."""
    labels = attempt.identity.labels
    return not seen.is_terminating and all(seen.labels.get(key) == value for key, value in labels.items())


async def release(driver: ClusterDriver, attempt: ClaimedAttempt) -> Outcome:
    """Releases the attempt. After a refused or repeated release, the object's current state decides: what runs
    continues, and what others have suspended since its release stays suspended.
    """
    may_have_run = attempt.may_have_run
    for item in attempt.objects:
        try:
            await driver.release_job(attempt.namespace, item.name, item.uid, attempt.template_patch(item))
        except Refused as error:
            standing = await standing_of(driver, attempt.cluster_identity, attempt.namespace, item.name, item.uid)
            if standing == Standing.GONE:
                return _vanished(attempt, error, may_have_run=may_have_run)
            if standing == Standing.SUSPENDED:
                if isinstance(error, NotThere | Stale) or _may_pass(attempt, error):
                    return Failed(attempt.id, error)
                return Withdrawn(attempt.id, REFUSED, error.reason)
        may_have_run = True
    return Released(attempt.id, attempt.cluster)


async def order(driver: ClusterDriver, attempt: ClaimedAttempt) -> Outcome:
    """Gives every existing pod of the attempt the preference for its index's node, and opens its gate."""
    is_whole = True
    try:
        for item in attempt.objects:
            if item.stretches:
                is_whole &= await _let_through(driver, attempt, item)
    except Refused as error:
        if _may_pass(attempt, error):
            return Failed(attempt.id, error)
        return Withdrawn(attempt.id, REFUSED, error.reason)
    return Ordered(attempt.id) if is_whole else Ordering(attempt.id, attempt.tries)


async def _let_through(driver: ClusterDriver, attempt: ClaimedAttempt, item: ClaimedObject) -> bool:
    """Opens the gates of the existing pods; returns whether these are all. Gates that an earlier call opened do not
    change.
    """
    found = await pods_of(driver, attempt.namespace, item.name, item.uid)
    pods = [pod for pod in found if not pod.is_terminating]
    gated = sorted((pod for pod in pods if GATE in pod.gates), key=_index)
    for first in range(0, len(gated), AT_ONCE):
        await asyncio.gather(*(_open_gate(driver, item, pod) for pod in gated[first : first + AT_ONCE]))
    count: int = attempt.spec["pod_sets"][item.position]["count"]
    return len(pods) >= count


async def _open_gate(driver: ClusterDriver, item: ClaimedObject, pod: PodSeen) -> None:
    """Opens the gate with the preferences; without them if the cluster refuses them."""
    try:
        try:
            await driver.open_gate(pod.namespace, pod.name, pod.uid, GATE, wishes_of(item.stretches, _index(pod)))
        except (NotThere, Stale):
            raise
        except Refused:
            await driver.open_gate(pod.namespace, pod.name, pod.uid, GATE)
    except (NotThere, Stale):
        return  # the pod is gone, and its Job has failed


def _index(pod: PodSeen) -> int:
    """The pod's index in its Job; behind all others if the cluster does not report it."""
    text = pod.labels.get(INDEX_LABEL, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < MOST_DIGITS else 10**MOST_DIGITS


def _vanished(attempt: ClaimedAttempt, error: Refused, *, may_have_run: bool) -> Outcome:
    """The outcome if the object was deleted. If any part of the attempt may have run, it is not rerun, and the rest
    stops first.
    """
    if not may_have_run:
        message = f"Its object was deleted before it ran: {error.reason}"
        return Stopped(attempt.id, AttemptState.PREEMPTED, OBJECT_DELETED, message)
    if len(attempt.objects) > 1:
        return Withdrawn(attempt.id, OBJECT_DELETED, "One of its objects was deleted on the cluster.")
    return Stopped(attempt.id, AttemptState.FAILED, OBJECT_DELETED, "Its object was deleted on the cluster.")


async def look(driver: ClusterDriver, attempt: ClaimedAttempt) -> Outcome:
    """What there is of an attempt that must stop, unless the reason no longer applies. Nothing is deleted: first, what was seen
    is stored (`last_looks`).
    """
    if not attempt.was_sent:
        return _end_of_stop(attempt)
    if (pods := await _refuting_pods(driver, attempt)) is not None:
        return Underway(attempt.id, attempt.stop_reason, pods)
    if attempt.plan:
        await _is_whole(driver, attempt)  # a cluster that does not answer decides nothing
        return Doomed(attempt.id)
    pods = await _started_pods(driver, attempt) if attempt.may_have_run else ()
    found = [seen for item in attempt.objects if (seen := await _its(driver, attempt, item))]
    return Looked(attempt.id, pods, found)


async def remove(driver: ClusterDriver, attempt: ClaimedAttempt, looked: Looked) -> Outcome:
    """Deletes all existing objects of an attempt that must stop, of which the last look is stored."""
    return _end_of_stop(attempt) if await _is_gone(driver, attempt, looked.found) else Stopping(attempt.id)


def _end_of_stop(attempt: ClaimedAttempt) -> Stopped:
    """The end of an attempt of which nothing is left."""
    if attempt.state in (AttemptState.RESERVED, AttemptState.CREATED):
        return abandoned(attempt, attempt.stop_reason, attempt.stop_message)
    state = ENDS_BY_STOP.get(attempt.stop_reason, AttemptState.PREEMPTED)
    return Stopped(attempt.id, state, attempt.stop_reason, attempt.stop_message)


async def _is_gone(driver: ClusterDriver, attempt: ClaimedAttempt, found: Sequence[JobSeen]) -> bool:
    """Deletes what there is of the attempt; whether nothing of it is left, unless it is cancelled also none of its pods."""
    if not await _delete_objects(driver, attempt, found):
        return False
    waits_for_pods = attempt.may_have_run and attempt.stop_reason != ReasonCode.CANCELLED
    return not (waits_for_pods and await _unended(driver, attempt))


async def _refuting_pods(driver: ClusterDriver, attempt: ClaimedAttempt) -> Sequence[PodSeen] | None:
    """The pods that show that a recall has no reason any more, or that go on because the plan of their move has ended; None if it
    has, or if an object's deletion has begun, because then the attempt cannot continue.
    """
    if attempt.stop_reason in IN_PART:
        return await pods_unless_in_part(driver, attempt)
    pods: Sequence[PodSeen] = ()
    if attempt.stop_reason in RECALLS:
        pods = await _started(driver, attempt)
    elif attempt.stop_reason == ReasonCode.CANNOT_START:
        pods = await _unstuck(driver, attempt)
    elif attempt.stop_reason == ReasonCode.PODS_GONE or attempt.plan == "over":
        pods = await _unended(driver, attempt)
    return pods if pods and await _is_whole(driver, attempt) else None


async def _is_whole(driver: ClusterDriver, attempt: ClaimedAttempt) -> bool:
    """Whether each object exists and is not being deleted."""
    found = [await _its(driver, attempt, item) for item in attempt.objects]
    return all(seen is not None and not seen.is_terminating for seen in found)


async def _started(driver: ClusterDriver, attempt: ClaimedAttempt) -> Sequence[PodSeen]:
    """Pods of the attempt that run or have run, whatever the observer has seen."""
    found: list[PodSeen] = []
    for item in attempt.objects:
        if item.uid:
            found += await started_pods(driver, attempt.namespace, item.name, item.uid)
    return found


async def _started_pods(driver: ClusterDriver, attempt: ClaimedAttempt) -> Sequence[PodSeen]:
    """The started pods, before their deletion: a pod that is deleted unseen is metered only if the watch reports it. If
    the cluster repeatedly fails to return them, they are deleted anyway.
    """
    try:
        return await _started(driver, attempt)
    except DriverError:
        if attempt.tries < MOST_TIMES_UNSEEN:
            raise
        return ()


async def _unstuck(driver: ClusterDriver, attempt: ClaimedAttempt) -> Sequence[PodSeen]:
    """The pods of the attempt, if there are any and none is stuck any more; else an empty list."""
    found: list[PodSeen] = []
    for item in attempt.objects:
        if item.uid:
            found += await pods_of(driver, attempt.namespace, item.name, item.uid)
    return [] if any(is_stuck(pod.phase, pod.reason) for pod in found) else found


async def _its(driver: ClusterDriver, attempt: ClaimedAttempt, item: ClaimedObject) -> JobSeen | None:
    """The attempt's object: by its uid, whatever others did to its labels, or by its label if the uid is not known yet."""
    seen = await object_named(driver, attempt.namespace, item.name, item.uid)
    return seen if seen and (item.uid or seen.labels.get(LABEL_ATTEMPT) == str(attempt.id)) else None


async def _delete_objects(driver: ClusterDriver, attempt: ClaimedAttempt, found: Sequence[JobSeen]) -> bool:
    """Whether nothing of the attempt exists any more. Objects that are not ours are never deleted, nor are those of a
    run that has succeeded meanwhile, unless it is cancelled.
    """
    if len(found) < len(attempt.objects):
        await require_same_cluster(driver, attempt.cluster_identity)
    has_succeeded = len(found) == len(attempt.objects) and all(seen.outcome == "succeeded" for seen in found)
    if has_succeeded and attempt.stop_reason != ReasonCode.CANCELLED:
        return False
    for seen in found:
        if not seen.is_terminating:
            with suppress(NotThere, Stale):
                await driver.delete_job(attempt.namespace, seen.name, seen.uid)
    return not found


async def _unended(driver: ClusterDriver, attempt: ClaimedAttempt) -> Sequence[PodSeen]:
    """The pods of the attempt that have not ended. They may outlive its objects."""
    left = [await unended_pods(driver, attempt.namespace, item.name, item.uid) for item in attempt.objects]
    return [pod for pods in left for pod in pods]


def abandoned(attempt: ClaimedAttempt, reason: str, message: str) -> Stopped:
    """The end of an attempt of which nothing can run."""
    return Stopped(attempt.id, AttemptState.ABANDONED, reason, message)
