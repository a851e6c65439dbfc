"""Elastic jobs in a world: of some jobs, a run may have fewer pods than they ask for. In half of these worlds they begin beside jobs
that soon end, so that they grow, and a more urgent one comes later, for which they are stopped and go on with fewer pods.
"""

import random
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from devtools.simulation.clusters.cluster import EXIT_CODE, RUN_SECONDS
from devtools.simulation.judges.promises import judging
from devtools.simulation.setting.stage import GPUS_PER_NODE, TEAMS
from federation.queries import growth

from .clients import Submission
from .crowding import make_ample
from .moves import LONG_DEADLINE

if TYPE_CHECKING:
    from devtools.simulation.worlds.world import World

KIND = "elastic"
SHARE = 0.7
"""The share of the jobs that are elastic, in a world of this kind."""
MOST = (2, 3, 5)
"""How many pods they have at most: more than fit at some times."""
GROWS = 0.6
"""The share of the elastic jobs that ask to grow, and of which it is said that they run for long."""
GROWN_AFTER = timedelta(seconds=20)
"""How long their runs last before they grow: a real gateway waits half an hour."""
OWN = 0.5
"""The share of the worlds with jobs that have room to grow."""
FILLERS, GROWING = 3, (1, 1, 2)
"""Jobs that soon end, which leave one node of four, and elastic ones that come when these run."""
URGENT = 0.5
"""The share of these worlds with an urgent job at the end: jobs that wait keep others from growing."""
_age = growth.AGE


def configure(*, is_on: bool) -> None:
    """How long runs last in this world before they grow."""
    vars(growth)["AGE"] = GROWN_AFTER if is_on else _age


def has_own_jobs(seed: int) -> bool:
    """Whether a world of this kind has jobs that have room to grow."""
    return random.Random(f"{seed}/grows").random() < OWN


def begin(world: "World") -> None:
    """Quota suffices where jobs have room to grow."""
    if KIND in world.faults.rates and has_own_jobs(world.seed):
        make_ample(world)


def submissions(seed: int, wanted: tuple[int, ...]) -> list[Submission]:
    """Jobs that soon end, elastic ones that run for long, and an urgent one; only those with these numbers if there are any."""
    chance, found = random.Random(f"{seed}/growing"), list[Submission]()
    growing, is_rush = chance.choice(GROWING), chance.random() < URGENT
    for number in range(FILLERS + growing + is_rush):
        is_filler, is_urgent = number < FILLERS, number == FILLERS + growing
        pod = {
            "name": "main", "count": chance.choice((3, 4)), "image": "registry.example/train:1", "cpu": "1", "memory": "1Gi",
            "gpu": {"count": chance.choice((1, 2, 2))},
        }  # fmt: skip
        body: dict[str, Any] = {
            "tenant": TEAMS[chance.randrange(2)], "name": f"job-{number}", "deadline_seconds": LONG_DEADLINE,
            "checkpoint_seconds": 20, "estimated_seconds": 5000, "priority_class": "low",
            "labels": {RUN_SECONDS: str(chance.choice((90, 150, 250))), EXIT_CODE: "0"},
        }  # fmt: skip
        if is_filler or is_urgent:
            pod |= {"count": 1, "gpu": {"count": GPUS_PER_NODE}}
            body["labels"] |= {RUN_SECONDS: str(chance.choice((20, 40)))}
            body |= {"priority_class": "high" if is_urgent else "normal"}
        else:
            body["elastic"] = {"min_count": 1, "grow": True}
        body["pod_sets"] = [pod]
        cancel = chance.uniform(40, 120) if chance.random() < 0.15 else None
        one = Submission(f"key-{number}", chance.choice(("ada", "ben")), body, cancel, is_late=not is_filler)
        if chance.random() < 0.1:
            one.suspend_after, one.suspended_for = chance.uniform(20, 80), chance.uniform(0, 40)
        if not wanted or number in wanted:
            found.append(one)
    return found


def equip(seed: int, found: list[Submission]) -> None:
    """Makes some jobs elastic."""
    chance = random.Random(f"{seed}/elastic")
    for one in found:
        is_elastic, most, fewest = chance.random() < SHARE, chance.choice(MOST), chance.choice((1, 1, 2))
        pod = one.body["pod_sets"][0]
        if not is_elastic or pod["count"] < fewest:
            continue
        one.body["pod_sets"] = [pod | {"count": most}, *one.body["pod_sets"][1:]]
        one.body["elastic"] = {"pod_set": pod["name"], "min_count": fewest}
        if "completions" in one.body:
            one.body["completions"] += most
        if chance.random() < GROWS:
            one.body["elastic"]["grow"] = True
            one.body |= {"checkpoint_seconds": 20, "deadline_seconds": LONG_DEADLINE, "estimated_seconds": 5000}
            one.body["labels"] |= {RUN_SECONDS: str(chance.choice((60, 120, 200)))}


@judging
def a_run_has_a_size_of_its_job_and_holds_that(world: "World") -> list[str]:
    """Each run has as many pods as its job allows, held quota for exactly these, and no other pod of it ran."""
    return (
        [f"a run of {name} has {pods} pods, and may have {told}" for name, pods, told in world.watch.rows(SIZES)]
        + [
            f"attempt {attempt} holds {held} of {what} for objects of {asked}"
            for attempt, what, held, asked in world.watch.rows(HELD)
        ]
        + [f"pod {index} of {name} ran, which has {pods} pods" for name, index, pods in world.watch.rows(BEYOND)]
    )


@judging
def jobs_grow_only_if_they_ask_for_it_and_go_on(world: "World") -> list[str]:
    """Each job that was stopped to continue with more pods asks for that, had fewer than its most, gains more than it costs, and has
    not ended with the run that was stopped.
    """
    return [f"attempt {attempt} was stopped to grow: {why}" for attempt, why in world.watch.rows(GROWN)]


GROWN = """
SELECT attempt_id::text, why FROM (
    SELECT move.attempt_id,
           CASE WHEN (job.spec -> 'elastic' ->> 'grow') IS DISTINCT FROM 'true' THEN 'its job does not ask for it'
                WHEN object.pods >= (job.spec -> 'pod_sets' -> object.position::int ->> 'count')::int THEN 'it had the most pods'
                WHEN move.stay_seconds <= move.cost_seconds THEN 'that costs more'
                WHEN attempt.end_reason = 'migrated' AND job.state IN ('failed', 'succeeded') AND next.number IS NULL
                THEN 'its job did not go on' END AS why
      FROM federation_move AS move
      JOIN federation_job AS job ON job.id = move.job_id
      JOIN federation_attempt AS attempt ON attempt.id = move.attempt_id
      JOIN federation_remoteobject AS object ON object.attempt_id = attempt.id
       AND job.spec -> 'pod_sets' -> object.position::int ->> 'name' = job.spec -> 'elastic' ->> 'pod_set'
      LEFT JOIN federation_attempt AS next ON next.job_id = job.id AND next.number = attempt.number + 1
     WHERE move.cause = 'growth') AS grown WHERE why IS NOT NULL ORDER BY 1
"""


SIZES = """
SELECT job.name, object.pods, coalesce(fewest, most) || ' to ' || most
  FROM federation_remoteobject AS object
  JOIN federation_attempt AS attempt ON attempt.id = object.attempt_id
  JOIN federation_job AS job ON job.id = attempt.job_id,
       LATERAL (SELECT job.spec -> 'pod_sets' -> object.position::int AS asked) AS its,
       LATERAL (SELECT (asked ->> 'count')::int AS most,
                       CASE WHEN job.spec -> 'elastic' ->> 'pod_set' = asked ->> 'name'
                            THEN (job.spec -> 'elastic' ->> 'min_count')::int END AS fewest) AS bound
 WHERE NOT object.pods BETWEEN coalesce(fewest, most) AND most ORDER BY 1, 2
"""
BEYOND = """
SELECT object.name, max(pod.index), coalesce(object.completions, object.pods)
  FROM federation_remoteobject AS object
  JOIN federation_podrun AS pod ON pod.remote_object_id = object.id AND pod.started_at IS NOT NULL
 GROUP BY object.id HAVING max(pod.index) >= coalesce(object.completions, object.pods) ORDER BY 1
"""
HELD = """
SELECT attempt_id::text, what, held, asked FROM (
    SELECT object.attempt_id, hold.amounts, sum(object.pods * object.cpu_millicores)::bigint AS cpu,
           sum(object.pods * object.memory_mib)::bigint AS memory, sum(object.pods * object.gpu_units * 1000)::bigint AS gpu
      FROM federation_remoteobject AS object
      JOIN quotas_hold AS hold ON hold.holder_id = object.attempt_id
     GROUP BY object.attempt_id, hold.amounts) AS run,
       LATERAL (VALUES ('cpu', cpu), ('memory', memory), ('gpu', gpu)) AS use(what, asked),
       LATERAL (SELECT coalesce((amounts ->> what)::bigint, 0) AS held) AS its
 WHERE held <> asked ORDER BY 1, 2
"""
