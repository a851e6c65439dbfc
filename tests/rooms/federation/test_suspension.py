"""A user suspends a job and resumes it: its run is stopped on evidence, and nothing of it starts in between."""

import pytest
from django.db import IntegrityError, connection, transaction

from billing.models import Meter
from clusters.drivers import Unreachable
from clusters.models import Cluster
from federation import operations
from federation.engine.lifecycle import AttemptState
from federation.models import Attempt, Job, JobEvent
from federation.operations import Observations, attestation, record_observations, sweep, transitions
from federation.operations.endings import end_attempts
from federation.operations.transitions import Ending
from foundation.caches import reset_all
from foundation.clock import now
from foundation.problems import Conflict, NotFound, PermissionDenied, RateLimited
from quotas.models import Hold
from tenancy.models import AuditEntry, User
from tests.builders import actor_for, bearer, bind, make_cluster, make_flavor, make_node, make_user, submit
from tests.live import call, every_visit, gpu_job, observe_until, place
from tests.refusals import constraint_of
from tests.rooms.federation.test_evidence import replaced
from tests.rooms.federation.test_observation import attempt, job_of, pod_of
from tests.rooms.federation.test_transitions import owner_of

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


class TestOnACluster:
    pytestmark = pytest.mark.django_db(transaction=True)

    def test_a_running_job_is_suspended_when_nothing_of_it_is_left_and_resumed_with_another_attempt(
        self, cluster, submitter
    ):
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

    def test_a_job_that_no_worker_has_sent_is_suspended_without_a_request_and_costs_nothing(self, cluster, submitter):
        job, attempt = place(submitter)
        operations.request_suspension(submitter, job.id)
        assert told(job) == ("dispatching", "suspending")
        operations.dispatch_attempts()
        assert (told(job), ended_as(attempt)) == (("suspended", "suspended"), ("abandoned", "suspended"))
        assert (Hold.objects.get(holder_id=attempt.id).state, call(cluster, "list_jobs")) == ("voided", [])

    def test_its_attempt_has_not_ended_before_its_pods_have(self, cluster, submitter, monkeypatch):
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

    def test_a_late_worker_does_not_start_it(self, cluster, submitter, monkeypatch):
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

    def test_a_recall_is_not_revoked_once_a_user_has_suspended_the_job(self, cluster, submitter):
        job, attempt = place(submitter, seconds=100_000)
        observe_until(lambda: Job.objects.filter(state="running").exists())
        with transaction.atomic():
            transitions.ask_to_stop([attempt.id], "did_not_start")
        operations.request_suspension(submitter, job.id)
        every_visit(attempt, 2)
        assert (told(job), ended_as(attempt)) == (("suspended", "suspended"), ("preempted", "suspended"))

    def test_cancelling_a_job_that_is_being_suspended_ends_it(self, cluster, submitter):
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

    def test_a_job_resumed_before_its_attempt_has_ended_is_queued_when_it_has(self, cluster, submitter):
        job, attempt = place(submitter, seconds=100_000)
        observe_until(lambda: Job.objects.filter(state="running").exists())
        operations.request_suspension(submitter, job.id)
        operations.request_resumption(submitter, job.id)
        assert told(job) == ("running", "interrupted")
        every_visit(attempt, 2)
        assert (told(job), ended_as(attempt)) == (("queued", "attempt_returned"), ("preempted", "suspended"))


def plain(name="train"):
    return {**gpu_job(name), "labels": {}}


async def unavailable(*_):
    raise Unreachable("answered with status 503")


class TestItsRows:
    pytestmark = pytest.mark.django_db

    def test_a_queued_job_is_suspended_at_once_and_no_cycle_places_it(self, fleet, submitter):
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

    def test_a_suspended_job_can_be_cancelled_and_then_neither_suspended_nor_resumed(self, fleet, submitter):
        job = submit(submitter, plain())
        operations.request_suspension(submitter, job.id)
        assert operations.request_cancellation(submitter, job.id).state == "cancelled"
        assert "while it was suspended" in Job.objects.get(id=job.id).reason_message
        for request in (operations.request_suspension, operations.request_resumption):
            with pytest.raises(Conflict) as refused:
                request(submitter, job.id)
            assert refused.value.code == "state_conflict"

    def test_a_success_that_comes_first_stands(self, attempt):
        operations.request_suspension(owner_of(attempt.job), attempt.job_id)
        record_observations(attempt.cluster_id, Observations(jobs=[job_of(attempt, "succeeded")]))
        assert told(attempt.job)[0] == "succeeded"

    def test_a_failure_while_it_is_stopped_does_not_end_the_job(self, attempt):
        operations.request_suspension(owner_of(attempt.job), attempt.job_id)
        record_observations(attempt.cluster_id, Observations(jobs=[job_of(attempt, "failed")], pods=[pod_of(attempt)]))
        assert told(attempt.job) == ("running", "suspending")
        assert ended_as(attempt) == ("running", "")
        # Others may have deleted its object, so that its pods still run: dispatch asks for them first.
        record_observations(attempt.cluster_id, Observations(gone_jobs=[attempt.remote_objects.get().uid]))
        assert ended_as(attempt) == ("running", "")

    def test_an_attempt_that_was_interrupted_first_keeps_its_cause_and_its_job_is_suspended(self, attempt):
        with transaction.atomic():
            transitions.ask_to_stop([attempt.id], "node_lost")
        operations.request_suspension(owner_of(attempt.job), attempt.job_id)
        end_attempts([Ending(attempt.id, AttemptState.PREEMPTED, "node_lost")])
        assert (told(attempt.job), ended_as(attempt)) == (("suspended", "suspended"), ("preempted", "node_lost"))

    def test_a_silent_cluster_holds_it_and_an_attestation_suspends_it(self, attempt):
        record_observations(attempt.cluster_id, Observations(pods=[pod_of(attempt)]))
        Cluster.objects.update(health="unreachable", silent_since=now().replace(year=2020))
        operations.request_suspension(owner_of(attempt.job), attempt.job_id)
        sweep()
        assert (ended_as(attempt), told(attempt.job)) == (("unknown", ""), ("running", "suspending"))
        with transaction.atomic():
            attestation.end_as_lost([attempt], attempt.cluster, "run_dead", "x")
        assert (told(attempt.job), ended_as(attempt)) == (("suspended", "suspended"), ("lost", "run_dead"))

    def test_a_silent_cluster_that_returns_stops_it(self, attempt):
        Cluster.objects.update(health="unreachable", silent_since=now().replace(year=2020))
        sweep()
        operations.request_suspension(owner_of(attempt.job), attempt.job_id)
        Cluster.objects.update(health="ready", silent_since=None)
        sweep()
        attempt.refresh_from_db()
        assert (attempt.state, attempt.stop_reason, told(attempt.job)[1]) == ("starting", "suspended", "suspending")
        assert attempt.next_action_at is not None

    def test_others_may_neither_suspend_nor_resume_it(self, attempt):
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
            ("state = 'queued'", "a_suspended_job_does_not_wait_for_a_placement"),
            ("suspend_requested_at = NULL", "only_a_user_suspends_a_job"),
        ],
    )
    def test_the_database_keeps_a_suspended_job_out_of_the_queue(self, fleet, submitter, changes, refused_by):
        job = submit(submitter, plain())
        operations.request_suspension(submitter, job.id)
        with pytest.raises(IntegrityError) as refusal, transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(f"UPDATE federation_job SET {changes} WHERE id = %s", [job.id])
        assert constraint_of(refusal.value) == refused_by

    def test_suspended_jobs_count_against_the_bound_of_the_queue(self, fleet, submitter, settings):
        settings.MOST_QUEUED = 1
        operations.request_suspension(submitter, submit(submitter, plain()).id)
        reset_all()  # the count is kept for some seconds
        with pytest.raises(RateLimited):
            submit(submitter, plain("second"))

    def test_the_page_suspends_and_resumes_it(self, fleet, submitter, client):
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

    def test_the_api_suspends_and_resumes_it(self, fleet, submitter, client):
        job = submit(submitter, plain())
        headers = bearer(User.objects.get(id=submitter.user_id))
        for action, state, code in (("suspend", "suspended", "suspended"), ("resume", "queued", "resumed")):
            for _ in "12":
                answer = client.post(f"/api/v1/jobs/{job.id}/{action}", headers=headers)
                shown = answer.json()
                assert (answer.status_code, shown["state"], shown["reason"]["code"]) == (202, state, code)
                assert bool(shown["suspend_requested_at"]) == (action == "suspend")
        client.post(f"/api/v1/jobs/{job.id}/cancel", headers=headers)
        for action in ("suspend", "resume"):
            answer = client.post(f"/api/v1/jobs/{job.id}/{action}", headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (409, "state_conflict")
