"""Victims and beneficiaries that are cancelled, suspended and end while a round stops jobs, with real commits."""

from dataclasses import replace
from datetime import timedelta

import pytest
from django.db import transaction
from django.db.models import F
from django.db.models.functions import Now

from federation import operations
from federation.engine.lifecycle import AttemptState
from federation.models import Attempt, Job, JobEvent, Preemption, PreemptionVictim, PriorityClass
from federation.operations import endings, lowered_limits, preemption
from federation.operations.consequences import Ending
from federation.queries.lowered_limits import load_beyond
from foundation.problems import Problem
from placement.preemption.plan import plan
from placement.preemption.surplus import reduce
from quotas.engine.holds import Borrowing
from quotas.models import Hold, QuotaLimit
from quotas.operations import end_holds, put_limit
from quotas.queries import discrepancies
from tenancy.operations import change_tenant
from tests.builders import (
    actor_for,
    bind,
    make_cluster,
    make_flavor,
    make_node,
    make_spec,
    make_tenant,
    make_user,
    submit,
)
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


@pytest.fixture
def borrowers(submitter):
    """Four jobs of acme/b, two of which use quota that it borrowed from acme/a and acme/c."""
    put_limit(submitter, "acme", "gpu", nominal=32_000)
    for path, nominal in ("acme/a", 8000), ("acme/b", 24_000), ("acme/c", 8000):
        make_tenant(path)
        put_limit(submitter, path, "gpu", nominal=nominal, borrowing=Borrowing(None, None, reclaims=True))
    PriorityClass.objects.update(shield_seconds=0)
    found = [of(submitter, "acme/b", f"borrowed-{number}") for number in range(NODES)]
    operations.run_scheduling_cycle()
    since = Now() - timedelta(hours=1)
    Attempt.objects.update(
        state="running", starting_at=since, released_at=since, started_at=since, sent_at=F("reserved_at")
    )
    Job.objects.update(state="running", started_at=since)
    return found


def of(submitter, tenant, name, gpus=8):
    return submit(submitter, {"tenant": tenant, **make_spec(name=name, pod={"gpu": {"count": gpus}})})


def test_what_is_taken_back_beside_new_work_of_the_borrower_goes_to_its_owner(submitter, borrowers):
    mine = of(submitter, "acme/a", "mine")
    new = [lambda n=n: of(submitter, "acme/b", f"new-{n}", 1 + 7 * (n % 2)) for n in range(4)]
    at_once([*new, operations.run_scheduling_cycle])
    operations.run_scheduling_cycle()
    (victim,) = PreemptionVictim.objects.select_related("attempt")
    new = [lambda n=n: of(submitter, "acme/b", f"late-{n}", 1) for n in range(3)]
    at_once([*new, lambda: end(victim.attempt), operations.run_scheduling_cycle])
    for _ in range(2):
        operations.run_scheduling_cycle()
    mine.refresh_from_db()
    assert (mine.state, PreemptionVictim.objects.count()) == ("dispatching", 1)
    held = dict(QuotaLimit.objects.values_list("tenant__path", "held"))
    assert held == {"acme": 32_000, "acme/a": 8000, "acme/b": 24_000, "acme/c": 0}


def end(attempt):
    with transaction.atomic():
        endings.end_attempts([Ending(attempt.id, AttemptState.PREEMPTED, "preempted_for_job", "")])
    with transaction.atomic():
        end_holds({attempt.id: "posted"})


def test_a_tenant_moves_while_a_round_takes_back_what_it_borrowed(submitter, borrowers):
    of(submitter, "acme/a", "mine")
    moved, there = make_tenant("acme/b"), make_tenant("acme/c")
    at_once(
        [
            lambda: quietly(operations.run_scheduling_cycle),
            lambda: change_tenant(submitter, moved.id, parent_id=there.id),
        ]
    )
    for _ in range(3):
        operations.run_scheduling_cycle()
    assert make_tenant("acme/c/b").id == moved.id
    assert PreemptionVictim.objects.count() == 1, "its loan is taken back, once, wherever it is"
    assert Attempt.objects.filter(stop_requested_at__isnull=False).count() == 1
    held = dict(QuotaLimit.objects.values_list("tenant__path", "held"))
    assert held == {"acme": 32_000, "acme/a": 0, "acme/c": 32_000, "acme/c/b": 32_000}
    assert discrepancies() == ()


def test_work_that_moves_to_where_it_borrows_nothing_while_the_engine_decides_is_not_stopped(
    submitter, borrowers, monkeypatch
):
    of(submitter, "acme/a", "mine")
    put_limit(submitter, "acme/c", "gpu", nominal=40_000)
    moved, there = make_tenant("acme/b"), make_tenant("acme/c")

    def decide_slowly(*given):
        found = plan(*given)
        assert found.decision is not None
        change_tenant(submitter, moved.id, parent_id=there.id)
        return found

    with monkeypatch.context() as slow:
        slow.setattr(preemption, "plan", decide_slowly)
        operations.run_scheduling_cycle()
    operations.run_scheduling_cycle()
    assert not Preemption.objects.exists()
    assert not Attempt.objects.filter(stop_requested_at__isnull=False).exists()
    assert discrepancies() == ()


def test_rounds_that_overlap_against_the_rule_take_no_more_than_was_borrowed(submitter, borrowers, monkeypatch):
    """Each of the decisions is right alone: acme/b borrows eight GPUs."""
    decisions = []
    for tenant, spared in (("acme/a", borrowers[0]), ("acme/c", borrowers[1])):
        of(submitter, tenant, "mine")
        Job.objects.filter(id=spared.id).update(suspend_requested_at=Now())
        monkeypatch.setattr(
            preemption, "plan", lambda *given: decisions.append((plan(*given), given[0])) or decisions[-1][0]
        )
        monkeypatch.setattr(preemption, "_apply", lambda *_: False)
        operations.run_scheduling_cycle()
        monkeypatch.undo()
        Job.objects.filter(id=spared.id).update(suspend_requested_at=None)
        Job.objects.filter(name="mine").update(retry_at=Now() + timedelta(hours=1))
    assert {one[0].decision.victims[0].run.job_id for one in decisions} == {one.id for one in borrowers[:2]}
    assert len({one[0].decision.job_id for one in decisions}) == 2
    results = at_once([lambda one=one: preemption._apply(one[0].decision, one[1]) for one in decisions])
    assert sorted(results) == [False, True]
    assert PreemptionVictim.objects.count() == 1
    assert Attempt.objects.filter(stop_requested_at__isnull=False).count() == 1


def held_beyond(path):
    """What jobs there that are not being stopped hold."""
    going = Attempt.objects.filter(stop_requested_at__isnull=False).values_list("id", flat=True)
    holds = Hold.objects.filter(tenant__path=path, state="pending").exclude(holder_id__in=list(going))
    return sum(one.amounts["gpu"] for one in holds)


def test_a_limit_is_lowered_and_raised_while_holds_are_taken_and_rounds_take_back(submitter, borrowers):
    of(submitter, "acme/b", "new", 1)
    acts = [lambda n=n: put_limit(submitter, "acme/b", "gpu", nominal=n * 8000, reclaim_after=0) for n in (1, 4, 2)]
    at_once(
        [*acts, operations.run_scheduling_cycle, lowered_limits.take_back_surplus, lowered_limits.take_back_surplus]
    )
    for _ in range(3):
        lowered_limits.take_back_surplus()
    limit = QuotaLimit.objects.get(tenant__path="acme/b")
    victims = PreemptionVictim.objects.count()
    assert Attempt.objects.filter(stop_reason="limit_lowered").count() == victims <= 3
    assert held_beyond("acme/b") <= max(limit.nominal, 32_000 - 8000 * victims)
    assert JobEvent.objects.filter(kind="interrupted").count() == victims
    assert discrepancies() == ()


def test_rounds_that_overlap_stop_no_more_than_a_lowered_limit_needs(submitter, borrowers):
    put_limit(submitter, "acme/b", "gpu", nominal=16_000, reclaim_after=0)
    (beyond,) = load_beyond()
    decisions = [
        reduce(replace(beyond, running=tuple(one for one in beyond.running if one.job_id not in spared)))
        for spared in ({borrowers[0].id, borrowers[1].id}, {borrowers[2].id, borrowers[3].id}, {borrowers[1].id})
    ]
    assert [len(one.victims) for one in decisions] == [2, 2, 2]
    results = at_once([lambda one=one: lowered_limits._apply(one, beyond.now) for one in decisions])
    assert sorted(results) == [False, False, True]
    assert held_beyond("acme/b") == 16_000
    assert PreemptionVictim.objects.count() == 2
