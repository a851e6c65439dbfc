"""The place of a failed attempt that is kept for the restart of its job (`then: again_here`), through the whole gateway."""

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from clusters.models import AvoidedNode, Cluster, Node
from federation.engine.lifecycle import AttemptState
from federation.models import Attempt, Diagnosis, Job, JobEvent, KeptPlace, RetryBrake
from federation.operations import request_cancellation as cancel_job
from federation.operations import run_scheduling_cycle
from federation.operations.consequences import Ending
from federation.operations.cycle import _Lookup
from federation.operations.endings import end_attempts
from federation.operations.suspension import request_suspension
from federation.queries.in_use import features_in_use
from federation.queries.kept_places import load_kept_places, place_of
from federation.queries.preemption import load_claims
from federation.queries.queue import QUEUE_DEPTH
from federation.queries.quotes import quote_of
from federation.queries.snapshot import load_snapshot
from foundation.clock import database_now, now
from placement.cycle import cycle
from quotas.models import KeptIdle
from quotas.operations import end_holds
from tests.builders import (
    actor_for,
    bearer,
    make_cluster,
    make_flavor,
    make_limit,
    make_node,
    make_spec,
    submit,
)
from tests.rooms.federation.kept_places import (
    GANG,
    ML,
    NODE,
    OTHERS,
    clear,
    fail,
    gang,
    member,
    outcome,
    passes,
    run,
    seconds_left,
    small,
    state_of,
    two_nodes,
)

pytestmark = pytest.mark.django_db


@pytest.fixture
def user():
    return member()


@pytest.fixture
def cluster():
    return two_nodes()


def test_the_place_is_kept_from_the_failure_on_and_the_job_starts_there_again(user, cluster):
    attempt = gang(user)
    fail(attempt, is_cleared=False)
    [claim] = load_claims(database_now())
    assert (claim.job_id, claim.nodes, claim.kind, claim.amounts["gpu"]) == (
        attempt.job_id, ("n0", "n1"), "again_here", 16_000,
    )  # fmt: skip
    other = small(user)
    run_scheduling_cycle()
    assert state_of(other) == "queued", "its pods have ended, and its place is kept while it is cleared away"
    assert "kept for a job that failed there and starts again" in str(other.explanation)
    assert Attempt.objects.filter(job=attempt.job).count() == 1, "it starts only when nothing is left of the failed one"
    clear(attempt)
    run_scheduling_cycle()
    again = Attempt.objects.get(job=attempt.job, number=2)
    assert sorted(again.remote_objects.get().assumed_nodes) == ["n0", "n1"]
    assert state_of(other) == "queued"
    run_scheduling_cycle()
    assert outcome(attempt) == "placed"
    assert not load_claims(database_now())


def test_a_more_urgent_job_of_another_tenant_does_not_take_it_and_gets_it_after_its_time(user, cluster):
    attempt = gang(user, {"backoff": {"seconds": 60}, "keep_seconds": 30})
    fail(attempt)
    urgent = small(user)
    Job.objects.filter(id=urgent.id).update(priority=1000)
    run_scheduling_cycle()
    assert state_of(urgent) == "queued"
    assert 30 < seconds_left(load_claims(database_now())[0].until_at) <= 90
    passes(70)
    run_scheduling_cycle()
    # the job's own turn has come: the more urgent one is first in the queue, and does not get its nodes
    assert state_of(urgent) == "queued"
    assert Attempt.objects.filter(job=attempt.job, number=2).exists()


def test_after_its_time_the_place_is_given_up_with_a_reason(user, cluster):
    attempt = gang(user, {"backoff": {"seconds": 600}, "keep_seconds": 10})
    fail(attempt)
    Job.objects.filter(id=attempt.job_id).update(retry_at=now() + timedelta(hours=1))
    passes(605)
    other = small(user)
    run_scheduling_cycle()
    assert (state_of(other), KeptPlace.objects.get().ended_at) == ("queued", None)
    passes(6)
    run_scheduling_cycle()
    assert (outcome(attempt), state_of(other)) == ("given_up", "dispatching")
    [event] = JobEvent.objects.filter(job=attempt.job, kind="kept_place_ended")
    assert "2 nodes of c1) was kept for its restart until" in event.message


def test_no_process_has_to_live_for_it_to_end(user, cluster):
    attempt = gang(user, {"keep_seconds": 10})
    fail(attempt)
    passes(11)
    assert not load_kept_places(database_now()), "by the database's clock, without any write"
    assert not place_of(attempt.id).is_kept


def test_an_attempt_that_is_never_cleared_away_keeps_its_place_for_a_bounded_time(user, cluster):
    attempt = gang(user, {"keep_seconds": 10})
    fail(attempt, is_cleared=False)
    assert 240 < seconds_left(load_claims(database_now())[0].until_at) <= 310
    passes(311)
    assert not load_claims(database_now())
    other = small(user)
    run_scheduling_cycle()
    assert (state_of(other), outcome(attempt)) == ("dispatching", "given_up")


@pytest.mark.parametrize("how", ["cancel", "suspend"])
def test_a_cancelled_or_suspended_job_frees_it_at_once(user, cluster, how):
    attempt = gang(user, {"backoff": {"seconds": 60}})
    fail(attempt)
    actor = actor_for(user)
    (cancel_job if how == "cancel" else request_suspension)(actor, attempt.job_id)
    assert not load_claims(database_now())
    other = small(user)
    run_scheduling_cycle()
    assert (state_of(other), outcome(attempt)) == ("dispatching", "withdrawn")
    assert not KeptIdle.objects.filter(ended_at=None).exists()


@pytest.mark.parametrize("how", ["cancel", "suspend"])
def test_a_job_that_is_stopped_while_its_attempt_is_cleared_away_frees_it_at_once(user, cluster, how):
    attempt = gang(user)
    fail(attempt, is_cleared=False)
    (cancel_job if how == "cancel" else request_suspension)(actor_for(user), attempt.job_id)
    assert not load_claims(database_now())
    clear(attempt)
    other = small(user)
    run_scheduling_cycle()
    assert (state_of(other), outcome(attempt)) == ("dispatching", "withdrawn")


@pytest.mark.parametrize(
    "how", ["gone", "not ready", "cordoned", "avoided", "device", "draining", "braked", "braked everywhere"]
)
def test_a_place_that_does_not_take_the_job_is_not_kept(user, cluster, how):
    attempt = gang(user, {"backoff": {"seconds": 60}})
    fail(attempt)
    node = Node.objects.get(name="n1")
    ways: dict[str, Callable[[], object]] = {
        "gone": node.delete,
        "not ready": lambda: Node.objects.filter(id=node.id).update(is_ready=False),
        "cordoned": lambda: Node.objects.filter(id=node.id).update(is_schedulable=False),
        "avoided": lambda: AvoidedNode.objects.create(
            cluster=cluster, node="n1", uid=node.uid, reason="x", until_at=now() + timedelta(hours=1)
        ),
        "device": lambda: Node.objects.filter(id=node.id).update(
            taints=[{"key": "gpu", "value": "XID-79", "effect": "PreferNoSchedule"}]
        ),
        "draining": lambda: Cluster.objects.filter(id=cluster.id).update(wish="draining"),
        "braked": lambda: RetryBrake.objects.create(cluster=cluster, failures=5, attempts=10),
        "braked everywhere": lambda: RetryBrake.objects.create(failures=5, attempts=10),
    }
    ways[how]()
    assert not load_claims(database_now())
    small(user)
    run_scheduling_cycle()
    assert outcome(attempt) == "unusable"
    [event] = JobEvent.objects.filter(job=attempt.job, kind="kept_place_ended")
    assert "does not take the job now" in event.message


@pytest.mark.parametrize(
    "pod",
    [
        {"disruption": "DeletionByPodGC"},
        {"disruption": "PreemptionByScheduler"},
        {"disruption": "TerminationByKubelet", "reason": "Evicted"},
    ],
)
def test_a_place_that_is_the_cause_is_not_kept_but_avoided(user, cluster, pod):
    attempt = gang(user, {"when": {}})
    fail(attempt, **pod)
    found = Diagnosis.objects.get(attempt=attempt)
    assert (found.step, found.avoid, found.rule, found.keep_seconds) == ("again_elsewhere", "node", "Job: here", 0)
    assert "not in its place, which is the cause" in found.next_step
    assert not KeptPlace.objects.exists()


def test_a_device_that_failed_on_another_node_of_the_gang_is_the_cause_too(user, cluster):
    attempt = gang(user, {"when": {}})
    Node.objects.filter(name="n1").update(taints=[{"key": "gpu-xid", "value": "79", "effect": "NoSchedule"}])
    fail(attempt)
    found = Diagnosis.objects.get(attempt=attempt)
    assert (found.step, found.node) == ("again_elsewhere", "n1")
    assert not KeptPlace.objects.exists()


def test_while_its_log_is_read_the_place_is_kept_and_then_only_if_the_rule_matches(user, cluster):
    rules = [{"name": "nccl", "when": {"log": ["@nccl_timeout"]}, "then": "again_here", "keep_seconds": 30}]
    body = make_spec(name="gang", pod=GANG, failure_rules=rules)
    job = submit(actor_for(user), {**body, "tenant": ML})
    run_scheduling_cycle()
    attempt = run(job)
    fail(attempt, is_cleared=False)
    assert Diagnosis.objects.get(attempt=attempt).judged_at is None
    [claim] = load_claims(database_now())
    assert claim.nodes == ("n0", "n1")
    other = small(user)
    run_scheduling_cycle()
    assert state_of(other) == "queued"
    end_attempts([Ending(attempt.id, AttemptState.FAILED, "program_failed", "x")])
    assert not load_claims(database_now()), "it was not judged so"
    run_scheduling_cycle()
    assert (state_of(other), outcome(attempt)) == ("dispatching", "withdrawn")


def test_what_is_idle_there_counts_as_used_by_the_tenant_when_the_attempt_is_settled(user, cluster):
    attempt = gang(user, {"backoff": {"seconds": 300}})
    fail(attempt)
    small(user)
    run_scheduling_cycle()
    assert not KeptIdle.objects.exists(), "its hold counts until then"
    settled(attempt)
    run_scheduling_cycle()
    idle = KeptIdle.objects.get()
    assert (idle.holder_id, idle.tenant_id, idle.amounts) == (attempt.id, attempt.job.tenant_id, {"gpu": 16_000})
    assert idle.until_at == load_claims(database_now())[0].until_at
    passes(301)
    run_scheduling_cycle()
    assert KeptIdle.objects.get().ended_at is not None


def settled(attempt: Attempt) -> None:
    end_holds({attempt.id: "posted"})


@pytest.mark.parametrize("is_settled", [False, True])
def test_its_quota_is_kept_too(user, cluster, is_settled):
    for name in ("n2", "n3"):
        make_node(cluster, name)
    make_limit(ML, nominal="20")
    attempt = gang(user, {"backoff": {"seconds": 300}})
    fail(attempt)
    if is_settled:
        settled(attempt)
    other = small(user, ML)
    run_scheduling_cycle()
    assert state_of(other) == "queued"
    assert "quota" in other.reason_code
    cancel_job(actor_for(user), attempt.job_id)
    settled(attempt)
    run_scheduling_cycle()
    assert state_of(other) == "dispatching"


def test_a_job_that_must_end_before_the_place_is_needed_uses_it_meanwhile(user, cluster):
    attempt = gang(user, {"backoff": {"seconds": 600}})
    fail(attempt, is_cleared=False)
    short, long = small(user, deadline_seconds=400), small(user, deadline_seconds=700)
    run_scheduling_cycle()
    assert (state_of(short), state_of(long)) == ("queued", "queued"), "it may be needed at any time"
    clear(attempt)
    run_scheduling_cycle()
    assert (state_of(short), state_of(long)) == ("dispatching", "queued")


def test_a_quote_says_what_a_cycle_does_with_a_kept_place(user, cluster):
    attempt = gang(user, {"backoff": {"seconds": 600}})
    fail(attempt)
    body = {**make_spec(name="small", pod=NODE), "tenant": OTHERS}
    quote = quote_of(actor_for(user), body).quote
    assert not quote.offers
    assert "failed there and starts again" in str(quote.why_not)
    short = quote_of(actor_for(user), {**body, "deadline_seconds": 300}).quote
    job = submit(actor_for(user), {**body, "deadline_seconds": 300})
    run_scheduling_cycle()
    placed = Attempt.objects.get(job=job).remote_objects.get().assumed_nodes
    assert list(placed) == [node for pods in short.offers[0].placement.pod_sets for node in pods.nodes]


def test_it_starts_in_its_place_although_another_place_ranks_first(user, cluster):
    attempt = gang(user, pod=NODE)
    [own] = attempt.remote_objects.get().assumed_nodes
    for number in range(2):
        elsewhere = make_cluster(name=f"a{number}")
        make_flavor(elsewhere)
        make_node(elsewhere, f"free-{number}")
    fail(attempt)
    run_scheduling_cycle()
    again = Attempt.objects.get(job=attempt.job, number=2)
    assert (again.cluster_id, list(again.remote_objects.get().assumed_nodes)) == (cluster.id, [own])


def test_if_its_place_cannot_hold_it_it_starts_elsewhere(user, cluster):
    attempt = gang(user)
    make_node(cluster, "n2")
    fail(attempt)
    Node.objects.filter(name="n0").update(foreign_pods=1, foreign_cpu_millicores=10**8)
    run_scheduling_cycle()
    again = Attempt.objects.get(job=attempt.job, number=2)
    assert sorted(again.remote_objects.get().assumed_nodes) == ["n1", "n2"]


def test_a_round_that_began_before_the_failure_puts_no_job_there(user, cluster):
    attempt = gang(user, {"backoff": {"seconds": 60}})
    other = small(user)
    Attempt.objects.filter(id=attempt.id).update(state="running")
    snapshot = load_snapshot(database_now(), QUEUE_DEPTH)
    fail(attempt)
    # the fleet as if its pods had ended when the round began
    stale = load_snapshot(database_now(), QUEUE_DEPTH)
    stale = type(stale)(
        **{**{name: getattr(stale, name) for name in stale.__dataclass_fields__}, "claims": snapshot.claims}
    )
    decisions = cycle.decide(stale)
    assert [one.job_id for one in decisions.placements] == [other.id]
    assert not _Lookup(stale).still_lawful(decisions.placements)
    assert features_in_use().claims


def test_a_second_failure_keeps_the_place_of_the_second_attempt(user, cluster):
    attempt = gang(user)
    fail(attempt)
    run_scheduling_cycle()
    second = run(attempt.job)
    fail(second)  # no round has written the end of the first place yet
    assert outcome(attempt) == "placed"
    [claim] = load_claims(database_now())
    assert claim.id == second.id
    assert [one.outcome for one in KeptPlace.objects.order_by("since_at")] == ["placed", ""]


def test_the_retries_of_the_rule_are_counted_and_then_nothing_is_kept(user, cluster):
    attempt = gang(user, {"retries": 1})
    fail(attempt)
    run_scheduling_cycle()
    second = run(attempt.job)
    fail(second, is_cleared=False)
    assert state_of(attempt.job) == "failed"
    assert not load_claims(database_now())
    assert KeptPlace.objects.count() == 1


def test_the_api_and_the_page_say_until_when_it_is_kept(user, cluster, client):
    attempt = gang(user, {"backoff": {"seconds": 60}})
    fail(attempt)
    answer = client.get(f"/api/v1/jobs/{attempt.job_id}", headers=bearer(user)).json()["failure"]
    place = answer["kept_place"]
    assert (answer["next_step"], place["cluster"], place["nodes"]) == ("again_here", "c1", ["n0", "n1"])
    assert (place["is_kept"], place["outcome"]) == (True, None)
    assert 120 < seconds_left(datetime.fromisoformat(place["until"])) <= 180
    assert answer["next_step_text"] == (
        "The job starts again in its place, if that can be kept, retry 1 of 3, after 1 min, for 2 min at most."
    )
    client.force_login(user)
    page = client.get(f"/jobs/{attempt.job_id}/").content.decode()
    assert "Its place (2 nodes of c1) is kept for it until" in page
    passes(200)
    Job.objects.filter(id=attempt.job_id).update(retry_at=now() + timedelta(hours=1))
    small(user)
    run_scheduling_cycle()
    page = client.get(f"/jobs/{attempt.job_id}/").content.decode()
    assert "Its place was kept until" in page
    answer = client.get(f"/api/v1/jobs/{attempt.job_id}", headers=bearer(user)).json()["failure"]
    assert (answer["kept_place"]["is_kept"], answer["kept_place"]["outcome"]) == (False, "given_up")
