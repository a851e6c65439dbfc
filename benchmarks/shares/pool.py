"""The same jobs in one pool in which any GPU is as good as any other: what is left of a replay without places, quota and kept room.

It decides in its own way, apart from `kept_estimates`, which is judged here. So it shows which figures of the replays come from the order of
turns alone, and takes a tenth of a second, so that many traces, users and seeds can be tried.

    ratio          the engine's order without shares: all jobs by response ratio
    least_share    the tenant with the least share by weight goes next, each with its own jobs by response ratio
    below_part     jobs that keep their tenant within its fair part first, then the others, each by response ratio: the smallest change of
                   the order that still serves first those who lack something (and those who state short estimates, before other tenants)
"""

import heapq
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, stdev
from typing import Any, TypeAlias

from benchmarks.report import percentile
from placement.ranking.kept_estimates import SHORTEST_SECONDS, Kept, added, counted, factor_of
from simulator.values import WHOLE, TraceJob

from .division import fair_shares, is_contended, shortfall
from .world import DEALT, LIARS, LIE_SECONDS, USERS, dealt, estimated

TRACES = ("trace1", "trace2", "trace4")
"""Those of the liars' part."""
LOAD = 0.8
"""The offered share of the pool's time there."""
MOST_JOBS = 1500
DEALINGS = (0.0, 0.37, 0.71)
"""Where the dealing of jobs to tenants begins."""
SPREAD_SECONDS = 7200.0
"""By how much seeds shift submissions."""


@dataclass
class Pool:
    """A pool at one time."""

    gpus: float
    weights: Mapping[str, float]
    now: float = 0.0
    held: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    records: dict[str, Kept] = field(default_factory=dict)

    def ratio(self, job: TraceJob) -> float:
        """Waiting time by believed run time."""
        record = self.records.get(job.stater)
        believed = max(SHORTEST_SECONDS, job.estimated_seconds or 0) * (1.0 if record is None else factor_of(record))
        return (self.now - job.submitted) / believed


Order: TypeAlias = Callable[[Sequence[TraceJob], Pool], Iterator[TraceJob]]
"""Waiting jobs in the order in which they are considered; what it gave has started, or not, when it is asked for the next."""


def ratio(waiting: Sequence[TraceJob], pool: Pool) -> Iterator[TraceJob]:
    """See the module."""
    yield from sorted(waiting, key=lambda job: (-pool.ratio(job), job.submitted, job.name))


def least_share(waiting: Sequence[TraceJob], pool: Pool) -> Iterator[TraceJob]:
    """See the module."""
    own: dict[str, list[TraceJob]] = defaultdict(list)
    for job in ratio(waiting, pool):
        own[job.tenant].append(job)
    while own:
        tenant = min(own, key=lambda one: (pool.held[one] / pool.weights.get(one, 1.0), one))
        yield own[tenant].pop(0)
        if not own[tenant]:
            del own[tenant]


def below_part(waiting: Sequence[TraceJob], pool: Pool) -> Iterator[TraceJob]:
    """See the module."""
    fair = fair_shares(wants_of(waiting, pool), pool.weights)
    later = []
    for job in ratio(waiting, pool):
        if (pool.held[job.tenant] + gpus_of(job)) / pool.gpus <= fair[job.tenant] + 1e-9:
            yield job
        else:
            later.append(job)
    yield from later


ORDERS: Mapping[str, Order] = {"ratio": ratio, "least_share": least_share, "below_part": below_part}


def gpus_of(job: TraceJob) -> float:
    """What it holds."""
    return job.milli / WHOLE


def wants_of(waiting: Iterable[TraceJob], pool: Pool) -> dict[str, tuple[float]]:
    """By tenant, the part of the pool that its running and waiting jobs ask for."""
    found = defaultdict(float, pool.held)
    for job in waiting:
        found[job.tenant] += gpus_of(job)
    return {tenant: (amount / pool.gpus,) for tenant, amount in found.items()}


@dataclass
class Outcome:
    """The wait of each job by name and submission, and what tenants lacked while they wanted more than there is."""

    waits: dict[TraceJob, float] = field(default_factory=dict)
    lacking: float = 0.0
    contended: float = 0.0

    @property
    def share_error(self) -> float:
        """As in `watching`."""
        return self.lacking / max(1.0, self.contended)


def play(jobs: Sequence[TraceJob], gpus: float, order: Order, weights: Mapping[str, float]) -> Outcome:
    """The jobs through the pool."""
    coming = sorted(jobs, key=lambda job: (job.submitted, job.name), reverse=True)
    pool, found, free = Pool(gpus, weights), Outcome(), gpus
    waiting: list[TraceJob] = []
    ends: list[tuple[float, int, TraceJob]] = []
    until = coming[0].submitted
    while coming or ends:
        before = pool.now
        pool.now = min([job.submitted for job in coming[-1:]] + [at for at, _, _ in ends[:1]])
        _count(found, waiting, pool, min(pool.now, until) - before)
        while coming and coming[-1].submitted <= pool.now:
            waiting.append(coming.pop())
        while ends and ends[0][0] <= pool.now:
            job = heapq.heappop(ends)[2]
            free += gpus_of(job)
            pool.held[job.tenant] -= gpus_of(job)
            run = counted(job.estimated_seconds or 0, job.seconds or 0.0, is_success=True)
            if run is not None:
                pool.records[job.stater] = added(pool.records.get(job.stater), run)
        for job in order(tuple(waiting), pool):
            if gpus_of(job) <= free:
                free -= gpus_of(job)
                pool.held[job.tenant] += gpus_of(job)
                waiting.remove(job)
                found.waits[job] = pool.now - job.submitted
                heapq.heappush(ends, (pool.now + (job.seconds or 0.0), len(found.waits), job))
    return found


def _count(found: Outcome, waiting: Sequence[TraceJob], pool: Pool, seconds: float) -> None:
    wants = wants_of(waiting, pool) if waiting and seconds > 0 else {}
    if wants and is_contended(wants):
        fair = fair_shares(wants, pool.weights)
        held = {tenant: amount / pool.gpus for tenant, amount in pool.held.items()}
        found.lacking += seconds * shortfall(held, fair)
        found.contended += seconds


def compare_orders(jobs: Sequence[TraceJob], gpus: int) -> list[dict[str, Any]]:
    """What shares cost where no place matters, with several dealings of jobs to tenants."""
    weights = {tenant: weight for tenant, (weight, _) in DEALT.items()}
    rows = []
    for begins in DEALINGS:
        own = [replace(job, tenant=dealt(number, begins)) for number, job in enumerate(jobs)]
        for name, order in ORDERS.items():
            found = play(estimated(own, "long"), gpus, order, weights)
            waits = list(found.waits.values())
            rows.append(
                {
                    "dealing": f"{begins:.2f}",
                    "order": name,
                    "share_error": f"{found.share_error:.4f}",
                    "mean_wait_s": round(fmean(waits)),
                    "p95_wait_s": round(percentile(waits, 0.95)),
                }
            )
    return rows


def compare_liars(traces: Mapping[str, Sequence[TraceJob]], seeds: int, load: float = LOAD) -> list[dict[str, Any]]:
    """What it brings three of twenty users of one tenant to state a minute for everything: the changes of waits in percent, means over
    seeds of who lies, with their standard errors.
    """
    rows = []
    for name, jobs in traces.items():
        changes: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for seed in range(seeds):
            for what, before, after in _liars(jobs[:MOST_JOBS], load, seed):
                changes[what].append((before, after))
        rows.append({"trace": name, "seeds": seeds} | {what: _change(own) for what, own in changes.items()})
    return rows


def _change(pairs: Sequence[tuple[float, float]]) -> str:
    base = max(1.0, fmean(before for before, _ in pairs))
    more = [after - before for before, after in pairs]
    error = stdev(more) / len(more) ** 0.5 if len(more) > 1 else 0.0
    return f"{100 * fmean(more) / base:+.1f} ± {100 * error / base:.1f}"


def _liars(jobs: Sequence[TraceJob], load: float, seed: int) -> Iterator[tuple[str, float, float]]:
    draw = random.Random(seed)
    work = sum(gpus_of(job) * (job.seconds or 0.0) for job in jobs)
    span = max(job.submitted for job in jobs) - min(job.submitted for job in jobs)
    gpus = max(*map(gpus_of, jobs), work / max(1.0, span) / load)
    honest = [
        replace(job, tenant="org/t", user=f"u{draw.randrange(USERS):02d}", submitted=job.submitted + draw.uniform(0, SPREAD_SECONDS))
        for job in estimated(jobs, "true")
    ]  # fmt: skip
    liars = {f"u{number:02d}" for number in draw.sample(range(USERS), LIARS)}
    lies = [replace(job, estimated_seconds=LIE_SECONDS) if job.user in liars else job for job in honest]
    before, after = (play(own, gpus, ratio, {}).waits for own in (honest, lies))
    for who in (False, True):
        waits = [[wait for job, wait in own.items() if (job.user in liars) == who] for own in (before, after)]
        name = "liars" if who else "honest"
        yield f"{name} mean", fmean(waits[0]), fmean(waits[1])
        yield f"{name} p95", percentile(waits[0], 0.95), percentile(waits[1], 0.95)
