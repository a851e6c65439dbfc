"""Windows planned and cancelled while rounds place and sweeps stop, with real commits."""

from collections import Counter
from datetime import timedelta

import pytest
from django.db.models import F

from clusters.models import ClusterEvent, MaintenanceWindow
from clusters.operations import windows
from clusters.operations.windows import WantedWindow, cancel_window, make_window
from federation.models import Attempt, JobEvent
from federation.operations import run_scheduling_cycle, transitions
from federation.operations.maintenance import yield_to_maintenance
from foundation import clock
from foundation.problems import Problem
from tenancy.models import AuditEntry
from tenancy.queries import SYSTEM
from tests.builders import actor_for, bind, make_cluster, make_flavor, make_node, make_spec, make_user, submit
from tests.concurrency.test_quota_races import at_once

pytestmark = pytest.mark.django_db(transaction=True)
MANY = 8


@pytest.fixture
def cluster():
    cluster = make_cluster("acme", "north")
    make_flavor(cluster)
    for number in range(MANY):
        make_node(cluster, f"n{number}")
    return cluster


def plan(cluster, **fields):
    wanted = WantedWindow(ends_at=clock.database_now() + timedelta(hours=1), reason="kernel update", **fields)
    try:
        return make_window(SYSTEM, cluster.id, wanted)
    except Problem as problem:
        return problem.code


def placed(cluster, count=MANY):
    user = make_user()
    bind(user, "acme", "admin")
    for number in range(count):
        spec = make_spec(name=f"job-{number}", pod={"gpu": {"count": 8}}, deadline_seconds=86_400)
        submit(actor_for(user), {"tenant": "acme", **spec})
    run_scheduling_cycle()
    assert Attempt.objects.count() == count
    ids = dict.fromkeys(Attempt.objects.values_list("id", flat=True))
    objects = {id_: {o.id: f"uid-{o.id}" for o in Attempt.objects.get(id=id_).remote_objects.all()} for id_ in ids}
    Attempt.objects.update(claim_token=7, sent_at=F("reserved_at"))
    transitions.mark_created(7, objects)
    return list(ids)


def test_of_many_who_plan_the_last_windows_as_many_succeed_as_there_may_be(cluster, monkeypatch):
    monkeypatch.setattr(windows, "MOST_OPEN", 3)
    outcomes = at_once([lambda: plan(cluster)] * MANY)
    assert Counter(isinstance(one, MaintenanceWindow) for one in outcomes) == {True: 3, False: MANY - 3}
    assert MaintenanceWindow.objects.count() == 3


def test_of_many_who_cancel_a_window_one_does(cluster):
    window = plan(cluster)
    found = at_once([lambda: cancel_window(SYSTEM, cluster.id, window.id)] * MANY)
    assert len({one.cancelled_at for one in found}) == 1
    assert AuditEntry.objects.filter(action="maintenance.cancel").count() == 1
    assert ClusterEvent.objects.filter(kind="cluster.maintenance_cancelled").count() == 1


def test_after_a_window_was_planned_no_worker_commits_to_an_attempt_that_it_concerns(cluster):
    ids = placed(cluster)
    works = [lambda id_=id_: transitions.commit_to_start(7, [id_]) for id_ in ids]
    at_once([*works[: MANY // 2], lambda: plan(cluster, drain=True)])
    assert MaintenanceWindow.objects.count() == 1
    started = set(Attempt.objects.filter(state="starting").values_list("id", flat=True))
    assert started <= set(ids[: MANY // 2])
    at_once(works)
    assert set(Attempt.objects.filter(state="starting").values_list("id", flat=True)) == started
    yield_to_maintenance()
    assert Attempt.objects.filter(stop_requested_at=None).count() == 0


def test_of_many_sweeps_at_once_one_asks_each_attempt_to_stop(cluster):
    placed(cluster)
    Attempt.objects.update(state="running", starting_at=F("reserved_at"), released_at=F("reserved_at"))
    plan(cluster, drain=True)
    assert sum(at_once([yield_to_maintenance] * 4)) == MANY
    assert JobEvent.objects.filter(kind="interrupted").count() == MANY


def test_a_round_and_a_window_at_once_leave_nothing_that_can_start(cluster):
    user = make_user()
    bind(user, "acme", "admin")
    for number in range(MANY):
        spec = make_spec(name=f"job-{number}", pod={"gpu": {"count": 8}}, deadline_seconds=86_400)
        submit(actor_for(user), {"tenant": "acme", **spec})
    at_once([run_scheduling_cycle, lambda: plan(cluster)])
    yield_to_maintenance()
    run_scheduling_cycle()
    assert not Attempt.objects.filter(stop_requested_at=None).exists()
