"""Budgets in the life of a job: refused for good, waiting, held when placed, spent when metered, posted when settled."""

from decimal import Decimal

import pytest

from billing.models import BudgetHold, BudgetMovement, BudgetPeriod, UsageSegment
from billing.operations import create_price
from billing.operations.prices import NewPrice
from billing.queries import discrepancies
from federation import operations
from federation.models import Attempt, Job
from federation.queries.proof import disagreements
from placement.cycle import cycle as engine
from tenancy.queries import SYSTEM
from tests.builders import (
    actor_for,
    bearer,
    bind,
    make_budget,
    make_cluster,
    make_flavor,
    make_node,
    make_spec,
    make_tenant,
    make_user,
    submit,
)
from tests.live import gpu_job, observe_until

TENANT = "acme/research"
GPU = {"gpu": {"count": 1, "models": []}}


@pytest.fixture
def north():
    cluster = make_cluster("acme", "north")
    make_flavor(cluster)
    make_node(cluster)
    create_price(SYSTEM, NewPrice("north", "h100", Decimal(2)))
    make_tenant(TENANT)
    return cluster


@pytest.fixture
def ada():
    user = make_user("ada@example.org")
    bind(user, "acme", "submitter")
    return user


def wanted(hours=1, **more):
    return {"tenant": TENANT, **make_spec(pod=GPU, deadline_seconds=hours * 3600, **more)}


@pytest.mark.django_db
class TestAdmission:
    def test_what_no_period_could_pay_for_is_refused_at_submission(self, client, north, ada):
        make_budget("acme", "10")
        make_budget(TENANT, "3", measure="gpu_hours", stops=False)
        told = client.post("/api/v1/jobs", wanted(6), content_type="application/json", headers=bearer(ada))
        assert (told.status_code, told.json()["code"]) == (422, "budget_exceeded_for_good")
        assert "needs up to 12.00 USD; the budget of acme is 10.00 USD" in told.json()["detail"]
        again = client.post("/api/v1/jobs", wanted(5), content_type="application/json", headers=bearer(ada))
        assert again.status_code == 201

    def test_a_job_waits_for_the_budget_and_starts_when_it_is_raised(self, north, ada):
        make_budget("acme", "5")
        first, second = submit(actor_for(ada), wanted(2)), submit(actor_for(ada), wanted(2))
        operations.run_scheduling_cycle()
        second.refresh_from_db()
        assert (second.state, second.reason_code) == ("queued", "waiting_for_budget")
        assert "needs up to 4.00 USD" in second.reason_message
        assert BudgetHold.objects.get().holder_id == Attempt.objects.get(job=first).id
        assert BudgetPeriod.objects.get().held == 4
        make_budget("acme", "8")
        operations.run_scheduling_cycle()
        assert BudgetPeriod.objects.get().held == 8
        assert (discrepancies(), disagreements()) == ((), ())

    def test_a_budget_that_was_cut_while_the_engine_decided_stops_the_job(self, north, ada, monkeypatch):
        make_budget("acme", "5")
        job = submit(actor_for(ada), wanted(2))
        decide = engine.run

        def slow(*given):
            decided = decide(*given)
            make_budget("acme", "1")
            return decided

        monkeypatch.setattr(engine, "run", slow)
        operations.run_scheduling_cycle()
        job.refresh_from_db()
        assert (job.state, job.reason_code, Attempt.objects.count()) == ("queued", "waiting_for_budget", 0)

    def test_a_quote_says_what_the_budget_does_not_allow(self, client, north, ada, quotes_look_anew):
        make_budget("acme", "5")
        submit(actor_for(ada), wanted(2))
        told = client.post("/api/v1/quotes", wanted(2), content_type="application/json", headers=bearer(ada)).json()
        assert told["offers"] == []
        assert told["reason"]["code"] == "waiting_for_budget"
        operations.run_scheduling_cycle()
        second = submit(actor_for(ada), wanted(2))
        operations.run_scheduling_cycle()
        second.refresh_from_db()
        assert second.reason_message == told["reason"]["message"]

    def test_jobs_without_budget_still_hold_so_that_a_later_one_counts_them(self, north, ada):
        submit(actor_for(ada), wanted(3))
        operations.run_scheduling_cycle()
        make_budget("acme", "1")
        assert BudgetPeriod.objects.get().held == 6
        assert discrepancies() == ()


@pytest.mark.django_db(transaction=True)
def test_a_job_holds_spends_and_posts(cluster, submitter):
    [flavor] = cluster.flavors.exclude(gpu_model="")
    create_price(SYSTEM, NewPrice(cluster.name, flavor.name, Decimal(3600)))
    make_budget("acme", "100000000")
    make_budget("acme/research", "1000", measure="gpu_hours")
    submit(submitter, gpu_job(gpus=4))
    observe_until(lambda: Attempt.objects.filter(settled_at__isnull=False).exists())
    spent = sum(segment.cost for segment in UsageSegment.objects.all())
    money = BudgetPeriod.objects.get(budget__measure="money")
    hours = BudgetPeriod.objects.get(budget__measure="gpu_hours")
    assert spent > 0
    assert (money.spent, money.held, hours.held) == (spent, 0, 0)
    assert abs(hours.spent * 3600 - spent) < Decimal("0.0001")
    assert BudgetHold.objects.get().state == "posted"
    assert set(BudgetMovement.objects.values_list("kind", flat=True)) == {"take", "adjust", "post"}
    assert Job.objects.get().state == "succeeded"
    assert (discrepancies(), disagreements()) == ((), ())


@pytest.mark.django_db(transaction=True)
def test_a_placement_that_is_cancelled_before_it_starts_returns_its_money(cluster, submitter):
    make_budget("acme", "1000", measure="gpu_hours")
    job = submit(submitter, gpu_job())
    operations.run_scheduling_cycle()
    assert BudgetPeriod.objects.get().held > 0
    operations.request_cancellation(submitter, job.id)
    observe_until(lambda: Attempt.objects.filter(settled_at__isnull=False).exists())
    assert BudgetHold.objects.get().state == "voided"
    assert BudgetPeriod.objects.get().held == 0
    assert (discrepancies(), disagreements()) == ((), ())
