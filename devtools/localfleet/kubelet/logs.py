"""What a container writes: kept with the time of each line, and given out as a kubelet does."""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

MOST_BYTES = 10 * 1024**2
"""A file that is larger is put aside, and the one that was put aside before is deleted, as with a kubelet's defaults."""
LONGEST_LINE = 16 * 1024
FOLLOW_SECONDS = 0.1
LAST_LINES, LAST_BYTES = 80, 2048


@dataclass(frozen=True, slots=True)
class Question:
    """What a reader wants of a log."""

    follow: bool = False
    timestamps: bool = False
    tail_lines: int | None = None
    limit_bytes: int | None = None
    since: datetime | None = None


class Log:
    """The output of one run of a container."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_complete = False
        path.touch(mode=0o600)

    async def fill(self, output: asyncio.StreamReader) -> None:
        """Keeps all of the container's output until its last process has ended."""
        rest = b""
        with self.path.open("ab", buffering=0) as file:
            while piece := await output.read(65536):
                *lines, rest = (rest + piece).split(b"\n")
                while len(rest) > LONGEST_LINE:
                    lines, rest = [*lines, rest[:LONGEST_LINE]], rest[LONGEST_LINE:]
                self._write(file.fileno(), lines)
                if file.tell() > MOST_BYTES:
                    self.path.with_suffix(".before").write_bytes(self.path.read_bytes())
                    file.truncate(0)
            self._write(file.fileno(), [rest] if rest else [])
        self.is_complete = True

    def _write(self, descriptor: int, lines: list[bytes]) -> None:
        if lines:
            stamp = f"{datetime.fromtimestamp(time.time(), UTC):%Y-%m-%dT%H:%M:%S.%f}000Z ".encode()
            content = b"".join(stamp + line + b"\n" for line in lines)
            _write_all(descriptor, content)

    def ending(self) -> str:
        """The last lines, as a message about a failure."""
        lines = [text for _, text in self._lines()][-LAST_LINES:]
        return b"\n".join(lines)[-LAST_BYTES:].decode(errors="replace")

    async def read(self, question: Question) -> AsyncIterator[bytes]:
        """The lines that the question asks for; if it follows, until the container has ended."""
        left = question.limit_bytes
        async for line in self._chosen(question):
            piece = line if left is None else line[:left]
            left = None if left is None else left - len(piece)
            yield piece
            if left == 0:
                return

    async def _chosen(self, question: Question) -> AsyncIterator[bytes]:
        place, lines = 0, []
        for end, line in self._places():
            place = end
            lines.append(line)
        if question.since is not None:
            lines = [line for line in lines if _time_of(line) >= question.since]
        if question.tail_lines is not None:
            lines = lines[len(lines) - min(question.tail_lines, len(lines)) :]
        for line in lines:
            yield _shown(line, question)
        while question.follow:
            was_complete = self.is_complete
            place = place if self.path.stat().st_size >= place else 0
            for end, line in self._places(place):
                place = end
                yield _shown(line, question)
            if was_complete:
                return
            await asyncio.sleep(FOLLOW_SECONDS)

    def _places(self, start: int = 0) -> Iterator[tuple[int, bytes]]:
        """Whole lines, each with the place of its end."""
        with self.path.open("rb") as file:
            file.seek(start)
            place = start
            for line in file.read().splitlines(keepends=True):
                if line.endswith(b"\n"):
                    place += len(line)
                    yield place, line

    def _lines(self) -> Iterator[tuple[bytes, bytes]]:
        for _, line in self._places():
            stamp, _, text = line.rstrip(b"\n").partition(b" ")
            yield stamp, text


def _write_all(descriptor: int, content: bytes) -> None:
    """Writes it; a full disk must not end the kubelet, so what does not fit is lost."""
    with contextlib.suppress(OSError):
        os.write(descriptor, content)


def _time_of(line: bytes) -> datetime:
    return datetime.fromisoformat(line.partition(b" ")[0][:26].decode() + "+00:00")


def _shown(line: bytes, question: Question) -> bytes:
    return line if question.timestamps else line.partition(b" ")[2]
