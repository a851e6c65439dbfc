"""Records the room that a cycle keeps for jobs, from cycle to cycle, and charges what is idle there to the jobs' tenants."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from django.db import connection, transaction

import quotas.operations
from federation.locks import rewrite_kept_room
from federation.models import Job, JobEvent, KeptRoom
from foundation.rows import insert_rows
from placement.values import decisions as values
from placement.values.decisions import Placement
from placement.values.model import Snapshot
from quotas.operations import Idle

SLIP = timedelta(minutes=1)
"""An expected start is written again if it moved by this much."""
LATE = {False: "did not become free in time", True: "its data was not there in time"}
"""By whether the job waits for data."""
END = """
UPDATE federation_keptroom AS kept
   SET ended_at = greatest(now(), kept.since_at),
       outcome = CASE WHEN job.state IN ('dispatching', 'running', 'succeeded', 'failed') THEN 'placed'
                      WHEN job.state <> 'queued' THEN 'withdrawn'
                      WHEN kept.until_at <= now() THEN 'given_up' ELSE 'released' END
  FROM federation_job AS job
 WHERE kept.ended_at IS NULL AND job.id = kept.job_id AND kept.id <> ALL(%s)
RETURNING job.id, kept.outcome, kept.since_at, kept.until_at, kept.again_at, job.reason_code = 'waiting_for_data'
"""


def keep_room(kept: Sequence[values.KeptRoom], places: Mapping[UUID, Idle] | None = None) -> None:
    """From now on, exactly this is kept; what is not kept any more ends. Rows that did not change are not written.

    Only one cycle writes these rows at a time. Whatever a cycle did not write because it was interrupted, the next one
    does. `places` are what is idle in places that are kept for restarts, by their ids (`kept_places`): it is charged likewise.
    """
    with transaction.atomic():
        rewrite_kept_room()
        wanted = {one.job_id: one for one in kept}
        standing = {
            row.job_id: row
            for row in KeptRoom.objects.filter(ended_at=None)
            if row.job_id in wanted and row.until_at == wanted[row.job_id].until
        }
        _end_others([row.id for row in standing.values()])
        tenants = dict(Job.objects.filter(id__any_of=list(wanted)).values_list("id", "tenant_id"))
        idle = dict(places or {})
        for job_id, one in wanted.items():
            row = standing.get(job_id)
            if row is None:
                row = _begin(one)
            elif _has_changed(row, one):
                row.cluster_id, row.nodes, row.expected_at = one.cluster_id, list(one.nodes), _start_of(one)
                row.save(update_fields=["cluster_id", "nodes", "expected_at"])
            idle[row.id] = Idle(tenants[job_id], one.idle, row.until_at)
        quotas.operations.keep_idle(idle)


def kept_while_waiting(promised: Iterable[Placement], snapshot: Snapshot) -> list[values.KeptRoom]:
    """The room of jobs that got no attempt at their place, because they wait for data there: what was kept for them before
    remains, in its time, as the nodes of that place. Later cycles keep it in their turn (`placement.cycle`).
    """
    earlier = {one.job_id: one for one in snapshot.kept if not one.is_given_up(snapshot.now)}
    return [
        replace(
            earlier[placed.job_id],
            cluster_id=placed.cluster_id,
            nodes=tuple(sorted({node for pods in placed.pod_sets for node in pods.nodes})),
        )
        for placed in promised
        if placed.job_id in earlier
    ]


def _begin(one: values.KeptRoom) -> KeptRoom:
    assert one.until is not None
    assert one.again is not None
    return KeptRoom.objects.create(
        job_id=one.job_id,
        cluster_id=one.cluster_id,
        nodes=list(one.nodes),
        expected_at=_start_of(one),
        since_at=one.since,
        until_at=one.until,
        again_at=one.again,
    )


def _end_others(stays: Sequence[object]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(END, [list(stays)])
        ended = cursor.fetchall()
    insert_rows(
        [
            JobEvent(
                job_id=job_id,
                kind="kept_room_given_up",
                message=f"Nodes were kept for it from {since:%d %b %H:%M} UTC until {until:%d %b %H:%M} UTC and "
                f"{LATE[of_data]}. They are open to others, and may be kept for it again from {again:%d %b %H:%M} UTC on.",
            )
            for job_id, outcome, since, until, again, of_data in ended
            if outcome == "given_up"
        ]
    )


def _start_of(one: values.KeptRoom) -> datetime | None:
    return None if one.start is None else one.start.at


def _has_changed(row: KeptRoom, one: values.KeptRoom) -> bool:
    if (row.cluster_id, row.nodes) != (one.cluster_id, list(one.nodes)):
        return True
    if row.expected_at is None or one.start is None:
        return (row.expected_at is None) != (one.start is None)
    return bool(abs(row.expected_at - one.start.at) >= SLIP)
