"""Placement keeps to budgets in another currency than prices, and to those of a fleet with prices in several."""

from datetime import UTC, timedelta
from decimal import Decimal

import pytest

from billing.models import BudgetHold, BudgetPeriod
from billing.operations import budgets, create_price
from billing.operations.exchange import NewRate, set_billing_currency, set_exchange_rate
from billing.operations.prices import NewPrice
from billing.queries import discrepancies
from federation import operations
from federation.queries.proof import disagreements
from federation.queries.snapshot import load_fleet
from foundation.clock import now
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

pytestmark = pytest.mark.django_db
TENANT = "acme/research"
GPU = {"gpu": {"count": 1, "models": []}}


@pytest.fixture
def ada():
    user = make_user("ada@example.org")
    bind(user, "acme", "submitter")
    return user


def priced(name, currency, amount):
    cluster = make_cluster("acme", name)
    make_flavor(cluster)
    make_node(cluster)
    create_price(SYSTEM, NewPrice(name, "h100", Decimal(amount), currency))
    make_tenant(TENANT)
    return cluster


def worth(rate, base, start, days=1):
    first = now().astimezone(UTC).date() + timedelta(days=start)
    set_exchange_rate(
        SYSTEM, NewRate("acme", base, "EUR", Decimal(rate), first, first + timedelta(days=days), "agreed")
    )


@pytest.fixture
def without_a_check(monkeypatch):
    """As if the rates of later days were not imported after the budget was set."""
    monkeypatch.setattr(budgets, "unknown_rates", lambda *given: [])


def wanted(hours=1, **more):
    return {"tenant": TENANT, **make_spec(pod=GPU, deadline_seconds=hours * 3600, **more)}


def waiting(job):
    operations.run_scheduling_cycle()
    job.refresh_from_db()
    return job.state, job.reason_code, job.reason_message


MISSING = (
    "no exchange rate from USD to EUR counts today, so the budget of acme cannot count the price: import reference rates"
    " (manage.py import_exchange_rates), or set a rate on the page Currencies"
)


def test_a_budget_in_another_currency_than_all_prices_holds_and_refuses_at_todays_rate(
    client, ada, without_a_check, quotes_look_anew
):
    priced("north", "USD", "2")
    worth("0.7", "USD", -3)
    make_budget("acme", "5", currency="EUR")
    first = submit(actor_for(ada), wanted(2))
    told = client.post("/api/v1/quotes", wanted(2), content_type="application/json", headers=bearer(ada)).json()
    assert waiting(first) == ("queued", "waiting_for_budget", MISSING)
    assert (told["offers"], told["reason"]["message"]) == ([], MISSING)
    worth("0.75", "USD", 0, 2)
    second = submit(actor_for(ada), wanted(2))
    state, code, message = waiting(second)
    assert (state, code) == ("queued", "waiting_for_budget")
    assert message.startswith("needs up to 3.00 EUR; the budget of acme for 2026-11-01 to 2098-12-31 is 5.00 EUR:")
    assert BudgetHold.objects.get().currency == "USD"
    assert BudgetPeriod.objects.get().held == 3
    refused = client.post("/api/v1/jobs", wanted(4), content_type="application/json", headers=bearer(ada))
    assert (refused.status_code, refused.json()["code"]) == (422, "budget_exceeded_for_good")
    assert "needs up to 6.00 EUR; the budget of acme is 5.00 EUR" in refused.json()["detail"]
    assert (discrepancies(), disagreements()) == ((), ())


def test_a_place_whose_price_no_rate_converts_is_no_free_place(ada, without_a_check):
    """Beside prices in the billing currency: its price is unknown to the ranking, and is charged all the same."""
    priced("north", "USD", "2")
    set_billing_currency(SYSTEM, "acme", now().astimezone(UTC).date().replace(day=1), "EUR")
    priced("south", "EUR", "3")
    worth("0.7", "USD", -3)
    make_budget("acme", "4", currency="EUR")
    named = {"constraints": {"clusters": ["north"]}}
    here = submit(actor_for(ada), wanted(1, **named))
    assert waiting(here) == ("queued", "waiting_for_budget", MISSING)
    anywhere = submit(actor_for(ada), wanted(1))
    assert waiting(anywhere)[0] == "dispatching"
    assert BudgetHold.objects.get().currency == "EUR"
    worth("0.5", "USD", 0, 2)
    assert waiting(here)[0] == "dispatching"
    assert BudgetPeriod.objects.get().held == 3 + 1
    assert (discrepancies(), disagreements()) == ((), ())


def test_a_flavor_is_in_the_currency_of_the_price_that_guests_pay_or_that_is_announced():
    north = priced("north", "EUR", "2")
    make_flavor(north, "cpu", gpu_model="", vendor="")
    make_flavor(north, "later", gpu_model="A100-80GB")
    create_price(SYSTEM, NewPrice("north", "cpu", Decimal("0.1"), "EUR"))
    assert {name: one.currency for name, one in load_fleet(now())[0].flavors.items()} == dict.fromkeys(
        ("h100", "cpu", "later"), "EUR"
    )
    south = make_cluster("acme", "south")
    make_flavor(south)
    create_price(SYSTEM, NewPrice("south", "h100", Decimal(1), "EUR", effective_from=now() + timedelta(hours=1)))
    [found] = [one for one in load_fleet(now()) if one.name == "south"]
    assert (found.flavors["h100"].unit_price, found.flavors["h100"].currency) == (None, "EUR")
