"""A process that has collected a suite: mutants of functions are tried in forks of it.

To import and to collect costs far more than most tests do. A fork of a process that has done both replaces the code of
the live functions. So it cannot try what a module does when it is imported, nor what it computes then with a function:
a mutant that survives here is tried again in a separate run if its statement runs as early as that.
"""

import gc
import json
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import CodeType, FunctionType

import pytest

from .forked import WALL_SECONDS_FOR_EACH_OF_CPU, Plugin, become_pytest, pytest_in, read_all
from .mutations import Mutation
from .watchers import MOST_CPU_SECONDS, Selected


class Warm:
    """The suite's process. It has collected all tests before any file of the tree is changed. `close` ends it."""

    def __init__(self, tree: Path, arguments: Sequence[str]) -> None:
        self._tree = tree
        self._scratch = tempfile.TemporaryDirectory(prefix="switchyard-mutant-")
        requests, self._requests = os.pipe()
        answers, writer = os.pipe()
        sys.stdout.flush()
        self._child = os.fork()
        if self._child == 0:
            os.close(self._requests)
            os.close(answers)
            try:
                output = os.open(Path(self._scratch.name) / "output", os.O_WRONLY | os.O_CREAT)
                become_pytest(output, self._scratch.name, MOST_CPU_SECONDS, keeps_bytecode=True)
                pytest_in(tree, arguments, _Loop(requests, writer))
            except BaseException:  # noqa: BLE001 - whatever it is, a fork must not return as a second parent
                traceback.print_exc()
            finally:
                os._exit(1)
        os.close(requests)
        os.close(writer)
        self._answers = os.fdopen(answers)
        # A mutant that is written for a separate run in the meantime would be imported here.
        self._answers.readline()
        self.cpu_seconds = 0.0
        """Of all forks so far."""

    def catcher(self, file: str, source: bytes, mutation: Mutation, limits: Mapping[str, float]) -> str | None:
        """The test that fails, or exceeds its CPU seconds; empty if none does; None if this process cannot try it."""
        if not mutation.is_in_function:
            return None
        changed = mutation.applied(source).decode()
        lines = [mutation.lines.start, mutation.lines.stop]
        request = {"file": str(self._tree / file), "source": changed, "lines": lines, "limits": limits}
        with suppress(BrokenPipeError):
            _write(self._requests, json.dumps(request).encode() + b"\n")
        answer = json.loads(self._answers.readline() or '{"catcher": null, "seconds": 0}')
        self.cpu_seconds += answer["seconds"]
        return None if answer["catcher"] is None else str(answer["catcher"])

    def close(self) -> None:
        """Ends the process and all of its forks."""
        os.close(self._requests)
        with suppress(ProcessLookupError):
            os.killpg(self._child, signal.SIGKILL)
        os.waitpid(self._child, 0)
        self._answers.close()
        self._scratch.cleanup()


class _Loop(Plugin):
    """In place of pytest's loop over the collected tests: answers requests until there are no more."""

    def __init__(self, requests: int, answers: int) -> None:
        self._requests, self._answers = requests, answers
        self._functions: Mapping[str, Sequence[FunctionType]] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        # Whatever goes through all objects writes to all memory, which a fork would have to copy: it is done here, once.
        self._functions = _functions_by_file()
        gc.freeze()
        _write(self._answers, b"ready\n")
        with os.fdopen(self._requests) as requests:
            for line in requests:
                request = json.loads(line)
                chosen = [items[test] for test in request["limits"] if test in items]
                before = os.times()
                is_whole = 0 < len(chosen) == len(request["limits"])
                catcher = self._tried(session, chosen, request) if is_whole else None
                after = os.times()
                seconds = sum(after[2:4]) - sum(before[2:4])
                _write(self._answers, json.dumps({"catcher": catcher, "seconds": seconds}).encode() + b"\n")
        return True

    def _tried(
        self, session: pytest.Session, items: Sequence[pytest.Item], request: Mapping[str, object]
    ) -> str | None:
        limits = request["limits"]
        assert isinstance(limits, dict)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.close(reader)
                _run_mutated(session, items, request, writer, self._functions.get(str(request["file"]), ()))
            except BaseException:  # noqa: BLE001 - whatever it is, a fork must not answer for the process
                traceback.print_exc()
            finally:
                os._exit(0)
        os.close(writer)
        try:
            reported = read_all(reader, time.monotonic() + sum(limits.values()) * WALL_SECONDS_FOR_EACH_OF_CPU)
        finally:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        return reported.split("\n")[0] if reported else None


def _run_mutated(
    session: pytest.Session,
    items: Sequence[pytest.Item],
    request: Mapping[str, object],
    writer: int,
    functions: Sequence[FunctionType],
) -> None:
    limits, lines = request["limits"], request["lines"]
    assert isinstance(limits, dict)
    assert isinstance(lines, list)
    seconds = int(sum(limits.values())) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    if not _replace_code(functions, str(request["file"]), str(request["source"]), range(*lines)):
        return
    selected = Selected(limits)
    selected._pipe = writer  # noqa: SLF001 - the fork's own end
    selected.pytest_sessionstart()
    session.config.pluginmanager.register(selected)
    for item, following in zip(items, [*items[1:], items[-1]], strict=True):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.shouldfail:
            return
    selected.report("\n")  # no name: all have passed


def _functions_by_file() -> dict[str, list[FunctionType]]:
    """The live functions."""
    found: dict[str, list[FunctionType]] = defaultdict(list)
    for one in gc.get_objects():
        if isinstance(one, FunctionType):
            found[one.__code__.co_filename].append(one)
    return found


def _replace_code(functions: Sequence[FunctionType], file: str, source: str, lines: range) -> bool:
    """Gives each of the live functions of the file the code of the new source. False if there are none, or not all that
    begin in these lines can be replaced.
    """
    new: dict[tuple[str, int], list[CodeType]] = defaultdict(list)
    for code in _codes(compile(source, file, "exec", dont_inherit=True)):
        new[code.co_qualname, code.co_firstlineno].append(code)
    for function in functions:
        old = function.__code__
        codes = new[old.co_qualname, old.co_firstlineno]
        # Two lambdas of one line have the same name: they stay as they are.
        if len(codes) == 1 and codes[0].co_freevars == old.co_freevars:
            function.__code__ = codes[0]
        elif len(codes) < 2 or old.co_firstlineno in lines:  # noqa: PLR2004 - of the same name
            return False
    return bool(functions)


def _codes(module: CodeType) -> Iterator[CodeType]:
    """Those of functions, of lambdas and of their inner ones."""
    for constant in module.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def _write(pipe: int, data: bytes) -> None:
    written = 0
    while written < len(data):
        written += os.write(pipe, data[written:])
