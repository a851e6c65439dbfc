"""How well spending is forecast: `python -m benchmarks.forecast --trace FILE...`.

The jobs of a public trace become GPU-hours by day, at a price of 1 an hour. From every past day with enough history the product's
engine forecasts the days that follow, as the page of a budget does, and is compared with the seasonal naive forecast (the same
weekday of last week) and, with `--auto-ets`, with AutoETS. The row "as the gateway chooses" picks a method at each day by the
days before it only. `--hold-out` picks the rule itself on other traces and earlier days than those it is judged on.
"""

import argparse
import json
import math
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import zstandard

from billing.engine.backtest import BEFORE, MOST_ORIGINS, NAIVE, WEEK, back_test
from simulator.traces import read_trace
from simulator.values import ReplayError

from . import forecast_holdout
from .forecast_holdout import Expected, Floats
from .report import conditions, last_line, table

A_DAY = 86_400.0
HORIZONS = (1, 7, 14, 28)
SHORTEST = 28
HOW_TO_GET_AUTO_ETS = """a Python that has the package statsforecast, which the product does not use, such as /tmp/ets/bin/python after
`python3 -m venv /tmp/ets && /tmp/ets/bin/pip install statsforecast`"""
AUTO_ETS = Path(__file__).with_name("auto_ets.py")


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


def auto_ets(python: str, histories: Sequence[Sequence[float]], last: int) -> list[dict[int, Floats]]:
    """What AutoETS expects of up to `last` days after each day that the product could forecast from; of each history."""
    asked = {"histories": [list(days) for days in histories], "first": BEFORE, "last": last, "season": WEEK}
    try:
        told = subprocess.run(
            [python, str(AUTO_ETS)], input=json.dumps(asked), capture_output=True, text=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"{python} does not run AutoETS ({error}); give {HOW_TO_GET_AUTO_ETS}")
    return [
        {BEFORE + number: np.asarray(days) for number, days in enumerate(expected)} for expected in json.loads(told)
    ]


def _error_of(expected: Expected, history: Sequence[float], horizon: int) -> tuple[float, float]:
    """Its mean absolute error from the same days as the product's test, and its part of the amounts."""
    known = np.asarray(history)
    missed, came = [], []
    for origin in range(max(BEFORE, len(known) - horizon - MOST_ORIGINS + 1), len(known) - horizon + 1):
        came.append(abs(known[origin : origin + horizon].sum()))
        missed.append(abs(known[origin : origin + horizon].sum() - expected[origin][:horizon].sum()))
    return float(np.mean(missed)), float(np.sum(missed) / np.sum(came))


def rows_of(history: Sequence[float], horizon: int, expected: Expected | None) -> list[dict[str, object]]:
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
    if expected is not None:
        found.append(_row("AutoETS", *_error_of(expected, history, tested.horizon), naive))
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
    parser.add_argument(
        "--trace", required=True, type=Path, nargs="+", help="CSV of jobs, as it is or compressed with zstd"
    )
    parser.add_argument("--horizon", type=int, choices=range(1, 29), metavar="1..28", help="only this number of days")
    parser.add_argument("--auto-ets", metavar="PYTHON", help=f"compare with AutoETS: {HOW_TO_GET_AUTO_ETS}")
    parser.add_argument("--hold-out", action="store_true", help="pick the rule on other traces and earlier days")
    options = parser.parse_args(arguments)
    horizons = [options.horizon] if options.horizon else list(HORIZONS)
    histories = {path.name: _history(path) for path in options.trace}
    sources = {path.name: path.parent.name for path in options.trace}
    hours = {name: f"{len(days)} days, {sum(days):,.0f} GPU-hours" for name, days in histories.items()}
    conditions(**hours)
    expected: dict[str, Expected] = {}
    if options.auto_ets:
        others = auto_ets(options.auto_ets, list(histories.values()), max(horizons))
        expected = dict(zip(histories, others, strict=True))
    figures: dict[str, float] = {}
    for name, days in histories.items():
        for horizon in horizons:
            tested = back_test(days, horizon)
            print(f"\n{name}: {tested.horizon} days ahead, from {tested.origins} days")
            table(rows_of(days, horizon, expected.get(name)))
            if tested.as_chosen_then is not None and tested.naive_then:
                figures[f"{name}_to_last_week_{horizon}"] = tested.as_chosen_then / tested.naive_then
    if options.hold_out:
        trials = [
            forecast_holdout.trial_of(sources[name], name, days, horizon, expected.get(name))
            for name, days in histories.items()
            for horizon in horizons
        ]
        rows, held_out = forecast_holdout.rows_of([one for one in trials if one is not None])
        print("\nheld out: errors in proportion to last week repeated, on the second half of the days")
        table(rows)
        figures |= held_out
    last_line(figures)


def _history(path: Path) -> list[float]:
    try:
        history = daily_hours(path)
    except (OSError, UnicodeDecodeError, zstandard.ZstdError, ReplayError) as error:
        sys.exit(f"{path} cannot be read: {error}")
    if len(history) < SHORTEST:
        sys.exit(f"{path} has {len(history)} days; {SHORTEST} are needed")
    return history


if __name__ == "__main__":
    main()
