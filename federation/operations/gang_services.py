"""The Service by which the pods of a gang find each other: created after the attempt's objects, before their release."""

from collections.abc import Mapping
from typing import NoReturn

from clusters.drivers import AlreadyExists, Ambiguous, ClusterDriver, NotThere, Refused, ServiceSeen
from clusters.engine.escapes import APPLY
from federation.queries.claimed_attempts import ClaimedAttempt

FORBIDDEN = 403


class ServicesDenied(Refused):
    """The cluster does not let the gateway make or read Services."""


async def create_or_adopt_service(driver: ClusterDriver, attempt: ClaimedAttempt, uids: Mapping[int, str]) -> None:
    """Ensures that the Service exists, and that Kubernetes deletes it with the attempt's objects, whose `uids` are given
    by row id. Cheap to repeat.

    Raises AlreadyExists if a foreign Service has its name, which is never changed; ServicesDenied; Ambiguous if a later
    visit may find another state.
    """
    manifest = attempt.gang_service(uids)
    try:
        await driver.create_service(manifest)
    except AlreadyExists:
        await _adopt(driver, attempt, frozenset(uids.values()))
    except NotThere as error:
        # The objects went with their namespace, and the next visit creates both again.
        raise Ambiguous(error.reason) from None
    except Refused as error:
        _deny("create", error)


async def _adopt(driver: ClusterDriver, attempt: ClaimedAttempt, uids: frozenset[str]) -> None:
    """Checks that an earlier call for this attempt created the existing Service, and that it lasts."""
    name = attempt.objects[0].name
    try:
        seen = await driver.get_service(attempt.namespace, name)
    except NotThere as error:
        raise Ambiguous(error.reason) from None
    except Refused as error:
        _deny("get", error)
    if not _is_ours(attempt, seen):
        raise AlreadyExists(
            f"the Service {name} exists in {attempt.namespace} and does not belong to Switchyard; it was not changed"
        )
    if seen.is_terminating or not uids & frozenset(seen.owners):
        raise Ambiguous(f"the Service {name} of deleted objects is not gone yet")


def _is_ours(attempt: ClaimedAttempt, seen: ServiceSeen) -> bool:
    """Whether it is exactly what the gateway makes: every label agrees, and it names the pods of this attempt alone."""
    wanted = attempt.gang_service({item.id: "" for item in attempt.objects})
    labels = wanted["metadata"]["labels"]
    return (
        seen.is_headless
        and dict(seen.selector) == wanted["spec"]["selector"]
        and all(seen.labels.get(key) == value for key, value in labels.items())
    )


def _deny(verb: str, error: Refused) -> NoReturn:
    """Raises the refusal; a missing right with what grants it."""
    if error.status != FORBIDDEN:
        raise error
    reason = error.reason[:200].rstrip(".")
    raise ServicesDenied(
        f"The credential may not {verb} services there: {reason}. {APPLY}.", status=FORBIDDEN
    ) from None
