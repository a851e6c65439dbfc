"""Rounds in the shape of Armada's own measure: 1,000 nodes, 10 queues, 320,000 queued jobs, fair share with preemption.

Half of the queues fill the fleet with what they borrow from the others. Then jobs of all wait, and each measured round decides for whom
running ones are stopped. Real PostgreSQL. Anchor: Armada schedules such a round in 1.3 s.
"""

import random
import time
from datetime import timedelta

from benchmarks import report

NODES, QUEUES, QUEUED, GPUS_A_NODE = 1000, 10, 320_000, 8
ROUNDS = 20
GPUS_A_JOB = 1.5
"""Fewer than jobs have on average, so that enough are submitted to fill the fleet."""


def measure(scale: float) -> dict[str, float]:
    """Mean seconds of a round (`armada_round_s`), the longest one, and how many of them stopped running jobs."""
    from benchmarks.database_cycle import make_fleet, make_jobs
    from federation.models import Preemption, PriorityClass
    from federation.operations import run_scheduling_cycle
    from quotas.engine.holds import Borrowing
    from quotas.operations import put_limit
    from quotas.queries import discrepancies
    from tenancy.queries import SYSTEM
    from tests.builders import make_tenant

    rng = random.Random(7)
    nodes, queued = max(10, round(NODES * scale)), max(100, round(QUEUED * scale))
    rounds, milli = max(3, round(ROUNDS * min(1.0, scale * 5))), nodes * GPUS_A_NODE * 1000
    make_fleet(1, nodes, GPUS_A_NODE, rng)
    PriorityClass.objects.update(shield_seconds=0)
    teams = [make_tenant(f"org/q{number}") for number in range(QUEUES)]
    put_limit(SYSTEM, "org", "gpu", nominal=milli)
    for team in teams:
        lent = Borrowing(None, None, reclaims=True)
        put_limit(SYSTEM, team.path, "gpu", nominal=milli // QUEUES, borrowing=lent)
    make_jobs(teams[: QUEUES // 2], round(nodes * GPUS_A_NODE / GPUS_A_JOB), rng)
    while run_scheduling_cycle().placed:
        pass
    _start_all()
    make_jobs(teams, queued, rng)
    run_scheduling_cycle()  # reads the fleet and fills the caches, as after a start
    times = []
    for _ in range(rounds):
        begun = time.perf_counter()
        run_scheduling_cycle()
        times.append(time.perf_counter() - begun)
    assert discrepancies() == ()
    stopped = Preemption.objects.count()
    assert stopped, "a round stops jobs that borrowed"
    figures = {"armada_round_s": sum(times) / len(times), "armada_longest_s": max(times), "armada_decisions": stopped}
    report.table([{"figure": name, "value": round(value, 3)} for name, value in figures.items()])
    return figures


def _start_all() -> None:
    """All that was placed runs since an hour ago."""
    from django.db.models.functions import Now

    from federation.models import Attempt, Job

    since = Now() - timedelta(hours=1)
    begun = {"starting_at": since, "released_at": since, "started_at": since}
    Attempt.objects.filter(finished_at=None).update(state="running", next_action_at=None, **begun)
    Job.objects.filter(attempts__finished_at=None, attempts__isnull=False).update(state="running", started_at=since)
