"""Two versions at once: the next one's migrations have run and its processes work beside ours, then theirs alone, under load."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from devtools.embedded import stop
from tests.faults.stand import FaultRun, Stand
from tests.faults.test_processes_die import submit_some
from tests.faults.versions import GONE_AGAIN, NEXT_VERSION, send_next_versions_message, start_another_set
from tests.journeys.workload import wait_for

pytestmark = [pytest.mark.kube, pytest.mark.processes, pytest.mark.timeout(600)]


@contextmanager
def another_set_of_processes(stand: Stand) -> Iterator[None]:
    """One more of every process, singletons too, on the same database and broker."""
    started = start_another_set(stand)
    try:
        yield
        assert [process.poll() for process in started] == [None] * len(started), "one of them ended"
    finally:
        for process in started:
            stop(process, first=signal.SIGTERM, grace_seconds=20)


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
