"""What a run reports of itself: read from untrusted JSON, merged into what is known, and what follows from it.

A program may report anything. So everything is bounded, and nothing here decides about other jobs: an expected end is
only shown.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeAlias

from clusters.engine.storages import MOST_PATH, PATH, is_relative
from federation.engine.artifacts import DIGEST, MOST_ARTIFACTS, is_digest
from federation.engine.intake.reading import Faults, Fields, child

MOST_NUMBER = 2**53 - 1
"""The largest whole number that every JSON reader keeps exactly."""
MOST_VALUE = 1e300
MOST_SERIES = 16
MOST_POINTS = 120
"""Points kept of each series: when there are more, every second of them is dropped."""
MOST_REFERENCE_BYTES = 1024
MOST_FLAVORS = 32
MOST_CHECKPOINTS = 20
"""Checkpoints kept of each attempt: the newest."""
MOST_REPORTS, WINDOW_SECONDS = 60, 60
"""Reports of one attempt that are accepted in each window; the pods of a gang share them."""
LEAST_SECONDS = 60
"""An expected end needs progress over at least this time."""
STALE_AFTER = timedelta(minutes=30)
"""Without a report for this time, no end is expected."""

LOSS = "loss"
REPORT_FIELDS = frozenset(["sequence", "step", "total_steps", "loss", "series", "checkpoint", "artifacts"])
CHECKPOINT_FIELDS = frozenset(["reference", "size_bytes", "step", "flavors", "written_at"])
ANNOUNCED_FIELDS = frozenset(["name", "path", "sha256", "size_bytes"])
_SERIES_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]{0,63}").fullmatch
_REFERENCE = re.compile(r"[!-~]+").fullmatch
_FLAVOR = re.compile(r"[!-~]{1,120}").fullmatch
Points: TypeAlias = list[list[float]]


@dataclass(frozen=True, slots=True)
class ReportedCheckpoint:
    """Where a checkpoint is. `flavors` are those on which it can be resumed; empty: any."""

    reference: str
    size_bytes: int | None = None
    step: int | None = None
    flavors: tuple[str, ...] = ()
    written_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class AnnouncedArtifact:
    """A file that the run has written completely: at `path` below the place that the job declared; empty: there."""

    name: str
    sha256: str
    size_bytes: int
    path: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """One report of a run. Only the highest `sequence` counts; the sender chooses it."""

    sequence: int
    step: int | None = None
    total_steps: int | None = None
    loss: float | None = None
    series: tuple[tuple[str, float], ...] = ()
    checkpoint: ReportedCheckpoint | None = None
    artifacts: tuple[AnnouncedArtifact, ...] = ()


def read_report(body: object) -> Report:
    """The report in a JSON object. Raises Refused with every field at fault."""
    faults = Faults()
    fields = Fields(body, "", faults, REPORT_FIELDS)
    sequence = fields.whole("sequence", 0, MOST_NUMBER, required=True) or 0
    step, total = fields.whole("step", 0, MOST_NUMBER), fields.whole("total_steps", 1, MOST_NUMBER)
    if step is not None and total is not None and step > total and not faults.found:
        fields.fault("step", "out_of_range", "must be at most total_steps")
    loss = _number(fields, LOSS, fields.values.get(LOSS))
    series = _read_series(fields)
    checkpoint = None if fields.values.get("checkpoint") is None else _read_checkpoint(fields)
    artifacts = _read_artifacts(fields)
    faults.refuse_if_any()
    return Report(sequence, step, total, loss, series, checkpoint, artifacts)


def _read_series(fields: Fields) -> tuple[tuple[str, float], ...]:
    given = fields.mapping("series")
    if len(given) > MOST_SERIES:
        fields.fault("series", "too_many", f"must have at most {MOST_SERIES} names")
        return ()
    found = []
    for name, value in given.items():
        at = child("series", name)
        if not _SERIES_NAME(name) or name == LOSS:
            fields.fault(at, "bad_format", "a name has 1 to 64 letters, digits and '_', '.', '/', '-'; not `loss`")
        elif (number := _number(fields, at, value)) is not None:
            found.append((name, number))
        elif value is None:
            fields.fault(at, "required", "this field is required")
    return tuple(found)


def _number(fields: Fields, at: str, value: object) -> float | None:
    """A finite number; never a boolean or a string of digits. None if it is null, or a fault."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        fields.fault(at, "wrong_type", "must be a number")
        return None
    if not -MOST_VALUE <= value <= MOST_VALUE:
        fields.fault(at, "out_of_range", "must be a finite number")
        return None
    return float(value)


def _read_checkpoint(fields: Fields) -> ReportedCheckpoint:
    given = Fields(fields.values["checkpoint"], "checkpoint", fields.faults, CHECKPOINT_FIELDS)
    grammar = "printable ASCII without spaces"
    return ReportedCheckpoint(
        given.checked("reference", _REFERENCE, grammar, most_bytes=MOST_REFERENCE_BYTES),
        given.whole("size_bytes", 0, MOST_NUMBER),
        given.whole("step", 0, MOST_NUMBER),
        given.names("flavors", _FLAVOR, grammar, most=MOST_FLAVORS),
        given.instant("written_at"),
    )


def _read_artifacts(fields: Fields) -> tuple[AnnouncedArtifact, ...]:
    found: dict[str, AnnouncedArtifact] = {}
    for index, value in enumerate(fields.array("artifacts", most=MOST_ARTIFACTS)):
        given = Fields(value, f"artifacts[{index}]", fields.faults, ANNOUNCED_FIELDS)
        name = given.text("name", most_bytes=63)
        if name in found:
            given.fault("name", "duplicate", "the report announces it already")
        has_path = given.values.get("path") not in (None, "")
        path = given.checked("path", is_relative, PATH, most_bytes=MOST_PATH) if has_path else ""
        digest = given.checked("sha256", is_digest, DIGEST, most_bytes=64)
        size = given.whole("size_bytes", 0, MOST_NUMBER, required=True) or 0
        found[name] = AnnouncedArtifact(name, digest, size, path)
    return tuple(found.values())


def merged(known: Mapping[str, Points], report: Report) -> dict[str, Points] | None:
    """The series with the report's points, thinned out; None if there would be too many names."""
    loss = () if report.loss is None else ((LOSS, report.loss),)
    told = dict((*report.series, *loss))
    if len(known.keys() | told.keys()) > MOST_SERIES:
        return None
    x = float(report.sequence if report.step is None else report.step)
    return {
        name: _thinned([*known.get(name, ()), [x, told[name]]]) if name in told else list(known[name])
        for name in [*known, *(name for name in told if name not in known)]
    }


def _thinned(points: Points) -> Points:
    if len(points) <= MOST_POINTS:
        return points
    return [*points[:-1:2], points[-1]]


@dataclass(frozen=True, slots=True)
class Pace:
    """What an expected end follows from: the first and the newest step, with the times at which they arrived."""

    step: int | None
    total_steps: int | None
    first_step: int | None
    first_step_at: datetime | None
    reported_at: datetime | None


def expected_end(pace: Pace, latest: datetime, now: datetime) -> datetime | None:
    """When the last step is expected, at the mean pace so far; None if that is unknown, out of date or later than
    `latest`, when the run is stopped.
    """
    step, total, first = pace.step, pace.total_steps, pace.first_step
    if step is None or total is None or first is None or pace.first_step_at is None or pace.reported_at is None:
        return None
    seconds = (pace.reported_at - pace.first_step_at).total_seconds()
    if step <= first or seconds < LEAST_SECONDS or now - pace.reported_at > STALE_AFTER:
        return None
    left = seconds * (total - step) / (step - first)
    if left > (latest - pace.reported_at).total_seconds():
        return None
    return max(now, pace.reported_at + timedelta(seconds=left))


def percent_of(step: int | None, total_steps: int | None) -> int | None:
    """How much of the steps is done, in whole per cent, rounded down; None if it is not known."""
    return None if step is None or total_steps is None else step * 100 // total_steps


def polyline(points: Sequence[Sequence[float]], width: int, height: int) -> str:
    """The points as an SVG polyline: from left to right in their order, the largest value at the top."""
    values = [value for _, value in points]
    least, most = min(values), max(values)
    # halves, because the difference of two finite numbers may not be finite
    span = most / 2 - least / 2 or 1.0
    across = max(len(values) - 1, 1)
    return " ".join(
        f"{width * index / across:.1f},{height * (1 - (value / 2 - least / 2) / span):.1f}"
        for index, value in enumerate(values)
    )


def stored_report(report: Report) -> dict[str, Any]:
    """The columns of the newest progress that a report sets; what it does not mention stays."""
    told = {"step": report.step, "total_steps": report.total_steps, "loss": report.loss}
    return {name: value for name, value in told.items() if value is not None}
