"""Dispatch in real processes: workers add up, the bell stands in for them and steps back, a signal ends a turn."""

import asyncio
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from django.db import connection

from clusters.drivers.simulated import path_of
from clusters.models import Cluster
from clusters.operations import register_simulated
from config.celery import app
from foundation import advisory
from tests.backlog import left_to_release, pile_up
from tests.builders import make_tenant
from tests.hostile_member import Member
from tests.hostile_run import PROJECT, database_url, registered
from tests.live import place
from tests.scripted_server import Behaviour, Connection

from . import conftest

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True), pytest.mark.timeout(900)]
PATIENCE_SECONDS = 240
"""Processes that start together on a busy machine take their time."""
BEAT = ("manage.py", "beat")
WORKER = (
    "-m", "celery", "--app", "config.celery", "worker", "--concurrency", "3",
    "--without-gossip", "--without-mingle", "--without-heartbeat",
)  # fmt: skip


def wait_for(condition: Callable[[], object], what: str, seconds: float = PATIENCE_SECONDS) -> None:
    conftest.wait_for(condition, what, seconds)


@contextmanager
def running(home: Path, *command: str, **settings: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process of the gateway on this test's database and simulated clusters, killed with all that it forked."""
    environment = {
        **os.environ,
        "DATABASE_URL": database_url(),
        "SWITCHYARD_HOME": str(home),
        "REMAP_SIGTERM": "SIGQUIT",
        **settings,
    }
    with (home / "output.log").open("ab") as sink:
        process = subprocess.Popen([sys.executable, *command], cwd=PROJECT, env=environment, stdout=sink, stderr=sink)
    try:
        yield process
    finally:
        for each in family(process):
            with suppress(psutil.NoSuchProcess):
                each.kill()
        process.wait(30)


def family(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    try:
        return [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def has_a_turn(process: subprocess.Popen[bytes]) -> bool:
    """Whether this process, or one that it forked, is dispatching."""
    return holds(f"dispatch@{socket.gethostname()}:{process.pid}")


def holds(name: str) -> bool:
    asked = [advisory.Kind.ROUTINE, advisory.key_of(name)]
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND database ="
            " (SELECT oid FROM pg_database WHERE datname = current_database()) AND classid = %s AND objid = (%s)::int::oid)",
            asked,
        )
        return bool(cursor.fetchone()[0])


@pytest.fixture
def fleet(cluster, submitter) -> Callable[[int, int], Sequence[Cluster]]:
    """Makes so many simulated clusters with so many attempts each that wait for dispatch."""

    def make(clusters: int, attempts: int) -> Sequence[Cluster]:
        _, pattern = place(submitter, gpus=1, seconds=100_000)
        made = [register_simulated(make_tenant("acme"), f"member-{number}") for number in range(clusters)]
        pile_up(pattern, made, attempts)
        return made

    return make


@pytest.fixture(autouse=True)
def messages_of_others_are_gone():
    """What an earlier test's bell sent is not for this one's workers."""
    app.control.purge()


def test_the_bell_dispatches_while_no_worker_is_there_and_steps_back_when_one_is(home, fleet):
    fleet(12, 400)
    with running(home, *BEAT) as beat:
        wait_for(lambda: has_a_turn(beat), "the bell stands in")
        with running(home, *WORKER) as worker:
            wait_for(lambda: has_a_turn(worker), "the worker has its turn while the bell is at it")
            wait_for(lambda: not has_a_turn(beat), "the bell steps back", 10)
            until = time.monotonic() + 6
            seen = set()
            while time.monotonic() < until:
                seen.add(has_a_turn(beat))
                time.sleep(0.05)
            assert left_to_release() > 0, "the backlog must outlast the test"
            assert seen == {False}


def test_workers_dispatch_side_by_side(home, fleet):
    with running(home, *WORKER) as one, running(home, *WORKER) as other:
        wait_for(lambda: min(len(family(one)), len(family(other))) > 3, "both have their processes")
        fleet(24, 200)  # only now: one worker alone may be done with it before the other has started
        with running(home, *BEAT):
            wait_for(lambda: has_a_turn(one) and has_a_turn(other), "both have a turn at the same time")


def test_the_others_go_on_when_a_worker_is_killed_in_its_turn(home, fleet):
    fleet(24, 200)
    with running(home, *BEAT) as beat, running(home, *WORKER) as one, running(home, *WORKER) as other:
        wait_for(lambda: has_a_turn(one), "it is in its turn")
        for each in family(one):
            with suppress(psutil.NoSuchProcess):
                each.send_signal(signal.SIGKILL)
        left = left_to_release()
        assert left > 0, "the backlog must outlast the test"
        wait_for(lambda: has_a_turn(other), "the other one takes over")
        wait_for(lambda: not has_a_turn(beat), "and the bell does not keep the work", 10)
        wait_for(lambda: left_to_release() < left, "work goes on")


def froze_beside(process: subprocess.Popen[bytes], home: Path, members: Sequence[Cluster]) -> bool:
    """Whether the process is frozen now, and in the middle of no write: neither to a simulated member, which is a file that
    would stay closed to all others, nor to the database, which ends such a session after a minute.
    """
    for each in family(process):
        each.suspend()
    time.sleep(0.1)
    if is_idle() and all(takes_writes(path_of(home, member.server)) for member in members):
        return True
    for each in family(process):
        each.resume()
    return False


def is_idle() -> bool:
    """Whether no session of others works or waits: one that works now would keep its rows once its statement ends."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            " AND backend_type = 'client backend' AND state <> 'idle'"
        )
        return bool(cursor.fetchone()[0] == 0)


def takes_writes(path: Path) -> bool:
    with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as file, suppress(sqlite3.OperationalError):
        file.execute("BEGIN IMMEDIATE")
        return True
    return False


def test_a_frozen_worker_does_not_keep_its_clusters_from_the_others(home, fleet):
    members = fleet(4, 40)
    with running(home, *BEAT), running(home, *WORKER) as frozen:
        wait_for(lambda: has_a_turn(frozen), "it is in its turn")
        wait_for(lambda: froze_beside(frozen, home, members), "it is frozen while it writes to no simulated cluster")
        with running(home, *WORKER):
            wait_for(lambda: left_to_release() == 0, "everything is released by another")
        for each in family(frozen):
            each.resume()


def test_sigterm_ends_the_bells_turn_between_calls_however_much_there_is_to_do(home, fleet):
    fleet(12, 800)
    with running(home, *BEAT) as beat:
        wait_for(lambda: has_a_turn(beat), "the bell stands in")
        beat.terminate()
        assert beat.wait(PATIENCE_SECONDS) == 0
        assert left_to_release() > 0, "the backlog must outlast the test"


class Silence(dict[str, Behaviour]):
    """Whatever is asked, there is no answer."""

    def __init__(self) -> None:
        super().__init__()
        self.called: list[str] = []

    def get(self, path: str, default: object = None) -> Behaviour:
        async def behave(_: Connection) -> None:
            self.called.append(path)
            await asyncio.sleep(3600)

        return behave


def test_a_bell_that_a_cluster_keeps_waiting_still_ends(home, cluster, submitter):
    """How long it waits is tried where time is the test's (`tests/rooms/foundation/test_bell.py`)."""
    _, pattern = place(submitter, gpus=1, seconds=100_000)
    with Member("hanging") as member, running(home, *BEAT) as beat:
        silence = member.lies = Silence()
        pile_up(pattern, [registered(member)], 10)
        wait_for(lambda: silence.called, "the cluster is called and does not answer")
        beat.terminate()
        assert beat.wait(PATIENCE_SECONDS) == 0
