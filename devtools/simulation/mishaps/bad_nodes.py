"""Nodes that make the programs of all jobs fail, and jobs of several departments which show that."""

import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from clusters.operations import clear_avoided_node
from devtools.simulation.clusters.cluster import EXIT_CODE, RUN_SECONDS
from devtools.simulation.clusters.frail_cluster import LOST
from devtools.simulation.core.faults import Faults
from devtools.simulation.judges.promises import judging
from devtools.simulation.requests.clients import Submission
from devtools.simulation.setting.stage import TEAMS
from foundation.schedule import Schedule
from tenancy.models import Tenant
from tenancy.operations import change_tenant
from tenancy.queries import SYSTEM

if TYPE_CHECKING:
    from devtools.simulation.worlds.world import World

CROWD = 10
"""Enough for four failures of two departments on one node, and for ten on a cluster."""
PROGRAM, DEVICE = "program", "device"
HOW = (PROGRAM, DEVICE, LOST)
FAILED_DEVICE = {"key": "nvidia.com/gpu-error", "value": "xid-79", "effect": "PreferNoSchedule"}
BRAKE_SECONDS = 4200.0
"""Retries wait until what failed is an hour ago, and until that was weighed."""
WEIGHED_SECONDS = 12.0
LOOK_SECONDS = 0.5
TRUSTED_AGAIN, TRUSTED_AGAIN_SECONDS = 3, 450.0
RACE_US = 30_000_000
"""A round that began before the brake was pulled may place until then."""


def crowd(seed: int, wanted: tuple[int, ...]) -> list[Submission]:
    """Small jobs of two teams in turn, some with additional retries; only those with these numbers if there are any."""
    chance, found = random.Random(f"{seed}/bad nodes/jobs"), []
    for number in range(CROWD):
        pod = {
            "name": "main",
            "count": 1,
            "image": "registry.example/train:1",
            "cpu": "1",
            "memory": "1Gi",
            "gpu": {"count": 1},
        }
        body: dict[str, Any] = {
            "tenant": TEAMS[number % 2], "name": f"job-{number}", "pod_sets": [pod], "deadline_seconds": 1000,
            "labels": {RUN_SECONDS: str(chance.choice((1, 5, 20))), EXIT_CODE: "0"},
        }  # fmt: skip
        if chance.random() < 0.4:
            body["retries"] = {"program": chance.choice((1, 3))}
        cancel = chance.uniform(0, 60) if chance.random() < 0.1 else None
        submission = Submission(f"key-{number}", chance.choice(("ada", "ben")), body, cancel)
        if not wanted or number in wanted:
            found.append(submission)
    return found


def begin(world: "World") -> None:
    """If the seed has such nodes, one kills what begins there after a while, or all of a cluster do, and a team joins the other
    department.
    """
    if "nodes_kill" not in world.faults.rates:
        return
    world.wish("moves speech to the lab", _move, "tenant.change")
    _await_first(world, random.Random(f"{world.seed}/bad nodes"))


def _await_first(world: "World", chance: random.Random) -> None:
    """The node on which a program runs first is a bad one: placement prefers its cluster, so others follow."""
    if world.faults.is_healed:
        return
    runs = [run for cluster in world.clusters.values() for run in cluster.running.values()]
    if not runs:
        world.scheduler.after(LOOK_SECONDS, lambda: _await_first(world, chance))
        return
    cluster, how = world.clusters[runs[0].cluster], chance.choice(HOW)
    for name in sorted(cluster.nodes) if chance.random() < 0.5 else (runs[0].node,):
        cluster.killers[name] = how
        world.tell(cluster.name, f"node {name} makes programs fail ({how})")
        if how == DEVICE:
            cluster.report_device(name, FAILED_DEVICE)


def hastened(schedules: list[Schedule], faults: Faults) -> list[Schedule]:
    """The routines; what must run before the last job has ended runs often."""
    if "nodes_kill" not in faults.rates:
        return schedules
    return [replace(one, every_seconds=WEIGHED_SECONDS) if one.name == "weigh" else one for one in schedules]


def _move() -> None:
    change_tenant(SYSTEM, Tenant.objects.get(name="speech").id, parent_id=Tenant.objects.get(path="acme/lab").id)


def heal(world: "World") -> None:
    """Operators trust avoided nodes again, from time to time: some jobs fit on no other."""
    for turn in range(1, TRUSTED_AGAIN + 1):
        world.scheduler.after(turn * TRUSTED_AGAIN_SECONDS, lambda: _trust_again(world))


def _trust_again(world: "World") -> None:
    for cluster_id, avoided_id in world.watch.rows(AVOIDED_NOW):
        world.wish(
            "trusts an avoided node again", partial(clear_avoided_node, SYSTEM, cluster_id, avoided_id), "node.clear"
        )


AVOIDED_NOW = "SELECT cluster_id, id FROM clusters_avoidednode WHERE ended_at IS NULL ORDER BY id"


def patience_seconds(world: "World") -> float:
    """How much longer the jobs of a healed world may take because retries waited."""
    return BRAKE_SECONDS if world.watch.rows("SELECT FROM federation_retrybrake LIMIT 1") else 0.0


@judging
def only_nodes_on_which_jobs_failed_are_avoided(world: "World") -> list[str]:
    """Of each node that jobs avoid, at least as many jobs as the gateway says failed there before, and never fewer than four."""
    if world.lost_commits.spans:
        return []
    failed: dict[tuple[str, str], list[tuple[int, str]]] = defaultdict(list)
    for cluster in world.clusters.values():
        for run in cluster.runs:
            if run.to_us is not None and run.code != 0:
                failed[cluster.name, run.node].append((run.to_us, run.job_id))
    found = []
    for name, node, jobs, at_us in world.watch.rows(AVOIDED):
        seen = {job_id for to_us, job_id in failed[name, node] if to_us < at_us}
        if len(seen) < max(LEAST_JOBS, int(jobs)):
            found.append(f"jobs avoid {node} of {name} because {jobs} failed there, and {len(seen)} did")
    return found


LEAST_JOBS = 4
AVOIDED = """
SELECT cluster.name, avoided.node, avoided.evidence ->> 'jobs', (extract(epoch FROM avoided.began_at) * 1000000)::bigint
  FROM clusters_avoidednode AS avoided JOIN clusters_cluster AS cluster ON cluster.id = avoided.cluster_id ORDER BY 1, 2, 4
"""


@judging
def retries_wait_while_too_much_fails(world: "World") -> list[str]:
    """While the brake on retries is pulled, no job that had an attempt gets another one there. It is pulled only after at least
    ten failures, half of the attempts that counted.
    """
    found = [
        f"the brake was pulled for {failures} failures of {attempts} attempts"
        for failures, attempts in world.watch.rows("SELECT failures, attempts FROM federation_retrybrake ORDER BY id")
        if failures < LEAST_FAILURES or failures * 2 < attempts
    ]
    return found + [
        f"attempt {number} of {job} was placed {seconds:.0f} s after the brake was pulled there"
        for job, number, seconds in world.watch.rows(PLACED_ALTHOUGH, RACE_US / 1_000_000)
    ]


LEAST_FAILURES = 10
PLACED_ALTHOUGH = """
SELECT attempt.job_id, attempt.number, extract(epoch FROM attempt.reserved_at - brake.began_at)::float
  FROM federation_attempt AS attempt
  JOIN federation_retrybrake AS brake ON brake.cluster_id IS NULL OR brake.cluster_id = attempt.cluster_id
 WHERE attempt.number > 1 AND attempt.reserved_at > brake.began_at + make_interval(secs => %s)
   AND attempt.reserved_at < coalesce(brake.ended_at, 'infinity') ORDER BY 1, 2
"""
BEGIN: dict[str, Callable[["World"], None]] = {"nodes_kill": begin}
"""By the kind of fault: what is so from the beginning of a world on."""
