"""Maintenance windows of a cluster over HTTP: translate, make one call, translate back."""

from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from clusters.models import MaintenanceWindow
from clusters.operations.windows import MOST_NODES, WantedWindow, cancel_window, make_window
from clusters.queries.windows import STATES, in_state, state_of, window_by_id, windows_of
from foundation.clock import database_now
from foundation.plain_json import instant
from foundation.schema import page_shape
from foundation.shapes import Instant, StrictShape, Text
from tenancy.api.views import ApiView

ORDERS = {"-created": "-id", "created": "id"}


class Flag(serializers.BooleanField):
    """A JSON boolean: not a number, not a string."""

    def to_internal_value(self, data: Any) -> bool:
        if not isinstance(data, bool):
            self.fail("invalid", input=data)
        return data


class WindowCreate(StrictShape):
    """A period in which the cluster takes no work; or some of its nodes, or those that offer a flavor."""

    starts_at = Instant(required=False, help_text="By default now.")
    ends_at = Instant()
    reason = Text(max_length=300, help_text="Why, for the users whose jobs wait.")
    nodes = serializers.ListField(
        child=Text(max_length=253),
        required=False,
        max_length=MOST_NODES,
        help_text="Names of nodes. Without nodes and flavor, the window concerns the whole cluster.",
    )
    flavor = Text(required=False, max_length=120, help_text="The window concerns the nodes that offer this flavor.")
    drain = Flag(required=False, help_text="Whether what still runs there when it begins is stopped. By default, no.")


class WindowShown(serializers.Serializer[Any]):
    """A maintenance window."""

    id = serializers.UUIDField()
    cluster = serializers.CharField()
    state = serializers.ChoiceField(choices=list(STATES))
    starts_at = Instant()
    ends_at = Instant()
    nodes = serializers.ListField(child=serializers.CharField())
    flavor = serializers.CharField(help_text="Empty if it does not concern a flavor.")
    reason = serializers.CharField()
    drain = serializers.BooleanField()
    created_by = serializers.CharField()
    created_at = Instant()
    cancelled_at = Instant(allow_null=True)
    cancelled_by = serializers.CharField()


class WindowsView(ApiView):
    """`/clusters/{id}/windows`."""

    filters = ("state",)
    paged = True

    @extend_schema(operation_id="windows_list", responses=page_shape(WindowShown))
    def get(self, request: Request, cluster_id: UUID) -> Response:
        """Lists the cluster's maintenance windows, newest first."""
        rows = windows_of(self.actor, cluster_id)
        if "state" in self.query:
            rows = in_state(rows, self.query["state"])
        return self.page(rows, orders=ORDERS, render=partial(show_window, now=database_now()))

    @extend_schema(operation_id="windows_create", request=WindowCreate, responses={201: WindowShown})
    def post(self, request: Request, cluster_id: UUID) -> Response:
        """Plans maintenance: no job starts there that could run into the window, and none while it lasts."""
        body = self.read(WindowCreate)
        wanted = WantedWindow(**body | {"nodes": tuple(body.get("nodes", ()))})

        def produce() -> tuple[int, dict[str, Any]]:
            return status.HTTP_201_CREATED, show_window(make_window(self.actor, cluster_id, wanted))

        return self.created(request, None, f"windows of {cluster_id}", produce)


class WindowView(ApiView):
    """`/clusters/{id}/windows/{id}`."""

    @extend_schema(operation_id="windows_read", responses=WindowShown)
    def get(self, request: Request, cluster_id: UUID, window_id: UUID) -> Response:
        """Returns a maintenance window."""
        return Response(show_window(window_by_id(self.actor, cluster_id, window_id)))


class CancelWindowView(ApiView):
    """`/clusters/{id}/windows/{id}/cancel`."""

    @extend_schema(operation_id="windows_cancel", request=None, responses=WindowShown)
    def post(self, request: Request, cluster_id: UUID, window_id: UUID) -> Response:
        """Cancels a maintenance window that has not ended: jobs use the nodes again immediately. Idempotent."""
        return Response(show_window(cancel_window(self.actor, cluster_id, window_id)))


def show_window(window: MaintenanceWindow, now: datetime | None = None) -> dict[str, Any]:
    """A maintenance window as the API shows it, by default as it is now on the database's clock."""
    return {
        "id": str(window.id),
        "cluster": window.cluster.name,
        "state": state_of(window, now or database_now()),
        "starts_at": instant(window.starts_at),
        "ends_at": instant(window.ends_at),
        "nodes": window.nodes,
        "flavor": window.flavor,
        "reason": window.reason,
        "drain": window.drain,
        "created_by": window.created_by,
        "created_at": instant(window.created_at),
        "cancelled_at": instant(window.cancelled_at),
        "cancelled_by": window.cancelled_by,
    }
