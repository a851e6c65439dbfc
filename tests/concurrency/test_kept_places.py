"""Places that are kept for restarts, while rounds, failures, ends and cancellations run at once, with real commits."""

from functools import partial
from threading import Barrier

import pytest
from django.db import transaction
from django.db.models import Count

from federation import operations
from federation.locks import lock_with_jobs
from federation.models import LIVE_ATTEMPT_STATES, Attempt, Job, KeptPlace
from federation.operations.kept_places import end_places, keep_places
from federation.queries.preemption import load_claims
from foundation.clock import database_now
from quotas.models import KeptIdle
from tests.builders import submit
from tests.live import gpu_job, observe_until

from .test_live_races import at_once

pytestmark = pytest.mark.django_db(transaction=True)
HERE = {"name": "here", "when": {"exit_codes": [7]}, "then": "again_here", "retries": 1, "keep_seconds": 60}


def crashing(submitter, seconds: str = "1", **rule) -> Job:
    body = gpu_job(gpus=8, exit_code=7)
    body["labels"] |= {"sim.switchyard.dev/run-seconds": seconds}
    return submit(submitter, {**body, "failure_rules": [{**HERE, **rule}]})


def test_a_job_that_failed_starts_again_on_its_node_before_a_more_urgent_one(cluster, submitter):
    job = crashing(submitter, "3")
    observe_until(lambda: Attempt.objects.filter(job=job, state="running").exists())
    others = [submit(submitter, gpu_job(f"other-{number}", gpus=8, seconds=600)) for number in range(4)]
    Job.objects.filter(id__in=[one.id for one in others]).update(priority=100)
    observe_until(lambda: Attempt.objects.filter(job=job, number=2).exists())
    first, second = Attempt.objects.filter(job=job).order_by("number")
    assert first.finished_at <= second.reserved_at
    assert first.pods.get().node in second.remote_objects.get().assumed_nodes
    observe_until(lambda: Job.objects.filter(id=job.id, state="failed").exists())


def test_rounds_ends_and_a_cancellation_at_once_leave_nothing_kept(cluster, submitter):
    job = crashing(submitter, backoff={"seconds": 300})
    observe_until(lambda: Job.objects.filter(id=job.id, state="queued", attempts_made=1).exists())
    submit(submitter, gpu_job("other", gpus=8, seconds=600))
    works = [*[operations.run_scheduling_cycle] * 2, end_places, end_places]
    assert at_once(*works, partial(operations.request_cancellation, submitter, job.id)) == []
    end_places()
    assert KeptPlace.objects.get().outcome == "withdrawn"
    assert not load_claims(database_now())
    operations.run_scheduling_cycle()
    assert not KeptIdle.objects.filter(ended_at=None).exists()
    live = Attempt.objects.filter(state__in=LIVE_ATTEMPT_STATES)
    assert not live.values("job").annotate(n=Count("id")).filter(n__gt=1).exists()


def test_two_that_keep_the_same_place_keep_it_once(cluster, submitter):
    job = crashing(submitter, "600")
    observe_until(lambda: Attempt.objects.filter(job=job, state="running").exists())
    attempt, together = Attempt.objects.get(job=job), Barrier(2)

    def keep() -> None:
        together.wait()
        with transaction.atomic():
            lock_with_jobs([attempt.id])
            keep_places({attempt.id: 60})

    assert at_once(keep, keep) == []
    assert KeptPlace.objects.count() == 1
