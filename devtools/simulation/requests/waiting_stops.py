"""Suspensions and moves that wait for the next checkpoint of a run, while their users change their minds, programs report early, late,
or never, and all else goes on.
"""

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.conf import settings

from devtools.simulation.clusters.cluster import RUN_SECONDS
from devtools.simulation.core.faults import Faults
from devtools.simulation.judges.promises import judging
from federation import operations
from federation.models import Job
from foundation.schedule import Schedule
from tenancy.queries import Actor

from . import notices, supplies

if TYPE_CHECKING:
    from devtools.simulation.worlds.world import World

    from .clients import Submission

KIND = "stops_wait"
WAITS = 0.5
"""The share of the jobs that report and whose users let a stop wait for a checkpoint, in other worlds."""
REPORTING, SUSPENDED, MOVED, AGAIN, CANCELLED = 0.9, 0.6, 0.4, 0.4, 0.25
"""In a world of this kind, the share of the jobs that report; that are suspended; moved before that; of which the suspension is
asked for once more; and which are cancelled instead of resumed.
"""
SECONDS = (2, 20, 60)
EVERY_SECONDS = 6.0
POLLS = 40
LOOKS, LOOK_SECONDS = 40, 3.0
LATE_US = 120 * 1_000_000
"""Within which time after its end a wait has ended: a worker may have died, and another one must begin."""
DELAYING = (
    "freeze", "death", "late", "bell_lost", "bell_late", "commit_lost_done", "commit_lost_not_done", "statement_lost", "overtaken",
    "database_restored", "restored_over_run", "unannounced", "dispatch_closed", "requests_hang", "rows_refused", "rows_spoiled",
    "clock_jumps", "clocks_differ",
)  # fmt: skip
"""Faults that may keep rounds from being made, until the world heals."""
WAITING = "SELECT FROM federation_job WHERE stop_latest_at IS NOT NULL LIMIT 1"
RUNNING = """
SELECT attempt.id FROM federation_attempt AS attempt JOIN federation_job AS job ON job.id = attempt.job_id
 WHERE attempt.state = 'running' AND job.spec @> '{"reports": true}' ORDER BY job.stop_latest_at IS NULL, attempt.id
"""


def equip(seed: int, submissions: "list[Submission]") -> None:
    """Lets most jobs report, run for a while, and be suspended or moved."""
    chance = random.Random(f"{seed}/stops")
    for one in submissions:
        reports, suspends, moves = (chance.random() < share for share in (REPORTING, SUSPENDED, MOVED))
        after, lasts, runs = chance.uniform(0, 15), chance.uniform(5, 60), chance.choice((60, 200, 900))
        if not reports:
            continue
        one.body |= {"reports": True}
        one.body["labels"] |= {RUN_SECONDS: str(runs if one.cancel_after is not None else min(runs, 200))}
        one.is_moved = moves
        if suspends:
            one.suspend_after, one.suspended_for = after, lasts


def begin(world: "World") -> None:
    """There is a key that seals the tokens with which programs report."""
    if KIND in world.faults.rates:
        settings.KEY_RING = supplies.RING


def hastened(schedules: list[Schedule], faults: Faults) -> list[Schedule]:
    """The routines: where stops wait, the round that carries them out is made often."""
    if KIND not in faults.rates:
        return schedules
    return [replace(one, every_seconds=EVERY_SECONDS) if one.name == "relocate" else one for one in schedules]


def wait_of(seed: int, key: str, body: dict[str, Any]) -> dict[str, int]:
    """What the request of a stop adds so that it waits for a checkpoint; nothing for a job that does not report."""
    chance = random.Random(f"{seed}/waits/{key}")
    waits, seconds = chance.random() < WAITS, chance.choice(SECONDS)
    return {"wait_for_checkpoint_seconds": seconds} if waits and body.get("reports") else {}


def wanted_suspension(world: "World", one: "Submission", turn: int = 0) -> Callable[[Actor, UUID], Job]:
    """How its user suspends it: where stops wait, when it runs, or after a while."""
    if KIND in world.faults.rates:
        for _ in range(POLLS):
            if world.state_of(one.job_id) in ("queued", "dispatching"):
                world.scheduler.sleep(1)
    return partial(operations.request_suspension, body=wait_of(world.seed, f"{one.key}/{turn}", one.body))


def asks_again(world: "World", one: "Submission") -> bool:
    """Whether its user asks once more to suspend it, with another wait, after a while."""
    is_again = random.Random(f"{world.seed}/again/{one.key}").random() < AGAIN and KIND in world.faults.rates
    if is_again and one.is_suspended:
        world.scheduler.sleep(world.faults.between(0, 20))
    return is_again and one.is_suspended


def cancels_instead(world: "World", one: "Submission") -> bool:
    """Whether its user cancels it instead of resuming it, while its stop waits or after it."""
    is_over = random.Random(f"{world.seed}/instead/{one.key}").random() < CANCELLED and KIND in world.faults.rates
    return is_over and one.cancel_after is not None


def report(world: "World", left: int = LOOKS) -> None:
    """A program reports for a while, one whose stop waits if there is one soon. Each second report has a checkpoint."""
    if world.faults.is_healed or not left:
        return
    if world.processes["web"].is_dead or (left > 1 and not world.watch.rows(WAITING)):
        world.scheduler.after(LOOK_SECONDS, lambda: report(world, left - 1))
        return
    attempts = [id_ for (id_,) in world.watch.rows(RUNNING)]
    if attempts:
        notices.report_of(world, attempts[0])


@judging
def a_stop_waits_no_longer_than_its_user_allowed(world: "World") -> list[str]:
    """Soon after the time of each wish, at the latest: its run is being stopped or has ended, or the wish was withdrawn or replaced. Where
    rounds could not be made, soon after the world has healed.
    """
    is_delayed = any(world.faults.happened[kind] for kind in DELAYING) or bool(world.lost_commits.spans)
    able_us = world.healed_us if is_delayed else 0
    if is_delayed and not able_us:
        return []
    standstills = [to_us or 1 << 62 for (to_us,) in world.watch.rows(STANDSTILLS)]
    now_us, found = world.scheduler.now_us, list[str]()
    for job, asked_us, seconds, ended_us in world.watch.rows(WISHES):
        latest_us = max(asked_us + seconds * 1_000_000, able_us, *standstills, 0) + LATE_US
        if min(ended_us or 1 << 62, now_us) > latest_us:
            found.append(
                f"a stop of {job} waited {((ended_us or now_us) - asked_us) // 1_000_000} s instead of {seconds}"
            )
    return found


@judging
def a_stop_does_not_come_before_its_checkpoint(world: "World") -> list[str]:
    """A stop that waited, and is said to come because of a checkpoint, comes after one that was reported after the wish; and one that is
    said to come because its time is over does not come earlier.
    """
    if world.lost_commits.spans:
        return []
    return [f"job {job} is stopped too early: {message}" for job, message in world.watch.rows(EARLY)]


STANDSTILLS = "SELECT (extract(epoch FROM ended_at) * 1000000)::bigint FROM federation_standstill"
WISHES = """
SELECT entry.object_id, (extract(epoch FROM entry.at) * 1000000)::bigint, (entry.detail ->> 'wait_for_checkpoint_seconds')::int,
       (extract(epoch FROM (SELECT min(its.at) FROM (
         SELECT later.at FROM tenancy_auditentry AS later
          WHERE later.object_id = entry.object_id AND later.id > entry.id
            AND later.action IN ('job.suspend', 'job.migrate', 'job.resume', 'job.cancel')
          UNION ALL
         SELECT change.at FROM federation_attempt AS attempt
          CROSS JOIN LATERAL (VALUES (attempt.stop_requested_at), (attempt.finished_at)) AS change (at)
          WHERE attempt.job_id = entry.object_id::uuid AND change.at >= entry.at
          UNION ALL
         SELECT event.at FROM federation_jobevent AS event
          WHERE event.job_id = entry.object_id::uuid AND event.kind = 'stop_withdrawn' AND event.at >= entry.at) AS its (at))) * 1000000)::bigint
  FROM tenancy_auditentry AS entry WHERE entry.detail ? 'wait_for_checkpoint_seconds' ORDER BY entry.id
"""
EARLY = """
SELECT event.job_id::text, event.message
  FROM federation_jobevent AS event
 CROSS JOIN LATERAL (
    SELECT entry.at, entry.at + make_interval(secs => (entry.detail ->> 'wait_for_checkpoint_seconds')::int) AS latest_at
      FROM tenancy_auditentry AS entry
     WHERE entry.object_id = event.job_id::text AND entry.detail ? 'wait_for_checkpoint_seconds' AND entry.at < event.at
     ORDER BY entry.id DESC LIMIT 1) AS wished
 WHERE event.kind IN ('job_suspending', 'interrupted')
   AND (event.message LIKE '%%the time to wait for a checkpoint has ended%%' AND event.at < wished.latest_at
        OR event.message LIKE '%%its checkpoint is reported%%' AND NOT EXISTS (
           SELECT FROM federation_checkpoint AS saved JOIN federation_attempt AS attempt ON attempt.id = saved.attempt_id
            WHERE attempt.job_id = event.job_id AND saved.reported_at > wished.at))
 ORDER BY event.id
"""
EVENTS: dict[str, Callable[["World"], None]] = {KIND: report}
"""By the kind of fault."""
