"""What ran is billed by our clock, whatever the cluster's shows: too slow, too fast, or set in between."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from asgiref.sync import async_to_sync, sync_to_async

from billing.models import UsageSegment
from clusters.drivers import Unreachable, WatchEvent
from clusters.engine.clocks import Reading, eras_of
from clusters.models import Cluster
from clusters.operations import record_contact
from federation.models import PodRun
from federation.observer.feed import Feed
from federation.observer.times import Times
from federation.operations import Observations
from foundation import clock
from foundation.clock import now
from tests.builders import make_cluster
from tests.rooms.federation.test_hostile_reports import end, make_attempt, metered, pod_of, report

pytestmark = pytest.mark.django_db
HOUR_MS = 3_600_000
SKEWS = [1_000, -1_000, 300_000, -300_000, 2 * HOUR_MS, -2 * HOUR_MS]
RAN = timedelta(minutes=119)
"""Of a pod of two GPUs that begins a minute after the release two hours ago and ends now."""


def shown(at, skew_ms):
    """The instant as the cluster writes it: by its clock, in whole seconds."""
    return (at + timedelta(milliseconds=skew_ms)).replace(microsecond=0)


def pod_shown(attempt, skew_ms, until_skew_ms=None, **said):
    pod = pod_of(attempt, **said)
    pod = replace(pod, started_at=shown(pod.started_at, skew_ms))
    if until_skew_ms is None:
        return pod
    return replace(pod, phase="Succeeded", exit_code=0, finished_at=shown(now(), until_skew_ms))


def billed(attempt):
    """For how long, in seconds."""
    return metered(attempt) * 3600 / 2


@pytest.mark.parametrize("skew_ms", SKEWS)
def test_a_clock_that_is_off_bills_what_ran(skew_ms):
    attempt = make_attempt()
    record_contact(attempt.cluster_id, clock_skew_ms=skew_ms)
    pod = pod_shown(attempt, skew_ms)
    report(attempt.cluster, pod)
    PodRun.objects.update(observed_at=attempt.starting_at + timedelta(minutes=1))
    report(attempt.cluster, pod_shown(attempt, skew_ms, skew_ms, uid=pod.uid))
    end(attempt)
    assert billed(attempt) == pytest.approx(RAN.total_seconds(), abs=5)
    assert set(UsageSegment.objects.values_list("is_estimated", flat=True)) == {abs(skew_ms) > 2000}


@pytest.mark.parametrize("skew_ms", SKEWS)
def test_a_pod_that_is_first_seen_when_it_is_over_is_billed_for_what_ran(skew_ms):
    attempt = make_attempt()
    record_contact(attempt.cluster_id, clock_skew_ms=skew_ms)
    report(attempt.cluster, pod_shown(attempt, skew_ms, skew_ms))
    end(attempt)
    assert billed(attempt) == pytest.approx(RAN.total_seconds(), abs=5)


@pytest.mark.parametrize("seen_before", [True, False])
@pytest.mark.parametrize(
    ("first", "then"), [(0, -2 * HOUR_MS), (0, 2 * HOUR_MS), (-2 * HOUR_MS, 300_000), (300_000, 0)]
)
def test_a_clock_that_is_set_while_the_pod_runs_bills_what_ran(first, then, seen_before):
    attempt = make_attempt(hours=5)
    record_contact(attempt.cluster_id, clock_skew_ms=first)
    pod = pod_shown(attempt, first)
    if seen_before:
        report(attempt.cluster, pod)
        PodRun.objects.update(observed_at=attempt.starting_at + timedelta(minutes=1))
    record_contact(attempt.cluster_id, clock_skew_ms=then)
    Cluster.objects.update(clock_eras=measured_an_hour_ago(attempt.cluster_id))
    report(attempt.cluster, pod_shown(attempt, first, then, uid=pod.uid))
    end(attempt)
    assert billed(attempt) == pytest.approx(timedelta(minutes=299).total_seconds(), abs=5)


def measured_an_hour_ago(cluster_id):
    """The clock was set an hour ago."""
    *before, last = Cluster.objects.get(id=cluster_id).clock_eras
    return [*before, last | {"since": (now() - timedelta(hours=1)).isoformat()}]


@pytest.mark.parametrize("measured_ms", [0, 10**9, -(10**9), 10**17, -(10**17)])
@pytest.mark.parametrize("told_ms", [0, 10**9, -(10**9)])
def test_a_lying_clock_earns_no_more_than_what_we_witnessed(measured_ms, told_ms):
    attempt = make_attempt()
    record_contact(attempt.cluster_id, clock_skew_ms=measured_ms)
    pod = pod_shown(attempt, told_ms)
    report(attempt.cluster, pod)
    report(attempt.cluster, pod_shown(attempt, told_ms, told_ms, uid=pod.uid))
    end(attempt)
    assert 0 <= billed(attempt) <= timedelta(hours=2, seconds=5).total_seconds()


def test_a_pod_that_we_saw_run_has_not_ended_before_that_whatever_its_cluster_tells():
    attempt = make_attempt()
    pod = pod_of(attempt)
    report(attempt.cluster, pod)
    report(attempt.cluster, replace(pod, phase="Failed", finished_at=pod.started_at, exit_code=1))
    end(attempt)
    assert billed(attempt) == pytest.approx(RAN.total_seconds(), abs=5)


def test_the_clock_of_the_process_that_measures_does_not_count(time_machine):
    cluster = make_attempt().cluster
    time_machine.move_to(now() + timedelta(hours=2))
    record_contact(cluster.id, clock_skew_ms=-2 * HOUR_MS)
    [era] = Cluster.objects.get(id=cluster.id).clock_eras
    assert abs(era["skew_ms"]) < 1_000


@pytest.mark.parametrize("seconds", [60, -7200])
def test_a_host_whose_clock_is_set_after_it_has_read_a_clusters_clock_finds_no_difference(seconds):
    cluster = make_cluster()
    read_at = clock.monotonic_origin() + timedelta(seconds=seconds)  # our clock was that far ahead, and is right again
    record_contact(cluster.id, clock_skew_ms=-seconds * 1000, origin=read_at)
    cluster.refresh_from_db()
    assert all(abs(era.skew_ms) < 1000 for era in eras_of(cluster.clock_eras))


@pytest.mark.parametrize("seconds", [60, -7200])
def test_a_clusters_clock_that_is_read_while_our_own_is_set_is_not_believed(monkeypatch, seconds):
    right, recorded = clock.now, []

    class Member:
        async def identity(self):
            return "itself"

        async def clock_skew_ms(self):
            monkeypatch.setattr(clock, "now", lambda: right() + timedelta(seconds=seconds))
            return -seconds * 1000

    async def record(_work, skew_ms, _origin):
        recorded.append(skew_ms)

    member: Any = Member()
    feed = Feed(uuid4(), "itself", member, None, None)
    monkeypatch.setattr(feed, "_in_database", record)
    asyncio.run(feed._beat())
    asyncio.run(feed._beat())
    assert recorded == [None, -seconds * 1000]


class Clock:
    """A member of which only the clock is read."""

    def __init__(self, skew_ms: int) -> None:
        self.skew_ms = skew_ms
        self.reads = 0
        self.failures = 0

    async def identity(self):
        return "itself"

    async def clock_skew_ms(self):
        self.reads += 1
        if self.failures >= self.reads:
            raise Unreachable("the connection is refused")
        return self.skew_ms


@pytest.fixture
def followed():
    """Hands events of pods to the feed of a member, which has read its clock before it was set, and lets it record them."""

    async def in_this_thread(work, *args):
        return await sync_to_async(work)(*args)

    async def run(feed, member, pods, failures):
        skew_ms, member.skew_ms = member.skew_ms, 0
        await feed._beat()
        member.skew_ms, member.reads, member.failures = skew_ms, 0, failures
        for pod in pods:
            feed._take_pods(WatchEvent("changed", (pod,)))
            feed._news.set()
            with suppress(TimeoutError):
                await asyncio.wait_for(feed._record(), 0.2)

    def follow(attempt, member, *pods, failures=0):
        feed: Any = Feed(attempt.cluster_id, "itself", member, None, None)
        feed._in_database = in_this_thread
        async_to_sync(run)(feed, member, pods, failures)

    return follow


@pytest.mark.parametrize("skew_ms", [-119_000, 119_000, -HOUR_MS])
def test_a_pod_that_ends_between_a_jump_of_the_clock_and_the_next_pulse_is_billed_for_what_ran(followed, skew_ms):
    attempt, member = make_attempt(), Clock(skew_ms)
    pod = pod_shown(attempt, 0)
    followed(attempt, member, pod, pod_shown(attempt, 0, skew_ms, uid=pod.uid))
    end(attempt)
    assert billed(attempt) == pytest.approx(RAN.total_seconds(), abs=5)
    assert set(UsageSegment.objects.values_list("is_estimated", flat=True)) == {True}


def test_a_pod_that_starts_between_a_jump_of_the_clock_and_the_next_pulse_is_billed_from_its_start(followed):
    attempt, member = make_attempt(), Clock(-119_000)
    pod = replace(pod_of(attempt), started_at=shown(now(), -119_000))
    followed(attempt, member, pod)
    report(attempt.cluster, replace(pod, phase="Succeeded", finished_at=shown(now(), -119_000), exit_code=0))
    end(attempt)
    assert billed(attempt) <= 5


def test_an_end_that_a_node_reports_late_counts_as_it_was_although_it_is_doubted(followed):
    attempt, member = make_attempt(), Clock(0)
    pod = pod_shown(attempt, 0)
    over = replace(pod, phase="Succeeded", exit_code=0, finished_at=shown(now() - timedelta(minutes=4), 0))
    followed(attempt, member, over)
    end(attempt)
    assert member.reads == 1
    assert billed(attempt) == pytest.approx((RAN - timedelta(minutes=4)).total_seconds(), abs=5)
    assert set(UsageSegment.objects.values_list("is_estimated", flat=True)) == {False}


def test_a_doubtful_end_is_not_recorded_before_the_clock_was_read(followed):
    attempt, member = make_attempt(), Clock(-119_000)
    pod = pod_shown(attempt, 0)
    followed(attempt, member, pod)
    with pytest.raises(Unreachable):
        followed(attempt, member, pod_shown(attempt, 0, -119_000, uid=pod.uid), failures=1)
    assert PodRun.objects.get().finished_at is None


def test_times_that_are_recorded_or_just_happened_need_no_reading():
    read_at, second = now(), timedelta(seconds=1)
    seen = Times()
    attempt = make_attempt()
    pod = pod_of(attempt)
    late, fresh = Observations(pods=[pod]), Observations(pods=[replace(pod, started_at=read_at + 4 * second)])
    assert seen.are_doubtful(fresh, 105.0), "no clock was read yet"
    seen.see_clock(Reading(read_at, 100.0))
    assert not seen.are_doubtful(fresh, 105.0)
    assert seen.are_doubtful(late, 105.0)
    seen.note_recorded(late)
    assert not seen.are_doubtful(late, 105.0)
    assert seen.are_doubtful(Observations(pods=[replace(pod, finished_at=read_at - 4 * second)]), 100.0)
    seen.note_recorded(Observations(gone_pods=[pod.uid]))
    assert seen.weight == 0
