"""Comparing rows with clusters: each when it is due, side by side, and for what changed and not for what ever was."""

import threading
import time
from contextlib import contextmanager

import pytest
from django.db import connection, transaction

from clusters.drivers.simulated import SimulatedDriver
from clusters.operations import register_simulated
from clusters.queries import driver_of
from federation import operations
from federation.models import Attempt, ClusterUpkeep
from federation.operations import continuity, reconciliation, rounds
from federation.operations.restoration import begin_standstill
from federation.queries.due_clusters import due_clusters
from federation.queries.metering import unsettled_attempts
from foundation.clock import database_now
from foundation.threads import close_kept_threads
from foundation.turns import Turn
from tenancy.queries import SYSTEM
from tests.backlog import long_ago
from tests.builders import make_tenant
from tests.kept_statements import forget_statements
from tests.live import place

pytestmark = pytest.mark.django_db(transaction=True)
ENDED = 20_000


@pytest.fixture
def fleet(home):
    yield [register_simulated(make_tenant("acme"), f"member-{number}") for number in range(12)]
    close_kept_threads()


def compared():
    return dict(ClusterUpkeep.objects.exclude(compared_at=None).values_list("cluster_id", "compared_at"))


def test_a_new_list_of_one_cluster_has_that_one_compared_and_no_other(fleet):
    assert operations.compare_clusters() == 12
    before = compared()
    assert operations.compare_clusters() == 0
    operations.ask_for_reconciliation(fleet[3].id)
    assert operations.compare_clusters() == 1
    assert {one for one, at in compared().items() if at != before[one]} == {fleet[3].id}


def test_a_standstill_has_every_cluster_compared_at_once(fleet):
    operations.compare_clusters()
    before = compared()
    begin_standstill(SYSTEM, "restored")
    assert operations.compare_clusters() == 12
    assert all(at > before[one] for one, at in compared().items())


def test_what_is_attested_to_have_vanished_has_its_cluster_compared_at_once(fleet):
    operations.compare_clusters()
    before = compared()
    operations.attest_cluster(SYSTEM, fleet[2].id, {"what": "vanished", "note": "rack 7 burnt"})
    assert operations.compare_clusters() == 1
    assert {one for one, at in compared().items() if at != before[one]} == {fleet[2].id}


def test_a_list_that_comes_during_a_comparison_has_the_cluster_compared_once_more(fleet, monkeypatch):
    operations.compare_clusters()
    listed = []
    reconcile = reconciliation._reconcile

    def listed_anew_meanwhile(cluster):
        is_compared = reconcile(cluster)
        if not listed:
            operations.ask_for_reconciliation(cluster.id)
        listed.append(cluster.id)
        return is_compared

    monkeypatch.setattr(reconciliation, "_reconcile", listed_anew_meanwhile)
    operations.ask_for_reconciliation(fleet[0].id)
    assert operations.compare_clusters() == 2
    assert listed == [fleet[0].id] * 2


def test_clusters_are_compared_while_others_hang(fleet, monkeypatch):
    monkeypatch.setattr(rounds, "SLOW_AFTER_SECONDS", 0.2)
    reconcile, released = reconciliation._reconcile, threading.Event()
    hanging = {one.id for one in fleet[:9]}

    def compare(cluster):
        if cluster.id in hanging:
            released.wait(240)
        return reconcile(cluster)

    monkeypatch.setattr(reconciliation, "_reconcile", compare)
    try:
        began = time.monotonic()
        operations.compare_clusters(Turn("reconcile", seconds=4))
        while set(compared()) != {one.id for one in fleet[9:]}:
            assert time.monotonic() - began < 120
            time.sleep(0.05)
    finally:
        released.set()


def test_one_cluster_that_cannot_be_compared_does_not_keep_the_others_from_it(fleet, monkeypatch):
    async def broken(driver):
        if "member-0" in str(driver._path):
            raise ZeroDivisionError
        return []

    monkeypatch.setattr(SimulatedDriver, "list_jobs", broken)
    assert operations.compare_clusters() == 11


def test_jobs_that_are_kept_after_their_end_are_recorded_once(cluster, submitter, monkeypatch):
    _, attempt = place(submitter, seconds=1)
    operations.dispatch_attempts()
    recorded = []
    record = operations.record_observations
    monkeypatch.setattr(
        reconciliation, "record_observations", lambda id_, seen: recorded.append(seen.jobs) or record(id_, seen)
    )
    while not Attempt.objects.filter(id=attempt.id, finished_at__isnull=False).exists():
        operations.reconcile_clusters()
        time.sleep(0.1)
    assert recorded[-1][0].outcome == "succeeded"
    before = len(recorded)
    operations.reconcile_clusters()
    assert len(recorded) == before
    attempt.remote_objects.update(outcome="", ended_at=None)
    operations.reconcile_clusters()
    assert attempt.remote_objects.get().outcome == "succeeded"


@contextmanager
def reading(most):
    """Fails when more rows than these of what grows with history are read, in one transaction."""
    tables = ["federation_job", "federation_attempt", "federation_remoteobject"]
    count = (
        "SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)) FROM pg_stat_xact_user_tables"
        " WHERE relname = ANY(%s)"
    )
    forget_statements()
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(count, [tables])
        before = cursor.fetchone()[0]
        yield
        cursor.execute(count, [tables])
        assert cursor.fetchone()[0] - before <= most


def test_what_has_long_ended_is_not_read_again(cluster, submitter):
    for number in range(5):
        place(submitter, name=f"job-{number}", gpus=1, seconds=100_000)
    operations.dispatch_attempts()
    pattern = Attempt.objects.first()
    long_ago(pattern, [cluster], ENDED)
    driver, at = driver_of(cluster.id), database_now()
    with reading(100):
        reconciliation._confirm_removed(cluster.id, [], at)
    with reading(100):
        reconciliation._notice_vanished(reconciliation._compared(cluster.id), driver, [], at)
    with reading(100):
        due_clusters()
    with reading(100):
        unsettled_attempts(500)
    for look in (
        continuity.lose_sight,
        continuity.regain_sight,
        continuity.recall_unstarted,
        continuity.explain_unstarted,
    ):
        with reading(200):
            look()
