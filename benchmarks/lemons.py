"""GPU-hours lost to nodes that make jobs fail, with the gateway's failure rules and without: `make bench-lemons`.

A thousand jobs of twelve tenants in four departments arrive at a cluster of 100 nodes with 8 GPUs, in virtual time. Five
nodes are lemons: most jobs fail there, soon after their start or in the middle, and no node says so itself. Elsewhere few
jobs fail, and the programs of one tenant fail everywhere. The rules, the finder of lemons and its periods are the
gateway's own; placement is reduced to the fullest node that fits.

The jobs ask for nearly all GPUs: in a full cluster, a node on which jobs fail soon is the one that is free. Without the
rules, a failed job starts again as often, wherever there is room.
"""

import argparse
import heapq
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import mean

from benchmarks import report
from federation.engine.failures.diagnoses import History, judge_without_logs
from federation.engine.failures.facts import Facts, PodFacts
from federation.engine.failures.lemons import NodeRun, find_lemons
from federation.engine.failures.rules import Rule, RuleSet, Step, When
from federation.engine.retries import Cause

NODES, GPUS_A_NODE, LEMONS, JOBS = 100, 8, 5, 1000
SEEDS = tuple(range(1, 21))
ARRIVAL_SECONDS = 33.0
FAILS_ON_LEMON, FAILS_ELSEWHERE, BAD_PROGRAM = 0.8, 0.01, 0.5
FAST_SECONDS, FAST_SHARE = 120.0, 0.6
WEIGHED_EVERY, PERIOD, AVOIDED_FOR = 30.0, 24 * 3600.0, 12 * 3600.0
RETRIES = 5
TENANTS = tuple(f"acme/dept-{number % 4}/team-{number}" for number in range(12))
BAD_TENANT = TENANTS[0]
RULES = (
    RuleSet(
        "acme",
        (Rule("crash", When(exit_codes=((1, 255),)), step=Step.AGAIN_ELSEWHERE, retries=RETRIES, avoid="node", avoid_seconds=3600),),
    ),
)  # fmt: skip


@dataclass(slots=True)
class Job:
    number: int
    tenant: str
    gpus: int
    seconds: float
    retries: int = 0
    avoids: dict[str, float] = field(default_factory=dict)
    """Nodes, and until when it avoids them."""


@dataclass(slots=True)
class Figures:
    lost_gpu_hours: float = 0.0
    lost_on_lemons: float = 0.0
    useful_gpu_hours: float = 0.0
    failed_jobs: int = 0
    found: set[str] = field(default_factory=set)
    first_found_after_hours: float | None = None


class World:
    """One run in virtual time."""

    def __init__(self, seed: int, *, has_rules: bool) -> None:
        self.chance = random.Random(seed)
        self.has_rules = has_rules
        self.free = dict.fromkeys([f"n{number}" for number in range(NODES)], GPUS_A_NODE)
        self.lemons = set(self.chance.sample(sorted(self.free), LEMONS))
        self.avoided: dict[str, float] = {}
        self.cleared: dict[str, float] = {}
        self.runs: list[tuple[float, NodeRun]] = []
        self.queue: list[Job] = []
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.weighed = 0
        self.now = 0.0
        self.figures = Figures()
        self.outcomes = random.Random(f"{seed}/outcomes")

    def run(self) -> Figures:
        """Until the last job has ended."""
        at = 0.0
        for number in range(JOBS):
            at += self.chance.expovariate(1 / ARRIVAL_SECONDS)
            job = Job(
                number,
                self.chance.choice(TENANTS),
                self.chance.choice((1, 1, 2, 4, 8)),
                self.chance.uniform(600, 4 * 3600),
            )
            self._at(at, lambda job=job: self.queue.append(job))  # type: ignore[misc]
        if self.has_rules:
            self._at(WEIGHED_EVERY, self._weigh)
        while self.events:
            self.now, _, act = heapq.heappop(self.events)
            act()
            self._place()
        return self.figures

    def _at(self, at: float, act: Callable[[], None]) -> None:
        self._number = getattr(self, "_number", 0) + 1
        heapq.heappush(self.events, (at, self._number, act))

    def _place(self) -> None:
        waiting = []
        for job in self.queue:
            fitting = [node for node in self.free if self.free[node] >= job.gpus and self._may_use(job, node)]
            if not fitting:
                waiting.append(job)
                continue
            node = min(fitting, key=lambda node: (self.free[node], self.outcomes.random()))
            self.free[node] -= job.gpus
            self._start(job, node)
        self.queue = waiting

    def _may_use(self, job: Job, node: str) -> bool:
        return self.avoided.get(node, 0.0) <= self.now and job.avoids.get(node, 0.0) <= self.now

    def _start(self, job: Job, node: str) -> None:
        rate = FAILS_ON_LEMON if node in self.lemons else BAD_PROGRAM if job.tenant == BAD_TENANT else FAILS_ELSEWHERE
        fails = self.outcomes.random() < rate
        seconds = job.seconds
        if fails:
            is_fast = self.outcomes.random() < FAST_SHARE
            seconds = self.outcomes.uniform(1, FAST_SECONDS) if is_fast else self.outcomes.uniform(0, job.seconds)
        self._at(self.now + seconds, lambda: self._end(job, node, seconds, fails=fails))

    def _end(self, job: Job, node: str, seconds: float, *, fails: bool) -> None:
        self.free[node] += job.gpus
        hours = job.gpus * seconds / 3600
        is_blamed = fails and seconds < FAST_SECONDS
        run = NodeRun("c", node, str(job.number), job.tenant.split("/")[1], is_blamed)
        self.runs.append((self.now, run))
        if not fails:
            self.figures.useful_gpu_hours += hours
            return
        self.figures.lost_gpu_hours += hours
        self.figures.lost_on_lemons += hours if node in self.lemons else 0.0
        if self.has_rules:
            self._judge(job, node)
        elif job.retries < RETRIES:
            job.retries += 1
            self.queue.append(job)
        else:
            self.figures.failed_jobs += 1

    def _judge(self, job: Job, node: str) -> None:
        facts = Facts(Cause.PROGRAM, [PodFacts("p", "main", node, exit_code=1)])
        found = judge_without_logs(RULES, facts, History({"acme: crash": job.retries}))
        if not found.goes_on:
            self.figures.failed_jobs += 1
            return
        job.retries += 1
        job.avoids[found.node] = self.now + found.avoid_seconds
        self._at(self.now + found.wait_seconds, lambda: self.queue.append(job))

    def _weigh(self) -> None:
        since = self.now - PERIOD
        seen = [run for at, run in self.runs if at > max(since, self.cleared.get(run.node, 0.0))]
        for node, until in list(self.avoided.items()):
            if until <= self.now:
                self.cleared[node] = until
                del self.avoided[node]
        has_news, self.weighed = len(self.runs) > self.weighed, len(self.runs)
        for lemon in find_lemons(seen, {"c": NODES}) if has_news else ():
            if lemon.node not in self.avoided:
                self.avoided[lemon.node] = self.now + AVOIDED_FOR
                self.figures.found.add(lemon.node)
                self.figures.first_found_after_hours = self.figures.first_found_after_hours or self.now / 3600
        if self.events or self.queue:
            self._at(self.now + WEIGHED_EVERY, self._weigh)


def main() -> None:
    """Prints conditions, a table by seed, and one JSON object."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    report.conditions(
        nodes=NODES, gpus_a_node=GPUS_A_NODE, lemons=LEMONS, jobs=JOBS, tenants=len(TENANTS), seeds=len(SEEDS),
        fails_on_lemon=FAILS_ON_LEMON, fails_elsewhere=FAILS_ELSEWHERE, bad_tenant_fails=BAD_PROGRAM, retries=RETRIES,
    )  # fmt: skip
    rows, sums = [], defaultdict[str, list[float]](list)
    healthy: Counter[str] = Counter()
    for seed in SEEDS:
        plain, ruled = World(seed, has_rules=False).run(), World(seed, has_rules=True)
        figures = ruled.run()
        wrong = figures.found - ruled.lemons
        healthy["avoided"] += len(wrong)
        row = {
            "seed": seed,
            "lost_without_rules": round(plain.lost_gpu_hours, 1),
            "lost_with_rules": round(figures.lost_gpu_hours, 1),
            "on_lemons_without": round(plain.lost_on_lemons, 1),
            "on_lemons_with": round(figures.lost_on_lemons, 1),
            "failed_without_rules": plain.failed_jobs,
            "failed_with_rules": figures.failed_jobs,
            "lemons_found": len(figures.found & ruled.lemons),
            "healthy_avoided": len(wrong),
        }
        rows.append(row)
        for name, value in row.items():
            sums[name].append(value)
    report.table(rows)
    report.last_line(
        {
            "lost_gpu_hours_without_rules": round(mean(sums["lost_without_rules"]), 1),
            "lost_gpu_hours_with_rules": round(mean(sums["lost_with_rules"]), 1),
            "lost_on_lemons_without_rules": round(mean(sums["on_lemons_without"]), 1),
            "lost_on_lemons_with_rules": round(mean(sums["on_lemons_with"]), 1),
            "failed_jobs_without_rules": round(mean(sums["failed_without_rules"]), 1),
            "failed_jobs_with_rules": round(mean(sums["failed_with_rules"]), 1),
            "lemons": LEMONS,
            "lemons_found": round(mean(sums["lemons_found"]), 1),
            "healthy_nodes_avoided": healthy["avoided"],
        }
    )


if __name__ == "__main__":
    main()
