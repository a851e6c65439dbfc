"""How long work takes on one GPU model relative to another, if a job gives its throughput on them.

The slowest model that the job names is the reference: there, and on models it does not name, an hour of work takes an
hour; on a model twice as fast, half an hour. Only ratios count, so speeds may be in any unit.
"""

from collections.abc import Iterable, Mapping
from math import gcd

from placement.fleet.amounts import MILLI
from placement.values.gpu_names import means
from placement.values.model import ModelSpeed, Runtime


def pace_on(speeds: tuple[ModelSpeed, ...], models: Iterable[str]) -> float:
    """The hours that an hour of work takes on these models together: as on the slowest of them."""
    if not speeds:
        return 1.0
    least = slowest(speeds)
    return max((least / _speed_on(model, speeds, least) for model in models), default=1.0)


def _speed_on(model: str, speeds: tuple[ModelSpeed, ...], least: int) -> int:
    """The speed of the longest name that means the model."""
    meant = [one for one in speeds if means(one.model, model)]
    return max(meant, key=lambda one: len(one.model)).speed_milli if meant else least


def slowest(speeds: tuple[ModelSpeed, ...]) -> int:
    """The reference speed."""
    return min(one.speed_milli for one in speeds)


def ratios(told: Mapping[str, float]) -> list[tuple[str, int]]:
    """The speeds of a stored spec in lowest terms: equal for specs whose speeds differ only by a constant factor."""
    each = {model: round(told[model] * MILLI) for model in sorted(told)}
    common = gcd(*each.values())
    return [(model, speed // common) for model, speed in each.items()]


def paced(runtime: Runtime, pace: float) -> Runtime:
    """The run time if an hour of work takes `pace` hours."""
    if pace == 1:
        return runtime
    low, middle, high = (
        max(1, round(seconds * pace)) for seconds in (runtime.p10_seconds, runtime.p50_seconds, runtime.p90_seconds)
    )
    return Runtime(low, middle, high, runtime.runs, runtime.basis)
