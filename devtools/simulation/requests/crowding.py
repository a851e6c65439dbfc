"""Worlds in which a large job waits for room: nodes are kept for it, and what is idle there is charged to its team."""

import random
from functools import partial
from typing import TYPE_CHECKING, Any

from django.conf import settings

from devtools.simulation.clusters.cluster import EXIT_CODE, RUN_SECONDS
from devtools.simulation.judges.promises import judging
from devtools.simulation.setting.stage import GPUS_PER_NODE, NODES, TEAMS
from federation.queries import snapshot as snapshots
from placement.values.model import Snapshot
from quotas.operations import put_limit
from tenancy.queries import SYSTEM

from .clients import Submission

if TYPE_CHECKING:
    from devtools.simulation.worlds.world import World

KIND = "room_kept"
FILLERS = 3
"""Jobs that need a node each. Of the four nodes of both clusters, they leave one: too little for one that needs two in one cluster."""
PATIENCE_SECONDS, KEPT_SECONDS = 5, 40
"""After how long room is kept for a job, and for how long at most: a real gateway waits ten minutes."""
AMPLE = 60_000
_kept_seconds = settings.KEPT_ROOM_SECONDS


def submissions(seed: int, wanted: tuple[int, ...]) -> list[Submission]:
    """Three jobs that fill nodes for some time, a gang that needs two nodes, and a small job behind it; only those with these numbers
    if there are any.
    """
    chance, found = random.Random(f"{seed}/crowding"), list[Submission]()
    for number in range(FILLERS + 2):
        is_gang, is_small = number == FILLERS, number > FILLERS
        gpus = 1 if is_small else GPUS_PER_NODE
        pod = {
            "name": "main", "count": NODES if is_gang else 1, "image": "registry.example/train:1", "cpu": "1", "memory": "1Gi",
            "gpu": {"count": gpus},
        }  # fmt: skip
        body: dict[str, Any] = {
            "tenant": TEAMS[number % 2], "name": f"job-{number}", "pod_sets": [pod],
            "deadline_seconds": chance.choice((300, 1000)),
            "labels": {RUN_SECONDS: str(chance.choice((20, 60) if number < FILLERS else (1, 5))), EXIT_CODE: "0"},
        }  # fmt: skip
        if chance.random() < 0.5:
            body["estimated_seconds"] = chance.choice((5, 60))
        cancel = chance.uniform(20, 80) if chance.random() < 0.2 else None
        one = Submission(f"key-{number}", chance.choice(("ada", "ben")), body, cancel)
        if not wanted or number in wanted:
            found.append(one)
    return found


def install(*, is_soon: bool) -> None:
    """How long jobs wait for room in this world before it is kept, and before others move for them."""
    vars(snapshots)["Snapshot"] = partial(Snapshot, patience_seconds=PATIENCE_SECONDS) if is_soon else Snapshot
    settings.KEPT_ROOM_SECONDS = KEPT_SECONDS if is_soon else _kept_seconds


def begin(world: "World") -> None:
    """Quota suffices: only room is short."""
    if KIND in world.faults.rates:
        make_ample(world)


def make_ample(world: "World") -> None:
    """No limit is short."""
    for path in ("acme", *TEAMS):
        world.wish(f"allows {path} more", lambda path=path: put_limit(SYSTEM, path, "gpu", nominal=AMPLE))  # type: ignore[misc]


@judging
def what_is_kept_idle_is_charged_while_it_is_kept(world: "World") -> list[str]:
    """Room is kept for a job only while it waits. What was idle there counts as used by the job's team, in times that do not overlap,
    all of them within that in which the room was kept, and never more than its nodes have.
    """
    return [
        *(f"room is still kept for job {job}" for (job,) in world.watch.rows(STANDING)),
        *(f"idle {id_} of {holder}: {why}" for id_, holder, why in world.watch.rows(CHARGED)),
    ]


STANDING = """
SELECT kept.job_id::text FROM federation_keptroom AS kept JOIN federation_job AS job ON job.id = kept.job_id
 WHERE kept.ended_at IS NULL AND job.state IN ('succeeded', 'failed', 'cancelled') ORDER BY 1
"""
CHARGED = """
SELECT id, holder_id, why FROM (
    SELECT idle.id::text, idle.holder_id::text, idle.created_at,
           CASE WHEN room.id IS NULL THEN 'no room was kept for it'
                WHEN idle.created_at < room.since_at THEN 'it began before the room was kept'
                WHEN room.ended_at IS NOT NULL AND idle.ended_at IS NULL THEN 'it goes on although the room is not kept any more'
                WHEN idle.ended_at > room.ended_at + interval '5 seconds' THEN 'it ended after the room'
                WHEN idle.tenant_id <> job.tenant_id THEN 'another team is charged'
                WHEN (idle.amounts ->> 'gpu')::bigint > 4000 * jsonb_array_length(room.nodes) THEN 'it is more than the nodes have'
                WHEN EXISTS (SELECT FROM quotas_keptidle AS other
                              WHERE other.holder_id = idle.holder_id AND other.id <> idle.id
                                AND least(other.ended_at, idle.ended_at)
                                    > greatest(other.created_at, idle.created_at) + interval '5 seconds')
                THEN 'it overlaps with another one' END AS why
      FROM quotas_keptidle AS idle
      LEFT JOIN (SELECT id, job_id, since_at, ended_at, nodes FROM federation_keptroom
                  UNION ALL SELECT attempt_id, job_id, since_at, ended_at, nodes FROM federation_keptplace) AS room
        ON room.id = idle.holder_id
      LEFT JOIN federation_job AS job ON job.id = room.job_id) AS charged
 WHERE why IS NOT NULL ORDER BY created_at, id
"""
"""An amount ends at the time of its statement, and the next one begins at that of its transaction: hence the five seconds."""
