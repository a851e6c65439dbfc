"""Corrections of prices over HTTP."""

from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from billing.models import PriceCorrection
from billing.models.periods import REASON_LENGTH
from billing.operations.corrections import NewCorrection, correct_price, preview_correction
from billing.queries.corrections import Effect, corrections_of_price
from foundation.plain_json import instant
from foundation.problems import Invalid
from foundation.schema import page_shape
from foundation.shapes import Instant, StrictShape, Text
from tenancy.api.views import ApiView

from .shapes import Money, MoneyShape

ORDERS = {"created": "id", "-created": "-id"}


class CorrectionCreate(StrictShape):
    """What the price's flavor should have cost in a past period, per unit and hour."""

    effective_from = Instant()
    effective_until = Instant(help_text="Exclusive; not in the future.")
    unit_price = Money()
    cpu_price = Money(required=False, allow_null=True, help_text="Without it, the unit's price includes cores.")
    memory_price = Money(required=False, allow_null=True, help_text="Without it, the unit's price includes memory.")
    reason = Text(max_length=REASON_LENGTH)
    dry_run = serializers.BooleanField(required=False, default=False, help_text="Only show what it would change.")


class EffectShown(serializers.Serializer[Any]):
    """The cost of what a tenant used in the period, before and after."""

    tenant = serializers.CharField()
    old = MoneyShape()
    new = MoneyShape()


class CorrectionShown(serializers.Serializer[Any]):
    """A correction of a price, and whose. `id` is null in a dry run."""

    id = serializers.IntegerField(allow_null=True)
    effective_from = Instant()
    effective_until = Instant()
    unit_price = MoneyShape()
    cpu_price = MoneyShape(allow_null=True)
    memory_price = MoneyShape(allow_null=True)
    reason = serializers.CharField()


class CorrectionMade(CorrectionShown):
    """A correction and what it changes."""

    dry_run = serializers.BooleanField()
    effects = EffectShown(many=True)


class CorrectionListed(CorrectionShown):
    """A correction that was made."""

    made_by = serializers.CharField()
    created_at = Instant()


class CorrectionsView(ApiView):
    """`/prices/{id}/corrections`."""

    paged = True

    @extend_schema(operation_id="price_corrections_list", responses=page_shape(CorrectionListed))
    def get(self, request: Request, price_id: UUID) -> Response:
        """Lists the corrections of the price's flavor. Of two for the same time, the later one applies."""
        return self.page(corrections_of_price(self.actor, price_id), orders=ORDERS, render=show_listed)

    @extend_schema(
        operation_id="price_corrections_create",
        request=CorrectionCreate,
        responses={200: CorrectionMade, 201: CorrectionMade},
    )
    def post(self, request: Request, price_id: UUID) -> Response:
        """Corrects what a flavor cost in a past period. With `dry_run`, shows what would change and changes nothing."""
        fields = self.read(CorrectionCreate)
        wanted = _wanted(price_id, fields)
        if fields["dry_run"]:
            return Response(_made(_terms(wanted), preview_correction(self.actor, wanted), is_dry_run=True))

        def produce() -> tuple[int, dict[str, Any]]:
            correction, effects = correct_price(self.actor, wanted)
            return status.HTTP_201_CREATED, _made(show_correction(correction), effects, is_dry_run=False)

        return self.created(request, None, "price-corrections", produce)


def _wanted(price_id: UUID, fields: dict[str, Any]) -> NewCorrection:
    unit_price, currency = fields["unit_price"]
    beside = {name: fields.get(name) for name in ("cpu_price", "memory_price")}
    for name, money in beside.items():
        if money is not None and money[1] != currency:
            raise Invalid.field(name, "mixed_currencies", f"unit_price is in {currency}")
    return NewCorrection(
        price_id=price_id,
        unit_price=unit_price,
        currency=currency,
        start=fields["effective_from"],
        until=fields["effective_until"],
        reason=fields["reason"],
        **{name: money[0] for name, money in beside.items() if money is not None},
    )


def _terms(wanted: NewCorrection) -> dict[str, Any]:
    return {
        "id": None,
        "effective_from": instant(wanted.start),
        "effective_until": instant(wanted.until),
        **_prices(wanted, wanted.currency),
        "reason": wanted.reason,
    }


def _prices(terms: NewCorrection | PriceCorrection, currency: str) -> dict[str, Any]:
    amounts = {name: getattr(terms, name) for name in ("unit_price", "cpu_price", "memory_price")}
    return {
        name: None if amount is None else {"amount": format(amount, "f"), "currency": currency}
        for name, amount in amounts.items()
    }


def show_correction(row: PriceCorrection) -> dict[str, Any]:
    """A correction as the API shows it."""
    return {
        "id": row.id,
        "effective_from": instant(row.span.lower),
        "effective_until": instant(row.span.upper),
        **_prices(row, row.currency),
        "reason": row.reason,
    }


def show_listed(row: PriceCorrection) -> dict[str, Any]:
    """A correction in a list."""
    return {**show_correction(row), "made_by": row.made_by_name, "created_at": instant(row.created_at)}


def _made(terms: dict[str, Any], effects: tuple[Effect, ...], *, is_dry_run: bool) -> dict[str, Any]:
    return {
        **terms,
        "dry_run": is_dry_run,
        "effects": show_effects(effects),
    }


def show_effects(effects: tuple[Effect, ...]) -> list[dict[str, Any]]:
    """What prices change, by tenant."""
    return [
        {
            "tenant": effect.tenant_path,
            "old": {"amount": format(effect.old, "f"), "currency": effect.currency},
            "new": {"amount": format(effect.new, "f"), "currency": effect.currency},
        }
        for effect in effects
    ]
