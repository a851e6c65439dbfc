"""A live gateway in one process over simulated clusters: every operation by hand, and the real observer."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from django.db import connection

from clusters.drivers import connections
from clusters.drivers.simulated import node_from_manifest
from clusters.models import Cluster
from clusters.operations import record_contact, record_inventory, register_simulated
from clusters.queries import driver_of
from devtools.localfleet.fleetfile import ClusterSpec, NodeGroup, node_objects
from federation import operations
from federation.models import Attempt, Job, PodRun
from federation.observer.process import Observer
from foundation.clock import now
from foundation.threads import open_threads
from tenancy.queries import Actor
from tests.builders import make_tenant, submit

DEADLINE_SECONDS = 30
REST_SECONDS = 0.5
"""Some work becomes due by the clock alone: it waits at most this long for a turn."""
H100: dict[str, Any] = {
    "model": "NVIDIA-H100-80GB-HBM3",
    "gpus": 8,
    "gpu_memory_mib": 81559,
    "cpu": 96,
    "memory_gib": 1024,
    "vendor": "nvidia",
}


def simulated_cluster(name: str = "east", nodes: int = 2, owner: str = "acme", **place: Any) -> Cluster:
    """A registered cluster of nodes with eight H100 each, its inventory recorded; `place` says where they stand.

    Its first contact is written as an observer writes it: to start one costs each of hundreds of tests more than a second.
    """
    spec = ClusterSpec(name, "us-east-1", "aws", (NodeGroup("h100", nodes, **H100, **place),))
    manifests = [node_from_manifest(manifest) for manifest in node_objects(spec)]
    cluster = register_simulated(make_tenant(owner), name, region="us-east-1", nodes=manifests)
    record_inventory(cluster.id, [node.seen() for node in manifests], {})
    record_contact(cluster.id, clock_skew_ms=0, observed_seconds_ago=0)
    return cluster


def _turn() -> None:
    operations.run_scheduling_cycle()
    operations.dispatch_attempts()
    operations.sweep()
    operations.examine_failures()
    operations.settle_attempts()


class _Turns:
    """Work again and again, but while nothing is written, only now and then: most of a wait is for a simulated pod to end."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._idle_since = ""
        self._due_at = 0.0

    def turn(self) -> None:
        before = _transactions()
        if before == self._idle_since and time.monotonic() < self._due_at:
            return
        self._work()
        after = _transactions()
        self._idle_since = after if after == before else ""
        self._due_at = time.monotonic() + REST_SECONDS


def _transactions() -> str:
    """Another text as soon as anyone has written anything."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_current_snapshot()::text")
        return str(cursor.fetchone()[0])


def observe_until(condition: Callable[[], bool], work: Callable[[], None] = _turn) -> None:
    """Runs the real observer, and between its rounds what the tasks would do, until the condition holds."""
    turns = _Turns(work)

    def turn() -> bool:
        turns.turn()
        return condition()

    async def watch() -> None:
        observer = asyncio.create_task(Observer().run())
        deadline = time.monotonic() + DEADLINE_SECONDS
        # One thread, so that all turns share a database connection: one that is new has all to learn about the tables.
        thread = open_threads("turns", 1)
        try:
            while not await asyncio.wrap_future(thread.submit(turn)):
                assert time.monotonic() < deadline, await asyncio.wrap_future(thread.submit(_standing))
                await asyncio.sleep(0.05)
        finally:
            thread.close()
        observer.cancel()
        await asyncio.gather(observer, return_exceptions=True)

    asyncio.run(watch())


def _standing() -> str:
    """What to look at when a condition never comes true."""
    rows = Attempt.objects.values(
        "state", "end_reason", "end_message", "next_action_at", "tries", "released_at", "settled_at"
    )
    return f"jobs {list(Job.objects.values('state', 'reason_message'))}, attempts {list(rows)}, pods {list(PodRun.objects.values())}"


def gpu_job(name: str = "train", *, count: int = 1, gpus: int = 8, seconds: int = 1, exit_code: int = 0) -> dict:
    pods = {
        "name": "worker",
        "count": count,
        "image": "registry.example/train:1",
        "cpu": "8",
        "memory": "32Gi",
        "gpu": {"count": gpus},
    }
    labels = {"sim.switchyard.dev/run-seconds": str(seconds), "sim.switchyard.dev/exit-code": str(exit_code)}
    return {"tenant": "acme/research/vision", "name": name, "pod_sets": [pods], "labels": labels}


def place(submitter: Actor, **fields: Any) -> tuple[Job, Attempt]:
    """A placed job that nobody has dispatched yet."""
    job = submit(submitter, gpu_job(**fields))
    operations.run_scheduling_cycle()
    return job, Attempt.objects.get(job=job, finished_at=None)


def call(cluster: Cluster, what: str, *arguments: Any) -> Any:
    """One call of the cluster's driver."""
    return connections.run(getattr(driver_of(cluster.id), what)(*arguments), 5)


def every_visit(attempt: Attempt, times: int) -> None:
    """Dispatch so many times, as if each pause before a visit to the attempt were over."""
    for _ in range(times):
        Attempt.objects.filter(id=attempt.id, finished_at=None).update(next_action_at=now(), claim_expires_at=None)
        operations.dispatch_attempts()
