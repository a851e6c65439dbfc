"""The journal of a month as a CSV file, for accounting systems."""

from collections.abc import Iterator
from itertools import chain, islice

from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request

from billing.operations.exports import note_export
from billing.queries.journal import COLUMNS, TEXTS, Journal, journal_of
from foundation.clock import now
from foundation.media import JSONRenderer
from foundation.problems import Invalid
from tenancy.api.views import ApiView

from .focus_files import as_csv
from .period import period_of
from .spreadsheet import CSVRenderer

JOURNAL = "journal"
ORGANISATION = OpenApiParameter("organisation", str, required=True, description="Its path.")


class JournalView(ApiView):
    """`/exports/journal`."""

    filters = ("organisation", "month")
    renderer_classes = [CSVRenderer, JSONRenderer]

    @extend_schema(
        operation_id="exports_journal", parameters=[ORGANISATION], responses={(200, "text/csv"): OpenApiTypes.STR}
    )
    def get(self, request: Request) -> StreamingHttpResponse:
        """Returns every line of an organisation's ledger in a month, as a debit or a credit, without a limit of rows."""
        if not self.query.get("organisation"):
            raise Invalid.field("organisation", "required", "give the path of an organisation")
        given = {"month": self.query["month"]} if "month" in self.query else {}
        start, until = period_of(given, now())
        journal = journal_of(self.actor, self.query["organisation"], start.date())
        pieces = journal_pieces(journal)
        note_export(self.actor, JOURNAL, journal.organisation.path, start, until)
        headers = {"Content-Disposition": f'attachment; filename="{journal_file(journal)}"'}
        return StreamingHttpResponse(pieces, content_type="text/csv; charset=utf-8", headers=headers)


def journal_pieces(journal: Journal) -> Iterator[bytes]:
    """The file in pieces. Its first row is read now: an error after the response has begun can only cut it off."""
    found = journal.rows()
    rows = (dict(zip(COLUMNS, row, strict=True)) for row in chain(list(islice(found, 1)), found))
    return as_csv(rows, COLUMNS, texts=TEXTS)


def journal_file(journal: Journal) -> str:
    """The name of the file of a month."""
    return f"journal-{journal.organisation.path}-{journal.month:%Y-%m}{'' if journal.is_final else '-so-far'}.csv"
