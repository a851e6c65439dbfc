"""Rounds of the cycle on real PostgreSQL with a long queue and many running jobs, under limits at every level of the tree.

The organisation's limit on `jobs` rises before each round, so that each places a few. The first round, which reads the fleet and fills
the caches as after a start, is not counted.
"""

import random
import time
from collections.abc import Sequence
from typing import Any

from benchmarks import report

TENANTS, QUEUED, RUNNING = 1000, 100_000, 10_000
ROUNDS, PLACED_A_ROUND = 100, 20
GPUS_A_NODE = 8


def measure(scale: float) -> dict[str, float]:
    """Percentiles of the time of a round, in milliseconds."""
    from benchmarks.database_cycle import make_fleet, make_jobs
    from federation.operations import run_scheduling_cycle
    from quotas.operations import put_limit
    from quotas.queries import discrepancies
    from tenancy.queries import SYSTEM

    rng = random.Random(7)
    tenants, queued, running = (max(10, round(count * scale)) for count in (TENANTS, QUEUED, RUNNING))
    rounds = max(5, round(ROUNDS * min(1.0, scale * 5)))
    gpus = 5 * (running + rounds * PLACED_A_ROUND)
    clusters = max(20, min(100, gpus // 800))
    make_fleet(clusters, -(-gpus // (clusters * GPUS_A_NODE)), GPUS_A_NODE, rng)
    teams = _teams(tenants)
    put_limit(SYSTEM, "org", "jobs", nominal=running)
    make_jobs(teams, running, rng)
    while run_scheduling_cycle().placed:
        pass
    make_jobs(teams, queued, rng)
    run_scheduling_cycle()
    times = []
    for number in range(1, rounds + 1):
        put_limit(SYSTEM, "org", "jobs", nominal=running + number * PLACED_A_ROUND)
        begun = time.perf_counter()
        done = run_scheduling_cycle()
        times.append(1000 * (time.perf_counter() - begun))
        assert done.placed, done
    assert discrepancies() == ()
    figures = {f"cycle_p{share}_ms": report.percentile(times, share / 100) for share in (50, 99)}
    report.table([{"figure": name, "value": value} for name, value in figures.items()])
    return figures


def _teams(count: int) -> Sequence[Any]:
    """Tenants five levels below their organisation, with a limit at each level."""
    from tests.builders import make_limit, make_tenant

    paths = [f"org/d{n % 4}/g{n % 20}/p{n % 100}/s{n % 500}/t{n}" for n in range(count)]
    teams = [make_tenant(path) for path in paths]
    for path in sorted({"/".join(path.split("/")[:depth]) for path in paths for depth in range(1, 7)}):
        make_limit(path, "gpu", "1000000")
    return teams
