"""What is broken, when, where and for how long: all of it drawn from a seed before the campaign begins."""

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

CLUSTERS = ("east", "west", "north")
ROLES = ("web", "worker", "beat", "observer")
CLOCKS = ("gunicorn", "worker", "beat", "observer")
"""Roles as `tests/faults/skewed` knows them."""
STEPS = ("claimed", "created", "starting", "released")
CUTS = ("requests", "answers", "both")
SKEWS = ("-7200", "-60", "60", "7200")
QUIET_SECONDS = 15.0
"""Nothing is broken at the beginning, and nothing begins at the end."""
MOVES = 40
"""How often a fault looks for a later time when its server is broken already."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way in which a fault is made.

    `targets`: what it may hit, with `+` between the parts. `seconds`: the shortest and the longest time that it lasts; 0
    if it has happened when it is made. `breaks`: one thing at a time is broken of what has the same name here; empty if it may
    coincide with all others.
    """

    name: str
    targets: Sequence[str]
    seconds: tuple[float, float] = (0.0, 0.0)
    breaks: str = ""


def _each(*parts: Sequence[str]) -> tuple[str, ...]:
    found: tuple[str, ...] = ("",)
    for part in parts:
        found = tuple(f"{before}+{word}" if before else word for before in found for word in part)
    return found


FAULTS: Mapping[str, Sequence[Way]] = {
    "F1": (
        Way("a worker dies between two steps", STEPS, (20, 20)),
        Way("a role's processes are killed", ROLES),
    ),
    "F2": (Way("a cluster lies about what becomes of requests", ("create", "release", "delete"), (5, 20)),),
    "F3": (
        Way("a cluster is cut off", _each(CLUSTERS, CUTS), (1, 20), "servers"),
        Way("a cluster's network comes and goes", _each(CLUSTERS, CUTS), (5, 20), "servers"),
        Way("the database is cut off", CUTS, (1, 20), "servers"),
    ),
    "F4": (Way("a role's processes stand still", ROLES[1:], (1, 50)),),
    "F5": (
        Way("the database is killed", ("primary",), (0, 0), "servers"),
        Way("the replica is promoted", ("replica",), (0, 0), "servers"),
        Way("the database only reads", ("primary",), (1, 20), "servers"),
        Way("the database stands still", ("primary",), (5, 20), "servers"),
        Way("every connection is ended again and again", ("primary",), (3, 10), "servers"),
        Way("no connection is left", ("primary",), (3, 10), "servers"),
    ),
    "F6": (
        Way("the broker is emptied", ("valkey",)),
        Way("the broker is killed", ("valkey",)),
        Way("the broker stands still", ("valkey",), (3, 20)),
    ),
    "F7": (Way("messages are tripled, turned round and sent again later", ("valkey",), (4, 12)),),
    "F8": (
        Way("a process's clock is wrong", _each(CLOCKS, SKEWS), (5, 30), "clocks"),
        Way("a cluster's clock is wrong", _each(CLUSTERS, ("-7200", "7200")), (10, 30), "servers"),
    ),
    "F9": (Way("watches are spoiled", _each(CLUSTERS, ("gone", "junk", "stall", "lost")), (5, 30), "servers"),),
    "F10": (
        Way("an API server stands still", CLUSTERS, (1, 20), "servers"),
        Way("an API server is killed", CLUSTERS, (0, 0), "servers"),
        Way("etcd is killed", CLUSTERS, (0, 0), "servers"),
        Way("a Job is deleted by hand", CLUSTERS, (0, 0), "servers"),
        Way("a pod is evicted", CLUSTERS, (0, 0), "servers"),
    ),
    "F11": (
        Way("the next version's tables and messages are there", ("database",), (5, 20), "servers"),
        Way("a role's processes are replaced", ROLES),
    ),
    "F12": (Way("there are two of every process", ("all",), (20, 40), "processes"),),
}


@dataclass(frozen=True, slots=True)
class Planned:
    """One fault: seconds after the campaign's beginning, and how long it lasts."""

    at: float
    fault: str
    way: str
    target: str
    seconds: float

    @property
    def until(self) -> float:
        """When it is to be healed."""
        return self.at + self.seconds

    @property
    def cluster(self) -> str:
        """The cluster that it hits; empty if it hits none."""
        first = self.target.partition("+")[0]
        return first if first in CLUSTERS else ""

    def __str__(self) -> str:
        lasts = f" for {self.seconds:.1f} s" if self.seconds else ""
        return f"{self.at:8.1f} s  {self.fault:<4} {self.way} ({self.target}){lasts}"


def breaks(planned: Planned) -> str:
    """Of what it breaks, one thing at a time is broken."""
    return next(way.breaks for way in FAULTS[planned.fault] if way.name == planned.way)


def plan(seed: int, seconds: float, pace: float, without: Collection[str] = ()) -> list[Planned]:
    """The whole schedule, in order. About every `pace` seconds a fault begins.

    Every round has each fault once, in another order, so that a campaign of one round has them all. Raises ValueError
    if there is no time for one.
    """
    chance = random.Random(f"{seed}/schedule")
    wanted = [fault for fault in FAULTS if fault not in without]
    found: list[Planned] = []
    ways: dict[str, list[Way]] = {}
    at, end = QUIET_SECONDS, seconds - QUIET_SECONDS
    while at < end:
        for fault in chance.sample(wanted, len(wanted)):
            planned = _draw(chance, fault, ways, at, found)
            if planned.at < end:
                found.append(planned)
            at += chance.uniform(0.5, 2 * pace - 0.5)
            if at >= end:
                break
    if missing := set(wanted) - {planned.fault for planned in found}:
        raise ValueError(f"there is no time for {', '.join(sorted(missing))}: more minutes, or a faster pace")
    return sorted(found, key=lambda planned: planned.at)


def _draw(chance: random.Random, fault: str, ways: dict[str, list[Way]], at: float, others: list[Planned]) -> Planned:
    """Each way of a fault comes once before any comes again. A fault whose server is broken already comes later."""
    if not ways.get(fault):
        ways[fault] = chance.sample(FAULTS[fault], len(FAULTS[fault]))
    way = ways[fault].pop()
    seconds = round(chance.uniform(*way.seconds), 1)
    planned = Planned(round(at, 1), fault, way.name, chance.choice(way.targets), seconds)
    for _ in range(MOVES):
        later = [other.until for other in others if breaks(other) == way.breaks != "" and _overlap(planned, other)]
        if not later:
            break
        planned = Planned(round(max(later) + 1, 1), fault, way.name, planned.target, seconds)
    return planned


def _overlap(one: Planned, other: Planned) -> bool:
    return one.at <= other.until + 0.5 and other.at <= one.until + 0.5
