"""A cluster's removal against attempts that live on it or begin on it at the same moment."""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from django.db import IntegrityError, connection, transaction

from clusters.models import Cluster
from clusters.operations import remove_cluster
from federation.models import Attempt, Job
from foundation import clock
from foundation.problems import Conflict
from tenancy.queries import SYSTEM
from tests.builders import make_cluster, make_tenant, make_user
from tests.kept_sessions import end_sessions
from tests.refusals import constraint_of

pytestmark = pytest.mark.django_db(transaction=True)
DEADLINE_SECONDS = 20
LIVE = ["reserved", "created", "starting", "running", "unknown"]


def begin_attempt(cluster, state="reserved", **fields):
    job = Job.objects.create(tenant=make_tenant("acme"), created_by=make_user(), name="train", spec={}, shape="s")
    return Attempt.objects.create(
        job=job, number=1, cluster=cluster, state=state, flavor="h100", namespace="swy-x", spec_hash="h", **fields
    )


@contextmanager
def another_session():
    """Runs things in a thread with a database connection of its own."""
    with ThreadPoolExecutor(1) as pool:
        try:
            yield pool
        finally:
            pool.submit(end_sessions).result()


def wait_until_blocked():
    """Returns once some session waits for a lock."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
            if cursor.fetchone()[0]:
                return
        assert time.monotonic() < deadline, "nobody waited"
        time.sleep(0.01)


@pytest.mark.parametrize("state", LIVE)
def test_a_cluster_with_a_live_attempt_is_not_removed(state):
    cluster = make_cluster()
    begin_attempt(cluster, state)
    with pytest.raises(Conflict) as caught:
        remove_cluster(SYSTEM, cluster.id)
    assert caught.value.code == "cluster_in_use"
    assert Cluster.objects.filter(id=cluster.id).exists()


def test_a_cluster_whose_attempts_have_ended_is_removed_and_they_are_kept():
    cluster = make_cluster()
    attempt = begin_attempt(cluster, "succeeded", finished_at=clock.now())
    remove_cluster(SYSTEM, cluster.id)
    attempt.refresh_from_db()
    assert attempt.cluster.name == cluster.name


def test_no_attempt_begins_on_a_removed_cluster():
    cluster = make_cluster()
    remove_cluster(SYSTEM, cluster.id)
    with pytest.raises(IntegrityError) as caught, transaction.atomic():
        begin_attempt(cluster)
    assert constraint_of(caught.value) == "attempts_begin_on_registered_clusters"


def test_a_removal_waits_for_an_attempt_that_is_beginning_and_is_then_refused():
    cluster = make_cluster()
    with another_session() as other:
        with transaction.atomic():
            begin_attempt(cluster)
            removal = other.submit(remove_cluster, SYSTEM, cluster.id)
            wait_until_blocked()
        with pytest.raises(Conflict):
            removal.result(DEADLINE_SECONDS)
    assert Attempt.objects.count() == 1


def test_an_attempt_waits_for_a_removal_under_way_and_then_does_not_begin():
    cluster = make_cluster()
    with another_session() as other:
        with transaction.atomic():
            remove_cluster(SYSTEM, cluster.id)
            beginning = other.submit(begin_attempt, cluster)
            wait_until_blocked()
        with pytest.raises(IntegrityError):
            beginning.result(DEADLINE_SECONDS)
    assert not Attempt.objects.exists()


def test_reports_of_health_do_not_make_attempts_wait():
    cluster = make_cluster()
    with another_session() as other, transaction.atomic():
        Cluster.objects.filter(id=cluster.id).update(kubernetes_version="v1.36.3")
        other.submit(begin_attempt, cluster).result(DEADLINE_SECONDS)
