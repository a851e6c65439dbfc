"""Elastic jobs live: what a run has, holds, is charged and shows is the number of pods that was chosen for it."""

import json
from datetime import timedelta

import pytest
from django.core.management import call_command
from django.db.models import Sum
from django.db.models.functions import Now

from billing.models import Meter, UsageSegment
from clusters.drivers import JobSeen
from federation import operations
from federation.engine import names
from federation.engine.objects import rendering
from federation.models import Attempt, Job, JobEvent, Preemption, PreemptionVictim, PriorityClass, RemoteObject
from federation.operations.restoration import begin_standstill, take_in
from federation.queries.claimed_attempts import claimed_attempts
from federation.queries.pages import job_view
from federation.queries.preemption import load_claims
from federation.queries.preemptions import views_of
from federation.queries.standstill import circumstances
from federation.web.submit import CONTROL_OF, DEFAULTS, spec_of_form
from foundation.clock import database_now
from foundation.ids import new_id
from quotas.models import Hold
from tenancy.models import User
from tenancy.queries import SYSTEM
from tests.builders import actor_for, bearer, make_limit, make_user, submit
from tests.live import call, gpu_job, observe_until, place
from tests.rooms.federation.test_constraints import attack
from tests.rooms.federation.test_evidence import released
from tests.rooms.federation.test_preemption import end_of, started, told, urgent
from tests.rooms.federation.test_restoration import everything, forget_attempts, uids

pytestmark = pytest.mark.django_db(transaction=True)


def elastic(fewest, most, name="train", **fields):
    return gpu_job(name, count=most, **fields) | {"elastic": {"min_count": fewest}}


def sizes(job):
    return list(
        RemoteObject.objects.filter(attempt__job=job).order_by("attempt__number").values_list("pods", flat=True)
    )


def test_a_run_has_holds_shows_and_is_charged_for_the_pods_that_fitted(cluster, submitter, client):
    job = submit(submitter, elastic(1, 4, seconds=1))
    operations.run_scheduling_cycle()
    attempt = Attempt.objects.get(job=job)
    hold = Hold.objects.get(holder_id=attempt.id)
    assert (sizes(job), hold.amounts["gpu"], hold.amounts["cpu"], attempt.pace) == ([2], 16_000, 16_000, 0.5)
    assert JobEvent.objects.get(job=job, kind="placed").message.startswith("Attempt 1 on east, flavor ")
    assert "with 2 of 1 to 4 pods" in JobEvent.objects.get(job=job, kind="placed").message
    (claimed,) = claimed_attempts([attempt.id])
    environment = claimed.manifest(claimed.objects[0])["spec"]["template"]["spec"]["containers"][0]["env"]
    assert {"name": "WORLD_SIZE", "value": "2"} in environment
    assert (claimed.is_gang, claimed.meets) == (True, True)
    observe_until(lambda: Attempt.objects.filter(id=attempt.id, state="succeeded", settled_at__isnull=False).exists())
    (seen,) = call(cluster, "list_jobs")
    assert (seen.parallelism, seen.ended_pods) == (2, 2)
    meters = Meter.objects.filter(run_id=attempt.id)
    used = UsageSegment.objects.filter(meter__in=meters).aggregate(used=Sum("gpu_milliseconds"))["used"]
    ran = sum(
        int((pod.finished_at - pod.started_at).total_seconds() * 1000) for pod in attempt.pods.all() if pod.finished_at
    )
    assert (attempt.pods.count(), abs(used - 8 * ran) < 100) == (2, True)
    job.refresh_from_db()
    view = job_view(submitter, job.id)
    assert (job.state, view.attempts[0].size, view.pod_sets[0].count) == ("succeeded", "2 of 1 to 4 pods", "1 to 4")
    assert view.line.asks.startswith("1 to 4 × 8 ")
    user = User.objects.get(id=submitter.user_id)
    shown = client.get(f"/api/v1/jobs/{job.id}", headers=bearer(user)).json()
    assert (shown["spec"]["elastic"], shown["attempt"]["objects"][0]["pods"]) == (
        {"pod_set": "worker", "min_count": 1}, 2,
    )  # fmt: skip
    offers = client.post(
        "/api/v1/quotes", json.dumps(elastic(1, 4)), content_type="application/json", headers=bearer(user)
    ).json()["offers"]
    assert [one["pod_sets"][0]["count"] for one in offers] == [2]


def test_a_stopped_job_continues_with_fewer_pods_on_what_is_left(cluster, submitter, client):
    PriorityClass.objects.filter(name="high").update(preempts="lower")
    PriorityClass.objects.update(shield_seconds=0)
    job, _ = started(submitter, **elastic(1, 2))
    assert sizes(job) == [2]
    other = submit(submitter, urgent())
    operations.run_scheduling_cycle()
    assert (told(other), Preemption.objects.get().amounts["gpu"]) == (("queued", "waiting_for_preemption"), 8000)
    victim, made = PreemptionVictim.objects.get(), Preemption.objects.get()
    assert (len(victim.nodes), victim.amounts["gpu"], set(victim.nodes) & set(made.nodes)) == (1, 8000, set())
    assert JobEvent.objects.get(job=job, kind="interrupted").message.endswith(
        "It can go on with 1 pod: 1 node of east is kept for it."
    )
    who = bearer(User.objects.get(id=submitter.user_id))
    (decision,) = client.get(f"/api/v1/jobs/{job.id}/preemptions", headers=who).json()["items"]
    assert decision["victims"][0]["kept_nodes"] == victim.nodes
    (hidden,) = views_of(actor_for(make_user()), job.id, [made])
    assert (hidden.victims[0].name, hidden.victims[0].kept_nodes) == ("", ())
    thief = submit(submitter, gpu_job("thief") | {"priority_class": "high"})
    PriorityClass.objects.update(preempts="never")
    end_of(job)
    Job.objects.filter(id=job.id).update(retry_at=Now() + timedelta(hours=1))  # it is not considered now
    operations.run_scheduling_cycle()
    assert (told(other)[0], told(thief)) == ("dispatching", ("queued", "kept_for_urgent"))
    Job.objects.filter(id=job.id).update(retry_at=None)
    operations.run_scheduling_cycle()
    assert (told(other)[0], told(job)[0], sizes(job), sizes(other)) == ("dispatching", "dispatching", [2, 1], [1])
    held = Hold.objects.filter(state="pending").values_list("amounts__gpu", flat=True)
    assert list(held) == [8000, 8000]
    assert not load_claims(database_now()), "nothing is kept for it any more"


@pytest.mark.parametrize("change", [operations.request_cancellation, operations.request_suspension])
def test_nothing_is_kept_for_a_stopped_job_that_its_user_cancels_or_suspends(cluster, submitter, change):
    PriorityClass.objects.filter(name="high").update(preempts="lower")
    PriorityClass.objects.update(shield_seconds=0)
    job, _ = started(submitter, **elastic(1, 2))
    submit(submitter, urgent())
    operations.run_scheduling_cycle()
    assert [one.kind for one in load_claims(database_now())].count("shrunk") == 1
    change(submitter, job.id)
    assert [one.kind for one in load_claims(database_now())].count("shrunk") == 0


def test_the_database_refuses_a_kept_place_without_nodes_and_changes_none(cluster, submitter):
    PriorityClass.objects.filter(name="high").update(preempts="lower")
    PriorityClass.objects.update(shield_seconds=0)
    started(submitter, **elastic(1, 2))
    submit(submitter, urgent())
    operations.run_scheduling_cycle()
    for wrong in ("nodes = '[]'", "nodes = '{}'", "nodes = '3'", "amounts = '[]'"):
        told_ = attack(f"UPDATE federation_preemptionvictim SET {wrong}")
        assert "what_is_kept_for_a_victim_has_nodes" in told_ or "is decided" in told_ or "never changes" in told_


def test_quota_is_taken_for_the_size_and_a_job_that_is_too_large_for_it_waits(cluster, submitter):
    make_limit("acme/research", nominal="12")
    job = submit(submitter, elastic(1, 8, gpus=4))
    operations.run_scheduling_cycle()
    assert (sizes(job), Hold.objects.get().amounts["gpu"]) == ([3], 12_000)
    other = submit(submitter, elastic(2, 8, "other", gpus=1))
    operations.run_scheduling_cycle()
    assert told(other) == ("queued", "waiting_for_quota")


@pytest.mark.parametrize("pods", [0, 1, 5, 10_000])
def test_the_database_refuses_a_size_that_the_job_does_not_allow(cluster, submitter, pods):
    _, attempt = place(submitter)
    job = submit(submitter, elastic(2, 4, "elastic"))
    Attempt.objects.filter(id=attempt.id).update(job=job, number=1)
    again = (
        "INSERT INTO federation_remoteobject (attempt_id, position, name, flavor, capacity_type, pods, gpu_units, cpu_millicores,"
        " memory_mib, assumed_nodes, domain_selectors, topology_label, stretches, uid, outcome)"
        " SELECT attempt_id, 0, name || 'x', flavor, capacity_type, %s, gpu_units, cpu_millicores, memory_mib, '{}', '[]', '', '[]',"
        " '', '' FROM federation_remoteobject WHERE attempt_id = %s"
    )
    attempt.remote_objects.update(position=3)
    assert "has more or fewer pods than its job allows" in attack(again, pods, attempt.id)
    assert attack(again, 3, attempt.id) == "it was allowed"
    assert "was promised never changes" in attack("UPDATE federation_remoteobject SET pods = 4 WHERE position = 0")


def test_what_runs_for_a_forgotten_attempt_is_taken_in_with_its_size(cluster, submitter):
    job = submit(submitter, elastic(1, 4, seconds=100_000))
    operations.run_scheduling_cycle()
    operations.dispatch_attempts()
    ran = uids(cluster)
    forget_attempts()
    call_command("standstill", "begin")
    everything()
    assert (uids(cluster), sizes(job)) == (ran, [2])
    attempt = Attempt.objects.get(job=job)
    assert (Hold.objects.get(holder_id=attempt.id).amounts["gpu"], attempt.pace) == (16_000, 0.5)


@pytest.mark.parametrize(("parallelism", "adopted"), [(0, 0), (1, 0), (2, 1), (4, 1), (5, 0), (10**9, 0), (-3, 0)])
def test_a_cluster_that_reports_another_size_than_the_job_allows_gets_no_attempt(
    cluster, submitter, parallelism, adopted
):
    job, id_ = submit(submitter, elastic(2, 4, gpus=1)), new_id()
    labels = {
        "switchyard.dev/tenant": str(job.tenant_id),
        "switchyard.dev/job": str(job.id),
        "switchyard.dev/attempt": str(id_),
        "switchyard.dev/spec-hash": rendering.spec_hash(job.spec),
    }
    namespace = names.namespace_of(job.tenant.path, job.tenant_id)
    seen = JobSeen(
        namespace, names.object_name(id_, 0), "uid-1", labels, False, "", "", "", None, False, parallelism=parallelism
    )
    begin_standstill(SYSTEM, "test")
    take_in(circumstances(), cluster.id, [seen])
    assert sizes(job) == ([parallelism] if adopted else [])


def test_a_job_of_one_size_is_as_it_was(cluster, submitter):
    released(submitter, jobs=1, gpus=1)
    (attempt,) = Attempt.objects.all()
    assert (attempt.pace, job_view(submitter, attempt.job_id).attempts[0].size) == (1, "")
    assert (Job.objects.get().spec.get("elastic"), call(cluster, "list_jobs")[0].parallelism) == (None, 1)


def test_the_form_asks_for_the_fewest_pods():
    asked = DEFAULTS | {"tenant": "acme", "name": "train", "image": "i", "count": "8"}
    assert spec_of_form(asked | {"min_count": " 4 "})["elastic"] == {"min_count": 4}
    assert spec_of_form(asked | {"min_count": "four"})["elastic"] == {"min_count": "four"}, "its reader reports it"
    assert "elastic" not in spec_of_form(asked | {"min_count": " "})
    assert CONTROL_OF["elastic.min_count"] == "min_count"
