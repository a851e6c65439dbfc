"""Exports for finance tools: streamed, because they have no limit of rows."""

from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from billing.engine import focus, focus_datasets, usage_file
from billing.operations.exports import note_export
from billing.queries.focus import charges_of
from billing.queries.periods import states_of_month
from foundation.clock import now
from foundation.media import JSONRenderer
from foundation.problems import Invalid
from tenancy.api.views import ApiView

from . import focus_files, usage_files
from .period import period_of
from .spreadsheet import CSVRenderer

VERSION = OpenApiParameter("version", str, description="Of the specification.", enum=list(focus.VERSIONS))
DATASET = OpenApiParameter("dataset", str, description="Of the specification.", enum=list(focus_datasets.DATASETS))

CURRENCIES = OpenApiParameter(
    "currencies",
    str,
    description="`two`: of files with prices in another currency than the documents.",
    enum=["one", "two"],
)


class FocusView(ApiView):
    """`/exports/focus`."""

    filters = ("tenant", "month", "version", "dataset")
    renderer_classes = [CSVRenderer, JSONRenderer]

    @extend_schema(
        operation_id="exports_focus",
        parameters=[VERSION, DATASET],
        responses={(200, "text/csv"): OpenApiTypes.STR},
    )
    def get(self, request: Request) -> StreamingHttpResponse:
        """Returns a month as a dataset of FOCUS; by default Cost and Usage, one row per job, flavor, price and day (UTC).

        A closed month has what its close counted, with the invoices that were issued. Of an open month, usage that is not
        recorded yet is not included: take its export again until it is complete.
        """
        version = _version(self.query.get("version", focus.VERSIONS[0]))
        dataset = _dataset(self.query.get("dataset", focus_datasets.DATASETS[0]), version)
        start, until = period_of({name: self.query[name] for name in ("month",) if name in self.query}, now())
        path = self.query.get("tenant", "")
        pieces = focus_files.pieces(self.actor, dataset, version, path, start.date())
        note_export(self.actor, focus_files.kind_of(dataset, version), path, start, until)
        name = focus_files.file_name(dataset, version, path, start.date())
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        return StreamingHttpResponse(pieces, content_type="text/csv; charset=utf-8", headers=headers)


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
    DataType = serializers.ChoiceField(["DateTime", "Decimal", "JSON", "String"])
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

    filters = ("version", "dataset", "currencies")

    @extend_schema(
        operation_id="exports_focus_schema", parameters=[VERSION, DATASET, CURRENCIES], responses=FocusSchemaShape
    )
    def get(self, request: Request) -> Response:
        """Returns the columns of a dataset of the FOCUS export and their types, as the specification's schema metadata."""
        version = _version(self.query.get("version", focus.VERSIONS[0]))
        dataset = _dataset(self.query.get("dataset", focus_datasets.DATASETS[0]), version)
        in_two = self.query.get("currencies", "one")
        if in_two not in {"one", "two"}:
            raise Invalid.field("currencies", "unknown_value", "one of one, two")
        return Response(focus_datasets.schema(dataset, version, in_two=in_two == "two"))


def _version(text: str) -> focus.Version:
    for version in focus.VERSIONS:
        if version == text:
            return version
    raise Invalid.field("version", "unknown_version", f"one of {', '.join(focus.VERSIONS)}")


def _dataset(text: str, version: focus.Version) -> focus_datasets.Dataset:
    offered = focus_datasets.datasets_of(version)
    for dataset in offered:
        if dataset == text:
            return dataset
    raise Invalid.field("dataset", "unknown_dataset", f"in version {version}, one of {', '.join(offered)}")


def _begun(charges: Iterator[focus.Charge]) -> Iterator[focus.Charge]:
    """The same charges. The first is read now, because an error after the response has begun can only cut it off."""
    return chain(list(islice(charges, 1)), charges)
