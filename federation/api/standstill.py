"""The standstill after a restore, for those who run the installation: translate, make one call, translate back."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from federation.operations.restoration import close_on_request, open_on_request
from federation.queries.standstill import Standing, standing_for
from tenancy.api.views import ApiView


class StrangersShape(serializers.Serializer[Any]):
    cluster = serializers.CharField()
    objects = serializers.IntegerField(help_text="Objects that may run and belong to no known attempt.")


class LostCommitsShape(serializers.Serializer[Any]):
    cluster = serializers.CharField()
    adopted = serializers.IntegerField(help_text="Runs that the database had forgotten and that were adopted.")
    vanished = serializers.IntegerField(help_text="Objects of live attempts that may have run and are gone.")


class StandstillShape(serializers.Serializer[Any]):
    is_closed = serializers.BooleanField(help_text="Whether placement and dispatch are paused.")
    reason = serializers.CharField(allow_null=True)
    began_at = serializers.DateTimeField(allow_null=True)
    uncompared = serializers.ListField(child=serializers.CharField(), help_text="Clusters not compared yet, by name.")
    strangers = StrangersShape(many=True)
    lost_commits = LostCommitsShape(many=True, help_text="What shows that the database lost commits.")
    needs_operator = serializers.BooleanField(
        help_text="Whether only an operator can resume. Otherwise the gateway does when every cluster was compared."
    )
    is_history_known = serializers.BooleanField(
        help_text="Whether PostgreSQL reveals its history, so that the gateway notices restores and failovers itself."
    )


class CloseShape(serializers.Serializer[Any]):
    reason = serializers.CharField(max_length=500)


class OpenShape(serializers.Serializer[Any]):
    note = serializers.CharField(
        max_length=500, required=False, help_text="Why what is left does not matter; required if anything is left."
    )


class StandstillView(ApiView):
    @extend_schema(responses={200: StandstillShape})
    def get(self, request: Request) -> Response:
        """Returns whether placement and dispatch are paused after a restore, and what is left to compare. For operators."""
        return Response(_json(standing_for(self.actor)))

    @extend_schema(request=CloseShape, responses={200: StandstillShape})
    def post(self, request: Request) -> Response:
        """Pauses placement and dispatch until every cluster is compared. Idempotent. For operators."""
        close_on_request(self.actor, request.data)
        return Response(_json(standing_for(self.actor)))


class Opening(ApiView):
    @extend_schema(request=OpenShape, responses={200: StandstillShape})
    def post(self, request: Request) -> Response:
        """Resumes placement and dispatch. Refused (409 `standstill`) while anything is left, unless a note says why it does not matter."""
        open_on_request(self.actor, request.data)
        return Response(_json(standing_for(self.actor)))


def _json(standing: Standing) -> dict[str, Any]:
    return {
        "is_closed": standing.is_closed,
        "reason": standing.reason or None,
        "began_at": standing.began_at,
        "uncompared": list(standing.left.uncompared),
        "strangers": [{"cluster": name, "objects": count} for name, count in standing.left.strangers],
        "lost_commits": [
            {"cluster": one.cluster, "adopted": one.adopted, "vanished": one.vanished} for one in standing.left.found
        ],
        "needs_operator": standing.needs_operator,
        "is_history_known": standing.is_history_known,
    }
