"""A gang on two nodes whose place is kept when it fails, and what tests do with it."""

from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

from django.db import connection

from federation.engine.lifecycle import AttemptState
from federation.models import Attempt, Job, KeptPlace, RemoteObject
from federation.operations import Observations, record_observations, run_scheduling_cycle
from federation.operations.consequences import Ending
from federation.operations.endings import end_attempts
from foundation.clock import database_now, now
from tests.builders import (
    actor_for,
    bind,
    make_cluster,
    make_flavor,
    make_node,
    make_spec,
    make_tenant,
    make_user,
    submit,
)
from tests.rooms.federation.test_retries import failed, pod_of

ML, OTHERS = "acme/ml", "acme/others"
RULE: dict[str, Any] = {"name": "here", "when": {"exit_codes": [7]}, "then": "again_here"}
GANG = {"count": 2, "gpu": {"count": 8}}
NODE = {"gpu": {"count": 8}}


def member():
    """A user of both tenants."""
    found = make_user()
    bind(found, "acme")
    make_tenant(ML)
    make_tenant(OTHERS)
    return found


def two_nodes():
    """Two nodes of eight GPUs."""
    found = make_cluster(name="c1")
    make_flavor(found)
    for name in ("n0", "n1"):
        make_node(found, name)
    return found


def gang(user, rule: dict[str, Any] | None = None, pod: dict[str, Any] | None = None, **changes: Any) -> Attempt:
    """The running attempt of a gang on both nodes."""
    body = make_spec(name="gang", pod=pod or GANG, failure_rules=[{**RULE, **(rule or {})}], **changes)
    job = submit(actor_for(user), {**body, "tenant": ML})
    run_scheduling_cycle()
    return run(job)


def run(job: Job) -> Attempt:
    """The job's newest attempt, running."""
    attempt = Attempt.objects.filter(job=job).latest("number")
    at = now() - timedelta(minutes=5)
    Attempt.objects.filter(id=attempt.id).update(
        state="running",
        created_at=at,
        starting_at=at,
        released_at=at,
        started_at=at,
        next_action_at=None,
        namespace="n",
    )
    Job.objects.filter(id=job.id).update(state="running")
    for item in attempt.remote_objects.all():
        RemoteObject.objects.filter(id=item.id).update(uid=str(uuid4()), cluster_id=attempt.cluster_id)
    attempt.refresh_from_db()
    return attempt


def fail(attempt: Attempt, *, is_cleared: bool = True, **pod: Any) -> None:
    """One pod of it on each of its nodes has failed; then nothing of it is left."""
    nodes = sorted(attempt.remote_objects.get().assumed_nodes)
    pods = [
        pod_of(attempt, **{"exit_code": 7, "name": f"p{index}", "index": index, "node": node, **pod})
        for index, node in enumerate(nodes)
    ]
    record_observations(attempt.cluster_id, Observations(jobs=[failed(attempt)], pods=pods))
    if is_cleared:
        clear(attempt)


def clear(attempt: Attempt) -> None:
    attempt.refresh_from_db()
    state = AttemptState.FAILED if attempt.stop_reason == "program_failed" else AttemptState.PREEMPTED
    end_attempts([Ending(attempt.id, state, attempt.stop_reason, attempt.stop_message)])


def small(user, tenant: str = OTHERS, **changes: Any) -> Job:
    """A job of one node of another tenant."""
    return submit(actor_for(user), {**make_spec(name="small", pod=NODE, **changes), "tenant": tenant})


def passes(seconds: float) -> None:
    """The time of all places passes."""
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        for table, columns in {
            "federation_keptplace": ("since_at", "until_at"),
            "federation_attempt": ("finished_at",),
            "federation_job": ("retry_at",),
            "federation_diagnosis": ("judged_at",),
        }.items():
            moved = ", ".join(f"{column} = {column} - make_interval(secs => {seconds})" for column in columns)
            cursor.execute(f"UPDATE {table} SET {moved}")
        cursor.execute("SET LOCAL session_replication_role = origin")


def state_of(job: Job) -> str:
    job.refresh_from_db()
    return job.state


def outcome(attempt: Attempt) -> str:
    return KeptPlace.objects.get(attempt=attempt).outcome


def seconds_left(until: datetime) -> float:
    return (until - database_now()).total_seconds()
