"""A process whose clock is hours off does its work like any other: what matters is compared on the database's clock."""

from datetime import timedelta

import pytest

from federation import operations
from federation.models import Attempt, Job
from foundation import clock
from foundation.routines import run_exclusively
from tests.builders import submit
from tests.live import gpu_job

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
