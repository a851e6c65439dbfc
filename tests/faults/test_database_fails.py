"""The database goes: without a word, for good to its replica, to reading only, with all its connections, or frozen."""

import signal
import time

import httpx
import psutil
import psycopg
import pytest

from tests.faults.stand import FaultRun, Stand
from tests.faults.test_processes_die import submit_some
from tests.journeys.workload import job, wait_for

pytestmark = [pytest.mark.kube, pytest.mark.processes, pytest.mark.timeout(600)]
ROLES = ("web", "worker", "beat", "observer")
NOTICED_SECONDS = 60
"""Keepalives and unacknowledged bytes give a connection up 20 s after the last packet. The relay, whose kernel never hears that its
last bytes arrived, may send them again until 25 s after the cut; without either setting it takes hours.
"""
MOST_HEALTH_SECONDS = 5
READY, NOT_READY = 200, 503
RECORDS = (
    "federation_standstill", "federation_comparedcluster", "federation_databasehistory", "federation_clusterupkeep",
    "foundation_routine",
)  # fmt: skip
"""What says why a standstill does not end."""
LAST_STANDSTILL = "SELECT coalesce(max(id), 0) FROM federation_standstill"
STANDSTILLS_SINCE = "SELECT needs_operator, ended_at IS NOT NULL FROM federation_standstill WHERE id > {}"
END_ALL = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'switchyard'"


def connections_to(stand: Stand, role: str) -> set[int]:
    """Local ports of the role's open connections to the database."""
    ports = {relay.port for relay in stand.databases.relays}
    found = set()
    for process in stand.gateway.processes(role):
        try:
            connections = process.net_connections("tcp")
        except psutil.NoSuchProcess:
            continue
        found |= {c.laddr.port for c in connections if c.raddr and c.raddr.port in ports and c.status == "ESTABLISHED"}
    return found


def health(stand: Stand, path: str) -> int:
    """What the health port answers, in good time."""
    port = stand.gateway.environment["SWITCHYARD_HEALTH_PORT"]
    return httpx.get(f"http://127.0.0.1:{port}{path}", timeout=MOST_HEALTH_SECONDS).status_code


def test_a_database_that_vanishes_without_a_word_is_noticed_by_every_process(stand: Stand, run: FaultRun):
    submit_some(run, 6)
    open_before = {role: connections_to(stand, role) for role in ROLES}
    assert all(open_before.values()), open_before
    for relay in stand.databases.relays:
        relay.cut("both")
    cut_at, noticed = time.monotonic(), dict[str, float]()
    try:
        while len(noticed) < len(ROLES):
            elapsed = time.monotonic() - cut_at
            assert elapsed < NOTICED_SECONDS, f"noticed {noticed}; the others still hold on to dead connections"
            assert health(stand, "/healthz") == READY
            if elapsed > MOST_HEALTH_SECONDS:
                assert health(stand, "/readyz") == NOT_READY
            for role in ROLES:
                if role not in noticed and not connections_to(stand, role) & open_before[role]:
                    noticed[role] = round(elapsed, 1)
            time.sleep(1)
    finally:
        for relay in stand.databases.relays:
            relay.heal()
    wait_for(lambda: health(stand, "/readyz") == READY, "ready again")
    submit_some(run, 6)


def test_a_replica_takes_over_while_jobs_run(stand: Stand, run: FaultRun):
    """It lost nothing: the gateway closes dispatch, compares its clusters, and opens dispatch again without a hand."""
    run.submit(job("over-the-change", seconds=15))
    submit_some(run)
    time.sleep(1)
    [(last,)] = stand.databases.ask(LAST_STANDSTILL)  # other tests of this stand replace the database too
    stand.databases.promote()
    submit_some(run, 6)
    wait_for(lambda: health(stand, "/readyz") == READY, "ready again")
    try:
        since = STANDSTILLS_SINCE.format(last)
        wait_for(lambda: stand.databases.ask(since) == [(False, True)], "a standstill began and ended by itself")
    except AssertionError as late:
        found = {name: stand.databases.ask(f"SELECT to_jsonb({name}) FROM {name}") for name in RECORDS}
        raise AssertionError(f"{late}: {found}") from late
    stand.databases.add_replica()
    submit_some(run, 6)


@pytest.mark.long
def test_a_database_that_only_reads_for_a_while_loses_nothing(stand: Stand, run: FaultRun):
    submit_some(run)
    stand.databases.set("default_transaction_read_only", "on")
    try:
        time.sleep(12)
        assert health(stand, "/healthz") == READY
    finally:
        stand.databases.set("default_transaction_read_only", "off")
    submit_some(run, 6)


@pytest.mark.long
def test_every_connection_is_ended_again_and_again(stand: Stand, run: FaultRun):
    submit_some(run)
    for _ in range(20):
        stand.databases.ask(END_ALL)
        time.sleep(0.3)


@pytest.mark.long
def test_no_connection_is_left_for_the_gateway_for_a_while(stand: Stand, run: FaultRun):
    submit_some(run)
    taken = []
    try:
        while True:
            taken.append(psycopg.connect(stand.databases.primary.address, connect_timeout=5))
    except psycopg.OperationalError:
        pass
    try:
        taken[0].execute(END_ALL)
        time.sleep(10)
    finally:
        for connection in taken:
            connection.close()
    submit_some(run, 6)


@pytest.mark.long
def test_a_database_that_stands_still_for_a_while_loses_nothing(stand: Stand, run: FaultRun):
    """Frozen, its kernel still acknowledges: what waits for an answer waits, and the health port says that it is not ready."""
    submit_some(run)
    family = [psutil.Process(stand.databases.primary.process.pid)]
    family += family[0].children(recursive=True)
    for process in family:
        process.send_signal(signal.SIGSTOP)
    try:
        time.sleep(15)
        assert health(stand, "/healthz") == READY
        assert health(stand, "/readyz") == NOT_READY
    finally:
        for process in family:
            process.send_signal(signal.SIGCONT)
    submit_some(run, 6)
