"""The simulated gateway's database: real PostgreSQL whose clock is the simulation's."""

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg.pq import ExecStatus

from devtools.embedded import postgres, stop

HERE = Path(__file__).parent
NAME = "simulation"
WAITED = """
SELECT extract(epoch FROM pg_catalog.clock_timestamp() - waitstart)::float FROM pg_locks WHERE pid = %s AND NOT granted
"""
HIDDEN_CLOCKS = r"""
SELECT p.proname FROM pg_proc AS p
 WHERE p.pronamespace = 'public'::regnamespace AND p.prosrc ~* 'timestamp\s*\(|now\s*\(|current_(date|time)|localtime'
   AND (p.prorettype <> 'trigger'::regtype
        OR EXISTS (SELECT FROM pg_trigger AS t WHERE t.tgfoid = p.oid AND t.tgdeferrable))
"""
"""The clock is set before statements that read it: it must not be read by a function that a query calls, or at COMMIT."""
OWN_PATHS = """
SELECT 'ALTER FUNCTION ' || p.oid::regprocedure::text || ' SET search_path = public, simulation, pg_catalog, pg_temp'
  FROM pg_proc AS p CROSS JOIN unnest(p.proconfig) AS setting
 WHERE p.pronamespace = 'public'::regnamespace AND starts_with(setting, 'search_path=')
"""
"""Functions with the rights of their owner have their own search path, in which PostgreSQL's clock precedes the simulation's."""
DEADLOCK_SECONDS = 0.001
LOOKED_SECONDS = 0.002
"""After this, a session that waits has looked for a deadlock, and waits only to be woken."""


QUICK = (
    "wal_level=minimal", "max_wal_senders=0", "max_wal_size=8GB", "checkpoint_timeout=1h", "autovacuum=off", "jit=off",
    "track_activities=off", "track_counts=off", "compute_query_id=off", "io_method=sync", "max_parallel_workers_per_gather=0",
)  # fmt: skip
"""Settings of a server that serves one run after the other, and is thrown away at the end."""


@contextmanager
def server(home: Path) -> Iterator[str]:
    """The URL of a separate server. It listens on a socket in the file system, which costs half as much as loopback."""
    service = postgres(home, durable=False)
    sockets = home / "sockets"
    sockets.mkdir()
    if service.user is not None:
        shutil.chown(sockets, service.user)
    words = [word for setting in (*QUICK, f"unix_socket_directories={sockets}") for word in ("-c", setting)]
    process = replace(service, argv=[*service.argv, *words]).start()
    parts = urlsplit(service.url)
    try:
        yield urlunsplit(
            parts._replace(netloc=f"{parts.username}:{parts.password}@", query=f"host={sockets}&port={service.port}")
        )
    finally:
        stop(process, first=service.stop_signal)


def url_of(server_url: str) -> str:
    """The URL of the server's database with the simulated clock."""
    return urlunsplit(urlsplit(server_url)._replace(path=f"/{NAME}"))


def make_database(server_url: str) -> None:
    """Makes that database, without tables."""
    with psycopg.connect(server_url, autocommit=True) as server:
        server.execute(f'CREATE DATABASE "{NAME}"')
        for setting in (
            "search_path = public, simulation, pg_catalog",
            f"deadlock_timeout = '{DEADLOCK_SECONDS * 1000:.0f}ms'",
            # A session plans a statement once in a run: `begin_run` of the backend makes it forget its plans.
            "plan_cache_mode = force_generic_plan",
            # Time-outs are the simulation's own business: it stops and starts sessions as it likes.
            "lock_timeout = 0",
        ):
            server.execute(f'ALTER DATABASE "{NAME}" SET {setting}')
    with psycopg.connect(url_of(server_url), autocommit=True) as own:
        own.execute((HERE / "database.sql").read_text(encoding="utf-8"))


class Watch:
    """The scheduler's own session."""

    def __init__(self, url: str) -> None:
        self._session: psycopg.Connection[Any] = psycopg.connect(url, autocommit=True)
        self._session.pgconn.prepare(b"clock", b"SELECT setval('simulation.clock', $1)")

    def show_clock_to_all(self) -> None:
        """In a migrated database, before its first rows: every function reads the simulated clock."""
        for (statement,) in self.rows(OWN_PATHS):
            self._session.execute(statement)

    def rules(self) -> None:
        """Completes a migrated database that contains the rows of every world's beginning."""
        self._session.execute((HERE / "database_rules.sql").read_text(encoding="utf-8"))
        self._session.execute("SELECT setval('simulation.history', 1)")
        self._session.execute(
            "INSERT INTO federation_databasehistory (accepted) VALUES (federation_database_history())"
        )
        self._session.execute("SELECT simulation.keep()")
        hidden = self.rows(HIDDEN_CLOCKS)
        if hidden:
            raise RuntimeError(f"these functions read the clock where the simulation does not expect it: {hidden}")

    def restore(self) -> None:
        """Puts the world back to its beginning."""
        self._session.execute("SELECT simulation.restore()")

    def back_up(self) -> None:
        """Keeps what is committed now."""
        self._session.execute("SELECT simulation.back_up()")

    def put_back(self) -> None:
        """Puts the tables and sequences back to what was kept last. No other session may be in a transaction."""
        self._session.execute("SELECT simulation.put_back()")

    def change_history(self) -> None:
        """From now on another server has the database, as after recovery to a point in time or a promotion."""
        self._session.execute("SELECT nextval('simulation.history')")

    def is_waiting(self, pid: int) -> bool:
        """Whether the session waits for a lock, and has found no deadlock."""
        if not _sleeps(pid):  # most are only slow: this costs less than a statement
            return False
        waited = self._waited(pid)
        return waited is not None and waited > LOOKED_SECONDS and _sleeps(pid) and self._waited(pid) is not None

    def _waited(self, pid: int) -> float | None:
        rows = self._session.execute(WAITED, [pid]).fetchall()
        return rows[0][0] if rows else None

    def is_granted(self, pid: int) -> bool:
        """Whether it waits for no lock any more."""
        return not self._session.execute(WAITED, [pid]).fetchall()

    def pause(self, pid: int) -> None:
        """Stops the session's process. It must wait: then it has none of the server's internal locks."""
        os.kill(pid, signal.SIGSTOP)

    def resume(self, pid: int) -> None:
        """Lets it run."""
        os.kill(pid, signal.SIGCONT)

    def set_clock(self, microseconds: int) -> None:
        """Sets the database's clock."""
        done = self._session.pgconn.exec_prepared(b"clock", [str(microseconds).encode()])
        assert done.status == ExecStatus.TUPLES_OK, done.error_message

    def cpu_seconds(self) -> float:
        """Processor time that the server's sessions have used so far."""
        server = _stat(self._session.info.backend_pid)[1]
        sessions = Path(f"/proc/{server}/task/{server}/children").read_text(encoding="ascii").split()
        return sum(_used(int(pid)) for pid in sessions)

    def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """What is committed."""
        return self._session.execute(statement, values).fetchall()

    def close(self) -> None:
        """Ends the session."""
        self._session.close()


def configure(url: str) -> None:
    """The environment in which Django starts for a simulation."""
    os.environ.update(
        {
            "DATABASE_URL": url,
            "SWITCHYARD_PREPARED_STATEMENTS": "0",
            "SWITCHYARD_ALLOW_SIMULATION": "1",
            "SWITCHYARD_PUBLIC_URL": "https://switchyard.example",
            # Who opened a session is tied to the hash that the user's sessions carry.
            "SWITCHYARD_SECRET_KEY": "of simulated processes",
            "SWITCHYARD_METRICS_PORT": "0",
            # Sooner than usual, so that a run need not be long to lose a cluster.
            "SWITCHYARD_CLUSTER_LOST_SECONDS": "10",
            "SWITCHYARD_RESERVATION_NO_SHOW_SECONDS": "90",
            # Jobs are short: a day that costs more than nothing stands out.
            "SWITCHYARD_ANOMALY_LEAST": "0.001",
            "SWITCHYARD_LOG_LEVEL": os.environ.get("SWITCHYARD_LOG_LEVEL", "CRITICAL"),
        }
    )
    import django  # noqa: PLC0415 - it reads the environment
    from django.conf import settings  # noqa: PLC0415

    os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"
    settings.DATABASES["default"] |= {
        "ENGINE": "devtools.simulation.core.backend",
        "CONN_MAX_AGE": None,
        "CONN_HEALTH_CHECKS": False,
    }
    options = settings.DATABASES["default"]["OPTIONS"]
    # Real time passes while other actors run: only the simulation's own time ends a session or a statement.
    options["options"] = "-c switchyard.session=1"
    django.setup()


def _sleeps(pid: int) -> bool:
    """Whether the process sleeps in the kernel."""
    return _stat(pid)[0] == "S"


def _stat(pid: int) -> list[str]:
    """The process's state, its parent, and more (proc_pid_stat(5), from the third field on)."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()


def _used(pid: int) -> float:
    """Its processor time; none if it has ended meanwhile."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[0]) / 1e9
    except OSError:
        return 0.0
