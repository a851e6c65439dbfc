"""The gateways that choose a job's cluster: the engine itself, or a plain rule as a comparison. All get the same input.

    switchyard        the engine's own cycle, with one strategy for all jobs
    fifo_first_fit    the first cluster with room for the job; no job overtakes
    cheapest_first    the cheapest cluster that holds the job; what does not fit is passed over
    emptiest_first    the cluster with the largest free share of GPUs that holds the job; what does not fit is passed over

The plain rules have the engine's knowledge: what is free on every node, and how each cluster's own scheduler fills it.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Protocol
from uuid import UUID

import numpy as np

from placement.cycle.cycle import run as run_cycle
from placement.cycle.ordering import by_response_ratio
from placement.fleet.fleet import FleetIndex
from placement.fleet.pools import Ints
from placement.ranking.interruptions import are_interrupted
from placement.ranking.kept_estimates import as_kept
from placement.ranking.runtimes import Groups, best_known, expected_end
from placement.values.decisions import Placement
from placement.values.model import (
    FleetCluster,
    FleetFlavor,
    FleetNode,
    GpuRequest,
    JobRequest,
    PodSetRequest,
    Release,
    Runtime,
    Snapshot,
    Topology,
)
from placement.values.nodes import NodeResources, fleet_node

from .consolidating import ConsolidationRule, Consolidator
from .experience import Experience, groups_of, kind_of
from .holding import KeptRooms
from .members import settle
from .reclaiming import Reclaimer
from .shares import USUAL, FairShareRule, PastUses
from .values import EPOCH, WHOLE, Machine, TraceJob
from .world import Layout, Shelves


@dataclass(frozen=True, slots=True)
class Running:
    """A job in a cluster: the node of each pod, and its start; None if its start has not been seen."""

    job: TraceJob
    nodes: tuple[int, ...]
    started: float | None


class Known:
    """The gateway's knowledge: the assumed free capacity, and the current prices."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.shelves = Shelves(layout)
        self.versions: Ints = np.zeros(len(layout.machines), dtype=np.int64)
        """Per node, increased with every change."""
        self.prices: list[dict[str, Decimal]] = [dict(plan.prices) for plan in layout.plans]
        self.running: list[dict[int, Running]] = [{} for _ in layout.plans]
        """By cluster, its dispatched jobs without a reported end, by number."""
        self.experience = Experience()

    def price(self, cluster: int, flavor: str) -> Decimal | None:
        """The current hourly price of a unit."""
        return self.prices[cluster].get(flavor)


@dataclass(frozen=True, slots=True)
class Choice:
    """A job's cluster, the nodes that the gateway assumes (one entry per pod), and whether the cluster gets them as
    hints.
    """

    number: int
    cluster: int
    assumed: tuple[int, ...]
    is_hinted: bool = False
    is_pinned: bool = False
    """Whether its pods must land on the hinted nodes."""


@dataclass(frozen=True, slots=True)
class Move:
    """A running job that stops now and waits again, so that a larger one fits."""

    number: int


class Gateway(Protocol):
    """Decides on the queue, which is in order of priority and submission; jobs by their numbers."""

    name: str

    def choose(self, queue: Sequence[tuple[int, TraceJob]], known: Known, now: float) -> Sequence[Choice | Move]: ...


class EngineGateway:
    """The product's cycle."""

    name = "switchyard"

    def __init__(
        self,
        strategy: str = "balanced",
        topology: Topology | None = None,
        patience_seconds: int | None = None,
        order: str = "ratio",
        fair_share: FairShareRule | None = USUAL,
        consolidation: ConsolidationRule | None = None,
    ) -> None:
        self.consolidator = None if consolidation is None else Consolidator(consolidation)
        self._stoppers: list[Consolidator | Reclaimer] = [] if self.consolidator is None else [self.consolidator]
        self._order = order
        self._uses = None if fair_share is None else PastUses(fair_share)
        self._strategy = strategy
        self._topology = topology or Topology()
        self._patience_seconds = patience_seconds
        self._index = FleetIndex()
        self._requests: dict[int, JobRequest] = {}
        self._groups: dict[int, Groups] = {}
        self._view: _View | None = None
        self._kept = KeptRooms()

    def with_quota(self, reclaimer: Reclaimer) -> "EngineGateway":
        """The same gateway; it takes lent quota back from now on."""
        self._stoppers.append(reclaimer)
        return self

    def choose(self, queue: Sequence[tuple[int, TraceJob]], known: Known, now: float) -> list[Choice | Move]:
        if self._view is None:
            self._view = _View(known, is_divisible=False)
        for number, job in queue:
            if number not in self._requests:
                self._groups[number] = groups_of(job)
                self._requests[number] = self._request(number, job)
                if job.gpu_milli < WHOLE and not self._view.is_divisible:
                    self._view = _View(known, is_divisible=True)
        snapshot = self._snapshot(queue, known, now)
        decisions, final = run_cycle(snapshot, self._index)
        placements = decisions.placements
        self._kept.record(decisions.kept, snapshot.now)
        if self._uses is not None:
            jobs = dict(queue)
            self._uses.hold(jobs[placement.job_id.int] for placement in placements)
            self._uses.keep((jobs[one.job_id.int].tenant, one.idle) for one in decisions.kept)
        chosen: list[Choice | Move] = [self._choice(placement, known) for placement in placements]
        for stopper in self._stoppers:
            chosen += [Move(number) for number in stopper.decide(snapshot, final, decisions.waits)]
        return chosen

    def _snapshot(self, queue: Sequence[tuple[int, TraceJob]], known: Known, now: float) -> Snapshot:
        """The input of the cycle."""
        assert self._view is not None
        at = EPOCH + timedelta(seconds=now)
        requests = tuple(as_kept([self._requests[number] for number, _ in queue], known.experience.exceeded()))
        runtimes = self._runtimes(queue, known)
        if self._order == "ratio":
            requests = by_response_ratio(requests, runtimes, at)
        snapshot = self._kept.given(Snapshot(at, self._view.clusters(), requests))
        if self._uses is not None:
            running = (run.job for jobs in known.running for run in jobs.values())
            snapshot = replace(snapshot, fair_share=self._uses.shares(running, now))
        if self._patience_seconds is not None:
            snapshot = replace(snapshot, patience_seconds=self._patience_seconds)
        since = at - timedelta(seconds=snapshot.patience_seconds)
        # as on the gateway: only then do a cycle's decisions depend on time
        if any(job.submitted_at is not None and job.submitted_at < since for job in requests) or are_interrupted(
            snapshot.clusters
        ):
            snapshot = replace(snapshot, runtimes=runtimes, releases=self._releases(known, at))
        for stopper in self._stoppers:
            snapshot = stopper.given(snapshot, self._movable(known), self._requests, known.layout)
        return snapshot

    @staticmethod
    def _movable(known: Known) -> Iterator[tuple[int, int, TraceJob, tuple[int, ...], float]]:
        for cluster, jobs in enumerate(known.running):
            for number, run in jobs.items():
                if run.started is not None:
                    yield number, cluster, run.job, run.nodes, run.started

    def _runtimes(self, queue: Sequence[tuple[int, TraceJob]], known: Known) -> dict[str, Runtime]:
        """The run times of waiting jobs learned from the runs so far, by kind."""
        groups = {self._groups[number] for number, _ in queue}
        found = ((kind_of(one), known.experience.of(one)) for one in groups)
        return {kind: runtime for kind, runtime in found if runtime is not None}

    def _releases(self, known: Known, at: datetime) -> tuple[Release, ...]:
        """When running jobs are expected to end; jobs without a seen start count from now."""
        found, exceeded = [], known.experience.exceeded()
        for cluster, jobs in enumerate(known.running):
            for number, run in jobs.items():
                job = run.job
                [request] = as_kept([self._requests[number]], exceeded)
                runtime = best_known(known.experience.of(self._groups[number]), request.estimated_seconds, None)
                started = at if run.started is None else EPOCH + timedelta(seconds=run.started)
                end = expected_end(started, at, runtime)
                if end is not None:
                    machines = [known.layout.machines[node] for node in run.nodes]
                    nodes = Counter(machine.name for machine in machines)
                    found.append(
                        Release(end, UUID(int=cluster), machines[0].flavor, job.gpus, job.cpu_millicores, job.memory_mib, nodes)
                    )  # fmt: skip
        return tuple(found)

    def _request(self, number: int, job: TraceJob) -> JobRequest:
        gpu = GpuRequest(job.gpus, job.models, "", job.gpu_milli % WHOLE) if job.gpus else None
        pod_set = PodSetRequest("worker", job.pods, job.cpu_millicores, job.memory_mib, gpu)
        return JobRequest(
            id=UUID(int=number),
            tenant_path=job.tenant,
            shape=f"{job.pods}x{job.gpus}x{job.gpu_milli}:{job.cpu_millicores}:{job.memory_mib}:{job.models}:{job.priority}",
            pod_sets=(pod_set,),
            priority=job.priority,
            submitted_at=EPOCH + timedelta(seconds=job.submitted),
            topology=self._topology,
            strategy=self._strategy,
            estimated_seconds=job.estimated_seconds,
            checkpoint_seconds=job.checkpoint_seconds,
            kind=kind_of(self._groups[number]),
            stated_by=job.stater,
        )

    def _choice(self, placement: Placement, known: Known) -> Choice:
        cluster = placement.cluster_id.int
        numbers = known.layout.number
        (pod_set,) = placement.pod_sets
        assumed = [numbers[cluster, name] for name, pods in pod_set.nodes.items() for _ in range(pods)]
        is_pinned = self._topology.mode == "required"
        hints = known.layout.plans[cluster].hints
        return Choice(placement.job_id.int, cluster, tuple(assumed), hints or is_pinned, is_pinned)


class _View:
    """The gateway's knowledge as the engine's values; unchanged parts are the identical objects."""

    def __init__(self, known: Known, *, is_divisible: bool) -> None:
        self.is_divisible = is_divisible
        self._known = known
        layout = known.layout
        self._seen: Ints = np.full(len(layout.machines), -1, dtype=np.int64)
        self._nodes: list[FleetNode | None] = [None] * len(layout.machines)
        self._clusters: list[FleetCluster | None] = [None] * len(layout.plans)
        self._prices: list[dict[str, Decimal]] = [{} for _ in layout.plans]

    def clusters(self) -> tuple[FleetCluster, ...]:
        known, layout = self._known, self._known.layout
        changed = np.flatnonzero(known.versions != self._seen)
        for number in changed.tolist():
            self._nodes[number] = self._node(number)
        self._seen[changed] = known.versions[changed]
        stale = set(layout.cluster[changed].tolist())
        for number in range(len(layout.plans)):
            if number in stale or self._clusters[number] is None or self._prices[number] != known.prices[number]:
                self._clusters[number] = self._cluster(number)
        return tuple(cluster for cluster in self._clusters if cluster is not None)

    def _cluster(self, number: int) -> FleetCluster:
        layout, plan = self._known.layout, self._known.layout.plans[number]
        self._prices[number] = dict(self._known.prices[number])
        kinds: dict[str, Machine] = {}
        for machine in plan.machines:
            kinds.setdefault(machine.flavor, machine)
        return FleetCluster(
            id=UUID(int=number),
            name=plan.name,
            owner_path="",
            region=plan.region,
            state="ready",
            flavors={name: self._flavor(number, machine) for name, machine in kinds.items()},
            nodes=tuple(node for node in self._nodes[layout.slice(number)] if node is not None),
            fills="spread" if plan.member == "spread" and not plan.hints else "hinted",
        )

    def _flavor(self, cluster: int, machine: Machine) -> FleetFlavor:
        sharing = "divisible" if self.is_divisible and machine.model else "whole"
        price = self._known.price(cluster, machine.flavor)
        vendor = "nvidia" if machine.model else ""
        rate = self._known.layout.plans[cluster].interruptions.get(machine.flavor, 0.0)
        return FleetFlavor(
            machine.flavor, vendor, machine.model, 0, sharing, machine.capacity_type, price, interruptions_per_hour=rate
        )

    def _node(self, number: int) -> FleetNode:
        machine, shelves = self._known.layout.machines[number], self._known.shelves
        devices = shelves.devices[number, : machine.gpus]
        parts = {machine.flavor: tuple(devices.tolist())} if self.is_divisible and machine.gpus else {}
        total = NodeResources(machine.pods, machine.cpu_millicores, machine.memory_mib, {machine.flavor: machine.gpus})
        used = NodeResources(
            pods=machine.pods - int(shelves.pods[number]),
            cpu_millicores=machine.cpu_millicores - int(shelves.cpu[number]),
            memory_mib=machine.memory_mib - int(shelves.memory[number]),
            units={machine.flavor: int((devices != WHOLE).sum())},
        )
        return fleet_node(
            machine.name,
            total,
            used,
            domain=machine.domain,
            clique=machine.clique,
            why_unusable="not ready" if shelves.is_down[number] else "",
            device_free_milli=parts,
        )


Rank = Callable[[Known, Shelves, int], object]
"""Orders clusters for a plain gateway; the lowest is tried first."""


class PlainGateway:
    """Sends each job to the first cluster by `rank` that holds it. A blocking one never lets a job overtake another."""

    def __init__(self, name: str, rank: Rank, *, is_blocking: bool) -> None:
        self.name = name
        self._rank = rank
        self._is_blocking = is_blocking

    def choose(self, queue: Sequence[tuple[int, TraceJob]], known: Known, now: float) -> list[Choice]:
        del now
        trial = Shelves(known.layout)
        trial.copy_cluster(known.shelves, slice(0, len(known.layout.machines)))
        choices: list[Choice] = []
        hopeless: set[object] = set()
        for number, job in queue:
            kind = (job.pods, job.gpus, job.gpu_milli, job.cpu_millicores, job.memory_mib, job.models)
            choice = None if kind in hopeless else self._choice(number, job, known, trial)
            if choice is not None:
                choices.append(choice)
                continue
            hopeless.add(kind)
            if self._is_blocking:
                break
        return choices

    def _choice(self, number: int, job: TraceJob, known: Known, trial: Shelves) -> Choice | None:
        plans = known.layout.plans
        for cluster in sorted(range(len(plans)), key=lambda one: (self._rank(known, trial, one), one)):
            nodes = settle(trial, job, known.layout.slice(cluster), plans[cluster].member)
            if nodes is not None:
                for node in nodes:
                    trial.take(node, job, is_believed=True)
                return Choice(number, cluster, tuple(nodes))
        return None


def _price(known: Known, shelves: Shelves, cluster: int) -> object:
    del shelves
    return min(known.prices[cluster].values(), default=Decimal("Infinity"))


def _in_use(known: Known, shelves: Shelves, cluster: int) -> object:
    free = float(shelves.idle(known.layout.slice(cluster)).sum())
    return 1 - free / max(1, int(known.layout.gpus_of_cluster[cluster]))


def _in_order(known: Known, shelves: Shelves, cluster: int) -> object:
    del known, shelves
    return cluster


PLAIN: Mapping[str, tuple[Rank, bool]] = {
    "fifo_first_fit": (_in_order, True),
    "cheapest_first": (_price, False),
    "emptiest_first": (_in_use, False),
}
GATEWAYS = ("switchyard", *PLAIN)


def plain_gateway(name: str) -> PlainGateway:
    """The plain rule of this name."""
    rank, is_blocking = PLAIN[name]
    return PlainGateway(name, rank, is_blocking=is_blocking)
