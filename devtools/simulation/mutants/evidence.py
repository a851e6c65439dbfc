"""Guards of ends: nothing ends because it was not seen."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.db import transaction

from clusters.drivers import WatchEvent
from clusters.queries.windows import windowed_clusters
from devtools.simulation.core.swarm import only
from federation.engine.lifecycle import AttemptState
from federation.locks import lock_with_jobs
from federation.models import Attempt
from federation.observer import buffer
from federation.operations import calls, continuity, endings, observation, reconciliation
from federation.operations.consequences import Ending
from federation.queries import windows
from foundation import clock
from placement.values.reason_codes import ReasonCode

from . import Change, mutant


@mutant(only({"drained": 4, "watches_dead": 6, "watch_stalls": 0.3}, run_seconds=(200,)), guard="recall_looks_at_pods")
def _recalls_without_asking(change: Change) -> None:
    """An attempt without a seen pod is recalled although its cluster was not asked for its pods."""

    async def started(*_: object) -> Sequence[Any]:
        return ()

    change.put(calls, "_started", started)


@mutant(only({"maintained": 6}, cancels=0, run_seconds=(200,)))
def _maintenance_stops_what_it_leaves_alone(change: Change) -> None:
    """Each window stops what has started on its cluster, also one that does not drain."""
    change.cut(windows, "MEETINGS", "OR planned.drain AND planned.starts_at", "OR planned.starts_at")
    everywhere = windowed_clusters
    change.put(windows, "windowed_clusters", lambda: dict.fromkeys(everywhere(), True))


@mutant(only({"clocks_differ": 12, "image_missing": 0.7}))
def _recalls_by_the_workers_clock(change: Change) -> None:
    """The patience with an attempt that does not start is measured on the worker's own clock."""
    change.put(continuity, "Now", clock.now)


@mutant(only({"list_lacks": 0.5, "watch_broken": 0.1}, run_seconds=(60, 200)))
def _absence_from_a_list_ends(change: Change) -> None:
    """A Job that is missing in a new list of the watch is taken for deleted."""
    original = buffer.Buffer.add_jobs

    def add_jobs(self: Any, event: WatchEvent) -> None:
        if event.kind == "listed":
            uids = {job.uid for job in event.objects}  # type: ignore[union-attr]
            self._forget(self._known_jobs - uids, self._known_jobs, self._jobs, self._gone_jobs)
        original(self, event)

    change.put(buffer.Buffer, "add_jobs", add_jobs)


@mutant(
    only({"list_lacks": 0.9}, cancels=0, run_seconds=(200,), chaos_seconds=(120.0, 180.0)),
    guard="absence_needs_request",
)
def _vanished_without_asking(change: Change) -> None:
    """What a comparison does not list is gone, without a request for it by uid."""

    async def ask(driver: Any, identity: str, absent: Sequence[Any]) -> list[tuple[Any, None]]:
        del driver, identity
        return [(row, None) for row in absent]

    async def listed(driver: Any, identity: str) -> Sequence[Any]:
        del identity
        found: Sequence[Any] = await driver.list_jobs()
        return found

    change.put(reconciliation, "_ask", ask)
    change.put(reconciliation, "_list", listed)


@mutant(only({"cut_off": 3}, run_seconds=(200,)), guard="unknown_is_held")
def _a_silent_cluster_is_a_dead_one(change: Change) -> None:
    """Attempts on a silent cluster are placed again elsewhere."""

    def lose(cluster_id: UUID, name: str) -> int:
        with transaction.atomic():
            here = Attempt.objects.filter(cluster_id=cluster_id, state__in=continuity.MAY_RUN)
            ids = list(lock_with_jobs(here.values_list("id", flat=True)))
            words = f"Cluster {name} is lost."
            ends = [Ending(id_, AttemptState.PREEMPTED, ReasonCode.CLUSTER_LOST, words) for id_ in ids]
            return endings.end_attempts(ends)

    change.put(continuity, "_lose", lose)


@mutant(only({"eviction": 8, "node_dies": 1}, gangs=1, run_seconds=(200,)), guard="retry_waits_for_removal")
def _a_failed_job_is_queued_at_once(change: Change) -> None:
    """An interrupted attempt ends before the cluster has confirmed that nothing of it is left."""

    def stop_for_another(again: Sequence[Any]) -> None:
        for one in again:
            Attempt.objects.filter(id=one.attempt_id).update(stop_reason=one.cause)
        ends = [Ending(one.attempt_id, AttemptState.PREEMPTED, one.cause, one.message) for one in again]
        endings.end_attempts(ends)

    change.put(observation, "stop_for_another", stop_for_another)
