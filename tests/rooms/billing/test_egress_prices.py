"""Egress prices: which one holds, over HTTP and on their page, and the database as their last judge."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.db import IntegrityError, connection, transaction
from hypothesis import given
from hypothesis import strategies as st

from billing.engine.egress import EgressRate, rate_between
from billing.models import EgressPrice
from billing.operations import create_price
from billing.operations.egress import NewEgressPrice, create_egress_price, end_egress_price
from billing.operations.prices import NewPrice
from billing.queries import egress_rates
from foundation.clock import now
from tenancy.models import AuditEntry
from tenancy.queries import SYSTEM
from tests.builders import bind, make_cluster, make_flavor, make_tenant, make_user
from tests.refusals import constraint_of

NOW = datetime(2026, 3, 1, tzinfo=UTC)
DAY = timedelta(days=1)


def rate(from_region, to_region, price="1", since=NOW, until=None):
    return EgressRate("acme", from_region, to_region, Decimal(price), "USD", since, until)


def held(rates, source="eu-west-1", target="us-east", at=NOW):
    found = rate_between(rates, source, target, at)
    return None if found is None else str(found.price_per_gib)


def test_the_price_that_names_most_holds():
    anywhere, from_eu, to_us = rate("*", "*", "9"), rate("eu-*", "*", "5"), rate("*", "us-*", "6")
    both, exact, half = rate("eu-*", "us-*", "4"), rate("eu-west-1", "us-east", "1"), rate("eu-west-1", "*", "2")
    assert held([anywhere]) == "9"
    assert held([anywhere, to_us, from_eu]) == "5"
    assert held([anywhere, to_us, from_eu, both]) == "4"
    assert held([half, both, anywhere]) == "2"
    assert held([anywhere, from_eu, to_us, both, half, exact]) == "1"
    assert held([exact], target="us-west") is None
    assert held([]) is None


def test_a_price_holds_from_its_beginning_until_before_its_end():
    one = rate("*", "*", since=NOW, until=NOW + DAY)
    asked = [NOW - timedelta(microseconds=1), NOW, NOW + DAY - timedelta(microseconds=1), NOW + DAY]
    assert [held([one], at=at) for at in asked] == [None, "1", "1", None]


regions = st.sampled_from(["*", "eu-*", "eu-west-1", "us-*", "us-east", "*-1"])


@given(st.lists(st.tuples(regions, regions), min_size=1, unique=True), st.randoms())
def test_the_order_of_the_prices_never_matters(pairs, random):
    rates = [rate(start, end, price=str(number)) for number, (start, end) in enumerate(pairs)]
    shuffled = random.sample(rates, len(rates))
    assert held(rates) == held(shuffled)


def person(role, path="acme"):
    user = make_user()
    bind(user, path, role)
    return user


def wanted(**changes):
    return {"from_region": "eu-*", "to_region": "us-east", "price_per_gib": "0.02"} | changes


@pytest.mark.django_db
def test_prices_are_set_followed_and_ended_with_an_audit_entry_each(call):
    finance = person("finance")
    status, first = call(finance, "post", "/egress-prices", wanted())
    assert (status, first["organisation"], first["price_per_gib"]["amount"]) == (201, "acme", "0.020000")
    later = (now() + DAY).isoformat()
    _, second = call(finance, "post", "/egress-prices", wanted(price_per_gib="0.05", effective_from=later))
    assert call(finance, "get", f"/egress-prices/{first['id']}")[1]["effective_until"] == second["effective_from"]
    [active, announced] = egress_rates(now())
    assert (active.price_per_gib, announced.price_per_gib) == (Decimal("0.02"), Decimal("0.05"))
    assert active.until == announced.since
    assert call(finance, "delete", f"/egress-prices/{second['id']}") == (204, None)
    assert call(finance, "get", f"/egress-prices/{second['id']}")[0] == 404
    assert call(finance, "delete", f"/egress-prices/{first['id']}") == (204, None)
    assert call(finance, "delete", f"/egress-prices/{first['id']}")[1]["code"] == "state_conflict"
    assert egress_rates(now()) == ()
    actions = AuditEntry.objects.filter(object_kind="egress_price").order_by("id").values_list("action", flat=True)
    assert list(actions) == [f"egress_price.{verb}" for verb in ("create", "create", "end", "end")]


@pytest.mark.django_db
def test_who_may_do_what_and_a_foreign_price_looks_absent(call):
    path = f"/egress-prices/{call(person('admin'), 'post', '/egress-prices', wanted())[1]['id']}"
    make_tenant("acme/team")
    below = person("manager", "acme/team")
    assert call(below, "get", path)[0] == 200
    assert call(below, "delete", path)[1]["code"] == "permission_denied"
    for poor in (below, person("finance", "acme/team"), person("submitter")):
        assert call(poor, "post", "/egress-prices", wanted())[1]["code"] == "permission_denied"
    stranger = person("admin", "globex")
    assert call(stranger, "get", path)[0] == call(stranger, "delete", path)[0] == 404
    assert call(stranger, "get", "/egress-prices")[1]["items"] == []
    assert call(stranger, "post", "/egress-prices", wanted(organisation="acme"))[0] == 404
    assert EgressPrice.objects.get().valid.upper is None


@pytest.mark.django_db
def test_whose_fleet_it_is_for_must_be_clear(call):
    both = person("admin")
    bind(both, "globex", "admin")
    make_tenant("acme/team")
    refused = call(both, "post", "/egress-prices", wanted())[1]
    assert [(e["field"], e["code"]) for e in refused["errors"]] == [("organisation", "required")]
    refused = call(both, "post", "/egress-prices", wanted(organisation="acme/team"))[1]
    assert [(e["field"], e["code"]) for e in refused["errors"]] == [("organisation", "not_an_organisation")]
    assert call(both, "post", "/egress-prices", wanted(organisation="globex"))[1]["organisation"] == "globex"


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("changes", "field", "code"),
    [
        ({"from_region": ""}, "from_region", "blank"),
        ({"from_region": "eu west"}, "from_region", "invalid"),
        ({"to_region": "[a]"}, "to_region", "invalid"),
        ({"to_region": "é"}, "to_region", "invalid"),
        ({"to_region": "a" * 64}, "to_region", "max_length"),
        ({"price_per_gib": 0.02}, "price_per_gib", "not_money"),
        ({"price_per_gib": "-1"}, "price_per_gib", "not_money"),
        ({"price_per_gib": "NaN"}, "price_per_gib", "not_money"),
        ({"price_per_gib": "0.1234567"}, "price_per_gib", "not_money"),
        ({"price_per_gib": "1000000.1"}, "price_per_gib", "out_of_range"),
        ({"effective_from": "2020-01-01T00:00:00Z"}, "effective_from", "in_the_past"),
        ({"effective_from": "tomorrow"}, "effective_from", "invalid"),
        ({"flavor": "h100"}, "flavor", "unknown_field"),
    ],
)
def test_bad_bodies_are_refused_by_their_field(call, changes, field, code):
    status, told = call(person("finance"), "post", "/egress-prices", wanted(**changes))
    assert status == 422
    assert (field, code) in {(error["field"], error["code"]) for error in told["errors"]}
    assert not EgressPrice.objects.exists()


@pytest.mark.django_db
def test_an_organisation_has_one_currency_whichever_price_came_first(call):
    finance = person("finance")
    euro = {"price_per_gib": {"amount": "1", "currency": "EUR"}}
    assert call(finance, "post", "/egress-prices", wanted(**euro))[0] == 201
    make_flavor(make_cluster(name="north"))
    refused = call(finance, "post", "/prices", {"cluster": "north", "flavor": "h100", "unit_price": "1"})[1]
    assert [error["code"] for error in refused["errors"]] == ["mixed_currencies"]
    create_price(SYSTEM, NewPrice("north", "h100", Decimal(1), "EUR"))
    refused = call(finance, "post", "/egress-prices", wanted())[1]
    assert [error["code"] for error in refused["errors"]] == ["mixed_currencies"]


AGAIN = (
    "INSERT INTO billing_egressprice (id, route_id, price_per_gib, currency, valid)"
    " SELECT gen_random_uuid(), route_id, {}, {}, {} FROM billing_egressprice"
)
SAME_ROUTE = """
    INSERT INTO billing_egressroute (owner_id, from_region, to_region)
    SELECT owner_id, from_region, to_region FROM billing_egressroute
"""
PAST = "'[2020-01-01T00:00Z,2020-01-02T00:00Z)'::tstzrange"


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("statement", "constraint"),
    [
        (AGAIN.format("-0.000001", "'USD'", PAST), "egress_price_is_within_bounds"),
        (AGAIN.format("'NaN'", "'USD'", PAST), "egress_price_is_within_bounds"),
        (AGAIN.format("1000000.1", "'USD'", PAST), "egress_price_is_within_bounds"),
        (AGAIN.format("1", "'usd'", PAST), "egress_currency_is_three_letters"),
        (AGAIN.format("1", "'USD'", "'(2020-01-01T00:00Z,2020-01-02T00:00Z]'"), "egress_price_period_is_half_open"),
        (AGAIN.format("1", "'USD'", "'empty'"), "egress_price_period_is_half_open"),
        (AGAIN.format("1", "'USD'", "'[2020-01-01T00:00Z,)'"), "one_egress_price_at_a_time"),
        ("UPDATE billing_egressprice SET price_per_gib = 0", "egress_price_stands"),
        ("UPDATE billing_egressprice SET valid = '[2020-01-01T00:00Z,)'", "egress_price_stands"),
        ("UPDATE billing_egressroute SET from_region = '[x]'", "egress_regions_are_plain"),
        ("UPDATE billing_egressroute SET to_region = ''", "egress_regions_are_plain"),
        (
            SAME_ROUTE,
            "one_egress_route_per_pair",
        ),
    ],
)
def test_the_database_refuses(statement, constraint):
    make_tenant("acme")
    create_egress_price(SYSTEM, NewEgressPrice("eu-*", "us-*", Decimal("0.02")))
    with pytest.raises(IntegrityError) as refused, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)
    assert constraint_of(refused.value) == constraint


@pytest.mark.django_db
def test_an_ended_price_never_holds_longer_again():
    make_tenant("acme")
    price = create_egress_price(SYSTEM, NewEgressPrice("eu-*", "us-*", Decimal("0.02")))
    EgressPrice.objects.filter(id=price.id).update(valid=(price.valid.lower, price.valid.lower + DAY))
    end_egress_price(SYSTEM, price.id)
    with pytest.raises(IntegrityError, match="only its end may come nearer"), transaction.atomic():
        EgressPrice.objects.filter(id=price.id).update(valid=(price.valid.lower, None))


@pytest.mark.django_db
def test_the_page_sets_and_ends(client):
    finance = person("finance")
    client.force_login(finance)
    assert b"No egress prices yet" in client.get("/prices/egress/").content
    typed = {"from_region": "eu-*", "to_region": "*", "price_per_gib": "0.02", "currency": "usd", "effective_from": ""}
    for field, bad in (
        ("from_region", "<b>"), ("to_region", ""), ("price_per_gib", "Infinity"), ("price_per_gib", "-1"),
        ("currency", "dollar"), ("effective_from", "soon"), ("effective_from", "2020-01-01"),
    ):  # fmt: skip
        refused = client.post("/prices/egress/", typed | {field: bad})
        assert (refused.status_code, f'id="e-{field}"' in refused.content.decode()) == (422, True), field
    assert client.post("/prices/egress/", typed).status_code == 302
    price = EgressPrice.objects.get()
    assert b"0.02 USD" in client.get("/prices/egress/").content
    client.force_login(person("viewer"))
    assert b"Set an egress price" not in client.get("/prices/egress/").content
    assert client.post(f"/prices/egress/{price.id}/end/").status_code == 403
    client.force_login(person("admin", "globex"))
    assert client.post(f"/prices/egress/{price.id}/end/").status_code == 404
    client.force_login(finance)
    assert client.post(f"/prices/egress/{price.id}/end/").status_code == 302
    assert egress_rates(now()) == ()
