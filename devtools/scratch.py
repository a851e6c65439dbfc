"""Where servers of tests keep their files: in memory if there is room, else on the disk.

A database is some three thousand small files. To make, copy and remove them on a disk takes the kernel up to two seconds of a
core, in memory a fifth of one, and a run of all tests does it some fifty times. Nothing of it outlives the run.
"""

import os
import re
import shutil
import tempfile
import time
from pathlib import Path

MEMORY, DISK = Path("/dev/shm"), Path("/var/tmp")  # noqa: S108 - mkdtemp makes the names
ROOM_BYTES = 6 * 2**30
"""More than all parts of the suite need together, for their files and their processes."""
FIGURES = Path("/proc/meminfo")
PREFIX = "switchyard-test-"
LONGEST_SECONDS = 12 * 3600
"""No run of tests takes this long: what is older was left by one that was killed."""


def scratch_folder(name: str) -> Path:
    """A new folder that servers of other users may enter. The caller removes it."""
    _remove_old()
    place = MEMORY if os.access(MEMORY, os.W_OK) and _room() >= ROOM_BYTES else DISK
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{name}-", dir=place))
    folder.chmod(0o755)
    return folder


def _room() -> int:
    """Bytes that the file system in memory may still take, and that the host has."""
    space = os.statvfs(MEMORY)
    available = re.search(r"^MemAvailable: +(\d+) kB$", FIGURES.read_text(encoding="ascii"), re.MULTILINE)
    return min(space.f_bavail * space.f_frsize, int(available[1]) * 1024 if available else 0)


def _remove_old() -> None:
    """What a killed run left in memory stays there until the host restarts."""
    for left in MEMORY.glob(f"{PREFIX}*"):
        try:
            is_old = time.time() - left.stat().st_mtime > LONGEST_SECONDS
        except FileNotFoundError:  # its run ended just now
            continue
        if is_old:
            shutil.rmtree(left, ignore_errors=True)
