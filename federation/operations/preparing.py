"""Visits to clusters with Jobs of ours that prepare them: what pulls of images and copies of datasets share.

A preparation has the phases of an attempt's start, each committed before the next: planned, with a slot of its cluster → created
suspended, its uid stored → released by uid → read → deleted by uid. A worker that dies between any two of them is followed by the
next, which finds the object by its name and adopts it if every label agrees.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractContextManager, ExitStack
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db.models.functions import Now

import clusters.queries
from clusters.drivers import DriverError
from clusters.drivers.connections import run
from clusters.models import Cluster
from federation.engine.prepulls import Verdict
from federation.models.preparations import Phase, Preparation
from federation.queries.prepulls import ANSWERING
from foundation import advisory
from foundation.clock import database_now

from .preparation_calls import Made, Seen

logger = logging.getLogger(__name__)
VISIT_SECONDS = 15.0
SPARE_SECONDS = 1.0
Call = Callable[[], Coroutine[Any, Any, object]]
Work = Sequence[tuple[Any, Call]]
"""Rows, each with the call for it."""
IDLE: dict[str, Any] = {
    "phase": Phase.IDLE,
    "slot": None,
    "object_id": None,
    "uid": "",
    "released_at": None,
    "begun_at": None,
}
"""The columns of a row whose object is gone."""


class Failed(NamedTuple):
    """A call without a result: the next visit repeats it."""

    reason: str


class Visit(ABC):
    """The calls to one cluster, by phase. If no call of a phase is answered, the later ones wait for the next visit."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.count = 0
        self.is_silent = False
        try:
            self.driver = clusters.queries.driver_of(cluster.id)
        except DriverError as error:
            logger.info("nothing is prepared on %s: %s", cluster.name, error.reason)
            self.is_silent = True

    @abstractmethod
    def create(self) -> Work:
        """Creates the objects of what is planned."""

    @abstractmethod
    def release(self) -> Work:
        """Releases the objects whose uids are stored."""

    @abstractmethod
    def read(self) -> Work:
        """Reads how the released ones stand."""

    @abstractmethod
    def remove(self) -> Work:
        """Deletes the objects of those that have ended."""


def visit_all(rows: Any, visit_of: Callable[[Cluster], Visit], record: Callable[[Any, object], None]) -> int:
    """The number of calls. Visits the clusters of these rows side by side, so that one that hangs costs the others its time once.

    One worker at a time visits a cluster: another one could create again what this one has removed since the other read its row.
    """
    found = Cluster.objects.filter(health__in=ANSWERING, id__in=rows.exclude(slot=None).values("cluster_id"))
    with ExitStack() as rights:
        free = [
            one for one in found.order_by("id") if rights.enter_context(_right_to(f"{rows.model.__name__}:{one.id}"))
        ]
        visits = [visit_of(cluster) for cluster in free]
        for phase in ("create", "release", "read", "remove"):
            _together([(visit, getattr(visit, phase)()) for visit in visits if not visit.is_silent], record)
    return sum(visit.count for visit in visits)


def _right_to(visit: str) -> AbstractContextManager[bool]:
    """Whether no other worker makes this visit; until the end none does."""
    return advisory.held(advisory.Kind.VISITS, visit)


def _together(work: Sequence[tuple[Visit, Work]], record: Callable[[Any, object], None]) -> None:
    """Makes the calls of all visits, then records what they returned."""
    calls = [(visit, row, call) for visit, pairs in work for row, call in pairs]
    if not calls:
        return

    results = _answers([call for _, _, call in calls])
    for visit in {visit for visit, _, _ in calls}:
        visit.is_silent = True  # unless any call is answered
    for (visit, row, _), result in zip(calls, results, strict=True):
        visit.count += 1
        visit.is_silent &= isinstance(result, Failed)
        record(row, result)


def _answers(calls: Sequence[Call]) -> Sequence[object]:
    """What each call returned. A process that was suspended meanwhile knows none of the answers."""

    async def all_of_them() -> list[object]:
        return await asyncio.gather(*(_answer(call) for call in calls))

    try:
        return run(all_of_them(), VISIT_SECONDS + SPARE_SECONDS)
    except DriverError as error:
        return [Failed(error.reason)] * len(calls)


async def _answer(call: Call) -> object:
    try:
        async with asyncio.timeout(VISIT_SECONDS):
            return await call()
    except DriverError as error:
        return Failed(error.reason)
    except TimeoutError:
        return Failed("no answer within the time of the visit")


def since(at: datetime | None) -> timedelta:
    """The time since then; none without it."""
    return database_now() - at if at else timedelta()


def record_step(row: Preparation, result: object) -> Verdict | None:
    """Writes what a call returned, if the preparation is still as it was when the call was made; returns the verdict of one that
    has ended, which the caller writes.
    """
    ours = type(row)._default_manager.filter(pk=row.pk, object_id=row.object_id)  # noqa: SLF001 - Django's public name for it
    as_it_was = ours.filter(phase=row.phase)
    match result:
        case Made(uid) if row.phase == Phase.PLANNED:
            as_it_was.update(phase=Phase.CREATED, uid=uid)
            # Stopped meanwhile: now the uid of what has to be deleted is known.
            ours.filter(phase=Phase.ENDING, uid="").update(uid=uid)
        case Made():
            as_it_was.update(phase=Phase.RELEASED, released_at=Now())
        case Seen(verdict) if verdict.outcome:
            return verdict
        case Seen(verdict):
            as_it_was.update(message=verdict.message)
        case Failed(reason):
            as_it_was.update(message=reason[:300])
    return None
