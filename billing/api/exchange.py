"""Currencies over HTTP: what organisations are billed in, and rates of exchange."""

import re
from dataclasses import asdict
from decimal import Decimal
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from billing.engine.reference_rates import MOST_CHARACTERS
from billing.models import BillingCurrency, ExchangeRate
from billing.operations.exchange import (
    NewRate,
    import_reference_rates,
    set_billing_currency,
    set_exchange_rate,
)
from billing.queries.exchange import visible_billing_currencies, visible_rates
from foundation.plain_json import instant
from foundation.problems import Invalid
from foundation.schema import page_shape
from foundation.shapes import Instant, StrictShape, Text
from tenancy.api.views import ApiView

from .period import day_from, month_from

ORDERS = {"created": "id", "-created": "-id"}
RATE = re.compile(r"[0-9]{1,12}(\.[0-9]{1,12})?")
DAY = "A day in UTC, YYYY-MM-DD."


class BillingCurrencyCreate(StrictShape):
    """The currency of an organisation's documents, from a month on."""

    organisation = Text(max_length=63, help_text="Its path.")
    effective_from = Text(max_length=7, help_text="YYYY-MM: a month that is not closed and has no conversions.")
    currency = Text(max_length=3, help_text="ISO 4217, such as EUR.")


class BillingCurrencyShown(serializers.Serializer[Any]):
    """A billing currency. Of two for a month, the later one applies."""

    id = serializers.IntegerField()
    organisation = serializers.CharField()
    effective_from = serializers.CharField(help_text="YYYY-MM.")
    currency = serializers.CharField()
    made_by = serializers.CharField()
    created_at = Instant()


class ExchangeRateCreate(StrictShape):
    """One unit of `base` is worth `rate` of `quote`, for one organisation, in [valid_from, valid_until)."""

    organisation = Text(max_length=63, help_text="Its path.")
    base = Text(max_length=3)
    quote = Text(max_length=3)
    rate = Text(max_length=30, help_text="A decimal string with up to 12 decimals.")
    valid_from = Text(max_length=10, help_text=DAY)
    valid_until = Text(max_length=10, help_text=f"{DAY} At most 366 days later.")
    reason = Text(max_length=500)


class ExchangeRateShown(serializers.Serializer[Any]):
    """A rate. A reference rate is of the euro and counts until the next one, at most a week."""

    id = serializers.IntegerField()
    organisation = serializers.CharField(allow_null=True, help_text="Null: of all organisations.")
    kind = serializers.ChoiceField(["reference", "override"])
    base = serializers.CharField()
    quote = serializers.CharField()
    rate = serializers.CharField()
    valid_from = serializers.DateField()
    valid_until = serializers.DateField(allow_null=True)
    source = serializers.CharField()  # type: ignore[assignment]  # a field of this name
    reason = serializers.CharField()
    made_by = serializers.CharField()
    created_at = Instant()


class RatesFile(serializers.CharField):
    """The text of a file."""

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        return super().to_internal_value(data)


class RatesImport(StrictShape):
    """A file of reference rates in the format of the European Central Bank (`eurofxref-hist.csv`)."""

    organisation = Text(max_length=63, help_text="Its path.")
    rates = RatesFile(max_length=MOST_CHARACTERS, trim_whitespace=False, help_text="The text of the CSV file.")
    source = Text(required=False, default="ECB", max_length=60)  # type: ignore[assignment]  # a field of this name
    since = Text(required=False, max_length=10, help_text=f"{DAY} Earlier days of the file are not imported.")
    corrects = serializers.BooleanField(
        required=False, default=False, help_text="Whether other rates replace known ones."
    )


class ImportedShown(serializers.Serializer[Any]):
    """How many rates of the file are new, correct another one, or were known."""

    added = serializers.IntegerField()
    corrected = serializers.IntegerField()
    known = serializers.IntegerField()


class BillingCurrenciesView(ApiView):
    """`/billing-currencies`."""

    paged = True

    @extend_schema(operation_id="billing_currencies_list", responses=page_shape(BillingCurrencyShown))
    def get(self, request: Request) -> Response:
        """Lists the billing currencies of the organisations that you see as a whole."""
        return self.page(visible_billing_currencies(self.actor), orders=ORDERS, render=show_billing_currency)

    @extend_schema(
        operation_id="billing_currencies_create", request=BillingCurrencyCreate, responses={201: BillingCurrencyShown}
    )
    def post(self, request: Request) -> Response:
        """Sets the currency of an organisation's documents, from a month on."""
        fields = self.read(BillingCurrencyCreate)
        month = month_from("effective_from", fields["effective_from"])

        def produce() -> tuple[int, dict[str, Any]]:
            row = set_billing_currency(self.actor, fields["organisation"], month, fields["currency"])
            return status.HTTP_201_CREATED, show_billing_currency(row)

        return self.created(request, None, "billing-currencies", produce)


class ExchangeRatesView(ApiView):
    """`/exchange-rates`."""

    paged = True

    @extend_schema(operation_id="exchange_rates_list", responses=page_shape(ExchangeRateShown))
    def get(self, request: Request) -> Response:
        """Lists the rates of the organisations that you see as a whole, and those for all."""
        return self.page(visible_rates(self.actor), orders=ORDERS, render=show_exchange_rate)

    @extend_schema(operation_id="exchange_rates_create", request=ExchangeRateCreate, responses={201: ExchangeRateShown})
    def post(self, request: Request) -> Response:
        """Sets a rate that counts before reference rates. Charges of these days are converted again."""
        fields = self.read(ExchangeRateCreate)
        if not RATE.fullmatch(fields["rate"]):
            raise Invalid.field("rate", "bad_format", "a decimal string such as 0.92, with up to 12 decimals")
        wanted = NewRate(
            fields["organisation"], fields["base"], fields["quote"], Decimal(fields["rate"]),
            day_from("valid_from", fields["valid_from"]), day_from("valid_until", fields["valid_until"]), fields["reason"],
        )  # fmt: skip

        def produce() -> tuple[int, dict[str, Any]]:
            return status.HTTP_201_CREATED, show_exchange_rate(set_exchange_rate(self.actor, wanted))

        return self.created(request, None, "exchange-rates", produce)


class ExchangeRatesImportView(ApiView):
    """`/exchange-rates/import`."""

    @extend_schema(operation_id="exchange_rates_import", request=RatesImport, responses=ImportedShown)
    def post(self, request: Request) -> Response:
        """Imports reference rates for an organisation. The same file again changes nothing."""
        fields = self.read(RatesImport)
        since = day_from("since", fields["since"]) if fields.get("since") else None
        found = import_reference_rates(
            self.actor,
            fields["organisation"],
            fields["rates"],
            fields["source"],
            since=since,
            corrects=fields["corrects"],
        )
        return Response(asdict(found))


def show_billing_currency(row: BillingCurrency) -> dict[str, Any]:
    """A billing currency as the API shows it."""
    return {
        "id": row.id,
        "organisation": row.organisation.path,
        "effective_from": f"{row.effective_from:%Y-%m}",
        "currency": row.currency,
        "made_by": row.made_by_name,
        "created_at": instant(row.created_at),
    }


def show_exchange_rate(row: ExchangeRate) -> dict[str, Any]:
    """A rate as the API shows it."""
    return {
        "id": row.id,
        "organisation": row.organisation.path if row.organisation else None,
        "kind": row.kind,
        "base": row.base,
        "quote": row.quote,
        "rate": f"{row.rate:.12f}",
        "valid_from": row.valid_from.isoformat(),
        "valid_until": row.valid_until.isoformat() if row.valid_until else None,
        "source": row.source,
        "reason": row.reason,
        "made_by": row.made_by_name,
        "created_at": instant(row.created_at),
    }
