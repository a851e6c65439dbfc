"""The database computes the rate of own costs as the engine does."""

import json
from decimal import Decimal
from fractions import Fraction

import pytest
from django.db import connection
from hypothesis import given
from hypothesis import strategies as st

from billing.engine.own_costs import INPUTS, NotOwnCosts, rate_of, read_own_costs
from tests.laws import examples
from tests.own_costs import FREE, MODELS, SUPPORT, TEXTS

pytestmark = pytest.mark.django_db


def sql_rate(costs):
    with connection.cursor() as cursor:
        cursor.execute("SELECT billing_own_cost_rate(%s::jsonb)", [json.dumps(costs.stored())])
        return cursor.fetchone()[0]


@pytest.mark.parametrize("millionths", range(20))
def test_the_database_rounds_ties_as_the_engine_does(millionths):
    staff = f"{Decimal(730 * millionths).scaleb(-6) / 2:f}"
    costs = read_own_costs(
        "EUR", {name: text for name, text in (FREE | {"staff_cost": staff}).items() if text is not None}
    )
    assert sql_rate(costs) == rate_of(costs) == Decimal(round(Fraction(millionths, 2))).scaleb(-6)


@pytest.mark.law
@examples(200)
@given(st.tuples(MODELS, SUPPORT))
def test_the_database_computes_what_the_engine_does(drawn):
    texts = drawn[0] | drawn[1]
    texts["residual_value"] = min(texts["residual_value"], texts["purchase_price"], key=Decimal)
    try:
        costs = read_own_costs("EUR", texts)
    except NotOwnCosts:
        return
    assert sql_rate(costs) == rate_of(costs)


def test_each_input_counts_in_the_database_as_in_the_engine():
    for name in INPUTS:
        other = {"support_percent": None} if name == "support_cost" else {}
        for text in ("1", "3", "7"):
            given_ = {k: v for k, v in (TEXTS | other | {name: text}).items() if v is not None}
            if name == "purchase_price":
                given_["residual_value"] = "1"
            if name == "pue" and text == "7":
                continue
            costs = read_own_costs("EUR", given_)
            assert sql_rate(costs) == rate_of(costs), (name, text)
