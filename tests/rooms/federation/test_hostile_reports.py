"""What a cluster says is bounded by what we asked: pods count for the object that they are of, in its places, in its time."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.conf import settings

from billing.models import Meter, UsageSegment
from clusters.drivers import JobSeen, PodSeen
from clusters.models import ClusterEvent
from federation.models import Attempt, Job, PodRun, RemoteObject
from federation.operations import Observations, accrue_running, observation, record_observations, settle_attempts
from federation.operations.figures import REFUSED_REPORTS
from foundation.clock import now
from tests.builders import make_cluster, make_spec, make_tenant, make_user, redate

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)


def make_attempt(cluster=None, *, pods=1, completions=None, hours=2.0, path="acme/team", **fields) -> Attempt:
    """A released attempt whose only object runs so many pods of two GPUs."""
    at = now() - timedelta(hours=hours)
    job = Job.objects.create(
        tenant=make_tenant(path), created_by=make_user(), name="job", spec=make_spec(completions=completions), shape="s",
        state="running", started_at=at,
    )  # fmt: skip
    fields = {"state": "starting", "starting_at": at, "released_at": at} | fields
    attempt = Attempt.objects.create(
        job=job, number=1, cluster=cluster or make_cluster(), flavor="h100", namespace="swy-team-1", spec_hash="h",
        next_action_at=None, **fields,
    )  # fmt: skip
    RemoteObject.objects.create(
        attempt=attempt, cluster_id=attempt.cluster_id, position=0, name="swy-o", uid=str(uuid4()), flavor="h100",
        capacity_type="on_demand", pods=pods, completions=completions, gpu_units=2, cpu_millicores=1000, memory_mib=1024,
    )  # fmt: skip
    return attempt


def pod_of(attempt: Attempt, index: int | None = 0, **given) -> PodSeen:
    remote = attempt.remote_objects.get()
    labels = {
        "switchyard.dev/install": settings.INSTALL_ID,
        "switchyard.dev/job": str(attempt.job_id),
        "switchyard.dev/attempt": str(attempt.id),
        "switchyard.dev/spec-hash": attempt.spec_hash,
        "batch.kubernetes.io/controller-uid": remote.uid,
    }
    started_at = ((attempt.released_at or now()) + timedelta(minutes=1)).replace(microsecond=0)
    said: dict[str, Any] = {"owner": remote.uid, "index": index, "started_at": started_at} | given
    pod = PodSeen(
        "swy-team-1",
        f"swy-o-{abs(index or 0)}",
        str(uuid4()),
        labels,
        "node-1",
        "Running",
        "",
        {},
        None,
        None,
        None,
        False,
    )
    return replace(pod, **said)


def report(cluster, *pods: PodSeen, **more) -> None:
    record_observations(cluster.id, Observations(pods=pods, **more))


def told(cluster) -> dict[str, int]:
    """The security events of a cluster: how many of each fault."""
    kinds = ClusterEvent.objects.filter(cluster=cluster, kind__startswith="security.").values_list("kind", flat=True)
    return {kind.removeprefix("security."): list(kinds).count(kind) for kind in kinds}


def metered(attempt: Attempt) -> float:
    """GPU hours in the books."""
    attempt.refresh_from_db()
    segments = UsageSegment.objects.filter(meter__run_id=attempt.id).values_list("gpu_milliseconds", flat=True)
    return sum(segments) / 3_600_000


def end(attempt: Attempt) -> None:
    outcome = JobSeen("swy-team-1", "swy-o", attempt.remote_objects.get().uid, {}, False, "failed", "", "", None, False)
    record_observations(attempt.cluster_id, Observations(jobs=[outcome]))
    redate(Attempt.objects.filter(id=attempt.id), finished_at=now() - HOUR)
    settle_attempts()


def test_a_cluster_that_reports_anothers_pod_uid_ends_nothing_in_its_books():
    honest = make_attempt()
    pod = pod_of(honest)
    report(honest.cluster, pod)
    hostile = make_attempt()
    ended = pod_of(hostile, uid=pod.uid, phase="Failed", finished_at=now(), exit_code=1)
    report(hostile.cluster, ended, replace(pod, finished_at=now()), gone_pods=[pod.uid])
    mine = PodRun.objects.get(attempt=honest)
    assert (mine.phase, mine.finished_at, mine.is_gone, mine.observed_at < now()) == ("Running", None, False, True)
    assert PodRun.objects.get(attempt=hostile).uid == pod.uid
    assert told(hostile.cluster) == {"unknown_owner": 1}
    report(honest.cluster, replace(pod, phase="Succeeded", finished_at=now().replace(microsecond=0), exit_code=0))
    mine.refresh_from_db()
    assert mine.phase == "Succeeded"


def test_fifty_pods_for_one_are_billed_as_one():
    attempt = make_attempt()
    report(attempt.cluster, *(pod_of(attempt) for _ in range(25)))
    for _ in range(25):
        report(attempt.cluster, pod_of(attempt))
    accrue_running()
    assert PodRun.objects.count() == Meter.objects.count() == 1
    end(attempt)
    assert metered(attempt) <= 2 * 2.1
    assert told(attempt.cluster) == {"place_taken": 1}


def test_a_gang_is_billed_for_the_pods_it_asked_for_and_no_others():
    attempt = make_attempt(pods=4)
    pods = [pod_of(attempt, index) for index in (0, 1, 2, 3, 3, 4, 50, -1, None, 10**12)]
    report(attempt.cluster, *pods)
    assert sorted(PodRun.objects.values_list("index", "place")) == [(n, n) for n in range(4)]
    assert told(attempt.cluster) == {"place_taken": 1, "no_such_index": 1}


def test_no_more_pods_run_at_once_than_the_job_lets():
    attempt = make_attempt(pods=2, completions=10)
    pods = [pod_of(attempt, index) for index in range(10)]
    report(attempt.cluster, *pods[:2])
    report(attempt.cluster, *pods)
    assert sorted(PodRun.objects.values_list("place", flat=True)) == [0, 1]
    first, second = PodRun.objects.order_by("index")
    over = next(pod for pod in pods if pod.uid == first.uid)
    report(attempt.cluster, replace(over, phase="Succeeded", finished_at=now(), exit_code=0), pods[5], pods[6])
    assert sorted(PodRun.objects.exclude(id=first.id).values_list("place", flat=True)) == [0, 1]
    assert PodRun.objects.filter(index__gt=1).get().place == first.place
    assert second.place != first.place


def test_a_pod_that_replaces_another_counts_from_when_that_one_was_seen_to_be_over():
    attempt = make_attempt()
    old, new = pod_of(attempt), pod_of(attempt)
    report(attempt.cluster, old)
    accrue_running()
    # it says that the old one ended as it began, and that the new one runs since
    at = now()
    report(attempt.cluster, replace(old, phase="Failed", finished_at=old.started_at, exit_code=1), new)
    rows = {row.uid: row for row in PodRun.objects.all()}
    assert set(rows) == {old.uid, new.uid}
    assert rows[new.uid].started_at >= at
    end(attempt)
    assert metered(attempt) <= 2 * 2.1
    first, second = Meter.objects.order_by("metered_from")
    assert first.metered_until <= second.metered_from


def test_a_deleted_pod_and_its_successor_in_one_report_are_both_known():
    attempt = make_attempt()
    old, new = pod_of(attempt), pod_of(attempt)
    report(attempt.cluster, old)
    report(attempt.cluster, old, new, gone_pods=[old.uid])
    assert PodRun.objects.get(uid=old.uid).is_gone
    assert PodRun.objects.get(uid=new.uid).finished_at is None
    assert told(attempt.cluster) == {}


def test_a_pod_that_is_gone_does_not_come_back_and_does_not_run_on():
    attempt = make_attempt()
    pod = pod_of(attempt)
    report(attempt.cluster, pod, gone_pods=[pod.uid])
    gone = PodRun.objects.get()
    report(attempt.cluster, replace(pod, phase="Unknown", reason="again"))
    report(attempt.cluster, replace(pod, phase="Failed", finished_at=now() + HOUR))
    after = PodRun.objects.get()
    assert (after.is_gone, after.observed_at) == (True, gone.observed_at)
    assert after.finished_at <= gone.observed_at


def test_an_endless_row_of_pods_for_one_index_ends(monkeypatch):
    monkeypatch.setattr("federation.engine.sightings.MOST_RUNS", 5)
    attempt = make_attempt()
    for _ in range(9):
        report(attempt.cluster, pod_of(attempt, phase="Failed", finished_at=now(), exit_code=1))
    assert PodRun.objects.count() == 5
    assert told(attempt.cluster) == {"too_many_runs": 1}


@pytest.mark.parametrize(
    ("lie", "fault"),
    [
        ({"namespace": "swy-team-2"}, "wrong_namespace"),
        ({"namespace": "default"}, "wrong_namespace"),
        ({"owner": ""}, "unknown_owner"),
        ({"owner": str(uuid4())}, "unknown_owner"),
        ({"owner": "x\0"}, "unknown_owner"),
        ({"labels": {"switchyard.dev/install": "switchyard"}}, "wrong_labels"),
        ({"index": None}, "no_such_index"),
        ({"index": 1}, "no_such_index"),
        ({"uid": ""}, "malformed"),
        ({"uid": "u" * 65}, "malformed"),
        ({"uid": "a\0b"}, "malformed"),
        ({"uid": "\ud800"}, "malformed"),
        ({"name": "\u202egnp"}, "malformed"),
        ({"name": "n" * 254}, "malformed"),
        ({"node": "x" * 100_000}, "malformed"),
        ({"node": "a\0"}, "malformed"),
    ],
)
def test_a_pod_that_is_not_what_we_asked_for_counts_for_nothing(lie, fault):
    attempt = make_attempt()
    before = REFUSED_REPORTS.labels(str(attempt.cluster_id), fault)._value.get()
    report(attempt.cluster, pod_of(attempt, **lie), gone_pods=["\0", "\ud800", "u" * 10_000], gone_jobs=["\0"])
    attempt.refresh_from_db()
    assert (PodRun.objects.count(), attempt.state) == (0, "starting")
    assert told(attempt.cluster) == {fault: 1}
    assert REFUSED_REPORTS.labels(str(attempt.cluster_id), fault)._value.get() == before + 1


@pytest.mark.parametrize("label", ["install", "job", "attempt", "spec-hash"])
def test_every_label_has_to_agree(label):
    attempt = make_attempt()
    pod = pod_of(attempt)
    for wrong in ({**pod.labels, f"switchyard.dev/{label}": str(uuid4())}, {}):
        report(attempt.cluster, replace(pod, labels=wrong))
    assert PodRun.objects.count() == 0
    assert told(attempt.cluster) == {"wrong_labels": 1}


def test_words_of_any_kind_are_kept_as_one_harmless_line():
    attempt = make_attempt()
    report(attempt.cluster, pod_of(attempt, phase="\0" * 100, reason="a\0\ud800\u202e\n" * 100_000, exit_code=10**30))
    row = PodRun.objects.get()
    assert (row.phase, row.exit_code) == ("Unknown", None)
    assert row.reason.isprintable()
    assert len(row.reason) <= 300


def test_a_pod_stays_the_pod_it_was_first_seen_as():
    attempt, other = make_attempt(pods=2), make_attempt()
    pod = pod_of(attempt)
    report(attempt.cluster, pod)
    first = PodRun.objects.values().get()
    mine = attempt.remote_objects.get()
    lies: list[dict[str, Any]] = [
        {"index": 1},
        {"namespace": "swy-team-2"},
        {"owner": other.remote_objects.get().uid},
        {"labels": {}},
        {"started_at": pod.started_at - HOUR},
        {"started_at": pod.started_at + HOUR},
        {"started_at": None},
    ]
    for lie in lies:
        report(attempt.cluster, replace(pod, **lie))
    told_anew = {"observed_at": None, "is_estimated": None}
    assert PodRun.objects.values().get() | told_anew == first | told_anew
    assert RemoteObject.objects.get(id=mine.id).outcome == ""


@pytest.mark.parametrize(
    ("started_at", "finished_at"),
    [
        (datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)),
        (datetime(9999, 12, 31, tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC)),
        (datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)),
    ],
)
def test_instants_are_clamped_to_our_own_and_marked_as_estimated(started_at, finished_at):
    attempt = make_attempt()
    report(attempt.cluster, pod_of(attempt, started_at=started_at, finished_at=finished_at, phase="Failed"))
    row = PodRun.objects.get()
    slack = timedelta(seconds=3)
    assert attempt.starting_at - slack <= row.started_at <= row.finished_at <= now() + slack
    assert row.is_estimated
    end(attempt)
    assert metered(attempt) <= 2 * 2.1
    assert set(UsageSegment.objects.values_list("is_estimated", flat=True)) <= {True}


def test_an_honest_pod_is_not_called_estimated():
    attempt = make_attempt()
    pod = pod_of(attempt)
    report(attempt.cluster, replace(pod, phase="Succeeded", finished_at=pod.started_at + HOUR, exit_code=0))
    end(attempt)
    assert metered(attempt) == 2
    assert set(UsageSegment.objects.values_list("is_estimated", flat=True)) == {False}


def test_what_a_cluster_says_that_our_pods_ask_for_decides_nothing():
    attempt = make_attempt()
    report(attempt.cluster, pod_of(attempt, requests={"nvidia.com/gpu": "1000000000000", "cpu": "1e15"}))
    accrue_running()
    assert Meter.objects.values_list("gpu_units", "cpu_millicores", "memory_mib").get() == (2, 1000, 1024)


def test_a_pod_of_a_job_that_we_did_not_release_counts_for_nothing():
    attempt = make_attempt(starting_at=None, released_at=None, state="created")
    report(attempt.cluster, pod_of(attempt, started_at=now()))
    assert PodRun.objects.count() == 0
    assert told(attempt.cluster) == {"not_released": 1}


def test_a_pod_that_is_over_and_appears_long_after_settlement_is_not_billed():
    attempt = make_attempt()
    end(attempt)
    assert Attempt.objects.filter(settled_at__isnull=False).update(settled_at=now() - 8 * 24 * HOUR) == 1
    report(attempt.cluster, pod_of(attempt, finished_at=now()))
    settle_attempts()
    assert (PodRun.objects.count(), metered(attempt)) == (0, 0)
    assert told(attempt.cluster) == {"too_late": 1}


@pytest.mark.parametrize("lie", [{"namespace": "kube-system"}, {"name": "other"}])
def test_a_job_ends_only_under_its_own_name_in_its_own_namespace(lie):
    attempt = make_attempt()
    job = JobSeen("swy-team-1", "swy-o", attempt.remote_objects.get().uid, {}, False, "succeeded", "", "", None, False)
    record_observations(attempt.cluster_id, Observations(jobs=[replace(job, **lie)]))
    attempt.refresh_from_db()
    assert attempt.state == "starting"
    assert told(attempt.cluster) == {"wrong_job": 1}


def test_lies_are_told_once_an_hour_however_many_there_are():
    attempt = make_attempt()
    for _ in range(20):
        report(attempt.cluster, *(pod_of(attempt, owner=str(uuid4())) for _ in range(20)))
    assert told(attempt.cluster) == {"unknown_owner": 1}
    attempt.cluster.events.update(at=now() - HOUR * 2)
    report(attempt.cluster, pod_of(attempt, owner=str(uuid4())))
    assert told(attempt.cluster) == {"unknown_owner": 2}


def test_a_place_that_somebody_else_gave_away_meanwhile_is_seen_on_the_second_look(monkeypatch):
    attempt = make_attempt()
    winner, late = pod_of(attempt), pod_of(attempt)
    report(attempt.cluster, winner)
    knows = observation._known_runs
    looks = iter([False])
    monkeypatch.setattr(observation, "_known_runs", lambda pods: knows(pods) if next(looks, True) else {})
    report(attempt.cluster, late)
    assert PodRun.objects.get().uid == winner.uid
    assert told(attempt.cluster) == {"place_taken": 1}
