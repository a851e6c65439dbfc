"""Which lines of the gateway's writers the seeds have run: what no seed reaches, no judge has seen."""

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from coverage import Coverage

ROOT = Path(__file__).resolve().parents[3]
MEASURED = {
    "federation/operations": ("federation/operations/*.py",),
    "quotas": ("quotas/operations/*.py", "quotas/locks.py", "quotas/models/*.py", "quotas/engine/*.py"),
    "billing/operations": ("billing/operations/*.py",),
}
"""By name: the writers, without the pages and the API around them."""
LEFT_OUT: Mapping[str, str] = {
    "federation/operations/past_traffic.py": "the demo's made-up history, which no gateway has",
    "quotas/models/*.py __str__": "names of rows for Django's administration, which no part of the protocol reads",
}
"""What no actor of a simulation can reach, with the reason: files, or functions of files by name. The figures say what there would be
with it.
"""


class Lines:
    """Counts lines from its beginning on: it must begin before the modules are imported."""

    def __init__(self) -> None:
        self._coverage = Coverage(
            data_file=None,
            config_file=False,
            # Actors are greenlets: without their own stacks, lines count for the wrong files after a switch.
            concurrency=["greenlet"],
            include=[str(ROOT / pattern) for patterns in MEASURED.values() for pattern in patterns],
        )

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Counts meanwhile, in all greenlets."""
        self._coverage.start()
        try:
            yield
        finally:
            self._coverage.stop()

    def reached(self) -> dict[str, list[int]]:
        """The lines that ran, by file."""
        found = {}
        for _, path in _files():
            _, statements, _, missing, _ = self._coverage.analysis2(str(path))
            found[str(path.relative_to(ROOT))] = sorted({*statements} - {*missing})
        return found


def figures_of(processes: Sequence[Mapping[str, Sequence[int]]]) -> dict[str, object]:
    """What the processes reached: per cent of the lines in all and by room, without what is left out and with it, and the lines that
    none reached by file.
    """
    whole, counted, missed = _Counts(), _Counts(), {}
    left_out = dict.fromkeys(LEFT_OUT, 0)
    for room, path in _files():
        name = str(path.relative_to(ROOT))
        _, statements, _, _, _ = Coverage(data_file=None, config_file=False).analysis2(str(path))
        missing = {*statements}.difference(*(process[name] for process in processes))
        whole.add(room, statements, missing)
        for what in LEFT_OUT:
            gone = {*statements} & lines_of(what, path)
            left_out[what] += len(gone)
            statements, missing = [line for line in statements if line not in gone], missing - gone
        counted.add(room, statements, missing)
        if missing:
            missed[name] = ranges(sorted(missing), statements)
    out = {what: {"lines": left_out[what], "why": why} for what, why in LEFT_OUT.items()}
    return counted.figures() | {"with_left_out": whole.figures(), "left_out": out, "not_reached": missed}


class _Counts:
    """Lines by room, and how many of them were reached."""

    def __init__(self) -> None:
        self._rooms = {room: [0, 0] for room in MEASURED}

    def add(self, room: str, statements: Collection[int], missing: Collection[int]) -> None:
        """Those of a file."""
        self._rooms[room][0] += len(statements) - len(missing)
        self._rooms[room][1] += len(statements)

    def figures(self) -> dict[str, Any]:
        """In per cent."""
        reached, lines = (sum(one[at] for one in self._rooms.values()) for at in (0, 1))
        rooms = {room: _percent(*counts) for room, counts in self._rooms.items()}
        return {"percent": _percent(reached, lines), "lines": lines, "rooms": rooms}


def lines_of(what: str, path: Path) -> set[int]:
    """The lines of a file that an entry of `LEFT_OUT` names."""
    pattern, _, function = what.partition(" ")
    if not path.relative_to(ROOT).match(pattern):
        return set()
    text = path.read_text(encoding="utf-8")
    if not function:
        return {*range(1, text.count("\n") + 2)}
    found = (one for one in ast.walk(ast.parse(text)) if isinstance(one, ast.FunctionDef) and one.name == function)
    return {line for one in found for line in range(one.body[0].lineno, (one.end_lineno or 0) + 1)}


def ranges(missing: Sequence[int], statements: Sequence[int]) -> str:
    """The lines that were missed, those without another statement between them as a range."""
    found: list[list[int]] = []
    wanted = set(missing)
    last: int | None = None
    for line in sorted(statements):
        if line in wanted:
            if last in wanted and found:
                found[-1][1] = line
            else:
                found.append([line, line])
        last = line
    return ", ".join(str(first) if first == until else f"{first}-{until}" for first, until in found)


def _files() -> Iterator[tuple[str, Path]]:
    for room, patterns in MEASURED.items():
        for pattern in patterns:
            yield from ((room, path) for path in sorted(ROOT.glob(pattern)))


def _percent(part: int, whole: int) -> float:
    return round(100 * part / whole, 1) if whole else 100.0
