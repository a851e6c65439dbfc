"""Kueue's generator of load, on a whole gateway: queues are tenants that borrow from their cohort.

A queue has 20 own cores and borrows up to 100 more from its cohort, which has 20 for each of its queues. Each queue submits
small jobs (1 core, 0.2 s), medium ones (5 cores, 0.5 s) and large ones (20 cores, 1 s) at fixed intervals. The cluster is simulated and
has room for all, so only quota makes jobs wait; jobs run in real time.
"""

import os
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from benchmarks import report
from devtools.trial import ORGANISATION, Gateway, start_gateway

OWN_CORES, BORROWED_CORES = 20, 100
SAMPLE_SECONDS = 1.0
NODE_CORES = 96
PODS_A_NODE = 110
MOST_ITEMS = 500
DONE_SECONDS = 3600
PRIORITIES = {"small": "low", "medium": "normal", "large": "high"}


@dataclass(frozen=True, slots=True)
class Kind:
    """A class of jobs: `count` of each queue, one after each interval."""

    name: str
    cores: int
    seconds: float
    count: int
    interval_seconds: float


@dataclass(frozen=True, slots=True)
class Load:
    """The queues, and what each of them submits."""

    cohorts: int
    queues: int
    kinds: tuple[Kind, ...]


SMALL = Load(
    cohorts=5,
    queues=6,
    kinds=(Kind("small", 1, 0.2, 350, 0.1), Kind("medium", 5, 0.5, 100, 0.5), Kind("large", 20, 1.0, 50, 1.2)),
)
LARGE = Load(
    cohorts=10,
    queues=100,
    kinds=(Kind("small", 1, 0.2, 35, 0.1), Kind("medium", 5, 0.5, 10, 0.5), Kind("large", 20, 1.0, 5, 1.2)),
)


def measure(load: Load, scale: float) -> dict[str, float]:
    """Seconds from the first submission to the end of the last job (`s`), the mean use of the quota in that time in percent
    (`use`), and by kind the mean seconds from submission to placement.
    """
    paths = [f"cohort-{cohort}/queue-{queue}" for cohort in range(load.cohorts) for queue in range(load.queues)]
    arrivals = _arrivals(load, paths, scale)
    with tempfile.TemporaryDirectory(prefix="switchyard-bench-", dir="/var/tmp") as folder:
        gateway = start_gateway(Path(folder) / "home")
        try:
            _prepare(gateway, load)
            figures = _run(gateway, arrivals)
            print("CPU seconds: " + ", ".join(f"{name} {spent:.1f}" for name, spent in gateway.cpu_seconds().items()))
        finally:
            gateway.stop()
    return figures


def _arrivals(load: Load, paths: Sequence[str], scale: float) -> list[tuple[float, dict[str, Any]]]:
    """(second of arrival, body) of every job, in order."""
    found = []
    for path in paths:
        for kind in load.kinds:
            body = _body(path, kind)
            found += [(number * kind.interval_seconds, body) for number in range(max(1, round(kind.count * scale)))]
    return sorted(found, key=lambda one: one[0])


def _body(path: str, kind: Kind) -> dict[str, Any]:
    pods = {"name": "main", "count": 1, "image": "registry.example/job:1", "cpu": str(kind.cores), "memory": "64Mi"}
    return {
        "tenant": f"{ORGANISATION}/{path}",
        "name": kind.name,
        "pod_sets": [pods],
        "priority_class": PRIORITIES[kind.name],
        "labels": {"sim.switchyard.dev/run-seconds": str(kind.seconds)},
    }


def _prepare(gateway: Gateway, load: Load) -> None:
    """Queues with their limits, and a cluster. Written by this process, because simulated clusters cannot be registered over
    HTTP.
    """
    import django

    os.environ.update(gateway.environment)
    os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"
    django.setup()
    from clusters.drivers.simulated import node_from_manifest
    from clusters.operations import register_simulated
    from devtools.localfleet.fleetfile import ClusterSpec, NodeGroup, node_objects
    from quotas.engine.holds import Borrowing
    from quotas.operations import put_limit
    from tenancy.queries import SYSTEM
    from tests.builders import make_tenant

    cohort_cores = OWN_CORES * load.queues
    for cohort in range(load.cohorts):
        path = f"{ORGANISATION}/cohort-{cohort}"
        for queue in range(load.queues):
            make_tenant(f"{path}/queue-{queue}")
        put_limit(SYSTEM, path, "cpu", nominal=cohort_cores * 1000)
        for queue in range(load.queues):
            lent = Borrowing(BORROWED_CORES * 1000, None)
            put_limit(SYSTEM, f"{path}/queue-{queue}", "cpu", nominal=OWN_CORES * 1000, borrowing=lent)
    most = cohort_cores * load.cohorts
    nodes = 2 * -(-most // min(NODE_CORES, PODS_A_NODE))
    group = NodeGroup("cpu", nodes, cpu=NODE_CORES, memory_gib=256)
    manifests = [node_from_manifest(found) for found in node_objects(ClusterSpec("sim", "r", "p", (group,)))]
    register_simulated(make_tenant(ORGANISATION), "sim", region="r", nodes=manifests)
    deadline = time.monotonic() + 60
    while not all(cluster["flavors"] for cluster in gateway.items("/clusters")):
        if time.monotonic() > deadline:
            raise SystemExit("the simulated cluster's nodes were not seen within 60 s")
        time.sleep(0.2)


def _run(gateway: Gateway, arrivals: Sequence[tuple[float, dict[str, Any]]]) -> dict[str, float]:
    from django.db import connection

    samples: list[float] = []
    began = time.monotonic()
    submitter = threading.Thread(target=_submit, args=[gateway, arrivals, began])
    submitter.start()
    with connection.cursor() as cursor:
        while True:
            cursor.execute(STANDING)
            use, ended, failed = cursor.fetchone()
            samples.append(float(use))
            if ended + failed >= len(arrivals):
                break
            if time.monotonic() - began > DONE_SECONDS:
                raise SystemExit(f"{ended} of {len(arrivals)} jobs ended within {DONE_SECONDS} s")
            time.sleep(SAMPLE_SECONDS)
        submitter.join()
        cursor.execute(TIMES)
        waits = [(name, float(mean)) for name, mean in cursor.fetchall()]
        cursor.execute(SPAN)
        (seconds,) = cursor.fetchone()
    if failed:
        raise SystemExit(f"{failed} jobs did not succeed")
    figures = {"s": float(seconds), "use": 100 * sum(samples) / len(samples)}
    figures |= {f"wait_{name}_s": mean for name, mean in waits}
    report.table([{"figure": name, "value": round(value, 2)} for name, value in figures.items()])
    return figures


def _submit(gateway: Gateway, arrivals: Sequence[tuple[float, dict[str, Any]]], began: float) -> None:
    """Sends each job at its scheduled time, with all others that are pending then."""
    sent = 0
    with httpx.Client(base_url=gateway.url, headers=gateway.client.headers, timeout=60) as client:
        while sent < len(arrivals):
            time.sleep(max(0.0, began + arrivals[sent][0] - time.monotonic()))
            due = time.monotonic() - began
            batch = [body for at, body in arrivals[sent : sent + MOST_ITEMS] if at <= due]
            answer = client.post("/api/v1/jobs/bulk", json={"jobs": batch})
            answer.raise_for_status()
            refused = [item for item in answer.json()["items"] if item["status"] >= httpx.codes.BAD_REQUEST]
            if refused:
                raise SystemExit(f"a job was refused: {refused[0]}")
            sent += len(batch)


STANDING = """
SELECT coalesce((SELECT sum(l.held)::float / sum(l.nominal) FROM quotas_quotalimit AS l WHERE l.parent_id IS NULL), 0),
       (SELECT count(*) FROM federation_job WHERE state = 'succeeded'),
       (SELECT count(*) FROM federation_job WHERE state IN ('failed', 'cancelled'))
"""
TIMES = """
SELECT job.name, avg(extract(epoch FROM hold.created_at - job.created_at)) FROM federation_job AS job
  JOIN federation_attempt AS attempt ON attempt.job_id = job.id AND attempt.number = 1
  JOIN quotas_hold AS hold ON hold.holder_id = attempt.id GROUP BY job.name ORDER BY job.name
"""
SPAN = "SELECT extract(epoch FROM max(finished_at) - min(created_at)) FROM federation_job"
