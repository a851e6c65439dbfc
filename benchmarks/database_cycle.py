"""The gateway's own cycle on real PostgreSQL, for `benchmarks.placement`: snapshot, decisions, quota holds, attempts,
commits.
"""

import random
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.own_database import own_database

SHAPES = 100
MODELS = ("A100-80GB", "H100-80GB", "L40S-48GB", "MI300X-192GB")


def placed_per_second(*, clusters: int, nodes: int, gpus: int, tenants: Sequence[str], jobs: int) -> float:
    """Jobs placed per second of wall time by `run_scheduling_cycle`, each with holds at three levels and two limits per
    level.

    The first round, which reads the fleet and fills the caches as after a start, is not counted.
    """
    with own_database():
        from federation.operations.cycle import run_scheduling_cycle
        from quotas.queries import discrepancies

        rng = random.Random(7)
        make_fleet(clusters, nodes, gpus, rng)
        teams = _make_tenants(tenants)
        make_jobs(teams, jobs // 10, rng)
        assert run_scheduling_cycle().placed == jobs // 10
        make_jobs(teams, jobs, rng)
        begun = time.perf_counter()
        done = run_scheduling_cycle()
        seconds = time.perf_counter() - begun
        assert done.placed == jobs, done
        assert discrepancies() == ()
    return done.placed / seconds


def make_fleet(clusters: int, nodes: int, gpus: int, rng: random.Random) -> None:
    """Clusters with this number of nodes, each with this number of GPUs, of two models."""
    from clusters.models import Node
    from foundation.clock import now
    from tests.builders import make_cluster, make_flavor

    at = now()
    for number in range(clusters):
        cluster = make_cluster("org", f"cluster-{number}", health="ready")
        models = rng.sample(MODELS, 2)
        for model in models:
            make_flavor(cluster, model.lower(), gpu_model=model)
        Node.objects.bulk_create(
            Node(
                cluster=cluster,
                name=f"node-{n}",
                uid=f"{number}-{n}",
                devices=[{"flavor": models[n * 2 // nodes].lower(), "units": gpus}],
                cpu_millicores=192_000,
                memory_mib=2_097_152,
                pods=110,
                observed_at=at,
                domain=[f"zone-{n // 50}", f"block-{n // 50}", f"rack-{n // 10}", f"node-{n}", ""],
                labels={"kubernetes.io/hostname": f"node-{n}"},
            )
            for n in range(nodes)
        )


def _make_tenants(paths: Sequence[str]) -> list[Any]:
    from tests.builders import make_limit, make_tenant

    teams = [make_tenant(path) for path in paths]
    for path in sorted({"/".join(path.split("/")[:depth]) for path in paths for depth in (1, 2, 3)}):
        make_limit(path, "gpu", "1000000")
        make_limit(path, "cpu", "10000000")
    return teams


def make_jobs(teams: Sequence[Any], count: int, rng: random.Random) -> None:
    """Singles of many shapes, stored as the gateway stores what it has accepted."""
    from federation.models import Job
    from federation.operations.submission import new_job
    from federation.queries.priority_classes import rules_at
    from federation.queries.submissions import read_submission
    from foundation.clock import now
    from tenancy.queries import SYSTEM
    from tests.builders import make_user

    user, at = make_user(), now()
    specs = [read_submission(_body(number, rng)).spec for number in range(SHAPES)]
    usual = rules_at(SYSTEM, teams[0]).classes.named("normal")
    Job.objects.bulk_create(
        (new_job(user, rng.choice(teams), rng.choice(specs), usual, at) for _ in range(count)), 1000
    )


def _body(number: int, rng: random.Random) -> dict[str, object]:
    pods = {
        "name": "worker",
        "count": 1,
        "image": "registry.example/train:1",
        "cpu": f"{1000 + number}m",
        "memory": "4Gi",
        "gpu": {"count": rng.choice((1, 1, 1, 1, 2, 4)), "models": rng.sample(MODELS, rng.choice((0, 1, 2)))},
    }
    return {"tenant": "org", "name": "train", "pod_sets": [pods]}
