"""Kueue's fair sharing, as its documentation describes it, as a division to compare with.

A queue's share is the largest part, over resources, of what it borrows (holds beyond its nominal quota) in what the cohort could
lend, divided by its weight. Each round takes the first job of every queue; the one whose queue would have the least share with it
goes first, then the one that has waited longest relative to its run time. A job that does not fit is passed over, and its queue's next job
is considered in the next round (BestEffortFIFO). What was used in the past does not count, and nothing is stopped for others, which is
the default (`reclaimWithinCohort: Never`). Nominal quotas are parts of the fleet by weight, and all of them can be lent.

The order within a queue is that of response ratio, and jobs are placed as `easy_backfill` places them, without its reservation. So only the division
differs from that.
"""

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence

from simulator.backfill import Desk
from simulator.gateways import Choice, Known
from simulator.queues import RatioOrder
from simulator.values import WHOLE, TraceJob
from simulator.world import Layout

RESOURCES = 3


class KueueDivision:
    """The gateway."""

    name = "kueue_division"

    def __init__(self, weights: Mapping[str, float]) -> None:
        self._weights = weights
        self._order = RatioOrder()

    def choose(self, queue: Sequence[tuple[int, TraceJob]], known: Known, now: float) -> list[Choice]:
        """The jobs that start now."""
        desk = Desk(known, self._order, now)
        waiting: dict[str, deque[tuple[int, int, TraceJob]]] = defaultdict(deque)
        for place, (number, job) in enumerate(self._order.ordered(queue, known, now)):
            waiting[job.tenant].append((place, number, job))
        held: dict[str, list[int]] = defaultdict(lambda: [0] * RESOURCES)
        for jobs in known.running:
            for run in jobs.values():
                _add(held[run.job.tenant], run.job)
        whole = _capacities(known.layout)
        while waiting:
            heads = {tenant: own.popleft() for tenant, own in waiting.items()}
            while heads:
                tenant = min(heads, key=lambda one: (self._share(one, held[one], heads[one][2], whole), heads[one][0]))
                _, number, job = heads.pop(tenant)
                if desk.start(number, job, None):
                    _add(held[tenant], job)
            waiting = defaultdict(deque, {tenant: own for tenant, own in waiting.items() if own})
        return desk.choices

    def _share(self, tenant: str, held: Sequence[int], job: TraceJob, capacities: Sequence[int]) -> float:
        """The weighted share of a queue with this job."""
        weight, whole = self._weights.get(tenant, 1.0), sum(self._weights.values())
        with_it = zip(held, _amounts(job), capacities, strict=True)
        borrowed = [max(0.0, (own + more) / most - weight / whole) for own, more, most in with_it if most]
        return max(borrowed, default=0.0) / weight


def _amounts(job: TraceJob) -> tuple[int, int, int]:
    return job.milli, job.pods * job.cpu_millicores, job.pods * job.memory_mib


def _capacities(layout: Layout) -> tuple[int, int, int]:
    return layout.capacity * WHOLE, int(layout.cpu.sum()), int(layout.memory.sum())


def _add(held: list[int], job: TraceJob) -> None:
    for place, amount in enumerate(_amounts(job)):
        held[place] += amount
