"""/shares: each tenant's share of the fleet, its weight, and when its turn comes."""

from decimal import Decimal, InvalidOperation
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from federation.queries.turns import TenantTurn, shared_tenants, turns_of
from foundation.schema import page_shape
from foundation.shapes import StrictShape, Text
from tenancy.api.views import ApiView
from tenancy.operations import set_weight

ORDERS = {"path": "path", "-path": "-path"}


class WeightPut(StrictShape):
    tenant = Text(max_length=1100, help_text="Path, such as acme/research.")
    weight = Text(max_length=10, help_text="0.01 to 1000; default 1.")

    def validate_weight(self, text: str) -> Decimal:
        """The weight as a number."""
        try:
            return Decimal(text)
        except InvalidOperation:
            raise serializers.ValidationError("a decimal number, such as 2 or 0.5", "malformed") from None


class ShareShown(serializers.Serializer[Any]):
    """A tenant with all tenants below it. Shares are parts of what it could use at all: 1 is all of it."""

    tenant = serializers.CharField()
    weight = serializers.CharField()
    held = serializers.FloatField(help_text="What it holds now, of the resource of which it holds most.")
    used = serializers.FloatField(help_text="Likewise what its decayed past use adds.")
    share = serializers.FloatField(
        help_text="Both together, by weight, past use as far as it counts: the smallest goes next."
    )
    credit = serializers.FloatField(
        allow_null=True,
        help_text="How far past use puts it ahead of its siblings, in units of `share`; negative: back. It is capped. Null for"
        " callers who do not see all its siblings.",
    )
    waiting = serializers.IntegerField(help_text="Its waiting jobs.")
    turn = serializers.IntegerField(
        allow_null=True,
        help_text="1: its next job goes before those of its siblings. Null: none waits, or fair share is off.",
    )


class Shares(ApiView):
    filters = ("tenant",)
    paged = True

    @extend_schema(operation_id="shares_list", responses=page_shape(ShareShown))
    def get(self, request: Request) -> Response:
        """Lists the tenants that you may see with their shares, and when their turns come."""
        tenants = shared_tenants(self.actor, self.query.get("tenant", ""))
        answer = self.page(tenants, orders=ORDERS, render=lambda tenant: tenant)
        answer.data["items"] = [show_share(one) for one in turns_of(self.actor, answer.data["items"])]
        return answer

    @extend_schema(operation_id="shares_put", request=WeightPut, responses=ShareShown)
    def put(self, request: Request) -> Response:
        """Sets the weight of a tenant against its siblings. You need to manage quotas one level above it."""
        asked = self.read(WeightPut)
        [shown] = turns_of(self.actor, [set_weight(self.actor, asked["tenant"], asked["weight"])])
        return Response(show_share(shown))


def show_share(one: TenantTurn) -> dict[str, Any]:
    """A share as the API shows it."""
    line = one.line
    return {
        "tenant": line.path,
        "weight": f"{one.weight.normalize():f}",
        "held": round(line.held, 6),
        "used": round(line.used, 6),
        "share": round(line.share, 6),
        "credit": None if one.credit is None else round(one.credit, 6),
        "waiting": line.waiting,
        "turn": line.turn,
    }
