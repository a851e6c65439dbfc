"""Pods share the places of their object one after the other, in whatever order and however late reports of them come."""

import random
from dataclasses import replace
from datetime import timedelta

import pytest

from clusters.drivers import JobSeen
from federation.models import Attempt, JobEvent, PodRun
from federation.operations import Observations, record_observations
from foundation.clock import now
from tests.laws import seeds
from tests.rooms.federation.test_hostile_reports import make_attempt, pod_of, report

pytestmark = pytest.mark.django_db(transaction=True)
INDICES, PLACES, REPORTS = 7, 3, 40


def test_a_pod_that_was_seen_waiting_starts_before_the_end_of_its_predecessor_was_seen():
    attempt = make_attempt(pods=1, completions=2)
    at = now().replace(microsecond=0)
    first = pod_of(attempt, 0, phase="Succeeded", started_at=at - timedelta(seconds=3), finished_at=at, exit_code=0)
    second = pod_of(attempt, 1, phase="Pending", started_at=None)
    report(attempt.cluster, first, second)
    report(attempt.cluster, replace(second, phase="Running", started_at=at))
    began = PodRun.objects.get(uid=second.uid).started_at
    assert began == PodRun.objects.get(uid=first.uid).observed_at
    report(attempt.cluster, replace(second, phase="Succeeded", started_at=at, finished_at=now(), exit_code=0))
    assert PodRun.objects.get(uid=second.uid).finished_at >= began


@pytest.mark.parametrize("seed", seeds(range(12), quick=2))
def test_no_order_of_reports_is_refused_by_the_database(seed):
    """Pods wait, run, end, vanish from a list and come back, and are reported in any order, late and repeatedly."""
    drawn = random.Random(seed)
    attempt = make_attempt(pods=PLACES, completions=INDICES, hours=0.01)
    at = attempt.released_at.replace(microsecond=0)
    states = {}
    for number, index in enumerate([*range(INDICES), *drawn.choices(range(INDICES), k=3)]):
        began = at + timedelta(seconds=drawn.randint(0, 40))
        waits = pod_of(attempt, index, uid=f"pod-{number}", phase="Pending", started_at=None)
        runs = replace(waits, phase="Running", started_at=began)
        over = replace(runs, phase="Succeeded", finished_at=began + timedelta(seconds=drawn.randint(0, 9)), exit_code=0)
        states[waits.uid] = (waits, runs, over)
    for _ in range(REPORTS):
        uids = drawn.sample(sorted(states), k=drawn.randint(1, 4))
        gone = drawn.sample(sorted(states), k=drawn.choice([0, 0, 1]))
        vanished = gone if drawn.random() < 0.5 else []
        report(attempt.cluster, *(drawn.choice(states[uid]) for uid in uids), gone_pods=gone, vanished_pods=vanished)
    assert PodRun.objects.filter(finished_at__isnull=False).count() > PLACES
    assert not JobEvent.objects.filter(kind="unmetered").exists()


def test_a_report_that_the_database_refuses_does_not_hold_up_those_of_others():
    bad = make_attempt(pods=2)
    good = make_attempt(bad.cluster)
    squatter = pod_of(bad, 1)
    report(bad.cluster, squatter)
    PodRun.objects.filter(uid=squatter.uid).delete()
    remote = bad.remote_objects.get()
    PodRun.objects.create(
        attempt=bad, cluster_id=bad.cluster_id, remote_object=remote, index=1, place=0, uid=squatter.uid, name="swy-o-1",
        phase="Running", started_at=squatter.started_at, observed_at=now(),
    )  # fmt: skip
    outcome = JobSeen("swy-team-1", "swy-o", good.remote_objects.get().uid, {}, False, "failed", "", "", None, False)
    mine = pod_of(good, phase="Failed", finished_at=now(), exit_code=1)
    pods = [pod_of(bad, 0), mine]
    for _ in range(2):
        record_observations(bad.cluster_id, Observations(jobs=[outcome], pods=pods, gone_pods=[squatter.uid]))
    assert PodRun.objects.get(attempt=good).phase == "Failed"
    assert PodRun.objects.get(uid=squatter.uid).is_gone
    good.refresh_from_db()
    assert good.finished_at is not None
    (event,) = JobEvent.objects.filter(kind="unmetered")
    assert event.job_id == bad.job_id
    assert "one_pod_at_a_time_has_a_place" in event.message
    assert Attempt.objects.get(id=bad.id).settle_error
