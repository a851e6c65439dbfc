"""Administrators' attestations about clusters and runs: translate, make one call, translate back."""

from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from federation.operations.attestation import DESTROYED, GONE, attest_cluster, attest_run
from tenancy.api.views import ApiView

from .shapes import ATTEMPT_STATES


class ClusterAttestationShape(serializers.Serializer[Any]):
    what = serializers.ChoiceField(choices=[DESTROYED, GONE])
    note = serializers.CharField(max_length=500, help_text="How you know.")


class ClusterAttestedShape(serializers.Serializer[Any]):
    attempts = serializers.IntegerField(help_text="The number of attempts that ended immediately.")


class RunAttestationShape(serializers.Serializer[Any]):
    note = serializers.CharField(max_length=500, help_text="How you know that no part of it still runs.")


class RunAttestedShape(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    state = serializers.ChoiceField(choices=ATTEMPT_STATES)


class ClusterAttestations(ApiView):
    @extend_schema(request=ClusterAttestationShape, responses={200: ClusterAttestedShape})
    def post(self, request: Request, cluster_id: UUID) -> Response:
        """Attests that a cluster is destroyed, or that the objects missing from its lists are gone. Their runs end as `lost`."""
        return Response({"attempts": attest_cluster(self.actor, cluster_id, request.data)})


class RunAttestation(ApiView):
    @extend_schema(request=RunAttestationShape, responses={200: RunAttestedShape})
    def post(self, request: Request, attempt_id: UUID) -> Response:
        """Attests that no part of a run is still running. It ends as `lost`, and its job may run again."""
        attempt = attest_run(self.actor, attempt_id, request.data)
        return Response({"id": str(attempt.id), "state": attempt.state})
