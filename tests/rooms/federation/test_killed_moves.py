"""A process that is killed with SIGKILL before or after any commit of a move leaves what the next one completes: the job runs once.

Each step is done by a fork, which the kernel kills at one of its commits; another does the step again, to the next commit.
"""

import itertools
import os
import signal
from contextlib import suppress
from typing import Any, NoReturn

import pytest
from django.db import connection
from django.db.backends.utils import CursorWrapper

from clusters.drivers import NotThere
from clusters.models import Cluster
from federation import operations
from federation.models import Attempt, Job, JobEvent, Move, RemoteObject
from federation.queries.preemption import load_claims
from foundation.clock import database_now, now
from foundation.postgres.base import DatabaseWrapper
from foundation.processes import die_with_parent
from quotas.models import Hold
from tenancy.models import AuditEntry
from tests import kept_sessions
from tests.live import call, simulated_cluster
from tests.rooms.federation.test_saving_moves import cost
from tests.rooms.federation.test_silent_moves import for_a_deadline, for_a_price, pass_days, running

pytestmark = pytest.mark.django_db(transaction=True)
STEPS = (
    operations.relocate_jobs,
    operations.dispatch_attempts,
    operations.settle_attempts,
    operations.run_scheduling_cycle,
)
WRITES = ("INSERT", "UPDATE", "DELETE", "WITH")
MOST_COMMITS, MOST_ROUNDS = 40, 8
MOST_DEATHS_OF_ONE_STEP = 10
SESSION: Any = DatabaseWrapper
CURSOR: Any = CursorWrapper
LEFT: list[object] = []
"""A fork keeps its parent's session here: to close it would end that of the parent."""


def dies_at(number: int, *, before: bool) -> None:
    """This process is killed at its commit of this number, in whichever thread."""
    numbers = itertools.count(1)
    commit, execute = SESSION._commit, CURSOR._execute

    def at(work):
        is_it = next(numbers) == number
        if is_it and before:
            os.kill(os.getpid(), signal.SIGKILL)
        result = work()
        if is_it:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    def execute_alone(cursor, sql, params, *rest):
        def work():
            return execute(cursor, sql, params, *rest)

        commits = not cursor.db.in_atomic_block and str(sql).lstrip().startswith(WRITES)
        return at(work) if commits else work()

    SESSION._commit = lambda wrapper: at(lambda: commit(wrapper))
    CURSOR._execute = execute_alone


def child(step, number: int, *, before: bool) -> NoReturn:
    code = 1
    with suppress(BaseException):
        die_with_parent()
        LEFT.append(connection.connection)
        connection.connection = None
        SESSION.get_new_connection = kept_sessions._new
        dies_at(number, before=before)
        step()
        code = 0
    os._exit(code)


def is_killed(step, number: int, *, before: bool) -> bool:
    """Whether a process was killed at that commit of the step; if not, it has done all of it."""
    pid = os.fork()
    if not pid:
        child(step, number, before=before)
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, -signal.SIGKILL), f"{step.__name__} failed"
    return code != 0


def claims_expire():
    Attempt.objects.filter(finished_at=None, next_action_at__isnull=False).update(
        next_action_at=now(), claim_expires_at=None
    )
    Attempt.objects.filter(finished_at=None, claim_expires_at__isnull=False).update(claim_expires_at=now())


def objects_of(job):
    """The Jobs of this job that could run, on all clusters."""
    found = []
    for cluster in Cluster.objects.all():
        for seen in call(cluster, "list_jobs"):
            with suppress(NotThere):
                one = call(cluster, "get_job", seen.namespace, seen.name)
                found += [(cluster.name, one.name)] if not one.suspended and not one.is_terminating else []
    return found


def judge(job):
    """What holds after each death."""
    assert Attempt.objects.filter(job=job, finished_at=None).count() <= 1
    assert len(objects_of(job)) <= 1, "it runs once"
    assert Move.objects.count() <= 1
    assert JobEvent.objects.filter(job=job, kind="interrupted").count() == AuditEntry.objects.filter(action="job.migrate").count()  # fmt: skip


FACTS = (
    "state",
    "sent_at",
    "starting_at",
    "released_at",
    "stop_requested_at",
    "deletion_at",
    "finished_at",
    "settled_at",
)


def what_is_done(job):
    """What the steps are for. A claim is not among it: each process makes its own."""
    attempts = Attempt.objects.filter(job=job).order_by("number").values_list(*FACTS)
    objects = RemoteObject.objects.order_by("id").values_list("name", "uid")
    return list(attempts), list(objects), objects_of(job), Move.objects.count()


def done_by_processes_that_die(job, is_over) -> int:
    """Every step until the job is where it should be; the number of deaths. While the commit of a number does something, it is
    another one the next time.
    """
    deaths = 0
    for _ in range(MOST_ROUNDS):
        for step in STEPS:
            number = 1
            for _ in range(MOST_COMMITS):
                before = what_is_done(job)
                died = 0
                for is_early in (True, False):
                    claims_expire()
                    died += is_killed(step, number, before=is_early)
                    judge(job)
                deaths += died
                if not died:
                    break
                number += what_is_done(job) == before
            else:
                pytest.fail(f"{step.__name__} commits without an end")
        if is_over():
            return deaths
    pytest.fail(f"it does not come to its end: {list(Attempt.objects.values())}")


def drained(cluster, submitter):
    """A run on a cluster that is drained, and moves when needed."""
    job, _ = running(submitter, moves="when_needed", checkpoint_seconds=3601, estimated_seconds=30 * 3600)
    simulated_cluster("west")
    Cluster.objects.filter(id=cluster.id).update(wish="draining")
    return job


def dearer(cluster, submitter):
    """A run of which another cluster would be cheaper."""
    cost(cluster, 4)
    job, _ = running(
        submitter, moves="when_cheaper", checkpoint_seconds=3601, estimated_seconds=30 * 3600,
        deadline_seconds=360_000, strategy="spread",
    )  # fmt: skip
    cost(simulated_cluster("west"), 3)
    return job


def late(cluster, submitter):
    """A run on spot capacity that must leave it for its deadline, and is being stopped."""
    return for_a_deadline(cluster, submitter).job


@pytest.mark.parametrize(("begin", "cause"), [(dearer, "price"), (drained, "drain"), (late, "deadline")])
def test_whenever_a_process_dies_in_a_move_the_next_one_completes_it(cluster, submitter, begin, cause):
    job = begin(cluster, submitter)
    first = Attempt.objects.get(job=job)
    deaths = done_by_processes_that_die(job, lambda: Attempt.objects.filter(job=job, number=2, released_at__isnull=False).exists())  # fmt: skip
    assert deaths > MOST_DEATHS_OF_ONE_STEP
    first.refresh_from_db()
    second = Attempt.objects.get(job=job, number=2)
    assert (first.state, first.end_reason) == ("preempted", "migrated")
    assert (second.cluster.name, second.reserved_at > first.finished_at) == ("west", True)
    assert [name for name, _ in objects_of(job)] == ["west"]
    assert Move.objects.get().cause == cause
    assert AuditEntry.objects.filter(action="job.migrate").count() == 1
    assert load_claims(database_now()) == ()
    assert set(Hold.objects.values_list("holder_id", flat=True)) == {first.id, second.id}


def test_whenever_a_process_dies_while_a_move_is_withdrawn_the_run_goes_on(cluster, submitter):
    move = for_a_price(cluster, submitter)
    pass_days()
    cost(Cluster.objects.get(name="west"), 9)
    deaths = done_by_processes_that_die(move.job, lambda: not Move.objects.exists())
    assert deaths > 1
    attempt = Attempt.objects.get(job=move.job)
    assert (attempt.state, attempt.stop_requested_at, attempt.stop_reason) == ("running", None, "")
    assert [name for name, _ in objects_of(move.job)] == ["east"]
    assert Job.objects.get().state == "running"
