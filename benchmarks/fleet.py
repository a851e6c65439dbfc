"""A large fleet, some of it hanging, with a long history behind it: `make bench-fleet`.

A tenth of the simulated members never answer writes, but answer everything else. Real processes of the gateway (one
bell, one observer, some workers) on their own PostgreSQL and Valkey dispatch a backlog. Then jobs arrive evenly,
without and with the members that hang. Last, the routines are timed before and after loading a history that has long
ended. Simulated members run in the processes that ask them, and their CPU is counted there.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.db import IntegrityError, connection
from django.db.models import F

from benchmarks import report
from benchmarks.own_database import own_database
from benchmarks.processes import Gateway, announce_dispatch, wait_until

if TYPE_CHECKING:
    from clusters.models import Cluster
    from federation.models import Attempt

ARRIVALS_A_SECOND = 10
PASSES = 15


@dataclass(slots=True)
class Size:
    """The sizes of a run."""

    members: int
    hanging: int
    jobs: int
    history: int
    steady_seconds: int
    steady_rounds: int
    """The number of times that arrivals are measured without and beside the members that hang, in turn."""
    workers: tuple[int, ...]


FULL = Size(200, 20, 10_000, 10_000_000, 60, 5, (1, 2, 4))
QUICK = Size(40, 4, 600, 100_000, 15, 2, (1, 2))


@dataclass(slots=True)
class Fleet:
    """Members, and a placed attempt; all others are copies of it."""

    healthy: "Sequence[Cluster]"
    hanging: "Sequence[Cluster]"
    pattern: "Attempt"

    def backlog(self, jobs: int) -> float:
        """Jobs per second created and released on the members that answer, beside a backlog on those that hang."""
        from tests.backlog import left_to_release, pile_up

        self._forget()
        pile_up(self.pattern, self.hanging, 50)
        pile_up(self.pattern, self.healthy, jobs // len(self.healthy))
        began = time.perf_counter()
        announce_dispatch()
        wait_until(lambda: left_to_release(self.healthy) == 0, 1800, "the backlog is released")
        return jobs // len(self.healthy) * len(self.healthy) / (time.perf_counter() - began)

    def settle_down(self) -> None:
        """The same fleet at rest, whatever went before and however long it took: nothing is live, all members that
        answer have answered just now, and those that hang are known to be silent.
        """
        from clusters.models import Cluster
        from clusters.operations import record_contact

        self._forget()
        for member in self.healthy:
            record_contact(member.id, observed_seconds_ago=0.0)
        hanging = Cluster.objects.filter(id__in=[one.id for one in self.hanging])
        hanging.update(health="unreachable", silent_since="2026-01-01T00:00:00Z")

    def _forget(self) -> None:
        """Deletes the last phase's live attempts, with a retry if the observer writes to one of them meanwhile, and
        their objects on the members: each phase begins with the same fleet.
        """
        from federation.models import Attempt

        is_done = False
        while not is_done:
            with suppress(IntegrityError):
                Attempt.objects.filter(finished_at=None).exclude(id=self.pattern.id).delete()
                is_done = True
        for member in self.healthy:
            _empty(member)
        with connection.cursor() as cursor:
            cursor.execute("VACUUM ANALYZE")
            cursor.execute("CHECKPOINT")  # what loading left to write would delay what is measured next

    def in_turn(self, size: Size) -> tuple[list[float], list[float]]:
        """Seconds from reserved to released, without and beside the members that hang: several rounds of each, after one
        that does not count, in which the processes list their members and plan their statements.
        """
        alone: list[float] = []
        beside: list[float] = []
        _say(f"the round that does not count: {_spread(self.steadily(size.steady_seconds, []))}")
        for _ in range(size.steady_rounds):
            for into, hanging in ((alone, []), (beside, self.hanging)):
                waits = self.steadily(size.steady_seconds, hanging)
                _say(f"{len(hanging)} hang: {_spread(waits)}")
                into.extend(waits)
        return alone, beside

    def steadily(self, seconds: int, hanging: "Sequence[Cluster]") -> list[float]:
        """Seconds from reserved to released of jobs that arrive evenly on the members that answer."""
        from federation.models import Attempt
        from tests.backlog import left_to_release, pile_up

        self._forget()
        if hanging:
            pile_up(self.pattern, hanging, 50)
        time.sleep(10)  # every hanging member has been visited once
        began = time.monotonic()
        for number in range(seconds * ARRIVALS_A_SECOND):
            time.sleep(max(0.0, began + number / ARRIVALS_A_SECOND - time.monotonic()))
            pile_up(self.pattern, [self.healthy[number * 7 % len(self.healthy)]], 1)
            announce_dispatch()
        wait_until(lambda: left_to_release(self.healthy) == 0, 300, "all that arrived is released")
        rows = Attempt.objects.filter(cluster__in=self.healthy).exclude(id=self.pattern.id)
        return [waited.total_seconds() for waited in rows.values_list(F("released_at") - F("reserved_at"), flat=True)]


def _empty(member: "Cluster") -> None:
    """Deletes all Jobs of a simulated member."""
    from clusters.drivers.connections import run
    from clusters.queries import driver_of

    async def delete_all() -> None:
        for job in await driver.list_jobs():
            await driver.delete_job(job.namespace, job.name, job.uid)

    driver = driver_of(member.id)
    run(delete_all(), timeout_seconds=60)


@contextmanager
def fleet_of(size: Size) -> Iterator[Fleet]:
    """Registered members, with one attempt that is placed but never dispatched."""
    from clusters.drivers import NodeSeen
    from clusters.drivers.simulated import Node
    from clusters.operations import record_contact, record_inventory, register_simulated
    from federation import operations
    from federation.models import Attempt
    from tests.builders import actor_for, bind, make_tenant, make_user, submit
    from tests.hostile_member import Member
    from tests.hostile_run import registered

    user = make_user("ada@acme.example")
    bind(user, "acme", "admin")
    make_tenant("acme/research/vision")
    labels, capacity = {"kubernetes.io/hostname": "n1"}, {"cpu": "64", "memory": "256Gi", "pods": "110"}
    nodes = [Node("n1", "u1", labels, capacity)]
    first = register_simulated(make_tenant("acme"), "pattern", nodes=nodes)
    record_inventory(first.id, [NodeSeen("n1", "u1", labels, [], capacity, True, True)], {})
    record_contact(first.id, observed_seconds_ago=0.0)
    pods = {"name": "main", "count": 1, "image": "registry.example/job:1", "cpu": "100m", "memory": "64Mi"}
    runs = {"sim.switchyard.dev/run-seconds": "100000"}
    body = {"tenant": "acme/research/vision", "name": "pattern", "pod_sets": [pods], "labels": runs}
    job = submit(actor_for(user), body)
    operations.run_scheduling_cycle()
    pattern = Attempt.objects.get(job=job)
    Attempt.objects.filter(id=pattern.id).update(next_action_at=None)
    healthy = [
        register_simulated(make_tenant("acme"), f"member-{number}", nodes=nodes)
        for number in range(size.members - size.hanging)
    ]
    with ExitStack() as stack:
        members = [stack.enter_context(Member(f"hanging-{number}")) for number in range(size.hanging)]
        for member in members:
            member.lies = _HangsOnWrites(pattern.namespace)
        yield Fleet(healthy, [registered(member) for member in members], pattern)


class _HangsOnWrites(dict[str, Any]):
    """Reports its identity and inventory, and never answers requests for one of our namespaces."""

    def __init__(self, namespace: str) -> None:
        super().__init__()
        self._namespace = namespace

    def get(self, path: str, default: Any = None) -> Any:
        is_write = path == "/api/v1/namespaces" or self._namespace in path
        return _never if is_write else default


async def _never(_: object) -> None:
    import asyncio

    await asyncio.sleep(3600)


def passes() -> dict[str, float]:
    """The seconds of a pass of each routine: the least of several, because other work on the host only adds to it."""
    from federation import operations

    works: Mapping[str, Callable[[], Any]] = {
        "cycle": operations.run_scheduling_cycle,
        "dispatch": operations.dispatch_attempts,
        "settle": operations.settle_attempts,
        "sweep": operations.sweep,
        "reconcile": operations.reconcile_clusters,
        "expect": operations.expect_starts,
        "accrue": operations.accrue_running,
    }
    found = {}
    for name, work in works.items():
        work()
        took = []
        for _ in range(PASSES):
            began = time.perf_counter()
            work()
            took.append(time.perf_counter() - began)
        found[name] = min(took)
    return found


def measure(size: Size, home: Path) -> dict[str, Any]:
    """All phases, one after the other."""
    figures: dict[str, Any] = {"jobs_per_second_by_workers": {}}
    gateway = Gateway(home)
    with fleet_of(size) as fleet:
        if size.steady_rounds:
            _say("steady arrivals, without and beside the members that hang")
            with gateway.running(1):
                figures |= _waits(*fleet.in_turn(size)) | _cpu(gateway, size.steady_seconds)
        for workers in size.workers if size.jobs else ():
            _say(f"a backlog of {size.jobs} jobs for {workers} workers")
            with gateway.running(workers):
                figures["jobs_per_second_by_workers"][str(workers)] = round(fleet.backlog(size.jobs), 1)
        _say(f"so far {figures}")
        if size.history:
            figures |= _history(fleet, size.history)
    return figures | {"peak_mib_by_process": gateway.peak_mib, "database_connections": gateway.connections}


def _waits(alone: Sequence[float], beside: Sequence[float]) -> dict[str, float]:
    """Of the arrivals on members that answer, without and beside those that hang."""
    return {
        "healthy_p50_ms_alone": 1000 * report.median(alone),
        "healthy_p50_ms_beside_hanging": 1000 * report.median(beside),
        "healthy_p99_ms_alone": 1000 * report.percentile(alone, 0.99),
        "healthy_p99_ms_beside_hanging": 1000 * report.percentile(beside, 0.99),
        "healthy_p99_ratio": report.percentile(beside, 0.99) / report.percentile(alone, 0.99),
    }


def _history(fleet: Fleet, jobs: int) -> dict[str, float]:
    """What the routines' passes take with a history of ended jobs, relative to passes without it; beside it, what the
    same comparison says of two measurements without history: what the host adds.
    """
    from tests.backlog import long_ago

    fleet.settle_down()
    without, again = passes(), passes()
    _say(f"loading a history of {jobs} jobs")
    began = time.perf_counter()
    long_ago(fleet.pattern, fleet.healthy, jobs)
    loaded = time.perf_counter() - began
    fleet.settle_down()
    with_history = passes()
    _tell_passes(without, again, with_history)
    both = [*without.values(), *again.values()]
    return {
        "history_cost_ratio": 2 * sum(with_history.values()) / sum(both),
        "repeated_cost_ratio": sum(again.values()) / sum(without.values()),
        "history_load_seconds": loaded,
    }


def _cpu(gateway: Gateway, seconds: int) -> dict[str, float]:
    """CPU per second of the observer with only its members' pulse, and of a comparison of all clusters."""
    from federation import operations

    before, began = gateway.cpu_seconds("observer"), time.monotonic()
    time.sleep(seconds)
    observer = (gateway.cpu_seconds("observer") - before) / (time.monotonic() - began)
    spent = time.process_time()
    operations.reconcile_clusters()
    return {
        "observer_cpu_a_second": observer,
        "reconcile_cpu_a_second": (time.process_time() - spent) / 60,  # each cluster is compared once a minute
    }


def _say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)


def _spread(seconds: Sequence[float]) -> str:
    return f"p50 {1000 * report.median(seconds):.0f} p99 {1000 * report.percentile(seconds, 0.99):.0f} ms"


def _tell_passes(without: Mapping[str, float], again: Mapping[str, float], with_history: Mapping[str, float]) -> None:
    report.table(
        [
            {
                "pass": name,
                "ms without history": 1000 * without[name],
                "again": 1000 * again[name],
                "ms with it": 1000 * with_history[name],
            }
            for name in without
        ]
    )


def main() -> None:
    """Prints conditions, tables, and one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="a fifth of the fleet and little history, in about 3 minutes"
    )
    parser.add_argument("--jobs", type=int, help="of the backlog; 0 leaves it out")
    parser.add_argument("--history", type=int, help="ended jobs; 0 leaves them out")
    parser.add_argument("--rounds", type=int, help="of arrivals without and beside hanging members; 0 leaves them out")
    options = parser.parse_args()
    size = QUICK if options.quick else FULL
    size.jobs = size.jobs if options.jobs is None else options.jobs
    size.history = size.history if options.history is None else options.history
    size.steady_rounds = size.steady_rounds if options.rounds is None else options.rounds
    report.conditions(
        members=size.members, hanging=size.hanging, jobs=size.jobs, history=size.history,
        arrivals=f"{ARRIVALS_A_SECOND}/s", worker_processes=3, postgresql="without fsync",
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="switchyard-bench-", dir="/var/tmp") as folder, own_database():
        from django.conf import settings

        from clusters.drivers import connections as drivers
        from foundation.threads import close_kept_threads

        settings.HOME = Path(folder)
        try:
            figures = measure(size, Path(folder))
            report.table([{"figure": name, "value": value} for name, value in figures.items()])
            report.last_line(figures)
        finally:
            drivers.close_all()
            close_kept_threads()


if __name__ == "__main__":
    main()
