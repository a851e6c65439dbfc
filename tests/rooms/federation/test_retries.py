"""What follows when a Job fails: an end, or another attempt once the cluster has confirmed that nothing is left of this one."""

from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

import pytest
from django.conf import settings

from clusters.drivers import JobSeen, PodSeen
from federation.engine.lifecycle import AttemptState
from federation.models import Attempt, Job, JobEvent, RemoteObject
from federation.operations import Observations, record_observations
from federation.operations.consequences import Ending
from federation.operations.endings import end_attempts
from federation.queries.queue import _refusals
from foundation.clock import now
from tests.builders import make_cluster, make_spec, make_tenant, make_user

pytestmark = pytest.mark.django_db
TAKEN = "EvictionByEvictionAPI"


def make_attempt(objects: int = 1, **spec) -> Attempt:
    job = Job.objects.create(
        tenant=make_tenant("acme/team"), created_by=make_user(), name="job", spec={**make_spec(), **spec}, shape="s",
        state="running", attempts_made=1,
    )  # fmt: skip
    at = now() - timedelta(minutes=5)
    attempt = Attempt.objects.create(
        job=job, number=1, cluster=make_cluster(), flavor="h100", namespace="n", spec_hash="h", state="running",
        starting_at=at, released_at=at, next_action_at=None,
    )  # fmt: skip
    for position in range(objects):
        RemoteObject.objects.create(
            attempt=attempt, cluster_id=attempt.cluster_id, position=position, name=f"o{position}", uid=str(uuid4()),
            flavor="h100", capacity_type="on_demand", pods=1, gpu_units=1, cpu_millicores=1, memory_mib=1,
        )  # fmt: skip
    return attempt


def pod_of(attempt: Attempt, position: int = 0, **fields) -> PodSeen:
    labels = {
        "switchyard.dev/install": settings.INSTALL_ID, "switchyard.dev/job": str(attempt.job_id),
        "switchyard.dev/attempt": str(attempt.id), "switchyard.dev/spec-hash": attempt.spec_hash,
    }  # fmt: skip
    ended_at = (now() - timedelta(minutes=1)).replace(microsecond=0)
    pod = PodSeen(
        "n", f"p{position}", str(uuid4()), labels, "node", "Failed", "", {}, ended_at - timedelta(minutes=2), ended_at,
        143, False, owner=attempt.remote_objects.get(position=position).uid, index=0,
    )  # fmt: skip
    return replace(pod, **fields)


def failed(attempt: Attempt, message: str = "", reason: str = "PodFailurePolicy", position: int = 0) -> JobSeen:
    one = attempt.remote_objects.get(position=position)
    return JobSeen("n", one.name, one.uid, {}, False, "failed", reason, message, None, False)


def standing(attempt: Attempt) -> tuple[str, str, str, str]:
    attempt.refresh_from_db()
    attempt.job.refresh_from_db()
    return attempt.state, attempt.stop_reason, attempt.end_reason, attempt.job.state


def test_an_interrupted_attempt_is_cleared_away_before_anything_else_and_tells_why():
    attempt = make_attempt()
    seen = Observations(jobs=[failed(attempt)], pods=[pod_of(attempt, disruption=TAKEN)])
    for _ in range(3):
        record_observations(attempt.cluster_id, seen)
    assert standing(attempt) == ("running", "preempted", "", "running")
    assert attempt.next_action_at is not None
    assert attempt.job.reason_code == "interrupted"
    assert TAKEN in attempt.stop_message
    assert JobEvent.objects.filter(kind="interrupted").count() == 1
    gone = Observations(gone_jobs=[attempt.remote_objects.get().uid])
    Attempt.objects.update(next_action_at=None)
    record_observations(attempt.cluster_id, gone)
    # Somebody else may have deleted it, so that its pods still run: dispatch asks for them before the job waits again.
    assert standing(attempt) == ("running", "preempted", "", "running")
    attempt.refresh_from_db()
    assert attempt.next_action_at is not None
    end_attempts([Ending(attempt.id, AttemptState.PREEMPTED, "preempted", attempt.stop_message)])
    assert standing(attempt) == ("preempted", "preempted", "preempted", "queued")
    assert [kept.code for kept in _refusals(now(), [attempt.job_id])[attempt.job_id]] == ["lately_interrupted"]


def test_the_other_pod_sets_of_an_interrupted_gang_are_cleared_away_too():
    attempt = make_attempt(objects=2)
    pods = [pod_of(attempt, 0, disruption=TAKEN), pod_of(attempt, 1, exit_code=1)]
    record_observations(attempt.cluster_id, Observations(jobs=[failed(attempt)], pods=pods))
    record_observations(attempt.cluster_id, Observations(gone_jobs=[attempt.remote_objects.get(position=0).uid]))
    assert standing(attempt) == ("running", "preempted", "", "running")


def test_a_pod_that_was_gone_before_anybody_saw_it_taken_is_told_by_its_job():
    attempt = make_attempt()
    words = "Pod n/p has condition DisruptionTarget matching FailJob rule at index 0"
    record_observations(attempt.cluster_id, Observations(jobs=[failed(attempt, words)]))
    assert standing(attempt)[:2] == ("running", "infrastructure")


@pytest.mark.parametrize(
    ("spec", "pod", "reason", "end"),
    [
        ({"retries": {"preempted": 0}}, {"disruption": TAKEN}, "PodFailurePolicy", "preempted"),
        ({}, {"exit_code": 7}, "PodFailurePolicy", "program_failed"),
        ({"retries": {"program": 3}}, {"exit_code": 143}, "DeadlineExceeded", "program_failed"),
    ],
)
def test_an_attempt_ends_its_job_where_no_other_is_allowed(spec: dict, pod: dict, reason: str, end: str):
    attempt = make_attempt(**spec)
    seen = Observations(jobs=[failed(attempt, reason=reason)], pods=[pod_of(attempt, **pod)])
    record_observations(attempt.cluster_id, seen)
    assert standing(attempt) == ("failed", "", end, "failed")


def test_a_pod_that_another_of_its_index_followed_is_not_what_failed():
    """Kueue suspended the Job, so its first pod ended with 143, and resumed it. The Job fails only when the second one does."""
    attempt = make_attempt(failure_rules=[{"name": "x", "when": {"exit_codes": [143]}, "then": "again"}])
    reclaimed = pod_of(attempt)
    follower = pod_of(attempt, started_at=reclaimed.finished_at, finished_at=now().replace(microsecond=0), exit_code=7)
    record_observations(attempt.cluster_id, Observations(pods=[reclaimed]))
    record_observations(attempt.cluster_id, Observations(jobs=[failed(attempt)], pods=[follower]))
    assert standing(attempt) == ("failed", "", "program_failed", "failed")
    assert (attempt.job.exit_code, attempt.diagnosis.own_class) == (7, "program")
    assert "exit code 7" in attempt.diagnosis.text


def test_the_end_of_the_only_pod_counts_whatever_it_is_and_so_does_that_of_another_index():
    attempt = make_attempt(objects=2)
    first, other = pod_of(attempt, 0), pod_of(attempt, 1, exit_code=7)
    later = replace(other, started_at=first.finished_at, finished_at=now().replace(microsecond=0))
    record_observations(attempt.cluster_id, Observations(jobs=[failed(attempt)], pods=[first, later]))
    assert standing(attempt)[2:] == ("program_failed", "failed")
    assert attempt.job.exit_code == 143


def test_retries_are_counted_by_cause():
    attempt = make_attempt(retries={"preempted": 1, "program": 1})
    for number, reason in ((2, "preempted"), (3, "program_failed")):
        Attempt.objects.create(
            job=attempt.job, number=number, cluster=attempt.cluster, flavor="h100", namespace="n", spec_hash="h",
            state="preempted", finished_at=now(), end_reason=reason,
        )  # fmt: skip
    record_observations(
        attempt.cluster_id, Observations(jobs=[failed(attempt)], pods=[pod_of(attempt, disruption=TAKEN)])
    )
    assert standing(attempt) == ("failed", "", "preempted", "failed")


def test_a_cancel_that_came_first_stands():
    attempt = make_attempt()
    Attempt.objects.filter(id=attempt.id).update(stop_requested_at=now(), stop_reason="cancelled")
    Job.objects.filter(id=attempt.job_id).update(state="cancelling")
    seen = Observations(jobs=[failed(attempt)], pods=[pod_of(attempt, disruption=TAKEN)])
    record_observations(attempt.cluster_id, seen)
    assert standing(attempt) == ("failed", "cancelled", "preempted", "cancelled")
