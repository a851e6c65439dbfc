"""How well spending is forecast: `python -m benchmarks.forecast --trace FILE`.

The jobs of a public trace become GPU-hours by day, at a price of 1 an hour. From every past day with enough history the product's
engine forecasts the days that follow, as the page of a budget does, and is compared with the seasonal naive forecast (the same
weekday of last week) and, if the package `statsforecast` is installed, with AutoETS. The row "as the gateway chooses" picks a
method at each day by the days before it only.
"""

import argparse
import math
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import numpy as np
import zstandard

from billing.engine.backtest import BEFORE, MOST_ORIGINS, NAIVE, WEEK, back_test
from simulator.traces import read_trace
from simulator.values import ReplayError

from .report import conditions, last_line, table

A_DAY = 86_400.0
HORIZONS = (1, 7, 14, 28)
SHORTEST = 28


def daily_hours(path: Path) -> list[float]:
    """GPU-hours of each day of the trace, every job as if it began when it was submitted; up to the last submission."""
    raw = path.read_bytes()
    text = zstandard.ZstdDecompressor().stream_reader(raw).read().decode() if path.suffix == ".zst" else raw.decode()
    jobs = read_trace(path.name, text)
    first = min(job.submitted for job in jobs)
    days = [0.0] * (int((max(job.submitted for job in jobs) - first) // A_DAY) + 1)
    for job in jobs:
        gpus = job.pods * job.gpus * job.gpu_milli / 1000
        begins = job.submitted - first
        ends = min(math.inf if job.seconds is None else begins + job.seconds, len(days) * A_DAY)
        while begins < ends:
            day = int(begins // A_DAY)
            until = min(ends, (day + 1) * A_DAY)
            days[day] += gpus * (until - begins) / 3600
            begins = until
    return days


def auto_ets(history: Sequence[float], horizon: int) -> tuple[float, float] | None:
    """The mean absolute error of AutoETS and its part of the amounts, from the same days; None if it is not installed."""
    try:
        models = import_module("statsforecast.models")  # not a dependency of the product
    except ImportError:
        return None
    known = np.asarray(history)
    missed, came = [], []
    for origin in range(max(BEFORE, len(known) - horizon - MOST_ORIGINS + 1), len(known) - horizon + 1):
        expected = models.AutoETS(season_length=WEEK).forecast(known[:origin], horizon)["mean"].sum()
        came.append(abs(known[origin : origin + horizon].sum()))
        missed.append(abs(known[origin : origin + horizon].sum() - expected))
    return float(np.mean(missed)), float(np.sum(missed) / np.sum(came))


def rows_of(history: Sequence[float], horizon: int) -> list[dict[str, object]]:
    """The errors of all methods over this number of days."""
    tested = back_test(history, horizon)
    naive = next(score.error for score in tested.scores if score.method == NAIVE)
    found = [
        _row(score.method.name + (" (chosen)" if score.method == tested.chosen else ""), score.error, score.part, naive)
        for score in tested.scores
    ]
    if tested.as_chosen_then is not None and tested.naive_then is not None:
        found.append(_row("last week, on the days of the next row", tested.naive_then, None, tested.naive_then))
        found.append(_row("as the gateway chooses", tested.as_chosen_then, None, tested.naive_then))
    other = auto_ets(history, horizon)
    if other is not None:
        found.append(_row("AutoETS", other[0], other[1], naive))
    return found


def _row(name: str, error: float, part: float | None, against: float) -> dict[str, object]:
    return {
        "method": name,
        "mean error, GPU-hours": error,
        "of the amount": "-" if part is None else f"{100 * part:.1f} %",
        "to last week": f"{error / against:.2f}" if against else "-",
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.forecast", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trace", required=True, type=Path, help="a CSV of jobs, as it is or compressed with zstd")
    parser.add_argument("--horizon", type=int, choices=range(1, 29), metavar="1..28", help="only this number of days")
    options = parser.parse_args(arguments)
    try:
        history = daily_hours(options.trace)
    except (OSError, UnicodeDecodeError, zstandard.ZstdError, ReplayError) as error:
        sys.exit(f"{options.trace} cannot be read: {error}")
    if len(history) < SHORTEST:
        sys.exit(f"{options.trace} has {len(history)} days; {SHORTEST} are needed")
    conditions(trace=options.trace.name, days=len(history), gpu_hours=f"{sum(history):,.0f}")
    figures: dict[str, float] = {}
    for horizon in [options.horizon] if options.horizon else HORIZONS:
        tested = back_test(history, horizon)
        print(f"\n{tested.horizon} days ahead, from {tested.origins} days")
        table(rows_of(history, horizon))
        if tested.as_chosen_then is not None and tested.naive_then:
            figures[f"to_last_week_{horizon}"] = tested.as_chosen_then / tested.naive_then
    last_line(figures)


if __name__ == "__main__":
    main()
