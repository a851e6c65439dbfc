"""A brake holds until people have answered for it, tells so where they look, and leaves no other way to the same end."""

from datetime import timedelta

import pytest
from django.core.management import call_command

from clusters.drivers import Ambiguous, Refused
from clusters.models import Cluster
from federation import operations
from federation.engine import names
from federation.models import Attempt, Job, PodRun
from federation.operations import reconciliation
from federation.operations.reconciliation import reconcile_clusters
from federation.operations.visits import MOST_TIMES_NOT_STOPPED
from federation.queries.preemption import load_run, load_running
from foundation.clock import now
from foundation.problems import Conflict
from tests.builders import submit
from tests.live import call, every_visit, gpu_job, place
from tests.rooms.federation.test_attestation import VANISHED, seen_to_run
from tests.rooms.federation.test_dispatch import foreign_job
from tests.rooms.federation.test_evidence import everything_runs_on, in_a_thread, nothing, released, replaced
from tests.rooms.federation.test_maintenance import plan
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


@pytest.mark.parametrize("also", ["", "drain", "maintenance"])
@pytest.mark.parametrize("were_seen", [False, True])
def test_what_a_brake_holds_is_not_recalled_either_however_long_it_takes(cluster, submitter, client, were_seen, also):
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
    if also == "drain":
        Cluster.objects.update(wish="draining")
    if also == "maintenance":
        plan(cluster, drain=True)
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


def one_more(submitter, name="one-more", **fields):
    """A job whose objects run beside those of others."""
    job = submit(submitter, gpu_job(name, **{"seconds": 100_000, "gpus": 1} | fields))
    operations.run_scheduling_cycle()
    operations.dispatch_attempts()
    assert Attempt.objects.get(job=job).released_at
    return job


def test_work_that_comes_after_a_loss_does_not_lift_its_brake(cluster, submitter):
    lost = released(submitter, jobs=2, gpus=1)
    lose_everything(cluster)
    reconcile_clusters()
    late = one_more(submitter)
    reconcile_clusters()
    assert everything_runs_on([*lost, late.id])
    assert findings(cluster) == ["too_many_vanished"]
    operations.attest_cluster(submitter, cluster.id, VANISHED)
    reconcile_clusters()
    assert set(Job.objects.filter(id__in=lost).values_list("state", flat=True)) == {"queued"}
    late.refresh_from_db()
    assert (late.state, findings(cluster)) == ("dispatching", [])


def test_a_brake_ends_when_nothing_is_missing_any_more(cluster, submitter):
    lost = released(submitter, jobs=2, gpus=1)
    lose_everything(cluster)
    reconcile_clusters()
    for job in lost:
        operations.request_cancellation(submitter, job)
    sweep_and_dispatch()
    one_more(submitter)
    reconcile_clusters()
    assert (findings(cluster), Job.objects.filter(state="cancelled").count()) == ([], 2)


def test_objects_without_our_label_lift_the_brake_when_they_are_found_by_their_names(cluster, submitter, monkeypatch):
    jobs = released(submitter, jobs=2, gpus=1)
    Cluster.objects.update(reasons=[{"code": "too_many_vanished", "message": "…"}])
    replaced(monkeypatch, "list_jobs", nothing)
    reconcile_clusters()
    assert everything_runs_on(jobs)
    assert findings(cluster) == []


def of_many_sets(submitter, name, sets):
    body = gpu_job(name, seconds=100_000)
    pods = {**body["pod_sets"][0], "gpu": {"count": 1}}
    job = submit(submitter, body | {"pod_sets": [{**pods, "name": f"set-{number}"} for number in range(sets)]})
    operations.run_scheduling_cycle()
    operations.dispatch_attempts()
    return job


def test_runs_of_several_objects_are_lost_too_when_somebody_answers_for_them(cluster, submitter):
    for name in ("one", "two"):
        of_many_sets(submitter, name, 2)
    lose_everything(cluster)
    reconcile_clusters()
    assert findings(cluster) == ["too_many_vanished"]
    operations.attest_cluster(submitter, cluster.id, VANISHED)
    reconcile_clusters()
    assert set(Attempt.objects.values_list("state", "end_reason")) == {("lost", "run_dead")}
    assert set(Job.objects.values_list("state", flat=True)) == {"queued"}


def test_of_a_run_that_lost_only_some_objects_the_rest_is_stopped_whoever_answers(cluster, submitter):
    for name in ("one", "two", "three"):
        of_many_sets(submitter, name, 2)
    kept, *gone = call(cluster, "list_jobs")
    for seen in gone:
        call(cluster, "delete_job", seen.namespace, seen.name, seen.uid)
    reconcile_clusters()
    operations.attest_cluster(submitter, cluster.id, VANISHED)
    reconcile_clusters()
    assert sorted(Attempt.objects.values_list("state", flat=True)) == ["lost", "lost", "starting"]
    assert Attempt.objects.get(finished_at=None).stop_reason == "object_deleted"
    sweep_and_dispatch()
    assert not is_there(cluster, kept.uid)


def test_the_many_objects_of_one_run_are_no_reason_for_a_brake(cluster, submitter):
    job = of_many_sets(submitter, "wide", 4)
    lose_everything(cluster)
    reconcile_clusters()
    assert findings(cluster) == []
    sweep_and_dispatch()
    job.refresh_from_db()
    assert (job.state, job.reason_code) == ("failed", "object_deleted")


def test_a_brake_is_recorded_though_the_cluster_answers_no_deletion(cluster, submitter, monkeypatch):
    released(submitter, jobs=2, gpus=1)
    lose_everything(cluster)

    async def unanswered(*_):
        raise Ambiguous("no answer in time")

    monkeypatch.setattr(reconciliation, "_delete_all", unanswered)
    reconcile_clusters()
    assert findings(cluster) == ["too_many_vanished"]


def test_nothing_on_a_cluster_that_lacks_many_is_stopped_for_another_job_or_moved(cluster, submitter):
    """It would confirm that the run is gone, and the job would run a second time."""
    seen_to_run(cluster, submitter, jobs=2)
    run = Job.objects.order_by("id").first()
    assert load_run(run.id) is not None
    assert len(load_running(["acme"], 0, is_reclaiming=True)) == 2
    lose_everything(cluster)
    reconcile_clusters()
    assert load_run(run.id) is None
    assert load_running(["acme"], 0, is_reclaiming=True) == ()
    with pytest.raises(Conflict) as refusal:
        operations.request_migration(submitter, run.id, {"lose_work": True})
    assert "too_many_vanished" in refusal.value.detail


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
    manifest = foreign_job(attempt.namespace, "unknown", **ours)
    manifest["spec"]["template"]["metadata"]["annotations"] = {names.SIMULATED_SECONDS: "never"}
    uid = call(cluster, "create_job", manifest)
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
        # A stop that comes while the object is created is tried for the first time in the same round.
        every_visit(attempt, MOST_TIMES_NOT_STOPPED - 1 - is_created)
        attempt.refresh_from_db()
        assert (attempt.state, attempt.job.state) == ("created" if is_created else "reserved", "cancelling")
        every_visit(attempt, 1)
    attempt.refresh_from_db()
    assert (attempt.state, attempt.end_reason) == ("abandoned", "cancelled")
    assert Job.objects.get(id=job.id).state == "cancelled"
    assert len(call(cluster, "list_jobs")) == is_created
    reconcile_clusters()
    assert call(cluster, "list_jobs") == []
