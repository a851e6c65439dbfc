"""What `make serve` does before its processes start, done once for many gateways of tests and benchmarks: a migrated
database, which each gets a copy of, and collected static files.

A prepared database is kept in a folder that is named by a hash of all that it follows from. It is made under another name
and renamed, so that a run that was killed leaves nothing that appears complete; a later one removes it. Databases of different
code are prepared and copied side by side.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO

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
    "*/sql/*.sql",
    "*/models.py",
    "*/models/**/*.py",
    "config/*.py",
    "foundation/finite.py",
    "foundation/ids.py",
    "foundation/management/commands/migrate.py",
    "foundation/migration_state.py",
    "foundation/rights.py",
    "foundation/rules.py",
    "federation/engine/lifecycle.py",
    "devtools/embedded/*.py",
    "devtools/prepared.py",
    "uv.lock",
)
"""What a migrated database follows from: migrations and what they import, models, rights, the server's version and settings."""
TEMPLATE = "migrated"
"""A second database of the same server: what `migrate` makes as the only role, as the tests have it."""
KEPT = 32
"""Of each kind a few for each of some worktrees, at most 80 MB each: to prepare one again takes as long as a hundred tests."""
UNFINISHED = ".partial"
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
    folder.mkdir(parents=True, exist_ok=True)
    whole = folder / (state_of_the_code() if kind is None else f"{kind.name}-{state_of_the_code(kind.sources)}")
    with (folder / "locks").open("w") as locks:
        _take(locks, whole.name, waits=True)
        if not whole.exists():
            _prepare(whole, _migrate if kind is None else kind.make, locks)
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


def _prepare(whole: Path, make: Callable[[Path], None], locks: IO[str]) -> None:
    """Fills the folder, and removes what killed runs left, and those that were used the longest time ago."""
    partial = whole.with_name(whole.name + UNFINISHED)
    shutil.rmtree(partial, ignore_errors=True)
    make(partial)
    partial.rename(whole)
    if not _take(locks, "removal", waits=False):
        return
    others = [path for path in whole.parent.iterdir() if path.is_dir() and path != whole]
    left = [path for path in others if path.name.endswith(UNFINISHED)]
    kept = sorted(set(others) - set(left), key=lambda path: path.stat().st_mtime, reverse=True)
    for old in [*left, *kept[KEPT - 1 :]]:
        if _take(locks, old.name.removesuffix(UNFINISHED), waits=False):
            shutil.rmtree(old, ignore_errors=True)  # its process may have renamed it meanwhile


def _take(locks: IO[str], name: str, *, waits: bool) -> bool:
    """Excludes all other processes that prepare, copy or remove this database, until the file is closed. A byte of the file
    stands for each database.
    """
    place = int.from_bytes(hashlib.sha256(name.encode()).digest()[:6])
    try:
        fcntl.lockf(locks, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
    except BlockingIOError:
        if not waits:
            return False
        print(f"waiting for another process that prepares or copies the database {name}", file=sys.stderr, flush=True)
        fcntl.lockf(locks, fcntl.LOCK_EX, 1, place)
    return True


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
