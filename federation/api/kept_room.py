"""/kept-room: the nodes that are kept for jobs which have waited too long, and what that costs."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from federation.models import KeptRoom
from federation.queries.kept_room import Cost, costs_of, kept_rooms
from foundation.plain_json import instant
from foundation.schema import page_shape
from foundation.shapes import Instant
from tenancy.api.views import ApiView

ORDERS = {"since": "since_at", "-since": "-since_at"}


class KeptRoomShape(serializers.Serializer[Any]):
    """Nodes that are kept for a waiting job. Their free GPUs count as used by its tenant."""

    job = serializers.UUIDField()
    name = serializers.CharField()
    tenant = serializers.CharField()
    cluster = serializers.CharField()
    nodes = serializers.ListField(child=serializers.CharField())
    since = Instant()
    until = Instant(help_text="When it is given up at the latest.")
    expected_start = Instant(allow_null=True, help_text="Null if it is not known when the nodes become free.")
    idle_gpus = serializers.FloatField(help_text="GPUs that are free there now.")
    idle_gpu_hours = serializers.FloatField(help_text="What counts as used by the tenant so far.")


class KeptRooms(ApiView):
    filters = ("tenant",)
    paged = True

    @extend_schema(operation_id="kept_room_list", responses=page_shape(KeptRoomShape))
    def get(self, request: Request) -> Response:
        """Lists the room that is kept now for jobs that you may see: for whom, since when, and what it costs."""
        answer = self.page(kept_rooms(self.actor, self.query.get("tenant", "")), orders=ORDERS, render=lambda row: row)
        rows = answer.data["items"]
        costs = costs_of(rows)
        answer.data["items"] = [_shown(row, costs[row.id]) for row in rows]
        return answer


def _shown(row: KeptRoom, cost: Cost) -> dict[str, Any]:
    return {
        "job": str(row.job_id),
        "name": row.job.name,
        "tenant": row.job.tenant.path,
        "cluster": row.cluster.name,
        "nodes": row.nodes,
        "since": instant(row.since_at),
        "until": instant(row.until_at),
        "expected_start": instant(row.expected_at),
        "idle_gpus": round(cost.idle_gpus, 3),
        "idle_gpu_hours": round(cost.gpu_hours, 6),
    }
