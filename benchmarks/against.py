"""The benchmarks of this checkout and of another one in turn, in one run: `make bench-against ARGS=DIR`.

DIR is a checkout of the other revision, with a `.venv`. Each of the two runs its own benchmarks with its own code. Their order
changes from round to round, so that a host that grows slower during a run favours neither. The figures that both print
are compared: the median of each, and the ratio of the two in each round.
"""

import argparse
import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.beside import compared

HERE = Path(__file__).resolve().parent.parent
BENCHMARKS: Mapping[str, Sequence[str]] = {
    "placement": ("--quick",),
    "openb": ("--seeds", "2"),
    "holds": (),
    "api": (),
    "dispatch": ("--jobs", "500"),
    "replay": ("--only", "trace1", "--days", "1"),
}


def main() -> int:
    """Exit status: 0 if every benchmark ran."""
    parser = argparse.ArgumentParser(prog="make bench-against", description=__doc__)
    parser.add_argument("other", type=Path, help="a checkout of the other revision")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=list(BENCHMARKS), choices=list(BENCHMARKS))
    options = parser.parse_args()
    other = options.other.resolve()
    report.conditions(other=_revision(other), rounds=options.rounds)
    ratios: dict[str, object] = {}
    for name in options.only:
        rounds = [_round(name, other, number) for number in range(options.rounds)]
        rows = compared([here for here, _ in rounds], [there for _, there in rounds])
        report.table(rows)
        ratios |= {f"{name}.{row['figure']}": row["ratio"] for row in rows}
    report.last_line(ratios)
    return 0


def _round(name: str, other: Path, number: int) -> tuple[dict[str, float], dict[str, float]]:
    """The figures of this checkout and of the other one."""
    sides = (HERE, other)
    found = {side: _figures(side, name) for side in (sides if number % 2 else reversed(sides))}
    print(f"{name} {number + 1}: here {json.dumps(found[HERE])}; other {json.dumps(found[other])}", flush=True)
    return _numbers(found[HERE]), _numbers(found[other])


def _figures(folder: Path, name: str) -> Mapping[str, Any]:
    command = [str(folder / ".venv" / "bin" / "python"), "-m", f"benchmarks.{name}", *BENCHMARKS[name]]
    said = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if said.returncode:
        raise SystemExit(f"{name} in {folder} exited {said.returncode}:\n{said.stderr[-2000:]}")
    figures: Mapping[str, Any] = json.loads(said.stdout.strip().splitlines()[-1])
    return figures


def _numbers(figures: Mapping[str, Any]) -> dict[str, float]:
    return {
        name: value for name, value in figures.items() if isinstance(value, int | float) and not isinstance(value, bool)
    }


def _revision(folder: Path) -> str:
    command = ["git", "-C", str(folder), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    raise SystemExit(main())
