"""What must hold of how long things wait, of what starts, and of what a bad row or a slow clock may spoil."""

from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from devtools.simulation.clusters.objects import Run

from .ends import ALWAYS, METERED, own_runs, removed_unseen
from .promises import UNSETTLED, judging, runs_on, taken_away

if TYPE_CHECKING:
    from devtools.simulation.worlds.world import World

STOPPED_CODES = frozenset({None, 137, 143})
"""With which a program ends that somebody stops, or whose node is gone."""
ELSEWHERE_US = 50 * 1_000_000
"""Less than the shortest time for which a job avoids a cluster that could not start it."""
CREATION_US = 480 * 1_000_000
"""Longer than the gateway tries to create an object at a cluster that hangs."""
REGAIN_US = 120 * 1_000_000
"""Longer than the longest silence of the sweep in a world that has not healed, twice."""
SEEN_US = 20 * 1_000_000
"""A run of this length is seen to run, whatever the time is by its cluster's clock."""
SLOWED_DOWN = frozenset(
    {"freeze", "late", "death", "bell_lost", "bell_late", "commit_lost_done", "commit_lost_not_done", "statement_lost",
     "dispatch_closed", "database_restored", "restored_over_run"}
)  # fmt: skip
"""Faults after which a routine may come later than it should."""


@judging
def what_runs_has_the_devices_that_its_job_asked_for(world: "World") -> list[str]:
    """Each pod that ran had as many GPUs as one of its job's pod sets asks for."""
    asked = {
        str(id_): {(one.get("gpu") or {}).get("count", 0) for one in pod_sets}
        for id_, pod_sets in world.watch.rows("SELECT id, spec -> 'pod_sets' FROM federation_job")
    }
    return [
        f"pod {run.pod_uid} of job {run.job_id} ran with {run.gpus} GPUs"
        for run in runs_on(world)
        if run.job_id in asked and run.gpus not in asked[run.job_id]
    ]


@judging
def promise_8_an_interruption_is_not_the_programs_failure(world: "World") -> list[str]:
    """An attempt of which all pods that did not succeed were interrupted does not end as failed by its program."""
    runs, found = own_runs(world), []
    late = {id_ for cluster in world.clusters.values() for id_ in cluster.overdue}
    for id_, number, job in world.watch.rows(PROGRAM_FAILED):
        failed = [run for run in runs[str(id_)] if run.code != 0]
        is_interrupted = failed and all(run.is_disrupted and run.code in STOPPED_CODES for run in failed)
        if is_interrupted and str(id_) not in late:
            found.append(
                f"attempt {number} of {job} is reported as failed by its program, and its pods were interrupted"
            )
    return found


PROGRAM_FAILED = """
SELECT id, number, job_id FROM federation_attempt
 WHERE state = 'failed' AND end_reason IN ('program_failed', 'job_failed') ORDER BY id
"""


@judging
def promise_3_a_job_that_could_not_start_tries_another_cluster(world: "World") -> list[str]:
    """For a minute, it is not placed again on the cluster that could not start it."""
    if world.lost_commits.spans:
        return []
    found, by_job = list[str](), defaultdict[Any, list[tuple[Any, ...]]](list)
    for job, *attempt in world.watch.rows(NEVER_BEGUN):
        by_job[job].append(tuple(attempt))
    for job, attempts in by_job.items():
        for (_, cluster, could_not, ended_us, _), (number, next_one, _, _, reserved_us) in pairwise(attempts):
            if could_not and cluster == next_one and reserved_us - ended_us < ELSEWHERE_US:
                found.append(f"attempt {number} of {job} was placed where the one before could not start")
    return found


NEVER_BEGUN = """
SELECT job_id, number, cluster_id,
       end_reason IN ('did_not_start', 'started_in_part', 'blocked_in_part', 'cannot_start', 'create_failed', 'services_closed')
       AND NOT EXISTS (SELECT FROM federation_diagnosis AS diagnosis
                        WHERE diagnosis.attempt_id = attempt.id AND NOT starts_with(diagnosis.rule, 'Default: ')),
       (extract(epoch FROM finished_at) * 1000000)::bigint, (extract(epoch FROM reserved_at) * 1000000)::bigint
  FROM federation_attempt AS attempt ORDER BY job_id, number
"""
"""What a rule of the job or a tenant judged, that rule says where it is placed again."""


@judging
def promise_3_a_creation_is_given_up_in_time(world: "World") -> list[str]:
    """An attempt that its cluster does not create is placed elsewhere after some minutes."""
    if world.lost_commits.spans or any(world.faults.happened[kind] for kind in SLOWED_DOWN):
        return []
    return [
        f"attempt {id_} waited {waited_us / 1e6:.0f} s for its creation"
        for id_, waited_us in world.watch.rows(RESERVED)
        if waited_us > CREATION_US
    ]


RESERVED = """
SELECT change.id, (extract(epoch FROM coalesce(next.at, simulation.clock_timestamp()) - change.at) * 1000000)::bigint
  FROM simulation.changes AS change
  LEFT JOIN LATERAL (SELECT at FROM simulation.changes AS later
                      WHERE later.what = 'attempt' AND later.id = change.id AND later.number > change.number
                        AND later.after <> 'reserved' ORDER BY later.number LIMIT 1) AS next ON true
 WHERE change.what = 'attempt' AND change.after = 'reserved' AND change.before IS NULL ORDER BY change.number
"""


@judging
def promise_3_sight_is_regained(world: "World") -> list[str]:
    """When a silent cluster answers again, its attempts do not stay unknown."""
    if world.lost_commits.spans or any(world.faults.happened[kind] for kind in SLOWED_DOWN):
        return []
    healed_us = world.healed_us or world.scheduler.now_us
    return [
        f"attempt {id_} stayed unknown for {(min(until_us or healed_us, healed_us) - again_us) / 1e6:.0f} s after its cluster answered"
        for id_, again_us, until_us in world.watch.rows(UNKNOWN)
        if min(until_us or healed_us, healed_us) - again_us > REGAIN_US
    ]


UNKNOWN = """
SELECT change.id, (extract(epoch FROM again.at) * 1000000)::bigint, (extract(epoch FROM least(next.at, silent.at)) * 1000000)::bigint
  FROM simulation.changes AS change
  JOIN federation_attempt AS attempt ON attempt.id::text = change.id
  JOIN LATERAL (SELECT min(event.at) AS at FROM clusters_clusterevent AS event
                 WHERE event.cluster_id = attempt.cluster_id AND event.at > change.at AND starts_with(event.kind, 'health.')
                   AND event.kind NOT IN ('health.unreachable', 'health.auth_failed')) AS again ON again.at IS NOT NULL
  LEFT JOIN LATERAL (SELECT min(event.at) AS at FROM clusters_clusterevent AS event
                      WHERE event.cluster_id = attempt.cluster_id AND event.at > again.at
                        AND event.kind IN ('health.unreachable', 'health.auth_failed')) AS silent ON true
  LEFT JOIN LATERAL (SELECT min(later.at) AS at FROM simulation.changes AS later
                      WHERE later.what = 'attempt' AND later.id = change.id AND later.number > change.number
                        AND later.after <> 'unknown') AS next ON true
 WHERE change.what = 'attempt' AND change.after = 'unknown' AND change.before IS DISTINCT FROM 'unknown' ORDER BY change.number
"""


@judging
def promise_15_a_bad_row_fails_no_round(world: "World") -> list[str]:
    """If the rows of one run cannot be written, the routine goes on with the others."""
    return sorted(
        {f"{who}: {what}" for _, who, what in world.history.timeline if SPOILED in what and " fails: " in what}
    )


SPOILED = "the row is spoiled"


@judging
def promise_15_what_was_seen_to_run_costs_something(world: "World") -> list[str]:
    """No job of which pods were shown to run for long is metered with nothing, however wrong its cluster's clock is."""
    metered = {str(job_id): int(units or 0) for job_id, units, _ in world.watch.rows(METERED)}
    still = {str(row[0]) for row in world.watch.rows(UNSETTLED)}
    excused, unseen, seen = taken_away(world), removed_unseen(world), defaultdict[str, list[Run]](list)
    shown = {uid for cluster in world.clusters.values() for uid in cluster.shown}
    for run in runs_on(world):
        if run.pod_uid in shown and run.to_us is not None and run.to_us - run.from_us > SEEN_US and run.gpus:
            seen[run.job_id].append(run)
    return [
        f"job {job_id} ran, and is metered with nothing"
        for job_id, runs in sorted(seen.items())
        if job_id in metered.keys() - still and not metered[job_id] and not world.lost_commits.spans
        if not any(run.is_residue or run.attempt_id in excused or run in unseen for run in runs)
    ]


ALWAYS += [
    what_runs_has_the_devices_that_its_job_asked_for,
    promise_8_an_interruption_is_not_the_programs_failure,
    promise_3_a_job_that_could_not_start_tries_another_cluster,
    promise_3_a_creation_is_given_up_in_time,
    promise_3_sight_is_regained,
    promise_15_a_bad_row_fails_no_round,
]
