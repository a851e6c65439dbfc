"""Counters of a long-running process, and how they are scraped: `/metrics` of each process shows its own figures.

A process that forks (gunicorn, Celery) calls `share` first. It and its children then count in files of one folder, each
in its own seat, and any of them can report the sum. A child that takes the seat of an ended one continues its figures.
So a counter never decreases, and replacing children does not add files.
"""

import atexit
import fcntl
import logging
import os
import shutil
import tempfile
from itertools import count
from pathlib import Path

from prometheus_client import REGISTRY, CollectorRegistry, generate_latest, values
from prometheus_client.multiprocess import MultiProcessCollector  # type: ignore[attr-defined, unused-ignore]

log = logging.getLogger(__name__)
# Counting must not wait for a disk, and a full disk would kill the process that writes to a mapped file.
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - a separate folder is made there
PREFIX = "switchyard-figures-"
LOCK = "lock"
FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"


class _Seats:
    """Where this process counts: in `folder`, in files named after the seat."""

    folder: Path | None = None
    mine = "0"
    locks: list[int] = []
    """Kept open: the kernel releases a seat or folder when the last process that had it open has ended."""


def share() -> None:
    """Makes this process and its future children count together. Call it before any metric is defined."""
    home = SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else Path(tempfile.gettempdir())
    _remove_abandoned(home)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=home))
    # Locked under another name first: a folder with a free lock counts as abandoned.
    lock = _locked(folder / f"{LOCK}.new")
    assert lock is not None
    (folder / f"{LOCK}.new").rename(folder / LOCK)
    _Seats.folder, _Seats.locks = folder, [lock]
    os.environ[FOLDER_VARIABLE] = str(folder)
    values.ValueClass = values.MultiProcessValue(lambda: _Seats.mine)  # type: ignore[no-untyped-call]
    os.register_at_fork(after_in_child=_take_seat)
    atexit.register(_remove, folder, os.getpid())


def counted() -> bytes:
    """The counts of this process and those that it shares with, in Prometheus' text format."""
    if _Seats.folder is None:
        return generate_latest(REGISTRY)
    registry = CollectorRegistry()
    MultiProcessCollector(registry, str(_Seats.folder))  # type: ignore[no-untyped-call]
    return generate_latest(registry)


def _take_seat() -> None:
    """The lowest free seat, for a new child. Without one it counts in its parent's, less exactly."""
    assert _Seats.folder is not None
    try:
        for number in count(1):
            lock = _locked(_Seats.folder / f"{number}.seat")
            if lock is not None:
                _Seats.mine = str(number)
                _Seats.locks.append(lock)
                return
    except OSError:
        log.warning("no seat to count in", exc_info=True)


def _locked(path: Path) -> int | None:
    """The open file, locked until this process and its children have ended; None while another process has it."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return None
    return file


def _remove_abandoned(home: Path) -> None:
    """Folders of killed gateway processes: no other process would ever remove them."""
    for folder in home.glob(f"{PREFIX}*"):
        try:
            if folder.stat().st_uid != os.getuid() or not (folder / LOCK).exists():
                continue
            lock = _locked(folder / LOCK)
        except OSError:  # another process removes it too
            continue
        if lock is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)


def _remove(folder: Path, owner: int) -> None:
    """Runs when the process that created the folder ends; its children run it too."""
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
