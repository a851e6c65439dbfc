"""Which lines of the gateway's writers the seeds have run: what no seed reaches, no judge has seen."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from coverage import Coverage

ROOT = Path(__file__).resolve().parents[2]
MEASURED = {
    "federation/operations": ("federation/operations/*.py",),
    "quotas": ("quotas/operations/*.py", "quotas/locks.py", "quotas/models/*.py", "quotas/engine/*.py"),
    "billing/operations": ("billing/operations/*.py",),
}
"""By name: the writers, without the pages and the API around them."""
NOT_MEASURED = ("federation/operations/past_traffic.py",)  # the demo's made-up history


class Lines:
    """Counts lines from its beginning on: it must begin before the modules are imported."""

    def __init__(self) -> None:
        self._coverage = Coverage(
            data_file=None,
            config_file=False,
            # Actors are greenlets: without their own stacks, lines count for the wrong files after a switch.
            concurrency=["greenlet"],
            include=[str(ROOT / pattern) for patterns in MEASURED.values() for pattern in patterns],
            omit=[str(ROOT / name) for name in NOT_MEASURED],
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
    """What the processes reached: per cent of the lines in all and by room, and the lines that none reached by file."""
    reached: dict[str, int] = defaultdict(int)
    lines: dict[str, int] = defaultdict(int)
    missed = {}
    for room, path in _files():
        name = str(path.relative_to(ROOT))
        _, statements, _, _, _ = Coverage(data_file=None, config_file=False).analysis2(str(path))
        missing = {*statements}.difference(*(process[name] for process in processes))
        lines[room] += len(statements)
        reached[room] += len(statements) - len(missing)
        if missing:
            missed[name] = ranges(sorted(missing), statements)
    return {
        "percent": _percent(sum(reached.values()), sum(lines.values())),
        "lines": sum(lines.values()),
        "rooms": {room: _percent(reached[room], lines[room]) for room in MEASURED},
        "not_reached": missed,
    }


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
            for path in sorted(ROOT.glob(pattern)):
                if str(path.relative_to(ROOT)) not in NOT_MEASURED:
                    yield room, path


def _percent(part: int, whole: int) -> float:
    return round(100 * part / whole, 1) if whole else 100.0
