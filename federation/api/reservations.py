"""/reservations: nodes that a tenant uses exclusively for a time."""

from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from federation.engine.intake.reservation_reading import FEWEST_RECALL_SECONDS, MAX_COPIES, MOST_RECALL_SECONDS
from federation.models import Reservation
from federation.operations import cancel_reservation, make_reservation, shorten_reservation
from federation.queries.reservations import (
    RESERVATION_FILTERS,
    STATES,
    Amounts,
    ReservationView,
    filtered_reservations,
    reservation_of,
    views_of,
)
from foundation import clock
from foundation.plain_json import instant
from foundation.schema import page_shape
from placement.values.model import LEVELS
from placement.values.quantities import cpu_text, memory_text
from quotas.engine.amounts import format_amount
from tenancy.api.views import ApiView

from .pod_shapes import QUANTITY, GpuShape
from .shapes import MODES

BASE = "/api/v1/reservations"
MIB = 2**20
ORDERS = {"-created": "-id", "created": "id"}


class ReservedPodSetShape(serializers.Serializer[Any]):
    name = serializers.CharField(required=False, max_length=63)
    count = serializers.IntegerField(min_value=1, default=1)
    cpu = serializers.CharField(help_text=QUANTITY)
    memory = serializers.CharField(help_text=QUANTITY)
    gpu = GpuShape(required=False, allow_null=True)


class ReservedTopologyShape(serializers.Serializer[Any]):
    level = serializers.ChoiceField(choices=list(LEVELS), default="cluster")
    mode = serializers.ChoiceField(choices=MODES, default="preferred")


class ReservedPlacesShape(serializers.Serializer[Any]):
    clusters = serializers.ListField(child=serializers.CharField(), required=False)
    exclude_clusters = serializers.ListField(child=serializers.CharField(), required=False)
    regions = serializers.ListField(child=serializers.CharField(), required=False, help_text="`*` matches anything.")
    capacity_types = serializers.ListField(child=serializers.CharField(), required=False)


class ReservationAskedShape(serializers.Serializer[Any]):
    """A request for `count` simultaneous jobs of one shape. The fewest whole nodes that fit are reserved immediately."""

    tenant = serializers.CharField(help_text="Path; this tenant and every tenant below it can use the reservation.")
    name = serializers.CharField(max_length=63)
    cluster = serializers.CharField(required=False, allow_null=True, help_text="By default the cheapest that fits.")
    starts_at = serializers.DateTimeField(required=False, allow_null=True, help_text="By default now.")
    ends_at = serializers.DateTimeField()
    count = serializers.IntegerField(min_value=1, max_value=MAX_COPIES, default=1)
    recall_seconds = serializers.IntegerField(
        required=False,
        allow_null=True,
        min_value=FEWEST_RECALL_SECONDS,
        max_value=MOST_RECALL_SECONDS,
        help_text="Other jobs that end within this time may use what is unused. By default none may.",
    )
    pod_sets = ReservedPodSetShape(many=True)
    topology = ReservedTopologyShape(required=False)
    constraints = ReservedPlacesShape(required=False)


class ReservationEndShape(serializers.Serializer[Any]):
    ends_at = serializers.DateTimeField(help_text="In the future, and no later than its current end.")


class ReservedNodeShape(serializers.Serializer[Any]):
    name = serializers.CharField()
    trouble = serializers.CharField(allow_null=True, help_text="Why it cannot be used now; null if it can.")


class ReservedAmountsShape(serializers.Serializer[Any]):
    gpus = serializers.IntegerField()
    cpu = serializers.CharField()
    memory = serializers.CharField()


class ReservationUseShape(serializers.Serializer[Any]):
    """Use of the nodes that are available now; zero once the reservation has ended."""

    room = ReservedAmountsShape()
    used = ReservedAmountsShape(help_text="By jobs that name the reservation.")
    unused = ReservedAmountsShape()
    idle_nodes = serializers.IntegerField(help_text="Nodes on which none of these jobs runs.")
    jobs = serializers.IntegerField()


class ReservedQuotaShape(serializers.Serializer[Any]):
    resource = serializers.CharField()
    reserved = serializers.CharField(help_text=QUANTITY)
    used = serializers.CharField(help_text="What jobs of the reservation hold now.")


class ReservationLinksShape(serializers.Serializer[Any]):
    self = serializers.CharField()


class ReservationShape(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    tenant = serializers.CharField()
    name = serializers.CharField()
    cluster = serializers.CharField()
    state = serializers.ChoiceField(choices=list(STATES))
    starts_at = serializers.DateTimeField()
    ends_at = serializers.DateTimeField()
    asked_ends_at = serializers.DateTimeField(
        help_text="The end that was requested, before any shortening or cancelling."
    )
    count = serializers.IntegerField()
    pod_sets = ReservedPodSetShape(many=True)
    topology = ReservedTopologyShape()
    constraints = ReservedPlacesShape()
    nodes = ReservedNodeShape(many=True)
    shortage = serializers.CharField(allow_null=True, help_text="Such as `2 of 4 nodes are down`.")
    use = ReservationUseShape()
    quota = ReservedQuotaShape(
        many=True, help_text="What counts for it against quota limits, from its start to its end."
    )
    beyond_limit = serializers.CharField(
        allow_null=True, help_text="The limit of which more is reserved than it allows, because it was lowered."
    )
    recall_seconds = serializers.IntegerField(
        allow_null=True, help_text="Other jobs that end within this time may use what is unused; null: none may."
    )
    release_at = serializers.DateTimeField(
        allow_null=True, help_text="When it is released, unless one of its jobs comes before; null: never."
    )
    released_at = serializers.DateTimeField(
        allow_null=True, help_text="When it ended because none of its jobs had come."
    )
    created_by = serializers.CharField()
    created_at = serializers.DateTimeField()
    cancelled_at = serializers.DateTimeField(allow_null=True)
    links = ReservationLinksShape()


class Reservations(ApiView):
    filters = RESERVATION_FILTERS
    paged = True

    @extend_schema(responses=page_shape(ReservationShape))
    def get(self, request: Request) -> Response:
        """Lists the reservations of the tenants that you may see, and of those above them, newest first."""
        page = self.page(filtered_reservations(self.actor, self.query), orders=ORDERS, render=lambda row: row)
        page.data["items"] = [_view_json(view) for view in views_of(page.data["items"], clock.now())]
        return page

    @extend_schema(request=ReservationAskedShape, responses={201: ReservationShape})
    def post(self, request: Request) -> Response:
        """Reserves nodes. If they are not available, the refusal names what is missing and who holds it."""
        key = request.headers.get("Idempotency-Key", "")
        answer = make_reservation(self.actor, request.data, show=reservation_json, key=key, raw=self.raw_body)
        headers = {"Idempotent-Replayed": "true"} if answer.replayed else None
        return Response(answer.body, status=answer.status, headers=headers)


class OneReservation(ApiView):
    @extend_schema(responses=ReservationShape)
    def get(self, request: Request, reservation_id: UUID) -> Response:
        """Returns a reservation, its nodes as they are now, and what its jobs use of them."""
        return Response(reservation_json(reservation_of(self.actor, reservation_id)))

    @extend_schema(request=ReservationEndShape, responses=ReservationShape)
    def patch(self, request: Request, reservation_id: UUID) -> Response:
        """Shortens a reservation. Jobs that run past its new end continue on the same nodes."""
        return Response(reservation_json(shorten_reservation(self.actor, reservation_id, request.data)))

    @extend_schema(responses={204: None})
    def delete(self, request: Request, reservation_id: UUID) -> Response:
        """Cancels a reservation. Its nodes are free immediately, its running jobs continue, and it remains readable."""
        cancel_reservation(self.actor, reservation_id)
        return Response(status=204)


def reservation_json(row: Reservation) -> dict[str, Any]:
    """A reservation as it is now."""
    return _view_json(views_of([row], clock.now())[0])


def _view_json(view: ReservationView) -> dict[str, Any]:
    row = view.row
    return {
        "id": str(row.id),
        "tenant": row.tenant.path,
        "name": row.name,
        "cluster": row.cluster.name,
        "state": view.state,
        "starts_at": instant(row.starts_at),
        "ends_at": instant(row.until_at),
        "asked_ends_at": instant(row.ends_at),
        "count": row.count,
        **row.shape,
        "nodes": [{"name": node.name, "trouble": node.trouble or None} for node in view.nodes],
        "shortage": view.shortage or None,
        "use": {
            "room": _amounts_json(view.room),
            "used": _amounts_json(view.used),
            "unused": _amounts_json(view.unused),
            "idle_nodes": view.idle_nodes,
            "jobs": view.jobs,
        },
        "quota": [
            {
                "resource": line.resource,
                "reserved": format_amount(line.resource, line.reserved),
                "used": format_amount(line.resource, line.used),
            }
            for line in view.quota
        ],
        "beyond_limit": view.beyond or None,
        "recall_seconds": row.recall_seconds,
        "release_at": None if view.release_at is None else instant(view.release_at),
        "released_at": instant(row.released_at),
        "created_by": row.created_by.email,
        "created_at": instant(row.created_at),
        "cancelled_at": instant(row.cancelled_at),
        "links": {"self": f"{BASE}/{row.id}"},
    }


def _amounts_json(amounts: Amounts) -> dict[str, Any]:
    return {
        "gpus": amounts.gpus,
        "cpu": cpu_text(amounts.cpu_millicores),
        "memory": memory_text(amounts.memory_mib * MIB),
    }
