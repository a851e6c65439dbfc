"""Runs the checks and the whole suite in parts, each with its own servers: `python -m devtools.parts`, which `make test`
runs.

Parts that mostly wait, for a control plane, a gateway or a lease, run three at a time, and beside them two that compute: these
take the processor only when no other part needs it. Tests that take turns with their database stay on one core with it, which costs
both somewhat less than to wake each other on another. Of each kind, those that take longest begin first, so that nothing long
runs alone at the end. The checks begin with them. The control planes' programs are built from the start: where none are cached,
the build takes minutes.

Prints what each part cost in CPU seconds, and with `--cpu` the costliest files of all parts.
"""

import argparse
import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

PROJECT = Path(__file__).resolve().parent.parent
AT_ONCE = 5
COMPUTING_AT_ONCE = 2
"""While parts of the other kind wait for their turn. Parts that compute spend a third of their time with their database."""
POLL_SECONDS = 0.2


@dataclass(slots=True)
class Plan:
    """A part: patterns of its paths, relative to `tests`.

    `computes`: it has far lower priority than parts that mostly wait, which need the processor at the right moment.
    """

    patterns: Sequence[str]
    computes: bool = False
    takes_turns: bool = False
    """Its tests and the server of their database never work at the same time."""


PARTS = (
    Plan(("faults",)),
    Plan(("browser", "concurrency")),
    Plan(("contract", "processes")),
    Plan(("kube", "edge")),
    Plan(("journeys/test_howto.py", "journeys/test_readme.py")),
    Plan(("journeys/test_[!hr]*.py", "journeys/test_real_*.py")),
    Plan(("rooms/federation",), computes=True, takes_turns=True),
    Plan(("rooms/billing",), computes=True, takes_turns=True),
    Plan(("rooms/[!bf]*/", "rooms/foundation", "sdk"), computes=True, takes_turns=True),
    Plan(("engine", "house"), computes=True),
    Plan(("simulation", "devtools"), computes=True),  # its seeds have two processes
)
"""Each folder of `tests` is in one of them; of each kind, the longest comes first. A part costs five CPU seconds before its first
test.
"""
TIED = ("setpriv", "--pdeathsig", "TERM")
"""What starts with it ends with us, however we end."""
INHERITED = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""Parts start hundreds of processes: without bytecode each would compile Django and all else again, for half a second to one."""
CHECKS = (sys.executable, "-m", "devtools.check")
REQUIRED = ("kube", "browser", "processes")
"""Marked tests that must run. The folder of the same name has some of each."""
COUNTED = re.compile(r"(\d+) (passed|failed|errors?|skipped)")
COST = re.compile(r" *(\d+\.\d)  tests/")
"""A line of `tests/costs.py`."""
COSTS_SHOWN = 40


def main() -> int:
    """Exit status: 0 if all checks and parts passed."""
    parser = argparse.ArgumentParser(prog="python -m devtools.parts", description=__doc__)
    parser.add_argument("--cpu", action="store_true", help="print the files of tests that took the most CPU seconds")
    further = ["--cpu=files"] if parser.parse_args().cpu else []
    _build_programs()
    # The checks need no database: the first parts wait for it where none is prepared.
    checks = Run("checks", CHECKS, has_low_priority=True)
    return report(
        run_all([checks, *(tests_of(str(number), plan, further) for number, plan in enumerate(PARTS, start=1))])
    )


def report(ended: Iterable["Run"]) -> int:
    """Prints what ended how, when all have; exit status: 0 if all passed."""
    runs = list(ended)
    counts = sum((run.counts for run in runs), Counter[str]())
    # The parts' lines are mixed, and who sees only the end of a long output sees these.
    for run in runs:
        print("".join(run.failures), end="")
    print("".join(costliest(line for run in runs for line in run.costs)), end="")
    print("CPU seconds: " + ", ".join(f"{run.name} {run.cpu_seconds:.0f}" for run in runs))
    for run in runs:
        if run.code:
            print(f"FAILED {run.name} with exit status {run.code}")
    print(f"{counts['passed']} passed, {counts['failed'] + counts['error'] + counts['errors']} failed", flush=True)
    return int(any(run.code for run in runs))


def costliest(lines: Iterable[str]) -> Sequence[str]:
    """The lines of the files with the most CPU seconds."""
    return sorted(lines, key=lambda line: float(line.split()[0]), reverse=True)[:COSTS_SHOWN]


def run_all(runs: Iterable["Run"]) -> Iterator["Run"]:
    """Each of them when it has ended; those that come first begin first."""
    waiting = list(runs)
    running: list[Run] = []
    while waiting or running:
        while len(running) < AT_ONCE and (run := _next(waiting, running)):
            waiting.remove(run)
            run.start(_core_for(run, running))
            running.append(run)
        time.sleep(POLL_SECONDS)
        for run in [run for run in running if run.has_ended()]:
            running.remove(run)
            yield run


def _next(waiting: Sequence["Run"], running: Sequence["Run"]) -> "Run | None":
    """The first that may begin now: no more than two that compute while others wait for their turn."""
    others = [run for run in waiting if not run.has_low_priority]
    if others and sum(run.has_low_priority for run in running) >= COMPUTING_AT_ONCE:
        return others[0]
    if others and sum(not run.has_low_priority for run in running) >= AT_ONCE - COMPUTING_AT_ONCE:
        return next((run for run in waiting if run.has_low_priority), others[0])
    return next(iter(waiting), None)


def _core_for(run: "Run", running: Sequence["Run"]) -> int | None:
    """The core on which it stays, if it takes turns and there is one where no other part stays: two on one core would wait for each
    other beside an idle one.
    """
    taken = {other.core for other in running}
    free = sorted(os.sched_getaffinity(0) - taken)
    return free[0] if free and run.takes_turns else None


def paths_of(plan: Plan) -> Sequence[str]:
    """The folders and files of a part, relative to `tests`."""
    tests = PROJECT / "tests"
    found = (path for pattern in plan.patterns for path in tests.glob(pattern) if path.name != "__pycache__")
    return sorted(str(path.relative_to(tests)) for path in found)


def tests_of(name: str, plan: Plan, further: Sequence[str]) -> "Run":
    """The run of a part's tests, with further arguments of pytest."""
    paths = paths_of(plan)
    must_run = " ".join(word for word in REQUIRED if word in paths)
    command = (sys.executable, "-m", "pytest", *further, *(f"tests/{path}" for path in paths))
    environment = {"TESTS_THAT_MUST_RUN": must_run}
    return Run(name, command, has_low_priority=plan.computes, takes_turns=plan.takes_turns, environment=environment)


def _build_programs() -> None:
    """Begins to build what no cache has. A part that needs it waits for it, and reports why it failed."""
    command = [*TIED, sys.executable, "-m", "devtools.localfleet", "build"]
    subprocess.Popen(command, cwd=PROJECT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


@dataclass(slots=True)
class Run:
    """A program that runs beside others; each of its lines is printed with its name before it."""

    name: str
    command: Sequence[str]
    has_low_priority: bool = False
    takes_turns: bool = False
    core: int | None = None
    environment: dict[str, str] = field(default_factory=dict)
    code: int | None = None
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    costs: list[str] = field(default_factory=list)
    cpu_seconds: float = 0.0
    _reader: threading.Thread | None = None
    _process: "subprocess.Popen[str] | None" = None

    def start(self, core: int | None = None) -> None:
        """On this core alone, if one is given. From the main thread: what starts tied ends with the thread that started it."""
        self.core = core
        placed = [] if core is None else ["taskset", "--cpu-list", str(core)]
        self._process = subprocess.Popen(
            [*TIED, *placed, *(["nice", "-n", "10"] if self.has_low_priority else []), *self.command],
            cwd=PROJECT,
            env={**INHERITED, **self.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        self._reader = threading.Thread(target=self._tell, args=[self._process.stdout, time.monotonic()])
        self._reader.start()

    def has_ended(self) -> bool:
        """Whether it ended and all that it printed was read; then `code` is its exit status, and `cpu_seconds` are those of all
        that it started and waited for.
        """
        assert self._process is not None
        assert self._reader is not None
        if self._reader.is_alive():
            return False
        _, status, usage = os.wait4(self._process.pid, 0)
        self.code = self._process.returncode = os.waitstatus_to_exitcode(status)
        self.cpu_seconds = usage.ru_utime + usage.ru_stime
        return True

    def _tell(self, lines: IO[str], began: float) -> None:
        last = ""
        with lines:
            for line in lines:
                print(f"{self.name}| {line}", end="", flush=True)
                last = line if COUNTED.search(line) else last
                if line.startswith(("FAILED tests/", "ERROR tests/")):
                    self.failures.append(line)
                if COST.match(line):
                    self.costs.append(line)
        self.counts.update({word: int(count) for count, word in COUNTED.findall(last)})
        print(f"{self.name}| took {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
