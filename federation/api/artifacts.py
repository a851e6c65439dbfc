"""/jobs/{id}/artifacts: what a job has written, as its runs announced it."""

from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from federation.models import Artifact
from federation.queries.artifacts import ArtifactLine, announced_artifacts
from federation.queries.logs import read_number
from foundation.plain_json import instant
from foundation.schema import page_shape
from tenancy.api.views import ApiView

from .artifact_shapes import AnnouncedArtifactShape

ORDERS = {"name": "name", "-name": "-name"}


def job_artifact_json(line: ArtifactLine) -> dict[str, Any]:
    """A declared artifact of a job, with what was announced."""
    return {
        "name": line.name,
        "required": line.is_required,
        **_place_json(line.storage, line.reference),
        "announced": None if line.announced is None else artifact_json(line.announced),
    }


def artifact_json(row: Artifact) -> dict[str, Any]:
    """An artifact as a run announced it."""
    return {
        "name": row.name,
        "attempt": str(row.attempt_id),
        "attempt_number": row.attempt.number,
        "cluster": row.attempt.cluster.name,
        **_place_json(row.storage, row.reference),
        "sha256": row.sha256,
        "size_bytes": row.size_bytes,
        "announced_at": instant(row.announced_at),
    }


def _place_json(storage: str, reference: str) -> dict[str, str | None]:
    if storage:
        return {"storage": storage, "path": reference, "url": None}
    return {"storage": None, "path": None, "url": reference}


class JobArtifacts(ApiView):
    filters = ("attempt",)
    paged = True

    @extend_schema(responses=page_shape(AnnouncedArtifactShape))
    def get(self, request: Request, job_id: UUID) -> Response:
        """Lists the job's artifacts by name: those of its newest attempt that announced any, or of the `attempt` with this
        number.
        """
        rows = announced_artifacts(self.actor, job_id, read_number(self.query.get("attempt", "")))
        return self.page(rows, orders=ORDERS, render=artifact_json)
