"""Everything that moves jobs and attempts takes its locks in one order, so that nobody waits in a circle."""

import asyncio
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

import pytest
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from prometheus_client import REGISTRY

from clusters.drivers import NotThere
from clusters.drivers.simulated import SimulatedDriver
from clusters.models import Cluster
from federation import operations
from federation.models import Attempt, Job
from federation.operations.continuity import lose_sight, regain_sight
from federation.operations.observation import Observations, record_observations
from foundation.clock import now
from foundation.threads import close_kept_threads
from tests.builders import submit
from tests.kept_sessions import end_sessions
from tests.live import call, gpu_job

pytestmark = pytest.mark.django_db(transaction=True)
LOCKING = re.compile(r'FOR NO KEY UPDATE|UPDATE\s+"?federation_(job|attempt)"?\s', re.IGNORECASE)
PATIENCE_SECONDS = 0.5
"""Whoever has to wait for a lock that the other holds never comes to the meeting; this is how long the other waits for it."""


class Race:
    """Works that each stop at their first lock until all have one: who locks in another order than the rest is caught.

    PostgreSQL breaks a circle after a second and tells one of them; what the door mends by a second try counts as caught.
    """

    def __init__(self, *works: Callable[[], object], after: threading.Event | None = None) -> None:
        self.works = works
        self.after = after or _always()
        self.meeting = threading.Barrier(len(works))
        self.raised: list[BaseException] = []

    def run(self) -> None:
        retries = self.retries()
        connection_created.connect(self._watch)
        threads = [threading.Thread(target=self._run, args=(work,)) for work in self.works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        connection_created.disconnect(self._watch)
        assert self.raised == []
        assert self.retries() == retries

    @staticmethod
    def retries() -> float:
        return REGISTRY.get_sample_value("switchyard_transaction_retries_total", {"cause": "deadlock"}) or 0

    def _watch(self, connection: BaseDatabaseWrapper, **_: object) -> None:
        """Each connection is made for the race: one a thread, those of dispatch included."""
        met = False

        def meet(execute, sql, params, many, context):
            nonlocal met
            result = execute(sql, params, many, context)
            is_lock = LOCKING.search(sql) and "SKIP LOCKED" not in sql
            if is_lock and not met and self.after.is_set() and connection.in_atomic_block:
                met = True
                with suppress(threading.BrokenBarrierError):
                    self.meeting.wait(PATIENCE_SECONDS)
            return result

        connection.execute_wrappers.append(meet)

    def _run(self, work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - the test looks at what was raised
            self.raised.append(error)
        finally:
            end_sessions()


def _always() -> threading.Event:
    event = threading.Event()
    event.set()
    return event


def released(submitter, count):
    """So many attempts that run on the cluster, of which nobody has observed a pod, in order of their ids."""
    for number in range(count):
        submit(submitter, gpu_job(f"job-{number}", gpus=1, seconds=100_000))
    operations.run_scheduling_cycle()
    operations.dispatch_attempts()
    close_kept_threads()
    return list(Attempt.objects.order_by("id"))


def pods_of(cluster, *attempts):
    """A pod of each, as soon as all run."""
    while True:
        pods = [
            pod
            for attempt in attempts
            for pod in call(cluster, "list_pods", attempt.namespace, attempt.remote_objects.get().name)
        ]
        if sum(pod.started_at is not None for pod in pods) == len(attempts):
            return pods


def test_a_cluster_comes_back_while_its_pods_are_seen_to_run(cluster, submitter):
    attempts = released(submitter, 3)
    pods = pods_of(cluster, *attempts)
    Attempt.objects.update(state="unknown", state_before_unknown="starting")
    Race(regain_sight, lambda: record_observations(cluster.id, Observations(pods=pods))).run()
    assert set(Attempt.objects.values_list("state", flat=True)) == {"running"}
    assert set(Job.objects.values_list("state", flat=True)) == {"running"}


def test_a_cluster_is_lost_while_its_pods_are_seen_to_run(cluster, submitter, settings):
    attempts = released(submitter, 3)
    pods = pods_of(cluster, *attempts)
    settings.CLUSTER_LOST_SECONDS = 1
    Cluster.objects.filter(id=cluster.id).update(health="unreachable", silent_since=now() - timedelta(hours=1))
    Race(lose_sight, lambda: record_observations(cluster.id, Observations(pods=pods))).run()
    assert set(Job.objects.values_list("state", flat=True)) == {"running"}


def test_one_is_released_and_one_found_gone_while_both_are_observed(cluster, submitter, monkeypatch):
    for number in range(2):
        submit(submitter, gpu_job(f"job-{number}", gpus=1, seconds=100_000))
    operations.run_scheduling_cycle()
    first, second = Attempt.objects.order_by("id")
    first_name, second_name = (attempt.remote_objects.get().name for attempt in (first, second))
    release, pods, is_gone = SimulatedDriver.release_job, [], threading.Event()

    async def deleted_before(driver, namespace, name, uid, patch):
        if name != second_name:
            await release(driver, namespace, name, uid, patch)
            return
        await driver.delete_job(namespace, name, uid)
        while not pods:
            await asyncio.sleep(0.01)
            pods.extend(pod for pod in await driver.list_pods(namespace, first_name) if pod.started_at)
        is_gone.set()
        raise NotThere("it is gone", status=404)

    def observe():
        assert is_gone.wait(PATIENCE_SECONDS * 20)
        seen = Observations(pods=pods, gone_jobs=[second.remote_objects.get().uid])
        record_observations(cluster.id, seen)

    monkeypatch.setattr(SimulatedDriver, "release_job", deleted_before)
    Race(operations.dispatch_attempts, observe, after=is_gone).run()
    assert [attempt.state for attempt in Attempt.objects.filter(number=1).order_by("id")][:1] == ["running"]
    second.refresh_from_db()
    assert second.finished_at is not None
