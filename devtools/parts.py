"""Runs the whole suite in five concurrent parts, each with its own servers: `python -m devtools.parts`, which `make
test` runs.

One part computes and then drives a browser, and one queries its database. One injects faults and waits for gateways to
recover, one makes whole journeys, and one waits for control planes and processes. Together they keep two cores busy, and
no test uses a server of another part.
"""

import os
import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import IO

PROJECT = Path(__file__).resolve().parent.parent
FOLDERS = (
    ("engine", "house", "devtools", "concurrency", "browser"),
    ("rooms",),
    ("faults",),
    ("journeys", "edge", "simulation"),
)
"""The folders of all parts but the last, which has the others."""
REQUIRED = ("kube", "browser", "processes")
"""Marked tests that must run. The folder of the same name has some of each."""
COUNTED = re.compile(r"(\d+) (passed|failed|errors?|skipped)")


def main() -> int:
    """Exit status: 0 if all parts passed."""
    runs = [Part(number, folders) for number, folders in enumerate(parts(), start=1)]
    codes = [run.wait() for run in runs]
    counts = sum((run.counts for run in runs), Counter[str]())
    print(f"{counts['passed']} passed, {counts['failed'] + counts['error'] + counts['errors']} failed", flush=True)
    return int(any(codes))


def parts() -> tuple[Sequence[str], ...]:
    """The folders of each part."""
    folders = {path.parent.name for path in (PROJECT / "tests").glob("*/__init__.py")}
    return *FOLDERS, sorted(folders.difference(*FOLDERS))


class Part:
    """One pytest run; each of its lines is printed with the part's number before it."""

    def __init__(self, number: int, folders: Sequence[str]) -> None:
        self.number, self.counts = number, Counter[str]()
        paths = [f"tests/{folder}" for folder in folders]
        self._process = subprocess.Popen(
            # It ends with us, however we end.
            ["setpriv", "--pdeathsig", "TERM", sys.executable, "-m", "pytest", *paths],
            cwd=PROJECT,
            env={**os.environ, "TESTS_THAT_MUST_RUN": " ".join(name for name in REQUIRED if name in folders)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        assert self._process.stdout is not None
        self._reader = threading.Thread(target=self._tell, args=[self._process.stdout])
        self._reader.start()

    def _tell(self, lines: IO[str]) -> None:
        last = ""
        for line in lines:
            print(f"{self.number}| {line}", end="", flush=True)
            last = line if COUNTED.search(line) else last
        self.counts.update({word: int(count) for count, word in COUNTED.findall(last)})

    def wait(self) -> int:
        """Its exit status."""
        self._reader.join()
        return self._process.wait()


if __name__ == "__main__":
    sys.exit(main())
