"""A user suspends a job on a cluster and resumes it: its run is stopped on evidence, and nothing of it starts in between."""

import pytest
from django.db import transaction

from billing.models import Meter
from clusters.drivers import Unreachable
from federation import operations
from federation.models import Attempt, Job, JobEvent
from federation.operations import transitions
from foundation.problems import Conflict
from quotas.models import Hold
from tenancy.models import AuditEntry
from tests.live import call, every_visit, observe_until, place
from tests.rooms.federation.test_evidence import replaced
from tests.rooms.federation.test_observation import attempt

pytestmark = pytest.mark.django_db(transaction=True)
__all__ = ["attempt"]


def told(job):
    job.refresh_from_db()
    return job.state, job.reason_code


def entries(job, action):
    return AuditEntry.objects.filter(action=action, object_id=str(job.id), outcome="done").count()


def ended_as(attempt):
    attempt.refresh_from_db()
    return attempt.state, attempt.end_reason


async def unavailable(*_):
    raise Unreachable("answered with status 503")


def test_a_running_job_is_suspended_when_nothing_of_it_is_left_and_resumed_with_another_attempt(cluster, submitter):
    job, attempt = place(submitter, seconds=100_000)
    observe_until(lambda: Job.objects.filter(state="running").exists())
    operations.request_suspension(submitter, job.id)
    assert told(job) == ("running", "suspending")
    assert Hold.objects.get(holder_id=attempt.id).state == "pending"
    observe_until(lambda: Job.objects.filter(state="suspended").exists())
    assert ended_as(attempt) == ("preempted", "suspended")
    assert call(cluster, "list_jobs") == []
    observe_until(lambda: Attempt.objects.filter(settled_at__isnull=False).exists())
    assert Attempt.objects.count() == 1  # several cycles later
    hold, meter = Hold.objects.get(holder_id=attempt.id), Meter.objects.get(run_id=attempt.id)
    assert (hold.state, meter.is_closed, told(job)) == ("posted", True, ("suspended", "suspended"))

    operations.request_resumption(submitter, job.id)
    observe_until(lambda: Job.objects.filter(state="running").exists())
    assert [one.number for one in job.attempts.order_by("number")] == [1, 2]
    kinds = list(JobEvent.objects.filter(job=job).order_by("id").values_list("kind", flat=True))
    wanted = ["job_suspending", "attempt_preempted", "job_suspended", "job_resumed"]
    assert [kind for kind in kinds if kind in wanted] == wanted


def test_a_job_that_no_worker_has_sent_is_suspended_without_a_request_and_costs_nothing(cluster, submitter):
    job, attempt = place(submitter)
    operations.request_suspension(submitter, job.id)
    assert told(job) == ("dispatching", "suspending")
    operations.dispatch_attempts()
    assert (told(job), ended_as(attempt)) == (("suspended", "suspended"), ("abandoned", "suspended"))
    assert (Hold.objects.get(holder_id=attempt.id).state, call(cluster, "list_jobs")) == ("voided", [])


def test_its_attempt_has_not_ended_before_its_pods_have(cluster, submitter, monkeypatch):
    job, attempt = place(submitter, seconds=100_000)
    observe_until(lambda: Job.objects.filter(state="running").exists())
    operations.request_suspension(submitter, job.id)
    with monkeypatch.context() as faulty:
        replaced(faulty, "list_pods", unavailable)
        every_visit(attempt, 6)
        assert ended_as(attempt) == ("running", "")
        assert told(job) == ("running", "suspending")
    every_visit(attempt, 2)
    assert told(job) == ("suspended", "suspended")


def test_a_late_worker_does_not_start_it(cluster, submitter, monkeypatch):
    """The suspension is asked for between the creation of the object and the commitment to start it."""
    job, attempt = place(submitter, seconds=100_000)
    commit = transitions.commit_to_start

    def suspended_first(token, ids):
        operations.request_suspension(submitter, job.id)
        return commit(token, ids)

    with monkeypatch.context() as late:
        late.setattr(transitions, "commit_to_start", suspended_first)
        operations.dispatch_attempts()
    attempt.refresh_from_db()
    assert (attempt.state, attempt.starting_at, attempt.released_at) == ("created", None, None)
    every_visit(attempt, 2)
    assert (told(job), call(cluster, "list_jobs")) == (("suspended", "suspended"), [])


@pytest.mark.parametrize("recalled_for", transitions.REFUTABLE)
def test_a_recall_is_not_revoked_once_a_user_has_suspended_the_job(cluster, submitter, recalled_for):
    job, attempt = place(submitter, seconds=100_000)
    observe_until(lambda: Job.objects.filter(state="running").exists())
    with transaction.atomic():
        transitions.ask_to_stop([attempt.id], recalled_for)
    operations.request_suspension(submitter, job.id)
    every_visit(attempt, 2)
    assert (told(job), ended_as(attempt)) == (("suspended", "suspended"), ("preempted", "suspended"))


def test_cancelling_a_job_that_is_being_suspended_ends_it(cluster, submitter):
    job, attempt = place(submitter, seconds=100_000)
    observe_until(lambda: Job.objects.filter(state="running").exists())
    operations.request_suspension(submitter, job.id)
    operations.request_cancellation(submitter, job.id)
    with pytest.raises(Conflict, match="is being cancelled"):
        operations.request_suspension(submitter, job.id)
    with pytest.raises(Conflict, match="is being cancelled"):
        operations.request_resumption(submitter, job.id)
    every_visit(attempt, 2)
    assert (told(job), ended_as(attempt)) == (("cancelled", "cancelled"), ("cancelled", "cancelled"))


def test_a_job_resumed_before_its_attempt_has_ended_is_queued_when_it_has(cluster, submitter):
    job, attempt = place(submitter, seconds=100_000)
    observe_until(lambda: Job.objects.filter(state="running").exists())
    operations.request_suspension(submitter, job.id)
    operations.request_resumption(submitter, job.id)
    assert told(job) == ("running", "interrupted")
    every_visit(attempt, 2)
    assert (told(job), ended_as(attempt)) == (("queued", "attempt_returned"), ("preempted", "suspended"))
