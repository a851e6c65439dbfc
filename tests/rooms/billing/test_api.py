from decimal import Decimal

import pytest

from billing.operations import record_runs
from clusters.models import Cluster
from tenancy.models import AuditEntry
from tests.builders import bearer, bind, make_cluster, make_flavor, make_run, make_user

pytestmark = pytest.mark.django_db
USD = "USD"


@pytest.fixture
def finance():
    make_flavor(make_cluster(name="north"), "h100")
    user = make_user()
    bind(user, "acme", "finance")
    return bearer(user)


def body(**changes):
    price = {"amount": "2.50", "currency": USD}
    return {
        "cluster": "north",
        "flavor": "h100",
        "unit_price": price,
        "effective_from": "2026-11-01T00:00:00Z",
    } | changes


def post(client, headers, fields):
    return client.post("/api/v1/prices", fields, content_type="application/json", headers=headers)


def test_a_price_is_created_and_listed(client, finance):
    created = post(client, finance, body())
    assert created.status_code == 201
    assert created.json() == client.get("/api/v1/prices", headers=finance).json()["items"][0]
    shown = created.json()
    assert (shown["unit_price"], shown["capacity_type"]) == ({"amount": "2.500000", "currency": USD}, "on_demand")
    assert (shown["effective_from"], shown["effective_until"]) == ("2026-11-01T00:00:00.000Z", None)


def test_a_plain_amount_is_in_dollars_from_now_on(client, finance):
    fields = body(unit_price="0.000001")
    del fields["effective_from"]
    assert post(client, finance, fields).json()["unit_price"] == {"amount": "0.000001", "currency": USD}


def test_a_repeated_create_gets_the_first_answer(client, finance):
    keyed = {**finance, "Idempotency-Key": "once"}
    first, second = post(client, keyed, body()), post(client, keyed, body())
    assert first.json() == second.json()
    assert second["Idempotent-Replayed"] == "true"


@pytest.mark.parametrize(
    "unit_price",
    [
        2.5,
        2,
        True,
        None,
        "-1",
        "1e3",
        "NaN",
        " 2",
        "2.5000001",
        "1234567890",
        "٢",
        {"amount": 2.5, "currency": USD},
        {"amount": "2"},
        {"amount": "2", "currency": "usd"},
        {"amount": "2", "currency": USD, "tax": "1"},
        ["2"],
    ],
)
def test_what_is_not_exact_money_is_refused(client, finance, unit_price):
    answer = post(client, finance, body(unit_price=unit_price))
    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["errors"]] == ["unit_price"]


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"cluster": "atlantis"}, 404, "not_found"),
        ({"flavor": "h1000"}, 422, "validation_failed"),
        ({"capacity_type": "stolen"}, 422, "validation_failed"),
        ({"effective_from": "tomorrow"}, 422, "validation_failed"),
        ({"effective_from": "2026-11-01T00:00:00"}, 422, "validation_failed"),
        ({"valid": "always"}, 422, "validation_failed"),
    ],
)
def test_a_senseless_price_is_refused_and_the_refusal_audited(client, finance, change, status, code):
    answer = post(client, finance, body(**change))
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert AuditEntry.objects.filter(action="request.refused").count() == 1


def test_back_dating_into_metered_time_is_a_conflict(client, finance):
    post(client, finance, body())
    record_runs([make_run(Cluster.objects.get())])
    answer = post(client, finance, body(unit_price="3"))
    assert (answer.status_code, answer.json()["code"]) == (409, "price_already_used")


def test_prices_are_filtered_by_cluster_and_flavor_and_hidden_from_strangers(client, finance):
    post(client, finance, body())
    stranger = make_user()
    bind(stranger, "other", "admin")

    def amounts(headers=finance, **query):
        answer = client.get("/api/v1/prices", query, headers=headers)
        return [Decimal(item["unit_price"]["amount"]) for item in answer.json()["items"]]

    assert amounts(cluster="north") == amounts(flavor="h100") == [Decimal("2.5")]
    assert amounts(flavor="a100") == amounts(bearer(stranger)) == []
    assert client.get("/api/v1/prices", {"cluster": "north"}, headers=bearer(stranger)).status_code == 404
    assert post(client, bearer(stranger), body()).status_code == 404


def test_a_viewer_may_read_prices_and_not_set_them(client, finance):
    viewer = make_user()
    bind(viewer, "acme", "viewer")
    assert client.get("/api/v1/prices", headers=bearer(viewer)).status_code == 200
    answer = post(client, bearer(viewer), body())
    assert (answer.status_code, answer.json()["code"]) == (403, "permission_denied")
