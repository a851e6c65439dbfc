"""The jobs of a campaign, when each is sent, whether it is cancelled, and what is lied about it: drawn before it begins.

Arrivals, sizes and durations are a trace's, in any format of `simulator.traces`, compressed in time and cut to the small fleet.
Without a trace they are drawn: bursts of arrivals, many short runs and few long ones, one GPU most often.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import zstandard

from simulator.traces import read_trace
from tests.faults.proxy import STATUSES, Lie
from tests.journeys.workload import job

from .schedule import Planned

LONGEST_SECONDS = 30
USUAL_SECONDS = 15
"""Nine of ten jobs run no longer."""
PROBE_SECONDS = 2
CANCELS = 0.1
LIED_ABOUT = 0.6
"""The share of the jobs that are sent while clusters lie."""
REPLIES = (*STATUSES, "lost", "late", "repeated", "cut")
SIZES = ((None, 1), (1, 1), (2, 1), (2, 2), (2, 4))
"""GPUs of a pod (None: it has none) and pods: what 0, 1, 2, 4 and more GPUs become on the small fleet."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A job: when it is sent (seconds after the beginning), what, and how soon after its acceptance it is cancelled."""

    at: float
    tag: str
    spec: dict[str, Any]
    cancel_after: float | None = None
    lie: Lie | None = None
    lied_by: Planned | None = None
    """The fault of the schedule to which the lie belongs."""


@dataclass(frozen=True, slots=True)
class Shape:
    """An arrival of a trace: seconds since the first one, how long it runs, how many GPUs it takes in all."""

    at: float
    seconds: float
    gpus: int


PROBE = "probe"


def probe(number: int, cluster: str) -> Wanted:
    """The job that is sent when a fault is healed, to the cluster that it hit, if it hit one."""
    tag = f"{PROBE}-{uuid4().hex[:8]}-{number}"
    spec: dict[str, Any] = job(tag, gpu={"count": 1}, seconds=PROBE_SECONDS)
    if cluster:
        spec["constraints"] = {"clusters": [cluster]}
    return Wanted(0.0, tag, spec)


def is_probe(tag: str) -> bool:
    """Whether the job of this tag is one of those."""
    return tag.startswith(PROBE)


def jobs(shapes: Sequence[Shape], seed: int, seconds: float, schedule: Sequence[Planned]) -> list[Wanted]:
    """All jobs of a campaign, over which the shapes' arrivals are stretched, in order."""
    chance = random.Random(f"{seed}/jobs")
    lies = [planned for planned in schedule if planned.fault == "F2"]
    pace = seconds / (shapes[-1].at - shapes[0].at or 1.0)
    usual = sorted(shape.seconds for shape in shapes)[len(shapes) * 9 // 10] or 1.0
    found = []
    for number, shape in enumerate(shapes):
        at = (shape.at - shapes[0].at) * pace
        tag = f"campaign-{seed}-{number}"
        found.append(_job(chance, at, tag, shape, usual, next((p for p in lies if p.at <= at <= p.until), None)))
    return found


def _job(chance: random.Random, at: float, tag: str, shape: Shape, usual: float, lied_by: Planned | None) -> Wanted:
    runs = max(1, min(LONGEST_SECONDS, round(shape.seconds / usual * USUAL_SECONDS)))
    gpus, count = SIZES[min(len(SIZES) - 1, shape.gpus.bit_length())]
    spec: dict[str, Any] = job(tag, count=count, gpu={"count": gpus} if gpus else None, seconds=runs)
    cancel = chance.choice([0.0, chance.uniform(0, 20)]) if chance.random() < CANCELS else None
    if lied_by is None or chance.random() > LIED_ABOUT:
        return Wanted(at, tag, spec, cancel)
    spec["pod_sets"][0]["image"] = f"registry.example/job:{tag}"
    reply = chance.choice(REPLIES)
    return Wanted(
        at, tag, spec, cancel, Lie(lied_by.target, reply, reply == "repeated" or chance.random() < 0.5), lied_by
    )


def from_trace(path: Path, count: int) -> list[Shape]:
    """The first `count` jobs of a trace that run at all. The file may be compressed with zstd."""
    raw = path.read_bytes()
    text = zstandard.ZstdDecompressor().stream_reader(raw).read() if path.suffix == ".zst" else raw
    found = [
        Shape(one.submitted, one.seconds, one.pods * one.gpus)
        for one in read_trace(path.name, text.decode())
        if one.seconds
    ]
    if len(found) < 2:
        raise ValueError(f"{path}: fewer than two of its jobs have a duration")
    # A trace of fewer jobs than are wanted is repeated.
    span = found[-1].at + found[-1].at / len(found)
    return [
        Shape(
            found[n % len(found)].at + n // len(found) * span, found[n % len(found)].seconds, found[n % len(found)].gpus
        )
        for n in range(count)
    ]


def drawn(seed: int, count: int) -> list[Shape]:
    """What a trace would have, from a seed."""
    chance = random.Random(f"{seed}/shapes")
    at, found = 0.0, []
    for _ in range(count):
        at += chance.lognormvariate(0, 1.2)
        gpus = chance.choices([0, 1, 2, 4, 8], [15, 55, 15, 10, 5])[0]
        found.append(Shape(at, chance.lognormvariate(6, 1.5), gpus))
    return found
