"""Starts, watches and ends processes of the gateway on a benchmark's own database."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from django.db import connection, transaction

PROJECT = Path(__file__).resolve().parents[1]
COMMANDS: Mapping[str, Sequence[str]] = {
    "beat": ("manage.py", "beat"),
    "observer": ("manage.py", "observer"),
    "worker": (
        "-m", "celery", "--app", "config.celery", "worker", "--concurrency", "3",
        "--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "WARNING",
    ),
}  # fmt: skip


@dataclass(slots=True)
class Gateway:
    """Processes of the gateway on the benchmark's database, and their peak usage."""

    home: Path
    processes: list[tuple[str, psutil.Process]] = field(default_factory=list)
    peak_mib: dict[str, int] = field(default_factory=dict)
    connections: int = 0
    _stopping: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def running(self, workers: int) -> Iterator[None]:
        """Runs it with this number of workers; enters when they are ready to work."""
        with ExitStack() as stack:
            for name in ("beat", "observer", *["worker"] * workers):
                stack.enter_context(self._process(name))
            watch = threading.Thread(target=self._watch, daemon=True)
            watch.start()
            try:
                wait_until(lambda: _has_a_worker(workers), 300, "workers are there")
                yield
            finally:
                self._stopping.set()
                watch.join()
                self._stopping.clear()
                self.processes.clear()

    @contextmanager
    def _process(self, name: str) -> Iterator[None]:
        from tests.hostile_run import database_url

        own = {"DATABASE_URL": database_url(), "SWITCHYARD_HOME": str(self.home), "SWITCHYARD_LOG_LEVEL": "ERROR"}
        with (self.home / f"{name}.log").open("ab") as sink:
            started = subprocess.Popen(
                # It ends with us, however we end.
                ["setpriv", "--pdeathsig", "TERM", sys.executable, *COMMANDS[name]],
                cwd=PROJECT,
                env={**os.environ, **own},
                stdout=sink,
                stderr=sink,
            )
        process = psutil.Process(started.pid)
        self.processes.append((name, process))
        try:
            yield
        finally:
            for each in _family(process):
                with suppress(psutil.NoSuchProcess):
                    each.kill()
            started.wait()

    def _watch(self) -> None:
        try:
            while not self._stopping.wait(0.5):
                self._look()
        finally:
            connection.close()

    def _look(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) - 1 FROM pg_stat_activity WHERE datname = current_database()")
            self.connections = max(self.connections, cursor.fetchone()[0])
        for name, process in list(self.processes):
            for each in _family(process):
                kind = name if each.pid == process.pid else f"{name} child"
                with suppress(psutil.Error, OSError, ValueError):
                    self.peak_mib[kind] = max(self.peak_mib.get(kind, 0), _peak_mib(each.pid))

    def cpu_seconds(self, name: str) -> float:
        """CPU that the processes of this name and their children have spent."""
        total = 0.0
        for each in [one for known, process in self.processes if known == name for one in _family(process)]:
            with suppress(psutil.NoSuchProcess):
                times = each.cpu_times()
                total += times.user + times.system
        return total


def _family(process: psutil.Process) -> list[psutil.Process]:
    try:
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _peak_mib(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) // 1024


def _has_a_worker(count: int) -> bool:
    """Whether `count` workers have connected to the broker and one has had a turn."""
    announce_dispatch()
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT beat_at > clock_timestamp() - interval '5 s' FROM foundation_routine WHERE name = 'dispatch'"
        )
        row = cursor.fetchone()
    time.sleep(0.5 * count)
    return bool(row and row[0])


def announce_dispatch() -> None:
    """Wakes the dispatch routine, as a submission does."""
    from foundation.outbox import announce

    with transaction.atomic():
        announce("dispatch")


def wait_until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """Waits; raises SystemExit, which names `what`, after the time has passed."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"not within {seconds:g} s: {what}")
        time.sleep(0.05)
