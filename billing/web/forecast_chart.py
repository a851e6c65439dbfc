"""A forecast as a chart and a table: what was posted, what is expected, and the range around it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from billing.engine.backtest import BackTest
from billing.engine.forecast import Forecast

WIDTH, HEIGHT = 240, 72


@dataclass(frozen=True, slots=True)
class TableRow:
    """One day with the sum of the period at its end; without a range, it is past."""

    day: date
    total: Decimal
    low: Decimal | None
    high: Decimal | None


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
    rows: tuple[TableRow, ...]
    posted_points: str
    expected_points: str
    range_points: str
    limit_y: str
    """Where the line of the budget's amount is; empty without one, or above the picture."""
    methods: tuple[MethodRow, ...]
    then: Decimal | None
    naive_then: Decimal | None


def outlook_of(
    forecast: Forecast, past: Sequence[tuple[date, Decimal]], unit: str, limit: Decimal | None = None
) -> Outlook:
    """The card of a forecast; with `limit`, the amount of a budget."""
    ahead = forecast.days
    rows = [TableRow(day, total, None, None) for day, total in past[: -1 if ahead else None]]
    rows += [TableRow(one.day, one.total, one.low, one.high) for one in ahead]
    top = max([Decimal(1), forecast.high, *([limit] if limit is not None else []), *(total for _, total in past)])
    count = max(1, len(rows))

    def point(number: int, amount: Decimal) -> str:
        x = WIDTH * (number + 1) / count
        y = HEIGHT - HEIGHT * float(min(max(amount / top, Decimal(0)), Decimal(1)))
        return f"{x:.1f},{y:.1f}"

    begun = max(0, len(past) - 1)
    posted = [f"0,{HEIGHT}", *(point(number, total) for number, (_, total) in enumerate(past[:begun]))]
    expected = [posted[-1], *(point(begun + number, one.total) for number, one in enumerate(ahead))]
    upper = [point(begun + number, one.high) for number, one in enumerate(ahead)]
    lower = [point(begun + number, one.low) for number, one in enumerate(ahead)]
    limit_y = "" if limit is None else f"{HEIGHT - HEIGHT * float(limit / top):.1f}"
    tested = forecast.tested
    return Outlook(
        unit=unit,
        forecast=forecast,
        rows=tuple(rows),
        posted_points=" ".join(posted),
        expected_points=" ".join(expected),
        range_points=" ".join([posted[-1], *upper, *reversed(lower)]) if tested is not None else "",
        limit_y=limit_y,
        methods=() if tested is None else _methods(tested),
        then=None if tested is None or tested.as_chosen_then is None else Decimal(tested.as_chosen_then),
        naive_then=None if tested is None or tested.naive_then is None else Decimal(tested.naive_then),
    )


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
