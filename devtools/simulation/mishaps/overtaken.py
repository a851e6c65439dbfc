"""A round has decided about a job, and just before it locks the job's rows, somebody changes what it decided on: the job's user
cancels or suspends it, its team moves, or a limit changes. The round must notice that, or change nothing.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.db import Error, close_old_connections

from devtools.simulation.core.backend.base import Stage
from devtools.simulation.core.history import Asked
from devtools.simulation.judges.promises import judging
from devtools.simulation.setting.stage import user
from federation import operations
from foundation.problems import Problem
from quotas.operations import put_limit
from tenancy.models import Tenant
from tenancy.operations import change_tenant
from tenancy.queries import SYSTEM

if TYPE_CHECKING:
    from devtools.simulation.worlds.world import World

KIND = "overtaken"
ROUNDS = ("worker", "observer")
"""The processes whose rounds are overtaken."""
LOCKED = ("federation_job", "federation_attempt")
PAUSE_SECONDS = (0.3, 4.0)
"""For how long the round hesitates: most changes are done meanwhile."""
RESUMED_AFTER = (5.0, 30.0)
JOBS = """
SELECT DISTINCT job.id::text, split_part(submitter.email, '@', 1), job.tenant_id
  FROM federation_job AS job JOIN tenancy_user AS submitter ON submitter.id = job.created_by_id
  LEFT JOIN federation_attempt AS attempt ON attempt.job_id = job.id
 WHERE (job.id = ANY(%s) OR attempt.id = ANY(%s)) AND job.state IN ('queued', 'dispatching', 'running') ORDER BY 1
"""


def install(world: "World", stage: Stage) -> None:
    """From now on, rounds of this world are overtaken, if it has this kind."""
    if KIND in world.faults.rates:
        stage.before_lock = lambda sql, params: before_lock(world, sql, params)


def before_lock(world: "World", sql: str, params: Any) -> None:
    """The running actor is about to lock rows with this statement."""
    if not any(table in sql for table in LOCKED) or world.scheduler.current.name.partition("-")[0] not in ROUNDS:
        return
    if world.faults.is_healed or not world.faults.happens(KIND):
        return
    ids = sorted(_ids_in(params))
    rows = world.watch.rows(JOBS, ids, ids) if ids else []
    web = world.processes.get("web")
    if not rows or web is None or web.is_dead:
        return
    job_id, who, tenant_id = rows[world.faults.choose(rows)]
    change = CHANGES[world.faults.choose(CHANGES)]
    name = f"overtakes-{world.faults.count}"
    world.tell(world.scheduler.current.name, f"is overtaken at {job_id}")
    world.machine.start(web, name, lambda: change(world, job_id, who, tenant_id))
    world.scheduler.sleep(world.faults.between(*PAUSE_SECONDS))


def _ids_in(value: Any) -> set[UUID]:
    """All ids among the parameters of a statement."""
    if isinstance(value, UUID):
        return {value}
    if isinstance(value, dict):
        return _ids_in(list(value.values()))
    if isinstance(value, list | tuple | set):
        return {id_ for one in value for id_ in _ids_in(one)}
    return set()


def _ask(world: "World", who: str, what: str, job_id: str, request: Callable[..., Any]) -> None:
    close_old_connections()
    asked = Asked(who, what, job_id, world.scheduler.now_us)
    world.history.asked.append(asked)
    world.tell(who, f"asks to {what} {job_id}")
    try:
        asked.told, asked.answer = request(user(who), UUID(job_id)).state, "ok"
    except Problem as problem:
        asked.told, asked.answer, asked.state = f"{problem.code}: {problem}", "refused", world.state_of(job_id)
    except Error as error:
        asked.told, asked.answer = type(error).__name__, "unknown"
    asked.to_us = world.scheduler.now_us


def _cancel(world: "World", job_id: str, who: str, _: UUID) -> None:
    _ask(world, who, "cancel", job_id, operations.request_cancellation)


def _suspend(world: "World", job_id: str, who: str, _: UUID) -> None:
    """It is resumed in any case: whether the suspension was done may never be known."""
    later = world.faults.between(*RESUMED_AFTER)

    def resume() -> None:
        _ask(world, who, "resume", job_id, operations.request_resumption)

    world.scheduler.after(later, lambda: world.wish(f"resumes {job_id} for {who}", resume))
    _ask(world, who, "suspend", job_id, operations.request_suspension)


def heal(world: "World") -> None:
    """Resumes what is suspended: the database may have been put back to a time before its resumption."""
    if KIND in world.faults.rates:
        world.wish("resumes all jobs", lambda: _resume_all(world))


def _resume_all(world: "World") -> None:
    for job_id, who in world.watch.rows(SUSPENDED):
        _ask(world, who, "resume", job_id, operations.request_resumption)


SUSPENDED = """
SELECT job.id::text, split_part(submitter.email, '@', 1)
  FROM federation_job AS job JOIN tenancy_user AS submitter ON submitter.id = job.created_by_id
 WHERE job.suspend_requested_at IS NOT NULL ORDER BY job.id
"""


def _quietly(world: "World", what: str, act: Callable[[], object]) -> None:
    close_old_connections()
    world.tell("operator", what)
    try:
        act()
    except Problem as problem:
        world.tell("operator", f"is refused: {problem.code}: {problem}")
    except Error as error:
        world.tell("operator", f"never learns: {type(error).__name__}")


def _move(world: "World", _: str, __: str, tenant_id: UUID) -> None:
    def move() -> None:
        team = Tenant.objects.get(id=tenant_id)
        above = team.path.rpartition("/")[0]
        other = Tenant.objects.filter(kind="department").exclude(path=above).order_by("id").first()
        if other is not None:
            change_tenant(SYSTEM, team.id, parent_id=other.id)

    _quietly(world, "moves the team", move)


def _limit(world: "World", _: str, __: str, tenant_id: UUID) -> None:
    nominal = (0, 2000, 40_000)[world.faults.choose(range(3))]
    _quietly(
        world,
        f"limits the team to {nominal}",
        lambda: put_limit(SYSTEM, Tenant.objects.get(id=tenant_id).path, "gpu", nominal=nominal, reclaim_after=0),
    )


CHANGES: tuple[Callable[["World", str, str, UUID], None], ...] = (_cancel, _suspend, _move, _limit)


@judging
def promise_17_a_round_that_was_overtaken_places_nothing(world: "World") -> list[str]:
    """No attempt is placed for a job after its cancellation was accepted, and such a job ends as cancelled."""
    accepted = {one.subject: one.to_us for one in world.history.asked if (one.what, one.answer) == ("cancel", "ok")}
    if not accepted or world.lost_commits.spans:
        return []
    found = [
        f"attempt {number} of {job_id} was placed after the job's cancellation was accepted"
        for job_id, number, reserved_us in world.watch.rows(PLACED)
        if reserved_us > accepted.get(job_id, reserved_us)
    ]
    states = dict(world.watch.rows("SELECT id::text, state FROM federation_job ORDER BY id"))
    return found + [
        f"the cancellation of {job_id} was accepted, and the job is {states[job_id]}"
        for job_id in accepted
        if states.get(job_id, "cancelled") not in ("cancelled", "cancelling")
    ]


PLACED = """
SELECT job_id::text, number, (extract(epoch FROM reserved_at) * 1000000)::bigint FROM federation_attempt ORDER BY id
"""


@judging
def a_stop_for_another_job_finds_a_running_one(world: "World") -> list[str]:
    """What is stopped for a more urgent job, a lowered limit or a move was neither cancelled nor suspended before."""
    stopped = {one.subject: one.to_us for one in world.history.asked if (one.what, one.answer) == ("cancel", "ok")}
    if world.lost_commits.spans:
        return []
    return [
        f"attempt {number} of {job_id} was stopped ({reason}) after the job's cancellation was accepted"
        for job_id, number, reason, asked_us in world.watch.rows(STOPPED)
        if asked_us > stopped.get(job_id, asked_us)
    ]


STOPPED = """
SELECT job_id::text, number, stop_reason, (extract(epoch FROM stop_requested_at) * 1000000)::bigint
  FROM federation_attempt
 WHERE stop_reason IN ('preempted_for_job', 'limit_lowered', 'migrated', 'maintenance_began') ORDER BY id
"""
