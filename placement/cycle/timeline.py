"""Looks ahead: when will waiting jobs have room, if running jobs end as expected?

The timeline starts with the fleet as a cycle leaves it, and gives back the room of expected ends in the order of time.
After each step it considers the waiting jobs in queue order, as a cycle does. A job that fits takes its room, and
gives it back at its own end if its run time is known. It ignores what cannot be predicted: runs without history or
estimate, quota, nodes that fail. So a result is an expectation, and no result means unknown. Ends within one minute
are one step.
"""

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import count
from typing import NamedTuple
from uuid import UUID

import numpy as np

from placement.fleet.amounts import portion_of
from placement.fleet.fleet import Fleet
from placement.fleet.fleet_state import FleetState
from placement.fleet.pools import CPU, MEMORY, PODS, RESOURCES, UNITS, Ints, Mask
from placement.fleet.siting import Site
from placement.ranking.candidates import Ask, ask_of
from placement.ranking.contest import Viewpoint
from placement.ranking.runtimes import rough_text
from placement.ranking.strategies import price_terms
from placement.values.decisions import Placement, Start
from placement.values.model import JobRequest, Release

MOST_INSTANTS = 500
"""The number of steps to look ahead; nothing is expected beyond them."""
STEP = timedelta(minutes=1)


class Candidate(NamedTuple):
    """One way to place a job, with its number among those of its ask."""

    ask: Ask
    number: int
    cluster: int


class _Gift(NamedTuple):
    """What comes free on one node of a pool."""

    cluster: int
    pool: int
    node: int
    amounts: Ints


class Timeline:
    """The fleet from now on. It owns `state` and changes it as time passes. Ends within one `step` count as equal."""

    def __init__(
        self, state: FleetState, releases: Iterable[Release], now: datetime, step: timedelta = timedelta(0)
    ) -> None:
        self.fleet: Fleet = state.fleet
        self.state = state
        self.now = now
        self._step = step
        self._given: set[tuple[int, int]] = set()
        """Nodes of pools on which room has become free."""
        self._numbers = {cluster.id: number for number, cluster in enumerate(self.fleet.clusters)}
        self._pool_of = {(int(self.fleet.cluster_of_pool[n]), p.flavor.name): n for n, p in enumerate(self.fleet.pools)}
        self._positions: dict[int, dict[str, int]] = {}
        self._order = count()
        self._coming = [(_whole_step(one.at, now, step), next(self._order), one) for one in releases if one.at > now]
        heapq.heapify(self._coming)
        self._instants = 0

    def step(self) -> tuple[datetime, frozenset[int]] | None:
        """Advances to the next time at which room becomes free. Returns the time and the clusters, or None at the
        end.
        """
        if not self._coming or self._instants >= MOST_INSTANTS:
            return None
        self._instants += 1
        at = self._coming[0][0]
        touched: set[int] = set()
        while self._coming and self._coming[0][0] == at:
            for gift in self._gifts(heapq.heappop(self._coming)[2]):
                self._receive(gift)
                touched.add(gift.cluster)
        self.now = at
        return at, frozenset(touched)

    def _gifts(self, release: Release) -> Iterable[_Gift]:
        """What the release gives back, on nodes that still exist and may be used."""
        cluster = self._numbers.get(release.cluster_id)
        pool = None if cluster is None else self._pool_of.get((cluster, release.flavor))
        if cluster is None or pool is None:
            return
        resources = self.fleet.resources
        each = np.zeros(len(RESOURCES) + len(resources), dtype=np.int64)
        each[[UNITS, CPU, MEMORY, PODS]] = release.units, release.cpu_millicores, release.memory_mib, 1
        for name, amount in release.resources:
            if name in resources:
                each[len(RESOURCES) + resources.index(name)] = amount
        positions = self._positions_in(pool)
        is_open = self.fleet.pools[pool].is_open
        for name, pods in release.nodes.items():
            node = positions.get(name)
            if node is not None and is_open[node]:
                yield _Gift(cluster, pool, node, each * pods)

    def _positions_in(self, pool: int) -> Mapping[str, int]:
        found = self._positions.get(pool)
        if found is None:
            names = self.fleet.pools[pool].node_names
            found = self._positions[pool] = {name: position for position, name in enumerate(names)}
        return found

    def _receive(self, gift: _Gift) -> None:
        """Gives back on the node in its own pool, and what pods share in the node's other pools."""
        state = self.state.pool(gift.pool)
        if gift.node in state.hidden or gift.node in state.closed:
            return
        shared = gift.amounts.copy()
        shared[UNITS] = 0
        self._give(gift.pool, gift.node, gift.amounts if state.devices is None else shared)
        for flavor, position in state.pool.siblings.get(gift.node, ()):
            self._give(self._pool_of[gift.cluster, flavor], position, shared)

    def _give(self, pool: int, node: int, amounts: Ints) -> None:
        self._given.add((pool, node))
        state = self.state.pool(pool)
        state.give_back(node, amounts)
        self.state.bounds[:, pool] = np.maximum(self.state.bounds[:, pool], state.free[:, node])

    def later(self, release: Release) -> None:
        """Adds a run that begins and ends within the timeline."""
        heapq.heappush(self._coming, (_whole_step(release.at, self.now, self._step), next(self._order), release))

    def start_of(self, candidate: Candidate, sites: Sequence[Site]) -> Start:
        """The start of a job that is placed there now, as users see it."""
        pools = candidate.ask.pools[candidate.number].tolist()
        places = {(pool, node) for pool, site in zip(pools, sites, strict=True) for node, _ in site.pods}
        cluster = self.fleet.clusters[candidate.cluster].name
        return Start(self.now, cluster, len(places), len(places & self._given))


def _whole_step(at: datetime, now: datetime, step: timedelta) -> datetime:
    """The end of the step after `now` that contains the time."""
    return now + step * -((now - at) // step) if step else at


class Seeker:
    """A waiting job with every place that could hold it when empty, ranked from the viewpoint of its contest."""

    def __init__(self, job: JobRequest, fleet: Fleet, viewpoint: Viewpoint, largest: Ints | None = None) -> None:
        self.job, self.fleet = job, fleet
        self.ask = ask_of(fleet, job.pod_sets, job.topology, fleet.largest_capacity if largest is None else largest)
        self.allowed: Mask = viewpoint.allowed(self.ask, job.constraints, fleet)
        self.cluster_of: Ints = fleet.cluster_of_pool[self.ask.lead]
        price = price_terms(viewpoint.weights, self.ask, self.allowed, viewpoint.work)
        self._work, self._pulling = viewpoint.work, viewpoint.pulling
        allowed = np.flatnonzero(self.allowed)
        self.ranked: list[int] = allowed[np.argsort(price[allowed], kind="stable")].tolist()

    def pace(self, candidate: Candidate) -> float:
        """How long an hour of the job's work takes there."""
        return 1.0 if self._work is None else self._work.pace(self.ask, candidate.number)

    def pull_seconds(self, candidate: Candidate) -> int:
        """How long the job's pods wait for their images there, as far as that is known."""
        pull = None if self._pulling is None else self._pulling.at(self.ask.pools[candidate.number].tolist())
        return 0 if pull is None else pull.seconds

    def fit(self, state: FleetState, clusters: frozenset[int]) -> tuple[Candidate, list[Site]] | None:
        """The cheapest place on one of the clusters that holds the job now."""
        for number in self.ranked:
            cluster = int(self.cluster_of[number])
            if cluster not in clusters:
                continue
            sites = state.site(self.ask.pools[number].tolist(), self.ask.needs(number))
            if sites is not None:
                return Candidate(self.ask, number, cluster), sites
        return None


def take(state: FleetState, candidate: Candidate, sites: Sequence[Site]) -> None:
    """Deducts a job from the state."""
    pools, needs = candidate.ask.pools[candidate.number].tolist(), candidate.ask.needs(candidate.number)
    for pool, need, found in zip(pools, needs, sites, strict=True):
        state.take(pool, need, found)


def release_of(placement: Placement, job: JobRequest, fleet: Fleet, at: datetime) -> list[Release]:
    """What a job that was placed gives back at a time."""
    cluster = next(one for one in fleet.clusters if one.id == placement.cluster_id)
    found = []
    for pod_set, placed in zip(job.pod_sets, placement.pod_sets, strict=True):
        units, _ = portion_of(pod_set.gpu, cluster.flavors[placed.flavor]) or (0, 0)
        cpu, memory, others = pod_set.cpu_millicores, pod_set.memory_mib, pod_set.resources
        found.append(Release(at, cluster.id, placed.flavor, units, cpu, memory, placed.nodes, others))
    return found


def releases_of(fleet: Fleet, candidate: Candidate, sites: Sequence[Site], at: datetime) -> list[Release]:
    """What a job that is placed there gives back at a time."""
    ask, number = candidate.ask, candidate.number
    found = []
    parts = zip(ask.pools[number].tolist(), ask.needs(number), sites, ask.pod_sets, strict=True)
    for pool, need, site, asked in parts:
        names = fleet.pools[pool].node_names
        nodes = {names[node]: pods for node, pods in site.pods}
        cluster, flavor = fleet.clusters[candidate.cluster].id, fleet.pools[pool].flavor.name
        cpu, memory = need.cpu_millicores, need.memory_mib
        found.append(Release(at, cluster, flavor, need.units, cpu, memory, nodes, asked.resources))
    return found


def first_fit(timeline: Timeline, seeker: Seeker) -> tuple[Candidate, list[Site]] | None:
    """Advances to the first time at which the job has room. Returns the place, or None if it never has."""
    while (instant := timeline.step()) is not None:
        fit = seeker.fit(timeline.state, instant[1])
        if fit is not None:
            return fit
    return None


class Waiting:
    """The waiting jobs in queue order; each takes its room when it becomes free.

    `seconds_of` returns the run time of a job at a pace (the hours that an hour of its work takes), or None if unknown:
    then the job keeps its room until the end of the timeline.
    """

    def __init__(self, seekers: Iterable[Seeker], seconds_of: Callable[[JobRequest, float], int | None]) -> None:
        self._left = {seeker.job.id: seeker for seeker in seekers}
        self._seconds_of = seconds_of
        self.starts: dict[UUID, Start] = {}
        """The expected starts by job, as far as they are known."""

    @property
    def is_over(self) -> bool:
        """Whether all jobs have been placed."""
        return not self._left

    def place(self, timeline: Timeline, touched: frozenset[int]) -> None:
        """Places the jobs that fit on clusters where room has become free."""
        futile: set[object] = set()
        for job_id, seeker in list(self._left.items()):
            job = seeker.job
            shape = (job.pod_sets, job.topology, job.constraints, job.tenant_path)
            fit = None if shape in futile else seeker.fit(timeline.state, touched)
            if fit is None:
                futile.add(shape)
                continue
            self.starts[job_id] = replace(timeline.start_of(*fit), pull_seconds=seeker.pull_seconds(fit[0]))
            del self._left[job_id]
            take(timeline.state, *fit)
            seconds = self._seconds_of(job, seeker.pace(fit[0]))
            if seconds is not None:
                for release in releases_of(timeline.fleet, *fit, timeline.now + timedelta(seconds=seconds)):
                    timeline.later(release)


def starts(timeline: Timeline, waiting: Waiting) -> Mapping[UUID, Start]:
    """When each waiting job is expected to start; jobs whose start is unknown are missing."""
    while not waiting.is_over and (instant := timeline.step()) is not None:
        waiting.place(timeline, instant[1])
    return waiting.starts


def later_fits(
    timeline: Timeline, ahead: Waiting, seeker: Seeker, clusters: set[int]
) -> list[tuple[Start, Candidate, list[Site]]]:
    """When each of these clusters would first have room for one more job, behind those that wait; the soonest first."""
    found = []
    left = clusters & set(seeker.cluster_of[seeker.allowed].tolist())
    while left and (instant := timeline.step()) is not None:
        ahead.place(timeline, instant[1])
        for cluster in sorted(left & instant[1]):
            fit = seeker.fit(timeline.state, frozenset([cluster]))
            if fit is not None:
                found.append((timeline.start_of(*fit), *fit))
                left.discard(cluster)
    return found


def start_text(start: Start, now: datetime) -> str:
    """`room is expected about 14:20 UTC on c1: 3 of its 8 nodes are held by jobs ending by then`."""
    held = (
        f"{start.awaited} of its {start.nodes} nodes are" if start.nodes > 1 else "the node it would take is"
    ) + " held by jobs that should end by then"
    pull = f"; pulling its image then takes about {rough_text(start.pull_seconds)}" if start.pull_seconds else ""
    return f"room is expected about {instant_text(start.at, now)} on {start.cluster}: {held}{pull}"


def instant_text(at: datetime, now: datetime) -> str:
    """A time as text, with its date if that is not today."""
    return f"{at:%H:%M} UTC" if at.date() == now.date() else f"{at:%d %b %H:%M} UTC"
