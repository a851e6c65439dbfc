"""Forecasts from stored days, and alerts on what is expected: once, with their text, and without effect on admission."""

import csv
import io
from calendar import monthrange
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from django.urls import reverse

from billing.models import BudgetAlert, BudgetForecastAlert, BudgetPeriod
from billing.operations import create_price, record_runs
from billing.operations.budgets import delete_budget
from billing.operations.forecasts import foresee_budgets
from billing.operations.prices import NewPrice
from billing.queries.budgets import highest_forecast_alerts
from billing.queries.forecasts import budget_forecast, tenant_forecast
from foundation.clock import now
from foundation.problems import Invalid, NotFound
from tenancy.queries import SYSTEM, actor_for
from tests.builders import (
    bearer,
    bind,
    budget_request,
    make_budget,
    make_cluster,
    make_flavor,
    make_run,
    make_tenant,
    make_user,
    take_budgets,
)
from tests.refusals import constraint_of

from .ledgers import priced_cluster
from .test_budget_corrections import adjust, correct, post

pytestmark = pytest.mark.django_db
A_DAY = timedelta(days=1)


def today():
    return datetime.combine(now().astimezone(UTC).date(), time(), UTC)


def past_days(cluster, path, days=42, hours=4):
    """A run of some hours, at 2.5 an hour, on each of the days before today."""
    begins = [today() - number * A_DAY + timedelta(hours=10) for number in range(1, days + 1)]
    record_runs([
        make_run(cluster, path, started_at=start, until_at=start + timedelta(hours=hours)) for start in begins
    ])  # fmt: skip


def north():
    return priced_cluster(since=today() - 100 * A_DAY)


def twenty_days(path="acme", amount="150", **more):
    """A budget from ten days ago to ten days ahead."""
    return make_budget(path, amount, starts_at=today() - 10 * A_DAY, ends_at=today() + 10 * A_DAY, **more)


def test_a_budgets_forecast_is_what_it_spent_and_what_is_usual_on_the_days_to_come():
    past_days(north(), "acme/one")
    found = budget_forecast(twenty_days())
    assert found.outlook.parts.posted == 100 == found.state.spent
    assert 90 <= found.outlook.parts.expected <= 100
    assert found.outlook.days_of_history == 42
    assert found.past[-1] == (today().date(), 100)
    assert found.past[0] == ((today() - 10 * A_DAY).date(), 10)
    hours = budget_forecast(twenty_days("acme/one", measure="gpu_hours"))
    assert hours.outlook.parts.posted == 40
    assert 36 <= hours.outlook.parts.expected <= 40


def test_running_work_counts_until_its_deadline_once():
    budget = twenty_days()
    take_budgets(budget_request("acme/one", "2", seconds=36_000))
    found = budget_forecast(budget)
    assert not found.outlook.has_history
    assert found.outlook.parts.total == found.outlook.parts.running
    # Each day is rounded, and late in the day the deadline is tomorrow.
    assert abs(found.state.held - found.outlook.parts.running) <= Decimal("1e-12")
    assert found.state.held == 20


def test_a_credit_is_posted_and_expected_of_no_day_and_a_corrected_price_is_expected():
    cluster = north()
    past_days(cluster, "acme/one")
    budget = twenty_days()
    post()
    adjust(make_tenant("acme/one"), "-30", today() - 7 * A_DAY)
    found = budget_forecast(budget).outlook
    assert found.parts.posted == 70
    assert 90 <= found.parts.expected <= 100
    correct("5", today() - 60 * A_DAY, today())
    post()
    found = budget_forecast(budget).outlook
    assert found.parts.posted == 170
    assert 180 <= found.parts.expected <= 200


def test_a_tenants_parts_are_its_own_work_and_its_childrens_and_others_are_not_seen():
    cluster = north()
    for path, hours in (("acme/dept/a", 2), ("acme/dept/b", 4), ("acme/dept", 1), ("acme/other", 8)):
        past_days(cluster, path, hours=hours)
    found = tenant_forecast(SYSTEM, "acme/dept").outlook
    assert list(found.members) == ["acme/dept", "acme/dept/a", "acme/dept/b"]
    for name in ("posted", "expected", "total"):
        assert sum(getattr(one, name) for one in found.members.values()) == getattr(found.parts, name)
    own, a, b = (parts.expected for parts in found.members.values())
    assert abs(a - 2 * own) + abs(b - 4 * own) < Decimal("1e-9")
    stranger = make_user()
    bind(stranger, "other", "admin")
    with pytest.raises(NotFound):
        tenant_forecast(actor_for(stranger), "acme/dept")


def test_costs_in_two_currencies_are_no_forecast_of_a_tenant():
    past_days(north(), "acme/one", days=1)
    guest = make_cluster("lab", name="east")
    make_flavor(guest)
    create_price(SYSTEM, NewPrice("east", "h100", Decimal(1), currency="EUR", effective_from=today() - 9 * A_DAY))
    past_days(guest, "acme/one", days=1)
    with pytest.raises(Invalid):
        tenant_forecast(SYSTEM, "acme")


def alerts():
    return list(BudgetForecastAlert.objects.order_by("percent").values_list("percent", flat=True))


def test_a_threshold_that_is_expected_to_be_reached_alerts_once_and_stops_nothing(client):
    past_days(north(), "acme/one")
    budget = twenty_days(notify_at=(50, 80, 100), notify_forecast_at=(50, 100, 120, 200))
    foresee_budgets()
    foresee_budgets()
    assert alerts() == [100, 120]  # half is spent already, and twice as much is not expected
    assert highest_forecast_alerts() == {("acme", "money", "dates"): 120}
    assert budget.stops_admission
    assert take_budgets(budget_request("acme/one", "1")) == {}  # 100 spent, 150 allowed
    finance = make_user()
    bind(finance, "acme", "finance")
    shown = client.get(f"/api/v1/budgets/{budget.id}", headers=bearer(finance)).json()
    assert shown["notify_forecast_at"] == [50, 100, 120, 200]
    first = shown["forecast_alerts"][0]
    assert (first["percent"], first["amount"], first["spent"]) == (100, "150.00", "100.00")
    assert first["reached_on"] in {f"{today() + number * A_DAY:%Y-%m-%d}" for number in (4, 5)}
    assert first["text"].endswith(f"100 % of 150.00 USD are expected to be reached on {first['reached_on']}.")
    client.force_login(finance)
    page = client.get(reverse("budget", args=[budget.id])).content.decode()
    assert first["text"] in page
    assert "The chart as a table" in page
    assert "switchyard_budget_forecast_alert_percent" not in page


def test_too_little_history_alerts_nothing():
    past_days(north(), "acme/one", days=20)
    twenty_days(amount="101", notify_forecast_at=(100,))
    foresee_budgets()
    assert alerts() == []


def test_budgets_that_are_removed_over_or_without_thresholds_alert_nothing():
    past_days(north(), "acme/one")
    delete_budget(SYSTEM, twenty_days(notify_forecast_at=(100,)).id)
    twenty_days("acme/one", notify_forecast_at=())
    make_budget("acme/two", "1", starts_at=today() + A_DAY, ends_at=today() + 2 * A_DAY, notify_forecast_at=(1,))
    twenty_days("acme/three", "0", notify_forecast_at=(1,))
    foresee_budgets()
    assert alerts() == []


def test_a_currency_of_days_that_are_not_read_any_more_is_not_added():
    old = make_cluster("lab", name="east")
    make_flavor(old)
    create_price(SYSTEM, NewPrice("east", "h100", Decimal(1), currency="EUR", effective_from=today() - 400 * A_DAY))
    start = today() - 300 * A_DAY
    record_runs([make_run(old, "acme/one", started_at=start, until_at=start + A_DAY)])
    past_days(north(), "acme/one")
    assert tenant_forecast(SYSTEM, "acme").currency == "USD"


def test_a_changed_budget_keeps_its_thresholds_on_the_forecast_unless_it_names_others():
    assert twenty_days().notify_forecast_at == [100]
    assert twenty_days(notify_forecast_at=(90, 30, 90)).notify_forecast_at == [30, 90]
    assert twenty_days(amount="7").notify_forecast_at == [30, 90]
    assert twenty_days(notify_forecast_at=()).notify_forecast_at == []
    for wrong in ((0,), (1001,), tuple(range(1, 12))):
        with pytest.raises(Invalid) as refused:
            twenty_days(notify_forecast_at=wrong)
        assert [one.field for one in refused.value.errors] == ["notify_forecast_at"]


ROW = "(period_id, percent, spent, amount, expected, low, high, reached_on)"
TODAY = "(now() AT TIME ZONE 'UTC')::date"
FIRST = "SELECT id, {percent}, 0, {amount}, {expected}, {low}, {high}, {day} FROM billing_budgetperiod"
GOOD: dict[str, Any] = {"percent": 90, "amount": 150, "expected": 140, "low": 130, "high": 150, "day": TODAY}
ATTACKS: dict[str, tuple[dict[str, Any], str]] = {
    "a threshold that the budget does not have": ({"percent": 91}, "forecast_alert_is_of_a_threshold"),
    "less than the threshold": ({"expected": 134, "low": 130}, "forecast_alert_is_of_a_threshold"),
    "nothing": ({"expected": 0, "low": 0}, "forecast_alert_is_of_a_threshold"),
    "another amount": ({"amount": 1}, "forecast_alert_is_of_a_threshold"),
    "a day after the period": ({"day": f"{TODAY} + 10"}, "forecast_alert_is_of_a_threshold"),
    "a day before the period": ({"day": f"{TODAY} - 11"}, "forecast_alert_is_of_a_threshold"),
    "a range that is all above": ({"low": 141}, "forecast_is_within_its_range"),
    "a range that is all below": ({"high": 139}, "forecast_is_within_its_range"),
}


def run(statement):
    with connection.cursor() as cursor:
        cursor.execute(statement)


def refused_by(statement):
    with pytest.raises(DatabaseError) as refused, transaction.atomic():
        run(statement)
    return constraint_of(refused.value)


@pytest.fixture
def period():
    budget = twenty_days(notify_forecast_at=(90,))
    return BudgetPeriod.objects.get(budget=budget)


def insert(**changes):
    return f"INSERT INTO billing_budgetforecastalert {ROW} {FIRST.format(**{**GOOD, **changes})}"


@pytest.mark.parametrize("name", ATTACKS)
def test_the_database_refuses(period, name):
    changes, constraint = ATTACKS[name]
    assert refused_by(insert(**changes)) == constraint


def test_an_alert_on_the_forecast_is_recorded_once_and_stays(period):
    run(insert())
    assert refused_by(insert()) == "each_forecast_threshold_alerts_once_per_period"
    for attack in ("UPDATE billing_budgetforecastalert SET percent = 1", "DELETE FROM billing_budgetforecastalert"):
        assert refused_by(attack)
    assert alerts() == [90]
    for wrong in ("{80,50}", "{0}", "{1001}", "{50,50}", "{NULL}"):
        statement = f"UPDATE billing_budget SET notify_forecast_at = '{wrong}'"
        assert refused_by(statement) == "budget_forecast_thresholds_are_in_order"
    assert BudgetAlert.objects.count() == 0


def test_the_api_shows_parts_that_add_up_and_the_back_test(client):
    past_days(north(), "acme/one")
    budget = twenty_days()
    viewer = make_user()
    bind(viewer, "acme", "viewer")
    own = bearer(viewer)
    of_budget = client.get(f"/api/v1/budgets/{budget.id}/forecast", headers=own).json()
    parts = [Decimal(of_budget[name]) for name in ("posted", "running", "expected")]
    assert sum(parts) == Decimal(of_budget["total"])
    assert (of_budget["unit"], of_budget["amount"], of_budget["note"]) == ("USD", "150.00", None)
    assert of_budget["reached_on"] is not None
    methods = of_budget["back_test"]["methods"]
    assert [one["is_chosen"] for one in methods].count(True) == 1
    assert methods[0]["method"] == "the same weekday of last week"
    found = client.get("/api/v1/forecast?tenant=acme", headers=own).json()
    assert [one["tenant"] for one in found["members"]] == ["acme", "acme/one"]
    assert sum(Decimal(one["total"]) for one in found["members"]) == Decimal(found["total"])
    assert client.get("/api/v1/forecast", headers=own).status_code == 422
    assert client.get("/api/v1/forecast?tenant=other", headers=own).status_code == 404
    later = make_budget("acme", "1", starts_at=today() + 2 * A_DAY, ends_at=today() + 3 * A_DAY)
    answer = client.get(f"/api/v1/budgets/{later.id}/forecast", headers=own)
    assert (answer.status_code, answer.json()["code"]) == (409, "not_in_period")
    client.force_login(viewer)
    assert client.get(reverse("budget", args=[later.id])).status_code == 200


def test_the_days_of_a_forecast_as_csv(client):
    past_days(north(), "acme/one")
    budget = twenty_days()
    viewer = make_user()
    bind(viewer, "acme", "viewer")
    own = bearer(viewer)
    path = f"/api/v1/budgets/{budget.id}/forecast"
    whole = client.get(path, headers=own).json()
    answer = client.get(f"{path}?format=csv", headers=own)
    assert answer["Content-Type"].startswith("text/csv")
    assert f"forecast-budget-{budget.id}" in answer["Content-Disposition"]
    rows = list(csv.DictReader(io.StringIO(answer.content.decode())))
    assert len(rows) == 20
    assert [row["low"] for row in rows[:10]] == [""] * 10
    assert [row["total"] for row in rows[:10]] == [f"{number}0.00" for number in range(1, 11)]
    assert [row["day"] for row in rows[10:]] == [one["day"] for one in whole["days"]]
    assert [row["expected"] for row in rows[11:]] == [one["expected"] for one in whole["days"]][1:]  # today's shrinks
    assert all(row["low"] and row["high"] and row["unit"] == "USD" for row in rows[10:])
    of_month = client.get("/api/v1/forecast?tenant=acme&format=csv", headers=own).content.decode()
    assert of_month.count("\n") == 1 + monthrange(today().year, today().month)[1]
    assert client.get(f"{path}?format=xml", headers=own).status_code == 422
    refused = client.get("/api/v1/forecast?tenant=other&format=csv", headers=own)
    assert (refused.status_code, refused.json()["status"]) == (404, 404)
    client.force_login(viewer)
    for page, link in (
        (reverse("forecast"), "tenant=acme&amp;format=csv"),
        (reverse("budget", args=[budget.id]), f"{path}?format=csv"),
    ):
        shown = client.get(page).content.decode()
        assert link in shown
        assert "USD, sum at the end of each day (UTC)" in shown
        assert "<span>0</span>" in shown


def test_pages_without_history_say_so_and_unknown_tenants_are_named(client):
    viewer = make_user()
    bind(viewer, "acme", "viewer")
    client.force_login(viewer)
    page = client.get(reverse("forecast")).content.decode()
    assert "There are 0 days of history" in page
    for path in ("other", "<script>alert(1)</script>", "acme/" * 300):
        answer = client.get(reverse("forecast"), {"tenant": path})
        assert answer.status_code == 200
        assert "no tenant that you see has this path" in answer.content.decode()
        assert "<script>alert" not in answer.content.decode()
    past_days(north(), "acme/one")
    page = client.get(reverse("forecast")).content.decode()
    assert "How well this was expected before" in page
    assert "Parts of this forecast" in page
