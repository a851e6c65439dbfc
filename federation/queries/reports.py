"""What runs reported, as the API and the pages show it, and who may report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from clusters.queries import signing_keys
from federation.engine.lifecycle import AttemptState
from federation.engine.objects.report_tokens import is_report_token
from federation.engine.reports import LOSS, Pace, Points, expected_end, percent_of, polyline
from federation.models import Attempt, Checkpoint, Job, Progress
from federation.queries.jobs import visible_jobs
from foundation.problems import NotFound
from tenancy.queries import Actor

REPORTING_STATES = [AttemptState.STARTING.value, AttemptState.RUNNING.value, AttemptState.UNKNOWN.value]
"""In these states something of an attempt may run: only then its token is worth anything."""
CHART_WIDTH, CHART_HEIGHT = 120, 28


def may_report(attempt_id: UUID, token: str) -> bool:
    """Whether the token is that of an attempt that may run now, of a job that reports. The token is checked first, so
    that strangers cause no query.
    """
    if not is_report_token(token, signing_keys(), attempt_id):
        return False
    return Attempt.objects.filter(id=attempt_id, state__in=REPORTING_STATES, job__spec__reports=True).exists()


@dataclass(frozen=True, slots=True)
class SeriesLine:
    """A series of numbers, and the points of its line in a small chart."""

    name: str
    points: Points
    line: str

    @property
    def last(self) -> float:
        """The newest value."""
        return self.points[-1][1]


@dataclass(frozen=True, slots=True)
class ProgressView:
    """The newest progress of an attempt. `percent` and `expected_end_at` are None if they are not known."""

    attempt_id: UUID
    number: int
    step: int | None
    total_steps: int | None
    percent: int | None
    loss: float | None
    reported_at: datetime
    expected_end_at: datetime | None
    series: tuple[SeriesLine, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckpointLine:
    """A checkpoint, of the attempt with this number."""

    attempt_id: UUID
    number: int
    reference: str
    size_bytes: int | None
    step: int | None
    flavors: tuple[str, ...]
    written_at: datetime


@dataclass(frozen=True, slots=True)
class Reports:
    """The progress of the newest attempt that reported, and the checkpoints of all, newest first."""

    progress: ProgressView | None
    checkpoints: Sequence[CheckpointLine]


MOST_SHOWN = 100


def reports_of(actor: Actor, job_id: UUID, now: datetime) -> Reports:
    """What the runs of a job reported; NotFound if the actor may not see it."""
    job = visible_jobs(actor).filter(id=job_id).first()
    if job is None:
        raise NotFound
    return reports_of_job(job, now)


def reports_of_job(job: Job, now: datetime) -> Reports:
    """Likewise, for a job that the viewer may see. Two queries."""
    told = Progress.objects.filter(attempt__job=job, reported_at__isnull=False).select_related("attempt")
    newest = told.order_by("-attempt__number").first()
    rows = Checkpoint.objects.filter(attempt__job=job).order_by("-attempt__number", "-sequence")
    checkpoints = [
        CheckpointLine(
            row.attempt_id,
            row.attempt.number,
            row.reference,
            row.size_bytes,
            row.step,
            tuple(row.flavors),
            row.written_at,
        )
        for row in rows.select_related("attempt")[:MOST_SHOWN]
    ]
    return Reports(None if newest is None else progress_view(newest.attempt, job.spec, now, charts=True), checkpoints)


def progress_view(
    attempt: Attempt, spec: Mapping[str, Any], now: datetime, *, charts: bool = False
) -> ProgressView | None:
    """The progress of an attempt that is loaded with it; None if it has not reported."""
    told: Progress | None = getattr(attempt, "progress", None)
    if told is None or told.reported_at is None:
        return None
    return ProgressView(
        attempt_id=attempt.id,
        number=attempt.number,
        step=told.step,
        total_steps=told.total_steps,
        percent=percent_of(told.step, told.total_steps),
        loss=told.loss,
        reported_at=told.reported_at,
        expected_end_at=_expected_end(attempt, told, spec, now),
        series=_series(told.series) if charts else (),
    )


def _expected_end(attempt: Attempt, told: Progress, spec: Mapping[str, Any], now: datetime) -> datetime | None:
    """None as well for an attempt that has ended, or is being stopped."""
    if attempt.started_at is None or attempt.finished_at is not None or attempt.stop_requested_at is not None:
        return None
    pace = Pace(told.step, told.total_steps, told.first_step, told.first_step_at, told.reported_at)
    return expected_end(pace, attempt.started_at + timedelta(seconds=spec["deadline_seconds"]), now)


def _series(stored: Mapping[str, Points]) -> tuple[SeriesLine, ...]:
    """By name, the loss first."""
    ordered = sorted(stored, key=lambda name: (name != LOSS, name))
    return tuple(SeriesLine(name, stored[name], polyline(stored[name], CHART_WIDTH, CHART_HEIGHT)) for name in ordered)
