"""What clusters report: believed only for what they were given, in any order, any number of times."""

from dataclasses import replace
from datetime import timedelta
from typing import Literal
from unittest.mock import Mock
from uuid import uuid4

import pytest
from django.conf import settings

from clusters.drivers import JobSeen, PodSeen
from federation.models import Attempt, Job, PodRun, RemoteObject
from federation.operations import Observations, observation, record_observations, sweep
from foundation.clock import now
from tests.builders import make_cluster, make_spec, make_tenant, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def attempt() -> Attempt:
    job = Job.objects.create(
        tenant=make_tenant("acme/team"),
        created_by=make_user(),
        name="job",
        spec=make_spec(),
        shape="s",
        state="dispatching",
    )
    at = now() - timedelta(minutes=5)
    attempt = Attempt.objects.create(
        job=job, number=1, cluster=make_cluster(), flavor="h100", namespace="n", spec_hash="h", state="starting", starting_at=at,
        released_at=at, next_action_at=None,
    )  # fmt: skip
    RemoteObject.objects.create(
        attempt=attempt, cluster_id=attempt.cluster_id, position=0, name="o", uid=str(uuid4()), flavor="h100", capacity_type="on_demand", pods=1, gpu_units=1,
        cpu_millicores=1, memory_mib=1,
    )  # fmt: skip
    return attempt


def test_every_column_that_is_written_of_a_pod_has_a_value():
    row = observation._row(Mock(), Mock(), is_gone=False)
    assert {*row, "cluster_id", "observed_at"} == set(observation.SEEN_COLUMNS)


def pod_of(attempt: Attempt, **fields) -> PodSeen:
    owner = attempt.remote_objects.get().uid
    labels = {
        "switchyard.dev/install": settings.INSTALL_ID,
        "switchyard.dev/job": str(attempt.job_id),
        "switchyard.dev/attempt": str(attempt.id),
        "switchyard.dev/spec-hash": attempt.spec_hash,
    }
    started_at = (now() - timedelta(minutes=3)).replace(microsecond=0)
    pod = PodSeen(
        "n",
        "p",
        str(uuid4()),
        labels,
        "node",
        "Running",
        "",
        {},
        started_at,
        None,
        None,
        False,
        owner=owner,
        index=0,
    )
    return replace(pod, **fields)


def job_of(attempt: Attempt, outcome: Literal["", "succeeded", "failed"]) -> JobSeen:
    return JobSeen("n", "o", attempt.remote_objects.get().uid, {}, False, outcome, "", "", None, False)


def test_a_started_pod_makes_attempt_and_job_run_from_its_own_instant(attempt):
    pod = pod_of(attempt)
    record_observations(attempt.cluster_id, Observations(pods=[pod]))
    attempt.refresh_from_db()
    attempt.job.refresh_from_db()
    assert (attempt.state, attempt.started_at) == ("running", pod.started_at)
    assert (attempt.job.state, attempt.job.started_at) == ("running", pod.started_at)


def test_a_cluster_speaks_only_for_its_own_attempts(attempt):
    liar = make_cluster(name="liar")
    record_observations(liar.id, Observations(jobs=[job_of(attempt, "succeeded")], pods=[pod_of(attempt)]))
    attempt.refresh_from_db()
    assert (attempt.state, PodRun.objects.count()) == ("starting", 0)


def test_a_pod_with_our_labels_and_another_owner_counts_for_nothing(attempt):
    forged = pod_of(attempt, owner="x")
    record_observations(attempt.cluster_id, Observations(pods=[forged]))
    assert PodRun.objects.count() == 0


def test_what_comes_after_the_end_changes_nothing(attempt):
    ended = pod_of(attempt, phase="Succeeded", finished_at=now().replace(microsecond=0), exit_code=0)
    record_observations(attempt.cluster_id, Observations(jobs=[job_of(attempt, "succeeded")], pods=[ended]))
    for outcome in ("failed", "succeeded"):
        late = replace(ended, phase="Running", finished_at=None, exit_code=9)
        record_observations(
            attempt.cluster_id, Observations(jobs=[job_of(attempt, outcome)], pods=[late], gone_jobs=[late.uid])
        )
    attempt.refresh_from_db()
    attempt.job.refresh_from_db()
    pod = PodRun.objects.get()
    assert (attempt.state, attempt.job.state, attempt.job.exit_code) == ("succeeded", "succeeded", 0)
    assert (pod.phase, pod.finished_at, pod.exit_code) == ("Succeeded", ended.finished_at, 0)


def test_a_cluster_with_a_wrong_clock_cannot_bill_the_past_or_the_future(attempt):
    record_observations(attempt.cluster_id, Observations(pods=[pod_of(attempt, started_at=now() - timedelta(days=9))]))
    pod = PodRun.objects.get()
    assert abs(pod.started_at - attempt.starting_at) <= timedelta(seconds=3)
    ahead = pod_of(attempt, uid=pod.uid, phase="Failed", finished_at=now() + timedelta(hours=2), exit_code=1)
    record_observations(attempt.cluster_id, Observations(pods=[ahead]))
    pod.refresh_from_db()
    assert pod.finished_at - now() <= timedelta(seconds=3)


def test_a_job_that_is_being_cancelled_ends_cancelled_whatever_the_cluster_says(attempt):
    Job.objects.filter(id=attempt.job_id).update(state="cancelling")
    record_observations(attempt.cluster_id, Observations(jobs=[job_of(attempt, "succeeded")]))
    attempt.job.refresh_from_db()
    attempt.refresh_from_db()
    assert (attempt.job.state, attempt.state) == ("cancelled", "succeeded")


def test_an_attempt_that_was_never_released_is_placed_anew_when_its_cluster_is_lost(attempt, settings):
    settings.CLUSTER_LOST_SECONDS = 1
    Attempt.objects.filter(id=attempt.id).update(state="reserved", starting_at=None, released_at=None)
    cluster = attempt.cluster
    type(cluster).objects.filter(id=cluster.id).update(health="unreachable", silent_since=now() - timedelta(seconds=9))
    sweep()
    attempt.refresh_from_db()
    attempt.job.refresh_from_db()
    assert (attempt.state, attempt.end_reason, attempt.job.state) == ("abandoned", "cluster_lost", "queued")
