"""A whole gateway of its own: `python -m devtools.serve` on a fresh home, seen from outside."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import psycopg
import pytest

from devtools.embedded import free_port, owner_url
from devtools.scratch import scratch_folder
from devtools.serve import PROJECT
from tests.live_fixtures import cluster, home, kept_pools, submitter

__all__ = ["cluster", "home", "kept_pools", "submitter"]
ROLES = ("web", "worker", "beat", "observer")
SECONDS = 90


def wait_for(condition: Callable[[], Any], what: str, seconds: float = SECONDS) -> Any:
    """The condition's first true value. The longer a look takes, the longer is the pause until the next one."""
    deadline = time.monotonic() + seconds
    while True:
        looked_at = time.monotonic()
        if value := condition():
            return value
        now = time.monotonic()
        assert now < deadline, f"it did not happen within {seconds} s: {what}"
        time.sleep(min(max(0.05, 5 * (now - looked_at)), 0.5))


@dataclass
class Served:
    """A running gateway, by its supervisor's process."""

    home: Path
    port: int
    process: subprocess.Popen
    output: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def family(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def of(self, role: str) -> list[psutil.Process]:
        """The role's processes, its first one first."""
        found = []
        for process in self.family():
            try:
                if role in process.cmdline():
                    found.append(process)
            except psutil.NoSuchProcess:
                continue
        return sorted(found, key=lambda process: (process.create_time(), process.pid))

    def named(self, name: str) -> psutil.Process:
        """The server process of this program name that the supervisor itself started."""
        children = psutil.Process(self.process.pid).children()
        return next(process for process in children if process.name() == name)

    def is_ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/readyz", timeout=5).status_code == 200
        except httpx.TransportError:
            return False

    def ask(self, statement: str) -> list[tuple]:
        """Rows from the gateway's database, asked as its owner; none while it does not answer."""
        address = owner_url(self.home, json.loads((self.home / "environment.json").read_text())["DATABASE_URL"])
        try:
            with psycopg.connect(address, autocommit=True, connect_timeout=2) as connection:
                cursor = connection.execute(statement)
                return cursor.fetchall() if cursor.description else []
        except psycopg.OperationalError:
            return []

    def text(self) -> str:
        return self.output.read_text(errors="replace")


def start(home: Path, port: int) -> Served:
    output = home / "output.log"
    with output.open("wb") as sink:
        process = subprocess.Popen(
            [sys.executable, "-m", "devtools.serve"],
            cwd=PROJECT,
            env=clean_environment(home, port),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            process_group=0,
        )
    served = Served(home, port, process, output)
    wait_for(lambda: "switchyard is ready at" in served.text() or process.poll() is not None, served.text())
    assert process.poll() is None, served.text()
    return served


def clean_environment(home: Path, port: int) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("SWITCHYARD_", "DJANGO_"))}
    for name in ("DATABASE_URL", "REDIS_URL"):
        inherited.pop(name, None)
    ports = {
        "SWITCHYARD_PORT": str(port),
        "SWITCHYARD_HEALTH_PORT": str(free_port()),
        "SWITCHYARD_METRICS_PORT": "0",
    }
    return {**inherited, "SWITCHYARD_HOME": str(home), **ports}


@dataclass
class Keeper:
    """One home for all tests of this folder; its gateway is started when a test needs it and the last one ended it."""

    home: Path
    port: int
    served: Served | None = None

    def running(self) -> Served:
        if self.served is None or self.served.process.poll() is not None:
            self.served = start(self.home, self.port)
        return self.served


@pytest.fixture(scope="package")
def kept_home() -> Iterator[Path]:
    home = scratch_folder("serve")
    yield home
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="package")
def keeper(kept_home: Path) -> Iterator[Keeper]:
    """Its gateway ends with `test_supervisor.py`, which comes next after those that use it: idle beside other tests, it would
    cost a tenth of a core.
    """
    keeper = Keeper(kept_home, free_port())
    yield keeper
    if keeper.served is not None and keeper.served.process.poll() is None:
        keeper.served.process.terminate()
        keeper.served.process.wait(60)
