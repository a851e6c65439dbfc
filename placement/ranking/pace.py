"""How long work takes on one GPU model in terms of another, where a job tells how fast they are.

The slowest model that it names is the measure: there, and on models it does not name, work takes its time; on one twice as fast
half of it. Only ratios count, so that speeds may be told in any unit.
"""

from collections.abc import Iterable, Mapping
from math import gcd

from placement.fleet.amounts import MILLI
from placement.values.gpu_names import means
from placement.values.model import ModelSpeed, Runtime


def pace_on(speeds: tuple[ModelSpeed, ...], models: Iterable[str]) -> float:
    """How long an hour of work takes on these models at the same time, which is as long as on the slowest of them."""
    if not speeds:
        return 1.0
    least = slowest(speeds)
    return max((least / _speed_on(model, speeds, least) for model in models), default=1.0)


def _speed_on(model: str, speeds: tuple[ModelSpeed, ...], least: int) -> int:
    """That of the longest name that means the model."""
    meant = [one for one in speeds if means(one.model, model)]
    return max(meant, key=lambda one: len(one.model)).speed_milli if meant else least


def slowest(speeds: tuple[ModelSpeed, ...]) -> int:
    """The speed that is the measure."""
    return min(one.speed_milli for one in speeds)


def ratios(told: Mapping[str, float]) -> list[tuple[str, int]]:
    """The speeds of a stored spec in lowest terms: equal for those that differ by a constant factor only."""
    each = {model: round(told[model] * MILLI) for model in sorted(told)}
    common = gcd(*each.values())
    return [(model, speed // common) for model, speed in each.items()]


def paced(runtime: Runtime, pace: float) -> Runtime:
    """The run time where an hour of work takes `pace` hours."""
    if pace == 1:
        return runtime
    low, middle, high = (
        max(1, round(seconds * pace)) for seconds in (runtime.p10_seconds, runtime.p50_seconds, runtime.p90_seconds)
    )
    return Runtime(low, middle, high, runtime.runs, runtime.basis)
