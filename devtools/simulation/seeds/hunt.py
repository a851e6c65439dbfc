"""Looks for defects that were put into the gateway, each with the faults that concern it, and makes the runs that find them small."""

import argparse
import json
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from devtools.simulation.core.swarm import ANY, Swarm
from devtools.simulation.mutants import MUTANTS, names, put_in
from devtools.simulation.setting.size import Size, size_of

from .kept import KEPT
from .report import show
from .resumed import Resumed
from .run import Result, Runner
from .shrink import LIVELINESS, shrunk

SMALL_HEAD = "| Defect | Seed | Steps | Turns | Points | Repeated with |\n|---|---|---|---|---|---|"
PAGE = Path(__file__).parents[3] / "docs/reference/simulated-defects.md"
ROWS = re.compile(r"^\| `(\w+)` \| (\d+) \| (\d+) \| \d+ \| \d+ \| `([^`|]*)` \|$", re.MULTILINE)
"""Those of small runs on that page: the defect, the seed, the steps and the arguments."""
HEAD = "| Defect | Seed | CPU s | Promise | Model |\n|---|---|---|---|---|"
ENOUGH = 40
"""A run of so few steps is small enough: it is not made smaller."""
ONE = Size(jobs=(0,), cut=True, alone=True, turns=(0, 0))
SMALLEST = (
    replace(ONE, one_cluster=True),
    ONE,
    replace(ONE, jobs=(0, 1)),
    replace(ONE, jobs=(0,), alone=False, turns=None),
    replace(ONE, jobs=()),
    Size(cut=True),
)
"""The worlds in which other seeds are tried, when a find does not become small."""
SMALL_SEEDS = 4
"""How many of them in each."""


@dataclass(frozen=True, slots=True)
class Small:
    """A run that was made small."""

    seed: int
    steps: int
    """The lines of its timeline."""
    turns: int
    """How often another actor went on."""
    points: int
    """How often an actor stopped so that others could run."""
    size: str
    by: tuple[str, ...]
    """The judges that object."""

    @classmethod
    def of(cls, result: Result) -> "Small":
        """What is reported of it."""
        steps, by = len(result.timeline), tuple(sorted(result.broken_promises))
        return cls(result.seed, steps, result.switches, result.steps, result.size.arguments(), by)

    def row(self, name: str) -> str:
        """Its row of the table of runs that were made small."""
        return f"| `{name}` | {self.seed} | {self.steps} | {self.turns} | {self.points} | `{self.size}` |"


@dataclass(frozen=True, slots=True)
class Found:
    """What became of the search for one defect."""

    seed: int
    """The one that found it; else the last one."""
    by: tuple[str, ...]
    seeds: int
    finds: int
    cpu_seconds: float
    """Of all its runs, with PostgreSQL's, without those that make the find smaller."""

    @property
    def promises(self) -> str:
        """Which promises it breaks, or the judges that object beside these."""
        words = sorted({_promise(judge) for judge in self.by}, key=lambda word: (len(word), word))
        return ", ".join(words)

    def row(self, name: str) -> str:
        """Its row of the table in docs/reference/simulated-defects.md."""
        mutant = MUTANTS[name]
        seed, promises = (self.seed, f"{self.promises} ") if self.finds else (f"not in {self.seeds}", "")
        guard = mutant.guard and f"`{mutant.guard}` "
        return f"| `{name}`: {mutant.does} | {seed} | {self.cpu_seconds:.1f} | {promises}| {guard}|"


@dataclass(slots=True)
class State:
    """How far the work on one defect is. As JSON it is kept in a file, so that the work can be stopped."""

    found: Found | None = None
    small: Small | None = None
    tried: int = 0
    """How many of the smallest worlds were tried."""

    @classmethod
    def read(cls, kept: Mapping[str, Any]) -> "State":
        """From what `written` gave."""
        found, small = kept["found"], kept["small"]
        return cls(
            found and Found(**found | {"by": tuple(found["by"])}),
            small and Small(**small | {"by": tuple(small["by"])}),
            kept["tried"],
        )

    @property
    def is_small(self) -> bool:
        """Whether a run is small enough."""
        return self.small is not None and self.small.steps <= ENOUGH

    def written(self, name: str) -> str:
        """As a line of JSON."""
        return json.dumps({"name": name, **asdict(self)})


def hunt(runner: Runner, wanted: argparse.Namespace, kept: Resumed | None = None) -> dict[str, object]:
    """Prints which seed finds which defect, by which promise; returns how many were found, and how many runs became small."""
    kept = kept or Resumed(None, "")
    hunted = names() if wanted.mutant == "all" else wanted.mutant.split(",")
    before = _known(kept)
    states = {name: before.get(name, State()) for name in hunted}
    for name, state in states.items():
        _Hunt(name, runner, wanted, state, kept).go_on()
        print(name, json.dumps(asdict(state)), flush=True)
    if wanted.table:
        found = {name: state.found for name, state in states.items() if state.found is not None}
        small = {name: state.small for name, state in states.items() if state.small is not None}
        rows = [HEAD, *(one.row(name) for name, one in found.items())] if found else []
        rows += [SMALL_HEAD, *(one.row(name) for name, one in small.items())] if small else []
        print("\n".join(rows), flush=True)
    caught = sum(state.small is not None or bool(state.found and state.found.finds) for state in states.values())
    figures: dict[str, object] = {"mutants": len(hunted), "mutants_caught": caught}
    return figures | ({"small": sum(state.is_small for state in states.values())} if _makes_small(wanted) else {})


def _known(kept: Resumed) -> dict[str, State]:
    known = {}
    for line in kept.lines():
        with suppress(json.JSONDecodeError):  # one that was cut off when the process was killed
            one = json.loads(line)
            known[one["name"]] = State.read(one)
    return known


def _makes_small(wanted: argparse.Namespace) -> bool:
    return bool(wanted.shrink or wanted.small)


class _Hunt:
    """The work on one defect."""

    def __init__(self, name: str, runner: Runner, wanted: argparse.Namespace, state: State, kept: Resumed) -> None:
        self._name = name
        self._runner = runner
        self._wanted = wanted
        self._state = state
        self._kept = kept
        self._until = 0.0
        self._best: Result | None = None
        """The smallest run of this process."""
        self._kept_without: set[tuple[object, ...]] = set()
        """The worlds in which the gateway without the defect keeps the promise."""

    def go_on(self) -> None:
        """From where it was."""
        wanted, state = self._wanted, self._state
        first = None
        if state.found is None and not wanted.small:
            first = self._find()
        self._until = time.process_time() + wanted.shrink_seconds
        if not _makes_small(wanted) or state.is_small or (state.found is not None and not state.found.finds):
            return
        if state.small is not None:
            first = self._attempt(state.small.seed, Size.read(state.small.size), frozenset(state.small.by))
        elif first is None and state.found is not None:
            first = self._run(state.found.seed, size_of(wanted))
        if first is not None and first.broken_promises:
            self._make_small(first)
        for number, (seed, size) in self._elsewhere():
            result = self._attempt(seed, size)
            if result.broken_promises:
                self._make_small(result)
            state.tried = number + 1
            self._keep()
        if self._best is not None:
            show(self._best, print, self._name, is_sound=wanted.sound)

    def _find(self) -> Result | None:
        """The run of the first seed that finds it."""
        wanted, began, finds, first = self._wanted, sum(self._runner.cpu_seconds()), 0, None
        for seed in range(wanted.first, wanted.first + wanted.seeds):
            history = None if wanted.history is None else wanted.history / self._name
            result = self._run(seed, size_of(wanted), history)
            finds += is_found(result)
            first = result if first is None and is_found(result) else first
            is_enough = result.breaks and not wanted.through
            if is_enough or sum(self._runner.cpu_seconds()) - began > wanted.seconds:
                break
        used, result = sum(self._runner.cpu_seconds()) - began, first or result
        by = tuple(sorted(result.broken_promises))
        self._state.found = Found(result.seed, by, seed - wanted.first + 1, finds, round(used, 1))
        self._keep()
        if wanted.timeline:
            show(result, print, self._name, is_sound=wanted.sound)
        return first

    def _elsewhere(self) -> Iterator[tuple[int, tuple[int, Size]]]:
        """Seeds and small worlds that were not tried yet, as long as there is time and nothing is small enough."""
        first = self._wanted.first
        every = [(seed, size) for size in SMALLEST for seed in range(first, first + SMALL_SEEDS)]
        for number, one in enumerate(every):
            if self._state.is_small or time.process_time() > self._until:
                return
            if number >= self._state.tried:
                yield number, one

    def _make_small(self, first: Result) -> None:
        """As far as the time allows. What is smaller than anything before is kept immediately."""

        def attempt(size: Size) -> Result:
            result = self._attempt(first.seed, size, first.broken_promises)
            if first.broken_promises & result.broken_promises:
                self._note(result)
            return result

        self._note(first)
        shrunk(first, attempt, seconds=self._until - time.process_time(), enough=ENOUGH)

    def _note(self, result: Result) -> None:
        small = self._state.small
        if small is None or len(result.timeline) < small.steps:
            self._state.small, self._best = Small.of(result), result
            self._keep()

    def _keep(self) -> None:
        self._kept.add(self._state.written(self._name))

    def _attempt(self, seed: int, size: Size, promises: frozenset[str] = frozenset()) -> Result:
        """The run, in which nothing counts as broken that the gateway breaks without the defect too, or that is no break of one
        of these promises, if there are some.
        """
        result = self._run(seed, size)
        broken = promises & result.broken_promises if promises else result.broken_promises
        world = (seed, size.one_cluster, size.absent, size.unwished if broken & LIVELINESS else ())
        if not is_found(result) or not broken:
            return replace(result, breaks=[])
        if self._wanted.sound or world in self._kept_without:
            return result
        # A world that lacks too much breaks a promise without any defect: in it, the defect shows nothing.
        excused = self._run(seed, size, is_sound=True).broken_promises
        if broken - excused:
            self._kept_without.add(world)
        return replace(result, breaks=[line for line in result.breaks if line.partition(":")[0] not in excused])

    def _run(self, seed: int, size: Size, history: Path | None = None, *, is_sound: bool = False) -> Result:
        """Runs the seed in the swarm of the defect, with the defect unless the gateway shall stay sound."""
        with put_in(self._name, is_sound=is_sound or self._wanted.sound) as swarm:
            # not ANY itself: a broken run need not go on
            self._runner.swarm = Swarm() if self._wanted.drawn else swarm
            try:
                return self._runner.run(seed, size, history=history)
            finally:
                self._runner.swarm = ANY


def find_again(runner: Runner) -> dict[str, object]:
    """Runs each kept seed with the defect that it found; returns the seeds that do not find it any more."""
    missed = []
    for kept in KEPT:
        with put_in(kept.defect):
            result = runner.run(kept.seed, kept.size)
        print(kept.defect, result.line(), sorted(result.broken_promises), flush=True)
        missed += [] if is_found(result) else [kept.seed]
    return {"kept": len(KEPT), "missed": missed}


def find_small_again(runner: Runner) -> dict[str, object]:
    """Runs each small run of the page again, with its defect; returns those that are not found any more, and those that need more
    steps.
    """
    missed, longer, rows = [], [], ROWS.findall(PAGE.read_text(encoding="utf-8"))
    for name, seed, steps, size in rows:
        with put_in(name) as swarm:
            runner.swarm = swarm
            result = runner.run(int(seed), Size.read(size))
            runner.swarm = ANY
        print(name, len(result.timeline), result.line(), sorted(result.broken_promises), flush=True)
        missed += [] if is_found(result) else [name]
        longer += [name] if len(result.timeline) > max(ENOUGH, int(steps)) else []
    return {"small": len(rows), "missed": missed, "longer": longer}


def is_found(result: Result) -> bool:
    """Whether a judge objects. A run that the simulation itself could not bring to its end, as on a busy host, finds nothing."""
    return bool(result.breaks) and "simulation" not in result.broken_promises


def _promise(judge: str) -> str:
    """The number of the promise that a judge is named by; another judge's own name."""
    first, _, rest = judge.partition("_")
    number = rest.partition("_")[0]
    return number if first == "promise" and number.isdigit() else judge.replace("_", " ")
