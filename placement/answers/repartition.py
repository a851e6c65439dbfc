"""Which nodes could be partitioned otherwise, so that jobs which wait for slices of GPUs start: a recommendation, never carried out here.

Jobs are considered in their order, each as a whole. Those that fit into free slices wait for something else and count nothing. A node is
named only if it could hold what is proposed, if nothing runs on it or the plan says that it has to be drained first, and if the work
that starts outweighs the time in which its GPUs do nothing.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from fractions import Fraction
from typing import TypeAlias
from uuid import UUID

from clusters.engine.gpu_share import gpu_per_unit
from clusters.engine.mig import Mix, holds, mix_of, most_of, profiles_of

STANDSTILL = timedelta(minutes=10)
"""How long the GPUs of a node do nothing while they are partitioned: its slices are taken away, and the device plugin finds the new ones."""
WHOLE = "whole"
MOST_TRIES = 100_000
"""Nodes looked into for a job and slices drawn, in all: further jobs are not considered."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A queued job whose pods all need slices of one profile, each on one node. `models` is empty if any will do."""

    job_id: UUID
    profile: str
    models: frozenset[str]
    slices_per_pod: int
    pods: int
    lasts: timedelta
    clusters: frozenset[UUID]
    """Where its tenant may run it."""

    @property
    def gpu_time(self) -> Fraction:
        """Its work in GPU-seconds."""
        return gpu_per_unit(f"mig:{self.profile}") * self.slices_per_pod * self.pods * int(self.lasts.total_seconds())


@dataclass(frozen=True, slots=True)
class Sliceable:
    """A node whose GPUs have slices, or could have. `slices` and `used` are by profile, with WHOLE for GPUs that have none."""

    cluster_id: UUID
    name: str
    model: str
    gpus: int
    slices: Mapping[str, int]
    used: Mapping[str, int]
    is_open: bool = True

    @property
    def key(self) -> tuple[UUID, str]:
        """Its cluster and its name, which no two nodes share."""
        return self.cluster_id, self.name

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs on its GPUs."""
        return not any(self.used.values())


@dataclass(frozen=True, slots=True)
class Proposal:
    """A node, the mix of each of its GPUs then, and the jobs that would start for it. `drains` if it has to be drained first."""

    node: Sliceable
    mixes: tuple[Mix, ...]
    job_ids: tuple[UUID, ...]
    drains: bool
    gained: Fraction
    """The work that starts there, in GPU-seconds."""
    cost: Fraction
    """What its GPUs do not do meanwhile, likewise."""


@dataclass(slots=True)
class _Drawn:
    """A node as it would be partitioned: the slices of each GPU that are planned so far."""

    node: Sliceable
    gpus: list[Counter[str]] = field(default_factory=list)
    jobs: dict[UUID, Fraction] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.gpus = self.gpus or [Counter() for _ in range(self.node.gpus)]

    def with_pod(self, profile: str, slices: int) -> "_Drawn | None":
        """With the slices of one more pod; None if they do not fit."""
        gpus = [Counter(gpu) for gpu in self.gpus]
        for _ in range(slices):
            for gpu in gpus:
                gpu[profile] += 1
                if holds(self.node.model, mix_of(gpu)):
                    break
                gpu[profile] -= 1
            else:
                return None
        return _Drawn(self.node, gpus, dict(self.jobs))


Drawing: TypeAlias = dict[tuple[UUID, str], _Drawn]
"""The nodes that would be partitioned, by their keys."""
Key = tuple[UUID, str, str]
"""A cluster, a model and a profile."""


def proposals(
    waiting: Sequence[Waiting], nodes: Sequence[Sliceable], recent: Mapping[Key, int]
) -> tuple[Proposal, ...]:
    """The recommendations, for idle nodes first. `recent` is how many slices were in use recently: as many remain."""
    drawn: Drawing = {}
    spare, tries = _spare(nodes, recent), _Tries(MOST_TRIES)
    candidates: dict[UUID, list[Sliceable]] = {}
    for node in sorted(nodes, key=lambda node: (not node.is_idle, sum(node.used.values()), node.name)):
        if node.is_open and node.gpus and profiles_of(node.model):
            candidates.setdefault(node.cluster_id, []).append(node)
    failed: dict[tuple[object, ...], int] = {}
    for job in _unmet(waiting, nodes):
        alike = job.profile, job.models, job.slices_per_pod, job.clusters
        if job.pods >= failed.get(alike, job.pods + 1):
            continue  # a smaller one like it found no room
        if not _try(job, candidates, drawn, spare, tries):
            failed[alike] = job.pods
    return tuple(_proposal(one) for group in _groups(drawn.values()) if _pays(group) for one in group)


def _groups(drawn: Iterable[_Drawn]) -> list[list[_Drawn]]:
    """The nodes that are needed together: those that share a job, directly or through others."""
    above: dict[UUID, UUID] = {}

    def top(job_id: UUID) -> UUID:
        while job_id in above:
            job_id = above[job_id]
        return job_id

    drawn = list(drawn)
    for one in drawn:
        first, *others = one.jobs
        for other in others:
            if top(other) != top(first):
                above[top(other)] = top(first)
    groups: dict[UUID, list[_Drawn]] = {}
    for one in drawn:
        groups.setdefault(top(next(iter(one.jobs))), []).append(one)
    return list(groups.values())


def _pays(group: Iterable[_Drawn]) -> bool:
    """Whether the work that starts outweighs what the GPUs of these nodes do not do meanwhile."""
    group = list(group)
    return sum((work for one in group for work in one.jobs.values()), Fraction()) > sum(map(_cost, group))


def _cost(drawn: _Drawn) -> Fraction:
    return Fraction(drawn.node.gpus * int(STANDSTILL.total_seconds()))


def _unmet(waiting: Iterable[Waiting], nodes: Iterable[Sliceable]) -> list[Waiting]:
    """The jobs that do not fit into slices that are free now, if those before them take theirs."""
    free: dict[str, list[tuple[Sliceable, Counter[str]]]] = {}
    for node in nodes:
        units = Counter(_free(node) if node.is_open else {})
        for name in units:
            free.setdefault(name, []).append((node, units))
    return [job for job in waiting if not _fits(job, free.get(job.profile, ()))]


def _fits(job: Waiting, places: Iterable[tuple[Sliceable, Counter[str]]]) -> bool:
    """Whether the job takes its slices there; if not all of its pods find room, it takes none."""
    pods, taken = job.pods, []
    for node, units in places:
        here = min(pods, units[job.profile] // job.slices_per_pod) if _may(job, node) else 0
        if here:
            units[job.profile] -= here * job.slices_per_pod
            taken.append((units, here))
            pods -= here
        if not pods:
            return True
    for units, here in taken:
        units[job.profile] += here * job.slices_per_pod
    return False


def _free(node: Sliceable) -> dict[str, int]:
    return {name: max(units - node.used.get(name, 0), 0) for name, units in node.slices.items()}


def _may(job: Waiting, node: Sliceable) -> bool:
    return node.cluster_id in job.clusters and (not job.models or node.model in job.models)


def _spare(nodes: Iterable[Sliceable], recent: Mapping[Key, int]) -> Counter[Key]:
    """How many slices of each kind can go without lacking for what was in use recently."""
    found: Counter[Key] = Counter()
    for node in nodes:
        for name, units in node.slices.items():
            found[node.cluster_id, node.model, name] += units
    for key, most in recent.items():
        found[key] -= most
    return found


@dataclass(slots=True)
class _Tries:
    """How much more is tried, so that no queue and no fleet make this endless."""

    left: int

    def take(self, number: int = 1) -> bool:
        """Whether so much more may be tried, which then is."""
        self.left = max(self.left - number, 0)
        return self.left > 0


def _try(
    job: Waiting, candidates: Mapping[UUID, Sequence[Sliceable]], drawn: Drawing, spare: Counter[Key], tries: _Tries
) -> bool:
    """Whether the job's pods fit into nodes of one cluster, those that are drawn already first. Draws them there; if they do not all
    fit, it changes nothing.
    """
    for cluster_id in sorted(job.clusters & candidates.keys(), key=str):
        left = Counter(spare)
        trial = _trial(job, _drawn_first(candidates[cluster_id], drawn), drawn, left, tries)
        if trial is not None:
            drawn.update(trial)
            spare.clear()
            spare.update(left)
            return True
    return False


def _drawn_first(nodes: Sequence[Sliceable], drawn: Drawing) -> Iterator[Sliceable]:
    yield from (node for node in nodes if node.key in drawn)
    yield from (node for node in nodes if node.key not in drawn)


def _trial(
    job: Waiting, nodes: Iterable[Sliceable], drawn: Drawing, left: Counter[Key], tries: _Tries
) -> Drawing | None:
    """The nodes with the pods of the job; None if they do not all fit. What can go is taken from `left`."""
    trial: Drawing = {}
    pods = job.pods
    for node in nodes:
        if not tries.take():
            return None
        is_new = node.key not in drawn
        can_hold = most_of(node.model, job.profile) * node.gpus >= job.slices_per_pod
        if not can_hold or not _may(job, node) or (is_new and not _can_go(node, left)):
            continue
        plan, before = drawn.get(node.key) or _Drawn(node), pods
        while (
            pods
            and tries.take(job.slices_per_pod)
            and (more := plan.with_pod(job.profile, job.slices_per_pod)) is not None
        ):
            plan, pods = more, pods - 1
        if pods < before:
            plan.jobs[job.job_id] = job.gpu_time * (before - pods) / job.pods
            trial[node.key] = plan
            if is_new:
                _take(node, left)
        if not pods:
            return trial
    return None


def _can_go(node: Sliceable, spare: Counter[Key]) -> bool:
    return all(spare[node.cluster_id, node.model, name] >= units for name, units in node.slices.items())


def _take(node: Sliceable, spare: Counter[Key]) -> None:
    for name, units in node.slices.items():
        spare[node.cluster_id, node.model, name] -= units


def _proposal(drawn: _Drawn) -> Proposal:
    """The recommendation. What is left of its GPUs gets the slices that it has now, as far as they fit."""
    node = drawn.node
    for name, units in sorted(node.slices.items()):
        for _ in range(units if name != WHOLE else 0):
            for gpu in drawn.gpus:
                gpu[name] += 1
                if holds(node.model, mix_of(gpu)):
                    break
                gpu[name] -= 1
    return Proposal(
        node=node,
        mixes=tuple(mix_of(gpu) for gpu in drawn.gpus),
        job_ids=tuple(drawn.jobs),
        drains=not node.is_idle,
        gained=sum(drawn.jobs.values(), Fraction()),
        cost=_cost(drawn),
    )
