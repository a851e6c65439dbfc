"""Dispatch against a cluster that is full of surprises, and workers that come too late."""

from datetime import timedelta

import pytest
from django.db import transaction

from clusters.drivers import Refused
from clusters.drivers.simulated import SimulatedDriver, network_policies
from clusters.models import ClusterEvent
from federation import operations
from federation.engine.lifecycle import AttemptState
from federation.locks import claim_due_attempts
from federation.models import Attempt, Job, RemoteObject
from federation.operations.consequences import Ending
from federation.operations.dispatch import ROUNDS
from federation.operations.endings import end_attempts
from federation.operations.reconciliation import reconcile_clusters
from federation.queries.due_clusters import due_clusters
from federation.queries.queue import REFUSED_FOR
from foundation.clock import now
from quotas.models import Hold
from tests.builders import make_cluster, redate, submit
from tests.live import call, gpu_job, observe_until, place

pytestmark = pytest.mark.django_db(transaction=True)


def foreign_job(namespace: str, name: str, **labels: str) -> dict:
    """A Job that somebody else made."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {
            "suspend": True,
            "parallelism": 1,
            "completions": 1,
            "template": {
                "metadata": {},
                "spec": {"containers": [{"name": "main", "image": "registry.example/foreign:1"}]},
            },
        },
    }


def test_a_foreign_object_of_our_name_is_left_untouched_and_the_job_runs_under_another(cluster, submitter):
    job, attempt = place(submitter)
    name = attempt.remote_objects.get().name
    call(cluster, "ensure_namespace", attempt.namespace, {})
    uid = call(cluster, "create_job", foreign_job(attempt.namespace, name))
    operations.dispatch_attempts()
    attempt.refresh_from_db()
    assert (attempt.state, attempt.end_reason) == ("abandoned", "name_taken")
    observe_until(lambda: Job.objects.filter(id=job.id, state="succeeded").exists())
    assert call(cluster, "get_job", attempt.namespace, name).uid == uid


def test_a_job_that_a_cluster_refused_says_so_in_the_clusters_words_and_is_kept_off_it(cluster, submitter):
    job, attempt = place(submitter)
    # what no API server takes, which only a raw write can bring into a spec
    spoilt = {**job.spec, "pod_sets": [{**job.spec["pod_sets"][0], "cpu": "plenty"}]}
    Job.objects.filter(id=job.id).update(spec=spoilt)
    operations.dispatch_attempts()
    Job.objects.filter(id=job.id).update(spec=job.spec)
    attempt.refresh_from_db()
    assert (attempt.state, attempt.end_reason) == ("abandoned", "refused_by_cluster")
    operations.run_scheduling_cycle()
    job.refresh_from_db()
    assert (job.state, job.reason_code) == ("queued", "waiting_for_capacity")
    [told] = job.explanation["clusters"]
    assert (told["cluster"], told["code"], told["is_for_good"]) == ("east", "refused_by_cluster", False)
    assert attempt.end_message in told["message"]
    assert "spec.template.spec.containers" in told["message"]
    redate(Attempt.objects.filter(id=attempt.id), finished_at=now() - REFUSED_FOR)
    operations.run_scheduling_cycle()
    assert Attempt.objects.filter(job=job, finished_at=None).exists()


def test_what_a_cluster_said_when_it_would_not_release_an_object_is_kept(cluster, submitter, monkeypatch):
    job, attempt = place(submitter)

    async def refuse(*_):
        raise Refused("spec.template: field is immutable", status=422)

    monkeypatch.setattr(SimulatedDriver, "release_job", refuse)
    operations.dispatch_attempts()
    attempt.refresh_from_db()
    assert (attempt.stop_reason, attempt.stop_message) == ("refused_by_cluster", "spec.template: field is immutable")
    observe_until(lambda: Attempt.objects.filter(id=attempt.id, finished_at__isnull=False).exists())
    attempt.refresh_from_db()
    assert (attempt.end_reason, attempt.end_message) == ("refused_by_cluster", "spec.template: field is immutable")
    operations.run_scheduling_cycle()
    job.refresh_from_db()
    assert job.explanation["clusters"][0]["code"] == "refused_by_cluster"


def policies(home, attempt) -> dict:
    """The NetworkPolicies in the attempt's namespace."""
    found = network_policies(home / "simulated" / "east.sqlite3", attempt.namespace)
    return {policy["metadata"]["name"]: policy for policy in found}


def test_a_namespace_that_was_left_without_its_policies_has_them_before_a_job_runs_there(home, cluster, submitter):
    _, attempt = place(submitter)
    call(cluster, "ensure_namespace", attempt.namespace, {})
    assert policies(home, attempt) == {}
    operations.dispatch_attempts()
    assert set(policies(home, attempt)) == {"switchyard"}


def test_only_what_an_administrator_allows_may_be_reached(home, cluster, submitter, settings):
    settings.JOB_EGRESS = ["10.20.0.0/16"]
    _, attempt = place(submitter)
    operations.dispatch_attempts()
    *_, rule = policies(home, attempt)["switchyard"]["spec"]["egress"]
    assert rule == {"to": [{"ipBlock": {"cidr": "10.20.0.0/16"}}]}


def test_a_gang_may_talk_among_itself_for_as_long_as_its_objects_exist(home, cluster, submitter):
    job, attempt = place(submitter, count=2, seconds=600)
    operations.dispatch_attempts()
    name = attempt.remote_objects.get().name
    gang = policies(home, attempt)[name]
    assert gang["spec"]["podSelector"]["matchLabels"] == {"switchyard.dev/attempt": str(attempt.id)}
    assert [owner["uid"] for owner in gang["metadata"]["ownerReferences"]] == [attempt.remote_objects.get().uid]
    operations.request_cancellation(submitter, job.id)
    observe_until(lambda: Attempt.objects.filter(settled_at__isnull=False).exists())
    assert set(policies(home, attempt)) == {"switchyard"}


def test_an_object_left_by_a_worker_that_died_is_adopted(cluster, submitter):
    _, attempt = place(submitter)
    operations.dispatch_attempts()
    uid = attempt.remote_objects.get().uid
    # As if the worker had died before storing anything: only a raw write could forget so thoroughly.
    Attempt.objects.filter(id=attempt.id).update(
        state="reserved",
        created_at=None,
        starting_at=None,
        released_at=None,
        next_action_at=now(),
        claim_expires_at=None,
    )
    RemoteObject.objects.filter(attempt=attempt).delete()
    RemoteObject.objects.create(
        attempt=attempt, position=0, name=call(cluster, "list_jobs")[0].name, flavor=attempt.flavor, capacity_type="on_demand",
        pods=1, gpu_units=8, cpu_millicores=8000, memory_mib=32768,
    )  # fmt: skip
    operations.dispatch_attempts()
    attempt.refresh_from_db()
    assert (attempt.state, attempt.remote_objects.get().uid) == ("starting", uid)
    assert len(call(cluster, "list_jobs")) == 1


def test_a_stale_worker_cannot_write(cluster, submitter):
    _, attempt = place(submitter)
    stale = claim_due_attempts(cluster.id, 10)
    assert stale.attempt_ids == (attempt.id,)
    Attempt.objects.filter(id=attempt.id).update(claim_expires_at=now() - timedelta(seconds=1))
    fresh = claim_due_attempts(cluster.id, 10)
    assert fresh.attempt_ids == (attempt.id,)
    assert fresh.token > stale.token
    with transaction.atomic():
        assert end_attempts([Ending(attempt.id, AttemptState.ABANDONED, "late", token=stale.token)]) == 0
        assert end_attempts([Ending(attempt.id, AttemptState.ABANDONED, "on time", token=fresh.token)]) == 1
    assert Hold.objects.get(holder_id=attempt.id).state == "voided"


def test_a_claimed_attempt_is_not_claimed_twice(cluster, submitter):
    place(submitter)
    assert [due.id for due in due_clusters()] == [cluster.id]
    assert len(claim_due_attempts(cluster.id, 10).attempt_ids) == 1
    assert claim_due_attempts(cluster.id, 10).attempt_ids == ()
    assert due_clusters() == []  # nobody turns in circles while another holds the claim


def test_a_slow_cluster_under_a_visit_is_not_due_though_it_has_more(cluster, submitter):
    for _ in range(2):
        place(submitter)
    ROUNDS.mark(cluster.id, 60)
    assert claim_due_attempts(cluster.id, 1).attempt_ids
    assert due_clusters() == [], "it has one visit at a time"
    ROUNDS.mark(cluster.id, 0)
    assert [due.id for due in due_clusters()] == [cluster.id], "at others, another visit may take the rest"


def test_a_stop_requested_before_the_start_wins_and_nothing_ever_runs(cluster, submitter):
    job, attempt = place(submitter, seconds=60)
    operations.request_cancellation(submitter, job.id)
    operations.dispatch_attempts()
    job.refresh_from_db()
    attempt.refresh_from_db()
    assert (job.state, attempt.state, attempt.released_at) == ("cancelled", "abandoned", None)
    assert call(cluster, "list_jobs") == []
    assert Hold.objects.get().state == "voided"


def test_an_object_deleted_by_hand_fails_its_job_instead_of_running_it_again(cluster, submitter):
    job, attempt = place(submitter, seconds=600)
    observe_until(lambda: Job.objects.filter(state="running").exists())
    remote = attempt.remote_objects.get()
    call(cluster, "delete_job", attempt.namespace, remote.name, remote.uid)
    observe_until(lambda: call(cluster, "list_jobs") == [])
    reconcile_clusters()
    job.refresh_from_db()
    assert (job.state, job.reason_code, Attempt.objects.count()) == ("failed", "object_deleted", 1)


def test_an_orphan_is_removed_and_a_foreign_object_never(cluster, submitter, settings):
    _, attempt = place(submitter)
    call(cluster, "ensure_namespace", attempt.namespace, {})
    labels = {
        "switchyard.dev/install": settings.INSTALL_ID,
        "switchyard.dev/attempt": "00000000-0000-7000-8000-000000000001",
    }
    call(cluster, "create_job", foreign_job(attempt.namespace, "orphan", **labels))
    foreign = call(cluster, "create_job", foreign_job(attempt.namespace, "foreign"))
    reconcile_clusters()
    assert [job.name for job in call(cluster, "list_jobs") if job.name == "orphan"] == []
    assert call(cluster, "get_job", attempt.namespace, "foreign").uid == foreign


def test_suspiciously_many_orphans_are_left_alone_and_reported(cluster, submitter, settings):
    _, attempt = place(submitter)
    call(cluster, "ensure_namespace", attempt.namespace, {})
    for number in range(25):
        labels = {
            "switchyard.dev/install": settings.INSTALL_ID,
            "switchyard.dev/attempt": f"00000000-0000-7000-8000-{number:012d}",
        }
        call(cluster, "create_job", foreign_job(attempt.namespace, f"orphan-{number}", **labels))
    reconcile_clusters()
    assert len(call(cluster, "list_jobs")) == 25
    assert cluster.events.filter(kind="too_many_orphans").exists()


def test_finished_objects_stay_for_their_logs_and_then_go(cluster, submitter, settings):
    job, _ = place(submitter)
    observe_until(lambda: Attempt.objects.filter(settled_at__isnull=False).exists())
    reconcile_clusters()
    assert len(call(cluster, "list_jobs")) == 1
    settings.KEEP_FINISHED_SECONDS = 0
    reconcile_clusters()
    reconcile_clusters()
    assert call(cluster, "list_jobs") == []
    assert Attempt.objects.get(job=job).removed_at is not None


def test_a_cluster_that_tells_one_uid_for_all_it_creates_starts_none_of_them(cluster, submitter, monkeypatch):
    known, first = place(submitter, gpus=1, seconds=60)
    operations.dispatch_attempts()
    uid = first.remote_objects.get().uid
    lies = [place(submitter, name=f"lie-{n}", gpus=1)[1] for n in range(2)]

    async def lie(*_):
        return uid

    monkeypatch.setattr(SimulatedDriver, "create_job", lie)
    operations.dispatch_attempts()
    for attempt in lies:
        attempt.refresh_from_db()
        assert (attempt.state, attempt.end_reason) == ("abandoned", "refused_by_cluster")
    assert first.remote_objects.get().uid == uid
    assert known.attempts.get().state == "starting"
    assert ClusterEvent.objects.filter(cluster=cluster, kind="security.uid_taken").count() == 1


def test_the_uid_of_another_clusters_object_takes_nothing_from_that_one(cluster, submitter, monkeypatch):
    _, attempt = place(submitter)
    elsewhere = make_cluster("acme", "elsewhere")
    other = Attempt.objects.create(
        job=submit(submitter, gpu_job()), number=1, cluster=elsewhere, flavor="h100", namespace="n", spec_hash="h"
    )
    RemoteObject.objects.create(
        attempt=other, cluster_id=elsewhere.id, position=0, name="o", uid="shared", flavor="f", capacity_type="spot", pods=1,
        gpu_units=0, cpu_millicores=1, memory_mib=1,
    )  # fmt: skip

    async def lie(*_):
        return "shared"

    monkeypatch.setattr(SimulatedDriver, "create_job", lie)
    operations.dispatch_attempts()
    assert attempt.remote_objects.get().uid == other.remote_objects.get().uid == "shared"
