"""Two versions at once: the next one's migrations have run and its processes work beside ours, then theirs alone, under load."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from kombu import Exchange, Queue

from devtools.embedded import free_port, spawn, stop
from devtools.serve import ROLES
from tests.faults.stand import FaultRun, Stand
from tests.faults.test_processes_die import submit_some
from tests.journeys.workload import wait_for

pytestmark = [pytest.mark.kube, pytest.mark.processes, pytest.mark.timeout(600)]
THIS = Path(__file__).resolve().parent.parent.parent
OTHER = Path(os.environ.get("SWITCHYARD_OTHER_VERSION", THIS))
"""By hand: a tree of another version, with this one's environment, whose processes run beside ours."""
NEXT_VERSION = (
    "SET lock_timeout = '5s'",
    "ALTER TABLE federation_job ADD COLUMN next_idea text NOT NULL DEFAULT ''",
    "ALTER TABLE federation_attempt ADD COLUMN next_idea bigint",
    "ALTER TABLE federation_podrun ADD COLUMN next_idea boolean NOT NULL DEFAULT false",
    "CREATE INDEX CONCURRENTLY next_index ON federation_attempt (next_idea)",
    "INSERT INTO django_migrations (app, name, applied) VALUES ('federation', '9999_next_idea', now())",
    "INSERT INTO foundation_outboxmessage (topic) VALUES ('an_idea_of_the_next_version')",
    "NOTIFY switchyard_outbox, 'an_idea_of_the_next_version'",
)
GONE_AGAIN = (
    "DROP INDEX next_index",
    "ALTER TABLE federation_job DROP COLUMN next_idea",
    "ALTER TABLE federation_attempt DROP COLUMN next_idea",
    "ALTER TABLE federation_podrun DROP COLUMN next_idea",
    "DELETE FROM django_migrations WHERE name = '9999_next_idea'",
)


@contextmanager
def another_set_of_processes(stand: Stand) -> Iterator[None]:
    """One more of every process, singletons too, on the same database and broker."""
    environment = {**os.environ, **stand.gateway.environment, "PYTHONPATH": ""}
    environment |= {"SWITCHYARD_PORT": str(free_port()), "SWITCHYARD_HEALTH_PORT": str(free_port())}
    started = [
        spawn([sys.executable, *argv[1:]], log=stand.gateway.home / f"other-{role}.log", env=environment, cwd=OTHER)
        for role, argv in ROLES.items()
    ]
    try:
        yield
        assert [process.poll() for process in started] == [None] * len(started), "one of them ended"
    finally:
        for process in started:
            stop(process, first=signal.SIGTERM, grace_seconds=20)


def send_next_versions_message(stand: Stand) -> None:
    """A task that no process of this version knows."""
    with Celery(broker=stand.gateway.environment["REDIS_URL"]) as sender:
        sender.conf.broker_transport_options = {"global_keyprefix": "swy-broker-"}
        queue: Any = Queue("cycle", Exchange("cycle"), routing_key="cycle")
        sender.send_task("federation.tasks.an_idea_of_the_next_version", queue=queue)


@pytest.mark.long
def test_the_next_versions_tables_and_wake_ups_trouble_nobody(stand: Stand, run: FaultRun):
    submit_some(run)
    try:
        for statement in NEXT_VERSION:
            stand.databases.ask(statement)
        send_next_versions_message(stand)
        submit_some(run, 6)
        assert stand.gateway.client.get("/readyz").status_code == 200
        run.wait_until_all_ended()
    finally:
        for statement in GONE_AGAIN:
            stand.databases.ask(statement)
    submit_some(run, 4)


def test_two_of_every_process_run_each_job_once(stand: Stand, run: FaultRun):
    submit_some(run)
    with another_set_of_processes(stand):
        submit_some(run)
        run.wait_until_all_ended()
        submit_some(run, 6)


@pytest.mark.long
def test_every_process_is_replaced_one_after_the_other_under_load(stand: Stand, run: FaultRun):
    for role in ("worker", "beat", "observer", "web"):
        submit_some(run, 5)
        before = stand.gateway.processes(role)[0]
        before.send_signal(signal.SIGTERM)
        wait_for(lambda role=role, pid=before.pid: any(p.pid != pid for p in stand.gateway.processes(role)[:1]), role)
    submit_some(run, 5)
