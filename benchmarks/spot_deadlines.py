"""Jobs with deadlines that may run on spot capacity, at recorded prices: `make bench-spot-deadlines` (TRACES=folder).

For each job the engine decides where it starts (`placement.cycle`), and when it moves for its deadline or its price
(`placement.answers`), under every strategy that users may choose, as the gateway does: the trial of placement first, then the
decision. It knows the prices up to now, whether spot capacity is there now, how often it is taken away on average, and what
the job reports of its progress. The others:

    on_demand       the cheapest on-demand capacity from the start
    naive           the cheapest spot capacity; on-demand capacity when the time is just enough for what is left
    uniform         Uniform Progress of Wu et al., "Can't Be Late" (NSDI 2024), in the zone with the cheapest spot capacity
    without_price   `moves: when_needed`: moves for deadlines only (strategy cheapest)
    clairvoyant     the least possible cost for one that knows all prices and capacity (dynamic programming)
"""

import argparse
import os
import sys
import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from math import isnan
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np

from placement.answers import cheaper, in_time
from placement.answers.left_work import left_of
from placement.cycle.cycle import decide
from placement.fleet.fleet import FleetIndex
from placement.ranking.deadlines import MARGIN_SECONDS, START_SECONDS
from placement.ranking.runtimes import by_estimate
from placement.values.model import (
    FleetCluster,
    FleetFlavor,
    GpuRequest,
    JobRequest,
    PodSetRequest,
    PriceChange,
    Snapshot,
)
from placement.values.moving import SPOT, CourseOfRun, Side
from placement.values.nodes import NodeResources, fleet_node
from placement.values.strategies import STRATEGY_NAMES

from .report import conditions, last_line, table
from .spot_world import (
    EVERY,
    HOUR,
    STEP,
    Events,
    Place,
    Policy,
    Trip,
    Zone,
    cheapest,
    clairvoyant,
    jobs_in,
    read_events,
    travel,
    zones_of,
)

FILE = "aws_gpu_price_events_2022-12_2024-06.csv.zst"
REGION = "us-east-1"
INSTANCES = ("p3.8xlarge", "g5.12xlarge", "g4dn.12xlarge")
WORLDS: Mapping[str, tuple[float, float]] = {"steady": (24.0, 1.0), "scarce": (4.0, 2.0)}
"""How many hours spot capacity lasts in a zone, and is away, on average."""
LOOK = 900
"""Seconds between two looks for a cheaper place; the gateway looks every 15."""
PODS = (PodSetRequest("worker", 1, 1000, 1024, GpuRequest(1)),)
HISTORY = 30 * 24 * HOUR
KINDS = ("on-demand", "spot")


def instant(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


class Engine:
    """The product's decisions for one job. One unit of a flavor is the whole instance."""

    def __init__(self, per_hour: float, *, strategy: str, saves: bool = True) -> None:
        self._per_hour, self._strategy, self._saves = per_hour, strategy, saves
        self._index = FleetIndex()
        self._clusters: dict[tuple[int, float, float], FleetCluster] = {}

    def __call__(self, trip: Trip, zones: Sequence[Zone]) -> Place | None:
        """Where the job is to be."""
        if trip.place is None:
            return self._placed(trip, zones, self._strategy)
        if trip.starting:
            return trip.place
        here, course = self._side(zones, trip.place, trip.now, is_there=False), self._course(trip)
        now = instant(trip.now)
        if in_time.is_pressed(here, course, 1.0, now):
            there = self._placed(trip, zones, self._strategy)
            if there is not None and in_time.decide(here, self._side(zones, there, trip.now), course, now):
                return self._moved(trip, there, "deadline")
        if self._saves and (trip.now - trip.job.start) % LOOK < STEP and self._may_save(trip, zones, here, course):
            there = self._placed(trip, zones, "cheapest")
            if there is not None and cheaper.decide(PODS, here, self._side(zones, there, trip.now), course, now):
                return self._moved(trip, there, "price")
        return trip.place

    def _moved(self, trip: Trip, there: Place, cause: str) -> Place:
        trip.moves[cause].append(trip.now)
        return there

    def _may_save(self, trip: Trip, zones: Sequence[Zone], here: Side, course: CourseOfRun) -> bool:
        flavors = [flavor for cluster in self._fleet(zones, trip.now) for flavor in cluster.flavors.values()]
        return cheaper.may_be_cheaper(PODS, here, flavors, course, 1.0, instant(trip.now))

    def _placed(self, trip: Trip, zones: Sequence[Zone], strategy: str) -> Place | None:
        """The place that a round gives the job if it waits now."""
        now, job = instant(trip.now), trip.job
        request = JobRequest(
            id=UUID(int=job.number),
            tenant_path="acme",
            shape="",
            pod_sets=PODS,
            submitted_at=instant(job.start),
            strategy=strategy,
            estimated_seconds=job.work,
            checkpoint_seconds=EVERY,
            finish_within_seconds=round(job.finish - job.start),
            worked_seconds=round(trip.saved),
            moves="when_cheaper" if self._saves else "when_needed",
        )
        found = decide(Snapshot(now, self._fleet(zones, trip.now), (request,)), self._index).placements
        if not found:
            return None
        return Place(found[0].cluster_id.int, found[0].pod_sets[0].flavor == KINDS[1])

    def _fleet(self, zones: Sequence[Zone], at: float) -> tuple[FleetCluster, ...]:
        return tuple(self._cluster(number, zone, at) for number, zone in enumerate(zones))

    def _cluster(self, number: int, zone: Zone, at: float) -> FleetCluster:
        spot = zone.price(at, is_spot=True) if zone.has_spot(at) else 0.0
        key = number, spot, zone.price(at, is_spot=False)
        if key not in self._clusters:
            self._clusters[key] = self._made(number, zone, at)
        return self._clusters[key]

    def _made(self, number: int, zone: Zone, at: float) -> FleetCluster:
        """A node of each kind; that with spot capacity is in use while there is none."""
        flavors = [self._flavor(zone, at, is_spot=is_spot) for is_spot in (False, True)]
        nodes = []
        for flavor in flavors:
            whole, none = NodeResources(110, 96_000, 786_432, {flavor.name: 1}), NodeResources()
            is_used = flavor.capacity_type == SPOT and not zone.has_spot(at)
            nodes.append(fleet_node(flavor.name, whole, whole if is_used else none, domain=()))
        own = {flavor.name: flavor for flavor in flavors}
        return FleetCluster(UUID(int=number), zone.name, "acme", REGION, "ready", own, tuple(nodes))

    def _flavor(self, zone: Zone, at: float, *, is_spot: bool) -> FleetFlavor:
        kind, rate = ("spot", self._per_hour) if is_spot else ("on_demand", 0.0)
        price = zone.price(at, is_spot=is_spot)
        return FleetFlavor(
            KINDS[is_spot],
            "nvidia",
            "GPU",
            1,
            "whole",
            kind,
            unit_price=None if isnan(price) else _money(price),
            interruptions_per_hour=rate,
        )

    def _side(self, zones: Sequence[Zone], place: Place, at: float, *, is_there: bool = True) -> Side:
        zone = zones[place.zone]
        changes = _changes(zone.times, zone.spot if place.is_spot else zone.on_demand)
        first, last = (bisect_right(zone.times, when) for when in (at - HISTORY, at))
        flavor = replace(self._flavor(zone, at, is_spot=place.is_spot), price_changes=changes[first:last])
        return Side(UUID(int=place.zone), zone.name, (flavor,), away_seconds=START_SECONDS if is_there else 0)

    def _course(self, trip: Trip) -> CourseOfRun:
        job, saving, timely = trip.job, trip.moves["price"], trip.moves["deadline"]
        left = left_of(by_estimate(job.work), job.work, trip.done, trip.left)
        lately = [at for at in (*saving, *timely) if trip.now - at < 24 * HOUR]
        return CourseOfRun(
            lost_seconds=round(trip.done - trip.saved),
            least_left_seconds=left.least,
            most_left_seconds=left.most,
            exposed_seconds=EVERY,
            finish_by=instant(job.finish),
            moves_today=len(lately),
            saving_moves_today=sum(trip.now - at < 24 * HOUR for at in saving),
            last_moved_at=instant(max(lately)) if lately else None,
        )


_known: dict[int, tuple[PriceChange, ...]] = {}


def _changes(times: np.ndarray, prices: np.ndarray) -> tuple[PriceChange, ...]:
    """All recorded prices; none where there is none."""
    found = _known.get(id(prices))
    if found is None:
        pairs = zip(times.tolist(), prices.tolist(), strict=True)
        found = tuple(PriceChange(instant(when), None if isnan(price) else _money(price)) for when, price in pairs)
        _known[id(prices)] = found
    return found


def _money(price: float) -> Decimal:
    return Decimal(price).quantize(Decimal("0.000001"))


def on_demand(trip: Trip, zones: Sequence[Zone]) -> Place | None:
    return trip.place or cheapest(zones, trip.now, is_spot=False)


def naive(trip: Trip, zones: Sequence[Zone]) -> Place | None:
    if trip.place is not None and not trip.place.is_spot:
        return trip.place
    if trip.job.finish - trip.now <= START_SECONDS + trip.left + STEP:
        return cheapest(zones, trip.now, is_spot=False)
    return trip.place or cheapest(zones, trip.now, is_spot=True)


def uniform(trip: Trip, zones: Sequence[Zone]) -> Place | None:
    """On spot while there is some; else on demand while behind the line of uniform progress, and then until it is ahead of that by
    two starts; and from the last safe moment on to the end.
    """
    job, here = trip.job, trip.place
    if trip.slack() < START_SECONDS + EVERY + MARGIN_SECONDS:
        return here if here is not None and not here.is_spot else cheapest(zones, trip.now, is_spot=False)
    line = job.work * (trip.now - job.start) / (job.finish - job.start)
    spot = cheapest(zones, trip.now, is_spot=True)
    if here is not None and here.is_spot:
        return here
    if here is not None and (spot is None or trip.done < line + 2 * START_SECONDS):
        return here
    if spot is not None:
        return spot
    return cheapest(zones, trip.now, is_spot=False) if trip.done < line else None


def policies(per_hour: float) -> dict[str, Callable[[], Policy]]:
    return {
        "on_demand": lambda: on_demand,
        "naive": lambda: naive,
        "uniform": lambda: uniform,
        "without_price": partial(Engine, per_hour, strategy="cheapest", saves=False),
        **{name: partial(Engine, per_hour, strategy=name) for name in STRATEGY_NAMES},
    }


def compare(events: Events, world: str, count: int, seed: int) -> list[dict[str, Any]]:
    """A row for each policy over all jobs of all instance types."""
    up, down = WORLDS[world]
    sums: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for instance in INSTANCES:
        zones = zones_of(events, instance, up, down, seed)
        for job in jobs_in(zones, count):
            least = clairvoyant(job, zones)
            for name, make in policies(1 / up).items():
                _add(sums[name], travel(job, zones, make()), least)
            print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return [{"world": world, "policy": name, **_row(own)} for name, own in sums.items()]


def _add(own: dict[str, float], trip: Trip, least: float) -> None:
    own["jobs"] += 1
    own["cost"] += trip.cost
    own["least"] += least
    own["missed"] += trip.now > trip.job.finish
    own["taken"] += trip.taken
    for cause in ("price", "deadline"):
        own[cause] += len(trip.moves[cause])


def _row(own: Mapping[str, float]) -> dict[str, Any]:
    counts = {name: int(own[name]) for name in ("jobs", "missed", "taken", "price", "deadline")}
    return {"cost": round(own["cost"], 2), "times_clairvoyant": round(own["cost"] / own["least"], 4), **counts}


def figures(traces: Path, count: int, seed: int) -> dict[str, Any]:
    """Prints the tables, and returns what the last line says."""
    told: dict[str, Any] = {}
    events = read_events(traces / "prices" / FILE, INSTANCES, REGION)
    for world in WORLDS:
        began = time.process_time()
        rows = compare(events, world, count, seed)
        table([{**row, "times_clairvoyant": f"{row['times_clairvoyant']:.4f}"} for row in rows])
        print(f"{world}: {time.process_time() - began:.0f} s of CPU\n")
        told |= {
            f"{world}_{row['policy']}": {key: row[key] for key in ("cost", "times_clairvoyant", "missed")}
            for row in rows
        }
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    folder = Path(os.environ.get("TRACES", "../shared/traces"))
    parser.add_argument("--traces", type=Path, default=folder, help="also as TRACES=")
    parser.add_argument("--jobs", type=int, default=24, help="of each instance type (default 24)")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    conditions(
        region=REGION, instances=" ".join(INSTANCES), checkpoint=f"{EVERY} s", start=f"{START_SECONDS} s",
        hours_up_and_down=dict(WORLDS), egress="none: one region", seed=arguments.seed,
    )  # fmt: skip
    try:
        found = figures(arguments.traces, arguments.jobs, arguments.seed)
    except OSError as error:
        sys.exit(f"prices cannot be read: {error}")
    last_line(found)


if __name__ == "__main__":
    main()
