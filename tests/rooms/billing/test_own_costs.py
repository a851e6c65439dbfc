"""Prices from own costs: over HTTP, on the page, in the database, and who may see them."""

import json
from decimal import Decimal
from itertools import product

import pytest
from django.db import connection

from billing.engine.own_costs import read_own_costs
from billing.models import Price, PriceCorrection, Rate
from billing.operations import create_price, record_runs
from billing.operations.prices import NewPrice
from billing.queries import price_book
from clusters.models import Cluster
from foundation.ids import new_id
from tenancy.models import AuditEntry
from tenancy.queries import SYSTEM
from tests.builders import bearer, bind, make_cluster, make_flavor, make_run, make_tenant, make_user
from tests.own_costs import EXAMPLE, TEXTS
from tests.processes_role import as_processes
from tests.refusals import refusal_of

from .ledgers import at

pytestmark = pytest.mark.django_db
RATE = "2.436170"
FORM = {"cluster": "north", "flavor": "h100", "currency": "EUR", **TEXTS}


@pytest.fixture
def north():
    cluster = make_cluster(name="north")
    make_flavor(cluster, "h100")
    return cluster


@pytest.fixture
def finance(north):
    return someone("finance")


def someone(role, path="acme"):
    make_tenant(path)
    user = make_user()
    bind(user, path, role)
    return user


def body(**changes):
    found = {"cluster": "north", "flavor": "h100", "model": EXAMPLE} | changes
    return {name: value for name, value in found.items() if value is not None}


def model(**changes):
    found = EXAMPLE | changes
    return {name: value for name, value in found.items() if value is not ...}


def post(client, user, fields, path="/prices"):
    return client.post(f"/api/v1{path}", fields, content_type="application/json", headers=bearer(user))


def faults(answer):
    return {(one["field"], one["code"]) for one in answer.json()["errors"]}


def priced(**more):
    costs = read_own_costs("EUR", TEXTS)
    return create_price(SYSTEM, NewPrice.from_own_costs("north", "h100", costs, **more))


def test_the_model_shows_its_steps_and_stores_nothing(client, finance):
    before = AuditEntry.objects.count()
    tried = post(client, finance, body(), "/prices/model")
    assert (tried.status_code, Price.objects.count(), Rate.objects.count()) == (200, 0, 0)
    shown = tried.json()
    assert shown["unit_price"] == {"amount": RATE, "currency": "EUR"}
    found = shown["model"]
    assert (found["formula"], found["inputs"]) == (1, EXAMPLE)
    assert (found["node_hours"], found["unit_hours"], found["sold_unit_hours"]) == ("11680", "93440", "70080")
    for column in ("per_month", "per_node_hour", "per_unit_hour"):
        assert sum(Decimal(one[column]) for one in found["parts"]) == Decimal(found["total"][column])
    assert found["total"]["per_unit_hour"] == RATE
    assert AuditEntry.objects.count() == before


def test_a_price_takes_the_model_and_keeps_it(client, finance, north):
    made = post(client, finance, body(effective_from="2026-11-01T00:00:00Z"))
    assert made.status_code == 201
    tried = post(client, finance, body(), "/prices/model").json()
    assert (made.json()["unit_price"], made.json()["model"]) == (tried["unit_price"], tried["model"])
    price = Price.objects.get()
    assert price.own_costs == {"formula": 1, "currency": "EUR", **TEXTS}
    read = client.get(f"/api/v1/prices/{price.id}", headers=bearer(finance))
    listed = client.get("/api/v1/prices", headers=bearer(finance)).json()["items"]
    assert read.json() == made.json() == listed[0]
    entry = AuditEntry.objects.get(action="price.create")
    assert entry.detail["formula"] == 1
    assert "purchase_price" not in entry.detail


def test_a_charged_price_says_years_later_where_it_came_from(client, finance, north):
    priced(effective_from=at(1))
    record_runs([make_run(north, started_at=at(5, 10), until_at=at(5, 12))])
    create_price(SYSTEM, NewPrice("north", "h100", Decimal(9), "EUR", effective_from=at(6)))
    old, new = Price.objects.order_by("valid")
    assert price_book(at(5))[north.id, "h100"].unit_price == Decimal(RATE)
    shown = client.get(f"/api/v1/prices/{old.id}", headers=bearer(finance)).json()
    assert (shown["model"]["inputs"], shown["effective_until"]) == (EXAMPLE, "2026-10-06T00:00:00.000Z")
    assert client.get(f"/api/v1/prices/{new.id}", headers=bearer(finance)).json()["model"] is None


def test_costs_are_shown_to_those_who_may_set_the_price_and_the_price_to_all(client, finance):
    price = priced()
    make_tenant("acme/one")
    for role, path in product(("viewer", "admin", "finance"), ("acme", "acme/one")):
        user, sees = someone(role, path), role != "viewer" and path == "acme"
        client.force_login(user)
        one = client.get(f"/api/v1/prices/{price.id}", headers=bearer(user)).json()
        listed = client.get("/api/v1/prices", headers=bearer(user)).json()["items"]
        assert one in listed
        assert one["unit_price"]["amount"] == RATE
        page = client.get(f"/prices/{price.id}/").content.decode()
        assert [one["model"] is not None, "280000" in page] == [sees] * 2, (role, path)
        assert all((other["model"] is not None) == sees for other in listed)
        for address, more, status in (
            ("/prices", {"effective_from": "2099-01-01T00:00:00Z"}, 201),
            ("/prices/model", {}, 200),
        ):
            answer = post(client, user, body(**more), address)
            assert answer.status_code == (status if sees else 403), (role, path, address)
    stranger = someone("admin", "other")
    assert client.get(f"/api/v1/prices/{price.id}", headers=bearer(stranger)).status_code == 404
    for path in ("/prices", "/prices/model"):
        assert post(client, stranger, body(), path).status_code == 404


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        *(({name: ...}, (f"model.{name}", "required")) for name in EXAMPLE if name != "support_percent"),
        ({"support_percent": ...}, ("model.support_cost", "required")),
        ({"support_cost": "1"}, ("model.support_percent", "given_twice")),
        ({"residual_value": "280000.01"}, ("model.residual_value", "out_of_range")),
        ({"utilisation_percent": "0"}, ("model.utilisation_percent", "out_of_range")),
        ({"life_months": 0}, ("model.life_months", "out_of_range")),
        ({"life_months": "60"}, ("model.life_months", "invalid")),
        ({"life_months": 60.0}, ("model.life_months", "invalid")),
        ({"nodes": True}, ("model.nodes", "invalid")),
        ({"nodes": -1}, ("model.nodes", "bad_format")),
        ({"nodes": 10**30}, ("model.nodes", "bad_format")),
        ({"nodes": None}, ("model.nodes", "null")),
        ({"purchase_price": 280000}, ("model.purchase_price", "invalid")),
        ({"purchase_price": "NaN"}, ("model.purchase_price", "bad_format")),
        ({"purchase_price": "-1"}, ("model.purchase_price", "bad_format")),
        ({"purchase_price": "9" * 30}, ("model.purchase_price", "bad_format")),
        ({"purchase_price": {"amount": "1", "currency": "USD"}}, ("model.purchase_price", "invalid")),
        ({"pue": "0.9"}, ("model.pue", "out_of_range")),
        ({"currency": "XXY"}, ("model.currency", "unknown_currency")),
        ({"formula": 2}, ("model.formula", "unknown_field")),
        (
            {"purchase_price": "999999999", "life_months": 1, "units_per_node": 1, "utilisation_percent": "1", "margin_percent": "999"},
            ("model", "out_of_range"),
        ),
    ],
)  # fmt: skip
def test_each_fault_is_named_at_its_field(client, finance, changes, expected):
    for path in ("/prices", "/prices/model"):
        answer = post(client, finance, body(model=model(**changes)), path)
        assert (answer.status_code, faults(answer)) == (422, {expected}), path
    assert not Price.objects.exists()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"model": None}, ("unit_price", "required")),
        ({"unit_price": "2"}, ("model", "given_twice")),
        ({"model": []}, ("model", "not_an_object")),
        ({"cpu_price": {"amount": "1", "currency": "USD"}}, ("cpu_price", "mixed_currencies")),
        ({"flavor": "b200"}, ("flavor", "unknown_flavor")),
        ({"capacity_type": "spot"}, ("capacity_type", "unknown_capacity_type")),
    ],
)
def test_a_price_has_one_source_and_one_currency(client, finance, changes, expected):
    answer = post(client, finance, body(**changes))
    assert (answer.status_code, faults(answer)) == (422, {expected})
    assert not Price.objects.exists()


def test_an_organisations_prices_stay_in_one_currency(client, finance, north):
    create_price(SYSTEM, NewPrice("north", "h100", Decimal(2), "USD"))
    answer = post(client, finance, body())
    assert (answer.status_code, faults(answer)) == (422, {("currency", "mixed_currencies")})


def test_a_repeated_request_sets_one_price(client, finance):
    headers = {**bearer(finance), "Idempotency-Key": "once"}
    answers = [
        client.post("/api/v1/prices", body(), content_type="application/json", headers=headers).json() for _ in range(2)
    ]
    assert answers[0] == answers[1]
    assert Price.objects.count() == 1


def forged(amount, kept, currency="EUR"):
    north = Cluster.objects.get(name="north")
    rate, _ = Rate.objects.get_or_create(cluster=north, flavor="h100", capacity_type="on_demand")
    text = json.dumps(kept).replace("'", "''")
    return (
        "INSERT INTO billing_price (id, rate_id, unit_price, currency, valid, own_costs) VALUES"
        f" ('{new_id()}', {rate.id}, {amount}, '{currency}', tstzrange('2031-01-01+00', NULL), '{text}'::jsonb)"
    )


GOOD = {"formula": 1, "currency": "EUR", **TEXTS}


@pytest.mark.parametrize(
    ("amount", "kept", "currency"),
    [
        ("2.436171", GOOD, "EUR"),
        ("2.43617", GOOD | {"margin_percent": "11"}, "EUR"),
        ("2.43617", GOOD | {"formula": 2}, "EUR"),
        ("2.43617", GOOD | {"formula": "1"}, "EUR"),
        ("2.43617", GOOD, "USD"),
        ("2.43617", GOOD | {"currency": None}, "EUR"),
        *(("2.43617", {k: v for k, v in GOOD.items() if k != name}, "EUR") for name in GOOD),
        ("2.43617", GOOD | {"nodes": 16}, "EUR"),
        ("2.43617", GOOD | {"purchase_price": "2.8e5"}, "EUR"),
        ("2.43617", GOOD | {"more": "<b>"}, "EUR"),
        ("2.43617", GOOD | {"life_months": "0"}, "EUR"),
        ("'NaN'", GOOD | {"staff_cost": "NaN"}, "EUR"),
        ("2.43617", None, "EUR"),
        ("2.43617", [], "EUR"),
        ("2.43617", "x", "EUR"),
        ("2.43617", {}, "EUR"),
    ],
)
def test_raw_sql_cannot_keep_costs_that_do_not_give_the_price(north, amount, kept, currency):
    assert refusal_of(forged(amount, kept, currency)) == "price_is_what_its_costs_give"


def test_raw_sql_can_keep_the_costs_that_do(north):
    with connection.cursor() as cursor:
        cursor.execute(forged("2.43617", GOOD))
    assert Price.objects.get().own_costs == GOOD


@pytest.mark.parametrize(
    "change",
    ["own_costs = NULL", "own_costs = own_costs || '{\"margin_percent\": \"11\"}'", "own_costs = own_costs || '{\"note\": \"x\"}'"],
)  # fmt: skip
def test_kept_costs_never_change(north, processes_role, change):
    price = priced()
    with as_processes():
        assert refusal_of(f"UPDATE billing_price SET {change} WHERE id = '{price.id}'") == "price_stands"


def test_costs_cannot_be_added_to_a_price_that_was_given(north):
    price = create_price(SYSTEM, NewPrice("north", "h100", Decimal(RATE), "EUR"))
    statement = f"UPDATE billing_price SET own_costs = '{json.dumps(GOOD)}' WHERE id = '{price.id}'"
    assert refusal_of(statement) == "price_stands"


def test_the_page_shows_the_steps_then_sets_what_it_has_shown(client, finance):
    client.force_login(finance)
    empty = client.get("/prices/own-costs/").content.decode()
    assert "Set the price" not in empty
    assert 'placeholder="280000"' in empty
    assert 'value="280000"' not in empty
    shown = client.post("/prices/own-costs/", FORM | {"what": "steps"})
    text = shown.content.decode()
    assert (shown.status_code, Price.objects.count()) == (200, 0)
    for words in (
        "2.43617 EUR",
        "1.006849 EUR",
        "70,560.00 EUR",
        "70,080 are sold",
        'value="2.436170 EUR"',
        "Set the price",
    ):
        assert words in text, words

    changed = client.post("/prices/own-costs/", FORM | {"what": "set", "shown": "2.436170 EUR", "margin_percent": "20"})
    assert (changed.status_code, Price.objects.count()) == (409, 0)
    assert "not the one that was shown" in changed.content.decode()
    assert 'value="2.657640 EUR"' in changed.content.decode()
    for shown_before in ("", "2.436170 USD", "2.43617 EUR"):
        refused = client.post("/prices/own-costs/", FORM | {"what": "set", "shown": shown_before})
        assert (refused.status_code, Price.objects.count()) == (409, 0)

    made = client.post("/prices/own-costs/", FORM | {"what": "set", "shown": "2.436170 EUR"})
    price = Price.objects.get()
    assert (made.status_code, made["Location"]) == (302, f"/prices/{price.id}/")
    assert (price.unit_price, price.own_costs) == (Decimal(RATE), GOOD)
    page = client.get(f"/prices/{price.id}/").content.decode()
    for words in ("From own costs", "Purchase price per node", "280000", "1.006849 EUR", "2.43617 EUR"):
        assert words in page, words
    assert not PriceCorrection.objects.exists()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        *(({name: ""}, "give a number; 0 if there is none") for name in TEXTS if name != "support_percent"),
        ({"support_percent": ""}, "give an amount, or a percentage"),
        ({"support_cost": "1"}, "not both"),
        ({"currency": ""}, "give a currency such as EUR"),
        ({"currency": "XXY"}, "is no currency"),
        ({"flavor": ""}, "name the flavor"),
        ({"flavor": "b200"}, "offers no flavor"),
        ({"effective_from": "soon"}, "a day such as"),
        ({"utilisation_percent": "0"}, "from 1 to 100"),
        ({"nodes": "1.5"}, "a whole number"),
        ({"pue": "<script>"}, "a number such as"),
    ],
)
def test_a_mistake_is_named_on_the_page_and_nothing_is_set(client, finance, changes, words):
    client.force_login(finance)
    for what in ("steps", "set"):
        refused = client.post("/prices/own-costs/", FORM | {"what": what, "shown": "2.436170 EUR"} | changes)
        assert refused.status_code == 422
        assert words in refused.content.decode()
        assert 'value="<script>"' not in refused.content.decode()
    assert not Price.objects.exists()


def test_only_managers_of_prices_open_the_page_and_see_the_link(client, finance):
    for role, path, status in (
        ("viewer", "acme", 403), ("submitter", "acme", 403), ("manager", "acme", 403), ("admin", "acme", 200), ("finance", "acme", 200),
    ):  # fmt: skip
        client.force_login(someone(role, path))
        assert client.get("/prices/own-costs/").status_code == status, role
        for page in ("/prices/", "/prices/egress/"):
            assert ("/prices/own-costs/" in client.get(page).content.decode()) == (status == 200), (role, page)
    client.force_login(someone("admin", "other"))
    other = client.get("/prices/own-costs/").content.decode()
    assert "north" not in other
    for what in ("steps", "set"):
        answer = client.post("/prices/own-costs/", FORM | {"what": what, "shown": "2.436170 EUR"})
        assert answer.status_code == 404
    assert not Price.objects.exists()


def test_the_form_begins_with_the_costs_of_a_price_for_those_who_may_set_it(client, finance):
    price = priced()
    given_ = create_price(SYSTEM, NewPrice("north", "h100", Decimal(2), "EUR", effective_from=at(1, month=12)))
    client.force_login(finance)
    address = f"/prices/own-costs/?price={price.id}"
    assert address in client.get(f"/prices/{price.id}/").content.decode()
    page = client.get(address).content.decode()
    for name, text in TEXTS.items():
        assert f'name="{name}" type="text" value="{text}"' in page, name
    other = client.get(f"/prices/own-costs/?price={given_.id}").content.decode()
    assert 'name="flavor" type="text" value="h100"' in other
    assert 'name="nodes" type="text" value=""' in other
    for nothing in (new_id(), "x", "%00", "1" * 5000):
        assert client.get(f"/prices/own-costs/?price={nothing}").status_code == 404
    for role, path, status in (("finance", "acme/one", 403), ("viewer", "acme", 403), ("admin", "other", 404)):
        client.force_login(someone(role, path))
        assert client.get(address).status_code == status, (role, path)
