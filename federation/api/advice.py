"""Recommendations that people decide about, over HTTP: translate, make one call, translate back."""

import csv
import io
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from typing import Any
from uuid import UUID

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from billing.api.spreadsheet import CSVRenderer, inert, respond, wanted_format
from billing.engine.realised import WhyNot
from billing.engine.recommendations import Kind
from billing.models import Recommendation, RequiredLabels
from billing.models.periods import REASON_LENGTH
from billing.operations.recommendations import accept, dismiss, reopen
from billing.queries.recommendations import recommendation_by_id, visible_recommendations, visible_required_labels
from federation.engine.advice_words import summary_of
from federation.operations.required_labels import set_required_labels
from federation.queries.realised import Measured, realised_of
from foundation.media import JSONRenderer
from foundation.plain_json import instant
from foundation.problems import Invalid
from foundation.schema import page_shape
from foundation.shapes import Instant, StrictShape, Text
from tenancy.api.views import ApiView

ORDERS = {"-found": "-id", "found": "id"}
LABEL_ORDERS = {"-id": "-id", "id": "id"}
STATES = list(Recommendation.State.values)
KINDS = [kind.value for kind in Kind]
WHY_NOT = [why.value for why in WhyNot]
MOST_IN_A_SHEET = 5000
COLUMNS = (
    "id", "state", "kind", "tenant", "subject", "summary", "low", "high", "currency", "confidence", "found_on", "last_found_on",
    "decided_by", "decided_at", "reason", "until", "realised", "realised_low", "realised_high",
)  # fmt: skip
AS_TEXT = frozenset({"tenant", "subject", "summary", "decided_by", "reason"})


class RunsShown(serializers.Serializer[Any]):
    """Jobs (of a commitment: days) of a time."""

    start = serializers.DateField()
    until = serializers.DateField(help_text="Excluded.")
    jobs = serializers.IntegerField(help_text="Of a commitment: days.")
    succeeded = serializers.IntegerField()
    cost = serializers.CharField()
    cost_per_success = serializers.CharField(allow_null=True, help_text="Null if nothing is claimed.")


class RealisedShown(serializers.Serializer[Any]):
    """What was saved since it was accepted. Null amounts: nothing is claimed, for `why_not`."""

    amount = serializers.CharField(allow_null=True, help_text="Negative: they cost more.")
    low = serializers.CharField(allow_null=True)
    high = serializers.CharField(allow_null=True)
    is_beyond_chance = serializers.BooleanField(help_text="Whether `low` and `high` have one sign.")
    why_not = serializers.ChoiceField(WHY_NOT, allow_null=True)
    before = RunsShown()
    after = RunsShown()


class RecommendationShown(serializers.Serializer[Any]):
    """A recommendation. Amounts are of 30 days, decimals are texts."""

    id = serializers.UUIDField()
    state = serializers.ChoiceField(STATES)
    kind = serializers.ChoiceField(KINDS)
    tenant = serializers.CharField(help_text="Who owns it: users with the right to dispute charges there decide.")
    subject = serializers.CharField(help_text="What it is about; the same from day to day.")
    summary = serializers.CharField()
    low = serializers.CharField()
    high = serializers.CharField()
    currency = serializers.CharField()
    confidence = serializers.CharField(help_text="From 0 to 1.")
    evidence = serializers.DictField(help_text="The facts that it was computed from, by kind.")
    found_on = serializers.DateField()
    last_found_on = serializers.DateField()
    reason = serializers.CharField(allow_null=True)
    until = serializers.DateField(allow_null=True, help_text="Of a dismissed one: from then on it may be opened again.")
    decided_high = serializers.CharField(allow_null=True, help_text="`high` when it was accepted or dismissed.")
    decided_by = serializers.CharField(allow_null=True)
    decided_at = Instant(allow_null=True)
    realised = RealisedShown(allow_null=True, help_text="Of accepted ones and those that are done.")


class RecommendationAcceptance(StrictShape):
    """Why, if it is worth a word."""

    reason = Text(max_length=REASON_LENGTH, required=False, default="", allow_blank=True)


class RecommendationDismissal(StrictShape):
    """Why, and until when it is not shown as open again."""

    reason = Text(max_length=REASON_LENGTH)
    until = serializers.DateField(required=False, default=None, allow_null=True, help_text="By default in 90 days.")


class RequiredLabelsCreate(StrictShape):
    """The labels that an organisation's jobs must have, from a day on."""

    organisation = Text(max_length=63, help_text="Its path.")
    effective_from = serializers.DateField(help_text="Today (UTC) or later.")
    keys = serializers.ListField(child=serializers.CharField(max_length=317), help_text="None: no label is required.")


class RequiredLabelsShown(serializers.Serializer[Any]):
    """Required labels. Of two for a day, the later ones apply."""

    id = serializers.IntegerField()
    organisation = serializers.CharField()
    effective_from = serializers.DateField()
    keys = serializers.ListField(child=serializers.CharField())
    made_by = serializers.CharField()
    created_at = Instant()


class StandingRecommendationsView(ApiView):
    """`/recommendations`."""

    filters = ("tenant", "state", "kind", "format")
    paged = True
    renderer_classes = [JSONRenderer, CSVRenderer]

    @extend_schema(
        operation_id="recommendations_list",
        parameters=[OpenApiParameter("state", str, enum=STATES), OpenApiParameter("kind", str, enum=KINDS)],
        responses={
            (200, "application/json"): page_shape(RecommendationShown),
            (200, "text/csv"): OpenApiTypes.STR,
        },
    )
    def get(self, request: Request) -> Response:
        """Lists the recommendations of the tenants that you see. As CSV, those with the largest amounts, without pages."""
        wanted = wanted_format(request, self.query)
        state, kind = (
            _one_of(name, self.query.get(name, ""), known) for name, known in (("state", STATES), ("kind", KINDS))
        )
        rows = visible_recommendations(self.actor, tenant_path=self.query.get("tenant", ""), state=state, kind=kind)
        return respond(
            request, wanted, lambda: self._page(rows),
            lambda: recommendations_csv(list(rows.order_by("-high", "id")[:MOST_IN_A_SHEET])), "recommendations.csv",
        )  # fmt: skip

    def _page(self, rows: Any) -> dict[str, Any]:
        found: dict[str, Any] = self.page(rows, orders=ORDERS, render=lambda row: row).data
        return found | {"items": show_all(found["items"])}


class StandingRecommendationView(ApiView):
    """`/recommendations/{id}`."""

    @extend_schema(operation_id="recommendations_read", responses=RecommendationShown)
    def get(self, request: Request, recommendation_id: UUID) -> Response:
        """Returns a recommendation."""
        return _answer(recommendation_by_id(self.actor, recommendation_id))


class RecommendationAcceptView(ApiView):
    """`/recommendations/{id}/accept`."""

    @extend_schema(
        operation_id="recommendations_accept", request=RecommendationAcceptance, responses=RecommendationShown
    )
    def post(self, request: Request, recommendation_id: UUID) -> Response:
        """Accepts an open recommendation: what it saves is measured from now on. Again, it changes nothing."""
        fields = self.read(RecommendationAcceptance)
        return _answer(accept(self.actor, recommendation_id, fields["reason"]))


class RecommendationDismissView(ApiView):
    """`/recommendations/{id}/dismiss`."""

    @extend_schema(
        operation_id="recommendations_dismiss", request=RecommendationDismissal, responses=RecommendationShown
    )
    def post(self, request: Request, recommendation_id: UUID) -> Response:
        """Dismisses an open recommendation until a day. Again, it changes nothing."""
        fields = self.read(RecommendationDismissal)
        return _answer(dismiss(self.actor, recommendation_id, fields["reason"], fields["until"]))


class RecommendationReopenView(ApiView):
    """`/recommendations/{id}/reopen`."""

    @extend_schema(operation_id="recommendations_reopen", request=None, responses=RecommendationShown)
    def post(self, request: Request, recommendation_id: UUID) -> Response:
        """Opens an accepted or dismissed recommendation again. Of an open one, it changes nothing."""
        return _answer(reopen(self.actor, recommendation_id))


class RequiredLabelsView(ApiView):
    """`/required-labels`."""

    paged = True

    @extend_schema(operation_id="required_labels_list", responses=page_shape(RequiredLabelsShown))
    def get(self, request: Request) -> Response:
        """Lists the required labels of the organisations that you see as a whole."""
        return self.page(visible_required_labels(self.actor), orders=LABEL_ORDERS, render=show_labels)

    @extend_schema(
        operation_id="required_labels_create", request=RequiredLabelsCreate, responses={201: RequiredLabelsShown}
    )
    def post(self, request: Request) -> Response:
        """Sets the labels that an organisation's jobs must have, from a day on. No job is refused for them."""
        fields = self.read(RequiredLabelsCreate)

        def produce() -> tuple[int, dict[str, Any]]:
            row = set_required_labels(self.actor, fields["organisation"], fields["effective_from"], fields["keys"])
            return status.HTTP_201_CREATED, show_labels(row)

        return self.created(request, None, "required-labels", produce)


def show_all(rows: Sequence[Recommendation]) -> list[dict[str, Any]]:
    """As the API shows them, with what they saved."""
    measured = realised_of(rows)
    return [show_recommendation(row, measured.get(row.id)) for row in rows]


def show_recommendation(row: Recommendation, measured: Measured | None) -> dict[str, Any]:
    """As the API shows it."""
    return {
        "id": str(row.id), "state": row.state, "kind": row.kind, "tenant": row.tenant_path, "subject": row.subject,
        "summary": summary_of(row.kind, row.evidence), "low": f"{row.low:f}", "high": f"{row.high:f}", "currency": row.currency,
        "confidence": f"{row.confidence:f}", "evidence": row.evidence, "found_on": f"{row.found_on}",
        "last_found_on": f"{row.last_found_on}", "reason": row.reason or None, "until": _day(row.until),
        "decided_high": _text(row.decided_high), "decided_by": row.decided_by_name or None, "decided_at": instant(row.decided_at),
        "realised": None if measured is None else _realised(measured),
    }  # fmt: skip


def show_labels(row: RequiredLabels) -> dict[str, Any]:
    """As the API shows them."""
    return {
        "id": row.id,
        "organisation": row.organisation.path,
        "effective_from": f"{row.effective_from}",
        "keys": list(row.keys),
        "made_by": row.made_by_name,
        "created_at": instant(row.created_at),
    }


def recommendations_csv(rows: Sequence[Recommendation]) -> str:
    """One row for each. What is not known is empty."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    for shown in show_all(rows):
        saved = shown["realised"] or {}
        flat = shown | {
            "realised": saved.get("amount"),
            "realised_low": saved.get("low"),
            "realised_high": saved.get("high"),
        }
        cells = ("" if flat[name] is None else flat[name] for name in COLUMNS)
        writer.writerow([inert(cell) if name in AS_TEXT else cell for name, cell in zip(COLUMNS, cells, strict=True)])
    return text.getvalue()


def _answer(row: Recommendation) -> Response:
    return Response(show_all([row])[0])


def _realised(measured: Measured) -> dict[str, Any]:
    result = measured.result
    sides = {
        "before": (measured.before, result.before, result.each_before),
        "after": (measured.after, result.after, result.each_after),
    }
    return {
        "amount": _text(result.amount), "low": _text(result.low), "high": _text(result.high),
        "is_beyond_chance": result.is_beyond_chance, "why_not": None if result.why_not is None else result.why_not.value,
    } | {
        name: {
            "start": f"{span[0]}", "until": f"{span[1]}", "jobs": runs.jobs, "succeeded": runs.units,
            "cost": f"{Decimal(runs.cost.numerator) / runs.cost.denominator:.6f}", "cost_per_success": _text(each),
        }
        for name, (span, runs, each) in sides.items()
    }  # fmt: skip


def _one_of(name: str, value: str, known: Sequence[str]) -> str:
    if value and value not in known:
        raise Invalid.field(name, f"unknown_{name}", f"one of {', '.join(known)}")
    return value


def _text(value: Decimal | None) -> str | None:
    return None if value is None else f"{value:f}"


def _day(value: date | None) -> str | None:
    return None if value is None else f"{value}"
