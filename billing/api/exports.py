"""Exports for finance tools: streamed, because they have no limit of rows."""

import csv
import io
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import chain, islice
from typing import Any

from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from billing.engine import focus, usage_file
from billing.operations.exports import note_export
from billing.queries.focus import charges_of
from billing.queries.periods import states_of_month
from foundation.clock import now
from foundation.media import JSONRenderer
from foundation.problems import Invalid
from tenancy.api.views import ApiView

from . import usage_files
from .period import period_of
from .spreadsheet import CSVRenderer, inert

ROWS_AT_ONCE = 500
VERSION = OpenApiParameter("version", str, description="Of the specification.", enum=list(focus.VERSIONS))


class FocusView(ApiView):
    """`/exports/focus`."""

    filters = ("tenant", "month", "version")
    renderer_classes = [CSVRenderer, JSONRenderer]

    @extend_schema(
        operation_id="exports_focus",
        parameters=[VERSION],
        responses={(200, "text/csv"): OpenApiTypes.STR},
    )
    def get(self, request: Request) -> StreamingHttpResponse:
        """Returns a month's recorded usage as FOCUS Cost and Usage, one row per job, flavor, price and day (UTC).

        Usage that is not recorded yet is not included: take the export of a month again until it is complete.
        """
        version = _version(self.query.get("version", focus.VERSIONS[0]))
        start, until = period_of({name: self.query[name] for name in ("month",) if name in self.query}, now())
        path = self.query.get("tenant", "")
        charges = _begun(charges_of(self.actor, path, start, until))
        note_export(self.actor, f"focus-{version}", path, start, until)
        headers = {"Content-Disposition": f'attachment; filename="{_file_name(path, start, version)}"'}
        return StreamingHttpResponse(_csv(charges, version), content_type="text/csv; charset=utf-8", headers=headers)


class UsageFileView(ApiView):
    """`/exports/usage`."""

    filters = ("tenant", "month", "format")
    renderer_classes = [CSVRenderer, JSONRenderer]

    @extend_schema(
        operation_id="exports_usage",
        parameters=[OpenApiParameter("format", str, description="Of the file.", enum=list(usage_files.PIECES))],
        responses={
            (200, "text/csv"): OpenApiTypes.STR,
            (200, usage_files.MEDIA["xlsx"]): OpenApiTypes.BINARY,
            (200, usage_files.MEDIA["parquet"]): OpenApiTypes.BINARY,
        },
    )
    def get(self, request: Request) -> StreamingHttpResponse:
        """Returns a month's recorded usage with exact amounts, one row per job, flavor, price and day (UTC).

        Usage that is not recorded yet is not included. There is no limit of rows.
        """
        kind = self.query.get("format", "csv")
        if kind not in usage_files.PIECES:
            raise Invalid.field("format", "unknown_format", f"one of {', '.join(usage_files.PIECES)}")
        if kind == "parquet" and not usage_files.has_parquet():
            detail = "this gateway is installed without the extra parquet; take csv or xlsx"
            raise Invalid.field("format", "format_not_installed", detail)
        at = now()
        start, until = period_of({name: self.query[name] for name in ("month",) if name in self.query}, at)
        path = self.query.get("tenant", "")
        charges = _begun(charges_of(self.actor, path, start, until))
        note_export(self.actor, f"usage-{kind}", path, start, until)
        states = states_of_month(start.date())
        about = {
            "Report": "Recorded usage", "Tenant": path or "all that you may see", "From": f"{start:%Y-%m-%d} UTC",
            "Until": f"{until:%Y-%m-%d} UTC", "Made": f"{at:%Y-%m-%d %H:%M:%S} UTC", "By": self.actor.name,
        }  # fmt: skip
        rows = (usage_file.row(charge, states.get(charge.organisation_id, "open")) for charge in charges)
        name = f"usage-{path.replace('/', '-') or 'all'}-{start:%Y-%m}.{kind}"
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        return StreamingHttpResponse(
            usage_files.PIECES[kind](rows, about), content_type=usage_files.MEDIA[kind], headers=headers
        )


class ColumnShape(serializers.Serializer[Any]):
    """A column of an export; decimals have a precision and a scale."""

    ColumnName = serializers.CharField()
    DataType = serializers.ChoiceField(["DateTime", "Decimal", "String"])
    NumericPrecision = serializers.IntegerField(required=False)
    NumberScale = serializers.IntegerField(required=False)


class FocusSchemaShape(serializers.Serializer[Any]):
    """The specification's metadata of an export."""

    FocusVersion = serializers.ChoiceField(list(focus.VERSIONS))
    SchemaId = serializers.CharField()
    DataGenerator = serializers.CharField()
    ColumnDefinition = ColumnShape(many=True)


class FocusSchemaView(ApiView):
    """`/exports/focus/schema`."""

    filters = ("version",)

    @extend_schema(operation_id="exports_focus_schema", parameters=[VERSION], responses=FocusSchemaShape)
    def get(self, request: Request) -> Response:
        """Returns the columns of the FOCUS export and their types, as the specification's schema metadata."""
        return Response(focus.schema(_version(self.query.get("version", focus.VERSIONS[0]))))


def _version(text: str) -> focus.Version:
    for version in focus.VERSIONS:
        if version == text:
            return version
    raise Invalid.field("version", "unknown_version", f"one of {', '.join(focus.VERSIONS)}")


def _file_name(path: str, start: datetime, version: str) -> str:
    return f"focus-{version}-{path.replace('/', '-') or 'all'}-{start:%Y-%m}.csv"


def _begun(charges: Iterator[focus.Charge]) -> Iterator[focus.Charge]:
    """The same charges. The first is read now, because an error after the response has begun can only cut it off."""
    return chain(list(islice(charges, 1)), charges)


def _csv(charges: Iterable[focus.Charge], version: focus.Version) -> Iterator[bytes]:
    """The file in pieces: a header, and the rows of each charge."""
    columns = focus.columns(version)
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(columns)
    number = 0
    for charge in charges:
        for row in focus.rows(charge, version):
            writer.writerow([_cell(name, row.get(name, "")) for name in columns])
            number += 1
        if number >= ROWS_AT_ONCE:
            number = 0
            yield _taken(text)
    yield _taken(text)


def _cell(name: str, value: str) -> str:
    return value if name in focus.DECIMALS else inert(value)


def _taken(text: io.StringIO) -> bytes:
    piece = text.getvalue().encode()
    text.seek(0)
    text.truncate()
    return piece
