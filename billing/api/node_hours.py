"""The balance of nodes by hour over HTTP, and the negative hours that people have to decide."""

from datetime import date
from typing import Any
from uuid import UUID

from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from billing.engine.ledger import money
from billing.engine.rating import READINGS_AN_HOUR
from billing.models import NegativeNodeHour
from billing.models.periods import REASON_LENGTH
from billing.operations.node_hours import accept_node_hour
from billing.queries.node_hours import NodeHour, balances_of, node_hour_by_id, node_hours_of, runs_behind
from foundation.clock import now
from foundation.media import JSONRenderer
from foundation.plain_json import instant
from foundation.problems import Invalid
from foundation.schema import page_shape
from foundation.shapes import Instant, StrictShape, Text
from tenancy.api.views import ApiView

from .focus_files import as_csv
from .period import period_of
from .spreadsheet import FORMATS, CSVRenderer

LATEST = {"-hour": "-hour", "hour": "hour"}
State, Cause = NegativeNodeHour.State, NegativeNodeHour.Cause
STATE = OpenApiParameter("state", str, enum=State.values)
STATES = tuple(State.values)
COLUMNS = (
    "id", "organisation", "cluster", "node", "hour", "currency", "cost", "charged", "idle", "cause", "state", "note",
    "decided_by", "decided_at", "seen_at", "run_tenant", "run_job", "run_job_name", "run_pod", "run_flavor", "run_from",
    "run_until", "run_charged",
)  # fmt: skip


class RunBehindShown(serializers.Serializer[Any]):
    """A run that was charged for the hour. Of another organisation's run, only the organisation is named."""

    tenant = serializers.CharField()
    job = serializers.CharField(allow_null=True)
    job_name = serializers.CharField(allow_null=True)
    pod = serializers.CharField(allow_null=True)
    flavor = serializers.CharField()
    start = Instant()
    until = Instant()
    charged = serializers.CharField()


class NegativeNodeHourShown(serializers.Serializer[Any]):
    """An hour of a node for which jobs paid more than it cost. `idle` is `cost` less `charged`."""

    id = serializers.UUIDField()
    organisation = serializers.CharField()
    cluster = serializers.CharField()
    node = serializers.CharField()
    hour = Instant()
    currency = serializers.CharField()
    cost = serializers.CharField()
    charged = serializers.CharField()
    idle = serializers.CharField()
    cause = serializers.ChoiceField(Cause.values)
    state = serializers.ChoiceField(State.values)
    note = serializers.CharField(allow_null=True)
    decided_by = serializers.CharField(allow_null=True)
    decided_at = Instant(allow_null=True)
    seen_at = Instant()
    runs = RunBehindShown(many=True)


class NodeHourAcceptance(StrictShape):
    """Why these numbers are right, or remain as they are."""

    note = Text(max_length=REASON_LENGTH)


class NodeHourBalanceShown(serializers.Serializer[Any]):
    """A node's hour: `charged` + `overhead` + `idle` = `cost`. Twelve decimals."""

    node = serializers.CharField()
    hour = Instant()
    currency = serializers.CharField()
    cost = serializers.CharField()
    charged = serializers.CharField()
    overhead = serializers.CharField()
    idle = serializers.CharField()


class NodeBalancesShown(serializers.Serializer[Any]):
    """The hours of a day that have ended."""

    cluster = serializers.CharField()
    day = serializers.DateField()
    items = NodeHourBalanceShown(many=True)


class NegativeNodeHoursView(ApiView):
    """`/node-hours`."""

    paged = True
    filters = ("state", "organisation", "month", "format")
    renderer_classes = [JSONRenderer, CSVRenderer]

    @extend_schema(
        operation_id="node_hours_list",
        parameters=[STATE],
        responses={(200, "application/json"): page_shape(NegativeNodeHourShown), (200, "text/csv"): OpenApiTypes.STR},
    )
    def get(self, request: Request) -> Response | StreamingHttpResponse:
        """Lists hours of nodes with negative idle, of the organisations that you see as a whole, with the runs behind them.

        `format=csv` has all of them, with a row for each run.
        """
        state, wanted = self.query.get("state", ""), self.query.get("format", "json")
        if state not in ("", *State.values):
            raise Invalid.field("state", "unknown_state", f"one of {', '.join(State.values)}")
        if wanted not in FORMATS:
            raise Invalid.field("format", "unknown_format", f"one of {', '.join(FORMATS)}")
        month = period_of({"month": self.query["month"]}, now())[0].date() if "month" in self.query else None
        rows = node_hours_of(self.actor, state=state, organisation=self.query.get("organisation", ""), month=month)
        if wanted == "json":
            return self.page(rows, orders=LATEST, render=show_node_hour)
        lines = (line for row in rows.order_by("hour", "id").iterator() for line in csv_lines(row))
        headers = {"Content-Disposition": 'attachment; filename="node-hours.csv"'}
        return StreamingHttpResponse(as_csv(lines, COLUMNS), content_type="text/csv; charset=utf-8", headers=headers)


class NegativeNodeHourView(ApiView):
    """`/node-hours/{id}`."""

    @extend_schema(operation_id="node_hours_get", responses=NegativeNodeHourShown)
    def get(self, request: Request, row_id: UUID) -> Response:
        """Returns one."""
        return Response(show_node_hour(node_hour_by_id(self.actor, row_id)))


class NodeHourAcceptanceView(ApiView):
    """`/node-hours/{id}/accept`."""

    @extend_schema(operation_id="node_hours_accept", request=NodeHourAcceptance, responses=NegativeNodeHourShown)
    def post(self, request: Request, row_id: UUID) -> Response:
        """Accepts its numbers as they are; they are never changed."""
        fields = self.read(NodeHourAcceptance)
        return Response(show_node_hour(accept_node_hour(self.actor, row_id, fields["note"])))


class NodeBalancesView(ApiView):
    """`/node-hours/balance`."""

    filters = ("cluster", "day", "node")

    @extend_schema(
        operation_id="node_hours_balance",
        parameters=[
            OpenApiParameter("cluster", UUID, required=True),
            OpenApiParameter("day", date, required=True),
            OpenApiParameter("node", str, description="Only this node."),
        ],
        responses=NodeBalancesShown,
    )
    def get(self, request: Request) -> Response:
        """Returns what each node of a cluster cost in each hour of a day (UTC), and what jobs were charged for it.

        Runs that do not say their node are in no node's balance.
        """
        try:
            cluster_id = UUID(self.query.get("cluster", ""))
        except ValueError as error:
            raise Invalid.field("cluster", "not_an_id", "give the id of a cluster") from error
        try:
            day = date.fromisoformat(self.query.get("day", ""))
        except ValueError as error:
            raise Invalid.field("day", "not_a_day", "write a day as YYYY-MM-DD") from error
        cluster, hours = balances_of(self.actor, cluster_id, day, self.query.get("node", ""))
        items = [show_balance(one) for one in hours]
        return Response({"cluster": cluster.name, "day": f"{day}", "items": items})


def show_balance(one: NodeHour) -> dict[str, Any]:
    """A balance in 10**-12: its parts are rounded so that they add up."""
    cost, charged, overhead = (
        part // READINGS_AN_HOUR for part in (one.balance.cost, one.balance.charged, one.balance.overhead)
    )
    return {
        "node": one.node, "hour": instant(one.hour), "currency": one.currency, "cost": f"{money(cost):f}",
        "charged": f"{money(charged):f}", "overhead": f"{money(overhead):f}", "idle": f"{money(cost - charged - overhead):f}",
    }  # fmt: skip


def show_node_hour(row: NegativeNodeHour) -> dict[str, Any]:
    """A row as the API shows it."""
    return {
        "id": str(row.id), "organisation": row.organisation.path, "cluster": row.cluster.name, "node": row.node,
        "hour": instant(row.hour), "currency": row.currency, "cost": f"{row.cost:f}", "charged": f"{row.charged:f}",
        "idle": f"{row.cost - row.charged:f}", "cause": row.cause, "state": row.state, "note": row.note or None,
        "decided_by": row.decided_by_name or None, "decided_at": instant(row.decided_at) if row.decided_at else None,
        "seen_at": instant(row.seen_at),
        "runs": [
            {
                "tenant": run["tenant"], "job": run["job"], "job_name": run["job_name"], "pod": run["pod"],
                "flavor": run["flavor"], "start": run["from"], "until": run["until"], "charged": run["charged"],
            }
            for run in runs_behind(row)
        ],
    }  # fmt: skip


def csv_lines(row: NegativeNodeHour) -> list[dict[str, str]]:
    """A row for each run behind it; one without, if there is none."""
    shown = show_node_hour(row)
    runs = shown.pop("runs")
    mine = {name: str(value or "") for name, value in shown.items()}
    return [
        {**mine, **{f"run_{'from' if name == 'start' else name}": str(value or "") for name, value in run.items()}}
        for run in runs
    ] or [mine]
