"""Whether a running job moves to a place where it meets its deadline (ADR 63; the rule is in `placement.ranking.deadlines`).

It moves off spot capacity at the last moment from which all that is left, and what the next interruption could lose, still fits
at the new place. On capacity that is not taken away it moves if it would be late there, and in time at the new place.
"""

from datetime import datetime, timedelta

from placement.ranking.deadlines import MARGIN_SECONDS
from placement.values.moving import CourseOfRun, Side, TimelyMove

from .cheaper import REST, STOP_SECONDS

MOST_MOVES_A_DAY = 3
_LONG_PULL = 3600
"""No new place is further away than this, for a quick look."""


def decide(here: Side, there: Side, run: CourseOfRun, now: datetime) -> TimelyMove | None:
    """The move of a run; None if it stays."""
    if run.finish_by is None or there.is_spot or _rests(run, now):
        return None
    ratio = there.pace / here.pace
    away = STOP_SECONDS + there.away_seconds
    ends_there = now + timedelta(seconds=away + (run.most_left_seconds + run.lost_seconds) * ratio)
    if ends_there > run.finish_by:
        return None
    ends_here = _ends_here(here, run, now, there.away_seconds, ratio)
    if ends_here <= run.finish_by or ends_there >= ends_here:
        return None
    return TimelyMove(run.finish_by, ends_here, ends_there, run.lost_seconds, here.is_spot)


def is_pressed(here: Side, run: CourseOfRun, slowest: float, now: datetime) -> bool:
    """Whether the run may have to move: a quick look before the trial of placement. `slowest` is the worst pace of the job."""
    if run.finish_by is None or _rests(run, now):
        return False
    return _ends_here(here, run, now, _LONG_PULL, max(1.0, slowest / here.pace)) > run.finish_by


def _ends_here(here: Side, run: CourseOfRun, now: datetime, away: float, ratio: float) -> datetime:
    """When it would end at the latest if it stays. On spot capacity: if that is taken away just before the next checkpoint, and the
    job then continues at the other place.
    """
    left = run.most_left_seconds
    if not here.is_spot:
        return now + timedelta(seconds=left)
    worst = away + MARGIN_SECONDS + run.exposed_seconds + left * ratio
    return now + timedelta(seconds=max(left, worst))


def _rests(run: CourseOfRun, now: datetime) -> bool:
    lately = run.last_moved_at is not None and now < run.last_moved_at + REST
    return lately or run.moves_today >= MOST_MOVES_A_DAY
