"""What pages, the API and files show of budgets and forecasts of costs in several currencies agrees to the last digit."""

import csv
import io
from datetime import UTC, timedelta
from decimal import Decimal

import pytest
from django.db.models import Sum

from billing.models import BudgetPeriod, LedgerLine
from billing.operations import posting
from billing.operations.conversion import convert_days
from billing.operations.exchange import set_billing_currency
from billing.operations.forecasts import foresee_budgets
from billing.queries.budget_exchange import foreign_charges
from billing.queries.budgets import states_at
from billing.queries.forecasts import budget_forecast, tenant_forecast
from foundation.clock import now
from tenancy.queries import SYSTEM
from tests.builders import bearer, bind, make_budget, make_tenant, make_user, take_budgets

from .test_budget_currencies import (  # noqa: F401 - `fleet` and `two` are fixtures
    CHF,
    NOON,
    USD,
    agreed,
    asked,
    euros,
    figures,
    fleet,
    in_euros,
    ran,
    two,
)
from .test_idle import offered

pytestmark = pytest.mark.django_db
A_DAY = timedelta(days=1)
MONTH = {"period": "month", "starts_at": None, "ends_at": None}


@pytest.fixture
def used(two):  # noqa: F811
    """Dollars and francs on two days; then the rate of dollars is corrected."""
    budget = euros("acme/research", **MONTH)
    for number in range(2):
        for name in two:
            ran(two[name], f"{name}{number}", NOON + timedelta(days=number), hours=number + 1)
    agreed("0.95", "USD", NOON.date(), NOON.date() + timedelta(days=1))
    return budget


@pytest.fixture
def finance():
    user = make_user("fin@example.org")
    bind(user, "acme", "finance")
    return user


def test_the_exchange_difference_is_what_later_rates_would_change(used):
    state = states_at([used], NOON)[used.id]
    francs, dollars = foreign_charges([state])[used.id]
    assert (francs.currency, francs.charged, francs.counted) == (
        "CHF",
        3 * CHF,
        CHF * (Decimal("1.05") + 2 * Decimal("1.10")),
    )
    assert (dollars.currency, dollars.charged) == ("USD", 3 * USD)
    assert dollars.counted == in_euros(USD, "0.9") + in_euros(2 * USD, "0.8")
    assert (francs.difference, dollars.difference) == (0, in_euros(USD, "0.95") - in_euros(USD, "0.9"))
    assert figures(used)[0] == francs.counted + dollars.counted


def test_a_posted_correction_is_in_it_once_and_budgets_in_the_currency_of_the_prices_have_none(used):
    posting.post_days()
    state = states_at([used], NOON)[used.id]
    assert sum(one.counted for one in foreign_charges([state])[used.id]) == figures(used)[0]
    hours = make_budget("acme", "10", measure="gpu_hours")
    assert foreign_charges(states_at([hours], NOON).values()) == {}


def test_page_and_api_show_what_is_counted_and_the_difference(used, finance, client):
    item = client.get(f"/api/v1/budgets/{used.id}", headers=bearer(finance)).json()
    [listed] = client.get("/api/v1/budgets?tenant=acme", headers=bearer(finance)).json()["items"]
    assert item == listed
    assert [one["currency"] for one in item["foreign"]] == ["CHF", "USD"]
    assert sum(Decimal(one["counted"]) for one in item["foreign"]) == Decimal(item["spent"])
    gain = sum(Decimal(one["worth"]) - Decimal(one["counted"]) for one in item["foreign"])
    assert Decimal(item["exchange_difference"]) == gain == in_euros(USD, "0.95") - in_euros(USD, "0.9")
    client.force_login(finance)
    page = client.get(f"/budgets/{used.id}/").content.decode()
    assert "Charged in other currencies" in page
    assert f"Exchange difference of this period: {gain:.2f}" in page.replace("\xa0", " ").replace("&nbsp;", " ")


def test_a_missing_rate_is_said_instead_of_a_difference(used, finance, client, two):  # noqa: F811
    ran(two["north"], "later", NOON + timedelta(days=3))
    item = client.get(f"/api/v1/budgets/{used.id}", headers=bearer(finance)).json()
    assert item["exchange_difference"] is None
    assert [one["worth"] is None for one in item["foreign"]] == [False, True]
    client.force_login(finance)
    assert "A rate is missing" in client.get(f"/budgets/{used.id}/").content.decode()


def test_a_forecast_is_in_the_billing_currency_at_each_days_rate_with_the_currencies_of_prices_beside(
    used, finance, client
):
    found = tenant_forecast(SYSTEM, "acme")
    assert found.currency == "EUR"
    shown = {one.currency: (one.posted, one.worth) for one in found.posted_in}
    first = (USD * Decimal("0.95")).quantize(Decimal("1e-12"))
    assert shown["CHF"] == (3 * CHF, CHF * (Decimal("1.05") + 2 * Decimal("1.10")))
    assert shown["USD"] == (3 * USD, first + (2 * USD * Decimal("0.8")).quantize(Decimal("1e-12")))
    assert found.outlook.parts.posted == sum(worth for _, worth in shown.values())

    item = client.get("/api/v1/forecast?tenant=acme", headers=bearer(finance)).json()
    assert (item["unit"], Decimal(item["posted"])) == ("EUR", found.outlook.parts.posted)
    assert sum(Decimal(one["worth"]) for one in item["posted_in"]) == Decimal(item["posted"])
    text = client.get("/api/v1/forecast?tenant=acme&format=csv", headers=bearer(finance)).content.decode()
    rows = list(csv.DictReader(io.StringIO(text)))
    assert {row["unit"] for row in rows} == {"EUR"}
    yesterday = f"{now().astimezone(UTC).date() - timedelta(days=1)}"
    assert [Decimal(row["total"]) for row in rows if row["day"] == yesterday] == [Decimal(item["posted"])]
    assert rows[-1]["total"] == item["total"]
    client.force_login(finance)
    page = client.get("/forecast/?tenant=acme").content.decode()
    assert "this forecast is in EUR, at the rate of each day" in page
    below = client.get("/api/v1/forecast?tenant=acme/research", headers=bearer(finance)).json()
    assert [one["posted"] for one in item["members"] if one["tenant"] == "acme/research"] == [below["posted"]]


def test_a_budgets_forecast_counts_as_the_budget_does_and_holds_at_their_rate(used):
    take_budgets(asked("2", seconds=7200))
    found = budget_forecast(used)
    period = BudgetPeriod.objects.get(budget=used)
    assert found.outlook.parts.posted == period.spent
    # Up to a step of rounding for each day that the run touches.
    assert abs(found.outlook.parts.running - period.held) <= Decimal("2e-12")
    foresee_budgets()


def test_a_forecast_without_any_rate_says_so(used, client, finance, two):  # noqa: F811
    month = now().astimezone(UTC).date().replace(day=1)
    set_billing_currency(SYSTEM, "acme", month, "JPY")
    refused = client.get("/api/v1/forecast?tenant=acme", headers=bearer(finance))
    assert (refused.status_code, refused.json()["errors"][0]["code"]) == (422, "no_exchange_rate")
    client.force_login(finance)
    page = client.get("/forecast/?tenant=acme")
    assert page.status_code == 200
    assert "no exchange rate from" in page.content.decode()


def test_allocations_and_assets_are_in_the_billing_currency_and_agree_with_the_ledger(used, finance, client, two):  # noqa: F811
    day = NOON.replace(hour=0)
    for cluster in two.values():
        offered(cluster, start=day, until=day + 2 * A_DAY)
    posting.post_days()
    convert_days()
    owed = LedgerLine.objects.filter(account__kind="tenant_converted", currency="EUR").aggregate(sum=Sum("amount"))[
        "sum"
    ]
    window = {"window": f"{day:%Y-%m-%dT%H:%M:%SZ},{day + 2 * A_DAY:%Y-%m-%dT%H:%M:%SZ}"}

    def ask(path, **query):
        found = client.get(f"/api/v1/{path}", {**window, **query}, headers=bearer(finance)).json()
        [rows], [currency], [converted] = found["data"], found["currencies"], found["converted"]
        assert currency == "EUR"
        return {name: Decimal(str(row["totalCost"])) for name, row in rows.items()}, converted

    rows, converted = ask("allocation")
    assert rows == {"acme/research": round(owed, 6)}
    assert [(one["currency"], Decimal(one["cost"])) for one in converted] == [("CHF", 3 * CHF), ("USD", 3 * USD)]
    assert sum(Decimal(one["worth"]) for one in converted) == sum(rows.values())
    by_cluster, _ = ask("allocation", aggregate="cluster")
    assert sum(by_cluster.values()) == sum(rows.values())
    assert by_cluster["south"] == CHF * (Decimal("1.05") + 2 * Decimal("1.10"))
    nodes, priced = ask("assets")
    whole = 24 * (USD * (Decimal("0.95") + Decimal("0.8")) + CHF * (Decimal("1.05") + Decimal("1.10")))
    assert sum(nodes.values()) == round(whole, 6)
    assert [Decimal(one["cost"]) for one in priced] == [48 * CHF, 48 * USD]
    with_idle, _ = ask("allocation", includeIdle="true")
    assert sum(with_idle.values()) == sum(nodes.values())
    shared, _ = ask("allocation", shareIdle="true")
    assert sum(shared.values()) == sum(nodes.values())
    [first, second] = client.get("/api/v1/allocation", {**window, "step": "1d"}, headers=bearer(finance)).json()[
        "converted"
    ]
    assert [one["currency"] for one in first] == [one["currency"] for one in second] == ["CHF", "USD"]


def test_allocations_of_organisations_that_are_billed_in_several_currencies_are_refused(used, two, client):  # noqa: F811
    user = make_user("both@example.org")
    bind(user, "acme", "finance")
    make_tenant("lab")
    bind(user, "lab", "finance")
    set_billing_currency(SYSTEM, "lab", NOON.date().replace(day=1), "USD")
    query = {"window": "2026-11-10T00:00:00Z,2026-11-12T00:00:00Z"}
    refused = client.get("/api/v1/allocation", query, headers=bearer(user))
    assert (refused.status_code, refused.json()["errors"][0]["code"]) == (422, "mixed_currencies")
