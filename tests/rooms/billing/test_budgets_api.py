"""Budgets over HTTP and on pages: who may set them, what is refused, what is shown."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from billing.models import Budget, BudgetOverride
from billing.operations import create_price, record_runs
from billing.operations.prices import NewPrice
from foundation.clock import now
from tenancy.models import AuditEntry
from tenancy.queries import SYSTEM
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

pytestmark = pytest.mark.django_db


@pytest.fixture
def finance():
    make_tenant("acme/research")
    user = make_user("fin@example.org")
    bind(user, "acme", "finance")
    return bearer(user)


def body(**changes):
    money = {"amount": "100", "currency": "USD"}
    return {"tenant": "acme/research", "amount": money, "period": "month", "stops_admission": True} | changes


def send(client, headers, fields, path="/api/v1/budgets", method="put"):
    return getattr(client, method)(path, fields, content_type="application/json", headers=headers)


def test_a_budget_is_set_changed_shown_and_removed(client, finance):
    created = send(client, finance, body())
    assert created.status_code == 201
    shown = created.json()
    assert (shown["amount"], shown["gpu_hours"], shown["left"]) == (
        {"amount": "100.00", "currency": "USD"},
        None,
        "100.00",
    )
    assert (shown["notify_at"], shown["state"], shown["alerts"]) == ([50, 80, 100], "open", [])
    changed = send(client, finance, body(amount={"amount": "7.5", "currency": "USD"}, notify_at=[90, 10]))
    assert (changed.status_code, changed.json()["id"], changed.json()["notify_at"]) == (200, shown["id"], [10, 90])
    listed = client.get("/api/v1/budgets?tenant=acme", headers=finance).json()["items"]
    assert listed == [changed.json()] == [client.get(f"/api/v1/budgets/{shown['id']}", headers=finance).json()]
    assert client.delete(f"/api/v1/budgets/{shown['id']}", headers=finance).status_code == 204
    assert client.delete(f"/api/v1/budgets/{shown['id']}", headers=finance).status_code == 404
    assert client.get("/api/v1/budgets", headers=finance).json()["items"] == []
    assert AuditEntry.objects.filter(action="budget.put").count() == 2


def test_the_figures_are_those_of_the_journal(client, finance):
    make_flavor(make_cluster(name="north"), "h100")
    north = make_cluster(name="south")
    make_flavor(north, "h100")
    create_price(SYSTEM, NewPrice("south", "h100", Decimal("2.5"), effective_from=datetime(2026, 11, 1, tzinfo=UTC)))
    asked = budget_request("acme/research", "3")
    take_budgets(asked)
    record_runs([make_run(north, "acme/research")])
    fields = body(
        period="dates", starts_on="2026-11-01", ends_on="2098-12-31", amount={"amount": "5", "currency": "USD"}
    )
    shown = send(client, finance, fields).json()
    assert (shown["spent"], shown["held"], shown["left"], shown["state"]) == ("2.50", "3.00", "0.00", "over")
    assert [(one["percent"], one["spent"]) for one in shown["alerts"]] == [(50, "2.50")]
    assert (shown["starts_on"], shown["ends_on"], shown["period_end"]) == (
        "2026-11-01",
        "2098-12-31",
        "2099-01-01T00:00:00.000Z",
    )


@pytest.mark.parametrize(
    ("changes", "field", "code"),
    [
        ({"amount": None}, "amount", "required"),
        ({"gpu_hours": "5"}, "amount", "given_twice"),
        ({"amount": None, "gpu_hours": "-1"}, "gpu_hours", "bad_format"),
        ({"amount": None, "gpu_hours": "1e5"}, "gpu_hours", "bad_format"),
        ({"amount": "NaN"}, "amount", "not_money"),
        ({"amount": 5}, "amount", "not_money"),
        ({"period": "week"}, "period", "invalid_choice"),
        ({"period": "dates"}, "starts_on", "required"),
        ({"starts_on": "2026-11-01"}, "starts_on", "not_for_this_period"),
        ({"period": "dates", "starts_on": "2026-11-02", "ends_on": "2026-11-01"}, "ends_on", "empty_period"),
        ({"period": "dates", "starts_on": "2020-11-02", "ends_on": "2020-12-01"}, "ends_on", "in_the_past"),
        ({"period": "dates", "starts_on": "2026-11-31", "ends_on": "2026-12-01"}, "starts_on", "bad_format"),
        ({"notify_at": [0]}, "notify_at[0]", "min_value"),
        ({"notify_at": ["50"]}, "notify_at[0]", "invalid"),
        ({"notify_at": list(range(1, 12))}, "notify_at", "max_length"),
        ({"colour": "red"}, "colour", "unknown_field"),
    ],
)
def test_a_mistake_is_named(client, finance, changes, field, code):
    refused = send(client, finance, body(**changes))
    assert refused.status_code == 422, refused.content
    assert [(error["field"], error["code"]) for error in refused.json()["errors"]] == [(field, code)]
    assert not Budget.objects.exists()


def test_a_budget_in_another_currency_than_the_prices_needs_a_rate(client, finance):
    make_flavor(make_cluster(name="north"), "h100")
    create_price(SYSTEM, NewPrice("north", "h100", Decimal("2.5"), currency="EUR"))
    assert send(client, finance, body()).json()["errors"][0]["code"] == "no_exchange_rate"
    assert send(client, finance, body(amount={"amount": "5", "currency": "EUR"})).status_code == 201


def test_prices_keep_to_the_currency_of_budgets(finance):
    make_flavor(make_cluster(name="north"), "h100")
    make_budget("acme/research")
    with pytest.raises(Exception, match="budgets of acme are in USD"):
        create_price(SYSTEM, NewPrice("north", "h100", Decimal("2.5"), currency="EUR"))


def test_a_budget_is_set_from_above(client):
    make_tenant("acme/research/vision")
    user = make_user()
    bind(user, "acme/research", "finance")
    assert send(client, bearer(user), body()).status_code == 403
    assert send(client, bearer(user), body(tenant="acme/research/vision")).status_code == 201
    manager = make_user()
    bind(manager, "acme", "manager")
    assert send(client, bearer(manager), body()).status_code == 403
    stranger = make_user()
    bind(stranger, "other", "admin")
    assert send(client, bearer(stranger), body()).status_code == 404
    id_ = Budget.objects.get().id
    assert client.get(f"/api/v1/budgets/{id_}", headers=bearer(stranger)).status_code == 404
    assert client.delete(f"/api/v1/budgets/{id_}", headers=bearer(manager)).status_code == 403


def request_more(client, headers, budget, **changes):
    later = (now() + timedelta(days=2)).isoformat()
    fields = {"amount": "5", "reason": "the paper is due", "expires_at": later} | changes
    return send(client, headers, fields, f"/api/v1/budgets/{budget.id}/overrides", "post")


def test_an_override_needs_a_second_person_and_then_lets_more_start(client, finance):
    budget = make_budget("acme/research", "1")
    asked = request_more(client, finance, budget)
    assert (asked.status_code, asked.json()["approved_at"]) == (201, None)
    path = f"/api/v1/budgets/{budget.id}/overrides/{asked.json()['id']}/approve"
    assert send(client, finance, {}, path, "post").json()["code"] == "same_person"
    assert take_budgets(budget_request("acme/research", "6"))
    other = make_user()
    bind(other, "acme", "admin")
    approved = send(client, bearer(other), {}, path, "post")
    assert (approved.status_code, approved.json()["approved_by"]) == (200, other.email)
    assert send(client, bearer(other), {}, path, "post").json()["code"] == "already_approved"
    assert client.get(f"/api/v1/budgets/{budget.id}", headers=finance).json()["left"] == "6.00"
    assert take_budgets(budget_request("acme/research", "6")) == {}
    assert len(client.get(f"/api/v1/budgets/{budget.id}/overrides", headers=finance).json()["items"]) == 1
    actions = AuditEntry.objects.filter(action__contains="override").values_list("action", flat=True)
    assert sorted(actions) == ["budget.approve_override", "budget.request_override"]


def test_what_is_not_an_override_is_refused(client, finance):
    budget = make_budget("acme/research", "1")
    for changes, code in (
        ({"amount": "0"}, "out_of_range"),
        ({"amount": "x"}, "bad_format"),
        ({"reason": "  "}, "required"),
        ({"expires_at": "2020-01-01T00:00:00Z"}, "in_the_past"),
    ):
        assert request_more(client, finance, budget, **changes).json()["errors"][0]["code"] == code
    submitter = make_user()
    bind(submitter, "acme/research", "submitter")
    assert request_more(client, bearer(submitter), budget).status_code == 403
    future = make_budget("acme", "1", starts_at=datetime(2098, 1, 1, tzinfo=UTC))
    assert request_more(client, finance, future).json()["code"] == "budget_not_in_force"
    assert not BudgetOverride.objects.exists()


def test_the_pages_show_set_and_override(client, finance):
    user = make_user("ada@example.org")
    bind(user, "acme", "finance")
    client.force_login(user)
    assert b"No budgets yet" in client.get("/budgets/").content
    fields = {"tenant": "acme/research", "measure": "money", "amount": "abc", "currency": "USD", "period": "month"}
    fields |= {"notify_at": "50, 80", "stops_admission": "yes"}
    refused = client.post("/budgets/set/", fields)
    assert (refused.status_code, b"a number such as 500" in refused.content) == (422, True)
    assert client.post("/budgets/set/", fields | {"amount": "250"}).status_code == 302
    page = client.get("/budgets/").content.decode()
    assert "0.00 USD spent, 0.00 USD held of 250.00 USD" in page
    budget = Budget.objects.get()
    assert 'value="250"' in client.get(f"/budgets/set/?budget={budget.id}").content.decode()
    one = f"/budgets/{budget.id}/"
    assert b"No alerts in this period" in client.get(one).content
    assert client.post(one, {"amount": "5", "reason": "", "expires_at": "2098-01-01"}).status_code == 422
    assert client.post(one, {"amount": "5", "reason": "<b>now</b>", "expires_at": "2098-01-01"}).status_code == 302
    assert "&lt;b&gt;now&lt;/b&gt;" in client.get(one).content.decode()
    other = make_user()
    bind(other, "acme", "admin")
    client.force_login(other)
    approve = f"{one}overrides/{BudgetOverride.objects.get().id}/approve/"
    assert approve in client.get(one).content.decode()
    assert client.post(approve).status_code == 302
    assert "255.00 USD" in client.get("/budgets/").content.decode()
    assert client.post(f"{one}remove/").status_code == 302
    assert client.get(one).status_code == 404
    viewer = make_user()
    bind(viewer, "acme", "viewer")
    client.force_login(viewer)
    assert b"No budget limits what you can spend." in client.get("/budgets/").content
