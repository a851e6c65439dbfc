"""A process whose clock is hours off does its work like any other: what matters is compared on the database's clock."""

from datetime import timedelta

import pytest

from clusters.models import Cluster
from federation import operations
from federation.models import Attempt, Job
from foundation import clock
from foundation.routines import run_exclusively
from tests.builders import submit
from tests.live import gpu_job, observe_until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("hours", [2, -2])
def test_a_worker_with_a_wrong_clock_places_dispatches_and_settles(cluster, submitter, monkeypatch, hours):
    right = clock.now
    monkeypatch.setattr(clock, "now", lambda: right() + timedelta(hours=hours))
    job = submit(submitter, gpu_job())
    run_exclusively("cycle", operations.run_scheduling_cycle, for_seconds=0)
    assert Attempt.objects.filter(job=job, state="reserved").exists(), Job.objects.get(id=job.id).reason_message
    operations.dispatch_attempts()
    assert Attempt.objects.get(job=job).released_at is not None
    operations.sweep()
    operations.settle_attempts()
    assert Attempt.objects.get(job=job).state == "starting"


@pytest.mark.parametrize("hours", [2, -2])
def test_what_an_observer_with_a_wrong_clock_sees_counts_as_seen_now(cluster, monkeypatch, hours):
    right = clock.now
    monkeypatch.setattr(clock, "now", lambda: right() + timedelta(hours=hours))
    Cluster.objects.update(observed_at=None)
    observe_until(lambda: Cluster.objects.get(id=cluster.id).observed_at is not None)
    assert abs(clock.database_now() - Cluster.objects.get(id=cluster.id).observed_at) < timedelta(minutes=1)
