"""Observers share the clusters, write only what they hold the lease for, and give everything back when they are stopped."""

import asyncio
import threading
import time
from collections import Counter
from contextlib import contextmanager
from datetime import timedelta

import pytest
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext

from clusters.drivers import Ambiguous
from clusters.drivers.simulated import Node, add_foreign_pod, driver, path_of
from clusters.engine.inventory import ForeignUse, NodeUse
from clusters.models import Cluster
from clusters.models import Node as StoredNode
from clusters.operations import record_inventory, record_use, register_simulated
from federation import operations
from federation.models import Job, PodRun
from federation.observer import feed, process
from federation.observer.feed import Feed
from federation.observer.process import Observer
from federation.operations.reconciliation import reconcile_clusters
from federation.operations.restoration import begin_standstill
from foundation import leases
from foundation.clock import now
from foundation.ids import new_id
from foundation.leases import LeaseLost, Tenure
from foundation.models import Lease
from foundation.threads import open_threads
from tenancy.queries import SYSTEM
from tests.builders import make_cluster, make_tenant
from tests.live import call
from tests.rooms.clusters.test_inventory import seen, version
from tests.rooms.federation.test_evidence import released
from tests.rooms.federation.test_restoration import forget_attempts

pytestmark = pytest.mark.django_db(transaction=True)
PATIENCE_SECONDS = 40


def wait_for(condition, what):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def shares():
    """How many clusters each observer holds."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT holder, count(*) FROM foundation_lease"
            " WHERE starts_with(name, 'observe:') AND expires_at > clock_timestamp() GROUP BY holder"
        )
        return Counter(dict(cursor.fetchall()))


@contextmanager
def observing():
    """An observer in a thread and a loop of its own; what it raised is raised at the end."""
    loop, raised = asyncio.new_event_loop(), []
    task = loop.create_task(Observer().run())

    def run():
        try:
            loop.run_until_complete(task)
        except asyncio.CancelledError:
            pass
        except BaseException as error:  # noqa: BLE001 - raised again below
            raised.append(error)
        finally:
            loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield task
    finally:
        if thread.is_alive():
            loop.call_soon_threadsafe(task.cancel)
        thread.join(PATIENCE_SECONDS)
        if raised:
            raise raised[0]


def fleet(count):
    return [register_simulated(make_tenant("acme"), f"member-{number}") for number in range(count)]


def test_observers_share_the_clusters_as_others_come_and_go(home):
    fleet(6)
    with observing():
        wait_for(lambda: sorted(shares().values()) == [6], "the only one follows all")
        with observing():
            wait_for(lambda: sorted(shares().values()) == [3, 3], "the second one gets its half")
            with observing():
                wait_for(lambda: sorted(shares().values()) == [2, 2, 2], "the third one its third")
        wait_for(lambda: sorted(shares().values()) == [6], "the one that stays follows all again")
    assert not shares()


def test_an_observer_that_lost_its_lease_writes_nothing(home, monkeypatch):
    monkeypatch.setattr(process, "ROUND_SECONDS", 3600)  # it does not find out by itself
    node = Node(name="n1", uid="u1", labels={}, allocatable={"cpu": "64", "memory": "64Gi", "pods": "110"})
    cluster = register_simulated(make_tenant("acme"), "east", nodes=[node])
    path = path_of(home, cluster.server)
    with observing():
        wait_for(StoredNode.objects.filter(cluster=cluster).exists, "the node is seen")
        Lease.objects.filter(name=f"observe:{cluster.id}").update(expires_at="2020-01-01T00:00:00Z")
        assert leases.acquire(f"observe:{cluster.id}", "somebody else", ttl_seconds=60)
        before = Cluster.objects.values("last_seen_at", "observed_at", "inventory_version").get(id=cluster.id)
        add_foreign_pod(path, "n1", {"cpu": "4", "memory": "1Gi"})
        time.sleep(6)  # more than a pulse and an inventory
        assert StoredNode.objects.get(cluster=cluster).foreign_pods == 0
        assert Cluster.objects.values("last_seen_at", "observed_at", "inventory_version").get(id=cluster.id) == before


def test_what_lost_commits_said_of_pods_is_said_again_when_their_cluster_was_compared(cluster, submitter):
    """A replica without the last commits took over, or a backup was restored. The watches go on: nothing of the pods changes."""
    released(submitter, jobs=2, gpus=1)
    with observing():
        wait_for(lambda: PodRun.objects.exclude(started_at=None).count() == 2, "both are seen to run")
        forget_attempts()
        begin_standstill(SYSTEM, "restored")
        reconcile_clusters()
        wait_for(lambda: Job.objects.filter(state="running").count() == 2, "the adopted are seen to run")


def test_what_ran_while_the_database_was_away_for_longer_than_a_lease_is_recorded(cluster, submitter, monkeypatch):
    """A pod starts and is taken away again before anything can be written down."""
    is_away, is_noticed, renew_all = threading.Event(), threading.Event(), leases.renew_all

    def renew_or_fail(*args, **kwargs):
        if is_away.is_set():
            is_noticed.set()
            raise OperationalError("the database is away")
        return renew_all(*args, **kwargs)

    monkeypatch.setattr(leases, "renew_all", renew_or_fail)
    monkeypatch.setattr(process, "ROUND_SECONDS", 0.2)
    seen, take = [], Feed._take_pods

    def take_and_note(self, event):
        take(self, event)
        seen.extend((event.kind, pod.phase) for pod in event.objects)

    monkeypatch.setattr(Feed, "_take_pods", take_and_note)
    lease = Lease.objects.filter(name=f"observe:{cluster.id}")
    with observing():
        wait_for(lambda: shares().total() == 1, "the cluster is followed")
        is_away.set()
        wait_for(is_noticed.is_set, "no renewal is under way any more")
        lease.update(expires_at="2020-01-01T00:00:00Z")
        released(submitter)
        wait_for(lambda: ("changed", "Running") in seen, "the pod is seen to run")
        [job] = call(cluster, "list_jobs")
        call(cluster, "delete_job", job.namespace, job.name, job.uid)
        wait_for(lambda: any(kind == "deleted" for kind, _ in seen), "and to be gone")
        assert not PodRun.objects.exists()
        is_away.clear()
        wait_for(PodRun.objects.filter(is_gone=True).exclude(started_at=None).exists, "the pod is recorded")


def test_a_cluster_counts_as_observed_only_until_its_oldest_report_that_is_not_recorded(
    cluster, submitter, monkeypatch
):
    """Otherwise running time would be metered beyond an end that waits to be recorded."""
    fails, record, refused_at = threading.Event(), operations.record_observations, []

    def record_or_fail(*args):
        if fails.is_set():
            refused_at.append(now())
            raise OperationalError("the database refuses")
        record(*args)

    def instants():
        return Cluster.objects.values_list("last_seen_at", "observed_at").get(id=cluster.id)

    monkeypatch.setattr(operations, "record_observations", record_or_fail)
    monkeypatch.setattr(driver, "_ALIVE_SECONDS", 0.1)
    monkeypatch.setattr(feed, "PULSE_SECONDS", 0.1)
    with observing():
        wait_for(lambda: None not in instants() and shares().total() == 1, "the cluster is observed")
        fails.set()
        released(submitter)
        wait_for(lambda: refused_at, "the pod is seen to run")
        wait_for(lambda: instants()[0] > refused_at[0] + timedelta(seconds=1), "its pulse goes on")
        assert instants()[1] <= refused_at[0]
        fails.clear()
        wait_for(lambda: instants()[1] > refused_at[0] + timedelta(seconds=1), "it is observed again")
    assert PodRun.objects.exists()


def test_nobody_takes_a_lease_between_the_look_at_it_and_the_commit_of_what_was_written_under_it():
    token = leases.acquire("observe:x", "one", ttl_seconds=3)
    took = []

    def take():
        try:
            time.sleep(3.2)
            token = leases.acquire("observe:x", "other", ttl_seconds=60)
            took.append((time.monotonic(), token))
        finally:
            connection.close()

    thread = threading.Thread(target=take)
    thread.start()
    with Tenure("observe:x", token).fence():
        time.sleep(4)
        committed_at = time.monotonic()
    thread.join()
    assert took[0][0] >= committed_at
    assert took[0][1] > token
    with pytest.raises(LeaseLost), Tenure("observe:x", token).fence():
        pytest.fail("it is not held any more")


def test_an_observer_that_is_stopped_in_the_middle_of_its_round_ends_well_and_gives_back_what_it_took(home):
    fleet(12)
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION slow_lease() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN PERFORM pg_sleep(0.05); RETURN NEW; END $$"
        )
        cursor.execute(
            "CREATE TRIGGER slow_lease BEFORE INSERT OR UPDATE ON foundation_lease FOR EACH ROW EXECUTE FUNCTION slow_lease()"
        )
    try:
        for seconds in (0.1, 0.3, 0.5, 0.7):
            with observing():
                time.sleep(seconds)
            assert not shares()
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP TRIGGER slow_lease ON foundation_lease")
            cursor.execute("DROP FUNCTION slow_lease()")


def test_a_changed_pod_costs_its_node_and_not_the_cluster():
    cluster = make_cluster()
    nodes = [seen(f"n{number}") for number in range(1000)]
    began = time.process_time()
    record_inventory(cluster.id, nodes, {})
    whole = time.process_time() - began
    use = {"n7": NodeUse(ForeignUse(500, 64, 1, {}), {})}
    with CaptureQueriesContext(connection) as asked:
        began = time.process_time()
        assert record_use(cluster.id, use) == 1
        took = time.process_time() - began
    assert len(asked) <= 8
    assert took < whole / 2, "a whole inventory of so many nodes takes several times as long"
    assert version(cluster) == 2
    assert StoredNode.objects.get(cluster=cluster, name="n7").foreign_cpu_millicores == 500
    assert record_use(cluster.id, use) == 0
    assert record_use(cluster.id, {"n7": NodeUse(ForeignUse(500, 64, 1, {}), {"nvidia.com/gpu": 3})}) == 1
    assert version(cluster) == 2, "our own use is no news to placement"


class _Deaf:
    """A driver whose calls never end, and make a time-out of the cancellation that ends them."""

    def __getattr__(self, name):
        return self._call

    async def _call(self, *_):
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            raise Ambiguous("no answer within the time limit") from None

    def watch_nodes(self):
        return None

    watch_pods = watch_jobs = watch_slices = watch_claims = watch_nodes

    async def close(self):
        pass


def test_a_feed_that_is_stopped_at_the_moment_of_a_time_out_ends():
    feed = Feed(new_id(), "uid", _Deaf(), open_threads("unused", 1), Tenure("unused", 1))

    async def stop():
        following = asyncio.create_task(feed.run())
        await asyncio.sleep(0.1)
        following.cancel()
        done, _ = await asyncio.wait([following], timeout=PATIENCE_SECONDS)
        assert done, "it follows on although it was cancelled"
        assert following.cancelled()

    asyncio.run(stop())
