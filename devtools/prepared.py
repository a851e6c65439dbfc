"""What `make serve` does before its processes start, done once for many gateways of tests and benchmarks: a migrated
database, which each gets a copy of, and collected static files.

A prepared database is kept in a folder that is named by a hash of all that it follows from. It is made under another name
and renamed, so that a run that was killed leaves nothing that appears complete; the next one removes it.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psycopg

from config.home import is_ours
from devtools import wheels
from devtools.check import PLACEHOLDERS
from devtools.embedded import Unavailable, copy_data, postgres, runtime_url, stop, tail
from devtools.embedded.postgresql import SHARED_PROGRAMS, programs

PROJECT = Path(__file__).resolve().parent.parent
SOURCES = (
    "*/migrations/*.py",
    "*/migrations/*.sql",
    "*/models.py",
    "*/models/**/*.py",
    "config/*.py",
    "foundation/**/*.py",
    "federation/engine/lifecycle.py",
    "devtools/embedded/*.py",
    "devtools/prepared.py",
    "uv.lock",
)
"""What a migrated database follows from: migrations and what they import, models, rights, the server's version and settings."""
TEMPLATE = "migrated"
"""A second database of the same server: what `migrate` makes as the only role, as the tests have it."""
KEPT = 16
"""Of each kind one for each of a few worktrees, at most 80 MB each: to prepare one again takes as long as hundreds of tests."""
STOP_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Kind:
    """What else may be prepared: `make` fills a home whose server has stopped, by code that `sources` name."""

    name: str
    make: Callable[[Path], None]
    sources: Sequence[str]


def fill(home: Path, kind: Kind | None = None) -> None:
    """Gives a home a migrated database, and the passwords of its two roles. Call it from the main thread, before any server runs
    there. Raises Unavailable.
    """
    folder = root()
    with wheels.alone(folder / "lock"):
        whole = folder / (state_of_the_code() if kind is None else f"{kind.name}-{state_of_the_code(kind.sources)}")
        if not whole.exists():
            _prepare(whole, _migrate if kind is None else kind.make)
        os.utime(whole)
        copy_data(whole, home)


def root() -> Path:
    """The folder of prepared databases. The server's user must be able to enter it, and root's own cache is closed to others."""
    return (wheels.cache_root() if os.geteuid() else SHARED_PROGRAMS) / "prepared"


def state_of_the_code(further: Sequence[str] = ()) -> str:
    """A hash of all that a prepared database follows from."""
    digest = hashlib.sha256(repr(programs()).encode())
    for path in sources(further):
        digest.update(f"{path.relative_to(PROJECT)} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()[:16]


def sources(further: Sequence[str] = ()) -> list[Path]:
    """The files that a prepared database follows from."""
    return sorted({path for pattern in (*SOURCES, *further) for path in PROJECT.glob(pattern)})


@cache
def collect_static_files() -> None:
    """Once for this process."""
    _manage("collectstatic", "--noinput", "--verbosity", "0", **PLACEHOLDERS)


def _prepare(whole: Path, make: Callable[[Path], None]) -> None:
    """Fills the folder, and forgets those that were used the longest time ago."""
    partial = whole.with_name("partial")
    shutil.rmtree(partial, ignore_errors=True)
    make(partial)
    partial.rename(whole)
    found = [path for path in whole.parent.iterdir() if path.is_dir() and path != whole]
    for old in sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)[KEPT - 1 :]:
        shutil.rmtree(old)


def _migrate(home: Path) -> None:
    """The home of a server that has stopped, with nothing in it but data and passwords."""
    service = postgres(home, durable=False)
    process = service.start()
    try:
        _manage("migrate", "--noinput", DATABASE_URL=service.url)
        with psycopg.connect(f"{service.url.rpartition('/')[0]}/postgres", autocommit=True) as session:
            session.execute(f"CREATE DATABASE {TEMPLATE} TEMPLATE switchyard")
        processes = runtime_url(home, service.url)
        _manage("migrate", "--noinput", DATABASE_URL=processes, SWITCHYARD_OWNER_DATABASE_URL=service.url)
    finally:
        stop(process, first=service.stop_signal, grace_seconds=STOP_SECONDS)
    if process.returncode:
        raise Unavailable(f"PostgreSQL ended with {process.returncode}:\n{tail(service.log)}")
    for left in ("postgres.log", "ports.json"):
        (home / left).unlink()
    # The server wrote without waiting for the disk: what is kept must outlive a power cut.
    os.sync()


def _manage(*arguments: str, **settings: str) -> None:
    inherited = {name: value for name, value in os.environ.items() if not is_ours(name)}
    done = subprocess.run(
        ["setpriv", "--pdeathsig", "KILL", sys.executable, "manage.py", *arguments],
        cwd=PROJECT, env={**inherited, **settings}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise Unavailable(f"manage.py {arguments[0]} exited {done.returncode}:\n{done.stdout}")
