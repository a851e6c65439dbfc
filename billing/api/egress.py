"""Egress prices over HTTP: translate, make one call, translate back."""

from typing import Any
from uuid import UUID

from django.core.validators import RegexValidator
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from billing.engine.egress import MOST_EGRESS_PRICE, REGION, REGION_PATTERN
from billing.models import EgressPrice
from billing.operations.egress import NewEgressPrice, create_egress_price, end_egress_price
from billing.queries.egress import egress_price_by_id, visible_egress_prices
from foundation.plain_json import instant
from foundation.schema import page_shape
from foundation.shapes import Instant, StrictShape, Text
from tenancy.api.views import ApiView

from .shapes import Money, MoneyShape

ORDERS = {"created": "id", "-created": "-id"}


def _region(help_text: str) -> Text:
    return Text(max_length=63, validators=[RegexValidator(REGION_PATTERN, REGION)], help_text=help_text)


class EgressPriceCreate(StrictShape):
    """The price of moving one GiB from one region to another."""

    from_region = _region("A region as in the clusters' settings; `*` matches anything.")
    to_region = _region("Likewise. Moving data within a region is free.")
    price_per_gib = Money()
    organisation = Text(required=False, default="", max_length=1100, help_text="Path; by default your organisation.")
    effective_from = Instant(required=False, help_text="By default now; never earlier.")

    def validate_price_per_gib(self, money: tuple[Any, str]) -> tuple[Any, str]:
        """Within bounds."""
        if money[0] > MOST_EGRESS_PRICE:
            raise serializers.ValidationError(f"at most {MOST_EGRESS_PRICE}", "out_of_range")
        return money


class EgressPriceShown(serializers.Serializer[Any]):
    """An egress price and when it is in force: [effective_from, effective_until)."""

    id = serializers.UUIDField()
    organisation = serializers.CharField()
    from_region = serializers.CharField()
    to_region = serializers.CharField()
    price_per_gib = MoneyShape()
    effective_from = Instant()
    effective_until = Instant(allow_null=True)
    created_at = Instant()


class EgressPricesView(ApiView):
    """`/egress-prices`."""

    filters = ()
    paged = True

    @extend_schema(operation_id="egress_prices_list", responses=page_shape(EgressPriceShown))
    def get(self, request: Request) -> Response:
        """Lists the egress prices of your organisations: past, present and future."""
        return self.page(visible_egress_prices(self.actor), orders=ORDERS, render=show_egress_price)

    @extend_schema(operation_id="egress_prices_create", request=EgressPriceCreate, responses={201: EgressPriceShown})
    def post(self, request: Request) -> Response:
        """Sets a price from a given time on. It replaces prices that were set for later."""
        body = self.read(EgressPriceCreate)
        amount, currency = body["price_per_gib"]
        wanted = NewEgressPrice(
            body["from_region"],
            body["to_region"],
            amount,
            currency,
            body["organisation"],
            body.get("effective_from"),
        )

        def produce() -> tuple[int, dict[str, Any]]:
            return status.HTTP_201_CREATED, show_egress_price(create_egress_price(self.actor, wanted))

        return self.created(request, None, "egress-prices", produce)


class EgressPriceView(ApiView):
    """`/egress-prices/{id}`."""

    @extend_schema(operation_id="egress_prices_read", responses=EgressPriceShown)
    def get(self, request: Request, price_id: UUID) -> Response:
        """Returns an egress price."""
        return Response(show_egress_price(egress_price_by_id(self.actor, price_id)))

    @extend_schema(
        operation_id="egress_prices_end", responses={204: OpenApiResponse(description="Ended, or withdrawn.")}
    )
    def delete(self, request: Request, price_id: UUID) -> Response:
        """Ends a price now, or withdraws one that has not begun."""
        end_egress_price(self.actor, price_id)
        return Response(status=status.HTTP_204_NO_CONTENT)


def show_egress_price(price: EgressPrice) -> dict[str, Any]:
    """An egress price as the API shows it."""
    return {
        "id": str(price.id),
        "organisation": price.route.owner.path,
        "from_region": price.route.from_region,
        "to_region": price.route.to_region,
        "price_per_gib": {"amount": format(price.price_per_gib, "f"), "currency": price.currency},
        "effective_from": instant(price.valid.lower),
        "effective_until": instant(price.valid.upper),
        "created_at": instant(price.created_at),
    }
