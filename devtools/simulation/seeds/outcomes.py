"""Many seeds, in this process or in several side by side, and what they add up to."""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from devtools.simulation.setting.size import Size

from .report import show
from .resumed import Resumed

if TYPE_CHECKING:
    from .run import Result, Runner

REPEATED_ONE_IN = 100
SHRINK_SECONDS = 180.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is kept of a run. As JSON it goes from process to process, and into a file of finished seeds."""

    seed: int
    line: str
    """The result in one line."""
    steps: int
    dispatch: str
    faults: Mapping[str, int]
    is_repeated: bool
    is_broken: bool
    cpu_seconds: float
    """Processor time of the run and its judgement, without PostgreSQL's."""
    database_cpu_seconds: float
    """PostgreSQL's."""
    shown: list[str] = field(default_factory=list)
    """The timeline and how to repeat it, if it is wanted or something is broken."""

    @classmethod
    def read(cls, line: str) -> "Outcome":
        """From a line of JSON."""
        return cls(**json.loads(line))

    def written(self) -> str:
        """As a line of JSON."""
        return json.dumps(asdict(self))


@dataclass(frozen=True, slots=True)
class Wanted:
    """How each seed is run."""

    size: Size = field(default_factory=Size)
    history: Path | None = None
    timeline: bool = False
    shrink: bool = False


def run_seed(runner: "Runner", seed: int, wanted: Wanted) -> Outcome:
    """Runs and judges a seed. One seed in a hundred runs twice, and must be the same run both times."""
    before = runner.cpu_seconds()
    result = runner.run(seed, wanted.size, history=wanted.history)
    used, used_by_database = (after - was for was, after in zip(before, runner.cpu_seconds(), strict=True))
    is_repeated = seed % REPEATED_ONE_IN == 0
    if is_repeated:
        again = runner.run(seed, wanted.size)
        if again.digest != result.digest:
            result.breaks.append(f"simulation: the run differs from its repetition ({result.digest}, {again.digest})")
    line, shown = result.line(), list[str]()
    if result.breaks and wanted.shrink:
        result = _smaller(runner, result)
    if result.breaks or wanted.timeline:
        show(result, shown.append)
    return Outcome(
        seed, line, result.steps, result.dispatch_digest, dict(result.faults), is_repeated, bool(result.breaks),
        round(used, 2), round(used_by_database, 2), shown,
    )  # fmt: skip


def _smaller(runner: "Runner", result: "Result") -> "Result":
    from .shrink import shrunk  # noqa: PLC0415 - it needs Django

    return shrunk(result, lambda smaller: runner.run(result.seed, smaller), seconds=SHRINK_SECONDS)


class Tally:
    """What outcomes add up to."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._began = time.monotonic()
        self._fresh = 0
        self.outcomes: dict[int, Outcome] = {}
        self._kept: set[int] = set()

    def add(self, outcome: Outcome, *, is_fresh: bool = True, is_kept: bool = False) -> None:
        """Counts it. `is_fresh`: it ran now, and is printed. `is_kept`: it is none of the range."""
        self.outcomes[outcome.seed] = outcome
        self._kept |= {outcome.seed} if is_kept else set()
        if is_fresh:
            self._fresh += 1
            for line in (outcome.line, *outcome.shown):
                self._say(line)

    @property
    def breaks(self) -> int:
        """How many seeds broke a promise."""
        return sum(outcome.is_broken for outcome in self.outcomes.values())

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self._began

    def figures(self) -> dict[str, object]:
        """What was measured."""
        outcomes, ranged = self.outcomes.values(), self.outcomes.keys() - self._kept
        faults: Counter[str] = Counter()
        for outcome in outcomes:
            faults.update(outcome.faults)
        return {
            "seeds": len(outcomes),
            "first": min(ranged, default=0),
            "last": max(ranged, default=0),
            "seeds_per_second": round(self._fresh / self.seconds, 2),
            "cpu_seconds_per_seed": _mean(one.cpu_seconds for one in outcomes),
            "database_cpu_seconds_per_seed": _mean(one.database_cpu_seconds for one in outcomes),
            "breaks": self.breaks,
            "broken": sorted(one.seed for one in outcomes if one.is_broken),
            "steps": sum(one.steps for one in outcomes),
            "faults": dict(sorted(faults.items())),
            "dispatch_interleavings": len({one.dispatch for one in outcomes}),
            "repeated": sum(one.is_repeated for one in outcomes),
        }


class Finished:
    """A file of the seeds that ran, so that a long range can be stopped and goes on later."""

    def __init__(self, path: Path | None, key: str) -> None:
        self._kept = Resumed(path, key)

    def read(self) -> Iterator[Outcome]:
        """What ran before. Raises ValueError if it ran in another state of the code, or with other arguments."""
        for line in self._kept.lines():
            with suppress(json.JSONDecodeError):  # one that was cut off when the process was killed
                yield Outcome.read(line)

    def add(self, outcome: Outcome) -> None:
        """Keeps it."""
        self._kept.add(outcome.written())


def _mean(seconds: Iterable[float]) -> float:
    known = [*seconds]
    return round(sum(known) / max(1, len(known)), 2)


def plain(figures: Mapping[str, Any]) -> str:
    """Figures as JSON in one line."""
    return json.dumps(figures)
