"""Which figures grow: the median of all pairwise slopes (Theil and Sen), against a bound that is stated for each kind.

A figure is sampled in runs: a process that was killed begins a new one. Pairs are made inside a run alone, each run's first
minutes are left out (programs warm up), and all runs of one figure are judged together.
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

HOUR = 3600.0
LEAST_SAMPLES = 18
"""Fewer say nothing: three minutes at one sample every ten seconds."""
MOST_SAMPLES = 240
"""Longer runs are thinned evenly to this length; all pairs of 720 samples of a hundred figures take minutes."""
GROWING_SHARE = 0.7
"""The share of pairs that must grow. It is 0.5 for noise around a constant, and 1 for a steady leak."""


@dataclass(frozen=True, slots=True)
class Bound:
    """What is allowed. A figure grows if it exceeds both: `per_hour` alone would judge a minute's noise, `rise` alone would
    forgive what is slow.
    """

    unit: str
    per_hour: float
    rise: float


@dataclass(frozen=True, slots=True)
class Sample:
    """The value of a figure at a time (seconds). `run` changes when its process is another; `at` may be another measure than time."""

    figure: str
    run: str
    at: float
    value: float


@dataclass(frozen=True, slots=True)
class Slope:
    """What became of one figure."""

    figure: str
    samples: int
    per_hour: float
    rise: float
    growing: float
    bound: Bound

    @property
    def grows(self) -> bool:
        """Whether this is a finding."""
        is_over = self.per_hour > self.bound.per_hour and self.rise > self.bound.rise
        return is_over and self.growing >= GROWING_SHARE

    def __str__(self) -> str:
        return (
            f"{self.figure} grows by {self.per_hour:.1f} {self.bound.unit}/h (allowed {self.bound.per_hour:g}), in all by"
            f" {self.rise:.1f} (allowed {self.bound.rise:g}); {self.growing:.0%} of its pairs grow"
        )


def judge(samples: Iterable[Sample], bounds: Mapping[str, Bound], warm_up_seconds: float) -> list[Slope]:
    """The slope of each figure that has enough samples. The bound is the one of the longest prefix of the figure's name."""
    figures: dict[str, dict[str, list[Sample]]] = {}
    for sample in samples:
        figures.setdefault(sample.figure, {}).setdefault(sample.run, []).append(sample)
    found = []
    for figure, runs in sorted(figures.items()):
        warm = [one for one in (_warm(run, warm_up_seconds) for run in runs.values()) if len(one) > 1]
        if sum(map(len, warm)) >= LEAST_SAMPLES:
            found.append(_slope(figure, warm, bounds[max((b for b in bounds if figure.startswith(b)), key=len)]))
    return found


def _warm(run: Sequence[Sample], warm_up_seconds: float) -> Sequence[Sample]:
    ordered = sorted(run, key=lambda sample: sample.at)
    kept = [sample for sample in ordered if sample.at - ordered[0].at >= warm_up_seconds]
    return kept[:: -(-len(kept) // MOST_SAMPLES)] if kept else kept


def _slope(figure: str, runs: Sequence[Sequence[Sample]], bound: Bound) -> Slope:
    slopes = [
        (then.value - first.value) / (then.at - first.at)
        for run in runs
        for first, then in combinations(run, 2)
        if then.at > first.at
    ]
    median = statistics.median(slopes)
    longest = max(run[-1].at - run[0].at for run in runs)
    growing = sum((slope > 0) + 0.5 * (slope == 0) for slope in slopes) / len(slopes)
    return Slope(figure, sum(map(len, runs)), median * HOUR, median * longest, growing, bound)


def accelerates(samples: Sequence[tuple[float, float]], factor: float, slack: float) -> str:
    """What is wrong with a size that may grow with the work done, as (work, size) in order of time; empty if nothing is.

    In the second half a unit of work may cost at most `factor` times what it cost in the first, plus `slack`.
    """
    if len(samples) < LEAST_SAMPLES:
        return ""
    half = len(samples) // 2
    first, second = (_per_unit(part) for part in (samples[:half], samples[half:]))
    if second <= max(first, 0.0) * factor + slack:
        return ""
    return f"takes {second:.0f} bytes a job in the second half, {first:.0f} in the first"


def _per_unit(samples: Sequence[tuple[float, float]]) -> float:
    slopes = [(y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in combinations(samples[-MOST_SAMPLES:], 2) if x2 > x1]
    return statistics.median(slopes) if slopes else 0.0
