"""Bodies of the model of own costs."""

from collections.abc import Mapping
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from billing.engine.own_costs import FORMULA, INPUTS, OPTIONAL, NotOwnCosts, OwnCosts, Part, Steps, read_input
from billing.engine.own_costs import read_own_costs as read_texts
from foundation.problems import FieldError, Invalid
from foundation.shapes import StrictShape, Text

HELP = {
    "purchase_price": "Of a node.",
    "residual_value": "Of a node, after its life.",
    "life_months": "Depreciation is linear.",
    "nodes": "That run.",
    "units_per_node": "Units of the flavor: GPUs, MIG slices, shares, or cores.",
    "spares_percent": "Nodes that are bought in addition.",
    "power_watts": "Of a node at full load.",
    "load_percent": "Average share of that power.",
    "pue": "Power usage effectiveness of the data centre.",
    "electricity_price": "Per kWh.",
    "space_cost": "Per node and month.",
    "network_cost": "Per node and month.",
    "support_cost": "Of all nodes per year. Either this or `support_percent`.",
    "support_percent": "Of the purchase price per year.",
    "staff_cost": "For all nodes per month.",
    "capital_percent": "Interest a year on the average book value.",
    "utilisation_percent": "Share of unit-hours that will be sold.",
    "margin_percent": "Of the costs, added to them.",
}


class Figure(serializers.Field[str, Any, Any, Any]):
    """An input as a decimal string, or as a JSON integer if it is a count."""

    def __init__(self, name: str, **options: Any) -> None:
        super().__init__(**options)
        self.figure = name

    def to_internal_value(self, data: Any) -> str:
        is_count = INPUTS[self.figure].whole
        if isinstance(data, bool) or not isinstance(data, int if is_count else str):
            raise serializers.ValidationError(
                "a JSON integer" if is_count else "a decimal number in a string", "invalid"
            )
        try:
            return f"{read_input(self.figure, str(data)):f}"
        except NotOwnCosts as refused:
            [(_, code, detail)] = refused.faults
            raise serializers.ValidationError(detail, code) from refused

    def to_representation(self, value: Any) -> Any:
        return value


@extend_schema_field({"type": "string"})
class DecimalFigure(Figure):
    """A decimal string."""


@extend_schema_field({"type": "integer"})
class CountFigure(Figure):
    """A JSON integer."""


class OwnCostsShape(StrictShape):
    """What the nodes of a flavor cost their owner. Amounts are in `currency`; nothing has a default."""

    currency = Text(max_length=3, min_length=3, help_text="Of all amounts.")

    def get_fields(self) -> dict[str, Any]:
        """One for each input of the engine."""
        figures = {
            name: (CountFigure if bounds.whole else DecimalFigure)(
                name, required=name not in OPTIONAL, allow_null=name in OPTIONAL, help_text=HELP[name]
            )
            for name, bounds in INPUTS.items()
        }
        return {**super().get_fields(), **figures}


class PartShown(serializers.Serializer[Any]):
    """A part of the rate; decimal strings in the currency of the inputs."""

    name = serializers.CharField()
    per_month = serializers.CharField(help_text="Of all nodes.")
    per_node_hour = serializers.CharField(help_text="Of a running node.")
    per_unit_hour = serializers.CharField(help_text="That is sold.")


class ModelShown(serializers.Serializer[Any]):
    """A price from own costs, step by step. The parts of each column add up to the total."""

    formula = serializers.IntegerField(help_text=f"The version of the formula; now {FORMULA}.")
    inputs = OwnCostsShape()
    node_hours = serializers.CharField(help_text="Per month.")
    unit_hours = serializers.CharField(help_text="Per month.")
    sold_unit_hours = serializers.CharField(help_text="Per month.")
    parts = PartShown(many=True)
    total = PartShown()


def own_costs_of(values: Mapping[str, Any]) -> OwnCosts:
    """The inputs of a body that `OwnCostsShape` read. Raises Invalid at `model` or below it."""
    texts = {name: values[name] for name in INPUTS if values.get(name) is not None}
    try:
        return read_texts(values["currency"], texts)
    except NotOwnCosts as refused:
        errors = [FieldError(f"model.{name}".rstrip("."), code, detail) for name, code, detail in refused.faults]
        raise Invalid(errors=errors) from refused


def show_model(costs: OwnCosts, steps: Steps) -> dict[str, Any]:
    """The inputs and the steps as the API shows them."""
    inputs = {name: int(text) if INPUTS[name].whole else text for name, text in costs.as_text().items()}
    return {
        "formula": FORMULA,
        "inputs": {"currency": costs.currency, **inputs},
        "node_hours": f"{steps.node_hours.normalize():f}",
        "unit_hours": f"{steps.unit_hours.normalize():f}",
        "sold_unit_hours": f"{steps.sold_unit_hours.normalize():f}",
        "parts": [_part(one) for one in steps.parts],
        "total": _part(steps.total),
    }


def _part(one: Part) -> dict[str, str]:
    amounts = {name: f"{getattr(one, name):f}" for name in ("per_month", "per_node_hour", "per_unit_hour")}
    return {"name": one.name, **amounts}
