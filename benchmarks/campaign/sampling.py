"""What is measured every ten seconds, of the gateway's processes, its database and its broker, and how much each may grow."""

import re
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import httpx
import psutil
import redis

from tests.faults.stand import Stand

from .clients import Clients
from .schedule import ROLES
from .slopes import Bound, Sample

EVERY_SECONDS = 10.0
CYCLES_SECONDS = 120.0
"""The p99 of the cycles is that of the last two minutes."""
MIB = 2**20
BOUNDS: Mapping[str, Bound] = {
    "memory of": Bound("MiB", 24, 8),
    "handles of": Bound("", 20, 6),
    "threads of": Bound("", 12, 4),
    "connections of": Bound("", 20, 6),
    "size of": Bound("MiB", 8, 2),
    "queue": Bound("", 120, 30),
    "seconds that": Bound("s", 120, 30),
    "cycle p99": Bound("ms", 1000, 250),
}
"""By how a figure's name begins. A pool's process that is replaced, a table's new page or one slow minute is below them."""
HISTORY = frozenset(
    {
        "billing_meter", "billing_usagesegment", "clusters_clusterevent", "federation_attempt", "federation_bookproof",
        "federation_job", "federation_jobevent", "federation_podrun", "federation_remoteobject", "quotas_hold",
        "quotas_holdmovement", "tenancy_auditentry", "tenancy_auditlink", "tenancy_idempotencyrecord",
        "federation_rungroup",
    }
)  # fmt: skip
"""Tables that keep rows of ended jobs: they may grow with the jobs, and not faster later than at first."""
SIZES = """
SELECT relname, pg_table_size(oid)::bigint, pg_indexes_size(oid)::bigint FROM pg_class
 WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace ORDER BY 1
"""
QUEUED = """
SELECT (SELECT count(*) FROM foundation_outboxmessage),
       (SELECT coalesce(extract(epoch FROM now() - min(created_at)), 0) FROM foundation_outboxmessage),
       (SELECT count(*) FROM federation_attempt WHERE finished_at IS NOT NULL AND settled_at IS NULL),
       (SELECT count(*) FROM pg_stat_activity WHERE application_name = 'switchyard')
"""
_BUCKET = re.compile(r'switchyard_cycle_seconds_bucket\{le="([^"]+)"\} (\S+)')


@dataclass
class Sampler:
    """Samples from a thread until it is stopped. What cannot be read while it is broken is left out."""

    stand: Stand
    clients: Clients
    metrics_port: int
    """The worker's, at which it shows the durations of its cycles."""
    samples: list[Sample] = field(default_factory=list)
    sizes: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """(accepted jobs, bytes with indexes) of each table that keeps history."""
    _cycles: deque[tuple[float, Mapping[float, float]]] = field(default_factory=deque)
    _stopped: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begins."""
        self._thread = threading.Thread(target=self._go_on, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends."""
        self._stopped.set()
        assert self._thread is not None
        self._thread.join(60)

    def _go_on(self) -> None:
        while not self._stopped.is_set():
            for part in (self._processes, self._database, self._broker, self._cycle):
                with suppress(Exception):  # what is read is broken on purpose
                    self.samples += list(part())
            self._stopped.wait(EVERY_SECONDS)

    def _processes(self) -> Iterator[Sample]:
        now = time.monotonic()
        for role in ROLES:
            for process in self.stand.gateway.processes(role):
                with suppress(psutil.Error):
                    run = f"{process.pid}-{process.create_time()}"
                    yield Sample(f"memory of {role}", run, now, process.memory_info().rss / MIB)
                    yield Sample(f"handles of {role}", run, now, process.num_fds())
                    yield Sample(f"threads of {role}", run, now, process.num_threads())
                    yield Sample(f"connections of {role}", run, now, len(process.net_connections("inet")))

    def _database(self) -> Iterator[Sample]:
        now = time.monotonic()
        waiting, oldest, unsettled, connections = self.stand.databases.ask(QUEUED)[0]
        yield Sample("queue of the outbox", "", now, waiting)
        yield Sample("seconds that the outbox's oldest message waits", "", now, float(oldest))
        yield Sample("queue of the settlement", "", now, unsettled)
        yield Sample("connections of the database", "", now, connections)
        for table, size, indexes in self.stand.databases.ask(SIZES):
            if table in HISTORY:
                self.sizes.setdefault(table, []).append((len(self.clients.run.acked), size + indexes))
            else:
                yield Sample(f"size of {table}", "", now, size / MIB)
                yield Sample(f"size of the indexes of {table}", "", now, indexes / MIB)

    def _broker(self) -> Iterator[Sample]:
        now = time.monotonic()
        url = self.stand.gateway.environment["REDIS_URL"]
        with redis.Redis.from_url(url, socket_timeout=5, decode_responses=True) as client:
            info = client.info("memory")
            yield Sample("memory of the broker", "", now, info["used_memory"] / MIB)
            lengths = [client.llen(key) for key in client.scan_iter(match="swy-broker-*") if client.type(key) == "list"]
            yield Sample("queue of the broker", "", now, sum(lengths))

    def _cycle(self) -> Iterator[Sample]:
        now = time.monotonic()
        text = httpx.get(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=5).raise_for_status().text
        self._cycles.append((now, {float(le): float(count) for le, count in _BUCKET.findall(text)}))
        while self._cycles[0][0] < now - CYCLES_SECONDS:
            self._cycles.popleft()
        if (p99 := p99_between(self._cycles[0][1], self._cycles[-1][1])) is not None:
            yield Sample("cycle p99", "", now, p99 * 1000)


def p99_between(before: Mapping[float, float], after: Mapping[float, float]) -> float | None:
    """The upper end of the bucket in which the 99th of a hundred durations between two readings lies. None if there were
    none, or if the process began to count again from 0.
    """
    counts = {le: count - before.get(le, 0.0) for le, count in after.items()}
    total = counts.get(float("inf"), 0.0)
    if total <= 0 or min(counts.values()) < 0:
        return None
    found = next(le for le in sorted(counts) if counts[le] >= 0.99 * total)
    return min(found, max(le for le in counts if le != float("inf")))
