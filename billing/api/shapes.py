"""Request and response bodies of prices and usage."""

import re
from collections.abc import Mapping
from dataclasses import asdict
from decimal import Decimal
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from billing.engine.own_costs import steps_of, stored_costs
from billing.models import MOST_INTERRUPTIONS, Price
from billing.queries import UsageReport, UsageRow
from billing.queries.carbon_report import CarbonRow
from billing.queries.paths import AS_IS, AS_WAS, PATHS
from foundation.plain_json import instant
from foundation.shapes import Instant, StrictShape, Text

from .own_cost_shapes import ModelShown, OwnCostsShape, show_model

AMOUNT = re.compile(r"[0-9]{1,9}(\.[0-9]{1,6})?")
CURRENCY = re.compile(r"[A-Z]{3}")
DEFAULT_CURRENCY = "USD"
CAPACITY_TYPES = ("on_demand", "spot", "reserved")


class MoneyShape(serializers.Serializer[Any]):
    """An amount of money; the amount is a decimal string."""

    amount = serializers.CharField()
    currency = serializers.CharField()


@extend_schema_field({"oneOf": [{"type": "string"}, {"$ref": "#/components/schemas/Money"}]})
class Money(serializers.Field[tuple[Decimal, str], Any, Any, Any]):
    """`{"amount": "2.50", "currency": "USD"}`, or just "2.50". Never a JSON number: those are not exact."""

    def to_internal_value(self, data: Any) -> tuple[Decimal, str]:
        if isinstance(data, str):
            data = {"amount": data, "currency": DEFAULT_CURRENCY}
        if not isinstance(data, Mapping) or set(data) != {"amount", "currency"}:
            raise serializers.ValidationError('send {"amount": "2.50", "currency": "USD"}', "not_money")
        amount, currency = data["amount"], data["currency"]
        if not (isinstance(amount, str) and AMOUNT.fullmatch(amount)):
            raise serializers.ValidationError("an amount is a string such as 2.50, with up to 6 decimals", "not_money")
        if not (isinstance(currency, str) and CURRENCY.fullmatch(currency)):
            raise serializers.ValidationError("a currency is three capital letters", "not_money")
        return Decimal(amount), currency


@extend_schema_field({"type": "string"})
class Frequency(serializers.Field[Decimal, str, Any, Any]):
    """Interruptions per hour, such as "0.05". Never a JSON number, as with money."""

    def to_internal_value(self, data: Any) -> Decimal:
        if not (isinstance(data, str) and AMOUNT.fullmatch(data)):
            raise serializers.ValidationError("a string such as 0.05, with up to 6 decimals", "bad_format")
        often = Decimal(data)
        if often > MOST_INTERRUPTIONS:
            raise serializers.ValidationError(f"at most {MOST_INTERRUPTIONS}", "out_of_range")
        return often


class PriceCreate(StrictShape):
    """A price of a flavor in a cluster, per unit and hour."""

    cluster = Text(max_length=63, help_text="Name.")
    flavor = Text(max_length=120, help_text="Name of a flavor that the cluster offers.")
    capacity_type = serializers.ChoiceField(CAPACITY_TYPES, required=False, help_text="By default the flavor's.")
    unit_price = Money(required=False, help_text="Either this or `model`.")
    model = OwnCostsShape(required=False, help_text="The costs that give the unit's price and its currency.")
    cpu_price = Money(
        required=False,
        allow_null=True,
        help_text="Per core-hour, in addition to a GPU's price; without it, the unit's price includes cores.",
    )
    memory_price = Money(
        required=False, allow_null=True, help_text="Per GiB-hour; without it, the unit's price includes memory."
    )
    interruptions_per_hour = Frequency(
        required=False,
        allow_null=True,
        help_text="How often a job is expected to be interrupted on this spot capacity. Placement uses it.",
    )
    effective_from = Instant(required=False, help_text="By default now.")


class PriceShown(serializers.Serializer[Any]):
    """A price and when it is in force: [effective_from, effective_until)."""

    id = serializers.UUIDField()
    cluster = serializers.CharField()
    cluster_id = serializers.UUIDField()
    flavor = serializers.CharField()
    capacity_type = serializers.CharField()
    unit_price = MoneyShape()
    cpu_price = MoneyShape(allow_null=True)
    memory_price = MoneyShape(allow_null=True)
    interruptions_per_hour = serializers.CharField(allow_null=True)
    effective_from = Instant()
    effective_until = Instant(allow_null=True)
    created_at = Instant()
    model = ModelShown(
        allow_null=True,
        help_text="The costs that gave `unit_price`; null if it was given, and for those who may not set it.",
    )


class CarbonShown(serializers.Serializer[Any]):
    """Energy and emissions, with six decimals; the items' add up to the totals'. Emissions are grams of CO2 equivalents."""

    basis = serializers.ChoiceField(["none", "estimated", "measured", "mixed"], help_text="Of the energy.")
    energy_kwh = serializers.CharField(help_text="With the PUE of the data centre.")
    measured_energy_kwh = serializers.CharField(help_text="Part of the above; the rest is estimated from rated power.")
    energy_without_intensity_kwh = serializers.CharField(help_text="Part of the above whose emissions are not known.")
    emissions_g = serializers.CharField(help_text="Of the grid.")
    measured_emissions_g = serializers.CharField(help_text="Part of the above that is of measured energy.")
    embodied_emissions_g = serializers.CharField(help_text="In addition, and always estimated.")
    unrated_gpu_hours = serializers.CharField(help_text="Without energy: no rated power or no site is known.")
    unrated_core_hours = serializers.CharField(help_text="Likewise, of pods without GPUs.")


class UsageQuantities(serializers.Serializer[Any]):
    """What was used and what it cost. Hours and cost have six decimals; the items' add up to the totals'."""

    gpu_hours = serializers.CharField(help_text="Of physical GPUs: seven hours of a seventh of a GPU are one.")
    gpu_milliseconds = serializers.IntegerField(help_text="Of the flavors' units: GPUs, MIG slices or shares.")
    cpu_millicore_milliseconds = serializers.IntegerField()
    cpu_core_hours = serializers.CharField()
    memory_gib_hours = serializers.CharField(help_text="Of the memory that the pods requested.")
    unpriced_gpu_hours = serializers.CharField(help_text="Part of the above without a price.")
    unpriced_gpu_milliseconds = serializers.IntegerField(help_text="Part of the above without a price.")
    unpriced_cpu_millicore_milliseconds = serializers.IntegerField()
    unpriced_memory_gib_hours = serializers.CharField(help_text="Part of the above without a price.")
    cost = MoneyShape()
    corrections = MoneyShape(help_text="Part of the cost that corrections of prices made; may be negative.")
    credits = MoneyShape(
        help_text="Part of the cost that is not charged, because infrastructure lost the work; zero or negative."
    )
    provisional_gpu_hours = serializers.CharField(help_text="Part of the above that is not recorded yet.")
    provisional_gpu_milliseconds = serializers.IntegerField(help_text="Part of the above that is not recorded yet.")
    provisional_cpu_millicore_milliseconds = serializers.IntegerField()
    provisional_memory_gib_hours = serializers.CharField(help_text="Part of the above that is not recorded yet.")
    provisional_cost = MoneyShape(help_text="Part of the cost that may still change.")
    lost_gpu_hours = serializers.CharField(
        help_text="Part of the above whose work was lost in interruptions, so that the next attempt did it again."
    )
    running_jobs = serializers.IntegerField(help_text="Jobs of this row that still run; a job can be in several rows.")
    carbon = CarbonShown(required=False, help_text="With `carbon=true`.")


class UsageItem(UsageQuantities):
    """One row. It has the key columns of the requested groups."""

    tenant = serializers.CharField(required=False)
    cluster = serializers.CharField(required=False)
    cluster_id = serializers.UUIDField(required=False)
    flavor = serializers.CharField(required=False)
    user = serializers.CharField(required=False)
    user_id = serializers.UUIDField(required=False)
    job = serializers.UUIDField(required=False)
    job_name = serializers.CharField(required=False)
    day = serializers.DateField(required=False)
    month = serializers.CharField(required=False, help_text="YYYY-MM.")


class UsageShown(serializers.Serializer[Any]):
    """A usage report of [from, to)."""

    tenant = serializers.CharField(allow_null=True)
    paths = serializers.ChoiceField(PATHS, help_text="Which paths tenants have here: those of then, or today's.")
    group_by = serializers.ListField(child=serializers.CharField())
    is_complete = serializers.BooleanField(help_text="False while something in the period still runs.")
    running_jobs = serializers.IntegerField(help_text="Jobs that still run or whose usage is not complete yet.")
    as_of = Instant(help_text="Running time is counted up to this time.")
    items = UsageItem(many=True)
    totals = UsageQuantities(allow_null=True, help_text="Null if there are costs in several currencies.")
    totals_by_currency = UsageQuantities(many=True, help_text="The sums of the items of each currency.")

    def get_fields(self) -> dict[str, Any]:
        """`from` cannot be written as an attribute."""
        return {**super().get_fields(), "from": Instant(), "to": Instant()}


def show_price(price: Price, *, with_costs: bool) -> dict[str, Any]:
    """A price as the API shows it; `with_costs`: also the own costs that gave it, which are the owner's."""
    costs = stored_costs(price.own_costs) if with_costs and price.own_costs else None
    return {
        "id": str(price.id),
        "cluster": price.rate.cluster.name,
        "cluster_id": str(price.rate.cluster_id),
        "flavor": price.rate.flavor,
        "capacity_type": price.rate.capacity_type,
        "unit_price": _money(price.unit_price, price.currency),
        "cpu_price": _money(price.cpu_price, price.currency),
        "memory_price": _money(price.memory_price, price.currency),
        "interruptions_per_hour": _decimal(price.interruptions_per_hour),
        "effective_from": instant(price.valid.lower),
        "effective_until": instant(price.valid.upper),
        "created_at": instant(price.created_at),
        "model": None if costs is None else show_model(costs, steps_of(costs)),
    }


def _decimal(number: Decimal | None) -> str | None:
    return None if number is None else format(number, "f")


def _money(amount: Decimal | None, currency: str) -> dict[str, str] | None:
    return None if amount is None else {"amount": format(amount, "f"), "currency": currency}


def show_usage(report: UsageReport) -> dict[str, Any]:
    """A report as the API shows it."""
    totals = [_quantities(one) for one in report.totals]
    return {
        "tenant": report.tenant_path or None,
        "from": instant(report.start),
        "to": instant(report.until),
        "paths": AS_IS if report.as_is else AS_WAS,
        "group_by": list(report.group_by),
        "is_complete": report.is_complete,
        "running_jobs": report.running_jobs,
        "as_of": instant(report.as_of),
        "items": [{**row.keys, **_quantities(row)} for row in report.rows],
        "totals": totals[0] if len(totals) == 1 else None,
        "totals_by_currency": totals,
    }


def _quantities(row: UsageRow) -> dict[str, Any]:
    currency = row.currency
    return {
        "gpu_hours": format(row.gpu_hours, "f"),
        "gpu_milliseconds": row.gpu_milliseconds,
        "cpu_millicore_milliseconds": row.cpu_millicore_milliseconds,
        "cpu_core_hours": format(row.cpu_core_hours, "f"),
        "memory_gib_hours": format(row.memory_gib_hours, "f"),
        "unpriced_gpu_hours": format(row.unpriced_gpu_hours, "f"),
        "unpriced_gpu_milliseconds": row.unpriced_gpu_milliseconds,
        "unpriced_cpu_millicore_milliseconds": row.unpriced_cpu_millicore_milliseconds,
        "unpriced_memory_gib_hours": format(row.unpriced_memory_gib_hours, "f"),
        "cost": {"amount": format(row.cost, "f"), "currency": currency},
        "corrections": {"amount": format(row.corrections, "f"), "currency": currency},
        "credits": {"amount": format(row.credits, "f"), "currency": currency},
        "provisional_gpu_hours": format(row.provisional_gpu_hours, "f"),
        "provisional_gpu_milliseconds": row.provisional_gpu_milliseconds,
        "provisional_cpu_millicore_milliseconds": row.provisional_cpu_millicore_milliseconds,
        "provisional_memory_gib_hours": format(row.provisional_memory_gib_hours, "f"),
        "provisional_cost": {"amount": format(row.provisional_cost, "f"), "currency": currency},
        "lost_gpu_hours": format(row.lost_gpu_hours, "f"),
        "running_jobs": row.running_jobs,
        **({} if row.carbon is None else {"carbon": show_carbon(row.carbon)}),
    }


def show_carbon(carbon: CarbonRow) -> dict[str, str]:
    """Energy and emissions as the API shows them."""
    return {name: value if isinstance(value, str) else format(value, "f") for name, value in asdict(carbon).items()}
