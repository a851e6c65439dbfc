"""Prices from own costs: the example of the document, laws of the formula, and every bound."""

import re
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given

from billing.engine.own_costs import (
    INPUTS,
    OPTIONAL,
    NotOwnCosts,
    OwnCosts,
    read_own_costs,
    steps_of,
    stored_costs,
)
from tests.laws import examples
from tests.own_costs import DOCUMENT, FREE, MODELS, SUPPORT, TEXTS

COLUMNS = ("per_month", "per_node_hour", "per_unit_hour")
COSTS = (
    "purchase_price", "spares_percent", "power_watts", "load_percent", "pue", "electricity_price", "space_cost", "network_cost",
    "support_percent", "staff_cost", "capital_percent", "margin_percent",
)  # fmt: skip


def read(**changes):
    """The example with these inputs changed; None: not given."""
    return read_own_costs("EUR", {name: text for name, text in (TEXTS | changes).items() if text is not None})


def faults(**changes):
    with pytest.raises(NotOwnCosts) as refused:
        read(**changes)
    return [(name, code) for name, code, _ in refused.value.faults]


def exact(costs):
    """The rate by the formula as the document writes it, not rounded."""
    c = {name: Fraction(text) for name, text in costs.as_text().items()}
    bought = c["nodes"] * (100 + c["spares_percent"]) / 100
    support = (
        c["support_cost"] / 12 if "support_cost" in c else bought * c["purchase_price"] * c["support_percent"] / 1200
    )
    cost = (
        bought * (c["purchase_price"] - c["residual_value"]) / c["life_months"]
        + bought * (c["purchase_price"] + c["residual_value"]) / 2 * c["capital_percent"] / 1200
        + c["nodes"] * c["power_watts"] * c["load_percent"] * c["pue"] * 730 * c["electricity_price"] / 100_000
        + bought * (c["space_cost"] + c["network_cost"])
        + support
        + c["staff_cost"]
    )
    sold = c["nodes"] * 730 * c["units_per_node"] * c["utilisation_percent"] / 100
    return cost * (100 + c["margin_percent"]) / 100 / sold


def drawn(texts, support):
    """What was drawn, if it is a model: no more is left than was paid, and the rate is within bounds."""
    if Decimal(texts["residual_value"]) > Decimal(texts["purchase_price"]):
        texts = texts | {"residual_value": texts["purchase_price"], "purchase_price": texts["residual_value"]}
    try:
        return read_own_costs("EUR", texts | support)
    except NotOwnCosts as refused:
        if [fault[:2] for fault in refused.faults] != [("", "out_of_range")]:
            raise
        return None


def test_the_example_of_the_document_is_what_the_engine_computes():
    steps = steps_of(read())
    table = re.findall(r"^\| (\w+) \| ([0-9.]+) \| ([0-9.]+) \| ([0-9.]+) \|$", DOCUMENT, re.MULTILINE)
    said = {name: tuple(figures) for name, *figures in table if name in {"total", *(one.name for one in steps.parts)}}
    assert said == {
        one.name: tuple(f"{getattr(one, column):f}" for column in COLUMNS) for one in (*steps.parts, steps.total)
    }
    assert f"{steps.node_hours} node-hours" in DOCUMENT
    assert f"{steps.unit_hours} unit-hours, of which {steps.sold_unit_hours.normalize():f} are sold" in DOCUMENT
    assert f"({steps.rate} EUR)" in DOCUMENT


def test_the_document_lists_every_input_with_its_bounds():
    rows = dict(re.findall(r"^\| `(\w+)` \| [^|]+ \| ([0-9.]+ \| [0-9.]+) \|$", DOCUMENT, re.MULTILINE))
    assert rows == {name: f"{bounds.least:f} | {bounds.most:f}" for name, bounds in INPUTS.items()}


@pytest.mark.law
@examples(200)
@given(MODELS, SUPPORT)
def test_the_parts_of_each_column_add_up_and_the_rate_is_the_exact_one_rounded_once(texts, support):
    costs = drawn(texts, support)
    if costs is None:
        return
    steps = steps_of(costs)
    for column in COLUMNS:
        assert sum(getattr(one, column) for one in steps.parts) == getattr(steps.total, column)
        assert all(getattr(one, column) >= 0 for one in steps.parts)
    assert steps.rate == Decimal(round(exact(costs) * 10**6)).scaleb(-6)
    assert stored_costs(costs.stored()) == costs


@pytest.mark.parametrize("name", COSTS)
def test_a_higher_cost_gives_a_higher_rate(name):
    most = INPUTS[name].most
    usual = Decimal(TEXTS[name])
    least = Decimal(TEXTS["residual_value"]) if name == "purchase_price" else INPUTS[name].least
    values = sorted([least, usual, usual + Decimal("0.01"), min(most, usual * 3)])
    rates = [steps_of(read(**{name: f"{value:f}"})).rate for value in values]
    assert rates == sorted(rates)
    assert rates[0] < rates[1] < rates[-1]


def test_a_longer_life_more_residual_value_units_and_utilisation_give_a_lower_rate():
    for name, texts in {
        "life_months": ("12", "60", "240"),
        "residual_value": ("0", "28000", "280000"),
        "units_per_node": ("1", "8", "56"),
        "utilisation_percent": ("1", "75", "100"),
        "nodes": ("1", "16", "1000"),
    }.items():
        rates = [steps_of(read(**{name: text})).rate for text in texts]
        assert rates == sorted(rates, reverse=True), name
        assert len(set(rates)) == len(rates), name


@pytest.mark.law
@examples(100)
@given(MODELS, SUPPORT)
def test_laws_of_scale(texts, support):
    costs = drawn(texts, support)
    if costs is None:
        return
    twice = replace(
        costs,
        nodes=costs.nodes * 2,
        staff_cost=costs.staff_cost * 2,
        support_cost=None if costs.support_cost is None else costs.support_cost * 2,
    )
    assert steps_of(twice).rate == steps_of(costs).rate
    half = replace(costs, utilisation_percent=costs.utilisation_percent / 2)
    assert exact(half) == exact(costs) * 2
    assert abs(steps_of(half).rate - steps_of(costs).rate * 2) <= Decimal("0.000002")
    assert steps_of(half).total.per_month == steps_of(costs).total.per_month
    units = replace(costs, units_per_node=costs.units_per_node * 2)
    assert abs(steps_of(units).rate * 2 - steps_of(costs).rate) <= Decimal("0.000002")


def test_no_cost_gives_no_price_and_ties_round_to_even():
    steps = steps_of(read(**FREE))
    assert {getattr(one, column) for one in (*steps.parts, steps.total) for column in COLUMNS} == {Decimal(0)}
    for millionths, expected in ((1, "0.000000"), (3, "0.000002"), (5, "0.000002"), (7, "0.000004")):
        staff = f"{Decimal(730 * millionths).scaleb(-6) / 2:f}"
        assert steps_of(read(**FREE | {"staff_cost": staff})).rate == Decimal(expected)


def test_support_is_an_amount_or_a_percentage():
    assert faults(support_cost="1") == [("support_percent", "given_twice")]
    assert faults(support_percent=None) == [("support_cost", "required")]
    bought = Decimal(16) * 105 / 100 * 280_000
    same = steps_of(read(support_percent=None, support_cost=f"{bought * 6 / 100:f}"))
    assert same == steps_of(read())


@pytest.mark.parametrize("name", [name for name in INPUTS if name not in OPTIONAL])
def test_an_input_that_is_absent_or_empty_is_required(name):
    assert faults(**{name: None}) == [(name, "required")] == faults(**{name: ""})


@pytest.mark.parametrize("name", INPUTS)
def test_what_is_no_number_is_refused(name):
    other = {"support_percent": None} if name == "support_cost" else {}
    words = [
        "NaN", "-1", "-0", "+1", "1e3", "Infinity", " 1", "1 ", "1\n", "1,5", "1_0", ".5", "5.", "0x1", "٣", "1" * 30, "1" * 5000,
        "0." + "0" * 7, "true",
    ]  # fmt: skip
    for text in (*words, *(["1.0"] if INPUTS[name].whole else [])):
        assert faults(**other | {name: text}) == [(name, "bad_format")], text


@pytest.mark.parametrize("name", INPUTS)
def test_each_input_is_taken_at_its_bounds_and_refused_beyond(name):
    bounds = INPUTS[name]
    rest = {"residual_value": "0"} | ({"support_percent": None} if name == "support_cost" else {})
    if name == "electricity_price":
        rest["power_watts"] = "1000"
    if name == "residual_value":
        rest["purchase_price"] = f"{bounds.most:f}"
    for text in (f"{bounds.least:f}", f"{bounds.most:f}"):
        assert getattr(read(**rest | {name: text}), name) == Decimal(text)
    step = Decimal(1) if bounds.whole else Decimal("0.000001")
    below, above = bounds.least - step, bounds.most + step
    if below >= 0:
        assert faults(**rest | {name: f"{below:f}"}) == [(name, "out_of_range")]
    assert faults(**rest | {name: f"{above:f}"}) == [(name, "out_of_range" if above < 10**9 else "bad_format")]


def test_more_cannot_be_left_than_was_paid_and_an_absurd_rate_is_refused():
    assert faults(residual_value="280000.000001") == [("residual_value", "out_of_range")]
    huge = {"purchase_price": "999999999", "life_months": "1", "units_per_node": "1", "utilisation_percent": "1"}
    assert faults(**huge, margin_percent="1000") == [("", "out_of_range")]
    bound = FREE | {"utilisation_percent": "1", "margin_percent": "900"}
    assert faults(**bound | {"staff_cost": "730000000"}) == [("", "out_of_range")]
    assert steps_of(read(**bound | {"staff_cost": "729999999.999999"})).rate == Decimal("999999999.999999")


def test_a_currency_is_one_that_exists_and_every_fault_is_named():
    with pytest.raises(NotOwnCosts) as refused:
        read_own_costs("XXY", {"nodes": "0"})
    named = {name: code for name, code, _ in refused.value.faults}
    assert named["currency"] == "unknown_currency"
    assert named["nodes"] == "out_of_range"
    assert set(named) == {"currency", *(name for name in INPUTS if name != "support_percent")}


def test_without_a_currency_one_is_asked_for():
    with pytest.raises(NotOwnCosts) as refused:
        read_own_costs("", TEXTS)
    assert [fault[:2] for fault in refused.value.faults] == [("currency", "required")]


def test_zeros_that_say_nothing_are_not_kept():
    costs = read(purchase_price="000280000.100000", nodes="016")
    assert isinstance(costs, OwnCosts)
    kept = costs.stored()
    assert (kept["formula"], kept["currency"], kept["purchase_price"], kept["nodes"]) == (1, "EUR", "280000.1", "16")
    assert "support_cost" not in kept
