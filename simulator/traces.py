"""Traces of jobs as CSV, in three formats, which differ by their header.

    our own      job, submitted_at (seconds, or a timestamp with its offset), seconds (empty = to the end), pods, gpus (per pod)
                 and as wanted gpu_milli, cpu_millicores, memory_mib, models (joined by |), priority, tenant, estimated_seconds,
                 checkpoint_seconds, kind (equal for jobs whose runs are alike)
    openb        name, cpu_milli, memory_mib, num_gpu, gpu_milli and, where known, gpu_spec, creation_time, deletion_time,
                 scheduled_time (seconds): one pod each. Without times a pod comes every second and none departs
    Philly       job_id, num_gpu, submit_time, duration (milliseconds): more GPUs than a node has are a gang of whole nodes

Other columns are ignored. Every error names file, line and column.
"""

import csv
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeAlias

from .values import WHOLE, ReplayError, TraceJob

OWN = ("job", "submitted_at", "seconds", "pods", "gpus")
OPENB = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
PHILLY = ("job_id", "num_gpu", "submit_time", "duration")
MOST = 10**12
"""No number of a trace is larger."""
MOST_PODS = 100_000
MILLISECONDS = 1000


@dataclass(frozen=True, slots=True)
class Shaping:
    """Assumptions for values that a trace does not have: Philly's jobs have only GPUs."""

    gpus_per_node: int = 8
    millicores_per_gpu: int = 6_000
    mib_per_gpu: int = 65_536


class _Row:
    """A line of the file, its fields read by name."""

    def __init__(self, name: str, line: int, header: Mapping[str, int], cells: Sequence[str]) -> None:
        self._name, self._line, self._header, self._cells = name, line, header, cells

    def has(self, column: str) -> bool:
        return column in self._header and bool(self._cells[self._header[column]].strip())

    def text(self, column: str) -> str:
        return self._cells[self._header[column]].strip() if column in self._header else ""

    def wrong(self, column: str, why: str) -> ReplayError:
        place = self._header.get(column, -1) + 1
        return ReplayError(f"{self._name}: line {self._line}, column {place} ({column}): {self.text(column)!r} {why}")

    def number(self, column: str, *, least: float = 0, most: float = MOST) -> float:
        try:
            value = float(self.text(column))
        except ValueError:
            raise self.wrong(column, "is not a number") from None
        if not math.isfinite(value) or not least <= value <= most:
            raise self.wrong(column, f"is not between {least:g} and {most:g}")
        return value

    def whole(self, column: str, *, least: int = 0, most: int = MOST, absent: int = 0) -> int:
        if not self.has(column):
            return absent
        value = self.number(column, least=least, most=most)
        if value != int(value):
            raise self.wrong(column, "is not a whole number")
        return int(value)

    def instant(self, column: str) -> float:
        """Seconds; for a time with an offset, since 1970."""
        text = self.text(column)
        if "T" not in text.upper():
            return self.number(column)
        try:
            found = datetime.fromisoformat(text)
        except ValueError:
            raise self.wrong(column, "is not a time") from None
        if found.tzinfo is None:
            raise self.wrong(column, "has no offset, such as Z")
        return found.timestamp()


def read_trace(name: str, text: str, shaping: Shaping | None = None) -> tuple[TraceJob, ...]:
    """The jobs in order of submission, the first at second 0. `name` is the file's name in errors."""
    rows = _rows(name, text)
    header, first = rows
    read = _reader(name, header)
    shaping = shaping or Shaping()
    jobs = [read(_Row(name, line, header, cells), number, shaping) for number, (line, cells) in enumerate(first)]
    if not jobs:
        raise ReplayError(f"{name}: line 2: there are no jobs")
    start = min(job.submitted for job in jobs)
    shifted = (replace(job, submitted=job.submitted - start) for job in jobs)
    return tuple(sorted(shifted, key=lambda job: job.submitted))


_Lines: TypeAlias = list[tuple[int, list[str]]]


def _rows(name: str, text: str) -> tuple[dict[str, int], _Lines]:
    reader = csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""), strict=True)
    lines: _Lines = []
    try:
        header = {column.strip(): place for place, column in enumerate(next(reader, []))}
        for cells in reader:
            if not cells:
                continue
            if len(cells) != len(header):
                told = f"has {len(cells)} columns, the header {len(header)}"
                raise ReplayError(f"{name}: line {reader.line_num}, column {min(len(cells), len(header)) + 1}: {told}")
            lines.append((reader.line_num, cells))
    except csv.Error as error:
        raise ReplayError(f"{name}: line {reader.line_num}, column 1: {error}") from None
    return header, lines


def compressed(jobs: Sequence[TraceJob], gpus: int, load: float) -> tuple[TraceJob, ...]:
    """The jobs with submissions compressed or stretched until they request this share of the GPUs' time."""
    asked = sum(job.milli / WHOLE * job.seconds for job in jobs if job.seconds is not None)
    last = max((job.submitted for job in jobs), default=0.0)
    if not (asked and last and gpus and load):
        return tuple(jobs)
    speed = asked / (gpus * load) / last
    return tuple(replace(job, submitted=job.submitted * speed) for job in jobs)


Make: TypeAlias = Callable[[_Row, int, Shaping], TraceJob]


def _reader(name: str, header: Mapping[str, int]) -> Make:
    for columns, make in FORMATS.items():
        if set(columns) <= set(header):
            return make
    needed = "; ".join(", ".join(columns) for columns in FORMATS)
    nearest = max(FORMATS, key=lambda columns: len(set(columns) & set(header)))
    missing = ", ".join(column for column in nearest if column not in header)
    raise ReplayError(
        f"{name}: line 1, column 1: not a known trace format: {missing} is missing; a trace needs {needed}"
    )


def _own(row: _Row, number: int, shaping: Shaping) -> TraceJob:
    del number, shaping
    gpus = row.whole("gpus", most=MOST_PODS)
    milli = row.whole("gpu_milli", least=1, most=WHOLE, absent=WHOLE)
    if gpus != 1 and milli != WHOLE:
        raise row.wrong("gpu_milli", "is a fraction of a GPU, which needs gpus to be 1")
    return TraceJob(
        name=row.text("job"),
        submitted=row.instant("submitted_at"),
        seconds=row.number("seconds") if row.has("seconds") else None,
        pods=row.whole("pods", least=1, most=MOST_PODS, absent=1),
        gpus=gpus,
        gpu_milli=milli,
        cpu_millicores=row.whole("cpu_millicores"),
        memory_mib=row.whole("memory_mib"),
        models=_models(row.text("models")),
        priority=row.whole("priority", least=-MOST),
        tenant=row.text("tenant") or "trace",
        estimated_seconds=row.whole("estimated_seconds") or None,
        checkpoint_seconds=row.whole("checkpoint_seconds") or None,
        kind=row.text("kind"),
    )


def _models(text: str) -> tuple[str, ...]:
    return tuple(sorted({model.strip() for model in text.split("|")} - {""}))


def _openb(row: _Row, number: int, shaping: Shaping) -> TraceJob:
    del shaping
    gpus = row.whole("num_gpu", most=MOST_PODS)
    submitted = row.number("creation_time") if row.has("creation_time") else float(number)
    started = row.number("scheduled_time") if row.has("scheduled_time") else submitted
    seconds = None
    if row.has("deletion_time"):
        seconds = row.number("deletion_time") - started
        if seconds < 0:
            raise row.wrong("deletion_time", "is before its start")
    return TraceJob(
        name=row.text("name"),
        submitted=submitted,
        seconds=seconds,
        pods=1,
        gpus=gpus,
        gpu_milli=row.whole("gpu_milli", least=1, most=WHOLE, absent=WHOLE) if gpus == 1 else WHOLE,
        cpu_millicores=row.whole("cpu_milli"),
        memory_mib=row.whole("memory_mib"),
        models=_models(row.text("gpu_spec")) if gpus else (),
    )


def _philly(row: _Row, number: int, shaping: Shaping) -> TraceJob:
    del number
    wanted = row.whole("num_gpu", least=1, most=MOST_PODS)
    pods, gpus = 1, wanted
    if wanted > shaping.gpus_per_node:
        pods, gpus = -(-wanted // shaping.gpus_per_node), shaping.gpus_per_node
    return TraceJob(
        name=row.text("job_id"),
        submitted=row.number("submit_time") / MILLISECONDS,
        seconds=row.number("duration") / MILLISECONDS,
        pods=pods,
        gpus=gpus,
        cpu_millicores=gpus * shaping.millicores_per_gpu,
        memory_mib=gpus * shaping.mib_per_gpu,
    )


FORMATS: Mapping[tuple[str, ...], Make] = {OWN: _own, OPENB: _openb, PHILLY: _philly}
COLUMNS = (
    *OWN, "gpu_milli", "cpu_millicores", "memory_mib", "models", "priority", "tenant", "estimated_seconds",
    "checkpoint_seconds", "kind",
)  # fmt: skip
"""The columns of our own format, in the order of the output."""


def own_row(job: TraceJob) -> dict[str, Any]:
    """A job as a row of our own format."""
    return {
        "job": job.name,
        "submitted_at": round(job.submitted, 3),
        "seconds": "" if job.seconds is None else round(job.seconds, 3),
        "pods": job.pods,
        "gpus": job.gpus,
        "gpu_milli": job.gpu_milli,
        "cpu_millicores": job.cpu_millicores,
        "memory_mib": job.memory_mib,
        "models": "|".join(job.models),
        "priority": job.priority,
        "tenant": job.tenant,
        "estimated_seconds": job.estimated_seconds or "",
        "checkpoint_seconds": job.checkpoint_seconds or "",
        "kind": job.kind,
    }
