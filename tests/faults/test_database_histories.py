"""PostgreSQL itself: which restores and failovers give the gateway's database another history, and what the guarded statements make
of it at that moment.
"""

import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import psycopg
import pytest

from devtools.embedded.postgresql import programs
from devtools.embedded.running import as_user
from devtools.scratch import scratch_folder
from federation.models import DISPATCH_IS_OPEN
from tests.faults.databases import Databases

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]
ACCEPT = "INSERT INTO federation_databasehistory (accepted) VALUES (federation_database_history())"
IS_OPEN = f"SELECT {DISPATCH_IS_OPEN}"
HISTORY = "SELECT federation_database_history()"
COMMIT_LIKE = f"CREATE TABLE started (number int); INSERT INTO started SELECT 0 WHERE {DISPATCH_IS_OPEN}"


@pytest.fixture(scope="module")
def pair() -> Iterator[Databases]:
    root = scratch_folder("histories")
    found = Databases(root / "databases")
    found.ask(ACCEPT)
    yield found
    found.close()
    shutil.rmtree(root, ignore_errors=True)


def is_open(pair: Databases) -> bool:
    return bool(pair.ask(IS_OPEN)[0][0])


def accept_again(pair: Databases) -> None:
    pair.ask("DELETE FROM federation_databasehistory")
    pair.ask(ACCEPT)
    assert is_open(pair)


def run(pair: Databases, program: str, *words: str) -> None:
    binaries, user = programs()
    done = subprocess.run(
        [*as_user(user), str(binaries / program), *words], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr


def test_a_restart_keeps_the_history_and_each_restore_of_a_dump_changes_it(pair: Databases, tmp_path: Path):
    known = pair.ask(HISTORY)
    assert "?" not in known[0][0]
    pair.primary.start()
    assert pair.ask(HISTORY) == known
    server, _, name = pair.primary.address.rpartition("/")
    dump = pair.primary.home / "dumps"
    dump.mkdir(mode=0o777)
    dump.chmod(0o777)
    run(pair, "pg_dump", "-Fc", "-f", str(dump / "dump"), f"{server}/{name}")
    pair.ask("CREATE DATABASE other")
    for options in ((), ("--clean",)):
        run(pair, "pg_restore", *options, "-d", f"{server}/other", str(dump / "dump"))
        with psycopg.connect(f"{server}/other", autocommit=True) as other:
            assert other.execute(IS_OPEN).fetchone() == (False,), options
            other.execute("DELETE FROM federation_databasehistory")
            other.execute(ACCEPT)
    pair.ask("DROP DATABASE other")
    assert is_open(pair)


def test_of_commits_that_race_a_lossy_failover_those_on_the_new_server_are_refused(pair: Databases):
    """Sessions commit to starts while the replica, which no longer follows, takes over. What they commit afterwards is nothing."""
    pair.ask(COMMIT_LIKE)
    barrier, done = threading.Barrier(4), threading.Event()
    outcomes: list[tuple[str, int]] = []

    def work(number: int) -> None:
        barrier.wait()
        while not done.is_set():
            with (
                suppress(psycopg.Error),
                closing(psycopg.connect(pair.owner_url, autocommit=True, connect_timeout=2)) as session,
            ):
                while not done.is_set():
                    commit(session, number)
            time.sleep(0.05)

    def commit(session: psycopg.Connection, number: int) -> None:
        count = session.execute(f"INSERT INTO started SELECT %s WHERE {DISPATCH_IS_OPEN}", [number]).rowcount
        ((line,),) = session.execute("SELECT substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)").fetchall()
        outcomes.append((line, count))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 4)]
    for thread in threads:
        thread.start()
    pair.stop_following()
    barrier.wait()
    time.sleep(0.2)
    pair.promote()
    deadline = time.monotonic() + 30
    while len({line for line, _ in outcomes}) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    done.set()
    for thread in threads:
        thread.join(30)
    before, after = sorted({line for line, _ in outcomes})
    assert any(count for line, count in outcomes if line == before)
    assert not any(count for line, count in outcomes if line == after), "a statement committed on the new server"
    assert pair.ask("SELECT count(*) FROM started WHERE number > 0") == [(0,)], "commits were lost"
    assert not is_open(pair)
    accept_again(pair)


def test_recovery_to_a_point_in_time_changes_the_history_and_a_copied_volume_does_not(pair: Databases):
    pair.add_replica()
    backup = pair.snapshot()
    known = pair.ask(HISTORY)
    pair.restore(backup)
    assert (pair.ask(HISTORY), is_open(pair)) == (known, True), "only an operator notices this one"
    pair.restore(backup, recovers=True)
    assert pair.ask(HISTORY) != known
    assert not is_open(pair)
