"""Prices and usage over HTTP: translate, make one call, translate back."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any
from uuid import UUID

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from billing.engine.own_costs import OwnCosts, rate_of
from billing.models import Price
from billing.operations import create_price
from billing.operations.prices import NewPrice
from billing.queries import usage_report, visible_prices
from billing.queries.corrections import visible_price
from billing.queries.paths import AS_IS, AS_WAS, PATHS
from billing.queries.prices import owners_of_costs
from foundation.clock import now
from foundation.media import JSONRenderer
from foundation.problems import Invalid
from foundation.schema import page_shape
from tenancy.api.views import ApiView

from .own_cost_shapes import own_costs_of
from .period import period_of
from .shapes import PriceCreate, PriceShown, UsageShown, show_price, show_usage
from .spreadsheet import CSVRenderer, respond, usage_csv, wanted_format

ORDERS = {"created": "id", "-created": "-id"}
BOOLEANS = ("true", "false")


class PricesView(ApiView):
    """`/prices`."""

    filters = ("cluster", "flavor")
    paged = True

    @extend_schema(operation_id="prices_list", responses=page_shape(PriceShown))
    def get(self, request: Request) -> Response:
        """Lists the prices of the clusters that you may see: past, present and future."""
        prices = visible_prices(
            self.actor, cluster_name=self.query.get("cluster", ""), flavor=self.query.get("flavor", "")
        )
        owners = owners_of_costs(self.actor)

        def render(price: Price) -> dict[str, Any]:
            return show_price(price, with_costs=price.rate.cluster.owner_id in owners)

        return self.page(prices, orders=ORDERS, render=render)

    @extend_schema(operation_id="prices_create", request=PriceCreate, responses={201: PriceShown})
    def post(self, request: Request) -> Response:
        """Sets a price from a given time on. It replaces prices that were set for later; charges do not change.

        `model` in place of `unit_price` gives the costs that the price comes from. The price keeps them.
        """
        fields = self.read(PriceCreate)
        unit_price, currency, costs = _unit_price(fields)
        beside = {name: fields.get(name) for name in ("cpu_price", "memory_price")}
        for name, money in beside.items():
            if money is not None and money[1] != currency:
                raise Invalid.field(name, "mixed_currencies", f"the unit's price is in {currency}")
        wanted = NewPrice(
            cluster_name=fields["cluster"],
            flavor=fields["flavor"],
            unit_price=unit_price,
            currency=currency,
            own_costs=costs,
            capacity_type=fields.get("capacity_type", ""),
            effective_from=fields.get("effective_from"),
            interruptions_per_hour=fields.get("interruptions_per_hour"),
            **{name: money[0] for name, money in beside.items() if money is not None},
        )

        def produce() -> tuple[int, dict[str, Any]]:
            return status.HTTP_201_CREATED, show_price(create_price(self.actor, wanted), with_costs=True)

        return self.created(request, None, "prices", produce)


def _unit_price(fields: Mapping[str, Any]) -> tuple[Decimal, str, OwnCosts | None]:
    """The unit's price and its currency, and the costs that they come from."""
    if "model" not in fields and "unit_price" not in fields:
        raise Invalid.field("unit_price", "required", "give the price, or its costs as `model`")
    if "model" not in fields:
        return *fields["unit_price"], None
    if "unit_price" in fields:
        raise Invalid.field("model", "given_twice", "give `unit_price` or `model`, not both")
    costs = own_costs_of(fields["model"])
    return rate_of(costs), costs.currency, costs


class PriceView(ApiView):
    """`/prices/{id}`."""

    @extend_schema(operation_id="prices_read", responses=PriceShown)
    def get(self, request: Request, price_id: UUID) -> Response:
        """Returns a price, for users who may set it with the costs that it comes from."""
        price = visible_price(self.actor, price_id)
        return Response(show_price(price, with_costs=price.rate.cluster.owner_id in owners_of_costs(self.actor)))


class UsageView(ApiView):
    """`/usage`."""

    filters = ("tenant", "from", "to", "month", "group_by", "format", "carbon", "paths")
    renderer_classes = [JSONRenderer, CSVRenderer]

    @extend_schema(
        operation_id="usage_report",
        responses={(200, "application/json"): UsageShown, (200, "text/csv"): OpenApiTypes.STR},
    )
    def get(self, request: Request) -> Response:
        """Returns usage and cost, by default of this month. `Accept: text/csv` or `format=csv` gives a spreadsheet.

        `from` and `to` are dates or times in UTC, `to` excluded; `group_by` lists tenant, cluster, flavor, user,
        job, day, month. `carbon=true` adds energy and emissions. `paths=as_is` reports under the current paths of tenants,
        not under those that they had then.
        """
        wanted = wanted_format(request, self.query)
        if self.query.get("carbon", "false") not in BOOLEANS:
            raise Invalid.field("carbon", "bad_format", f"one of {', '.join(BOOLEANS)}")
        if self.query.get("paths", AS_WAS) not in PATHS:
            raise Invalid.field("paths", "bad_format", f"one of {', '.join(PATHS)}")
        start, until = period_of(self.query, now())
        words = [word for word in self.query.get("group_by", "").split(",") if word]
        report = usage_report(
            self.actor,
            self.query.get("tenant", ""),
            start,
            until,
            words,
            with_carbon=self.query.get("carbon") == "true",
            as_is=self.query.get("paths") == AS_IS,
        )
        shown = show_usage(report)
        file = f"usage-{start:%Y%m%d}-{until:%Y%m%d}{'' if report.is_complete else '-so-far'}.csv"
        return respond(request, wanted, lambda: shown, lambda: usage_csv(shown, report.columns), file)
