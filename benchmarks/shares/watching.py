"""What every tenant holds and wants from decision to decision, and the share error of one replay.

**Share error** is what tenants lack of their fair share of the fleet, as a part of all fair shares: 0 if all tenants have
theirs, 1 if no tenant has anything. The fair share is the weighted max-min division (`division`) of the whole fleet over what tenants
could use at that moment, their running and waiting jobs. It is averaged over the time in which they want more of some resource than the
fleet has; at other times no share is at the expense of another. What is idle while jobs wait counts as lacking. `share_error`
compares moment by moment; `share_error_day` compares what a tenant had and should have had in each day together, so that what it lacks
in one hour can be made up in the next.

Only what runs and what waits is read, never a gateway's own figures, so it is the same measure for all. Every end and every submission
leads to a decision while jobs wait, so nothing changes unseen in that time.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from placement.fleet.pools import Floats
from simulator.gateways import Choice, Gateway, Known, Move
from simulator.values import WHOLE, TraceJob
from simulator.world import Layout

from .division import fair_shares, is_contended, shortfall

DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class Stretch:
    """A time without changes: the dominant share that each tenant holds, and the fair one; none if there is no contention."""

    start: float
    end: float
    held: Mapping[str, float]
    fair: Mapping[str, float]

    @property
    def seconds(self) -> float:
        return self.end - self.start


class Watched:
    """A gateway, and the shares of tenants under it while jobs wait, until the end of the figures' window."""

    def __init__(self, inner: Gateway, jobs: Sequence[TraceJob], weights: Mapping[str, float], layout: Layout) -> None:
        self.name = inner.name
        self._inner, self._weights = inner, weights
        ordered = sorted(jobs, key=lambda job: job.submitted)
        self._tenants = sorted({job.tenant for job in ordered})
        places = {tenant: place for place, tenant in enumerate(self._tenants)}
        self._place = np.array([places[job.tenant] for job in ordered])
        whole = (layout.capacity * WHOLE, int(layout.cpu.sum()), int(layout.memory.sum()))
        self._parts: Floats = np.array([_amounts(job) for job in ordered], dtype=np.float64) / np.maximum(1, whole)
        self._until = max(job.submitted for job in ordered)
        self._last: tuple[float, dict[str, float], dict[str, float]] | None = None
        self.stretches: list[Stretch] = []

    def choose(self, queue: Sequence[tuple[int, TraceJob]], known: Known, now: float) -> Sequence[Choice | Move]:
        """What the gateway chooses."""
        self._close(now)
        chosen = self._inner.choose(queue, known, now)
        placed = {one.number for one in chosen if isinstance(one, Choice)}
        stopped = {one.number for one in chosen if isinstance(one, Move)}
        running = [number for jobs in known.running for number in jobs if number not in stopped]
        held = self._sums([*running, *placed])
        wants = held + self._sums([*(number for number, _ in queue if number not in placed), *stopped])
        self._last = (now, *self._shares(held, wants))
        return chosen

    def _sums(self, numbers: Sequence[int]) -> Floats:
        found: Floats = np.zeros((len(self._tenants), self._parts.shape[1]))
        if numbers:
            np.add.at(found, self._place[numbers], self._parts[numbers])
        return found

    def _shares(self, held: Floats, wants: Floats) -> tuple[dict[str, float], dict[str, float]]:
        wanted = dict(zip(self._tenants, wants.tolist(), strict=True))
        if not is_contended(wanted):
            return {}, {}
        return dict(zip(self._tenants, held.max(axis=1).tolist(), strict=True)), fair_shares(wanted, self._weights)

    def _close(self, now: float) -> None:
        if self._last is not None:
            start, held, fair = self._last
            end = min(now, self._until)
            if fair and end > start:
                self.stretches.append(Stretch(start, end, held, fair))

    @property
    def contended(self) -> float:
        """The part of the window in which tenants want more than there is."""
        return sum(one.seconds for one in self.stretches) / max(1.0, self._until)

    def share_error(self) -> float:
        """Moment by moment; see the module."""
        seconds = sum(one.seconds for one in self.stretches)
        return sum(one.seconds * shortfall(one.held, one.fair) for one in self.stretches) / max(1.0, seconds)

    def share_error_day(self) -> float:
        """By day; see the module."""
        lacking = total = 0.0
        for held, fair in self._by_slot(DAY).values():
            lacking += shortfall(held, fair) * sum(fair.values())
            total += sum(fair.values())
        return lacking / max(1.0, total)

    def curve(self, samples: int = 120) -> list[tuple[float, float]]:
        """(end of the slot, share error of what tenants had in it together), over equal slots of time."""
        width = self._until / samples
        found = self._by_slot(width)
        return [((n + 1) * width, shortfall(*found[n]) if n in found else 0.0) for n in range(samples)]

    def received(self) -> dict[str, tuple[float, float]]:
        """By tenant the mean share that it held while there was contention, and the mean fair one."""
        held, fair = next(iter(self._by_slot(self._until + 1.0).values()), ({}, {}))
        seconds = max(1.0, sum(one.seconds for one in self.stretches))
        return {tenant: (held.get(tenant, 0.0) / seconds, fair.get(tenant, 0.0) / seconds) for tenant in self._tenants}

    def _by_slot(self, width: float) -> dict[int, tuple[dict[str, float], dict[str, float]]]:
        """What tenants held and should have held in each slot, in seconds of the whole fleet."""
        found: dict[int, tuple[dict[str, float], dict[str, float]]] = {}
        for one in self.stretches:
            at = one.start
            while at < one.end:
                slot = int(at / width)
                edge = min(one.end, (slot + 1) * width)
                if edge <= at:  # the next slot begins here, but for rounding
                    edge, slot = min(one.end, (slot + 2) * width), slot + 1
                sums = found.setdefault(slot, (defaultdict(float), defaultdict(float)))
                for own, shares in zip(sums, (one.held, one.fair), strict=True):
                    for tenant, share in shares.items():
                        own[tenant] += share * (edge - at)
                at = edge
        return found


def _amounts(job: TraceJob) -> tuple[int, int, int]:
    return job.milli, job.pods * job.cpu_millicores, job.pods * job.memory_mib
