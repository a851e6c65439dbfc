"""What a failed attempt is diagnosed as, and what follows: every class, every step, and every interruption of both."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, transaction

from clusters.drivers import NotThere, Refused, Unreachable
from clusters.drivers.simulated import SimulatedDriver
from federation import operations
from federation.engine.lifecycle import AttemptState
from federation.models import Attempt, Diagnosis, Job, TenantFailureRules
from federation.operations import Observations, examination, record_observations
from federation.operations.consequences import Ending
from federation.operations.endings import end_attempts
from federation.queries.avoided_nodes import avoided_nodes
from federation.queries.queue import _refusals, load_queue
from foundation.clock import now
from tests.builders import actor_for, bind, make_flavor, make_node, make_tenant, stored_spec
from tests.rooms.federation.test_retries import TAKEN, failed, make_attempt, pod_of, standing

pytestmark = pytest.mark.django_db
RULE = {"name": "x", "when": {}, "then": "stop"}
NCCL = {"name": "nccl", "when": {"log": ["@nccl_timeout"]}, "class": "network", "then": "again", "retries": 2,
        "backoff": {"seconds": 30, "most_seconds": 60}}  # fmt: skip


def fail(attempt: Attempt, why: str = "PodFailurePolicy", **pod) -> None:
    seen = Observations(jobs=[failed(attempt, reason=why)], pods=[pod_of(attempt, **pod)])
    record_observations(attempt.cluster_id, seen)


def cleared(attempt: Attempt) -> None:
    """What dispatch reports when nothing of the attempt is left."""
    attempt.refresh_from_db()
    state = AttemptState.FAILED if attempt.stop_reason == "program_failed" else AttemptState.PREEMPTED
    end_attempts([Ending(attempt.id, state, attempt.stop_reason, attempt.stop_message)])


def diagnosis(attempt: Attempt) -> tuple[str, str, str]:
    found = Diagnosis.objects.get(attempt=attempt)
    return found.failure_class, found.rule, found.step


@pytest.mark.parametrize(
    ("pod", "failure_class", "text", "step"),
    [
        ({"exit_code": 7}, "program", "exit code 7", "stop"),
        ({"exit_code": 137, "ending": "OOMKilled"}, "out_of_memory", "limit 1Gi", "stop"),
        ({"exit_code": 139}, "program", "signal 11", "stop"),
        ({"exit_code": 128, "ending": "StartError"}, "image", "could not be started", "stop"),
        ({"exit_code": 127, "ending": "ContainerCannotRun"}, "image", "ContainerCannotRun", "stop"),
        ({"exit_code": 128, "ending": "Error"}, "program", "exit code 128", "stop"),
        ({"disruption": "PreemptionByScheduler"}, "preempted", "PreemptionByScheduler", "again_elsewhere"),
        ({"disruption": "DeletionByPodGC"}, "node", "DeletionByPodGC", "again_elsewhere"),
        ({"disruption": "TerminationByKubelet", "reason": "Evicted"}, "node", "Evicted", "again_elsewhere"),
        (
            {"disruption": "TerminationByKubelet", "reason": "Evicted", "message": "low on ephemeral-storage"},
            "storage",
            "ephemeral-storage",
            "again_elsewhere",
        ),
        ({"exit_code": None}, "unknown", "No pod reports", "stop"),
    ],
)
def test_each_class_has_its_text_and_its_next_step(pod: dict, failure_class: str, text: str, step: str):
    attempt = make_attempt()
    fail(attempt, **pod)
    found = Diagnosis.objects.get(attempt=attempt)
    assert (found.failure_class, found.step) == (failure_class, step)
    assert text in found.text
    assert found.next_step.startswith("The job is not retried" if step == "stop" else "The job starts again")


def test_a_job_that_reached_its_deadline_says_so():
    attempt = make_attempt(failure_rules=[{**RULE, "then": "again", "class": "program"}])
    fail(attempt, "DeadlineExceeded")
    assert diagnosis(attempt) == ("program", "Job: x", "stop")
    plain = make_attempt()
    fail(plain, "DeadlineExceeded")
    assert diagnosis(plain) == ("deadline", "Default: deadline", "stop")


def test_a_node_that_reports_a_failed_device_makes_the_job_start_again_on_another():
    attempt = make_attempt()
    Job.objects.filter(id=attempt.job_id).update(spec=stored_spec())
    make_flavor(attempt.cluster)
    make_node(attempt.cluster, "node", taints=[{"key": "gpu-xid", "value": "79", "effect": "NoSchedule"}])
    fail(attempt, exit_code=1)
    assert standing(attempt)[:2] == ("running", "program_failed")
    assert diagnosis(attempt) == ("device", "Default: device", "again_elsewhere")
    cleared(attempt)
    assert standing(attempt)[3] == "queued"
    assert "on another node, retry 1 of 2, after 10 s" in attempt.job.reason_message
    assert avoided_nodes(now(), [attempt.job_id]) == {attempt.job_id: ((attempt.cluster_id, "node"),)}
    assert load_queue(now(), 10) == ()
    [request] = load_queue(now() + timedelta(seconds=11), 10)
    assert request.constraints.avoid_nodes == ((attempt.cluster_id, "node"),)
    assert request.constraints.refusals == ()


def test_the_jobs_rules_come_before_its_tenants_and_the_nearest_tenants_before_those_above():
    attempt = make_attempt(failure_rules=[{**RULE, "when": {"exit_codes": [7]}, "text": "Seven"}])
    for path, name in (("acme", "org"), ("acme/team", "team")):
        TenantFailureRules.objects.create(tenant=make_tenant(path), rules=[{**RULE, "name": name}])
    fail(attempt, exit_code=7)
    assert diagnosis(attempt)[1] == "Job: x"
    other = make_attempt(failure_rules=[{**RULE, "when": {"exit_codes": [7]}}])
    fail(other, exit_code=8)
    assert diagnosis(other)[1] == "acme/team: team"


def test_a_rule_has_its_own_retries_and_back_off_and_then_the_job_fails():
    rule = {**RULE, "then": "again", "retries": 2, "backoff": {"seconds": 60, "most_seconds": 90}}
    attempt = make_attempt(failure_rules=[rule])
    waits = []
    for number in (1, 2):
        fail(attempt, exit_code=7)
        assert diagnosis(attempt)[2] == "again"
        assert Diagnosis.objects.get(attempt=attempt).retry == number
        cleared(attempt)
        attempt.job.refresh_from_db()
        waits.append((attempt.job.retry_at - attempt.job.reason_at).total_seconds())
        attempt = another(attempt)
    assert waits == [60, 90]
    fail(attempt, exit_code=7)
    assert standing(attempt) == ("failed", "", "program_failed", "failed")
    assert Diagnosis.objects.get(attempt=attempt).next_step == "The job is not retried: 2 of 2 retries are used."


def another(attempt: Attempt) -> Attempt:
    """The job's next attempt, running."""
    fresh = make_attempt()
    number = attempt.number + 1
    Job.objects.filter(id=attempt.job_id).update(state="running", retry_at=None)
    Attempt.objects.filter(id=fresh.id).update(job_id=attempt.job_id, number=number)
    return Attempt.objects.get(id=fresh.id)


def test_a_rule_makes_the_job_avoid_the_cluster_as_long_as_it_says():
    rule = {**RULE, "then": "again_elsewhere", "retries": 1, "avoid": {"what": "cluster", "seconds": 7200}}
    attempt = make_attempt(failure_rules=[rule])
    fail(attempt, exit_code=7)
    cleared(attempt)
    later = now() + timedelta(hours=1)
    [kept] = _refusals(later, [attempt.job_id])[attempt.job_id]
    assert (kept.cluster_id, kept.code) == (attempt.cluster_id, "avoided_by_rule")
    assert not _refusals(now() + timedelta(hours=3), [attempt.job_id])


def test_a_rule_that_says_again_keeps_an_interrupted_job_on_its_cluster():
    attempt = make_attempt(failure_rules=[{**RULE, "then": "again", "retries": 1}])
    fail(attempt, disruption=TAKEN)
    cleared(attempt)
    assert not _refusals(now(), [attempt.job_id])


# -- memory ---------------------------------------------------------------------------------------------------------


def grower(memory: str = "1Gi", most: str | None = None) -> Attempt:
    rule = {"name": "oom", "when": {"seen": ["out_of_memory"]}, "then": "more_memory", "retries": 3,
            "memory": {"factor": "2", "most": most}}  # fmt: skip
    attempt = make_attempt()
    spec = stored_spec(pod={"memory": memory}, failure_rules=[rule])
    Job.objects.filter(id=attempt.job_id).update(spec=spec)
    make_flavor(attempt.cluster)
    make_node(attempt.cluster, "node", memory_mib=64 * 1024)
    return attempt


def oom(attempt: Attempt) -> None:
    fail(attempt, exit_code=137, ending="OOMKilled")
    assert standing(attempt)[:2] == ("running", "")
    assert operations.examine_failures() == 1


def test_the_next_attempt_has_more_memory_and_its_spec_and_text_say_so():
    attempt = grower()
    oom(attempt)
    assert diagnosis(attempt) == ("out_of_memory", "Job: oom", "more_memory")
    shape = attempt.job.shape
    cleared(attempt)
    attempt.job.refresh_from_db()
    assert attempt.job.state == "queued"
    assert attempt.job.spec["pod_sets"][0]["memory"] == "2Gi"
    assert attempt.job.shape != shape
    assert "The job starts again with 2Gi of memory for main, retry 1 of 3." in attempt.job.reason_message
    [request] = load_queue(now(), 10)
    assert request.pod_sets[0].memory_mib == 2048


@pytest.mark.parametrize(
    ("memory", "most", "why"),
    [("1Gi", "1Gi", "the most that the rule allows"), ("40Gi", None, "it cannot get 80Gi of memory: ")],
)
def test_memory_that_no_rule_or_no_cluster_gives_ends_the_job_with_the_reason(memory: str, most: str | None, why: str):
    attempt = grower(memory, most)
    oom(attempt)
    assert standing(attempt)[3] == "failed"
    assert diagnosis(attempt)[2] == "stop"
    assert why in Diagnosis.objects.get(attempt=attempt).next_step


# -- logs -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def log(monkeypatch):
    """What the clusters answer when a log is read: a text, or an error."""
    answer: dict[str, Any] = {"is": "", "read": 0}

    async def read_log(self, *_, **__):
        answer["read"] += 1
        if isinstance(answer["is"], Exception):
            raise answer["is"]
        return answer["is"]

    monkeypatch.setattr(SimulatedDriver, "read_log", read_log)
    monkeypatch.setattr(
        "federation.operations.examination.clusters.queries.driver_of", lambda _: SimulatedDriver(None, "")
    )
    return answer


def reader(**changes) -> Attempt:
    return make_attempt(failure_rules=[{**NCCL, **changes}])


def test_a_log_is_read_once_and_only_if_a_rule_needs_it(log):
    log["is"] = "step 1\nWatchdog caught collective operation timeout: WorkNCCL(...)\n"
    attempt, plain = reader(), make_attempt()
    fail(attempt, exit_code=1)
    fail(plain, exit_code=1)
    assert (standing(attempt)[0], standing(plain)[0]) == ("running", "failed")
    assert operations.examine_failures() == 1
    assert operations.examine_failures() == 0
    assert log["read"] == 1
    assert diagnosis(attempt) == ("network", "Job: nccl", "again")
    assert "its log has @nccl_timeout" in Diagnosis.objects.get(attempt=attempt).text


def test_a_log_without_the_text_leaves_the_failure_to_the_other_rules(log):
    attempt = reader()
    log["is"] = "all well\n"
    fail(attempt, exit_code=1)
    operations.examine_failures()
    assert diagnosis(attempt) == ("program", "Default: program", "stop")


@pytest.mark.parametrize("error", [NotThere("pods not found", status=404), Refused("forbidden", status=403)])
def test_a_log_that_is_not_there_decides_at_once(log, error):
    attempt = reader()
    log["is"] = error
    fail(attempt, exit_code=1)
    assert operations.examine_failures() == 1
    assert diagnosis(attempt)[1] == "Default: program"


def test_a_silent_cluster_leaves_the_failure_to_the_other_rules_after_a_bound(log):
    attempt = reader()
    log["is"] = Unreachable("no route")
    fail(attempt, exit_code=1)
    assert operations.examine_failures() == 0
    assert standing(attempt)[:2] == ("running", "")
    Diagnosis.objects.update(asked_at=now() - timedelta(seconds=61))
    Attempt.objects.filter(id=attempt.id).update(state="unknown", state_before_unknown="running")
    assert operations.examine_failures() == 1
    assert standing(attempt)[3] == "failed"


def test_a_hostile_log_is_cut_and_stripped_and_costs_no_time(log):
    attempt = reader(when={"log": ["boom*bang"]})
    log["is"] = "\x1b[31m" + "boom" * 2_000_000 + "\x00\u202e" + "bang"
    fail(attempt, exit_code=1, message="\x1b]0;title\x07evil\n" * 50)
    operations.examine_failures()
    found = Diagnosis.objects.get(attempt=attempt)
    assert found.text.isprintable()
    assert len(found.text) <= 500


def test_reports_that_come_again_ask_nothing_again(log):
    attempt = reader()
    pod = pod_of(attempt, exit_code=1)
    for _ in range(3):
        record_observations(attempt.cluster_id, Observations(jobs=[failed(attempt)], pods=[pod]))
    assert Diagnosis.objects.count() == 1
    assert standing(attempt)[0] == "running"


def test_a_cancel_while_the_log_is_read_stands(log):
    attempt = reader()
    fail(attempt, exit_code=1)
    Attempt.objects.filter(id=attempt.id).update(stop_requested_at=now(), stop_reason="cancelled")
    Job.objects.filter(id=attempt.job_id).update(state="cancelling")
    assert operations.examine_failures() == 0
    assert not Diagnosis.objects.exists()
    end_attempts([Ending(attempt.id, AttemptState.CANCELLED, "cancelled")])
    assert standing(attempt)[3] == "cancelled"
    assert operations.examine_failures() == 0


def test_an_object_that_others_delete_meanwhile_ends_the_attempt_as_before(log):
    attempt = reader()
    fail(attempt, exit_code=1)
    record_observations(attempt.cluster_id, Observations(gone_jobs=[attempt.remote_objects.get().uid]))
    assert standing(attempt)[2:] == ("object_deleted", "failed")
    assert operations.examine_failures() == 0
    assert not Diagnosis.objects.exists()


def test_what_is_asked_survives_a_worker_that_dies_before_it_judges(log, monkeypatch):
    attempt = reader()
    log["is"] = "NCCL timeout"
    fail(attempt, exit_code=1)
    with monkeypatch.context() as patch:
        patch.setattr("federation.operations.examination._apply", lambda *_: 1 / 0)
        assert operations.examine_failures() == 0
    assert standing(attempt)[0] == "running"
    assert operations.examine_failures() == 1
    assert standing(attempt)[1] == "program_failed"


def test_a_failure_that_its_rules_cannot_judge_is_left_to_ours_after_a_bound(log, monkeypatch):
    attempt = grower()
    fail(attempt, exit_code=137, ending="OOMKilled")
    monkeypatch.setattr("federation.operations.examination._grown", lambda *_: 1 / 0)
    assert operations.examine_failures() == 0
    assert standing(attempt)[0] == "running"
    Diagnosis.objects.update(asked_at=now() - timedelta(minutes=6))
    assert operations.examine_failures() == 1
    assert diagnosis(attempt) == ("out_of_memory", "Default: out_of_memory", "stop")
    assert standing(attempt)[3] == "failed"


def test_failures_that_no_rule_can_judge_hold_up_no_other(log, monkeypatch):
    monkeypatch.setattr("federation.operations.examination.BATCH", 2)
    apply, broken = examination._apply, {reader().id for _ in range(2)}

    def fails_for_some(case, *rest):
        return 1 / 0 if case.attempt.id in broken else apply(case, *rest)

    monkeypatch.setattr(examination, "_apply", fails_for_some)
    for attempt in Attempt.objects.filter(id__in=broken):
        fail(attempt, exit_code=1)
    Diagnosis.objects.update(asked_at=now() - timedelta(minutes=6))
    assert operations.examine_failures() == 0
    later = reader()
    fail(later, exit_code=1)
    assert operations.examine_failures() == 1
    assert standing(later)[3] == "failed"


def test_between_the_diagnosis_and_the_queue_nothing_else_can_start():
    attempt = make_attempt(failure_rules=[{**RULE, "then": "again", "retries": 5}])
    fail(attempt, exit_code=1)
    assert operations.run_scheduling_cycle().considered == 0
    with pytest.raises(IntegrityError), transaction.atomic():
        Attempt.objects.create(
            job=attempt.job, number=2, cluster=attempt.cluster, flavor="h", namespace="n", spec_hash="h"
        )
    assert standing(attempt)[3] == "running"


def test_a_job_that_waits_for_its_retry_can_be_cancelled():
    rule = {**RULE, "then": "again", "retries": 5, "backoff": {"seconds": 3600, "most_seconds": 3600}}
    attempt = make_attempt(failure_rules=[rule])
    fail(attempt, exit_code=1)
    cleared(attempt)
    assert load_queue(now(), 10) == ()
    bind(attempt.job.created_by, "acme/team", "admin")
    operations.request_cancellation(actor_for(attempt.job.created_by), attempt.job_id)
    assert standing(attempt)[3] == "cancelled"


def test_a_cancelled_attempt_gets_no_diagnosis():
    attempt = make_attempt()
    Attempt.objects.filter(id=attempt.id).update(stop_requested_at=now(), stop_reason="cancelled")
    Job.objects.filter(id=attempt.job_id).update(state="cancelling")
    fail(attempt, exit_code=1)
    assert not Diagnosis.objects.exists()
