"""Changes one token of an engine at a time and runs the tests that should notice: `make mutants COUNT=200 SEED=1`.

Mutants are drawn evenly over the engines' statements and tried on a copy of the tree. Each meets the tests of
tests/engine that run the mutated statement, the cheapest first, until one fails. Survivors meet the files of their room's
tests that name the module, the laws, the oracles, then all tests of their room and of the room that uses all others. A
mutant that exceeds its time or memory counts as caught. A run that was interrupted continues where it stopped. Exit status:
0 if at least 95 % are caught.
"""

import argparse
import json
import os
import resource
import signal
import sys
import tempfile
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from difflib import unified_diff
from hashlib import sha256
from itertools import chain
from operator import itemgetter
from pathlib import Path

import pytest

from devtools.embedded import servers

from .fates import Fate, Fates
from .forked import copied, preload, run
from .mutations import Mutation, mutations
from .warm import Warm
from .watchers import Selected, Suite, Watchers, watchers

PROJECT = Path(__file__).resolve().parent.parent.parent
EQUIVALENT = Path(__file__).parent / "equivalent.toml"
LEAST_SHARE_CAUGHT = 0.95
MOST_CHARACTERS_NAMED = 40
ENGINES = ("placement", "simulator", "*/engine", "foundation/reading.py")
ENGINE_TESTS = Suite("tests/engine", ("-m", "not law and not oracle"))
LAWS = Suite("tests/engine", ("-m", "law"))
# Last of all: they take longer than all other tests of engines together.
ORACLES = Suite("tests/engine", ("-m", "oracle"))
# The room that uses the engines of all others. Engines outside rooms are tried by it.
TOP_ROOM = "federation"
PURE_ROOMS = {"placement", "simulator"}
START_CPU_SECONDS = 60
"""For the import and collection of the tests."""
LEAST_CPU_SECONDS, TIMES_AS_LONG = 2, 5
"""How much longer than without a mutant a test may take."""
FEWEST_FOR_WARM = 3
"""For fewer mutants, to collect the whole suite first costs more than it saves."""


@dataclass(frozen=True, slots=True)
class Mutant:
    file: str
    source: bytes
    mutation: Mutation

    def __str__(self) -> str:
        change = f"{_short(self.mutation.before)} → {_short(self.mutation.after or '(nothing)')}"
        return f"{self.file}:{self.mutation.line}  {change}"

    def identity(self) -> str:
        change = self.mutation
        return f"{self.file}:{change.start}-{change.end} {change.after}"

    def is_at(self, places: Iterable[str]) -> bool:
        """Whether one of these is its line, as `FILE:LINE`, or the mutant as it is printed."""
        return any(place in {f"{self.file}:{self.mutation.line}", str(self)} for place in places)

    def module(self) -> str:
        return self.file.removesuffix(".py").replace("/", ".")

    def is_in(self, paths: Iterable[str]) -> bool:
        """Whether its file is one of these, or in one of these folders; the empty path is the whole tree."""
        return any(not path or f"{self.file}/".startswith(f"{path.rstrip('/')}/") for path in paths)

    def room(self) -> str:
        folder, *_ = self.file.split("/")
        return TOP_ROOM if folder in PURE_ROOMS else folder

    def statement(self) -> tuple[int, bytes]:
        """The statement's own lines: the offset of the first one, and their text."""
        lines, own = self.source.splitlines(keepends=True), self.mutation.lines
        return len(b"".join(lines[: own.start - 1])), b"".join(lines[own.start - 1 : own.stop - 1])

    def diff(self) -> str:
        before, after = (text.decode().splitlines() for text in (self.source, self.mutation.applied(self.source)))
        return "\n".join([*unified_diff(before, after, self.file, self.file, lineterm="", n=1)][2:])


@dataclass(frozen=True, slots=True)
class Equivalent:
    """Mutants that change no behaviour: all of a line of this text, or only those that replace `before` by `after`."""

    file: str
    line: str
    reason: str
    before: str | None = None
    after: str | None = None

    def is_of(self, mutant: Mutant) -> bool:
        change = mutant.mutation
        return (
            mutant.file == self.file
            and mutant.source.decode().splitlines()[change.line - 1].strip() == self.line
            and self.before in {None, change.before}
            and self.after in {None, change.after}
        )


def _short(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS_NAMED else f"{text[: MOST_CHARACTERS_NAMED - 1]}…"


def engines(tree: Path) -> dict[str, bytes]:
    """The sources of all engines by their path in the tree."""
    places = [place for pattern in ENGINES for place in tree.glob(pattern) if place.parent.name != "tests"]
    paths = sorted(path for place in places for path in ([place] if place.is_file() else place.rglob("*.py")))
    return {str(path.relative_to(tree)): path.read_bytes() for path in paths}


def all_mutants(sources: Mapping[str, bytes]) -> Iterator[Mutant]:
    for file, source in sources.items():
        for mutation in mutations(source):
            yield Mutant(file, source, mutation)


def equivalents() -> list[Equivalent]:
    return [Equivalent(**entry) for entry in tomllib.loads(EQUIVALENT.read_text()).get("mutant", [])]


def draw(mutants: Iterable[Mutant], count: int, seed: int) -> list[Mutant]:
    """One mutant of each of `count` statements; within a statement each place is as likely as any other.

    A hash of the seed and of the statement's text decides, so that a change elsewhere leaves the rest of the draw as it was.
    """

    def chance(*of: object) -> bytes:
        return sha256(repr((seed, *of)).encode()).digest()

    statements: dict[tuple[str, int], list[Mutant]] = defaultdict(list)
    for mutant in mutants:
        statements[mutant.file, mutant.mutation.lines.start].append(mutant)
    alike: Counter[tuple[str, bytes]] = Counter()
    ranked: list[tuple[bytes, Mutant]] = []
    for (file, _), own in sorted(statements.items(), key=itemgetter(0)):
        begins, text = own[0].statement()
        alike[file, text] += 1
        name = chance(file, text, alike[file, text])
        ranks = [(chance(name, one.mutation.start - begins), chance(name, one.mutation.after)) for one in own]
        ranked.append((name, own[ranks.index(min(ranks))]))
    return [mutant for _, mutant in sorted(ranked, key=itemgetter(0))[:count]]


@dataclass(frozen=True, slots=True)
class Bench:
    """A copy of the tree and the tests that run each line of it."""

    tree: Path
    suite: Suite
    watchers: Watchers
    warm: Warm | None = None
    """Tries most mutants sooner."""

    def catcher(self, mutant: Mutant) -> str:
        """The test that fails, or the limit that is exceeded; empty if the mutant survives."""
        tests = self.watchers.of(mutant.file, mutant.mutation)
        if not tests:
            return ""
        limits = {test: LEAST_CPU_SECONDS + TIMES_AS_LONG * self.watchers.seconds[test] for test in tests}
        found = self.warm and self.warm.catcher(mutant.file, mutant.source, mutant.mutation, limits)
        if found or (found == "" and not self.watchers.run_it_early(mutant.file, mutant.mutation)):
            return found
        path = self.tree / mutant.file
        times = path.stat()
        path.write_bytes(mutant.mutation.applied(mutant.source))
        # Its time must differ from that of the compiled original.
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns + 10**10))
        try:
            files = sorted({test.split("::")[0] for test in tests})
            most = START_CPU_SECONDS + int(sum(limits.values()))
            done = run(self.tree, ["-x", *self.suite.needs, *files], Selected(limits), cpu_seconds=most)
        finally:
            path.write_bytes(mutant.source)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        if done.status in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}:
            return ""
        limit_or_import = "the limit of time or memory" if done.status is None else "the import of the tests"
        return done.reported.split("\n")[0] or limit_or_import


@dataclass(slots=True)
class Trial:
    """All suites in turn: what a suite does not catch is tried by the next."""

    tree: Path
    sources: Mapping[str, bytes]
    fates: Fates
    caught_by: Counter[str] = field(default_factory=Counter)
    cpu_seconds: float = 0.0

    def survivors(self, suite: Suite, mutants: Sequence[Mutant]) -> list[Mutant]:
        """Those that no test of the suite catches."""
        known = {mutant: self.fates.of(str(suite), mutant.identity()) for mutant in mutants}
        # The lines that tests run are recorded only if some mutant has still to be tried.
        bench = self._bench(suite, list(known.values()).count(None))
        left = []
        for number, (mutant, before) in enumerate(known.items(), start=1):
            fate = before or _tried(bench, mutant)
            if not before:
                self.fates.keep(str(suite), mutant.identity(), fate)
            self.cpu_seconds += fate.cpu_seconds
            shown = f"caught by {fate.catcher}" if fate.catcher else "SURVIVES"
            took = f"{fate.cpu_seconds:.1f} s{' before' * bool(before)}"
            print(f"[{suite} {number}/{len(known)} {took}] {mutant}  {shown}", flush=True)
            if fate.catcher:
                self.caught_by[suite.short()] += 1
            else:
                left.append(mutant)
        if bench is not None and bench.warm is not None:
            bench.warm.close()
        return left

    def _bench(self, suite: Suite, untried: int) -> Bench | None:
        if not untried:
            return None
        found = watchers(self.tree, self.sources, suite)
        files = suite.files(self.tree)
        warm = Warm(self.tree, ["-x", *suite.needs, *files]) if untried >= FEWEST_FOR_WARM and files else None
        return Bench(self.tree, suite, found, warm)

    def survivors_of_namesakes(self, mutants: Sequence[Mutant]) -> list[Mutant]:
        """Those that no test of their own room catches in a file that names the mutated module."""
        by_module: dict[tuple[str, str], list[Mutant]] = defaultdict(list)
        for mutant in mutants:
            by_module[mutant.room(), mutant.module()].append(mutant)
        left = [self.survivors(_of_room(*key), own) for key, own in sorted(by_module.items())]
        return list(chain.from_iterable(left))

    def survivors_of_rooms(self, mutants: Sequence[Mutant]) -> list[Mutant]:
        """Those that no test of their own room catches, nor of the top one."""
        by_room: dict[str, list[Mutant]] = defaultdict(list)
        for mutant in mutants:
            by_room[mutant.room()].append(mutant)
        own = by_room.pop(TOP_ROOM, [])
        strangers = chain.from_iterable(self.survivors(_of_room(room), by_room[room]) for room in sorted(by_room))
        return self.survivors(_of_room(TOP_ROOM), [*own, *strangers])


def _tried(bench: Bench | None, mutant: Mutant) -> Fate:
    assert bench is not None
    before = _seconds_of(bench)
    catcher = bench.catcher(mutant)
    return Fate(catcher, round(_seconds_of(bench) - before, 2))


def _seconds_of(bench: Bench) -> float:
    """The CPU seconds of all runs so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime + (bench.warm.cpu_seconds if bench.warm else 0.0)


def _of_room(room: str, module: str = "") -> Suite:
    return Suite(f"tests/rooms/{room}", ("--reuse-db",), module, is_dear=True)


@contextmanager
def _servers() -> Iterator[Mapping[str, str]]:
    with tempfile.TemporaryDirectory(prefix="switchyard-mutants-", dir="/var/tmp") as home:
        Path(home).chmod(0o755)
        with servers(Path(home), durable=False) as found:
            yield found


def main() -> int:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--at",
        metavar="FILE:LINE",
        action="append",
        help="all mutants of this line, or one mutant as it is printed, in place of a draw",
    )
    parser.add_argument(
        "--of", metavar="PATH", action="append", help="draw only from this file or folder, such as billing/engine"
    )
    parser.add_argument("--engine-tests-only", action="store_true", help="leave out the rooms")
    options = parser.parse_args()
    os.environ["ALL_EXAMPLES"] = "1"  # of laws (`tests.laws`)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # so that copies and servers are cleared away
    preload()
    with ExitStack() as stack:
        tree = stack.enter_context(copied(PROJECT))
        sources, excluded = engines(tree), equivalents()
        trial = Trial(tree, sources, Fates(tree))
        possible = [one for one in all_mutants(sources) if not any(entry.is_of(one) for entry in excluded)]
        drawn_from = [one for one in possible if one.is_in(options.of or [""])]
        mutants = draw(drawn_from, options.count, options.seed)
        if options.at:
            mutants = [one for one in possible if one.is_at(options.at)]
        left = trial.survivors(ENGINE_TESTS, mutants)
        has_rooms = bool(left) and not options.engine_tests_only
        if has_rooms:
            os.environ.update(stack.enter_context(_servers()))
            left = trial.survivors_of_namesakes(left)
        for suite in (LAWS, ORACLES):
            left = trial.survivors(suite, left)
        if has_rooms:
            left = trial.survivors_of_rooms(left)
    return report(mutants, left, trial, seed=options.seed)


def report(mutants: Sequence[Mutant], left: Sequence[Mutant], trial: Trial, *, seed: int) -> int:
    for mutant in left:
        print(f"\nsurvives: {mutant}\n{mutant.diff()}")
    dead = len(mutants) - len(left)
    figures = {
        "mutants": len(mutants),
        "dead": dead,
        "dead_by": trial.caught_by,
        "cpu_seconds": round(trial.cpu_seconds),
        "seed": seed,
        "survivors": [{"mutant": str(mutant), "diff": mutant.diff()} for mutant in left],
    }
    print(json.dumps(figures))
    return int(dead < LEAST_SHARE_CAUGHT * len(mutants))


if __name__ == "__main__":
    sys.exit(main())
