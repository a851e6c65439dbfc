"""Victims and beneficiaries that are cancelled, suspended and end while a round stops jobs, with real commits."""

from datetime import timedelta

import pytest
from django.db.models import F
from django.db.models.functions import Now

from federation import operations
from federation.models import Attempt, Job, JobEvent, Preemption, PreemptionVictim, PriorityClass
from federation.operations import preemption
from foundation.problems import Problem
from placement.preemption.plan import plan
from tests.builders import actor_for, bind, make_cluster, make_flavor, make_node, make_spec, make_user, submit
from tests.concurrency.test_quota_races import at_once

pytestmark = pytest.mark.django_db(transaction=True)
NODES = 4


@pytest.fixture
def submitter():
    cluster = make_cluster("acme", "north")
    make_flavor(cluster)
    for number in range(NODES):
        make_node(cluster, f"n{number}")
    PriorityClass.objects.filter(name="high").update(preempts="lower")
    user = make_user()
    bind(user, "acme", "admin")
    return actor_for(user)


def job(submitter, name, **fields):
    return submit(submitter, {"tenant": "acme", **make_spec(name=name, pod={"gpu": {"count": 8}}, **fields)})


@pytest.fixture
def victims(submitter):
    """Jobs that have run for an hour on all nodes."""
    found = [job(submitter, f"batch-{number}") for number in range(NODES)]
    operations.run_scheduling_cycle()
    since = Now() - timedelta(hours=1)
    Attempt.objects.update(
        state="running", starting_at=since, released_at=since, started_at=since, sent_at=F("reserved_at")
    )
    Job.objects.update(state="running", started_at=since)
    return found


def quietly(work):
    try:
        work()
    except Problem as problem:
        return problem.code
    return "done"


@pytest.mark.parametrize("change", [operations.request_cancellation, operations.request_suspension])
def test_what_users_do_while_jobs_are_stopped_ends_in_one_of_the_two_ways(submitter, victims, change):
    urgent = [job(submitter, f"urgent-{number}", priority_class="high") for number in range(2)]
    changes = [lambda one=one: quietly(lambda: change(submitter, one.id)) for one in (*victims[:2], urgent[0])]
    at_once([*changes, lambda: quietly(operations.run_scheduling_cycle)])
    for _ in range(3):
        operations.run_scheduling_cycle()
    for victim in PreemptionVictim.objects.select_related("attempt", "preemption"):
        assert victim.attempt.stop_reason in ("preempted_for_job", "cancelled", "suspended")
        assert JobEvent.objects.filter(attempt=victim.attempt, kind="interrupted").count() == 1
    stopped = set(Attempt.objects.filter(stop_reason="preempted_for_job").values_list("id", flat=True))
    assert stopped <= set(PreemptionVictim.objects.values_list("attempt_id", flat=True))
    live = Preemption.objects.filter(ended_at=None).values_list("beneficiary_id", flat=True)
    assert urgent[0].id not in live
    assert len(live) <= 1


def test_rounds_that_overlap_against_the_rule_stop_each_job_once(submitter, victims, monkeypatch):
    """The exclusive right to run a round is held by its caller. Without it, the locks and constraints still judge."""
    job(submitter, "urgent", priority_class="high")
    decisions = []
    monkeypatch.setattr(
        preemption, "plan", lambda *given: decisions.append((plan(*given), given[0])) or decisions[-1][0]
    )
    monkeypatch.setattr(preemption, "_apply", lambda *_: False)
    operations.run_scheduling_cycle()
    monkeypatch.undo()
    ((planned, snapshot),) = decisions
    results = at_once([lambda: preemption._apply(planned.decision, snapshot)] * 4)
    assert sorted(results) == [False, False, False, True]
    assert (Preemption.objects.count(), PreemptionVictim.objects.count()) == (1, 1)
    assert JobEvent.objects.filter(kind="interrupted").count() == 1
