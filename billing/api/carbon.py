"""Files of the numbers that energy and emissions are computed from, over HTTP: plans and imports."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from billing.engine.carbon_file import LICENCE_LENGTH, SOURCE_LENGTH
from billing.operations.carbon import CarbonPlan, Change, Origin, apply_carbon, plan_carbon
from foundation.shapes import FileText, StrictShape, Text
from tenancy.api.views import ApiView

MOST_CHARACTERS = 2_000_000
"""Of a file that people send: two years of hours of one region have fewer."""
MOST_SHOWN = 100
KINDS = ("intensities", "ratings", "sites", "measured")


class CarbonPlanAsk(StrictShape):
    """A file to plan."""

    organisation = Text(max_length=63, help_text="Its path. The numbers apply to its clusters.")
    file = FileText(max_length=MOST_CHARACTERS, help_text="The CSV, as docs/reference/carbon.md describes it.")


class CarbonApply(CarbonPlanAsk):
    """A file to import."""

    source = Text(max_length=SOURCE_LENGTH, help_text="Where the numbers are from.")  # type: ignore[assignment]  # of this name
    licence = Text(
        max_length=LICENCE_LENGTH,
        required=False,
        default="",
        help_text="Under which they may be used; for intensities.",
    )
    corrects = serializers.BooleanField(
        required=False, default=False, help_text="Whether other numbers replace known ones."
    )
    expect = Text(
        max_length=64, required=False, allow_null=True, default=None, help_text="The hash of a plan: import only that."
    )


class CarbonChangeShown(serializers.Serializer[Any]):
    """A row that is new, or replaces another number."""

    of = serializers.CharField(help_text="What it is of, such as a region and hours.")
    after = serializers.ListField(child=serializers.CharField(allow_null=True))
    before = serializers.ListField(
        child=serializers.CharField(allow_null=True), allow_null=True, help_text="Null: new."
    )


class CarbonPlanShown(serializers.Serializer[Any]):
    """What a file changes."""

    hash = serializers.CharField(help_text="Names exactly these changes; for `expect`.")
    kind = serializers.ChoiceField(KINDS, help_text="What the file contains.")
    added = serializers.IntegerField()
    corrected = serializers.IntegerField()
    known = serializers.IntegerField(help_text="Rows that say what applies already.")
    changes = CarbonChangeShown(many=True, help_text=f"The first {MOST_SHOWN}.")


class CarbonPlanView(ApiView):
    """`/carbon/plan`."""

    only_asks = True

    @extend_schema(operation_id="carbon_plan", request=CarbonPlanAsk, responses=CarbonPlanShown)
    def post(self, request: Request) -> Response:
        """Returns what a file would change for an organisation. Changes nothing."""
        asked = self.read(CarbonPlanAsk)
        return Response(show_carbon_plan(plan_carbon(self.actor, asked["organisation"], asked["file"])))


class CarbonApplyView(ApiView):
    """`/carbon/apply`."""

    @extend_schema(operation_id="carbon_apply", request=CarbonApply, responses=CarbonPlanShown)
    def post(self, request: Request) -> Response:
        """Imports a file for an organisation: all of its rows or none. The same file again changes nothing."""
        asked = self.read(CarbonApply)
        plan = apply_carbon(
            self.actor,
            asked["organisation"],
            asked["file"],
            Origin(asked["source"], asked["licence"]),
            expected=asked["expect"] or "",
            corrects=asked["corrects"],
        )
        return Response(show_carbon_plan(plan))


def show_carbon_plan(plan: CarbonPlan) -> dict[str, Any]:
    """A plan as the API shows it."""
    return {
        "hash": plan.digest,
        "kind": plan.kind,
        "added": len(plan.changes) - len(plan.corrections),
        "corrected": len(plan.corrections),
        "known": plan.known,
        "changes": [_change(one) for one in plan.changes[:MOST_SHOWN]],
    }


def _change(one: Change) -> dict[str, Any]:
    return {
        "of": one.key,
        "after": _texts(one.number),
        "before": None if one.before is None else _texts(one.before),
    }


def _texts(number: tuple[object, ...]) -> list[str | None]:
    return [None if each is None else str(each) for each in number]
