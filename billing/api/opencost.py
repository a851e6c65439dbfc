"""`/allocation` and `/assets`, for tools that read OpenCost. Numbers are JSON numbers there; they have at most six decimals."""

from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from billing.engine.opencost import NotAWindow, steps_of, window_of
from billing.queries.one_currency import Converted
from billing.queries.opencost import AGGREGATES, Allocation, Asset, allocations, assets
from foundation.clock import now
from foundation.plain_json import instant
from foundation.problems import Invalid
from tenancy.api.views import ApiView

MOST_STEPS = 62
MIB = 2**20
HOUR = 3_600_000
FLAGS = {"": False, "false": False, "true": True}
SHARES = {**FLAGS, "weighted": True}


class CostWindowShape(serializers.Serializer[Any]):
    """Half-open."""

    start = serializers.CharField()
    end = serializers.CharField()


class AllocationShape(serializers.Serializer[Any]):
    """A row, in OpenCost's words."""

    name = serializers.CharField()
    properties = serializers.DictField(child=serializers.CharField())
    window = CostWindowShape()
    start = serializers.CharField()
    end = serializers.CharField()
    minutes = serializers.FloatField()
    cpuCoreHours = serializers.FloatField()
    cpuCost = serializers.FloatField()
    gpuHours = serializers.FloatField()
    gpuCost = serializers.FloatField()
    ramByteHours = serializers.FloatField()
    ramCost = serializers.FloatField()
    pvCost = serializers.FloatField()
    networkCost = serializers.FloatField()
    sharedCost = serializers.FloatField()
    externalCost = serializers.FloatField()
    totalCost = serializers.FloatField()


class AssetShape(serializers.Serializer[Any]):
    """A node, in OpenCost's words."""

    type = serializers.CharField()
    properties = serializers.DictField(child=serializers.CharField())
    window = CostWindowShape()
    start = serializers.CharField()
    end = serializers.CharField()
    minutes = serializers.FloatField()
    nodeType = serializers.CharField()
    cpuCoreHours = serializers.FloatField()
    ramByteHours = serializers.FloatField()
    GPUHours = serializers.FloatField()
    cpuCost = serializers.FloatField()
    gpuCost = serializers.FloatField()
    ramCost = serializers.FloatField()
    adjustment = serializers.FloatField()
    totalCost = serializers.FloatField()


class ConvertedShape(serializers.Serializer[Any]):
    """Costs in a currency, and what they are worth in that of their set."""

    currency = serializers.CharField()
    cost = serializers.CharField()
    worth = serializers.CharField()


class SetsShown(serializers.Serializer[Any]):
    """Sets of rows, each by its name."""

    code = serializers.IntegerField()
    currencies = serializers.ListField(child=serializers.CharField(), help_text="Of each set.")
    converted = serializers.ListField(
        child=ConvertedShape(many=True),
        help_text="Of each set, its costs without idle capacity by currency of the price, if they are converted.",
    )
    row: type[serializers.Serializer[Any]]

    def get_fields(self) -> dict[str, Any]:
        """A serializer has an attribute `data` already."""
        sets = serializers.ListField(child=serializers.DictField(child=self.row()))
        return {**super().get_fields(), "data": sets}


class AllocationsShown(SetsShown):
    """A set for each step, by name."""

    row = AllocationShape


class AssetsShown(SetsShown):
    """One set, by cluster, node and flavor."""

    row = AssetShape


class AllocationView(ApiView):
    """`/allocation`."""

    filters = ("window", "aggregate", "step", "resolution", "accumulate", "includeIdle", "shareIdle", "idleByNode")

    @extend_schema(operation_id="opencost_allocation", responses=AllocationsShown)
    def get(self, request: Request) -> Response:
        """Returns usage as OpenCost's allocations: `namespace` is the tenant's path, `controller` the job."""
        start, until = _window(self.query, now())
        words = [word for word in self.query.get("aggregate", "namespace").split(",") if word]
        if unknown := sorted(set(words) - set(AGGREGATES)):
            raise Invalid.field("aggregate", "unknown_group", f"{', '.join(AGGREGATES)}; not {unknown[0][:50]}")
        if _flag(self.query, "idleByNode", FLAGS):
            raise Invalid.field("idleByNode", "not_available", "idle capacity is of pools; see /assets and /idle")
        try:
            whole = _flag(self.query, "accumulate", FLAGS)
            steps = steps_of(start, until, "" if whole else self.query.get("step", ""), MOST_STEPS)
        except NotAWindow as error:
            raise Invalid.field("step", "bad_format", str(error)) from error
        with_idle, shares = _flag(self.query, "includeIdle", FLAGS), _flag(self.query, "shareIdle", SHARES)
        data, currencies, converted = [], [], []
        for begins, ends in steps:
            found = allocations(self.actor, begins, ends, words, with_idle=with_idle, shares_idle=shares)
            data.append({row.name: show_allocation(row, begins, ends) for row in found.rows})
            currencies.append(found.currency)
            converted.append([show_converted(one) for one in found.converted])
        return Response({"code": 200, "data": data, "currencies": currencies, "converted": converted})


class AssetsView(ApiView):
    """`/assets`."""

    filters = ("window", "accumulate")

    @extend_schema(operation_id="opencost_assets", responses=AssetsShown)
    def get(self, request: Request) -> Response:
        """Returns the nodes of the clusters that you see as OpenCost's assets, with what they cost by the price book."""
        start, until = _window(self.query, now())
        found = assets(self.actor, start, until)
        data = {f"{one.cluster}/{one.node}/{one.uid}/{one.flavor}": show_asset(one, start, until) for one in found.rows}
        converted = [show_converted(one) for one in found.converted]
        return Response({"code": 200, "data": [data], "currencies": [found.currency], "converted": [converted]})


def _window(query: Any, at: datetime) -> tuple[datetime, datetime]:
    if not query.get("window"):
        raise Invalid.field("window", "required", "such as today, 7d or lastmonth")
    try:
        start, until = window_of(query["window"], at)
    except NotAWindow as error:
        raise Invalid.field("window", "bad_format", str(error)) from error
    if start >= until:
        raise Invalid.field("window", "empty_period", "the window ends before it begins")
    return start, until


def _flag(query: Any, name: str, values: dict[str, bool]) -> bool:
    if query.get(name, "") not in values:
        raise Invalid.field(name, "bad_format", f"one of {', '.join(value for value in values if value)}")
    return values[query.get(name, "")]


def show_allocation(row: Allocation, start: datetime, until: datetime) -> dict[str, Any]:
    """A row as OpenCost shows it. The whole cost is of the GPUs, if there are any, because their price includes the node."""
    usage = row.usage
    is_gpu = usage is None or usage.gpu_milliseconds > 0
    return {
        "name": row.name,
        "properties": _properties(row),
        **_times(start, until),
        "minutes": float((until - start).total_seconds() / 60),
        "cpuCoreHours": _number(usage.cpu_core_hours) if usage else 0.0,
        "cpuCost": 0.0 if is_gpu else _number(row.cost),
        "gpuHours": _number(usage.gpu_hours) if usage else 0.0,
        "gpuCost": _number(row.cost) if is_gpu else 0.0,
        "ramByteHours": _number(usage.memory_gib_hours * 1024 * MIB) if usage else 0.0,
        "ramCost": 0.0,
        "pvCost": 0.0,
        "networkCost": 0.0,
        "sharedCost": _number(row.shared),
        "externalCost": 0.0,
        "totalCost": _number(row.cost + row.shared),
    }


def _properties(row: Allocation) -> dict[str, str]:
    words = {group: word for word, group in AGGREGATES.items()}
    return {words[name]: value for name, value in row.properties.items() if name in words}


def show_converted(one: Converted) -> dict[str, Any]:
    """What is converted, with six decimals."""
    return {"currency": one.currency, "cost": f"{one.cost:f}", "worth": f"{one.worth:f}"}


def show_asset(one: Asset, start: datetime, until: datetime) -> dict[str, Any]:
    """A node as OpenCost shows it."""
    return {
        "type": "Node",
        "properties": {
            "category": "Compute", "service": "Kubernetes", "provider": one.provider, "cluster": one.cluster,
            "name": one.node, "providerID": one.uid,
        },
        **_times(start, until),
        "minutes": _number(one.minutes),
        "nodeType": one.flavor,
        "cpuCoreHours": _number(Fraction(one.core_milliseconds, 1000 * HOUR)),
        "ramByteHours": _number(Fraction(one.mib_milliseconds * MIB, HOUR)),
        "GPUHours": _number(Fraction(one.unit_milliseconds, HOUR)),
        "cpuCost": 0.0 if one.is_gpu else _number(one.cost),
        "gpuCost": _number(one.cost) if one.is_gpu else 0.0,
        "ramCost": 0.0,
        "adjustment": 0.0,
        "totalCost": _number(one.cost),
    }  # fmt: skip


def _times(start: datetime, until: datetime) -> dict[str, Any]:
    begins, ends = instant(start), instant(until)
    return {"window": {"start": begins, "end": ends}, "start": begins, "end": ends}


def _number(value: Decimal | Fraction) -> float:
    return round(float(value), 6)
