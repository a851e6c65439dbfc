"""Files of what was done, one line for each, so that long work can be stopped and goes on later."""

from collections.abc import Iterator
from pathlib import Path


class Resumed:
    """A file of lines that belongs to one state of the code and to some arguments."""

    def __init__(self, path: Path | None, key: str) -> None:
        """Without a path, nothing is kept."""
        self._path = path
        self._key = key

    def lines(self) -> Iterator[str]:
        """What was done before. Raises ValueError if that was in another state of the code, or with other arguments."""
        if self._path is None or not self._path.exists():
            return
        first, *lines = self._path.read_text(encoding="utf-8").splitlines()
        if first != self._key:  # what was done is no evidence for this code
            raise ValueError(
                f"{self._path} belongs to another state of the code, or to other arguments: name a new file"
            )
        yield from lines

    def add(self, line: str) -> None:
        """Keeps it."""
        if self._path is None:
            return
        is_new = not self._path.exists()
        with self._path.open("a", encoding="utf-8") as out:
            if is_new:
                out.write(self._key)
            out.write(f"\n{line}")
