"""A database that was restored, or that lost its last commits, runs nothing twice: first it finds out what runs."""

from uuid import UUID

import pytest
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connection, transaction

from clusters.drivers import JobSeen
from clusters.models import Cluster
from federation import operations
from federation.engine import names
from federation.engine.objects import rendering
from federation.models import Attempt, Job, JobEvent, PodRun, RemoteObject, Standstill
from federation.operations.reconciliation import reconcile_clusters
from federation.operations.restoration import begin_standstill, take_in
from federation.queries.standstill import circumstances
from foundation.clock import database_now
from tenancy.models import AuditEntry, User
from tenancy.queries import SYSTEM
from tests.builders import bearer, make_user, submit
from tests.live import call, gpu_job, observe_until, place
from tests.rooms.federation.test_evidence import released

pytestmark = pytest.mark.django_db(transaction=True)


def forget_attempts():
    """The database as it was when the jobs had been submitted and not yet placed."""
    for model in (JobEvent, PodRun, RemoteObject):
        model.objects.filter(attempt__isnull=False).delete()
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM federation_attempt")
        cursor.execute("UPDATE federation_job SET state = 'queued', attempts_made = 0, started_at = NULL")


def everything():
    """What every process does in a round."""
    operations.run_scheduling_cycle()
    operations.dispatch_attempts()
    operations.sweep()
    reconcile_clusters()
    operations.run_scheduling_cycle()
    operations.dispatch_attempts()


def uids(cluster):
    return sorted(job.uid for job in call(cluster, "list_jobs"))


def test_what_runs_for_a_job_whose_attempt_was_forgotten_is_taken_in_and_runs_once(cluster, submitter):
    released(submitter, jobs=3, gpus=1)
    ran = uids(cluster)
    forget_attempts()
    call_command("standstill", "begin")
    everything()
    assert uids(cluster) == ran
    assert sorted(RemoteObject.objects.values_list("uid", flat=True)) == ran
    call_command("standstill", "open")
    everything()
    assert uids(cluster) == ran
    assert Attempt.objects.count() == 3
    observe_until(lambda: Job.objects.filter(state="running").count() == 3)


def forget_the_release(submitter):
    """An attempt whose object runs, in the database as it was when the object had not been created."""
    _, attempt = place(submitter, seconds=100_000)
    operations.dispatch_attempts()
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE federation_attempt SET state = 'reserved', created_at = NULL, starting_at = NULL, released_at = NULL"
        )
        cursor.execute(
            "ALTER TABLE federation_remoteobject DISABLE TRIGGER USER; UPDATE federation_remoteobject SET uid = '';"
            "ALTER TABLE federation_remoteobject ENABLE TRIGGER USER"
        )
    begin_standstill(SYSTEM, "test")
    return attempt


def test_an_attempt_whose_release_was_forgotten_catches_up(cluster, submitter):
    attempt = forget_the_release(submitter)
    reconcile_clusters()
    attempt.refresh_from_db()
    assert (attempt.state, attempt.released_at) == ("starting", attempt.reserved_at)
    assert [attempt.remote_objects.get().uid] == uids(cluster)


def test_a_cancel_before_the_comparison_is_carried_out_after_it(cluster, submitter):
    attempt = forget_the_release(submitter)
    operations.request_cancellation(submitter, attempt.job_id)
    reconcile_clusters()
    call_command("standstill", "open")
    operations.dispatch_attempts()
    observe_until(lambda: Job.objects.get(id=attempt.job_id).state == "cancelled")
    assert uids(cluster) == []


def test_nothing_on_a_silent_cluster_is_given_up_before_it_was_compared(cluster, submitter):
    attempt = forget_the_release(submitter)
    Cluster.objects.update(health="unreachable", silent_since="2026-01-01T00:00Z")
    operations.sweep()
    attempt.refresh_from_db()
    assert attempt.state == "reserved"
    Cluster.objects.update(health="ready", silent_since=None)
    everything()
    call_command("standstill", "open")
    everything()
    assert Attempt.objects.get().state == "starting"
    assert len(uids(cluster)) == 1


def test_nothing_is_placed_or_dispatched_while_it_stands_still(cluster, submitter):
    begin_standstill(SYSTEM, "test")
    submit(submitter, gpu_job())
    operations.run_scheduling_cycle()
    assert not Attempt.objects.exists()
    Standstill.objects.update(ended_at="2026-01-01T00:00Z", ended_by="x")
    operations.run_scheduling_cycle()
    begin_standstill(SYSTEM, "test")
    operations.dispatch_attempts()
    assert call(cluster, "list_jobs") == []


def test_what_is_suspended_and_unknown_goes_and_what_runs_and_fits_no_job_is_left_to_people(cluster, submitter):
    (job_id,) = released(submitter)
    ran = uids(cluster)
    forget_attempts()
    Job.objects.filter(id=job_id).update(spec={**Job.objects.get().spec, "deadline_seconds": 77})
    call_command("standstill", "begin")
    everything()
    with pytest.raises(CommandError, match="1 objects on east run for no known attempt"):
        call_command("standstill", "open")
    assert uids(cluster) == ran
    call_command("standstill", "open", "--answer-for", "nothing of it matters")
    entry = AuditEntry.objects.get(action="dispatch.open")
    assert (entry.detail["note"], entry.detail["strangers"]) == ("nothing of it matters", {cluster.name: 1})


def test_what_runs_for_a_job_that_is_suspended_again_by_the_restore_is_taken_in_when_the_job_is_resumed(
    cluster, submitter
):
    (job_id,) = released(submitter)
    ran = uids(cluster)
    forget_attempts()
    operations.request_suspension(submitter, job_id)
    call_command("standstill", "begin")
    everything()
    assert uids(cluster) == ran, "the job may not start, and nothing says that what runs must end"
    with pytest.raises(CommandError, match="1 objects on east run for no known attempt"):
        call_command("standstill", "open")
    operations.request_resumption(submitter, job_id)
    everything()
    assert sorted(RemoteObject.objects.values_list("uid", flat=True)) == ran
    call_command("standstill", "open")
    everything()
    assert uids(cluster) == ran
    assert Attempt.objects.count() == 1


def test_a_job_that_is_resumed_while_dispatch_is_closed_waits_until_it_is_opened(cluster, submitter):
    job = submit(submitter, gpu_job())
    operations.request_suspension(submitter, job.id)
    call_command("standstill", "begin")
    operations.request_resumption(submitter, job.id)
    everything()
    assert not Attempt.objects.exists()
    call_command("standstill", "open")
    everything()
    assert len(uids(cluster)) == 1


@pytest.mark.parametrize("told", [UUID(int=2**128 - 1), UUID(int=0)])
def test_an_id_that_no_gateway_made_is_taken_in_within_the_jobs_time_and_breaks_nothing(cluster, submitter, told):
    job = submit(submitter, gpu_job())
    labels = {
        "switchyard.dev/tenant": str(job.tenant_id),
        "switchyard.dev/job": str(job.id),
        "switchyard.dev/attempt": str(told),
        "switchyard.dev/spec-hash": rendering.spec_hash(job.spec),
    }
    namespace = names.namespace_of(job.tenant.path, job.tenant_id)
    seen = JobSeen(namespace, names.object_name(told, 0), "uid-1", labels, False, "", "", "", None, False)
    begin_standstill(SYSTEM, "test")
    assert take_in(circumstances(), cluster.id, [seen]) == []
    attempt = Attempt.objects.get()
    assert (attempt.id, attempt.state) == (told, "starting")
    assert job.created_at <= attempt.released_at <= database_now()


def test_dispatch_stays_closed_until_every_cluster_was_compared(cluster, submitter):
    call_command("standstill", "begin")
    with pytest.raises(CommandError, match="was not compared"):
        call_command("standstill", "open")
    Cluster.objects.update(health="unreachable", silent_since="2026-01-01T00:00Z")
    reconcile_clusters()
    with pytest.raises(CommandError, match="was not compared"):
        call_command("standstill", "open")
    assert Standstill.objects.get().ended_at is None


def test_without_a_standstill_what_runs_for_an_unknown_attempt_of_a_known_job_is_not_deleted(cluster, submitter):
    released(submitter)
    ran = uids(cluster)
    forget_attempts()
    reconcile_clusters()
    assert uids(cluster) == ran
    assert cluster.events.filter(kind="unknown_runs").count() == 1


def test_there_is_one_standstill_at_a_time_and_somebody_ends_it(submitter):
    begin_standstill(SYSTEM, "once")
    assert begin_standstill(SYSTEM, "twice").reason == "once"
    with pytest.raises(IntegrityError), transaction.atomic():
        Standstill.objects.create(reason="a second")
    with pytest.raises(IntegrityError), transaction.atomic():
        Standstill.objects.update(ended_at="2026-01-01T00:00Z")


def test_every_page_says_that_nothing_is_dispatched(client, submitter):
    from tenancy.models import User  # noqa: PLC0415 - used here alone

    client.force_login(User.objects.get(id=submitter.user_id))
    begin_standstill(SYSTEM, "restored to an hour ago")
    assert b"restored to an hour ago" in client.get("/jobs/").content


def call_api(client, user, method, path="", **body):
    """The status and JSON of a call of `/standstill` as this user."""
    answer = getattr(client, method)(
        f"/api/v1/standstill{path}", body or None, content_type="application/json", headers=bearer(user)
    )
    return answer.status_code, answer.json()


@pytest.fixture
def operator():
    user = make_user("ops@example.com")
    user.is_staff = True
    user.save()
    return user


def test_an_operator_pauses_and_resumes_dispatch_over_the_api(client, cluster, operator):
    assert call_api(client, operator, "get")[1]["is_closed"] is False
    assert call_api(client, operator, "post")[0] == 422
    for _ in range(2):
        _, told = call_api(client, operator, "post", reason="restored")
        assert (told["is_closed"], told["reason"], told["uncompared"]) == (True, "restored", [cluster.name])
    status, refusal = call_api(client, operator, "post", "/open")
    assert (status, refusal["code"]) == (409, "standstill")
    assert cluster.name in refusal["detail"]
    reconcile_clusters()
    assert call_api(client, operator, "post", "/open")[1]["is_closed"] is False
    assert Standstill.objects.get().ended_by.startswith(operator.email)
    acts = AuditEntry.objects.filter(actor_name=operator.email, action__startswith="dispatch.").values_list(
        "action", flat=True
    )
    assert list(acts) == ["dispatch.close", "dispatch.open"]


def test_an_operator_answers_for_what_is_left(client, cluster, operator):
    begin_standstill(SYSTEM, "restored")
    assert call_api(client, operator, "post", "/open", note="that cluster is ashes")[1]["is_closed"] is False
    assert "ashes" in Standstill.objects.get().ended_by


@pytest.mark.parametrize(("method", "path"), [("get", ""), ("post", ""), ("post", "/open")])
def test_nobody_else_sees_or_ends_a_standstill(client, cluster, submitter, method, path):
    begin_standstill(SYSTEM, "restored")
    status, _ = call_api(client, User.objects.get(id=submitter.user_id), method, path)
    assert status == 403
    assert Standstill.objects.get().ended_at is None
