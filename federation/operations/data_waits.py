"""Jobs that wait for data: promised a place instead of getting it, and considered again when their data is there.

While a job waits it holds the quota of that place, under the id of its wait, and no GPUs. Cycles pass over it until the wait ends,
at the latest at `until_at`: the job's `retry_at` says so, even if nothing ends the wait.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models.functions import Now
from msgspec import json

import quotas.operations
from clusters.engine.secrets import Keyring
from clusters.models import Cluster
from clusters.operations.staging import keep_plans
from federation.engine.lifecycle import JobState
from federation.engine.staging import Outcome, Standing, wait_ends
from federation.locks import QueuedJob, lock_data_waits, lock_queued_jobs, read_reservations
from federation.models import DataWait, Job, JobEvent, KeptRoom, StageIn
from federation.models.staging import MOST_AWAITED
from federation.operations.waiting_reasons import tell_refused
from federation.queries.prepulls import ANSWERING
from federation.queries.stage_places import copies_are_on, keys_for, why_unable
from federation.queries.staging import (
    earlier_waits,
    hopeless_plans,
    needed_plans,
    open_waits,
    progress_text,
    recalled_waits,
    stage_ins_by_plan,
    standing_of,
    wait_seconds_of,
    why_forbidden,
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
RECALLED = "Others need the quota that it held while it waited for data; it is placed without waiting."


def without_promised(
    placements: Sequence[Placement],
    requests: Mapping[UUID, JobRequest],
    holder_of: Callable[[UUID, QueuedJob, Placement], HoldRequest],
    lawful: Callable[[Sequence[Placement]], Sequence[Placement]],
    claimed: Collection[UUID],
) -> Sequence[Placement]:
    """The placements that become attempts. Of the others, whose data has to be copied first, the jobs wait from now on. No query if
    no job wants that, or without a copy image. The `claimed` jobs do not wait: others were stopped or moved for them, or they
    were moved themselves, and their nodes would be idle meanwhile.
    """
    if not copies_are_on():
        return placements
    may_wait = [
        one for one in placements if one.job_id not in claimed and any(need.stage for need in requests[one.job_id].data)
    ]
    needed = needed_plans(requests, [(one.job_id, one.cluster_id) for one in may_wait])
    if not needed:
        return placements
    waiting = _promise([one for one in may_wait if one.job_id in needed], needed, holder_of, lawful)
    return [one for one in placements if one.job_id not in waiting]


@retried
def _promise(
    placements: Sequence[Placement],
    needed: Mapping[UUID, list[UUID]],
    holder_of: Callable[[UUID, QueuedJob, Placement], HoldRequest],
    lawful: Callable[[Sequence[Placement]], Sequence[Placement]],
) -> set[UUID]:
    """The jobs that are not placed: those that wait for data now, and those whose quota is used up."""
    with transaction.atomic():
        read_reservations()
        placements = lawful(placements)
        jobs = lock_queued_jobs([placed.job_id for placed in placements])
        earlier, now = earlier_waits(jobs.keys()), database_now()
        wanted = {plan for plans in needed.values() for plan in plans}
        keep_plans(wanted)
        hopeless = hopeless_plans(wanted)
        drafts = []
        for placed in placements:
            job = jobs.get(placed.job_id)
            plans = needed[placed.job_id][:MOST_AWAITED]
            until_at = None if job is None or hopeless & set(plans) else _until(job, earlier.get(job.id, ()), now)
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
    forgotten = StageIn.objects.filter(plan__in=wanted, outcome=Outcome.STAGED, plan__replica=None)
    forgotten.update(is_wanted=True, outcome="", ended_at=None, changed_at=Now())
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
        keyring = keys_for(row.plan for row in rows.values())
        now, ended, recalled = database_now(), 0, recalled_waits()
        kept = dict(KeptRoom.objects.filter(ended_at=None).values_list("job_id", "until_at"))
        for wait in waits:
            if outcome := _outcome(wait, rows, keyring, now):
                _end(wait, outcome)
                ended += 1
            elif wait.id in recalled:
                _end(wait, "late", RECALLED)
                ended += 1
            else:
                _tell_progress(wait, rows, kept.get(wait.job_id))
        if ended:
            announce("cycle")
    return ended


def _outcome(wait: DataWait, rows: Mapping[UUID, StageIn], keyring: Keyring, now: datetime) -> str:
    parts = [_part(rows.get(plan), keyring) for plan in wait.plans]
    is_open = (
        wait.cluster.removed_at is None and wait.cluster.wish == Cluster.Wish.OPEN and wait.cluster.health in ANSWERING
    )
    is_queued = wait.job.state == JobState.QUEUED
    return wait_ends(parts, is_queued=is_queued, is_open=is_open, until_at=wait.until_at, now=now)


def _part(row: StageIn | None, keyring: Keyring) -> Standing | None:
    """How a copy stands; None if it will not come: its plan is gone or not allowed, or nothing is copied any more."""
    if row is None:
        return None
    standing = standing_of(row, "")
    may_come = not why_forbidden(row.plan) and (standing.is_live or not why_unable(row.plan, keyring))
    return standing if standing.is_staged or may_come else None


def _end(wait: DataWait, outcome: str, message: str = "") -> None:
    message = message or ENDED[outcome]
    if not DataWait.objects.filter(id=wait.id, ended_at=None).update(ended_at=Now(), outcome=outcome):
        return
    quotas.operations.end_holds({wait.id: "voided"})
    jobs = Job.objects.filter(id=wait.job_id, retry_at=wait.until_at)
    jobs.update(retry_at=None)
    told: dict[str, Any] = {"reason_message": message, "reason_at": Now()}
    Job.objects.filter(id=wait.job_id, state=JobState.QUEUED, reason_code=ReasonCode.WAITING_FOR_DATA).update(**told)
    if outcome != "over":
        JobEvent.objects.create(job_id=wait.job_id, kind="data_wait_ended", message=message)


def _tell_progress(wait: DataWait, rows: Mapping[UUID, StageIn], kept_until: datetime | None) -> None:
    told = "; ".join(progress_text(rows.get(plan)) for plan in wait.plans)
    if kept_until is not None:
        told = f"{told}. The nodes that were kept for it remain kept until {kept_until:%d %b %H:%M} UTC at most"
    message = f"{told[0].upper()}{told[1:]}."
    jobs = Job.objects.filter(id=wait.job_id, state=JobState.QUEUED, reason_code=ReasonCode.WAITING_FOR_DATA)
    jobs.exclude(reason_message=message).update(reason_message=message, reason_at=Now())


def skip_wait(job_id: UUID) -> bool:
    """Whether the job waited for data. It waits no longer, and no more."""
    with transaction.atomic():
        found = lock_data_waits(job_id)
        for wait in found:
            _end(wait, "skipped")
    return bool(found)
