"""What every benchmark prints: conditions, a table, and one JSON object as its last line."""

import json
import os
import platform
import statistics
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks import machine


def conditions(**more: object) -> None:
    """Prints the host, its speed and versions, so that no figure is quoted without them."""
    with open("/proc/meminfo", encoding="ascii") as lines:  # noqa: PTH123 - a kernel file
        memory_gib = int(next(lines).split()[1]) / 2**20
    revision = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    facts = {
        "cores": len(os.sched_getaffinity(0)),
        "memory": f"{memory_gib:.0f} GiB",
        "kernel": platform.release(),
        "python": platform.python_version(),
        "revision": revision or "unknown",
        "load before": f"{os.getloadavg()[0]:.2f}",
        **machine.speed(),
        **more,
    }
    print("conditions: " + ", ".join(f"{name} {value}" for name, value in facts.items()))


def table(rows: Sequence[Mapping[str, object]]) -> None:
    """Prints rows under their keys, with the narrowest columns."""
    if not rows:
        return
    columns = list(rows[0])
    cells = [[_text(row.get(column, "")) for column in columns] for row in rows]
    widths = [max(len(column), *(len(line[i]) for line in cells)) for i, column in enumerate(columns)]
    print("  ".join(column.ljust(width) for column, width in zip(columns, widths, strict=True)))
    for line in cells:
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))


def last_line(figures: Mapping[str, Any]) -> None:
    """The machine-readable result; must be printed last."""
    print(json.dumps({name: round(value, 3) if isinstance(value, float) else value for name, value in figures.items()}))


def percentile(values: Iterable[float], share: float) -> float:
    """The smallest value that at least `share` of all values do not exceed (nearest rank); 0 of nothing."""
    ordered = sorted(values)
    if not ordered:
        return 0.0
    return ordered[max(0, min(len(ordered) - 1, -(-int(share * 1000) * len(ordered) // 1000) - 1))]


def median(values: Iterable[float]) -> float:
    """The median; 0 of nothing."""
    found = list(values)
    return statistics.median(found) if found else 0.0


def _text(value: object) -> str:
    return f"{value:,.1f}" if isinstance(value, float) else str(value)
