"""An append-only file of lines outside the database."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

TAIL_BYTES = 64 * 1024


def add_line(path: Path, line: str) -> None:
    """Appends one whole line and waits until it is on disk; an earlier line that a crash cut off becomes a separate
    line.

    OSError if it cannot write the whole line.
    """
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        size = os.fstat(handle).st_size
        is_torn = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
        content = (b"\n" if is_torn else b"") + line.encode() + b"\n"
        if os.write(handle, content) != len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(handle)
    finally:
        os.close(handle)


def lines_of(path: Path) -> Iterator[tuple[int, str]]:
    """Every whole line with its number from 1 on; none if there is no such file."""
    try:
        with path.open(encoding="utf-8", errors="replace") as stream:
            for number, line in enumerate(stream, start=1):
                if line.endswith("\n"):
                    yield number, line.rstrip("\n")
    except FileNotFoundError:
        return


def last_lines(path: Path) -> list[str]:
    """The whole lines in the file's last 64 KiB, newest first; none if there is no such file."""
    try:
        with path.open("rb") as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - TAIL_BYTES))
            tail = stream.read(TAIL_BYTES).decode(errors="replace")
    except FileNotFoundError:
        return []
    return tail.split("\n")[-2::-1]
