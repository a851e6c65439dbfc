"""A forecast as a chart and a table: what was posted, what is expected, and the range around it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from billing.engine.backtest import BackTest
from billing.engine.forecast import CourseDay, Forecast, course

WIDTH, HEIGHT = 240, 72
INTERVALS = 4
"""Of the scale of amounts."""
STEPS = (Decimal(1), Decimal(2), Decimal("2.5"), Decimal(5), Decimal(10))
MOST_DATES, MOST_MONTHS = 4, 2
"""Marks below the chart: as many as fit on a phone; months with their year are wider."""
EDGE = 7
"""Per cent of the width: marks nearer to an end of the scale do not reach beyond it."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A mark of the scale of days: at the end of its day, in per cent of the width and as `x` of the picture."""

    text: str
    percent: str
    x: str
    anchor: str


@dataclass(frozen=True, slots=True)
class Scale:
    """What the picture's height and width stand for. `amounts`: from the top down to zero, at equal distances."""

    top: Decimal
    amounts: tuple[str, ...]
    dates: tuple[Mark, ...]
    lines: tuple[str, ...]
    """Where the lines of the amounts are."""


@dataclass(frozen=True, slots=True)
class MethodRow:
    name: str
    error: Decimal
    percent: Decimal | None
    is_chosen: bool


@dataclass(frozen=True, slots=True)
class Outlook:
    """What the card of a forecast shows. Points of the chart are `x,y` of a picture of WIDTH by HEIGHT."""

    unit: str
    forecast: Forecast
    rows: tuple[CourseDay, ...]
    scale: Scale
    posted_points: str
    expected_points: str
    range_points: str
    today_x: str
    """Where today begins; empty if it is the first day, or the period has ended."""
    limit_y: str
    """Where the line of the budget's amount is; empty without one."""
    methods: tuple[MethodRow, ...]
    then: Decimal | None
    naive_then: Decimal | None


def outlook_of(
    forecast: Forecast, past: Sequence[tuple[date, Decimal]], unit: str, limit: Decimal | None = None
) -> Outlook:
    """The card of a forecast; with `limit`, the amount of a budget."""
    ahead = forecast.days
    rows = course(forecast, past)
    highest = max([forecast.high, *([limit] if limit is not None else []), *(one.total for one in rows)])
    scale = scale_of(highest, [one.day for one in rows])
    count = max(1, len(rows))

    def point(number: int, amount: Decimal) -> str:
        y = HEIGHT - HEIGHT * float(min(max(amount / scale.top, Decimal(0)), Decimal(1)))
        return f"{WIDTH * (number + 1) / count:.1f},{y:.1f}"

    begun = len(rows) - len(ahead)
    posted = [f"0,{HEIGHT}", *(point(number, one.total) for number, one in enumerate(rows[:begun]))]
    expected = [posted[-1], *(point(begun + number, one.total) for number, one in enumerate(ahead))]
    upper = [point(begun + number, one.high) for number, one in enumerate(ahead)]
    lower = [point(begun + number, one.low) for number, one in enumerate(ahead)]
    tested = forecast.tested
    return Outlook(
        unit=unit,
        forecast=forecast,
        rows=rows,
        scale=scale,
        posted_points=" ".join(posted),
        expected_points=" ".join(expected),
        range_points=" ".join([posted[-1], *upper, *reversed(lower)]) if tested is not None else "",
        today_x=f"{WIDTH * begun / count:.1f}" if 0 < begun < count else "",
        limit_y="" if limit is None else f"{HEIGHT - HEIGHT * float(limit / scale.top):.1f}",
        methods=() if tested is None else _methods(tested),
        then=None if tested is None or tested.as_chosen_then is None else Decimal(tested.as_chosen_then),
        naive_then=None if tested is None or tested.naive_then is None else Decimal(tested.naive_then),
    )


def scale_of(highest: Decimal, days: Sequence[date]) -> Scale:
    """The scale from zero up to at least `highest`, in INTERVALS round steps, and up to MOST_DATES of the days."""
    step = _round_step(highest / INTERVALS) if highest > 0 else Decimal(1) / INTERVALS
    amounts = [f"{(step * number).normalize():,f}" for number in range(INTERVALS, -1, -1)]
    heights = [HEIGHT * number / INTERVALS for number in range(INTERVALS)]
    lines = [f"{height:.1f}" for height in (*heights, HEIGHT - 0.5)]
    return Scale(step * INTERVALS, tuple(amounts), _marks(days), tuple(lines))


def _round_step(least: Decimal) -> Decimal:
    """The smallest of STEPS, in a power of ten, that is not below `least`."""
    power = Decimal(1).scaleb(least.adjusted())
    return next(step * power for step in STEPS if step * power >= least)


def _marks(days: Sequence[date]) -> tuple[Mark, ...]:
    """Days at equal distances, up to the last one."""
    if not days:
        return ()
    is_long = days[0].year != days[-1].year and len(days) > 31 * MOST_DATES
    apart = -(-len(days) // (MOST_MONTHS if is_long else MOST_DATES))
    marks = []
    for number in range(len(days) - 1, -1, -apart):
        part = (number + 1) / len(days)
        anchor = "end" if part * 100 > 100 - EDGE else "start" if part * 100 < EDGE else "middle"
        day = days[number]
        text = f"{day:%b %Y}" if is_long else f"{day.day} {day:%b}"
        marks.append(Mark(text, f"{100 * part:.2f}", f"{WIDTH * part:.1f}", anchor))
    return tuple(reversed(marks))


def _methods(tested: BackTest) -> tuple[MethodRow, ...]:
    return tuple(
        MethodRow(
            one.method.name,
            Decimal(one.error),
            None if one.part is None else Decimal(100 * one.part),
            one.method == tested.chosen,
        )
        for one in tested.scores
    )
