"""A brake holds until people have answered for it, tells so where they look, and leaves no other way to the same end."""

from datetime import timedelta

import pytest
from django.core.management import call_command

from clusters.drivers import Refused
from clusters.models import Cluster
from federation import operations
from federation.engine import names
from federation.models import Attempt, Job, PodRun
from federation.operations.reconciliation import reconcile_clusters
from federation.operations.visits import MOST_TIMES_NOT_STOPPED
from foundation.clock import now
from tests.live import call, every_visit, place
from tests.rooms.federation.test_attestation import VANISHED, seen_to_run
from tests.rooms.federation.test_dispatch import foreign_job
from tests.rooms.federation.test_evidence import everything_runs_on, in_a_thread, released, replaced
from tests.rooms.federation.test_metrics import samples

pytestmark = pytest.mark.django_db(transaction=True)
LONG_AGO = timedelta(hours=1)
UNKNOWN = "019a0000-0000-7000-8000-000000000001"
"""An id that a gateway made in October 2025."""


def lose_everything(cluster):
    """The control plane is put back to a state before our Jobs."""
    for seen in call(cluster, "list_jobs"):
        call(cluster, "delete_job", seen.namespace, seen.name, seen.uid)


def findings(cluster):
    return [reason["code"] for reason in Cluster.objects.get(id=cluster.id).reasons]


def sweep_and_dispatch():
    operations.sweep()
    for _ in range(3):
        Attempt.objects.filter(finished_at=None, stop_requested_at__isnull=False).update(
            next_action_at=now(), claim_expires_at=None
        )
        operations.dispatch_attempts()


@pytest.mark.parametrize("is_drained", [False, True])
@pytest.mark.parametrize("were_seen", [False, True])
def test_what_a_brake_holds_is_not_recalled_either_however_long_it_takes(
    cluster, submitter, client, were_seen, is_drained
):
    if were_seen:
        seen_to_run(cluster, submitter, jobs=5)
    else:
        released(submitter, jobs=5, gpus=1)
    jobs = list(Job.objects.values_list("id", flat=True))
    lose_everything(cluster)
    reconcile_clusters()
    assert findings(cluster) == ["too_many_vanished"]
    PodRun.objects.update(is_gone=True, observed_at=now() - LONG_AGO)
    Attempt.objects.filter(state="starting").update(released_at=now() - LONG_AGO)
    if is_drained:
        Cluster.objects.update(wish="draining")
    sweep_and_dispatch()
    assert everything_runs_on(jobs)
    reconcile_clusters()
    assert cluster.events.filter(kind="too_many_vanished").count() == 1, "told once an hour, and not at each comparison"
    assert samples(client)['switchyard_cluster_findings{cluster="east",code="too_many_vanished"}'] == 1
    operations.attest_cluster(submitter, cluster.id, VANISHED)
    reconcile_clusters()
    assert set(Attempt.objects.values_list("state", "end_reason")) == {("lost", "run_dead")}
    assert findings(cluster) == []


@pytest.mark.parametrize(
    ("jobs", "deleted", "ended"), [(1, 1, 1), (2, 1, 1), (2, 2, 0), (3, 3, 0), (4, 3, 3), (5, 4, 0)]
)
def test_a_small_cluster_that_lost_everything_has_lost_its_memory(cluster, submitter, jobs, deleted, ended):
    released(submitter, jobs=jobs, gpus=1)
    for seen in call(cluster, "list_jobs")[:deleted]:
        call(cluster, "delete_job", seen.namespace, seen.name, seen.uid)
    reconcile_clusters()
    assert Job.objects.filter(state="failed", reason_code="object_deleted").count() == ended
    assert findings(cluster) == ([] if ended else ["too_many_vanished"])
    operations.attest_cluster(submitter, cluster.id, VANISHED)
    reconcile_clusters()
    assert Attempt.objects.filter(state="lost").count() == (0 if ended else deleted)
    assert findings(cluster) == []


def test_what_users_cancel_together_alarms_nobody(cluster, submitter):
    jobs = released(submitter, jobs=5, gpus=1)
    for job in jobs:
        operations.request_cancellation(submitter, job)
    lose_everything(cluster)
    reconcile_clusters()
    assert findings(cluster) == []
    sweep_and_dispatch()
    assert set(Job.objects.values_list("state", flat=True)) == {"cancelled"}


def run_of_unknown(cluster, settings, attempt, **labels):
    """A Job of ours that runs there, of which the rows know nothing."""
    call(cluster, "ensure_namespace", attempt.namespace, {})
    ours = {names.LABEL_INSTALL: settings.INSTALL_ID, names.LABEL_ATTEMPT: UNKNOWN, **labels}
    uid = call(cluster, "create_job", foreign_job(attempt.namespace, "unknown", **ours))
    call(cluster, "release_job", attempt.namespace, "unknown", uid, {})
    return uid


def is_there(cluster, uid):
    return uid in {job.uid for job in call(cluster, "list_jobs")}


def test_what_runs_for_a_job_that_the_database_never_heard_of_is_left_until_somebody_answers_for_it(
    cluster, submitter, settings
):
    """As after a failover to a replica that lacked the last commits, of which nobody knew."""
    _, attempt = place(submitter)
    uid = run_of_unknown(cluster, settings, attempt, **{names.LABEL_JOB: UNKNOWN})
    for _ in range(2):
        reconcile_clusters()
    assert is_there(cluster, uid)
    assert findings(cluster) == ["unknown_runs"]
    assert cluster.events.filter(kind="unknown_runs").count() == 1
    call_command("standstill", "begin")
    reconcile_clusters()
    call_command("standstill", "open", "--answer-for", "nobody waits for it")
    reconcile_clusters()
    assert not is_there(cluster, uid)
    reconcile_clusters()
    assert findings(cluster) == []


def test_who_opens_dispatch_answers_only_for_clusters_that_were_compared(cluster, submitter, settings):
    _, attempt = place(submitter)
    uid = run_of_unknown(cluster, settings, attempt)
    call_command("standstill", "begin")
    call_command("standstill", "open", "--answer-for", "it does not answer")
    reconcile_clusters()
    assert is_there(cluster, uid)


@pytest.mark.parametrize("is_created", [False, True])
def test_what_was_never_released_is_given_up_where_its_cluster_answers_and_does_not_let_it_be_removed(
    cluster, submitter, monkeypatch, is_created
):
    """A role that lost a right: nobody can attest that such an attempt is dead, because nothing of it ever ran."""

    async def forbidden(*_):
        raise Refused("jobs.batch is forbidden", status=403)

    job, attempt = place(submitter, seconds=100_000)

    async def cancelled_meanwhile(original, driver, *arguments):
        uid = await original(driver, *arguments) if is_created else ""
        await in_a_thread(operations.request_cancellation, submitter, job.id)
        return uid or await forbidden()

    with monkeypatch.context() as faulty:
        replaced(faulty, "create_job", cancelled_meanwhile)
        replaced(faulty, "get_job", forbidden)
        every_visit(attempt, MOST_TIMES_NOT_STOPPED - 1)
        attempt.refresh_from_db()
        assert (attempt.state, attempt.job.state) == ("created" if is_created else "reserved", "cancelling")
        every_visit(attempt, 1)
    attempt.refresh_from_db()
    assert (attempt.state, attempt.end_reason) == ("abandoned", "cancelled")
    assert Job.objects.get(id=job.id).state == "cancelled"
    assert len(call(cluster, "list_jobs")) == is_created
    reconcile_clusters()
    assert call(cluster, "list_jobs") == []
