"""The overview of jobs: counts, reasons for waiting, the last day by the hour, the newest live jobs."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Count, QuerySet
from django.db.models.functions import TruncHour

from federation.engine.lifecycle import JobState
from federation.models import TERMINAL_JOB_STATES, Job
from foundation.clock import now
from placement.values.reason_codes import ReasonCode
from tenancy.queries import Actor

from .pages import JobLine, jobs_seen_by, lines_of, with_newest_cluster

HOURS_SHOWN = 24
LIVE_SHOWN = 8
REASONS_SHOWN = 6
CHART_HEIGHT, CHART_STEP = 72, 10


@dataclass(frozen=True, slots=True)
class Hour:
    """The numbers of jobs submitted and ended in one hour, and the positions of its two bars in a chart CHART_HEIGHT
    high.
    """

    at: datetime
    submitted: int
    succeeded: int
    failed: int
    x: int
    succeeded_height: int
    failed_height: int

    @property
    def succeeded_top(self) -> int:
        return CHART_HEIGHT - self.succeeded_height

    @property
    def failed_top(self) -> int:
        return self.succeeded_top - self.failed_height


@dataclass(frozen=True, slots=True)
class Workload:
    """The jobs of every tenant the actor may see, counted."""

    queued: int
    running: int
    dispatching: int
    ended_today: int
    succeeded_today: int
    failed_today: int
    reasons: tuple[tuple[str, int], ...]
    oldest_queued_at: datetime | None
    hours: tuple[Hour, ...]
    live: tuple[JobLine, ...]


def workload(actor: Actor) -> Workload:
    """Counts for the overview, the last day by the hour, and the newest live jobs."""
    at = now()
    jobs = jobs_seen_by(actor)
    day = at - timedelta(hours=HOURS_SHOWN)
    states = dict(jobs.exclude(state__in=TERMINAL_JOB_STATES).values_list("state").annotate(Count("id")))
    ended = dict(jobs.filter(finished_at__gte=day).values_list("state").annotate(Count("id")))
    waiting = jobs.filter(state=JobState.QUEUED)
    reasons = waiting.values_list("reason_code").annotate(n=Count("id")).order_by("-n", "reason_code")[:REASONS_SHOWN]
    oldest = waiting.order_by("created_at").values_list("created_at", flat=True).first()
    live = with_newest_cluster(jobs.exclude(state__in=TERMINAL_JOB_STATES)).order_by("-id")[:LIVE_SHOWN]
    return Workload(
        queued=states.get(JobState.QUEUED, 0),
        running=states.get(JobState.RUNNING, 0),
        dispatching=states.get(JobState.DISPATCHING, 0),
        ended_today=sum(ended.values()),
        succeeded_today=ended.get(JobState.SUCCEEDED, 0),
        failed_today=ended.get(JobState.FAILED, 0),
        reasons=tuple((code or ReasonCode.NEW, count) for code, count in reasons),
        oldest_queued_at=oldest,
        hours=_hours(jobs, at),
        live=lines_of(actor, live),
    )


def _hours(jobs: QuerySet[Job], at: datetime) -> tuple[Hour, ...]:
    first = at.replace(minute=0, second=0, microsecond=0) - timedelta(hours=HOURS_SHOWN - 1)
    ends = jobs.filter(finished_at__gte=first).annotate(hour=TruncHour("finished_at"))
    ended = {(hour, state): count for hour, state, count in ends.values_list("hour", "state").annotate(Count("id"))}
    starts = jobs.filter(created_at__gte=first).annotate(hour=TruncHour("created_at"))
    came = dict(starts.values_list("hour").annotate(Count("id")))
    slots = [first + timedelta(hours=number) for number in range(HOURS_SHOWN)]
    counts = [
        (came.get(hour, 0), ended.get((hour, JobState.SUCCEEDED), 0), ended.get((hour, JobState.FAILED), 0))
        for hour in slots
    ]
    busiest = max((good + bad for _, good, bad in counts), default=0) or 1
    return tuple(
        Hour(
            at=hour,
            submitted=new,
            succeeded=good,
            failed=bad,
            x=number * CHART_STEP,
            succeeded_height=CHART_HEIGHT * good // busiest,
            failed_height=CHART_HEIGHT * bad // busiest,
        )
        for number, (hour, (new, good, bad)) in enumerate(zip(slots, counts, strict=True))
    )
