"""Several processes that run seeds side by side, each with its own PostgreSQL and with a processor to itself.

A run is one thing after the other: its threads and its sessions hand over to each other. On one processor that is cheaper.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING

from devtools.simulation.setting.size import Size

from .outcomes import Outcome, Wanted, run_seed

if TYPE_CHECKING:
    from .lines import Lines
    from .run import Runner

OWN = "own "
"""Before the arguments of a seed that has its own size."""
LINES = "lines "
"""Before the lines of code that a process reached, at its end."""


def serve(runner: "Runner", wanted: Wanted, lines: "Lines | None") -> None:
    """A process of the crew: runs the seeds of its input, and writes an outcome for each."""
    for line in sys.stdin:
        seed, _, arguments = line.rstrip("\n").partition(" ")
        of_its_own = replace(wanted, size=Size.read(arguments.removeprefix(OWN)))
        print(run_seed(runner, int(seed), of_its_own if OWN in arguments else wanted).written(), flush=True)
    if lines is not None:
        print(LINES + json.dumps(lines.reached()), flush=True)


class Crew:
    """The processes. `arguments`: how they run each seed."""

    def __init__(self, count: int, arguments: Sequence[str]) -> None:
        processors = sorted(os.sched_getaffinity(0))
        self._members = [_Member(arguments, processors[number % len(processors)]) for number in range(count)]
        self.reached: list[dict[str, list[int]]] = []
        """The lines of code that each process reached, after the end."""

    def run(self, seeds: Iterable[tuple[int, Size | None]]) -> Iterator[Outcome]:
        """The outcomes of the seeds, as they come; some have their own sizes. Each process gets the next seed when it has
        finished one.
        """
        left, answers = iter(seeds), SimpleQueue[tuple[_Member, str]]()
        for member in self._members:
            Thread(target=member.listen, args=(answers,), daemon=True).start()
            member.give(next(left, None))
        running = len(self._members)
        while running:
            member, line = answers.get()
            if not line:
                running -= 1
                if member.ended() != 0:
                    raise RuntimeError(f"a process of the simulation ended with status {member.ended()}")
            elif line.startswith(LINES):
                self.reached.append(json.loads(line.removeprefix(LINES)))
            else:
                yield Outcome.read(line)
                member.give(next(left, None))


class _Member:
    def __init__(self, arguments: Sequence[str], processor: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "devtools.simulation", "--serve", str(processor), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def listen(self, answers: "SimpleQueue[tuple[_Member, str]]") -> None:
        """Passes on what it writes; an empty line at its end."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answers.put((self, line))
        answers.put((self, ""))

    def give(self, work: tuple[int, Size | None] | None) -> None:
        """The next seed and its size; None ends it."""
        assert self._process.stdin is not None
        if work is None:
            self._process.stdin.close()
        elif self._process.poll() is None:
            seed, size = work
            self._process.stdin.write(f"{seed}\n" if size is None else f"{seed} {OWN}{size.arguments()}\n")
            self._process.stdin.flush()

    def ended(self) -> int:
        """Its status."""
        return self._process.wait()
