"""Pods that ran while no observer watched: billed as their Job reports them, called an estimate, and never more than asked."""

import time
from dataclasses import replace
from datetime import timedelta
from unittest.mock import Mock

import pytest
from django.conf import settings

from billing.models import UsageSegment
from clusters.drivers import JobSeen, Unreachable, WatchEvent
from clusters.drivers.simulated import SimulatedDriver, life, path_of
from clusters.drivers.simulated.store import Store
from federation import operations
from federation.models import Attempt, Job, JobEvent, PodRun
from federation.observer.buffer import Buffer
from federation.operations import Observations, record_observations, unseen
from foundation.clock import now
from tests.live import place
from tests.rooms.federation.test_hostile_reports import make_attempt, metered, pod_of, report
from tests.rooms.federation.test_settlement import Member, held, members, settle_now, standing

pytestmark = pytest.mark.django_db(transaction=True)
assert members  # a fixture


def test_every_column_that_is_written_of_an_unseen_pod_has_a_value():
    row = unseen._row(Mock(), Mock(index=0))
    assert {*row, *unseen.UNSEEN} == set(unseen.UNSEEN_COLUMNS)


def counted(attempt, *, outcome="failed", pods=1, minutes=30):
    """The cluster says that the Job ended so many minutes after its release, and how many of its pods had ended."""
    remote = attempt.remote_objects.get()
    began_at = attempt.released_at.replace(microsecond=0)
    seen = JobSeen(
        attempt.namespace, remote.name, remote.uid, {}, False, outcome, "", "", began_at + timedelta(minutes=minutes), False,
        began_at, pods,
    )  # fmt: skip
    record_observations(attempt.cluster_id, Observations(jobs=[seen]))


@pytest.mark.parametrize("outcome", ["failed", "succeeded"])
def test_a_pod_that_ran_and_was_deleted_while_nobody_watched_is_billed_as_its_job_tells_and_called_an_estimate(
    members, outcome
):
    attempt = held(make_attempt())
    members[attempt.cluster_id] = Member(attempt.cluster.identity)
    counted(attempt, outcome=outcome)
    settle_now()
    assert standing(attempt) == (True, "posted")
    assert metered(attempt) == pytest.approx(2 * 0.5)
    assert set(UsageSegment.objects.values_list("is_estimated", flat=True)) == {True}
    assert attempt.started_at is not None
    assert "1 of its pods" in JobEvent.objects.get(attempt=attempt, kind="estimated").message


def test_a_pod_that_was_seen_waiting_and_vanished_from_a_list_is_billed_as_its_job_tells(members):
    attempt = held(make_attempt())
    members[attempt.cluster_id] = Member(attempt.cluster.identity)
    report(attempt.cluster, pod_of(attempt, phase="Pending", started_at=None))
    PodRun.objects.update(observed_at=attempt.released_at + timedelta(minutes=1))
    counted(attempt, minutes=6)
    settle_now()
    assert standing(attempt) == (True, "posted")
    assert metered(attempt) == pytest.approx(2 * 5 / 60, abs=0.002)


def test_the_late_end_of_a_pod_that_never_began_and_is_gone_begins_no_run(members):
    """It was evicted while it waited. Clusters report times in whole seconds, so its end may precede our last sight of it."""
    attempt = held(make_attempt())
    members[attempt.cluster_id] = Member(attempt.cluster.identity)
    waiting = pod_of(attempt, phase="Pending", started_at=None)
    report(attempt.cluster, waiting, gone_pods=[waiting.uid])
    ended = replace(waiting, phase="Failed", finished_at=now() - timedelta(seconds=1))
    report(attempt.cluster, ended, gone_pods=[waiting.uid])
    pod = PodRun.objects.get()
    assert (pod.started_at, pod.finished_at is not None) == (None, True)
    assert not JobEvent.objects.filter(kind="unmetered").exists()


def test_a_pod_that_was_deleted_before_our_eyes_without_having_begun_is_not_billed(members):
    attempt = held(make_attempt())
    members[attempt.cluster_id] = Member(attempt.cluster.identity)
    pod = pod_of(attempt, phase="Pending", started_at=None)
    report(attempt.cluster, pod, gone_pods=[pod.uid])
    counted(attempt)
    settle_now()
    assert standing(attempt) == (True, "voided")


def test_a_pod_that_vanished_ran_no_longer_than_its_job(members):
    attempt = held(make_attempt())
    members[attempt.cluster_id] = Member(attempt.cluster.identity)
    report(attempt.cluster, pod_of(attempt))
    PodRun.objects.update(observed_at=attempt.released_at + timedelta(minutes=2))
    counted(attempt, minutes=31)
    settle_now()
    assert standing(attempt) == (True, "posted")
    assert metered(attempt) == pytest.approx(2 * 0.5)
    assert JobEvent.objects.filter(attempt=attempt, kind="estimated").count() == 1


def seen_in_lists(attempt, pod, *, minutes):
    """A watch lists the pod, is then cut off, and lists it no more. It was last seen these minutes after its release."""
    buffer = Buffer(settings.INSTALL_ID)
    for listed in ([pod], []):
        buffer.add_pods(WatchEvent("listed", listed))
        record_observations(attempt.cluster_id, buffer.take())
        PodRun.objects.filter(is_gone=False).update(observed_at=attempt.released_at + timedelta(minutes=minutes))


def test_a_pod_that_a_new_list_of_the_watch_lacks_ran_no_longer_than_its_job(members):
    attempt = held(make_attempt())
    members[attempt.cluster_id] = Member(attempt.cluster.identity)
    seen_in_lists(attempt, pod_of(attempt), minutes=2)
    counted(attempt, minutes=31)
    settle_now()
    assert standing(attempt) == (True, "posted")
    assert metered(attempt) == pytest.approx(2 * 0.5)


def test_a_pod_that_waited_before_a_new_list_of_the_watch_lacked_it_is_billed_as_its_job_tells(members):
    attempt = held(make_attempt())
    members[attempt.cluster_id] = Member(attempt.cluster.identity)
    seen_in_lists(attempt, pod_of(attempt, phase="Pending", started_at=None), minutes=1)
    counted(attempt, minutes=6)
    settle_now()
    assert standing(attempt) == (True, "posted")
    assert metered(attempt) == pytest.approx(2 * 5 / 60, abs=0.002)


@pytest.mark.parametrize("is_late", [False, True])
def test_a_pod_whose_end_is_reported_did_not_vanish_although_a_new_list_lacks_it(members, is_late):
    attempt = held(make_attempt())
    members[attempt.cluster_id] = Member(attempt.cluster.identity)
    pod = pod_of(attempt)
    ended = replace(pod, phase="Succeeded", exit_code=0, finished_at=pod.started_at + timedelta(minutes=4))
    buffer = Buffer(settings.INSTALL_ID)
    buffer.add_pods(WatchEvent("listed", [pod]))
    record_observations(attempt.cluster_id, buffer.take())
    buffer.add_pods(WatchEvent("changed", [pod if is_late else ended]))
    buffer.add_pods(WatchEvent("listed", []))
    buffer.give_back(buffer.take())
    record_observations(attempt.cluster_id, buffer.take())
    assert PodRun.objects.filter(last_seen_at=None).exists() is not is_late
    buffer.add_pods(WatchEvent("deleted", [ended]))
    record_observations(attempt.cluster_id, buffer.take())
    counted(attempt, outcome="succeeded", minutes=31)
    settle_now()
    assert metered(attempt) == pytest.approx(2 * 4 / 60)
    assert not JobEvent.objects.filter(attempt=attempt, kind="estimated").exists()


def test_a_pod_that_was_deleted_without_a_reported_end_is_called_an_estimate_in_the_timeline_too(members):
    attempt = held(make_attempt())
    members[attempt.cluster_id] = Member(attempt.cluster.identity)
    pod = pod_of(attempt)
    report(attempt.cluster, pod)
    report(attempt.cluster, pod, gone_pods=[pod.uid])
    counted(attempt, minutes=90)
    settle_now()
    assert standing(attempt) == (True, "posted")
    assert set(UsageSegment.objects.values_list("is_estimated", flat=True)) == {True}
    assert "1 of its pods" in JobEvent.objects.get(attempt=attempt, kind="estimated").message


def test_a_cluster_that_says_a_million_pods_ended_is_billed_for_those_that_were_asked_for(members):
    attempt = held(make_attempt(pods=3))
    members[attempt.cluster_id] = Member(attempt.cluster.identity)
    counted(attempt, pods=1_000_000, minutes=100_000)
    settle_now()
    assert standing(attempt) == (True, "posted")
    assert metered(attempt) <= 3 * 2 * 2.01


def test_a_gang_that_was_seen_in_part_is_billed_whole(members):
    attempt = held(make_attempt(pods=3))
    members[attempt.cluster_id] = Member(attempt.cluster.identity)
    seen = pod_of(attempt, index=1)
    report(
        attempt.cluster, replace(seen, phase="Failed", finished_at=seen.started_at + timedelta(minutes=29), exit_code=1)
    )
    counted(attempt, pods=3)
    settle_now()
    assert PodRun.objects.count() == 3
    assert metered(attempt) == pytest.approx(2 * (29 + 30 + 30) / 60)


@pytest.mark.parametrize("is_reply_lost", [False, True])
def test_what_was_evicted_and_then_cancelled_while_no_observer_watches_is_billed_as_its_job_tells(
    cluster, submitter, settings, monkeypatch, is_reply_lost
):
    _, attempt = place(submitter, seconds=100_000)
    operations.dispatch_attempts()
    evict(path_of(settings.HOME, cluster.server))
    if is_reply_lost:
        lose_the_first_reply(monkeypatch)
    cancel_and_end(submitter, attempt)
    settle_now()
    assert Job.objects.get().state == "cancelled"
    run = PodRun.objects.get(attempt=attempt)
    assert (run.is_estimated, run.started_at < run.finished_at) == (True, True)
    assert standing(attempt) == (True, "posted")


def evict(path):
    """Ends the only pod and removes it, as a drain does."""
    store = Store(path)
    time.sleep(1.1)  # clusters report whole seconds
    with store.write():
        (pod,) = store.pods()
        life.disrupt(store, pod, time.time(), "EvictionByEvictionAPI")
        store.remove(store.pod(pod.namespace, pod.name))
    store.close()


def lose_the_first_reply(monkeypatch):
    """The first deletion is carried out, and its reply is lost."""
    really, replies = SimulatedDriver.delete_job, []

    async def delete_job(self, *asked, **more):
        await really(self, *asked, **more)
        replies.append(asked)
        if len(replies) == 1:
            raise Unreachable("the reply is lost")

    monkeypatch.setattr(SimulatedDriver, "delete_job", delete_job)


def test_what_is_cancelled_while_no_observer_watches_is_billed_for_what_ran(cluster, submitter):
    _, attempt = place(submitter, seconds=100_000)
    operations.dispatch_attempts()
    cancel_and_end(submitter, attempt)
    settle_now()
    attempt.refresh_from_db()
    assert attempt.state == "cancelled"
    assert PodRun.objects.get(attempt=attempt).started_at is not None
    assert standing(attempt) == (True, "posted")


def cancel_and_end(submitter, attempt):
    operations.request_cancellation(submitter, attempt.job_id)
    deadline = now() + timedelta(seconds=30)
    while not Attempt.objects.filter(finished_at__isnull=False).exists():
        assert now() < deadline
        operations.dispatch_attempts()
        time.sleep(0.02)
