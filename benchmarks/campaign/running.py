"""One campaign on a gateway that stands already: schedule and load from a seed, the faults, the judgement."""

import json
import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.proxy import Mischief
from tests.faults.stand import FaultRun, Stand

from .clients import Clients
from .conductor import Conductor
from .judging import Outcome, conclude
from .load import Shape, drawn, jobs
from .sampling import Sampler
from .schedule import plan
from .stage import Stage
from .talk import say

ANSWERED_SECONDS = 600
PACE_SECONDS = 8.0
JOBS_A_SECOND = 0.7
PROGRESS_SECONDS = 15.0
LIMITS = {"gpu": "400", "cpu": "4000"}
"""More than the fleet has: every job takes and ends a hold, and none waits for it."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked of a campaign. `pace`: seconds between the beginnings of two faults; `rate`: jobs a second."""

    seconds: float
    seed: int
    pace: float = PACE_SECONDS
    rate: float = JOBS_A_SECOND
    without: Collection[str] = ()
    shapes: Sequence[Shape] = ()
    """The trace; drawn from the seed if there is none."""


@dataclass(frozen=True, slots=True)
class Ground:
    """Where it takes place."""

    stand: Stand
    mischief: Mischief
    skews: Path
    metrics_port: int = 0


@dataclass
class Progress:
    """A line now and then."""

    clients: Clients
    said_at: float = field(default=-PROGRESS_SECONDS)

    def tell(self, conductor: Conductor, elapsed: float) -> None:
        """Called often."""
        if elapsed - self.said_at < PROGRESS_SECONDS:
            return
        self.said_at = elapsed
        done = sum(one.healed_at is not None for one in conductor.happened)
        standing = ", ".join(one.planned.fault for one, _ in conductor.standing.values()) or "nothing"
        say(
            f"{elapsed:6.0f} s: {len(self.clients.run.acked)} jobs accepted, {self.clients.open_jobs} open;"
            f" {done} of {len(conductor.happened)} faults; broken now: {standing}"
        )


def carry_out(ground: Ground, wish: Wish) -> Outcome:
    """Prints the schedule, carries it out and judges it."""
    stand = ground.stand
    schedule = plan(wish.seed, wish.seconds, wish.pace, wish.without)
    say(f"campaign: seed {wish.seed}, {wish.seconds:g} s, {len(schedule)} faults")
    for planned in schedule:
        say(f"  {planned}")
    count = max(2, round(wish.seconds * wish.rate))
    wanted = jobs(list(wish.shapes)[:count] or drawn(wish.seed, count), wish.seed, wish.seconds, schedule)
    ground.mischief.lies.update({one.tag: one.lie for one in wanted if one.lie is not None})
    for resource, nominal in LIMITS.items():
        body = {"tenant": "acme/research", "resource": resource, "nominal": nominal}
        stand.gateway.request("PUT", "/quotas", json=body).raise_for_status()
    clients = Clients(FaultRun(stand.gateway), wanted)
    stage = Stage(stand, ground.mischief, ground.skews, clients, random.Random(f"{wish.seed}/picks"))
    sampler = Sampler(stand, clients, ground.metrics_port)
    conductor = Conductor(stage, schedule, Progress(clients).tell)
    clients.start()
    sampler.start()
    try:
        conductor.go_on(wish.seconds)
    finally:
        for proxy in stand.proxies.values():  # one that was being broken when something failed has no undo
            proxy.heal()
    say("everything is healed; waiting for what is under way")
    clients.send_all(ANSWERED_SECONDS)
    outcome = conclude(stage, conductor.happened, sampler)
    report(outcome, clients)
    return outcome


def report(outcome: Outcome, clients: Clients) -> None:
    """What was found, for people."""
    for slope in outcome.slopes:
        if slope.rise > slope.bound.rise / 2:
            say(f"  figure: {slope}")
    for what, sentences in (("estimated", outcome.verdict.estimated), ("doubled", outcome.verdict.doubled)):
        for sentence in sentences:
            say(f"  {what}, which is allowed: {sentence}")
    say(f"{clients.held_back} times a job was held back, because enough were open")
    for finding in outcome.findings:
        say(f"FOUND {finding}")
    say(f"campaign: {json.dumps(outcome.figures)}")
