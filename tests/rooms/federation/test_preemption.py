"""An urgent job takes the place of running ones of its organisation: live, on simulated clusters."""

import pytest

from billing.models import Meter
from federation import operations
from federation.models import Attempt, Job, JobEvent, Preemption, PreemptionVictim, PriorityClass
from quotas.models import Hold
from tests.builders import submit
from tests.live import gpu_job, observe_until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def classes():
    PriorityClass.objects.filter(name="high").update(preempts="lower")
    PriorityClass.objects.update(shield_seconds=0)


def urgent(name="urgent", **fields):
    return gpu_job(name, **fields) | {"priority_class": "high"}


def running(*jobs):
    return lambda: Job.objects.filter(id__in=[job.id for job in jobs], state="running").count() == len(jobs)


def told(job):
    job.refresh_from_db()
    return job.state, job.reason_code


def test_an_urgent_job_takes_the_place_of_a_running_one_which_is_stopped_once_and_resumes(cluster, submitter):
    first, second = (submit(submitter, gpu_job(f"batch-{n}", seconds=100_000)) for n in range(2))
    observe_until(running(first, second))
    job = submit(submitter, urgent(seconds=5))
    operations.run_scheduling_cycle()
    assert told(job) == ("queued", "waiting_for_preemption")
    assert "1 less urgent job is being stopped for it" in job.reason_message
    made = Preemption.objects.get()
    victim = PreemptionVictim.objects.get()
    stopped, other = (first, second) if victim.job_id == first.id else (second, first)
    assert (made.beneficiary_id, made.cluster_id, len(made.nodes)) == (job.id, cluster.id, 1)
    assert told(stopped) == ("running", "interrupted")
    observe_until(running(job, other))
    made.refresh_from_db()
    assert (made.outcome, Preemption.objects.count()) == ("placed", 1)
    attempt = Attempt.objects.get(id=victim.attempt_id)
    assert (attempt.state, attempt.end_reason) == ("preempted", "preempted_for_job")
    assert attempt.end_message == f"Preempted for job {job.id}"
    assert told(stopped)[0] == "queued"
    observe_until(lambda: Job.objects.filter(id=job.id, state="succeeded").exists() and running(stopped, other)())
    kinds = list(JobEvent.objects.filter(job=stopped).order_by("id").values_list("kind", flat=True))
    assert kinds.count("interrupted") == 1
    assert [one.number for one in stopped.attempts.order_by("number")] == [1, 2]
    attempt.refresh_from_db()
    hold, meter = Hold.objects.get(holder_id=attempt.id), Meter.objects.get(run_id=attempt.id)
    assert (hold.state, meter.is_closed, attempt.lost_seconds is not None) == ("posted", True, True)
    assert PreemptionVictim.objects.count() == 1
