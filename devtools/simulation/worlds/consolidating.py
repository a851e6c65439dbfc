"""Worlds in which small jobs leave pieces of nodes free and larger ones come: policies let the gateway move the small ones."""

import random
from typing import TYPE_CHECKING, Any

from devtools.simulation.clusters.cluster import EXIT_CODE, RUN_SECONDS
from devtools.simulation.judges.promises import judging
from devtools.simulation.requests.administration import path_of
from devtools.simulation.requests.clients import Submission
from devtools.simulation.requests.crowding import AMPLE
from devtools.simulation.requests.moves import LONG_DEADLINE
from devtools.simulation.setting.stage import GPUS_PER_NODE, NODES, TEAMS
from federation import operations
from placement.values.consolidation import CONSOLIDATION
from quotas.operations import put_limit
from tenancy.models import Tenant
from tenancy.queries import SYSTEM

if TYPE_CHECKING:
    from .world import World

KIND = "consolidated"
SMALL, SHORT = 8, 5
"""Jobs that need half of a node each, so that they fill all nodes of both clusters, and how many of them end soon."""
SHORT_SECONDS, LONG_SECONDS, LARGE_SECONDS = (10, 20), (200, 500), (20, 60)
LONG_ESTIMATE = 7000
"""What is said of the runs of long and large jobs: so much is gained that moves are worth their cost."""
ALL = NODES * GPUS_PER_NODE
LARGE = ((ALL,), (ALL,), (3, ALL), (GPUS_PER_NODE, GPUS_PER_NODE, GPUS_PER_NODE))
"""The GPUs of the larger jobs, in pods of a node each at most. What is left of the small ones is seldom in one cluster."""
SAVING: tuple[dict[str, Any], ...] = (
    {"moves": "when_needed", "checkpoint_seconds": 20}, {"moves": "when_needed", "checkpoint_seconds": 600},
    {"checkpoint_seconds": 20}, {},
)  # fmt: skip
"""What small jobs say of their moves and of their work, which decides with the policy whether they may move."""
ALLOWED = ("any", "any", "any", "resumable", "willing")
MOST_A_DAY = 3


def submissions(seed: int, wanted: tuple[int, ...]) -> list[Submission]:
    """Small jobs of both teams, and larger ones that come when these run. By their names and CPUs, the gateway does not
    learn from the short ones how long the others run. Only those with these numbers if there are any.
    """
    chance, found = random.Random(f"{seed}/consolidating"), list[Submission]()
    larger = chance.choice(LARGE)
    for number in range(SMALL + len(larger)):
        is_small, is_short = number < SMALL, number < SHORT
        gpus = GPUS_PER_NODE // 2 if is_small else larger[number - SMALL]
        count, kind = max(1, gpus // GPUS_PER_NODE), "short" if is_short else "long" if is_small else "large"
        pod = {
            "name": "main", "count": count, "image": "registry.example/train:1", "cpu": "1" if is_short else "2",
            "memory": "1Gi", "gpu": {"count": gpus // count},
        }  # fmt: skip
        body: dict[str, Any] = {
            "tenant": TEAMS[chance.randrange(2)], "name": f"{kind}-{number}", "pod_sets": [pod],
            "deadline_seconds": LONG_DEADLINE, "estimated_seconds": 30 if is_short else LONG_ESTIMATE,
            "priority_class": "low" if chance.random() < (0.6 if is_small else 0.3) else "normal",
            "labels": {
                RUN_SECONDS: str(chance.choice(SHORT_SECONDS if is_short else LONG_SECONDS if is_small else LARGE_SECONDS)),
                EXIT_CODE: "3" if chance.random() < 0.1 else "0",
            },
        }  # fmt: skip
        if is_small:
            body |= chance.choice(SAVING)
        cancel = chance.uniform(20, 90) if chance.random() < 0.15 else None
        one = Submission(f"key-{number}", chance.choice(("ada", "ben")), body, cancel, is_late=not is_small)
        if chance.random() < 0.1:
            one.suspend_after, one.suspended_for = chance.uniform(20, 80), chance.uniform(0, 40)
        if not wanted or number in wanted:
            found.append(one)
    return found


def begin(world: "World") -> None:
    """Quota suffices, and the organisation's policy allows moves. Later a team's allows more or less, or the organisation's does."""
    if KIND not in world.faults.rates:
        return
    chance = random.Random(f"{world.seed}/allowed")
    for path in ("acme", *TEAMS):
        world.wish(f"allows {path} more", lambda path=path: put_limit(SYSTEM, path, "gpu", nominal=AMPLE))  # type: ignore[misc]
    _allow(world, "acme", chance.choice(ALLOWED))
    for _ in range(2):
        name, how = chance.choice(("acme", "vision", "speech")), chance.choice((*CONSOLIDATION, "any", "any"))
        world.scheduler.after(chance.uniform(10, 150), lambda name=name, how=how: _allow(world, name, how))  # type: ignore[misc]


def _allow(world: "World", name: str, how: str) -> None:
    if world.faults.is_healed:
        return

    def put() -> None:
        path = name if name == "acme" else path_of(name)
        operations.put_policy(SYSTEM, Tenant.objects.get(path=path).id, {"consolidation": how})

    world.wish(f"lets jobs of {name} be moved for larger ones: {how}", put, "policy.put")


def are_over(world: "World") -> bool:
    """Whether no plan is being carried out any more."""
    return KIND not in world.faults.rates or not world.watch.rows(LIVE)


LIVE = "SELECT beneficiary_id::text FROM federation_consolidation WHERE ended_at IS NULL ORDER BY 1"


@judging
def jobs_move_only_for_a_larger_and_no_less_urgent_one(world: "World") -> list[str]:
    """Each job that was moved so that another one fits is smaller than that, counted here from what both asked for, not more urgent,
    and of the same organisation; and the plan had not ended.
    """
    return [f"attempt {attempt} was moved for job {job}: {why}" for attempt, job, why in world.watch.rows(UNLAWFUL)]


SIZE = """
(SELECT sum((pods ->> 'count')::int * (pods -> 'gpu' ->> 'count')::int) FROM jsonb_array_elements({}.spec -> 'pod_sets') AS pods)
"""
UNLAWFUL = f"""
SELECT attempt_id::text, beneficiary_id::text, why FROM (
    SELECT move.attempt_id, plan.beneficiary_id,
           CASE WHEN plan.id IS NULL THEN 'no plan says so'
                WHEN move.job_id = larger.id THEN 'it is the same'
                WHEN {SIZE.format("moved")} >= {SIZE.format("larger")} THEN 'that is not larger'
                WHEN moved.priority > larger.priority THEN 'that is less urgent'
                WHEN split_part(its_tenant.path, '/', 1) <> split_part(tenant.path, '/', 1) THEN 'that is of another organisation'
                WHEN move.created_at < plan.created_at OR move.created_at > least(plan.ended_at, plan.deadline_at) + interval '5 seconds'
                THEN 'its plan was not under way' END AS why
      FROM federation_move AS move
      JOIN federation_job AS moved ON moved.id = move.job_id
      JOIN tenancy_tenant AS tenant ON tenant.id = moved.tenant_id
      LEFT JOIN federation_consolidation AS plan ON plan.id = move.consolidation_id
      LEFT JOIN federation_job AS larger ON larger.id = plan.beneficiary_id
      LEFT JOIN tenancy_tenant AS its_tenant ON its_tenant.id = larger.tenant_id
     WHERE move.cause = 'consolidation') AS moved_for
 WHERE why IS NOT NULL ORDER BY 1
"""  # noqa: S608 - constants
"""A plan ends at the time of a transaction, which may have begun before another one made the plan: hence the five seconds."""


@judging
def the_gateway_moves_a_job_three_times_a_day_at_most(world: "World") -> list[str]:
    """Of all its own moves, none is the fourth within a day."""
    return [f"job {job} was moved {count} times within a day" for job, count in world.watch.rows(OFTEN, MOST_A_DAY)]


OFTEN = """
SELECT job_id::text, count FROM (
    SELECT job_id, count(*) OVER (PARTITION BY job_id ORDER BY created_at
                                  RANGE BETWEEN interval '1 day' PRECEDING AND CURRENT ROW) AS count
      FROM federation_move WHERE cause <> 'user') AS moved WHERE count > %s ORDER BY 1, 2
"""


@judging
def plans_of_moves_leave_nothing_behind(world: "World") -> list[str]:
    """In the healed world no plan is carried out and no place is kept for a job that moves; and no job failed because it was moved."""
    if KIND not in world.faults.rates:
        return []
    return [
        *(f"the plan for job {job} has not ended" for (job,) in world.watch.rows(LIVE)),
        *(f"a place is still kept for job {job}, which was moved" for (job,) in world.watch.rows(PLACES)),
        *(f"job {job} is {state} since it was moved" for job, state in world.watch.rows(LOST_BY_MOVES)),
        *(f"the plan for job {job} ended as placed, and it was not" for (job,) in world.watch.rows(NOT_PLACED)),
    ]


PLACES = """
SELECT move.job_id::text
  FROM federation_move AS move
  JOIN federation_consolidation AS plan ON plan.id = move.consolidation_id
  JOIN federation_attempt AS attempt ON attempt.id = move.attempt_id
  JOIN federation_job AS job ON job.id = move.job_id
 WHERE attempt.finished_at IS NULL OR job.state = 'queued' ORDER BY 1
"""
LOST_BY_MOVES = """
SELECT job.id::text, job.state
  FROM federation_move AS move
  JOIN federation_job AS job ON job.id = move.job_id
  JOIN federation_attempt AS attempt ON attempt.id = move.attempt_id
 WHERE move.cause = 'consolidation' AND attempt.end_reason = 'migrated' AND job.state IN ('failed', 'succeeded')
   AND NOT EXISTS (SELECT FROM federation_attempt AS next WHERE next.job_id = job.id AND next.number > attempt.number) ORDER BY 1
"""
NOT_PLACED = """
SELECT plan.beneficiary_id::text FROM federation_consolidation AS plan
 WHERE plan.outcome = 'placed' AND NOT EXISTS (
       SELECT FROM federation_attempt AS attempt WHERE attempt.job_id = plan.beneficiary_id AND attempt.reserved_at >= plan.created_at)
 ORDER BY 1
"""
