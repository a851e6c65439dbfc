"""A report that comes after usage was assumed corrects it, both ways; what was seen to run, or reported before, stands."""

from dataclasses import replace
from datetime import timedelta

import pytest

from billing.models import Meter, MeterRevision, UsageSegment
from clusters.drivers import JobSeen
from federation.models import Attempt, JobEvent, PodRun
from federation.operations import Observations, accrue_running, record_observations, settle_attempts
from federation.queries.proof import disagreements
from foundation.clock import now
from tests.builders import redate

from .test_hostile_reports import HOUR, end, make_attempt, metered, pod_of, report
from .test_settlement import held, settle_now, standing

pytestmark = pytest.mark.django_db
MINUTE = timedelta(minutes=1)


def ended(pod, minutes, **more):
    """The pod, which ran for so many minutes by its cluster's report."""
    return replace(pod, phase="Succeeded", finished_at=pod.started_at + minutes * MINUTE, exit_code=0, **more)


def hours(minutes):
    """GPU-hours of the two GPUs."""
    return pytest.approx(2 * minutes / 60, abs=0.001)


def gone_unseen(**more):
    """A settled attempt whose pod was deleted before an end was seen: it counts until then, an hour and 59 minutes."""
    attempt = held(make_attempt(**more))
    pod = pod_of(attempt)
    report(attempt.cluster, pod)
    record_observations(attempt.cluster_id, Observations(gone_pods=[pod.uid]))
    end(attempt)
    assert standing(attempt) == (True, "posted")
    assert metered(attempt) == pytest.approx(2 * 119 / 60, abs=0.02)
    return attempt, pod


def corrections(attempt):
    return JobEvent.objects.filter(attempt=attempt, kind="corrected").count()


def test_an_end_that_is_reported_after_settlement_takes_back_what_was_assumed():
    attempt, pod = gone_unseen()
    report(attempt.cluster, ended(pod, 30))
    assert (standing(attempt), metered(attempt)) == ((True, "posted"), hours(30))
    assert corrections(attempt) == 1
    for minutes in (30, 20, 90, 1000, -5):
        report(attempt.cluster, ended(pod, minutes))
    report(attempt.cluster, pod)
    record_observations(attempt.cluster_id, Observations(gone_pods=[pod.uid], vanished_pods=[pod.uid]))
    settle_now()
    assert (metered(attempt), corrections(attempt)) == (hours(30), 1)
    assert not disagreements()


def test_an_end_before_the_start_is_no_truth():
    attempt, pod = gone_unseen()
    report(attempt.cluster, ended(pod, -500))
    assert metered(attempt) == pytest.approx(2 * 119 / 60, abs=0.02)
    assert not MeterRevision.objects.exists()
    assert not disagreements()


def test_what_was_seen_to_run_stands():
    attempt = held(make_attempt())
    pod = pod_of(attempt)
    report(attempt.cluster, pod)
    PodRun.objects.update(observed_at=pod.started_at + 60 * MINUTE)
    record_observations(attempt.cluster_id, Observations(gone_pods=[pod.uid], vanished_pods=[pod.uid]))
    end(attempt)
    report(attempt.cluster, ended(pod, 30))
    assert metered(attempt) == hours(59), "a minute of tolerance for clocks"
    assert not disagreements()


def test_the_end_of_a_pod_takes_back_what_was_metered_ahead():
    attempt = held(make_attempt())
    pod = pod_of(attempt)
    report(attempt.cluster, pod)
    PodRun.objects.update(observed_at=pod.started_at)
    accrue_running()
    Attempt.objects.update(state="running")
    accrue_running()
    assert metered(attempt) > 3.5
    report(attempt.cluster, ended(pod, 45))
    end(attempt)
    assert (standing(attempt), metered(attempt)) == ((True, "posted"), hours(45))
    assert corrections(attempt) == 1
    assert not disagreements()


def test_a_pod_that_disappeared_ran_longer_than_its_cluster_had_shown(monkeypatch):
    """It was settled by its last sighting because the cluster did not answer, is missing in the next list, and is shown as ended."""
    attempt = held(make_attempt())
    pod = pod_of(attempt)
    report(attempt.cluster, pod)
    PodRun.objects.update(observed_at=pod.started_at + 20 * MINUTE)
    failed = JobSeen("swy-team-1", "swy-o", attempt.remote_objects.get().uid, {}, False, "failed", "", "", None, False)
    record_observations(attempt.cluster_id, Observations(jobs=[failed]))
    redate(Attempt.objects.filter(id=attempt.id), finished_at=now() - HOUR)
    monkeypatch.setattr("federation.operations.settlement.look_at_pods", lambda _: [])
    settle_attempts()
    assert (standing(attempt), metered(attempt)) == ((True, "posted"), hours(20))
    record_observations(attempt.cluster_id, Observations(gone_pods=[pod.uid], vanished_pods=[pod.uid]))
    report(attempt.cluster, ended(pod, 50))
    settle_now()
    assert (standing(attempt), metered(attempt)) == ((True, "posted"), hours(50))
    assert {meter.is_closed for meter in Meter.objects.all()} == {True}
    assert not disagreements()


def counted(attempt, minutes):
    """The Job ended so long after the release, with one pod."""
    remote = attempt.remote_objects.get()
    began_at = attempt.released_at.replace(microsecond=0)
    job = JobSeen(
        "swy-team-1", remote.name, remote.uid, {}, False, "failed", "", "", began_at + minutes * MINUTE, False, began_at, 1
    )  # fmt: skip
    record_observations(attempt.cluster_id, Observations(jobs=[job]))
    redate(Attempt.objects.filter(id=attempt.id), finished_at=now() - HOUR)
    settle_attempts()


def test_a_pod_that_was_never_seen_is_shown_after_all(monkeypatch):
    monkeypatch.setattr("federation.operations.settlement.look_at_pods", lambda _: [])
    attempt = held(make_attempt())
    counted(attempt, 60)
    assert metered(attempt) == pytest.approx(2, abs=0.02)
    pod = pod_of(attempt)
    for _ in range(2):
        report(attempt.cluster, ended(pod, 30))
        assert metered(attempt) == pytest.approx(2 * 31 / 60, abs=0.02), "from its Job's start, a minute before"
        settle_now()
    report(attempt.cluster, ended(pod, 10), ended(replace(pod, uid="another"), 5))
    settle_now()
    assert metered(attempt) == pytest.approx(2 * 31 / 60, abs=0.02)
    assert not disagreements()


def test_of_several_pods_of_an_index_the_last_one_says_when_the_run_ended(monkeypatch):
    monkeypatch.setattr("federation.operations.settlement.look_at_pods", lambda _: [])
    attempt = held(make_attempt())
    counted(attempt, 60)
    pod = pod_of(attempt)
    report(attempt.cluster, ended(replace(pod, uid="second"), 30), ended(pod, 5))
    settle_now()
    assert metered(attempt) == pytest.approx(2 * 31 / 60, abs=0.02)
    assert not disagreements()


def test_a_pod_that_was_seen_to_wait_only_is_shown_after_all(monkeypatch):
    monkeypatch.setattr("federation.operations.settlement.look_at_pods", lambda _: [])
    attempt = held(make_attempt())
    pod = pod_of(attempt)
    waiting = replace(pod, phase="Pending", started_at=None)
    report(attempt.cluster, waiting)
    record_observations(attempt.cluster_id, Observations(gone_pods=[pod.uid], vanished_pods=[pod.uid]))
    PodRun.objects.update(last_seen_at=attempt.released_at)
    counted(attempt, 60)
    assert metered(attempt) == pytest.approx(2 * 10 / 60, abs=0.02), "ten minutes at most, up to the Job's end"
    report(attempt.cluster, ended(replace(pod, started_at=pod.started_at + 50 * MINUTE), 4))
    settle_now()
    assert metered(attempt) == pytest.approx(2 * 5 / 60, abs=0.03)
    assert not disagreements()


def test_a_stranger_and_a_pod_with_a_fault_correct_nothing():
    attempt, pod = gone_unseen()
    other = make_attempt()
    report(other.cluster, ended(pod, 30))
    report(attempt.cluster, ended(pod, 30, index=7), ended(pod, 30, labels={}), ended(pod, 30, namespace="default"))
    before = metered(attempt)
    assert before == pytest.approx(2 * 119 / 60, abs=0.02)
    assert set(UsageSegment.objects.values_list("meter__run_id", flat=True)) == {attempt.id}
