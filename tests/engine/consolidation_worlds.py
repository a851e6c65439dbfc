"""Small fleets in which the room for a gang is there in pieces, and what the cheapest moves are by trying every set."""

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import combinations
from typing import Any

from placement.cycle.cycle import decide, run
from placement.preemption.consolidation import ConsolidationPlan, consolidate, size_of
from placement.preemption.search import EXACT
from placement.preemption.sparing import is_movable
from placement.values.consolidation import Consolidating, Movable
from placement.values.model import JobRequest, Snapshot, TenantPolicy
from placement.values.preemption import RunningJob, organisation_of

from .fleets import NOW, job, limit, pods, snapshot
from .preemption_worlds import after, full, run_on

LONG_AGO = NOW - timedelta(hours=2)
A_DAY = 24 * 3600


def gang(count=1, gpus=8, **more) -> JobRequest:
    """A job that has waited for long and is expected to run for a day."""
    asked: dict[str, Any] = {"submitted_at": LONG_AGO, "estimated_seconds": A_DAY} | more
    return job(pods(count, gpus), **asked)


def returning(one: RunningJob) -> JobRequest:
    """The request with which it would wait again."""
    (held,) = one.pods
    asked = pods(sum(held.nodes.values()), held.units)
    return job(asked, id=one.job_id, tenant=one.tenant_path, priority=one.priority, submitted_at=one.started_at)


def movable(one: RunningJob, **more) -> Movable:
    """It, as a job that saves its work and whose user lets it move."""
    return Movable(one, **({"is_willing": True, "saves_work": True} | more))


def moving_world(
    clusters,
    runs: Sequence[RunningJob | Movable],
    waiting: JobRequest,
    limits=(),
    *,
    policy="any",
    policies=None,
    **more,
) -> Snapshot:
    """A snapshot with one waiting job, for which these running jobs may move."""
    rules = {"share": 0.5, "most_moves": 8} | {
        key: more.pop(key) for key in list(more) if key in Consolidating.__slots__
    }
    all_movable = tuple(one if isinstance(one, Movable) else movable(one) for one in runs)
    given = snapshot(clusters, [waiting], limits)
    return replace(
        given,
        policies=tuple(policies or (TenantPolicy("acme", consolidation=policy),)),
        consolidation=Consolidating(movable=all_movable, **rules),
        returning=tuple(returning(one.run) for one in all_movable),
        **more,
    )


def planned(given: Snapshot, exact=EXACT) -> ConsolidationPlan:
    """The plan after a cycle; it leaves the limits as they were."""
    decisions, final = run(given)
    before = [line.held for lines in final._book._of_tenant.values() for line in lines]
    found = consolidate(given, final, decisions.waits, exact=exact)
    assert [line.held for lines in final._book._of_tenant.values() for line in lines] == before
    return found


def all_placed(given: Snapshot, moved: Sequence[RunningJob]) -> bool:
    """Whether a cycle places the waiting job and all of these if they stop."""
    (waiting,) = given.queue
    again = [one for one in given.returning if one.id in {run.job_id for run in moved}]
    then = replace(after(given, moved), queue=(waiting, *again), consolidation=None, returning=())
    return len(decide(then).placements) == 1 + len(moved)


def cheapest_cost(given: Snapshot, gain: float) -> float | None:
    """By trying every set; None if there is none."""
    (waiting,) = given.queue
    rules = given.consolidation
    sizes = {one.id: size_of(one) for one in given.returning}
    may = [
        one
        for one in rules.movable
        if is_movable(one, given.now)
        and one.run.priority <= waiting.priority
        and sizes[one.run.job_id] < size_of(waiting)
        and organisation_of(one.run.tenant_path) == organisation_of(waiting.tenant_path)
    ]
    costs = [
        cost
        for size in range(1, min(len(may), rules.most_moves) + 1)
        for chosen in combinations(may, size)
        if len({one.run.cluster_id for one in chosen}) == 1
        and (cost := sum(one.cost(NOW) for one in chosen)) <= rules.share * gain
        and all_placed(given, [one.run for one in chosen])
    ]
    return min(costs, default=None)


def random_moving_world(seed: int, *, most_runs: int = 7, nodes: int = 4, **more) -> Snapshot:
    """Jobs of one or several pods on the nodes of one or two clusters, and a gang that wants whole nodes."""
    draw = random.Random(seed)
    shapes = {on: [draw.choice("ab") for _ in range(draw.randint(2, nodes))] for on in range(1, draw.randint(2, 3))}
    left = {(on, f"c{on}-n{n}"): 8 for on, racks in shapes.items() for n in range(len(racks))}
    runs: list[Movable] = []
    for number in range(1, most_runs + 1):
        gpus, on = draw.choice([1, 2, 2, 4, 4]), draw.choice(list(shapes))
        free = [name for (where, name), units in left.items() if where == on and units >= gpus]
        chosen = draw.sample(free, min(len(free), draw.choice([1, 1, 1, 2])))
        if not chosen:
            continue
        for name in chosen:
            left[on, name] -= gpus
        one = run_on(
            number,
            dict.fromkeys(chosen, 1),
            gpus=gpus,
            on=on,
            tenant=draw.choice(["acme/ml", "acme/web", "acme", "acme/ml/vision", "globex"]),
            priority=draw.choice([0, 0, 0, 100, 200]),
            minutes=draw.randint(1, 600),
            shield_until=NOW + timedelta(minutes=draw.choice([-5] * 7 + [5])),
            times_preempted=draw.choice([0, 0, 0, 1]),
            checkpoint_seconds=draw.choice([None, 600, 3600]),
        )
        saves = one.checkpoint_seconds is not None
        runs.append(movable(one, saves_work=saves, moves_today=draw.choice([0, 0, 0, 1, 3])))
    clusters = [full(racks, [one.run for one in runs], on, owner_path="") for on, racks in shapes.items()]
    mode = draw.choice(["required", "preferred"])
    waiting = gang(draw.randint(1, 2), 8, priority=100, level=draw.choice(["cluster", "rack"]), mode=mode)
    limits = []
    if draw.random() < 0.3:
        held = sum(one.run.amounts["gpu"] for one in runs if one.run.tenant_path.startswith("acme"))
        limits = [limit("acme", "gpu", held + draw.choice([0, 8000, 16_000]), held)]
    return moving_world(clusters, runs, waiting, limits, **more)
