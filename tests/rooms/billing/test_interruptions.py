"""How often spot capacity is interrupted is told with its price, and the database keeps it within bounds."""

from decimal import Decimal

import pytest
from django.db import IntegrityError, connection, transaction

from billing.models import Price
from billing.operations import create_price
from billing.operations.prices import NewPrice
from billing.queries import price_book
from foundation.clock import now
from foundation.problems import Invalid
from tenancy.models import AuditEntry
from tenancy.queries import SYSTEM
from tests.builders import bearer, bind, make_cluster, make_flavor, make_user
from tests.refusals import constraint_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def north():
    cluster = make_cluster(name="north")
    make_flavor(cluster, "h100")
    make_flavor(cluster, "h100-spot", capacity_type="spot")
    return cluster


def put(often, flavor="h100-spot"):
    return create_price(SYSTEM, NewPrice("north", flavor, Decimal(1), interruptions_per_hour=often))


def test_it_stands_with_the_price_and_in_the_audit_trail(north):
    put(Decimal("0.25"))
    assert price_book(now())[north.id, "h100-spot"].interruptions_per_hour == Decimal("0.25")
    assert AuditEntry.objects.get(action="price.create").detail["interruptions_per_hour"] == "0.25"


def test_only_spot_is_interrupted(north):
    with pytest.raises(Invalid) as refused:
        put(Decimal(0), "h100")
    assert [(error.field, error.code) for error in refused.value.errors] == [("interruptions_per_hour", "not_spot")]
    assert put(None, "h100").interruptions_per_hour is None


INSERT = (
    "INSERT INTO billing_price (id, rate_id, unit_price, currency, valid, interruptions_per_hour)"
    " SELECT gen_random_uuid(), id, 1, 'USD', '[2020-01-01T00:00Z,2020-01-02T00:00Z)', {} FROM billing_rate"
    " WHERE capacity_type = '{}'"
)


@pytest.mark.parametrize(
    ("statement", "constraint"),
    [
        (INSERT.format("-0.000001", "spot"), "interruptions_are_within_bounds"),
        (INSERT.format("100.000001", "spot"), "interruptions_are_within_bounds"),
        (INSERT.format("'NaN'", "spot"), "interruptions_are_within_bounds"),
        (INSERT.format("0", "on_demand"), "only_spot_is_interrupted"),
        ("UPDATE billing_price SET interruptions_per_hour = 0", "price_stands"),
        ("UPDATE billing_price SET interruptions_per_hour = NULL WHERE unit_price = 1", "price_stands"),
    ],
)
def test_the_database_refuses(north, statement, constraint):
    put(Decimal("0.25"))
    put(None, "h100")
    with pytest.raises(IntegrityError) as refused, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)
    assert constraint_of(refused.value) == constraint


def test_the_database_takes_what_is_within_bounds(north):
    put(Decimal("0.25"))
    with connection.cursor() as cursor:
        cursor.execute(INSERT.format("100", "spot"))
    assert Price.objects.get(interruptions_per_hour=100).rate.flavor == "h100-spot"


def test_over_http_and_on_the_page(north, client):
    user = make_user()
    bind(user, "acme", "finance")
    body = {"cluster": "north", "flavor": "h100-spot", "unit_price": "1.20", "interruptions_per_hour": "0.10"}

    def post(**change):
        return client.post("/api/v1/prices", body | change, content_type="application/json", headers=bearer(user))

    assert post().json()["interruptions_per_hour"] == "0.100000"
    assert post(interruptions_per_hour=None).json()["interruptions_per_hour"] is None
    for value, code in (
        ("-1", "bad_format"), ("NaN", "bad_format"), ("", "bad_format"), (0.1, "bad_format"), ("\u0660", "bad_format"),
        ([], "bad_format"), ("0.1234567", "bad_format"), ("100.1", "out_of_range"), ("999999999", "out_of_range"),
    ):  # fmt: skip
        refused = post(interruptions_per_hour=value)
        assert refused.status_code == 422
        assert [(e["field"], e["code"]) for e in refused.json()["errors"]] == [("interruptions_per_hour", code)]
    assert [e["code"] for e in post(flavor="h100").json()["errors"]] == ["not_spot"]

    client.force_login(user)
    typed = {"cluster": "north", "flavor": "h100-spot", "unit_price": "3", "currency": "USD"}
    for bad in ("Infinity", "-0.1", "101", "often"):
        assert b"a number such as 0.05" in client.post("/prices/", typed | {"interruptions_per_hour": bad}).content
    assert client.post("/prices/", typed | {"interruptions_per_hour": " 0.5 "}).status_code == 302
    assert Price.objects.get(unit_price=3).interruptions_per_hour == Decimal("0.5")
    assert b"0.5 interruptions per hour" in client.get("/prices/").content
