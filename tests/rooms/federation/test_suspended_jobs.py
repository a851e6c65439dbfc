"""A suspended job and its attempt, whatever else happens to them: the rows, who may ask, and what is shown."""

import pytest
from django.db import IntegrityError, connection, transaction

from clusters.models import Cluster
from federation import operations
from federation.engine.lifecycle import AttemptState
from federation.models import Attempt, Job
from federation.operations import Observations, attestation, record_observations, sweep, transitions
from federation.operations.consequences import Ending
from federation.operations.endings import end_attempts
from foundation.caches import reset_all
from foundation.clock import now
from foundation.problems import Conflict, NotFound, PermissionDenied, RateLimited
from placement.values.reason_codes import ReasonCode
from tenancy.models import AuditEntry, User
from tests.builders import actor_for, bearer, bind, make_cluster, make_flavor, make_node, make_user, submit
from tests.live import gpu_job
from tests.refusals import constraint_of
from tests.rooms.federation.test_observation import attempt, job_of, pod_of
from tests.rooms.federation.test_transitions import owner_of

pytestmark = pytest.mark.django_db
__all__ = ["attempt"]


def told(job):
    job.refresh_from_db()
    return job.state, job.reason_code


def entries(job, action):
    return AuditEntry.objects.filter(action=action, object_id=str(job.id), outcome="done").count()


def ended_as(attempt):
    attempt.refresh_from_db()
    return attempt.state, attempt.end_reason


@pytest.fixture
def fleet():
    """A cluster with room, in rows only."""
    cluster = make_cluster("acme", "east")
    make_flavor(cluster)
    make_node(cluster)
    return cluster


def plain(name="train"):
    return {**gpu_job(name), "labels": {}}


def test_a_queued_job_is_suspended_at_once_and_no_cycle_places_it(fleet, submitter):
    job = submit(submitter, plain())
    for _ in "12":
        assert operations.request_suspension(submitter, job.id).state == "suspended"
    operations.run_scheduling_cycle()
    assert (told(job), Attempt.objects.count(), entries(job, "job.suspend")) == (("suspended", "suspended"), 0, 1)
    for _ in "12":
        assert operations.request_resumption(submitter, job.id).state == "queued"
    assert entries(job, "job.resume") == 1
    operations.run_scheduling_cycle()
    assert Attempt.objects.get().job_id == job.id


def test_a_suspended_job_can_be_cancelled_and_then_neither_suspended_nor_resumed(fleet, submitter):
    job = submit(submitter, plain())
    operations.request_suspension(submitter, job.id)
    assert operations.request_cancellation(submitter, job.id).state == "cancelled"
    assert "while it was suspended" in Job.objects.get(id=job.id).reason_message
    for request in (operations.request_suspension, operations.request_resumption):
        with pytest.raises(Conflict) as refused:
            request(submitter, job.id)
        assert refused.value.code == "state_conflict"


def test_a_success_that_comes_first_stands(attempt):
    operations.request_suspension(owner_of(attempt.job), attempt.job_id)
    record_observations(attempt.cluster_id, Observations(jobs=[job_of(attempt, "succeeded")]))
    assert told(attempt.job)[0] == "succeeded"


def test_a_failure_while_it_is_stopped_does_not_end_the_job(attempt):
    operations.request_suspension(owner_of(attempt.job), attempt.job_id)
    record_observations(attempt.cluster_id, Observations(jobs=[job_of(attempt, "failed")], pods=[pod_of(attempt)]))
    assert told(attempt.job) == ("running", "suspending")
    assert ended_as(attempt) == ("running", "")
    # Others may have deleted its object, so that its pods still run: dispatch asks for them first.
    record_observations(attempt.cluster_id, Observations(gone_jobs=[attempt.remote_objects.get().uid]))
    assert ended_as(attempt) == ("running", "")


def test_an_attempt_that_was_interrupted_first_keeps_its_cause_and_its_job_is_suspended(attempt):
    with transaction.atomic():
        transitions.ask_to_stop([attempt.id], "node_lost")
    operations.request_suspension(owner_of(attempt.job), attempt.job_id)
    end_attempts([Ending(attempt.id, AttemptState.PREEMPTED, "node_lost")])
    assert (told(attempt.job), ended_as(attempt)) == (("suspended", "suspended"), ("preempted", "node_lost"))


def test_a_silent_cluster_holds_it_and_an_attestation_suspends_it(attempt):
    record_observations(attempt.cluster_id, Observations(pods=[pod_of(attempt)]))
    Cluster.objects.update(health="unreachable", silent_since=now().replace(year=2020))
    operations.request_suspension(owner_of(attempt.job), attempt.job_id)
    sweep()
    assert (ended_as(attempt), told(attempt.job)) == (("unknown", ""), ("running", "suspending"))
    with transaction.atomic():
        attestation.end_as_lost([attempt], attempt.cluster, ReasonCode.RUN_DEAD, "x")
    assert (told(attempt.job), ended_as(attempt)) == (("suspended", "suspended"), ("lost", "run_dead"))


def test_a_silent_cluster_that_returns_stops_it(attempt):
    Cluster.objects.update(health="unreachable", silent_since=now().replace(year=2020))
    sweep()
    operations.request_suspension(owner_of(attempt.job), attempt.job_id)
    Cluster.objects.update(health="ready", silent_since=None)
    sweep()
    attempt.refresh_from_db()
    assert (attempt.state, attempt.stop_reason, told(attempt.job)[1]) == ("starting", "suspended", "suspending")
    assert attempt.next_action_at is not None


def test_others_may_neither_suspend_nor_resume_it(attempt):
    operations.request_suspension(owner_of(attempt.job), attempt.job_id)
    viewer, stranger = make_user("v@acme.example"), make_user("s@else.example")
    bind(viewer, "acme", "viewer")
    bind(stranger, "else", "admin")
    for request in (operations.request_suspension, operations.request_resumption):
        with pytest.raises(PermissionDenied):
            request(actor_for(viewer), attempt.job_id)
        with pytest.raises(NotFound):
            request(actor_for(stranger), attempt.job_id)


@pytest.mark.parametrize(
    ("changes", "refused_by"),
    [
        ("state = 'queued'", "no_suspended_job_is_queued"),
        ("suspend_requested_at = NULL", "only_users_suspend_jobs"),
    ],
)
def test_the_database_keeps_a_suspended_job_out_of_the_queue(fleet, submitter, changes, refused_by):
    job = submit(submitter, plain())
    operations.request_suspension(submitter, job.id)
    with pytest.raises(IntegrityError) as refusal, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"UPDATE federation_job SET {changes} WHERE id = %s", [job.id])
    assert constraint_of(refusal.value) == refused_by


def test_suspended_jobs_count_against_the_bound_of_the_queue(fleet, submitter, settings):
    settings.MOST_QUEUED = 1
    operations.request_suspension(submitter, submit(submitter, plain()).id)
    reset_all()  # the count is kept for some seconds
    with pytest.raises(RateLimited):
        submit(submitter, plain("second"))


def test_the_page_suspends_and_resumes_it(fleet, submitter, client):
    job = submit(submitter, plain())
    client.force_login(User.objects.get(id=submitter.user_id))
    page = f"/jobs/{job.id}/"
    assert "Suspend the job" in client.get(page).content.decode()
    assert client.post(f"{page}suspend/").status_code == 302
    assert told(job) == ("suspended", "suspended")
    shown = client.get(page).content.decode()
    assert f'action="{page}resume/"' in shown
    assert "Suspend the job" not in shown
    assert client.post(f"{page}resume/").status_code == 302
    assert told(job) == ("queued", "resumed")
    assert client.get(f"{page}suspend/").status_code == 405


def test_the_api_suspends_and_resumes_it(fleet, submitter, client):
    job = submit(submitter, plain())
    headers = bearer(User.objects.get(id=submitter.user_id))
    for action, state, code in (("suspend", "suspended", "suspended"), ("resume", "queued", "resumed")):
        # without a body, as of `curl -X POST` and `curl -d ''`, and with an empty one
        for body, kind in (
            (b"", ""),
            (b"", "application/x-www-form-urlencoded"),
            (b"", "application/json"),
            (b"{}", "application/json"),
        ):
            answer = client.generic("POST", f"/api/v1/jobs/{job.id}/{action}", body, kind, headers=headers)
            assert answer.status_code == 202, (action, kind, answer.content)
            shown = answer.json()
            assert (answer.status_code, shown["state"], shown["reason"]["code"]) == (202, state, code)
            assert bool(shown["suspend_requested_at"]) == (action == "suspend")
    client.post(f"/api/v1/jobs/{job.id}/cancel", headers=headers)
    for action in ("suspend", "resume"):
        answer = client.generic("POST", f"/api/v1/jobs/{job.id}/{action}", headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (409, "state_conflict")
