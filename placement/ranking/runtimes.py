"""How long a job will run: an interval learned from similar runs.

Similar runs form groups of one tenant, from narrow to wide: the same name (digits and hashes aside) and the same pods;
the same name; the same pods. Of each group the last `MOST_KEPT` runs count, recent ones more. The quantiles are those
of the narrowest group with runs, pulled towards the next wider group's while it has few (partial pooling, as in Gelman
and Hill, "Data Analysis Using Regression and Multilevel/Hierarchical Models", 2007, section 12.2). A group with no
wider one is pulled towards "within a factor of two of its median". Logarithms are averaged, since run times spread by
factors. Quantiles of recent similar runs predict better than users do (Tsafrir, Etsion and Feitelson, "Backfilling
Using System-Generated Predictions", IEEE TPDS 18(6), 2007).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from hashlib import blake2s
from itertools import accumulate
from math import exp, log
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

from placement.values.model import JobRequest, Runtime

from .pace import paced, ratios

MOST_KEPT = 50
"""The number of runs remembered per group."""
HALF_LIFE = 16
"""A run counts half as much as one this many runs later."""
WEIGHT_OF_WIDER = 4.0
"""The wider group counts as this number of runs of the narrower one."""
WEIGHT_OF_NO_MORE = 2.0
"""The same if there is no wider group."""
FACTOR = 2.0
"""The factor within which sparse knowledge is trusted."""
LONGEST_SECONDS = 10 * 365 * 24 * 3600
QUANTILES = (0.1, 0.5, 0.9)
ASKED = ("count", "cpu", "memory", "gpu")
"""The fields of a pod set that make its runs similar."""

Quantiles: TypeAlias = tuple[float, float, float]
"""Logarithms of seconds, in the order of QUANTILES."""
_SEPARATORS = re.compile(r"[-_.]")
_REPEATED = re.compile(r"#(-#)+")
_DIGITS = re.compile(r"[0-9]+")
_HASH = re.compile(r"(?=.*[0-9])[0-9a-f]{6,}|(?=.*[0-9])(?=.*[a-z])[0-9a-z]{8,}")


class Groups(NamedTuple):
    """The names of the groups that a job's runs belong to, from narrow to wide."""

    job: str
    name: str
    pods: str


@dataclass(frozen=True, slots=True)
class RunHistory:
    """The last run times of a group, the newest first, and the total number of runs."""

    recent_seconds: tuple[int, ...]
    runs: int


Histories: TypeAlias = Mapping[str, RunHistory]
"""By name of the group."""


@lru_cache(maxsize=10_000)
def name_pattern(name: str) -> str:
    """A job's name without what changes from run to run: `train-v2-8f3a91c` and `train-v3-04bd77e` are `train-v#`."""
    words = ["#" if _HASH.fullmatch(word) else _DIGITS.sub("#", word) for word in _SEPARATORS.split(name)]
    return _REPEATED.sub("#", "-".join(words))


def groups_of(tenant_id: UUID, stored: Mapping[str, Any]) -> Groups:
    """The groups of a job, by its tenant and stored spec; 32 hex digits each."""
    pods = repr([[pod_set.get(part) for part in ASKED] for pod_set in stored["pod_sets"]])
    pattern = name_pattern(stored["name"])
    # run times relative to the slowest model are comparable only between jobs with the same ratios
    told: list[object] = [ratios(stored["throughput"])] if stored.get("throughput") else []
    # likewise relative to the fewest pods
    told += [("elastic", stored["elastic"]["min_count"])] if stored.get("elastic") else []
    return Groups(
        _digest("job", tenant_id, pattern, pods, *told),
        _digest("name", tenant_id, pattern, *told),
        _digest("pods", tenant_id, pods, *told),
    )


def _digest(*parts: object) -> str:
    return blake2s("\0".join(map(str, parts)).encode(), digest_size=16).hexdigest()


def predict(groups: Groups, histories: Histories) -> Runtime | None:
    """The prediction from runs of the groups; None without runs."""
    known = {level: histories[key] for level, key in zip(Groups._fields, groups, strict=True) if key in histories}
    if not known:
        return None
    basis = next(iter(known))
    found: Quantiles | None = None
    for level in ("pods", "name", "job"):
        if level in known and (level != "pods" or basis == "pods"):
            found = _pooled(known[level].recent_seconds, found)
    if found is None:
        return None
    low, middle, high = (round(exp(one)) for one in found)
    return Runtime(low, middle, high, known[basis].runs, basis)


def _pooled(recent: Sequence[int], wider: Quantiles | None) -> Quantiles:
    """The group's quantiles, pulled towards the wider group's; the fewer runs it has, the more."""
    own = quantiles(recent)
    if wider is None:
        wider, weight = (own[1] - log(FACTOR), own[1], own[1] + log(FACTOR)), WEIGHT_OF_NO_MORE
    else:
        weight = WEIGHT_OF_WIDER
    count = min(len(recent), MOST_KEPT)
    low, middle, high = ((count * o + weight * w) / (count + weight) for o, w in zip(own, wider, strict=True))
    return low, middle, high


def quantiles(recent: Sequence[int]) -> Quantiles:
    """Weighted quantiles of the runs, the newest first. Each is the run time of one run, so that no outlier moves it
    far.
    """
    logs = [log(min(max(1, seconds), LONGEST_SECONDS)) for seconds in recent[:MOST_KEPT]]
    weighed = sorted((value, 0.5 ** (age / HALF_LIFE)) for age, value in enumerate(logs))
    total = sum(weight for _, weight in weighed)
    low, middle, high = (_quantile(weighed, part * total) for part in QUANTILES)
    return low, middle, high


def _quantile(weighed: Sequence[tuple[float, float]], target: float) -> float:
    passed = accumulate(weight for _, weight in weighed)
    return next(value for (value, _), so_far in zip(weighed, passed, strict=True) if so_far >= target)


def runtime_of(job: JobRequest, runtimes: Mapping[str, Runtime], pace: float = 1.0) -> Runtime | None:
    """The job's run time by `best_known`, with the history of its kind."""
    return best_known(runtimes.get(job.kind), job.estimated_seconds, job.deadline_seconds, pace)


def best_known(
    history: Runtime | None, estimated_seconds: int | None, deadline_seconds: int | None, pace: float = 1.0
) -> Runtime | None:
    """History of the job's name if there is any, else the user's estimate, else the history of its pods, never beyond
    the deadline; None if nothing is known. The user's estimate is better evidence than other jobs with equally many
    GPUs.

    `pace` is the hours that an hour of its work takes where it runs.
    """
    is_vague = history is None or history.basis == "pods"
    found = by_estimate(estimated_seconds) if is_vague and estimated_seconds is not None else history
    if found is None:
        return None
    found = paced(found, pace)
    return found if deadline_seconds is None else capped(found, deadline_seconds)


def by_estimate(seconds: int) -> Runtime:
    """The interval for a user's estimate."""
    return Runtime(round(seconds / FACTOR), seconds, round(seconds * FACTOR), 0, "estimate")


def capped(runtime: Runtime, deadline_seconds: int) -> Runtime:
    """The interval cut at the deadline, at which a run is stopped."""
    low, middle, high = (
        min(seconds, deadline_seconds) for seconds in (runtime.p10_seconds, runtime.p50_seconds, runtime.p90_seconds)
    )
    return Runtime(low, middle, high, runtime.runs, runtime.basis)


def longest_seconds(job: JobRequest, runtimes: Mapping[str, Runtime]) -> int | None:
    """The job's pessimistic run time: its 90 % quantile, else its deadline; None if it has neither."""
    known = runtime_of(job, runtimes)
    return job.deadline_seconds if known is None else known.p90_seconds


def expected_end(started_at: datetime, now: datetime, runtime: Runtime | None) -> datetime | None:
    """When a run that has not ended is expected to end: at its median, after that at its 90 % quantile; after both,
    None.
    """
    if runtime is None:
        return None
    ends = (started_at + timedelta(seconds=seconds) for seconds in (runtime.p50_seconds, runtime.p90_seconds))
    return next((end for end in ends if end > now), None)


def runtime_text(runtime: Runtime) -> str:
    """The text for users: `usually 34-52 min, from 41 runs`."""
    low, high = runtime.p10_seconds, runtime.p90_seconds
    if runtime.basis == "estimate":
        return f"about {rough_text(runtime.p50_seconds)}, by the job's estimate"
    runs = "1 run" if runtime.runs == 1 else f"{runtime.runs} runs"
    alike = {"job": "", "name": " of the same name", "pods": " with the same pods"}[runtime.basis]
    return f"usually {_span(low, high)}, from {runs}{alike}"


_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def _span(low: int, high: int) -> str:
    size, unit = next((one for one in _UNITS if high >= 2 * one[0]), _UNITS[-1])
    first, last = round(low / size), round(high / size)
    if not first and low:
        return f"{rough_text(low)} to {last} {unit}"
    return f"{last} {unit}" if first == last else f"{first}–{last} {unit}"


def rough_text(seconds: int) -> str:
    """A duration in the largest unit of which it has at least two."""
    size, unit = next((one for one in _UNITS if seconds >= 2 * one[0]), _UNITS[-1])
    return f"{round(seconds / size)} {unit}"
