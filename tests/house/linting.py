"""import-linter on a copy of the house. A run costs a third of a second of a core, nearly all of it to start and to parse every
file: each is a fork of one process that has imported the linter, and reads again only files that changed.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from .source import ROOT

REPORT = "report.txt"


class Linter(Protocol):
    """Runs `lint-imports` in a folder: its exit status, and all that it prints."""

    def __call__(self, house: Path) -> tuple[int, str]: ...


@contextmanager
def linter() -> Iterator[Linter]:
    """The process, which ends with the block."""
    command = [sys.executable, "-m", "tests.house.linting"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

        def lint(house: Path) -> tuple[int, str]:
            process.stdin.write(f"{house}\n")
            process.stdin.flush()
            return int(process.stdout.readline()), (house / REPORT).read_text()

        yield lint


def main() -> None:
    """Reads a folder per line, and prints an exit status per line."""
    import importlinter.cli  # noqa: F401, PLC0415 - before the forks; the process that runs the tests does without

    for line in sys.stdin:
        child = os.fork()
        if not child:
            _become_linter(Path(line.rstrip("\n")))
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def _become_linter(house: Path) -> None:
    """Nothing of the house itself has been imported in this process."""
    from importlinter.cli import lint_imports  # noqa: PLC0415 - as above

    code = 70
    try:
        os.chdir(house)
        printed = os.open(REPORT, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        for stream in (1, 2):
            os.dup2(printed, stream)
        code = lint_imports()
        sys.stdout.flush()
    finally:
        os._exit(code)


if __name__ == "__main__":
    main()
