"""An organisation's report of a month, as JSON or as CSV."""

from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

from rest_framework.request import Request
from rest_framework.response import Response

from foundation.clock import now
from foundation.media import JSONRenderer
from foundation.problems import Invalid
from tenancy.api.views import ApiView

from .period import period_of
from .spreadsheet import CSVRenderer, respond, wanted_format


class Asked(NamedTuple):
    """What the query asks for: the organisation's path, the month's start, and one of FORMATS."""

    organisation: str
    start: datetime
    format: str


class MonthReportView(ApiView):
    """A report that takes `organisation`, `month` and `format`."""

    filters = ("organisation", "month", "format")
    renderer_classes = [JSONRenderer, CSVRenderer]

    def asked(self, request: Request) -> Asked:
        """Raises Invalid (`unknown_format`, `required`, `not_a_month`)."""
        wanted = wanted_format(request, self.query)
        if not self.query.get("organisation"):
            raise Invalid.field("organisation", "required", "give the path of an organisation")
        given = {"month": self.query["month"]} if "month" in self.query else {}
        return Asked(self.query["organisation"], period_of(given, now())[0], wanted)

    def answer(
        self, request: Request, asked: Asked, shown: Callable[[], object], text: Callable[[], str], file: str
    ) -> Response:
        """The report in the format that was asked for; as CSV, in a file of this name."""
        return respond(request, asked.format, shown, text, file)
