"""What pieces of work have cost so far."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from uuid import UUID

from django.db.models import Sum

from billing.engine.rating import Load, rate, whole_milliseconds
from billing.models import Meter, UsageSegment
from foundation.clock import now

from .prices import price_spans


@dataclass(frozen=True, slots=True)
class CostView:
    """A cost before any rounding for display. `is_provisional` while something still runs; `currency` empty if unpriced."""

    amount: Decimal
    currency: str
    is_provisional: bool


def costs_of(workload_ids: Collection[UUID]) -> Mapping[UUID, CostView]:
    """The cost so far of each workload that was metered, running time up to now included.

    An organisation's prices are in one currency, so a workload's cost is too.
    """
    at = whole_milliseconds(now())
    running = list(Meter.objects.filter(workload_id__in=workload_ids, is_closed=False))
    amounts: dict[UUID, Decimal] = defaultdict(Decimal)
    currencies: dict[UUID, str] = {}
    for workload_id, currency, cost in _recorded(workload_ids) + _unrecorded(running, at):
        amounts[workload_id] += cost
        if currency:
            currencies[workload_id] = currency
    open_ids = {meter.workload_id for meter in running}
    return {
        workload_id: CostView(amounts[workload_id], currencies.get(workload_id, ""), workload_id in open_ids)
        for workload_id in amounts.keys() | open_ids
    }


def _recorded(workload_ids: Collection[UUID]) -> list[tuple[UUID, str, Decimal]]:
    return list(
        UsageSegment.objects.filter(meter__workload_id__in=workload_ids)
        .values_list("meter__workload_id", "currency")
        .annotate(total=Sum("cost"))
    )


def _unrecorded(running: Iterable[Meter], at: datetime) -> list[tuple[UUID, str, Decimal]]:
    """The cost of what runs since it was last recorded, at the prices known now."""
    behind = [meter for meter in running if meter.metered_until < at]
    if not behind:
        return []
    prices = price_spans({meter.cluster_id for meter in behind}, min(meter.metered_until for meter in behind), at)
    return [
        (meter.workload_id, piece.currency, piece.cost)
        for meter in behind
        for piece in rate(load_of(meter), meter.metered_until, at, prices.get(rate_key(meter), ()))
    ]


def load_of(meter: Meter) -> Load:
    """What the metered pod occupies, as rating sees it."""
    return Load(
        "gpu" if meter.unit == Meter.Unit.GPU else "core", meter.gpu_units, meter.cpu_millicores, meter.metered_from
    )


def rate_key(meter: Meter) -> tuple[UUID, str, str]:
    """What the meter's price is looked up by."""
    return meter.cluster_id, meter.flavor, meter.capacity_type
