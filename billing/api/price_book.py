"""/price-book: the prices as a file, and its plans."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from billing.engine.price_book import ACTIONS
from billing.operations.price_file import PlannedPrice, PricePlan, apply_prices, plan_prices, shown_change
from billing.queries.price_file import price_file
from foundation.plain_json import instant
from foundation.plain_yaml import MOST_CHARACTERS
from foundation.shapes import FileText, Flag, Instant, StrictShape, Text
from tenancy.api.views import ApiView

from .corrections import EffectShown, show_effects
from .shapes import CAPACITY_TYPES


class PriceBookPlanAsk(StrictShape):
    """A file to plan."""

    file = FileText(max_length=MOST_CHARACTERS, help_text="The YAML, as docs/reference/price-book.md describes it.")
    prune = Flag(default=False, help_text="Also end the prices of the file's clusters that the file does not have.")


class PriceBookApply(PriceBookPlanAsk):
    """A file to apply."""

    expect = Text(
        max_length=64, required=False, allow_null=True, default=None, help_text="The hash of a plan: apply only that."
    )


class BookPriceShown(serializers.Serializer[Any]):
    """A price as a file has it. Amounts are decimal strings."""

    until = Instant(allow_null=True, help_text="Null: until another price begins, or for good.")
    currency = serializers.CharField()
    unit_price = serializers.CharField()
    cpu_price = serializers.CharField(allow_null=True)
    memory_price = serializers.CharField(allow_null=True)
    interruptions_per_hour = serializers.CharField(allow_null=True)

    def get_fields(self) -> dict[str, Any]:
        """`from` cannot be written as an attribute."""
        return {"from": Instant(), **super().get_fields()}


class PriceRefusal(serializers.Serializer[Any]):
    """Why a change is refused."""

    code = serializers.CharField()
    detail = serializers.CharField()


class PriceChangeShown(serializers.Serializer[Any]):
    """One change of a plan."""

    action = serializers.ChoiceField(ACTIONS)
    owner = serializers.CharField(allow_null=True, help_text="Of the cluster; null if the file names it without.")
    cluster = serializers.CharField()
    flavor = serializers.CharField()
    capacity_type = serializers.ChoiceField(CAPACITY_TYPES)
    before = BookPriceShown(allow_null=True, help_text="Null if no price applies then.")
    after = BookPriceShown(allow_null=True, help_text="Null if it is withdrawn, or ends when the file is applied.")
    corrected_until = Instant(allow_null=True, help_text="Usage until then is metered, and its cost is corrected.")
    line = serializers.IntegerField(allow_null=True, help_text="In the file; null if the file does not have it.")
    column = serializers.IntegerField(allow_null=True)
    refusal = PriceRefusal(allow_null=True, help_text="Why the gateway refuses it; null if it does not.")

    def get_fields(self) -> dict[str, Any]:
        """`from` cannot be written as an attribute."""
        return {**super().get_fields(), "from": Instant(help_text="When the price begins.")}


class PriceBookPlanShown(serializers.Serializer[Any]):
    """What a file changes."""

    hash = serializers.CharField(help_text="Names exactly these changes of exactly these prices; for `expect`.")
    can_apply = serializers.BooleanField(help_text="Whether no change is refused.")
    changes = PriceChangeShown(many=True)
    kept = serializers.ListField(
        child=serializers.CharField(),
        help_text="Cluster, flavor and capacity type of prices that the file does not have, and that remain.",
    )
    month = serializers.CharField(help_text="YYYY-MM: the last month that has ended.")
    effects = EffectShown(
        many=True,
        allow_null=True,
        help_text="What the usage of that month cost, and what it costs by the file's prices. Null if there is too much of it.",
    )


class PriceBookFile(serializers.Serializer[Any]):
    """The prices as a file."""

    file = serializers.CharField()


class PriceBookView(ApiView):
    """`/price-book`."""

    filters = ("cluster",)

    @extend_schema(operation_id="price_book_export", responses=PriceBookFile)
    def get(self, request: Request) -> Response:
        """Returns the prices of a cluster as a file, or of all that you see. A plan of it shows no change."""
        return Response({"file": price_file(self.actor, self.query.get("cluster", ""))})


class PriceBookPlanView(ApiView):
    """`/price-book/plan`."""

    only_asks = True

    @extend_schema(operation_id="price_book_plan", request=PriceBookPlanAsk, responses=PriceBookPlanShown)
    def post(self, request: Request) -> Response:
        """Returns what a file would change, what would be refused, and what it would have done last month. Changes nothing."""
        asked = self.read(PriceBookPlanAsk)
        return Response(show_price_plan(plan_prices(self.actor, asked["file"], prune=asked["prune"])))


class PriceBookApplyView(ApiView):
    """`/price-book/apply`."""

    @extend_schema(operation_id="price_book_apply", request=PriceBookApply, responses=PriceBookPlanShown)
    def post(self, request: Request) -> Response:
        """Makes prices those of a file: all changes or none. Returns the changes that it made."""
        asked = self.read(PriceBookApply)
        plan = apply_prices(self.actor, asked["file"], expected=asked["expect"] or "", prune=asked["prune"])
        return Response(show_price_plan(plan))


def show_price_plan(plan: PricePlan) -> dict[str, Any]:
    """A plan as the API shows it."""
    return {
        "hash": plan.digest,
        "can_apply": not plan.refused,
        "changes": [_change(one) for one in plan.changes],
        "kept": [str(one) for one in plan.kept],
        "month": f"{plan.month:%Y-%m}",
        "effects": None if plan.effects is None else show_effects(plan.effects),
    }


def _change(one: PlannedPrice) -> dict[str, Any]:
    return {
        "owner": one.rate.owner or None,
        "cluster": one.rate.cluster,
        "flavor": one.rate.flavor,
        "capacity_type": one.rate.capacity_type,
        **shown_change(one.change),
        "corrected_until": instant(one.corrected_until),
        "line": None if one.mark is None else one.mark.line,
        "column": None if one.mark is None else one.mark.column,
        "refusal": None if one.refusal is None else {"code": one.refusal.code, "detail": one.refusal.detail},
    }
