"""Small fleets full of running jobs, an independent trial of what fits after some have ended, and the cheapest choice."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import combinations
from typing import Any
from uuid import UUID

from placement.cycle.cycle import decide, run
from placement.preemption.plan import Plan, is_preemptible, plan
from placement.preemption.search import EXACT
from placement.values.model import FleetCluster, JobRequest, LimitState, Snapshot
from placement.values.preemption import Allowance, HeldPods, RunningJob, organisation_of

from .fleets import NOW, cluster, flavor, job, limit, node, pods, snapshot

OF = flavor()
CPU = 1000
MEMORY = 1024


def run_on(number, nodes, *, gpus=1, on=1, tenant="acme/ml", priority=0, minutes=60, **more) -> RunningJob:
    """A running job with pods of so many GPUs each, by node."""
    count = sum(nodes.values())
    return RunningJob(
        attempt_id=UUID(int=number),
        job_id=UUID(int=10_000 + number),
        tenant_path=tenant,
        priority=priority,
        cluster_id=UUID(int=on),
        cluster=f"c{on}",
        pods=(HeldPods(OF.name, gpus, CPU, MEMORY, nodes),),
        amounts={
            "gpu": 1000 * gpus * count,
            "gpu:H100-80GB": 1000 * gpus * count,
            "cpu": CPU * count,
            "memory": MEMORY * count,
        },
        started_at=NOW - timedelta(minutes=minutes),
        shield_until=more.pop("shield_until", NOW),
        **more,
    )


def full(racks: Sequence[str], runs: Sequence[RunningJob], on=1, total=8, **more) -> FleetCluster:
    """A cluster with a node in each of these racks, on which these jobs run."""
    used: Counter[str] = Counter()
    for one in runs:
        for held in one.pods if one.cluster_id == UUID(int=on) else ():
            for name, count in held.nodes.items():
                used[name] += count * held.units
    names = [f"c{on}-n{position}" for position in range(len(racks))]
    made = [
        node(name, OF, total, total - used[name], domain=("z", "b", rack))
        for name, rack in zip(names, racks, strict=True)
    ]
    return cluster(on, made, [OF], **more)


def world(clusters, runs, waiting: JobRequest, limits: Sequence[LimitState] = (), **more) -> Snapshot:
    """A snapshot with one waiting job that may replace running ones."""
    asked: dict[str, Any] = {"running": tuple(runs), "preemptors": (waiting.id,), "allowance": Allowance(16)} | more
    return replace(snapshot(clusters, [waiting], limits), **asked)


def planned(given: Snapshot, exact=EXACT) -> Plan:
    decisions, final = run(given)
    before = [line.held for lines in final._book._of_tenant.values() for line in lines]
    found = plan(given, final, decisions.waits, exact=exact)
    assert [line.held for lines in final._book._of_tenant.values() for line in lines] == before
    return found


def after(given: Snapshot, ended: Sequence[RunningJob]) -> Snapshot:
    """The snapshot after these jobs have ended, built anew."""
    gone: Counter[tuple[UUID, str]] = Counter()
    for one in ended:
        for held in one.pods:
            for name, count in held.nodes.items():
                gone[one.cluster_id, name] += count * held.units
    clusters = tuple(
        replace(
            one,
            nodes=tuple(replace(n, free={k: v + gone[one.id, n.name] for k, v in n.free.items()}) for n in one.nodes),
        )
        for one in given.clusters
    )
    limits = tuple(replace(one, held=_held_after(one, given.limits, ended)) for one in given.limits)
    return replace(given, clusters=clusters, limits=limits)


def _held_after(one: LimitState, limits: Sequence[LimitState], ended: Sequence[RunningJob]) -> int:
    """What a limit holds then: less what ends at it, and less what the limits right below it no longer claim."""
    alike = [other for other in limits if (other.resource, other.clusters) == (one.resource, one.clusters)]
    below = [other for other in alike if _is_below(other.tenant_path, one)]
    children = [other for other in below if not any(_is_below(other.tenant_path, between) for between in below)]
    own = [run for run in ended if run.tenant_path == one.tenant_path or _is_below(run.tenant_path, one)]
    own = [
        run for run in own if not any(f"{run.tenant_path}/".startswith(f"{child.tenant_path}/") for child in children)
    ]
    fall = sum(run.amounts.get(one.resource, 0) for run in own if not one.clusters or run.cluster in one.clusters)
    for child in children:
        after_it = _held_after(child, limits, ended)
        fall += max(child.held, child.guaranteed) - max(after_it, child.guaranteed)
    return one.held - fall


def _is_below(path: str, one: LimitState) -> bool:
    return path.startswith(f"{one.tenant_path}/")


def fits_after(given: Snapshot, ended: Sequence[RunningJob]) -> bool:
    """Whether a cycle places the waiting job then."""
    return bool(decide(after(given, ended)).placements)


def cheapest_cost(given: Snapshot) -> float | None:
    """By trying every set."""
    (waiting,) = given.queue
    may = [
        one
        for one in given.running
        if is_preemptible(one, given.now)
        and one.priority < waiting.priority
        and organisation_of(one.tenant_path) == organisation_of(waiting.tenant_path)
    ]
    costs = [
        sum(one.cost(NOW) for one in chosen)
        for size in range(len(may) + 1)
        for chosen in combinations(may, size)
        if fits_after(given, chosen)
    ]
    return min(costs, default=None)


def random_world(seed: int, *, most_runs: int = 7, nodes: int = 4) -> Snapshot:
    """Jobs of one or several pods on the nodes of one or two clusters, and an urgent one that wants what they have."""
    draw = random.Random(seed)
    runs: list[RunningJob] = []
    most = max(1, nodes * most_runs // 14)
    shapes = {on: [draw.choice("ab") for _ in range(draw.randint(1, most))] for on in range(1, draw.randint(2, 3))}
    left = {(on, f"c{on}-n{n}"): 8 for on, racks in shapes.items() for n in range(len(racks))}
    for number in range(1, most_runs + 1):
        gpus = draw.choice([2, 4, 4, 8])
        on = draw.choice(list(shapes))
        free = [name for (where, name), units in left.items() if where == on and units >= gpus]
        chosen = draw.sample(free, min(len(free), draw.choice([1, 1, 1, 2, 3])))
        if not chosen:
            continue
        for name in chosen:
            left[on, name] -= gpus
        runs.append(
            run_on(
                number,
                dict.fromkeys(chosen, 1),
                gpus=gpus,
                on=on,
                tenant=draw.choice(["acme/ml", "acme/web", "acme", "acme/ml/vision", "acme/web", "acme", "globex"]),
                priority=draw.choice([0, 0, 0, 50, 50, 100]),
                minutes=draw.randint(1, 600),
                shield_until=NOW + timedelta(minutes=draw.choice([-5] * 7 + [5])),
                times_preempted=draw.choice([0, 0, 0, 0, 1, 3]),
                checkpoint_seconds=draw.choice([None, 600, 3600]),
            )
        )
    clusters = [full(racks, runs, on, owner_path="") for on, racks in shapes.items()]
    mode = draw.choice(["required", "preferred"])
    gang = pods(draw.randint(1, 3), draw.choice([2, 4, 8, 8]))
    waiting = job(gang, priority=100, level=draw.choice(["cluster", "rack"]), mode=mode)
    limits = []
    if draw.random() < 0.4:
        held = {
            team: sum(one.amounts["gpu"] for one in runs if one.tenant_path.startswith(team))
            for team in ("acme", "acme/ml")
        }
        guaranteed = draw.choice([0, 0, 4000, 16_000])
        lent = max(0, guaranteed - held["acme/ml"])
        limits = [limit("acme", "gpu", held["acme"] + lent + draw.choice([0, 2000, 8000]), held["acme"] + lent)]
        cap = max(guaranteed, held["acme/ml"]) + draw.choice([0, 4000, 64_000])
        limits.append(limit("acme/ml", "gpu", cap, held["acme/ml"], guaranteed=guaranteed))
    return world(clusters, runs, waiting, limits)
