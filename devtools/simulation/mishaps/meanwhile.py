"""What befalls a job that runs, or its team or cluster: a limit is enforced, maintenance begins, its user cancels it twice."""

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import UUID

from clusters.operations.windows import WantedWindow, make_window
from devtools.simulation.core.history import Asked
from devtools.simulation.requests.administration import cluster_id
from devtools.simulation.setting.stage import SHIELD_SECONDS, user
from federation import operations
from federation.models import PriorityClass
from federation.operations.priority_classes import put_class, remove_class
from foundation import clock
from foundation.problems import NotFound, Problem
from quotas.operations import put_limit
from tenancy.models import Tenant
from tenancy.queries import SYSTEM

if TYPE_CHECKING:
    from devtools.simulation.worlds.world import World

RUNNING = """
SELECT job.id::text, job.tenant_id, cluster.name, split_part(submitter.email, '@', 1)
  FROM federation_job AS job
  JOIN federation_attempt AS attempt ON attempt.job_id = job.id AND attempt.state = 'running'
  JOIN clusters_cluster AS cluster ON cluster.id = attempt.cluster_id
  JOIN tenancy_user AS submitter ON submitter.id = job.created_by_id
 WHERE job.state = 'running' AND attempt.started_at < simulation.clock_timestamp() - interval '3 seconds' ORDER BY job.id
"""
LOOKS, LOOK_SECONDS = 60, 2.0
CLASSES = (
    {"name": "passing", "value": 30, "is_open": True, "most_running": 1},
    {"name": "passing", "value": 40, "is_open": True, "is_default": True, "most_running": 2, "most_gpus": 16},
    {
        "name": "normal",
        "value": 0,
        "is_open": True,
        "is_default": True,
        "shield_seconds": SHIELD_SECONDS,
        "most_running": 2,
    },
    {"name": "normal", "value": 0, "is_open": True, "is_default": True, "shield_seconds": SHIELD_SECONDS},
)
"""A class that is made, becomes the default, and is not the default any more; then it can be removed. Limits of classes come and go
beside jobs that hold something.
"""


def press(world: "World") -> None:
    """Does one of these as soon as a job runs."""
    _look(world, LOOKS)


def _look(world: "World", left: int) -> None:
    if world.faults.is_healed or not left:
        return
    rows = world.watch.rows(RUNNING)
    if not rows:
        world.scheduler.after(LOOK_SECONDS, lambda: _look(world, left - 1))
        return
    job_id, team, cluster, who = rows[world.faults.choose(rows)]
    match world.faults.choose(range(4)):
        case 0:
            _enforce(world, team)
        case 1:
            _maintain(world, cluster)
        case 2:
            for _ in range(2):
                world.wish(f"{who} cancels {job_id}", lambda: _cancel(world, who, job_id))
        case 3:
            _change_classes(world)


def _cancel(world: "World", who: str, job_id: str) -> None:
    asked = Asked(who, "cancel", job_id, world.scheduler.now_us)
    world.history.asked.append(asked)
    try:
        asked.told, asked.answer = operations.request_cancellation(user(who), UUID(job_id)).state, "ok"
    except Problem as problem:
        asked.told, asked.answer, asked.state = f"{problem.code}: {problem}", "refused", world.state_of(job_id)
    asked.to_us = world.scheduler.now_us


def _enforce(world: "World", team: UUID) -> None:
    nominal, after = world.faults.choose(range(2)) * 1000, (0, 5, 15)[world.faults.choose(range(3))]

    def put() -> None:
        put_limit(SYSTEM, Tenant.objects.get(id=team).path, "gpu", nominal=nominal, reclaim_after=after)

    world.wish(f"cuts the limit of a team to {nominal}, and takes back the rest after {after} s", put, "quota.put")


def _maintain(world: "World", cluster: str) -> None:
    begins, lasts = (0, 8)[world.faults.choose(range(2))], world.faults.between(20, 60)

    def make() -> None:
        now = clock.database_now()
        starts_at = now + timedelta(seconds=begins)
        ends_at = starts_at + timedelta(seconds=lasts)
        wanted = WantedWindow(
            starts_at=starts_at if begins else None, ends_at=ends_at, reason="at short notice", drain=True
        )
        world.planned[make_window(SYSTEM, cluster_id(cluster), wanted).id] = world.scheduler.now_us

    world.wish(f"plans maintenance of {cluster} that stops jobs", make, "maintenance.create")


def _change_classes(world: "World") -> None:
    for body in CLASSES:
        world.wish(f"sets the class {body['name']}", lambda body=body: put_class(SYSTEM, body), "priority_class.put")  # type: ignore[misc]
    world.wish("removes the class passing", lambda: remove_class(SYSTEM, _passing()))


def _passing() -> UUID:
    found: UUID | None = PriorityClass.objects.filter(name="passing").values_list("id", flat=True).first()
    if found is None:
        raise NotFound
    return found


EVENTS: dict[str, Callable[["World"], None]] = {"pressed": press}
"""By the kind of fault."""
