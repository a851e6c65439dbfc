"""Prices and usage over HTTP: translate, make one call, translate back."""

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from billing.operations import create_price
from billing.operations.prices import NewPrice
from billing.queries import usage_report, visible_prices
from foundation.clock import now
from foundation.media import JSONRenderer
from foundation.problems import Invalid
from foundation.schema import page_shape
from tenancy.api.views import ApiView

from .period import period_of
from .shapes import PriceCreate, PriceShown, UsageShown, show_price, show_usage
from .spreadsheet import CSVRenderer, usage_csv

ORDERS = {"created": "id", "-created": "-id"}
FORMATS = ("json", "csv")
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
        return self.page(prices, orders=ORDERS, render=show_price)

    @extend_schema(operation_id="prices_create", request=PriceCreate, responses={201: PriceShown})
    def post(self, request: Request) -> Response:
        """Sets a price from a given time on. It replaces prices that were set for later; charges do not change."""
        fields = self.read(PriceCreate)
        unit_price, currency = fields["unit_price"]
        beside = {name: fields.get(name) for name in ("cpu_price", "memory_price")}
        for name, money in beside.items():
            if money is not None and money[1] != currency:
                raise Invalid.field(name, "mixed_currencies", f"unit_price is in {currency}")
        wanted = NewPrice(
            cluster_name=fields["cluster"],
            flavor=fields["flavor"],
            unit_price=unit_price,
            currency=currency,
            capacity_type=fields.get("capacity_type", ""),
            effective_from=fields.get("effective_from"),
            interruptions_per_hour=fields.get("interruptions_per_hour"),
            **{name: money[0] for name, money in beside.items() if money is not None},
        )

        def produce() -> tuple[int, dict[str, Any]]:
            return status.HTTP_201_CREATED, show_price(create_price(self.actor, wanted))

        return self.created(request, None, "prices", produce)


class UsageView(ApiView):
    """`/usage`."""

    filters = ("tenant", "from", "to", "month", "group_by", "format", "carbon")
    renderer_classes = [JSONRenderer, CSVRenderer]

    @extend_schema(
        operation_id="usage_report",
        responses={(200, "application/json"): UsageShown, (200, "text/csv"): OpenApiTypes.STR},
    )
    def get(self, request: Request) -> Response:
        """Returns usage and cost, by default of this month. `Accept: text/csv` or `format=csv` gives a spreadsheet.

        `from` and `to` are dates or times in UTC, `to` excluded; `group_by` lists tenant, cluster, flavor, user,
        job, day, month. `carbon=true` adds energy and emissions.
        """
        if self.query.get("format", "json") not in FORMATS:
            raise Invalid.field("format", "unknown_format", f"one of {', '.join(FORMATS)}")
        if self.query.get("carbon", "false") not in BOOLEANS:
            raise Invalid.field("carbon", "bad_format", f"one of {', '.join(BOOLEANS)}")
        start, until = period_of(self.query, now())
        words = [word for word in self.query.get("group_by", "").split(",") if word]
        report = usage_report(
            self.actor,
            self.query.get("tenant", ""),
            start,
            until,
            words,
            with_carbon=self.query.get("carbon") == "true",
        )
        shown = show_usage(report)
        if self.query.get("format", request.accepted_renderer.format) == "json":
            request.accepted_renderer, request.accepted_media_type = JSONRenderer(), JSONRenderer.media_type
            return Response(shown)
        request.accepted_renderer, request.accepted_media_type = CSVRenderer(), CSVRenderer.media_type
        name = f"usage-{start:%Y%m%d}-{until:%Y%m%d}{'' if report.is_complete else '-so-far'}.csv"
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        return Response(usage_csv(shown, report.columns), headers=headers)
