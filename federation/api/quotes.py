"""/quotes and /capacity: what would happen, without doing it."""

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from federation.queries.quotes import capacity_of, quote_of
from foundation import strict_json
from foundation.problems import Invalid
from tenancy.api.views import ApiView

from .jobs import SUBMISSION
from .quote_answers import capacity_json, quote_json
from .quote_shapes import CapacityShape, QuoteShape


class Quotes(ApiView):
    only_asks = True

    @extend_schema(request=SUBMISSION, responses=QuoteShape)
    def post(self, request: Request) -> Response:
        """Returns what the next round would do with a job, without submitting it. Refuses what a submission would refuse."""
        return Response(quote_json(quote_of(self.actor, request.data)))


class Room(ApiView):
    filters = ("shape", "tenant")

    @extend_schema(responses=CapacityShape)
    def get(self, request: Request) -> Response:
        """Returns the number of further jobs of a shape that fit now, where, and how many of them are within quota.

        `shape` is a job spec as JSON in which `name`, and names and images of pod sets, may be missing; `tenant` may
        be in it or beside it.
        """
        return Response(capacity_json(capacity_of(self.actor, self._shape(), self.query.get("tenant", ""))))

    def _shape(self) -> object:
        text = self.query.get("shape", "")
        if not text:
            raise Invalid.field("shape", "required", "a job spec as JSON; names and images can be missing")
        try:
            return strict_json.loads(text.encode())
        except strict_json.MalformedJSON as error:
            raise Invalid.field("shape", "malformed", f"this is not valid JSON: {error}") from None
