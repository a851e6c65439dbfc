"""A region's zones with on-demand and spot capacity at recorded prices, and jobs with deadlines in it: for `spot_deadlines`.

Prices are the recorded events. When spot capacity was taken away is not recorded, so each zone is given times with and without,
drawn with a seed: both are exponential. A job saves its work every `EVERY` seconds of work, loses what it did since then when it is
taken away or stopped, takes `START_SECONDS` for each start, and pays for each second that it holds a place.
"""

import csv
import io
import random
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import zstandard

from placement.answers.cheaper import STOP_SECONDS
from placement.ranking.deadlines import START_SECONDS

HOUR = 3600
EVERY = 900
"""Seconds of work between two checkpoints."""
STEP = 60
"""Seconds of a step of virtual time."""
GRID = 300
"""Seconds of a step of the clairvoyant: a start takes one."""
BOUND = float("inf")


class Place(NamedTuple):
    """A zone's spot or on-demand capacity."""

    zone: int
    is_spot: bool


@dataclass(frozen=True, slots=True)
class Zone:
    """Times are seconds. `spot` is NaN while there is no spot price."""

    name: str
    times: np.ndarray
    spot: np.ndarray
    on_demand: np.ndarray
    turns: np.ndarray
    """When spot capacity goes and returns, in turn; there is some before the first."""

    def price(self, at: float, *, is_spot: bool) -> float:
        """Of the whole instance for an hour."""
        number = max(0, bisect_right(self.times, at) - 1)
        return float((self.spot if is_spot else self.on_demand)[number])

    def has_spot(self, at: float) -> bool:
        """Whether spot capacity is there."""
        return bisect_right(self.turns, at) % 2 == 0 and not np.isnan(self.price(at, is_spot=True))


@dataclass(frozen=True, slots=True)
class DeadlineJob:
    """Times are seconds; `start` is that of its submission."""

    number: int
    start: float
    work: int
    finish: float


@dataclass(slots=True)
class Trip:
    """A job's way through its places."""

    job: DeadlineJob
    now: float
    place: Place | None = None
    done: float = 0.0
    saved: float = 0.0
    starting: float = 0.0
    cost: float = 0.0
    taken: int = 0
    moves: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    @property
    def left(self) -> float:
        """The work that is left if nothing is lost."""
        return self.job.work - self.done

    def slack(self) -> float:
        """The time left over if it starts on on-demand capacity now, from its last checkpoint."""
        return self.job.finish - self.now - START_SECONDS - (self.job.work - self.saved)


Policy: TypeAlias = Callable[[Trip, Sequence[Zone]], Place | None]
"""Where the job is to be in this step."""


def travel(job: DeadlineJob, zones: Sequence[Zone], policy: Policy) -> Trip:
    """The whole way of a job, whose `now` is its end."""
    trip = Trip(job, job.start)
    while trip.left > 0:
        if trip.place is not None and trip.place.is_spot and not zones[trip.place.zone].has_spot(trip.now):
            trip.place, trip.done, trip.taken = None, trip.saved, trip.taken + 1
        wanted = policy(trip, zones)
        if wanted != trip.place:
            if trip.place is not None:
                _pay(trip, zones, STOP_SECONDS)
                trip.now += STOP_SECONDS
            trip.place, trip.done, trip.starting = wanted, trip.saved, START_SECONDS
        _step(trip, zones)
    return trip


def _step(trip: Trip, zones: Sequence[Zone]) -> None:
    lasts = STEP if trip.place is None else min(STEP, trip.starting + trip.left)
    if trip.place is not None:
        _pay(trip, zones, lasts)
        trip.done += max(0.0, lasts - trip.starting)
        trip.starting = max(0.0, trip.starting - lasts)
        trip.saved = max(trip.saved, trip.done // EVERY * EVERY)
    trip.now += lasts


def _pay(trip: Trip, zones: Sequence[Zone], seconds: float) -> None:
    assert trip.place is not None
    trip.cost += zones[trip.place.zone].price(trip.now, is_spot=trip.place.is_spot) * seconds / HOUR


def cheapest(zones: Sequence[Zone], at: float, *, is_spot: bool) -> Place | None:
    """The cheapest place of the kind that is there."""
    known = [
        (zone.price(at, is_spot=is_spot), number)
        for number, zone in enumerate(zones)
        if not is_spot or zone.has_spot(at)
    ]
    return Place(min(known)[1], is_spot) if known else None


def clairvoyant(job: DeadlineJob, zones: Sequence[Zone]) -> float:
    """The least that the job can cost for one that knows all prices and capacity: it loses no work and stops in no time. By dynamic
    programming over time, work and place, backwards; in each step the lowest price and any capacity in it count, so it is a lower bound.
    """
    steps, units = int((job.finish - job.start) // GRID), job.work // GRID
    cost = _costs(job, zones, steps)
    places = cost.shape[1]
    best = np.full((units + 1, places + 1), BOUND)
    best[0] = 0.0
    for step in range(steps - 1, -1, -1):
        # the last column is being nowhere
        start = (cost[step] + best[:, :places]).min(axis=1)
        nowhere = np.minimum(start, best[:, places])
        found = np.repeat(nowhere[:, None], places + 1, axis=1)
        found[1:, :places] = np.minimum(found[1:, :places], cost[step] + best[:-1, :places])
        found[0] = 0.0
        best = found
    return float(best[units, places])


def _costs(job: DeadlineJob, zones: Sequence[Zone], steps: int) -> np.ndarray:
    """The cost of each step at each place: the zones' spot capacity, then their on-demand capacity."""
    instants = job.start + np.arange(steps)[:, None] * GRID + np.arange(0, GRID + 1, STEP)[None, :]
    columns = []
    for zone in zones:
        priced = np.maximum(0, np.searchsorted(zone.times, instants, side="right") - 1)
        is_there = np.searchsorted(zone.turns, instants, side="right") % 2 == 0
        spot = np.where(is_there & ~np.isnan(zone.spot[priced]), zone.spot[priced], BOUND).min(axis=1)
        columns.append((spot, zone.on_demand[priced].min(axis=1)))
    spots, others = zip(*columns, strict=True)
    return np.stack((*spots, *others), axis=1) * GRID / HOUR


Events: TypeAlias = dict[str, dict[str, list[tuple[int, float, float]]]]
"""By instance type and zone: time, spot and on-demand price."""


def read_events(path: Path, instances: Sequence[str], region: str) -> Events:
    """The recorded prices of these instance types in the region."""
    raw = zstandard.ZstdDecompressor().stream_reader(path.read_bytes()).read().decode()
    head, *lines = raw.splitlines()
    wanted = [line for line in lines if f",{region}," in line and any(f",{one}," in line for one in instances)]
    events: Events = {one: defaultdict(list) for one in instances}
    for row in csv.DictReader(io.StringIO("\n".join((head, *wanted)))):
        if row["on_demand_usd_h"]:
            spot = float(row["spot_usd_h"] or "nan")
            priced = int(row["unix_time"]), spot, float(row["on_demand_usd_h"])
            events[row["instance_type"]][row["zone_id"]].append(priced)
    return events


def zones_of(events: Events, instance: str, up: float, down: float, seed: int) -> list[Zone]:
    """The zones that have spot prices of the instance type. Spot capacity lasts `up` hours on average, and returns after `down`."""
    return [
        _zone(name, sorted(own), up, down, random.Random(f"{seed} {instance} {name}"))
        for name, own in sorted(events[instance].items())
        if any(not np.isnan(spot) for _, spot, _ in own)
    ]


def _zone(name: str, events: Sequence[tuple[int, float, float]], up: float, down: float, chance: random.Random) -> Zone:
    times, spot, on_demand = (np.array(column, dtype=np.float64) for column in zip(*events, strict=True))
    return Zone(name, times, spot, on_demand, np.array(list(_turns(times[0], times[-1], up, down, chance))))


def _turns(first: float, last: float, up: float, down: float, chance: random.Random) -> Iterator[float]:
    at = first
    while up and at < last:
        for hours in (up, down):
            at += chance.expovariate(1 / (hours * HOUR))
            yield at


def jobs_in(zones: Sequence[Zone], count: int) -> list[DeadlineJob]:
    """Jobs of 4 to 32 hours, with 1.2 to 2 times their work until their deadlines, spread over the recorded time."""
    first, last = max(zone.times[0] for zone in zones), min(zone.times[-1] for zone in zones)
    found = []
    for number in range(count):
        work = (4, 8, 16, 32)[number % 4] * HOUR
        share = (1.2, 1.5, 2.0)[number // 4 % 3]
        start = float(first + (last - first - 64 * HOUR) * (number * 0.6180339887 % 1) * 0.98 + 12 * HOUR)
        found.append(DeadlineJob(number, start, work, start + START_SECONDS + share * work))
    return found
