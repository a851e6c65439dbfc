"""Which tests run which line of the engines, and which lines run before any test does: recorded once for each file of tests
and kept in the user's cache.
"""

import ast
import hashlib
import json
import os
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest
from coverage import Coverage

from devtools.wheels import cache_root

from .forked import WALL_SECONDS_FOR_EACH_OF_CPU, Plugin, run
from .mutations import Mutation

Place = TypeVar("Place")
Of = TypeVar("Of", str, int)
MOST_CPU_SECONDS = 3600
LEAST_WALL_SECONDS = 120
"""How long a test with a mutant may wait, however little it computes."""


@dataclass(frozen=True, slots=True)
class Suite:
    """A folder of tests, or only its files that name a module; `needs` are pytest's options for all its runs.

    Tests that are `dear` are not recorded again when an engine changes: whatever ran any line of it counts as running all.
    """

    folder: str
    needs: tuple[str, ...] = ()
    module: str = ""
    is_dear: bool = False

    def __str__(self) -> str:
        return " ".join((self.folder, *self.needs, *filter(None, [self.module])))

    def short(self) -> str:
        """What it is, for a count: folder and mark, whatever module it is about."""
        return " ".join((self.folder, *self.needs[1:]))

    def files(self, tree: Path) -> list[str]:
        found = (tree / self.folder).rglob("test_*.py")
        return sorted(str(path.relative_to(tree)) for path in found if self.module in path.read_text())


@dataclass(frozen=True, slots=True)
class Watchers:
    """The tests of a suite: the CPU seconds that each takes, the lines of engines that each runs, and the modules that
    each file of tests imports.
    """

    seconds: Mapping[str, float]
    tests: Mapping[tuple[str, int], frozenset[str]]
    imports: Mapping[str, frozenset[str]]
    tests_of_changed: Mapping[str, frozenset[str]]
    """By engine that changed since then, the tests that ran any line of it."""
    collected: Mapping[str, frozenset[int]]
    """By engine, the lines of functions and others that run when modules are imported and tests are collected."""

    def run_it_early(self, file: str, mutation: Mutation) -> bool:
        """Whether the mutated statement runs, or may run, before the first test does."""
        lines = self.collected.get(file, frozenset())
        return not mutation.is_in_function or file in self.tests_of_changed or not lines.isdisjoint(mutation.lines)

    def of(self, file: str, mutation: Mutation) -> list[str]:
        """The tests that run the mutated statement, the cheapest first.

        A statement that runs when its module is imported has all tests that run anything of the module, and all in files
        that import it; or if there are none (constants that only engines use) all tests. A statement of a function that
        runs before the first test has all in files that import its module.
        """
        found = {test for line in mutation.lines for test in self.tests.get((file, line), ())}
        found |= self.tests_of_changed.get(file, frozenset())
        if self.run_it_early(file, mutation):
            module = file.removesuffix(".py").replace("/", ".")
            found |= {test for test in self.seconds if module in self.imports[test.split("::")[0]]}
        if not mutation.is_in_function:
            found |= {test for (name, _), tests in self.tests.items() if name == file for test in tests}
            found = found or set(self.seconds)
        return sorted(found, key=self.seconds.__getitem__)


def watchers(tree: Path, engines: Mapping[str, bytes], suite: Suite) -> Watchers:
    """Of the suite in this copy. Records the files of tests that changed since they were last recorded, or that run an
    engine that did.
    """
    kept = {file: _kept_at(tree, suite, file) for file in suite.files(tree)}
    missing = [file for file, path in kept.items() if not _is_usable(path, engines, suite)]
    if missing:
        print(f"recording which lines {len(missing)} files of {suite} run", flush=True)
        _record(tree, engines, suite, {file: kept[file] for file in missing})
    if kept:
        # Every later run finds all modules compiled, but for the mutated one.
        run(tree, ["--collect-only", *suite.needs, *kept], Plugin(), cpu_seconds=MOST_CPU_SECONDS, keeps_bytecode=True)
    seconds: dict[str, float] = {}
    tests: dict[tuple[str, int], set[str]] = defaultdict(set)
    of_changed: dict[str, set[str]] = defaultdict(set)
    collected: dict[str, set[int]] = defaultdict(set)
    for path in kept.values():
        record = json.loads(path.read_text())
        seconds |= record["seconds"]
        changed = set(_changed(record, engines))
        for file, lines in record["lines"].items():
            for line, names in lines.items():
                (of_changed[file] if file in changed else tests[file, int(line)]).update(names)
        for file, early in record["collected"].items():
            collected[file].update(early)
    imports = {file: _imports((tree / file).read_text()) for file in kept}
    return Watchers(seconds, _frozen(tests), imports, _frozen(of_changed), _frozen(collected))


def _frozen(found: Mapping[Place, set[Of]]) -> dict[Place, frozenset[Of]]:
    return {place: frozenset(names) for place, names in found.items()}


def _imports(source: str) -> frozenset[str]:
    """The modules that a file imports, and the names from modules, which may be modules themselves."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {node.module} | {f"{node.module}.{name.name}" for name in node.names}
    return frozenset(found)


def _is_usable(path: Path, engines: Mapping[str, bytes], suite: Suite) -> bool:
    return path.exists() and (suite.is_dear or not any(_changed(json.loads(path.read_text()), engines)))


def _changed(record: Mapping[str, Any], engines: Mapping[str, bytes]) -> Iterator[str]:
    """The engines that are not as they were when this was recorded."""
    for file, digest in record["engines"].items():
        if file not in engines or _digest(engines[file]) != digest:
            yield file


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _kept_at(tree: Path, suite: Suite, file: str) -> Path:
    helpers = sorted(path for path in (tree / "tests").rglob("*.py") if not path.name.startswith("test_"))
    digest = hashlib.sha256(
        repr(("by engine, with what runs early", sys.version_info[:2], suite.folder, suite.needs, file)).encode()
    )
    for content in (*(path.read_bytes() for path in helpers), (tree / file).read_bytes()):
        digest.update(hashlib.sha256(content).digest())
    return cache_root() / "mutants" / f"{digest.hexdigest()[:32]}.json"


def _record(tree: Path, engines: Mapping[str, bytes], suite: Suite, kept: Mapping[str, Path]) -> None:
    recorder = Recorder(tree, engines)
    done = run(tree, [*suite.needs, *kept], recorder, cpu_seconds=MOST_CPU_SECONDS, keeps_bytecode=True)
    if done.status not in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED}:
        sys.exit(f"the tests of {suite} do not run:\n{done.output[-4000:]}")
    record = json.loads(done.reported)
    if record["failed"]:
        print(f"not used, because they fail without any mutant: {', '.join(record['failed'])}", flush=True)
    parts = _by_file(record, kept)
    for file, path in kept.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        part = parts[file]
        part["engines"] = {name: _digest(engines[name]) for name in part["lines"]}
        path.write_text(json.dumps(part))


def _by_file(record: Mapping[str, Any], files: Iterable[str]) -> dict[str, dict[str, Any]]:
    """What was recorded, by file of tests, without the tests that failed. Each has all that runs before the first test."""
    parts: dict[str, dict[str, Any]] = {
        file: {"seconds": {}, "lines": {}, "collected": record["collected"]} for file in files
    }
    failed = set(record["failed"])
    passed = {test: test.split("::")[0] for test in record["seconds"] if test not in failed}
    for test, file in passed.items():
        parts[file]["seconds"][test] = record["seconds"][test]
    for source, by_line in record["lines"].items():
        for line, tests in by_line.items():
            for test in filter(passed.__contains__, tests):
                lines = parts[passed[test]]["lines"].setdefault(source, {})
                lines.setdefault(line, []).append(test)
    return parts


class Recorder(Plugin):
    """Measures each test separately, its fixtures included; reports all as JSON in the end."""

    def __init__(self, tree: Path, engines: Iterable[str]) -> None:
        files = list(engines)
        self._tree = tree
        self._modules = [file.removesuffix(".py").replace("/", ".") for file in files]
        self._coverage = Coverage(data_file=None, config_file=False, include=[str(tree / file) for file in files])
        self._seconds: dict[str, float] = {}
        self._failed: set[str] = set()

    def begin(self) -> None:
        self._coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self) -> Generator[None, object, object]:
        try:
            return (yield)
        finally:
            self._coverage.stop()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._forget()
        started = time.process_time()
        self._coverage.switch_context(item.nodeid)
        try:
            return (yield)
        finally:
            self._seconds[item.nodeid] = round(time.process_time() - started, 4)
            self._coverage.switch_context("")

    def _forget(self) -> None:
        """Empties the engines' caches: each test must run the lines of a cached function again, not only the first."""
        for module in filter(None, map(sys.modules.get, self._modules)):
            for value in vars(module).values():
                if hasattr(value, "cache_clear"):
                    value.cache_clear()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        data = self._coverage.get_data()
        lines: dict[str, dict[int, list[str]]] = {}
        collected: dict[str, list[int]] = {}
        for path in data.measured_files():
            by_line, file = data.contexts_by_lineno(path), str(Path(path).relative_to(self._tree))
            lines[file] = {line: sorted(filter(None, tests)) for line, tests in by_line.items()}
            # What ran outside of every test.
            collected[file] = sorted(line for line, tests in by_line.items() if "" in tests)
        failed = sorted(self._failed)
        self.report(json.dumps({"seconds": self._seconds, "lines": lines, "collected": collected, "failed": failed}))


class Selected(Plugin):
    """Runs these tests only, in this order; reports the first that fails or exceeds its CPU seconds, which ends the run."""

    def __init__(self, limits: Mapping[str, float]) -> None:
        """`limits` are of CPU seconds; the time on the wall has its own, far larger one, for a test that only waits."""
        self._limits = limits
        self._places = {test: place for place, test in enumerate(limits)}

    def pytest_sessionstart(self) -> None:
        for number in (signal.SIGVTALRM, signal.SIGALRM):
            signal.signal(number, self._stop)

    def _stop(self, *_: object) -> None:
        # Not an exception, which the mutant or the test might catch.
        self.report(f"{self._running}, which does not end\n")
        os._exit(pytest.ExitCode.TESTS_FAILED)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._running = item.nodeid
        limit = self._limits[item.nodeid]
        signal.setitimer(signal.ITIMER_VIRTUAL, limit)
        signal.setitimer(signal.ITIMER_REAL, max(LEAST_WALL_SECONDS, WALL_SECONDS_FOR_EACH_OF_CPU * limit))
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.setitimer(signal.ITIMER_REAL, 0)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted(
            (item for item in items if item.nodeid in self._places), key=lambda item: self._places[item.nodeid]
        )

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.report(f"{report.nodeid}\n")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.report(f"{report.nodeid}\n")
