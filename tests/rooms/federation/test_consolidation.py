"""Running jobs move to other nodes so that a larger one fits, if the policies of their tenants allow it."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import connection
from django.db.models.functions import Now

from federation import operations
from federation.models import (
    Attempt,
    Checkpoint,
    Consolidation,
    Job,
    JobEvent,
    Move,
    PlacementPolicy,
    PodRun,
    PriorityClass,
    RemoteObject,
    Standstill,
)
from federation.operations import put_policy
from federation.operations.cancellation import request_cancellation
from federation.queries.consolidation import load_plan_claims, moved_for_others
from foundation.clock import database_now
from placement.preemption import sparing
from placement.preemption.consolidation import consolidate
from placement.values.consolidation import MovedForOthers
from tenancy.models import AuditEntry, Tenant, User
from tenancy.queries import SYSTEM
from tests.builders import bind, make_tenant, make_user, redate, submit
from tests.live import gpu_job, observe_until
from tests.rooms.federation.test_migration import ended, refused_as, started

pytestmark = pytest.mark.django_db(transaction=True)
SAVING = {"checkpoint_seconds": 3601, "deadline_seconds": 86_400}


def allow(what="resumable", path="acme"):
    put_policy(SYSTEM, Tenant.objects.get(path=path).id, {"consolidation": what})


def half(submitter, node, **fields):
    """A job that uses half of a node since an hour; it saved its work a few seconds ago."""
    job, attempt = started(submitter, **(gpu_job(f"half-{node[-1]}", gpus=4) | SAVING | fields))
    Checkpoint.objects.create(
        attempt=attempt, sequence=1, reference="s3://x/1", flavors=[], written_at=Now() - timedelta(seconds=5)
    )
    RemoteObject.objects.filter(attempt=attempt).update(assumed_nodes={node: 1})
    return job, attempt


def nodes_of(cluster):
    return list(cluster.nodes.order_by("name").values_list("name", flat=True))


def large(submitter, **fields):
    """A job of a whole node that has waited for an hour."""
    job = submit(submitter, gpu_job("large") | fields)
    redate(Job.objects.filter(id=job.id), created_at=Now() - timedelta(hours=1))
    return job


@pytest.fixture
def halves(cluster, submitter):
    """Two nodes, half of each in use."""
    return [half(submitter, node) for node in nodes_of(cluster)]


@pytest.fixture
def planned(halves, submitter):
    """A larger job for which one of them is being moved."""
    allow()
    job = large(submitter)
    operations.run_scheduling_cycle()
    move = Move.objects.select_related("attempt", "job").get()
    return job, move


def told(job):
    job.refresh_from_db()
    return job.state, job.reason_code


def test_a_job_moves_to_another_node_of_its_cluster_so_that_a_larger_one_fits(cluster, halves, submitter, planned):
    job, move = planned
    plan = Consolidation.objects.get()
    assert (plan.beneficiary_id, plan.cluster_id, plan.is_exact, plan.size_milli) == (job.id, cluster.id, True, 8000)
    assert (move.cause, move.expected_id, move.size_milli, move.stay_seconds) == (
        "consolidation",
        cluster.id,
        4000,
        None,
    )
    assert plan.cost_gpu_seconds <= plan.share * plan.gain_gpu_seconds
    (mine,) = plan.nodes
    (new,) = move.nodes
    assert {mine, new} == set(nodes_of(cluster))
    assert told(job) == ("queued", "waiting_for_consolidation")
    assert "1 running job is moving so that it fits" in job.reason_message
    assert f"1 node of {cluster.name} is kept for it until" in job.reason_message
    assert JobEvent.objects.filter(job=job, kind="consolidating").count() == 1
    assert move.attempt.stop_reason == "migrated"
    said = JobEvent.objects.get(job=move.job, kind="interrupted").message
    assert f"Moved so that the larger job {job.id} fits. It continues on 1 node of {cluster.name}" in said
    entry = AuditEntry.objects.get(action="job.migrate")
    assert (entry.detail["cause"], entry.detail["for"]) == ("consolidation", str(job.id))
    operations.run_scheduling_cycle()
    assert (Move.objects.count(), Consolidation.objects.count()) == (1, 1)
    greedy = submit(submitter, gpu_job("greedy", gpus=4))
    operations.run_scheduling_cycle()
    assert told(greedy)[0] == "queued", "the places are kept"
    ended(move.attempt)
    assert told(move.job)[0] == "queued"
    operations.run_scheduling_cycle()
    after = Attempt.objects.get(job=move.job, number=2)
    assert (after.cluster_id, after.remote_objects.get().assumed_nodes) == (cluster.id, {new: 1})
    assert Attempt.objects.get(job=job).remote_objects.get().assumed_nodes == {mine: 1}
    operations.run_scheduling_cycle()
    plan.refresh_from_db()
    assert plan.outcome == "placed"
    assert load_plan_claims(database_now()) == ()


def test_live_each_job_has_one_run_at_a_time_and_all_run_in_the_end(cluster, submitter):
    allow()
    PriorityClass.objects.update(shield_seconds=0)
    sizes = {"first": 5, "second": 5, "third": 3}
    jobs = {name: submit(submitter, gpu_job(name, gpus=n, seconds=100_000) | SAVING) for name, n in sizes.items()}

    def running(*names):
        return Job.objects.filter(name__in=names, state="running").count() == len(names)

    observe_until(lambda: running(*sizes) and PodRun.objects.exclude(node="").count() == 3)
    on = dict(PodRun.objects.values_list("attempt__job__name", "node"))
    beside, apart = ("first", "second") if on["first"] == on["third"] else ("second", "first")
    assert on[beside] == on["third"] != on[apart]
    request_cancellation(submitter, jobs[beside].id)
    observe_until(lambda: Job.objects.filter(name=beside, state="cancelled").exists())
    large(submitter, labels=gpu_job(seconds=100_000)["labels"])
    observe_until(lambda: running(apart, "third", "large"))
    assert list(Move.objects.values_list("job__name", flat=True)) == ["third"]
    first, second = Attempt.objects.filter(job=jobs["third"]).order_by("number")
    assert (first.end_reason, first.cluster_id) == ("migrated", second.cluster_id)
    assert second.reserved_at >= first.finished_at
    assert PodRun.objects.get(attempt=second).node == on[apart]


@pytest.mark.parametrize("what", ["never", None])
def test_nothing_moves_without_a_policy_that_allows_it(halves, submitter, what):
    if what:
        allow(what)
    job = large(submitter)
    operations.run_scheduling_cycle()
    assert told(job) == ("queued", "waiting_for_capacity")
    assert not Move.objects.exists()


def test_the_nearest_policy_counts_and_jobs_that_are_unwilling_or_would_start_again_stay(halves, submitter):
    allow("any")
    allow("willing", "acme/research")
    job = large(submitter)
    operations.run_scheduling_cycle()
    assert not Move.objects.exists(), "their users do not let the gateway move them"
    allow("resumable", "acme/research")
    Checkpoint.objects.update(flavors=["another"])
    operations.run_scheduling_cycle()
    assert not Move.objects.exists(), "they cannot be resumed there"
    Checkpoint.objects.update(flavors=[])
    operations.run_scheduling_cycle()
    assert Move.objects.count() == 1
    assert told(job)[1] == "waiting_for_consolidation"


@pytest.mark.parametrize(
    ("name", "value"),
    [("CONSOLIDATION_SHARE", 0), ("CONSOLIDATION_MOST_MOVES", 0), ("CONSOLIDATION_HOURLY_MOVES", 0)],
)
def test_settings_switch_it_off(halves, submitter, settings, name, value):
    allow()
    setattr(settings, name, value)
    large(submitter)
    operations.run_scheduling_cycle()
    assert not Move.objects.exists()


def test_the_cost_must_be_a_small_share_of_the_gain(halves, submitter, settings):
    allow()
    settings.CONSOLIDATION_SHARE = 0.001
    job = large(submitter)
    operations.run_scheduling_cycle()
    job.refresh_from_db()
    assert not Move.objects.exists()
    assert "running jobs could be moved so that it fits" in job.reason_message
    assert "0% of what it would gain" in job.reason_message


def test_a_job_that_has_not_waited_long_moves_no_other(halves, submitter):
    allow()
    submit(submitter, gpu_job("large"))
    operations.run_scheduling_cycle()
    assert not Move.objects.exists()


def test_a_decision_is_dropped_if_its_jobs_have_changed(halves, submitter, monkeypatch):
    allow()
    job = large(submitter)

    def late(*arguments, **more):
        found = consolidate(*arguments, **more)
        changes.pop(0)()
        return found

    monkeypatch.setattr("federation.operations.consolidation.consolidate", late)
    changes: list[Callable[[], object]] = [
        lambda: Attempt.objects.update(stop_requested_at=Now()),
        lambda: Job.objects.filter(name__startswith="half").update(suspend_requested_at=Now()),
        lambda: Job.objects.filter(name__startswith="half").update(priority=999),
        Standstill.objects.create,
    ]
    undo = [
        lambda: Attempt.objects.update(stop_requested_at=None),
        lambda: Job.objects.filter(name__startswith="half").update(suspend_requested_at=None),
        lambda: Job.objects.filter(name__startswith="half").update(priority=job.priority),
        lambda: Standstill.objects.all().delete(),
    ]
    for back in undo:
        operations.run_scheduling_cycle()
        assert not Move.objects.exists()
        back()
    monkeypatch.undo()
    operations.run_scheduling_cycle()
    assert Move.objects.count() == 1


def test_one_plan_at_a_time_for_a_cluster_and_a_moved_job_rests(cluster, planned, submitter):
    job, move = planned
    other = large(submitter)
    operations.run_scheduling_cycle()
    assert Consolidation.objects.count() == 1
    assert told(other)[0] == "queued"
    request_cancellation(submitter, job.id)
    operations.run_scheduling_cycle()
    assert list(Consolidation.objects.values_list("outcome", flat=True)) == ["withdrawn"]
    kept = [one for one in load_plan_claims(database_now()) if one.job_id == move.job_id]
    assert [one.kind for one in kept] == ["moved"], "its place is kept all the same"


def test_jobs_of_one_user_are_moved_for_others_only_so_often(halves, submitter, monkeypatch):
    allow()
    job = large(submitter)
    Job.objects.filter(id=job.id).update(created_by=make_user())
    monkeypatch.setattr(sparing, "MOST_OF_A_USER", 0)
    operations.run_scheduling_cycle()
    assert not Move.objects.exists()
    assert "2 running jobs stay in place" in Job.objects.get(id=job.id).reason_message
    monkeypatch.setattr(sparing, "MOST_OF_A_USER", 1)
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(
            "federation.operations.consolidation.moved_for_others", lambda: MovedForOthers({submitter.user_id: 1})
        )
        operations.run_scheduling_cycle()
        assert not Move.objects.exists(), "a job of theirs has been moved since the snapshot"
    operations.run_scheduling_cycle()
    assert Move.objects.get().job.created_by_id == submitter.user_id
    assert moved_for_others() == MovedForOthers({submitter.user_id: 1}, {"acme/research/vision": 0})
    before = Now() - timedelta(hours=26)
    redate(Consolidation.objects.all(), created_at=before, deadline_at=before + timedelta(hours=1))
    assert moved_for_others() == MovedForOthers()


def test_a_plan_whose_deadline_passes_ends_and_the_job_waits_before_another(planned, submitter):
    job, _move = planned
    earlier = {"created_at": Now() - timedelta(minutes=20), "deadline_at": Now() - timedelta(minutes=10)}
    redate(Consolidation.objects.all(), **earlier)
    operations.run_scheduling_cycle()
    assert Consolidation.objects.get().outcome == "expired"
    assert JobEvent.objects.filter(job=job, kind="consolidation_expired").count() == 1
    assert told(job)[1] != "waiting_for_consolidation"
    assert Consolidation.objects.count() == 1


def test_viewers_see_the_plans_of_a_job_from_both_sides_without_names_that_they_may_not_see(
    planned, cluster, call, client
):
    job, move = planned
    ada = User.objects.get(email="ada@acme.example")
    (shown,) = call(ada, "get", f"/jobs/{job.id}/consolidations")[1]["items"]
    assert (shown["role"], shown["outcome"], shown["cluster"]) == ("beneficiary", None, cluster.name)
    (moved,) = shown["moves"]
    assert (moved["job"], moved["name"], moved["gpus"]) == (str(move.job_id), move.job.name, 4.0)
    assert (moved["origin"], moved["cluster"], moved["nodes"]) == (cluster.name, cluster.name, move.nodes)
    client.force_login(ada)
    assert "1 running job is moving so that it fits" in client.get(f"/jobs/{job.id}/").content.decode()
    assert "1 job moved so that it fits" in client.get(f"/jobs/{job.id}/").content.decode()
    page = client.get(f"/jobs/{move.job_id}/").content.decode()
    assert "Moved so that the larger job" in page
    assert "Jobs that moved" in page
    Job.objects.filter(id=job.id).update(tenant=make_tenant("acme/secret"), name="hush")
    ben = make_user("ben@acme.example")
    bind(ben, "acme/research/vision", "viewer")
    (mine,) = call(ben, "get", f"/jobs/{move.job_id}/consolidations")[1]["items"]
    assert (mine["role"], mine["beneficiary"]["name"], mine["beneficiary"]["tenant"]) == ("moved", None, None)
    assert call(ben, "get", f"/jobs/{job.id}/consolidations")[0] == 404
    client.force_login(ben)
    assert "hush" not in client.get(f"/jobs/{move.job_id}/").content.decode()


ATTACK = """
INSERT INTO federation_move (attempt_id, job_id, cause, expected_id, lost_seconds, cost_seconds, consolidation_id, size_milli, nodes)
SELECT attempt.id, attempt.job_id, 'consolidation', attempt.cluster_id, 0, 60, {plan}, {size}, {nodes}
  FROM federation_attempt AS attempt, federation_consolidation AS plan
 WHERE NOT EXISTS (SELECT FROM federation_move WHERE attempt_id = attempt.id) AND attempt.finished_at IS NULL
"""


def test_the_database_refuses_plans_and_moves_that_break_a_rule(planned):
    job, _move = planned
    Attempt.objects.filter(stop_requested_at=None).update(stop_requested_at=Now(), stop_reason="migrated")
    assert refused_as(ATTACK.format(plan="plan.id", size=8000, nodes="'[]'")) == "jobs_move_only_for_larger_ones"
    assert refused_as(ATTACK.format(plan="plan.id", size=4000, nodes="'1'")) == "a_move_of_a_plan_has_its_place"
    Job.objects.filter(name__startswith="half").update(priority=job.priority + 1)
    assert refused_as(ATTACK.format(plan="plan.id", size=4000, nodes="'[]'")) == "jobs_move_only_for_larger_ones"
    assert refused_as("UPDATE federation_consolidation SET nodes = '[]'") == "a_consolidation_ends_once"
    assert refused_as("DELETE FROM federation_consolidation") == "a_consolidation_ends_once"
    assert refused_as("UPDATE federation_consolidation SET ended_at = now()") == "a_consolidation_ends_with_an_outcome"
    copy = """INSERT INTO federation_consolidation (id, beneficiary_id, cluster_id, size_milli, nodes, amounts, gain_gpu_seconds,
              cost_gpu_seconds, lost_gpu_seconds, share, is_exact, deadline_at, outcome)
              SELECT gen_random_uuid(), {job}, cluster_id, {size}, nodes, amounts, gain_gpu_seconds, {cost}, {lost}, share, is_exact,
              {deadline}, '' FROM federation_consolidation"""
    usual = {"job": "beneficiary_id", "size": 1, "cost": 1, "lost": 1, "deadline": "deadline_at"}
    other = "(SELECT job_id FROM federation_move)"
    for changes, broken in (
        ({}, "one_live_consolidation_per_job"),
        ({"job": other}, "one_live_consolidation_per_cluster"),
        ({"cost": "share * gain_gpu_seconds + 1"}, "a_consolidation_costs_a_share_of_its_gain"),
        ({"lost": 2}, "a_consolidation_costs_what_is_repeated_or_more"),
        ({"size": 0}, "a_consolidation_lists_its_nodes"),
        ({"deadline": "now()"}, "a_consolidation_has_a_deadline_ahead"),
    ):
        assert refused_as(copy.format(**(usual | changes))) == broken
    with connection.cursor() as cursor:
        cursor.execute("UPDATE federation_consolidation SET ended_at = now(), outcome = 'placed'")
    assert refused_as("UPDATE federation_consolidation SET outcome = 'expired'") == "a_consolidation_ends_once"
    assert PlacementPolicy.objects.filter(consolidation="resumable").exists()
    assert refused_as("UPDATE federation_placementpolicy SET consolidation = 'whim'") == "policy_consolidation_is_known"
