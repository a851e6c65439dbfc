"""Jobs that wait for data: promised a place instead of getting it, and considered again when their data is there.

While a job waits it holds the quota of that place, under the id of its wait, and no GPUs. Cycles pass over it until the wait ends,
at the latest at `until_at`: the job's `retry_at` says so, even if nothing ends the wait.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models.functions import Now
from msgspec import json

import quotas.operations
from clusters.models import Cluster
from federation.engine.lifecycle import JobState
from federation.engine.staging import wait_ends
from federation.locks import QueuedJob, lock_data_waits, lock_queued_jobs
from federation.models import DataWait, Job, JobEvent, StageIn
from federation.models.staging import MOST_AWAITED
from federation.operations.waiting_reasons import tell_refused
from federation.queries.staging import (
    earlier_waits,
    needed_plans,
    open_waits,
    progress_text,
    stage_ins_by_plan,
    standing_of,
    stopped_plans,
    wait_seconds_of,
)
from foundation.clock import database_now
from foundation.ids import new_id
from foundation.outbox import announce
from foundation.transactions import retried
from placement.values.decisions import Placement
from placement.values.model import JobRequest
from placement.values.reason_codes import ReasonCode
from quotas.operations import HoldRequest

ENDED = {
    "ready": "The data that it waited for is there.",
    "late": "Its data was not copied in time; it is placed without waiting.",
    "failed": "Its data could not be copied; it is placed without waiting.",
    "skipped": "A user lets it run without waiting for its data.",
    "closed": "The cluster where its data was being copied takes no new work; it is placed again.",
    "over": "It no longer waits for its data.",
}
"""By outcome, what the timeline says."""


def without_promised(
    placements: Sequence[Placement],
    requests: Mapping[UUID, JobRequest],
    holder_of: Callable[[UUID, QueuedJob, Placement], HoldRequest],
) -> Sequence[Placement]:
    """The placements that become attempts. Of the others, whose data has to be copied first, the jobs wait from now on. No query if
    no job wants that, or without a copy image.
    """
    if not settings.STAGE_IMAGE or not any(
        need.stage for placed in placements for need in requests[placed.job_id].data
    ):
        return placements
    needed = needed_plans(requests, [(placed.job_id, placed.cluster_id) for placed in placements])
    if not needed:
        return placements
    stopped = stopped_plans({plan for plans in needed.values() for plan in plans})
    waiting = _promise([one for one in placements if one.job_id in needed], needed, stopped, holder_of)
    return [one for one in placements if one.job_id not in waiting]


@retried
def _promise(
    placements: Sequence[Placement],
    needed: Mapping[UUID, list[UUID]],
    stopped: set[UUID],
    holder_of: Callable[[UUID, QueuedJob, Placement], HoldRequest],
) -> set[UUID]:
    """The jobs that are not placed: those that wait for data now, and those whose quota is used up."""
    with transaction.atomic():
        jobs = lock_queued_jobs([placed.job_id for placed in placements])
        earlier, now = earlier_waits(jobs.keys()), database_now()
        drafts = []
        for placed in placements:
            job = jobs.get(placed.job_id)
            plans = needed[placed.job_id][:MOST_AWAITED]
            until_at = None if job is None or stopped & set(plans) else _until(job, earlier.get(job.id, ()), now)
            if job is not None and until_at is not None:
                wait = DataWait(id=new_id(), job_id=job.id, cluster_id=placed.cluster_id, plans=plans)
                wait.until_at = until_at
                drafts.append((wait, holder_of(wait.id, job, placed)))
        refusals = quotas.operations.take_holds([asked for _, asked in drafts])
        tell_refused([(wait.job_id, told) for wait, _ in drafts if (told := refusals[wait.id]) is not None])
        made = [wait for wait, _ in drafts if refusals[wait.id] is None]
        _begin(made, {placed.job_id: placed.cluster for placed in placements})
    return {wait.job_id for wait, _ in drafts}


def _until(job: QueuedJob, earlier: Sequence[DataWait], now: datetime) -> datetime | None:
    """Until when the job may wait, counted from its first wait; None if it may not: one of its waits failed, or its time is up."""
    if any(wait.outcome not in ("ready", "closed", "over") for wait in earlier):
        return None
    first = earlier[0].made_at if earlier else now
    until_at = first + timedelta(seconds=wait_seconds_of(json.decode(job.spec)))
    return until_at if until_at > now else None


def _begin(waits: Sequence[DataWait], clusters: Mapping[UUID, str]) -> None:
    if not waits:
        return
    DataWait.objects.bulk_create(waits)
    wanted = {plan: wait.cluster_id for wait in waits for plan in wait.plans}
    StageIn.objects.bulk_create(
        [StageIn(plan_id=plan, cluster_id=cluster) for plan, cluster in sorted(wanted.items())], ignore_conflicts=True
    )
    for wait in waits:
        told = f"It waits for the copy of its data to {clusters[wait.job_id]}. Its quota is held, and no GPUs."
        Job.objects.filter(id=wait.job_id, state=JobState.QUEUED).update(
            reason_code=ReasonCode.WAITING_FOR_DATA,
            reason_message=told,
            reason_at=Now(),
            retry_at=wait.until_at,
            explanation={},
        )
    JobEvent.objects.bulk_create(
        JobEvent(job_id=wait.job_id, kind="waiting_for_data", message=f"It waits for data on {clusters[wait.job_id]}.")
        for wait in waits
    )
    announce("stage")


@retried
def end_waits() -> int:
    """The number of waits that ended, because the data is there or will not come. Their quota is free and their jobs are in the queue
    again. The other jobs show how far the copies are.
    """
    if not open_waits():
        return 0
    with transaction.atomic():
        waits = lock_data_waits()
        rows = stage_ins_by_plan({plan for wait in waits for plan in wait.plans})
        now, ended = database_now(), 0
        for wait in waits:
            outcome = _outcome(wait, rows, now)
            if outcome:
                _end(wait, outcome)
                ended += 1
            else:
                _tell_progress(wait, rows)
        if ended:
            announce("cycle")
    return ended


def _outcome(wait: DataWait, rows: Mapping[UUID, StageIn], now: datetime) -> str:
    parts = [standing_of(rows[plan], "") if plan in rows else None for plan in wait.plans]
    is_open = wait.cluster.removed_at is None and wait.cluster.wish == Cluster.Wish.OPEN
    is_queued = wait.job.state == JobState.QUEUED
    return wait_ends(parts, is_queued=is_queued, is_open=is_open, until_at=wait.until_at, now=now)


def _end(wait: DataWait, outcome: str) -> None:
    if not DataWait.objects.filter(id=wait.id, ended_at=None).update(ended_at=Now(), outcome=outcome):
        return
    quotas.operations.end_holds({wait.id: "voided"})
    jobs = Job.objects.filter(id=wait.job_id, retry_at=wait.until_at)
    jobs.update(retry_at=None)
    told: dict[str, Any] = {"reason_message": ENDED[outcome], "reason_at": Now()}
    Job.objects.filter(id=wait.job_id, state=JobState.QUEUED, reason_code=ReasonCode.WAITING_FOR_DATA).update(**told)
    if outcome != "over":
        JobEvent.objects.create(job_id=wait.job_id, kind="data_wait_ended", message=ENDED[outcome])


def _tell_progress(wait: DataWait, rows: Mapping[UUID, StageIn]) -> None:
    told = "; ".join(progress_text(rows.get(plan)) for plan in wait.plans)
    message = f"{told[0].upper()}{told[1:]}."
    jobs = Job.objects.filter(id=wait.job_id, state=JobState.QUEUED, reason_code=ReasonCode.WAITING_FOR_DATA)
    jobs.exclude(reason_message=message).update(reason_message=message, reason_at=Now())


def skip_wait(job_id: UUID) -> bool:
    """Whether the job waited for data. It waits no longer, and no more."""
    with transaction.atomic():
        found = [wait for wait in lock_data_waits() if wait.job_id == job_id]
        for wait in found:
            _end(wait, "skipped")
    return bool(found)
