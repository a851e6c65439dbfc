"""Runs the checks and then the whole suite in concurrent parts, each with its own servers: `python -m devtools.parts`,
which `make test` runs.

One part computes, two query their databases, and one drives a browser. Two inject faults and wait for gateways to recover,
one makes whole journeys, and one waits for control planes and processes. Together they keep two cores busy, and no test
uses a server of another part. The control planes' programs are built from the start: where none are cached, the build
takes minutes, and all but the parts with faults have tests that need none.
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

from devtools import check

PROJECT = Path(__file__).resolve().parent.parent
PATHS = (
    ("engine", "house", "devtools"),
    ("rooms/[!f]*/", "rooms/foundation"),
    ("rooms/federation",),
    ("concurrency", "browser"),
    ("faults/test_[a-k]*.py",),
    ("faults/test_[l-z]*.py",),
    ("journeys", "edge", "simulation"),
)
"""Patterns of the paths of all parts but the last, which has the other folders."""
COMPUTING_PARTS = 2
"""The first parts mostly compute. The others mostly wait, or take longest: they get a core when they need one."""
TIED = ("setpriv", "--pdeathsig", "TERM")
"""What starts with it ends with us, however we end."""
REQUIRED = ("kube", "browser", "processes")
"""Marked tests that must run. The folder of the same name has some of each."""
COUNTED = re.compile(r"(\d+) (passed|failed|errors?|skipped)")


def main() -> int:
    """Exit status: 0 if all checks and parts passed."""
    _build_programs()
    if check.main([]):
        return 1
    runs = [Part(number, paths) for number, paths in enumerate(parts(), start=1)]
    codes = [run.wait() for run in runs]
    counts = sum((run.counts for run in runs), Counter[str]())
    # The parts' lines are mixed, and who sees only the end of a long output sees these.
    for run in runs:
        print("".join(run.failures), end="")
    print(f"{counts['passed']} passed, {counts['failed'] + counts['error'] + counts['errors']} failed", flush=True)
    return int(any(codes))


def parts() -> tuple[Sequence[str], ...]:
    """The folders and files of each part, relative to `tests`."""
    tests = PROJECT / "tests"
    named = [_matching(patterns) for patterns in PATHS]
    begun = {path.partition("/")[0] for paths in named for path in paths}
    return *named, sorted({path.parent.name for path in tests.glob("*/__init__.py")} - begun)


def _matching(patterns: Sequence[str]) -> Sequence[str]:
    tests = PROJECT / "tests"
    found = (path for pattern in patterns for path in tests.glob(pattern) if path.name != "__pycache__")
    return sorted(str(path.relative_to(tests)) for path in found)


def _build_programs() -> None:
    """Begins to build what no cache has. A part that needs it waits for it, and reports why it failed."""
    command = [*TIED, sys.executable, "-m", "devtools.localfleet", "build"]
    subprocess.Popen(command, cwd=PROJECT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


class Part:
    """One pytest run; each of its lines is printed with the part's number before it."""

    def __init__(self, number: int, paths: Sequence[str]) -> None:
        self.number, self.counts = number, Counter[str]()
        self.failures: list[str] = []
        yielding = ["nice", "-n", "5"] if number <= COMPUTING_PARTS else []
        self._process = subprocess.Popen(
            [*TIED, *yielding, sys.executable, "-m", "pytest", *(f"tests/{path}" for path in paths)],
            cwd=PROJECT,
            env={**os.environ, "TESTS_THAT_MUST_RUN": " ".join(name for name in REQUIRED if name in paths)},
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
            if line.startswith(("FAILED tests/", "ERROR tests/")):
                self.failures.append(line)
        self.counts.update({word: int(count) for count, word in COUNTED.findall(last)})

    def wait(self) -> int:
        """Its exit status."""
        self._reader.join()
        return self._process.wait()


if __name__ == "__main__":
    sys.exit(main())
