"""Copies datasets to storages of clusters: begins copies, and visits those under way until their objects are gone.

Its phases are those of every preparation (`preparing`). A copy that runs twice writes the same files twice. Its success is what
its own Job reports, found by uid; only then the replica is recorded, in the same transaction. The copy holds quota for its pod under the id of
its object, from when it is planned until that object is gone.
"""

import logging
from functools import partial
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import F
from django.db.models.functions import Now

import clusters.queries
import quotas.operations
from clusters.models import Cluster, StagingPlan
from clusters.operations.staging import keep_storages, record_replica
from federation.engine.objects import isolation
from federation.engine.objects.job_secrets import versions_of
from federation.engine.objects.stage_jobs import CPU_MILLICORES, MEMORY_MIB
from federation.engine.prepulls import Verdict
from federation.engine.staging import DEADLINE, Outcome, Progress, too_late
from federation.locks import lock_stage_in
from federation.models import StageIn
from federation.models.staging import MOST_STAGE_INS
from federation.queries.prepulls import may_prepull
from federation.queries.stage_places import (
    has_moved,
    image_for,
    keys_for,
    promised_places,
    promised_secret,
    promised_store,
    why_unable,
)
from federation.queries.staging import (
    all_stage_ins,
    egress_of,
    identity_of,
    is_staged,
    live_stage_ins,
    namespace_for,
    stage_ins_are_in_use,
    standing_of,
    why_forbidden,
    why_not_on,
)
from foundation.clock import database_now
from foundation.crash import crash_point
from foundation.ids import new_id
from foundation.transactions import retried
from quotas.operations import HoldRequest

from . import preparation_calls, stage_calls
from .data_waits import end_waits
from .preparation_calls import Gone, Seen
from .preparing import IDLE, Call, Failed, Visit, record_step, since, visit_all
from .stage_calls import Copied, Copy

logger = logging.getLogger(__name__)
MOVED = "One of its storages was changed meanwhile."
Phase = StageIn.Phase


def stage_data() -> int:
    """The number of calls made. If nothing is copied and no job waits, it is one query."""
    if not stage_ins_are_in_use():
        return 0
    _let_go_of_removed_clusters()
    if not may_prepull():
        return 0
    _stop_forbidden()
    _plan_all()
    crash_point("stage-ins planned")
    visited = visit_all(StageIn.objects, _Visit, record)
    end_waits()
    return visited


def _let_go_of_removed_clusters() -> None:
    """No call reaches a removed cluster: its copies go, and end by their deadline. Their quota is given back."""
    StageIn.objects.filter(cluster__removed_at__isnull=False).delete()


def free_its_quota(sender: object, *, instance: StageIn, **_: object) -> None:  # noqa: ARG001 - a signal's receiver
    """Ends the hold of a copy whose row is deleted, for example with its dataset; a comparison deletes its object."""
    row = lock_stage_in(instance.pk)  # a copy may have begun since the instance was read
    if row is not None and row.object_id is not None:
        quotas.operations.end_holds({row.object_id: "posted"})


def _stop_forbidden() -> None:
    """Stops copies whose cluster is drained, or whose storages were changed so that they are elsewhere or not allowed."""
    for row in live_stage_ins(None):
        drained = "" if row.cluster.wish != Cluster.Wish.DRAINING else f"{row.cluster.name} is being drained."
        told = drained or why_forbidden(row.plan) or (MOVED if has_moved(row) else "")
        if told and row.phase != Phase.ENDING:
            _end(row, Verdict(Outcome.CANCELLED, told))


def _plan_all() -> None:
    for row in all_stage_ins():
        try:
            _plan(row)
        except IntegrityError:
            # Another worker took the slot: the next round counts them.
            logger.info("a copy for plan %s was begun by another worker", row.plan_id)


@retried
def _plan(asked: StageIn) -> None:
    with transaction.atomic():
        row = lock_stage_in(asked.pk)
        if row is None or is_staged(row.plan):
            return
        now = database_now()
        unable = why_unable(row.plan, keys_for([row.plan]))
        told = why_forbidden(row.plan) or unable or why_not_on(row.plan.cluster, now)
        if not standing_of(row, told).may_begin(now):
            if told and not row.failures:
                StageIn.objects.filter(pk=row.pk).exclude(message=told).update(message=told)
            return
        slot = _free_slot(row)
        if slot is not None:
            _begin(row, slot)


def _free_slot(row: StageIn) -> int | None:
    taken = StageIn.objects.filter(cluster_id=row.cluster_id, slot__isnull=False).values_list("slot", flat=True)
    return next((slot for slot in range(MOST_STAGE_INS) if slot not in set(taken)), None)


def _begin(row: StageIn, slot: int) -> None:
    store, secrets = promised_store(row.plan), promised_secret(row.plan)
    if store and not secrets:
        return  # its key was deleted just now: the next round says so
    object_id, tenant = new_id(), row.plan.dataset.tenant
    amounts = {"cpu": CPU_MILLICORES, "memory": MEMORY_MIB}
    asked = HoldRequest(object_id, tenant.id, tenant.path, row.plan.cluster.name, amounts)
    refusal = quotas.operations.take_holds([asked])[object_id]
    if refusal is not None:
        StageIn.objects.filter(pk=row.pk).update(message=refusal.message[:300])
        return
    StageIn.objects.filter(pk=row.pk, phase=Phase.IDLE).update(
        phase=Phase.PLANNED,
        slot=slot,
        object_id=object_id,
        namespace=namespace_for(row.plan),
        image=image_for(row.plan),
        mounts=promised_places(row.plan),
        store=store,
        secrets=secrets,
        begun_at=Now(),
        released_at=None,
        message="",
        copied_bytes=None,
        total_bytes=None,
    )


class _Visit(Visit):
    """The calls to one cluster."""

    def create(self) -> list[tuple[StageIn, Call]]:
        """Creates the objects of planned copies."""
        return [(row, partial(preparation_calls.create, self.driver, copy)) for row, copy in self._in(Phase.PLANNED)]

    def release(self) -> list[tuple[StageIn, Call]]:
        """Releases the objects whose uids are stored, each with its access key."""
        rows = live_stage_ins(self.cluster.id, Phase.CREATED)
        values, closed = clusters.queries.opened_secrets({one for row in rows for one in versions_of(row.secrets)})
        copies = [(row, self._copy(row, values=values, closed=frozenset(closed))) for row in rows]
        return [(row, partial(preparation_calls.release, self.driver, copy)) for row, copy in copies]

    def read(self) -> list[tuple[StageIn, Call]]:
        """Reads how the released ones stand."""
        return [(row, partial(stage_calls.read, self.driver, copy)) for row, copy in self._in(Phase.RELEASED)]

    def remove(self) -> list[tuple[StageIn, Call]]:
        """Deletes the objects of those that have ended."""
        return [(row, partial(preparation_calls.remove, self.driver, copy)) for row, copy in self._in(Phase.ENDING)]

    def _in(self, phase: str) -> list[tuple[StageIn, Copy]]:
        return [(row, self._copy(row)) for row in live_stage_ins(self.cluster.id, phase)]

    def _copy(self, row: StageIn, **secrets: Any) -> Copy:
        identity = identity_of(row)
        return Copy(
            image=row.image,
            sha256=row.plan.sha256,
            mounts=row.mounts,
            store=row.store,
            promised=row.secrets,
            identity=identity,
            cluster_identity=self.cluster.identity,
            uid=row.uid,
            policies=isolation.namespace_policies(identity.namespace, identity.install, settings.JOB_EGRESS),
            lasted=since(row.released_at or row.begun_at),
            **secrets,
        )


def record(row: StageIn, result: object) -> None:
    """Writes what a call returned, if the copy is still as it was when the call was made."""
    match result:
        case Gone():
            _gone(row)
        case Copied(verdict, progress):
            _moved_on(row, progress)
            if verdict.outcome:
                _end(row, verdict, progress)
            else:
                record_step(row, Seen(verdict))
        case _:
            over = record_step(row, result)
            if over is None and isinstance(result, Failed) and _is_too_late(row):
                over = too_late(result.reason)
            if over is not None:
                _end(row, over)


def _is_too_late(row: StageIn) -> bool:
    return row.phase != Phase.ENDING and since(row.begun_at) > 2 * DEADLINE


def _moved_on(row: StageIn, progress: Progress) -> None:
    if progress.total is not None:
        _as_it_was(row).update(copied_bytes=progress.copied, total_bytes=progress.total)


@retried
def _gone(row: StageIn) -> None:
    """Its object is gone, and its quota free."""
    with transaction.atomic():
        if _as_it_was(row).update(**IDLE, mounts=[], store={}, secrets={}) and row.object_id:
            quotas.operations.end_holds({row.object_id: "posted"})


@retried
def _end(row: StageIn, verdict: Verdict, progress: Progress = stage_calls.UNREAD) -> None:
    """The copy's outcome, that its object has to go, and the replica if it ended well."""
    with transaction.atomic():
        if verdict.outcome == Outcome.STAGED and (has_moved(row) or not keep_storages(row.plan)):
            verdict = Verdict(Outcome.CANCELLED, MOVED)
        if _as_it_was(row).update(**_said_of(verdict)) and verdict.outcome == Outcome.STAGED:
            _record_replica(row.plan, progress)


def _said_of(verdict: Verdict) -> dict[str, Any]:
    """The columns of a copy that ended like this."""
    is_staged_now = verdict.outcome == Outcome.STAGED
    said: dict[str, Any] = {"phase": Phase.ENDING, "outcome": verdict.outcome, "ended_at": Now(), "changed_at": Now()}
    said |= {"message": "" if is_staged_now else verdict.message}
    if is_staged_now:
        said |= {"failures": 0, "is_wanted": False}
    elif verdict.outcome == Outcome.FAILED:
        said |= {"failures": F("failures") + 1}
    return said


def _record_replica(plan: StagingPlan, progress: Progress) -> None:
    cost, currency = egress_of(plan)
    size = progress.total if progress.sha256 else None
    sha256 = progress.sha256 or plan.sha256  # its program has compared it
    record_replica(plan, size_bytes=size, sha256=sha256, egress_cost=cost, egress_currency=currency)


def _as_it_was(row: StageIn) -> Any:
    return StageIn.objects.filter(pk=row.pk, object_id=row.object_id, phase=row.phase)
