"""Reports of runs: each run reports with its own token, and users read what was reported."""

from dataclasses import dataclass
from typing import Any, ClassVar
from uuid import UUID

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request
from rest_framework.response import Response

from federation.engine.artifacts import MOST_ARTIFACTS
from federation.engine.objects.report_tokens import PREFIX
from federation.engine.reports import MOST_CHECKPOINTS, MOST_FLAVORS, MOST_REFERENCE_BYTES, MOST_SERIES
from federation.operations.reports import admit_report, record_report
from federation.queries.pending_stops import is_checkpoint_wanted
from federation.queries.reports import CheckpointLine, ProgressView, Reports, may_report, reports_of
from foundation import clock
from foundation.plain_json import instant
from foundation.problems import NotAuthenticated, NotFound
from foundation.requests import KNOWN_CALLER
from tenancy.api.authentication import TokenAuthentication
from tenancy.api.views import ApiView

from .artifact_shapes import ReportedArtifactShape

MOST_BODY_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Reporter:
    """The run that reports, in place of a user. It has no other right."""

    attempt_id: UUID
    is_authenticated: ClassVar[bool] = True


class ReportToken(BaseAuthentication):
    """`Authorization: Bearer swyr_…`, the token of the attempt that the path names."""

    def authenticate(self, request: Request) -> tuple[Reporter, Reporter] | None:
        scheme, _, token = request.META.get("HTTP_AUTHORIZATION", "").partition(" ")
        if scheme.lower() != "bearer" or not token.startswith(PREFIX):
            return None
        attempt_id: UUID = request.parser_context["kwargs"]["attempt_id"]
        if not may_report(attempt_id, token):
            raise NotAuthenticated("This token is not valid.")
        request.META[KNOWN_CALLER] = True
        reporter = Reporter(attempt_id)
        return reporter, reporter

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="switchyard"'


class ReportTokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """How the schema describes tokens of attempts."""

    target_class = ReportToken
    name = "reportToken"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "bearerFormat": "swyr_…"}


class ReportedCheckpointShape(serializers.Serializer[Any]):
    reference = serializers.CharField(
        max_length=MOST_REFERENCE_BYTES, help_text="Where it is; the gateway never reads it."
    )
    size_bytes = serializers.IntegerField(required=False, allow_null=True, min_value=0)
    step = serializers.IntegerField(required=False, allow_null=True, min_value=0, help_text="Default: the report's.")
    flavors = serializers.ListField(
        child=serializers.CharField(),
        required=False,
        max_length=MOST_FLAVORS,
        help_text="The flavors on which it can be resumed; empty: any.",
    )
    written_at = serializers.DateTimeField(required=False, allow_null=True, help_text="Default: now.")


class ReportShape(serializers.Serializer[Any]):
    sequence = serializers.IntegerField(
        min_value=0, help_text="Grows with each report; one that is not newer changes nothing."
    )
    step = serializers.IntegerField(required=False, allow_null=True, min_value=0)
    total_steps = serializers.IntegerField(required=False, allow_null=True, min_value=1)
    loss = serializers.FloatField(required=False, allow_null=True)
    series = serializers.DictField(
        child=serializers.FloatField(), required=False, help_text=f"Other numbers by name; at most {MOST_SERIES} names."
    )
    checkpoint = ReportedCheckpointShape(required=False, allow_null=True)
    artifacts = serializers.ListField(child=ReportedArtifactShape(), required=False, max_length=MOST_ARTIFACTS)


class AcceptedShape(serializers.Serializer[Any]):
    is_new = serializers.BooleanField(help_text="False if it was not newer than what is known.")
    checkpoint_wanted = serializers.BooleanField(
        help_text="Whether a stop of the job waits for a checkpoint: write and report one now."
    )


class SeriesShape(serializers.Serializer[Any]):
    name = serializers.CharField()
    points = serializers.ListField(
        child=serializers.ListField(child=serializers.FloatField()), help_text="Pairs of step and value."
    )


class ProgressShape(serializers.Serializer[Any]):
    attempt = serializers.UUIDField()
    step = serializers.IntegerField(allow_null=True)
    total_steps = serializers.IntegerField(allow_null=True)
    percent = serializers.IntegerField(allow_null=True)
    loss = serializers.FloatField(allow_null=True)
    reported_at = serializers.DateTimeField()
    expected_end_at = serializers.DateTimeField(allow_null=True, help_text="At its pace so far; null if unknown.")


class ProgressWithSeriesShape(ProgressShape):
    series = SeriesShape(many=True)


class CheckpointShape(serializers.Serializer[Any]):
    attempt = serializers.UUIDField()
    reference = serializers.CharField()
    size_bytes = serializers.IntegerField(allow_null=True)
    step = serializers.IntegerField(allow_null=True)
    flavors = serializers.ListField(child=serializers.CharField())
    written_at = serializers.DateTimeField()


class JobReportsShape(serializers.Serializer[Any]):
    progress = ProgressWithSeriesShape(allow_null=True, help_text="Of the newest attempt that reported.")
    checkpoints = CheckpointShape(many=True, help_text=f"Newest first; up to {MOST_CHECKPOINTS} of each attempt.")


def progress_json(view: ProgressView | None) -> dict[str, Any] | None:
    """The newest progress of an attempt; null if it has not reported."""
    if view is None:
        return None
    return {
        "attempt": str(view.attempt_id),
        "step": view.step,
        "total_steps": view.total_steps,
        "percent": view.percent,
        "loss": view.loss,
        "reported_at": instant(view.reported_at),
        "expected_end_at": instant(view.expected_end_at),
    }


def _checkpoint_json(line: CheckpointLine) -> dict[str, Any]:
    return {
        "attempt": str(line.attempt_id),
        "reference": line.reference,
        "size_bytes": line.size_bytes,
        "step": line.step,
        "flavors": list(line.flavors),
        "written_at": instant(line.written_at),
    }


def _reports_json(reports: Reports) -> dict[str, Any]:
    progress = progress_json(reports.progress)
    if progress is not None and reports.progress is not None:
        progress["series"] = [{"name": one.name, "points": one.points} for one in reports.progress.series]
    return {"progress": progress, "checkpoints": [_checkpoint_json(one) for one in reports.checkpoints]}


class AttemptReports(ApiView):
    authentication_classes = (ReportToken, TokenAuthentication)
    max_body_bytes = MOST_BODY_BYTES

    @extend_schema(request=ReportShape, responses=AcceptedShape)
    def post(self, request: Request, attempt_id: UUID) -> Response:
        """Takes a report of the run, with the token that the run has. Repeated and late reports are harmless."""
        if not isinstance(request.auth, Reporter):
            raise NotFound
        admit_report(attempt_id)
        is_new = record_report(attempt_id, request.data)
        return Response({"is_new": is_new, "checkpoint_wanted": is_checkpoint_wanted(attempt_id)})


class JobReports(ApiView):
    @extend_schema(responses=JobReportsShape)
    def get(self, request: Request, job_id: UUID) -> Response:
        """Returns what the job's runs reported: progress with its series, and checkpoints."""
        return Response(_reports_json(reports_of(self.actor, job_id, clock.now())))
