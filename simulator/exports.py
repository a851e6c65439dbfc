"""A replay's figures as text: a table to print, JSON, and one CSV row per job that can itself be replayed."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

from .figures import Figures, JobLine
from .traces import COLUMNS, own_row
from .values import TraceJob

FORMAT = "switchyard/replay"
VERSION = 1
OUTCOME_COLUMNS = (
    "gateway", "cluster", "flavor", "wait_seconds", "started_at", "finished_at", "slowdown", "racks", "blocks", "tries",
    "lost_seconds",
)  # fmt: skip


def table(replays: Sequence[Figures]) -> str:
    """The figures for users: a row per figure, a column per gateway."""
    rows = [(title, [tell(figures) for figures in replays]) for title, tell in ROWS]
    widths = [max(len(one.gateway), *(len(cells[n]) for _, cells in rows)) for n, one in enumerate(replays)]
    first = max(len(title) for title, _ in rows)
    lines = [" " * first + "".join(f"  {one.gateway:>{width}}" for one, width in zip(replays, widths, strict=True))]
    for title, cells in rows:
        lines.append(f"{title:<{first}}" + "".join(f"  {c:>{w}}" for c, w in zip(cells, widths, strict=True)))
    return "\n".join(lines) + "\n"


def duration(seconds: float) -> str:
    """Seconds in the largest units that keep three digits."""
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:,.0f} s"


def share(part: float) -> str:
    """A part of one in percent."""
    return f"{100 * part:.2f} %"


ROWS: Sequence[tuple[str, Any]] = (
    ("jobs (finished)", lambda f: f"{f.jobs:,} ({f.finished:,})"),
    ("never started", lambda f: f"{f.never_started:,}"),
    ("fit nowhere, skipped", lambda f: f"{f.unplaceable:,}"),
    ("virtual time", lambda f: duration(f.seconds)),
    ("utilisation", lambda f: share(f.utilisation)),
    ("allocation", lambda f: share(f.allocation)),
    ("wait mean", lambda f: duration(f.wait_seconds["mean"])),
    ("wait p50", lambda f: duration(f.wait_seconds["p50"])),
    ("wait p95", lambda f: duration(f.wait_seconds["p95"])),
    ("wait p99", lambda f: duration(f.wait_seconds["p99"])),
    ("slowdown mean", lambda f: f"{f.slowdown['mean']:,.2f}"),
    ("slowdown p95", lambda f: f"{f.slowdown['p95']:,.2f}"),
    ("cost", lambda f: f"{f.cost:,.2f}"),
    ("GPU hours without a price", lambda f: f"{f.unpriced_gpu_hours:,.1f}"),
    ("fragmentation", lambda f: share(f.fragmentation)),
    ("racks per gang", lambda f: f"{f.racks_per_gang:.3f}" if f.gangs else "-"),
    ("gangs inside one rack", lambda f: share(f.gangs_in_one_rack) if f.gangs else "-"),
    ("node failures", lambda f: f"{f.node_failures:,}"),
    ("spot nodes taken back", lambda f: f"{f.interruptions:,}"),
    ("runs cut short", lambda f: f"{f.preemptions:,}"),
    ("interrupted jobs", lambda f: f"{f.interrupted_jobs:,}"),
    ("lost work", lambda f: f"{f.lost_gpu_hours:,.1f} GPU h ({100 * f.lost_share:.3f} %)"),
    ("late starts", lambda f: f"{f.late_starts:,}"),
)


def json_text(replays: Sequence[Figures], conditions: Mapping[str, Any]) -> bytes:
    """All figures and the curves; equal input gives equal bytes."""
    document = {
        "format": FORMAT,
        "version": VERSION,
        "conditions": dict(conditions),
        "replays": [
            {
                **figures.summary(),
                "curve": [
                    {"until_seconds": end, "gpus_allocated": gpus, "jobs_queued": queue}
                    for end, gpus, queue in figures.curve
                ],
            }
            for figures in replays
        ],
    }
    return json.dumps(document, ensure_ascii=False, indent=1, allow_nan=False).encode() + b"\n"


def csv_text(replays: Sequence[Figures]) -> bytes:
    """One row per job and gateway."""
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, [*COLUMNS, *OUTCOME_COLUMNS], lineterminator="\n")
    writer.writeheader()
    for figures in replays:
        for line in figures.lines:
            writer.writerow({**own_row(line.job), **_outcome(figures.gateway, line)})
    return out.getvalue().encode()


def trace_text(jobs: Sequence[TraceJob]) -> bytes:
    """The jobs as a trace in our own format."""
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(own_row(job) for job in jobs)
    return out.getvalue().encode()


def _outcome(gateway: str, line: JobLine) -> dict[str, Any]:
    return {
        "gateway": gateway,
        "cluster": line.cluster,
        "flavor": line.flavor,
        "wait_seconds": _rounded(line.wait),
        "started_at": _rounded(line.first_started),
        "finished_at": _rounded(line.finished),
        "slowdown": _rounded(line.slowdown),
        "racks": line.racks or "",
        "blocks": line.blocks or "",
        "tries": line.tries,
        "lost_seconds": _rounded(line.lost_seconds),
    }


def _rounded(value: float | None) -> object:
    return "" if value is None else round(value, 3)
