"""Runs the tests of the engines and rooms that a change may break: `python -m devtools.changed`, which `make test CHANGED=1` runs.

pytest-testmon keeps which functions of which files each test ran, so a test is left out while these read as they did when it
passed. What no record names, such as templates, SQL, settings and modules of constants alone, is compared as files: if one of these
changed, all tests run. The first run records, and costs two thirds more than `make test` spends on these tests.

It misses a constant beside functions that a test does not run, and what a test reads without Python. `make test` runs everything.
"""

import hashlib
import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from devtools.parts import PARTS, PROJECT, Plan, Run, report, run_all, tests_of

RECORDS = PROJECT / ".changed"
COMPARED = RECORDS / "compared.json"
"""By path, the hash of each file that no record names, as it was when all tests had run."""
WITHOUT_SLOW = ("-m", "not law and not oracle")
NOT_TESTED_HERE = ("docs/", "helm/", "benchmarks/", "client/", ".ci/")
SHOWN = 5
NAMED = "SELECT DISTINCT filename FROM file_fp"


def main() -> int:
    """Exit status: 0 if all that ran passed."""
    RECORDS.mkdir(exist_ok=True)
    files = {path: _hash(path) for path in _tracked()}
    before = json.loads(COMPARED.read_text()) if COMPARED.exists() else {}
    changed = changed_outside(before, files, set(_named()))
    if changed:
        shown = ", ".join(changed[:SHOWN]) + (" and others" if len(changed) > SHOWN else "")
        print(f"All tests run: no record says which of them need {shown}.", flush=True)
        COMPARED.unlink(missing_ok=True)  # until a run has ended: one that is interrupted has not tried all
    status = report(map(_without_none_selected, run_all(_runs(selects=not changed))))
    named = set(_named())
    COMPARED.write_text(json.dumps({path: hashed for path, hashed in files.items() if path not in named}, indent=1))
    return status


def changed_outside(before: Mapping[str, str], now: Mapping[str, str], named: set[str]) -> list[str]:
    """The files that no record names and that are new, gone or other than before; tests themselves are always recorded."""
    paths = (before.keys() | now.keys()) - named
    return sorted(path for path in paths if before.get(path) != now.get(path) and not _is_test(path))


def _runs(*, selects: bool) -> Iterator[Run]:
    selection = "--testmon-forceselect" if selects else "--testmon-noselect"
    for plan in PARTS:
        if any(pattern.startswith(("engine", "rooms")) for pattern in plan.patterns):
            own = [pattern for pattern in plan.patterns if pattern.startswith(("engine", "rooms"))]
            name = own[0].rpartition("/")[2].strip("[]!/*") if len(own) == 1 else "others"
            run = tests_of(
                name, Plan(own, plan.computes, plan.takes_turns), [*WITHOUT_SLOW, "-p", "testmon", selection]
            )
            run.environment["TESTMON_DATAFILE"] = str(RECORDS / f"{name}.sqlite")
            yield run


def _without_none_selected(run: Run) -> Run:
    if run.code == pytest.ExitCode.NO_TESTS_COLLECTED:
        run.code = 0
    return run


def _tracked() -> Iterator[str]:
    """The files that git has or would add, but those that no test of an engine or a room reads."""
    command = ("git", "ls-files", "--cached", "--others", "--exclude-standard", "-z")
    listed = subprocess.run(command, cwd=PROJECT, check=True, capture_output=True, text=True).stdout
    for path in listed.split("\0"):
        if path and not path.endswith(".md") and not path.startswith(NOT_TESTED_HERE) and (PROJECT / path).is_file():
            yield path


def _hash(path: str) -> str:
    return hashlib.sha256((PROJECT / path).read_bytes()).hexdigest()


def _named() -> Iterator[str]:
    """The files of which a record names functions."""
    for path in RECORDS.glob("*.sqlite"):
        with closing(sqlite3.connect(path)) as records:
            yield from (name for (name,) in records.execute(NAMED))


def _is_test(path: str) -> bool:
    return path.startswith("tests/") and Path(path).name.startswith("test_")


if __name__ == "__main__":
    sys.exit(main())
