"""Where no cluster can tell, somebody answers for it: what they attest ends, once, and a late return changes nothing."""

from datetime import timedelta

import pytest
from django.db import connection, transaction

from billing.models import UsageSegment
from clusters.models import Cluster
from clusters.operations import remove_cluster
from federation import operations
from federation.models import Attempt, Job, PodRun
from federation.operations import Observations, record_observations
from federation.operations.reconciliation import reconcile_clusters
from foundation.clock import now
from foundation.problems import Conflict, Invalid, NotFound
from quotas.models import Hold
from tenancy.models import AuditEntry
from tenancy.queries import NotAllowedHere
from tests.builders import actor_for, bearer, bind, make_user
from tests.live import call
from tests.rooms.federation.test_evidence import nothing, released, replaced

pytestmark = pytest.mark.django_db(transaction=True)
DESTROYED = {"what": "destroyed", "note": "the machine room burnt down"}
VANISHED = {"what": "vanished", "note": "restored from a backup; the nodes were switched off"}
DEAD = {"note": "its node burnt"}


def pods_of(cluster):
    return [
        pod
        for attempt in Attempt.objects.all()
        for pod in call(cluster, "list_pods", attempt.namespace, attempt.remote_objects.get().name)
    ]


def seen_to_run(cluster, submitter, jobs=1):
    released(submitter, jobs=jobs, gpus=1)
    pods = pods_of(cluster)
    while not all(pod.started_at for pod in pods):
        pods = pods_of(cluster)
    record_observations(cluster.id, Observations(pods=pods))
    assert set(Job.objects.values_list("state", flat=True)) == {"running"}
    return pods


def falls_silent(cluster):
    """An hour ago, when its pods were last seen."""
    at = now().replace(microsecond=0) - timedelta(hours=1)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")  # instants stand, for everybody else
        PodRun.objects.update(started_at=at - timedelta(hours=1), observed_at=at - timedelta(minutes=30))
    Cluster.objects.filter(id=cluster.id).update(health="unreachable", silent_since=at, observed_at=at)
    operations.sweep()
    assert set(Attempt.objects.values_list("state", flat=True)) == {"unknown"}
    return at


def settle():
    operations.settle_attempts()
    return Attempt.objects.filter(settled_at=None, finished_at__isnull=False).count()


def test_a_destroyed_clusters_runs_are_lost_their_jobs_queued_their_holds_ended_and_it_can_be_removed(
    cluster, submitter
):
    seen_to_run(cluster, submitter, jobs=2)
    last_seen = falls_silent(cluster)
    with pytest.raises(Conflict):
        remove_cluster(submitter, cluster.id)
    assert operations.attest_cluster(submitter, cluster.id, DESTROYED) == 2
    assert set(Attempt.objects.values_list("state", "end_reason")) == {("lost", "cluster_destroyed")}
    assert set(Job.objects.values_list("state", "reason_code")) == {("queued", "attempt_returned")}
    assert settle() == 0
    assert set(Hold.objects.values_list("state", flat=True)) == {"posted"}
    last = max(UsageSegment.objects.all(), key=lambda segment: segment.period.upper)
    assert (last.period.upper, last.is_estimated) == (last_seen, True)
    entry = AuditEntry.objects.get(action="cluster.attest_destroyed")
    assert (entry.actor_id, entry.detail) == (submitter.user_id, {"note": DESTROYED["note"], "attempts": 2})
    remove_cluster(submitter, cluster.id)


def test_a_job_that_waits_for_a_destroyed_cluster_to_confirm_its_cancel_is_cancelled(cluster, submitter):
    seen_to_run(cluster, submitter)
    falls_silent(cluster)
    job = Job.objects.get()
    operations.request_cancellation(submitter, job.id)
    operations.attest_cluster(submitter, cluster.id, DESTROYED)
    job.refresh_from_db()
    assert (job.state, Attempt.objects.get().state) == ("cancelled", "lost")


def test_a_cluster_that_answers_is_not_destroyed(cluster, submitter):
    seen_to_run(cluster, submitter)
    with pytest.raises(Conflict) as refusal:
        operations.attest_cluster(submitter, cluster.id, DESTROYED)
    assert refusal.value.code == "cluster_answers"
    assert Job.objects.get().state == "running"


def test_what_returns_late_is_deleted_by_its_uid_and_never_metered_again(cluster, submitter):
    pods = seen_to_run(cluster, submitter, jobs=3)
    falls_silent(cluster)
    operations.attest_cluster(submitter, cluster.id, DESTROYED)
    settle()
    metered = list(UsageSegment.objects.order_by("id").values_list("id", "period"))
    Cluster.objects.filter(id=cluster.id).update(health="ready", silent_since=None)
    operations.sweep()
    record_observations(cluster.id, Observations(jobs=call(cluster, "list_jobs"), pods=pods))
    assert len(call(cluster, "list_jobs")) == 3
    reconcile_clusters()
    assert call(cluster, "list_jobs") == []
    settle()
    operations.accrue_running()
    assert set(Attempt.objects.values_list("state", flat=True)) == {"lost"}
    assert list(UsageSegment.objects.order_by("id").values_list("id", "period")) == metered


def test_one_dead_run_ends_alone_and_twice_is_once(cluster, submitter):
    seen_to_run(cluster, submitter, jobs=2)
    dead, alive = Attempt.objects.order_by("id")
    for _ in range(2):
        assert operations.attest_run(submitter, dead.id, DEAD).state == "lost"
    alive.refresh_from_db()
    assert alive.state == "running"
    assert Job.objects.get(id=dead.job_id).state == "queued"
    assert AuditEntry.objects.filter(action="attempt.attest_dead").count() == 1
    reconcile_clusters()
    assert [job.uid for job in call(cluster, "list_jobs")] == [alive.remote_objects.get().uid]


def test_when_too_many_have_vanished_those_that_are_gone_end_once_somebody_answers_for_it(
    cluster, submitter, monkeypatch
):
    seen_to_run(cluster, submitter, jobs=5)
    kept, *doomed = call(cluster, "list_jobs")
    for seen in doomed:
        call(cluster, "delete_job", seen.namespace, seen.name, seen.uid)
    replaced(monkeypatch, "list_jobs", nothing)
    reconcile_clusters()
    assert set(Job.objects.values_list("state", flat=True)) == {"running"}
    assert operations.attest_cluster(submitter, cluster.id, VANISHED) == 0
    reconcile_clusters()
    ended = Attempt.objects.filter(finished_at__isnull=False)
    assert set(ended.values_list("state", "end_reason")) == {("lost", "run_dead")}
    assert ended.count() == 4
    # it is not on the list either, but it is there when asked for
    assert Attempt.objects.get(finished_at=None).remote_objects.get().uid == kept.uid


def test_a_word_holds_for_what_was_released_before_it_and_for_an_hour(cluster, submitter, monkeypatch):
    operations.attest_cluster(submitter, cluster.id, VANISHED)
    seen_to_run(cluster, submitter, jobs=5)
    for seen in call(cluster, "list_jobs"):
        call(cluster, "delete_job", seen.namespace, seen.name, seen.uid)
    for _ in range(2):
        reconcile_clusters()
        cluster.refresh_from_db()
        assert [reason["code"] for reason in cluster.reasons] == ["too_many_vanished"], (
            "it says nothing of what came after it"
        )
    operations.attest_cluster(submitter, cluster.id, VANISHED)
    cluster.events.filter(kind="attested.vanished").update(at=now() - timedelta(minutes=61))
    reconcile_clusters()
    assert set(Job.objects.values_list("state", flat=True)) == {"running"}


@pytest.mark.parametrize(
    "body",
    [{}, {"what": "destroyed"}, {"what": "eaten", "note": "x"}, {**DESTROYED, "note": " "}, [], {**DESTROYED, "x": 1}],
)
def test_nobody_answers_without_saying_for_what_and_how_they_know(cluster, submitter, body):
    falls = Cluster.objects.filter(id=cluster.id)
    falls.update(health="unreachable", silent_since=now())
    with pytest.raises(Invalid):
        operations.attest_cluster(submitter, cluster.id, body)


def test_only_who_manages_the_cluster_answers_for_it(cluster, submitter, client):
    seen_to_run(cluster, submitter)
    falls_silent(cluster)
    attempt = Attempt.objects.get()
    below, elsewhere = make_user(), make_user()
    bind(below, "acme/research", "admin")
    bind(elsewhere, "other", "admin")
    for user, refusal in ((below, NotAllowedHere), (elsewhere, NotFound)):
        for work, id_, body in (
            (operations.attest_cluster, cluster.id, DESTROYED),
            (operations.attest_cluster, cluster.id, VANISHED),
            (operations.attest_run, attempt.id, DEAD),
        ):
            with pytest.raises(refusal):
                work(actor_for(user), id_, body)
    assert Attempt.objects.get().state == "unknown"
    url = f"/api/v1/clusters/{cluster.id}/attestations"
    assert client.post(url, DESTROYED, content_type="application/json", headers=bearer(below)).status_code == 403
    assert not AuditEntry.objects.filter(action__contains="attest", outcome="done").exists()


def test_it_is_done_over_http_and_on_a_page(cluster, submitter, client):
    from tenancy.models import User  # noqa: PLC0415 - used here alone

    seen_to_run(cluster, submitter, jobs=2)
    user = User.objects.get(id=submitter.user_id)
    first, second = Attempt.objects.order_by("id")
    url = f"/api/v1/attempts/{first.id}/attestation"
    answer = client.post(url, DEAD, content_type="application/json", headers=bearer(user))
    assert (answer.status_code, answer.json()["state"]) == (200, "lost")
    falls_silent_now = Cluster.objects.filter(id=cluster.id)
    falls_silent_now.update(health="unreachable", silent_since=now())
    client.force_login(user)
    page = client.get(f"/clusters/{cluster.id}/runs/")
    assert (page.status_code, b"Cluster is destroyed" in page.content, str(second.job_id).encode() in page.content) == (
        200,
        True,
        True,
    )
    client.post(f"/clusters/{cluster.id}/attest/destroyed/", {"note": "burnt"})
    second.refresh_from_db()
    assert second.state == "lost"
