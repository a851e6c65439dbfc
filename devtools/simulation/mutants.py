"""Defects to put into the gateway, one at a time: a simulation that is worth anything finds each of them.

Each mutant takes one guard of the protocol away. `make simulate ARGS="--mutant NAME"` runs seeds until it is found.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from django.db import transaction

import quotas.operations
from clusters.drivers import NotThere, Refused, WatchEvent
from federation.engine.lifecycle import AttemptState
from federation.locks import lock_with_jobs
from federation.models import Attempt
from federation.observer import buffer
from federation.operations import (
    calls,
    continuity,
    dispatch,
    endings,
    observation,
    reconciliation,
    submission,
    transitions,
)
from federation.queries import metering
from placement.values.reason_codes import ReasonCode
from tenancy.operations import answer_once

Put = Callable[[Any, str, Any], None]
Mutant = Callable[[Put], None]
MUTANTS: dict[str, Mutant] = {}


def _mutant(make: Mutant) -> Mutant:
    MUTANTS[make.__name__.strip("_")] = make
    return make


@contextmanager
def put_in(name: str) -> Iterator[None]:
    """Puts the defect into this process for a while."""
    before: list[tuple[Any, str, Any]] = []

    def put(module: Any, what: str, instead: Any) -> None:
        before.append((module, what, getattr(module, what)))
        setattr(module, what, instead)

    MUTANTS[name](put)
    try:
        yield
    finally:
        for module, what, was in reversed(before):
            setattr(module, what, was)


def _without(text: str, part: str, instead: str = "") -> str:
    assert part in text, f"the mutant's guard has changed: {part}"
    return text.replace(part, instead)


@_mutant
def _cancel_forgets_its_wake_up(put: Put) -> None:
    """The release of an attempt forgets the visit of a stop that was requested meanwhile."""
    guard = "CASE WHEN attempt.stop_requested_at IS NOT NULL THEN now()\n                             WHEN EXISTS"
    put(dispatch, "MARK_RELEASED", _without(dispatch.MARK_RELEASED, guard, "CASE WHEN EXISTS"))


@_mutant
def _half_a_gang_is_gone(put: Put) -> None:
    """If one object of several is gone during the release, the attempt ends as if nothing had run."""
    original = calls._vanished  # noqa: SLF001

    def vanished(attempt: Any, error: Refused, *, may_have_run: bool) -> Any:
        del may_have_run
        return original(attempt, error, may_have_run=False)

    put(calls, "_vanished", vanished)


@_mutant
def _recalls_without_asking(put: Put) -> None:
    """An attempt without a seen pod is recalled although its cluster was not asked for its pods."""

    async def started(*_: object) -> Sequence[Any]:
        return ()

    put(calls, "_started", started)


@_mutant
def _absence_from_a_list_ends(put: Put) -> None:
    """A Job that is missing in a new list of the watch is taken for deleted."""
    original = buffer.Buffer.add_jobs

    def add_jobs(self: Any, event: WatchEvent) -> None:
        if event.kind == "listed":
            uids = {job.uid for job in event.objects}  # type: ignore[union-attr]
            self._forget(self._known_jobs - uids, self._known_jobs, self._jobs, self._gone_jobs)
        original(self, event)

    put(buffer.Buffer, "add_jobs", add_jobs)


@_mutant
def _a_silent_cluster_is_a_dead_one(put: Put) -> None:
    """Attempts on a silent cluster are placed again elsewhere."""

    def lose(cluster_id: UUID, name: str) -> int:
        with transaction.atomic():
            here = Attempt.objects.filter(cluster_id=cluster_id, state__in=continuity.MAY_RUN)
            ids = list(lock_with_jobs(here.values_list("id", flat=True)))
            words = f"Cluster {name} is lost."
            ends = [transitions.Ending(id_, AttemptState.PREEMPTED, ReasonCode.CLUSTER_LOST, words) for id_ in ids]
            return endings.end_attempts(ends)

    put(continuity, "_lose", lose)


@_mutant
def _released_before_it_is_committed(put: Put) -> None:
    """`starting` is not written before the release."""
    found = _without(transitions.COMMIT_TO_START, "AND state = %(created)s", "AND state = %(created)s AND false")
    put(
        transitions,
        "COMMIT_TO_START",
        _without(found, "state IN (%(starting)s,", "state IN (%(created)s, %(starting)s,"),
    )


@_mutant
def _start_wins_over_cancel(put: Put) -> None:
    """The commitment to start does not look for a stop that was requested."""
    guard = "AND stop_requested_at IS NULL AND state = %(created)s"
    put(transitions, "COMMIT_TO_START", _without(transitions.COMMIT_TO_START, guard, "AND state = %(created)s"))


@_mutant
def _a_started_gang_is_not_released_on(put: Put) -> None:
    """Only attempts without a started pod are released again."""
    guard = "state IN (%(starting)s, %(running)s)"
    put(transitions, "COMMIT_TO_START", _without(transitions.COMMIT_TO_START, guard, "state = %(starting)s"))


@_mutant
def _settles_before_the_pods_are_known(put: Put) -> None:
    """Ended attempts are settled with the pods that were seen so far."""
    guard = "pods.running = 0 AND (attempt.pods_told_at IS NOT NULL OR pods.over >= asked.due)"
    put(metering, "WEIGH", _without(metering.WEIGH, guard, "pods.running = 0"))


@_mutant
def _holds_end_with_the_attempt(put: Put) -> None:
    """The hold of an attempt ends when the attempt does, although its pods may still run."""
    original = endings._void_unstarted  # noqa: SLF001

    def void(ended: Sequence[Any]) -> None:
        quotas.operations.end_holds(dict.fromkeys((one.attempt.id for one in ended), "voided"))
        original(ended)

    put(endings, "_void_unstarted", void)


@_mutant
def _deletes_by_name(put: Put) -> None:
    """What has the name of an object of the attempt is deleted, whatever it is."""

    async def delete_objects(driver: Any, attempt: Any) -> bool:
        for item in attempt.objects:
            try:
                seen = await driver.get_job(attempt.namespace, item.name)
                await driver.delete_job(attempt.namespace, item.name, seen.uid)
            except NotThere:
                continue
        return True

    put(calls, "_delete_objects", delete_objects)


@_mutant
def _a_deletion_that_was_accepted_is_done(put: Put) -> None:
    """An attempt counts as stopped when its deletion was accepted, although its pods still run."""
    original = calls._delete_objects  # noqa: SLF001

    async def delete_objects(driver: Any, attempt: Any) -> bool:
        await original(driver, attempt)
        return True

    put(calls, "_delete_objects", delete_objects)


@_mutant
def _an_existing_object_is_a_refusal(put: Put) -> None:
    """An object of an earlier call for the attempt is not adopted."""

    async def create(driver: Any, attempt: Any, item: Any, *, is_gated: bool) -> str:
        return await calls._create_in_namespace(driver, attempt, item, is_gated=is_gated)  # noqa: SLF001

    put(calls, "_create_or_adopt", create)


@_mutant
def _keys_are_ignored(put: Put) -> None:
    """A repeated request is carried out again."""

    def ask_again(actor: Any, **given: Any) -> Any:
        return answer_once(actor, **given | {"key": ""})

    put(submission, "answer_once", ask_again)


@_mutant
def _a_failed_job_is_queued_at_once(put: Put) -> None:
    """An interrupted attempt ends before the cluster has confirmed that nothing of it is left."""

    def stop_for_another(again: Sequence[Any]) -> None:
        for one in again:
            Attempt.objects.filter(id=one.attempt_id).update(stop_reason=one.cause)
        ends = [transitions.Ending(one.attempt_id, AttemptState.PREEMPTED, one.cause, one.message) for one in again]
        endings.end_attempts(ends)

    put(observation, "stop_for_another", stop_for_another)


@_mutant
def _vanished_without_asking(put: Put) -> None:
    """What a comparison does not list is gone, without a request for it by uid."""

    async def ask(driver: Any, identity: str, absent: Sequence[Any]) -> list[tuple[UUID, None]]:
        del driver, identity
        return [(row[0], None) for row in absent]

    async def listed(driver: Any, identity: str) -> Sequence[Any]:
        del identity
        found: Sequence[Any] = await driver.list_jobs()
        return found

    put(reconciliation, "_ask", ask)
    put(reconciliation, "_list", listed)
