"""A price from own costs over HTTP, before it is set."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from billing.operations.prices import NewPrice, try_own_costs
from foundation.shapes import StrictShape, Text
from tenancy.api.views import ApiView

from .own_cost_shapes import ModelShown, OwnCostsShape, own_costs_of, show_model
from .shapes import CAPACITY_TYPES, MoneyShape


class ModelTry(StrictShape):
    """The costs of a flavor of a cluster."""

    cluster = Text(max_length=63, help_text="Name.")
    flavor = Text(max_length=120, help_text="Name of a flavor that the cluster offers.")
    capacity_type = serializers.ChoiceField(CAPACITY_TYPES, required=False, help_text="By default the flavor's.")
    model = OwnCostsShape()


class ModelTried(serializers.Serializer[Any]):
    """The price that these costs give, and how."""

    unit_price = MoneyShape()
    model = ModelShown()


class PriceModelView(ApiView):
    """`/prices/model`."""

    @extend_schema(operation_id="prices_model", request=ModelTry, responses=ModelTried)
    def post(self, request: Request) -> Response:
        """Shows the price that own costs give, step by step, and stores nothing. Permissions as for setting a price."""
        fields = self.read(ModelTry)
        costs = own_costs_of(fields["model"])
        wanted = NewPrice.from_own_costs(
            fields["cluster"], fields["flavor"], costs, capacity_type=fields.get("capacity_type", "")
        )
        steps = try_own_costs(self.actor, wanted, costs)
        price = {"amount": f"{steps.rate:f}", "currency": costs.currency}
        return Response({"unit_price": price, "model": show_model(costs, steps)})
