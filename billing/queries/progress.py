"""Runs that are not metered to their end: computed at query time and never stored.

Settlement meters runs that have ended, accrual meters long runs. Between them, a report asks the rooms that observe
runs (`run_sources`), takes the part that the meters do not contain yet, and marks it provisional.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias
from uuid import UUID

from django.db import connection
from django.db.models import Q

from billing.engine.rating import Piece, PriceSpan, rate, whole_milliseconds
from billing.engine.runs import MeterKey, ObservedRun
from billing.models import Meter
from clusters.engine.gpu_share import gpu_per_unit
from clusters.models import Flavor

from .prices import RateKey, price_spans


@dataclass(frozen=True, slots=True)
class Whose:
    """Which runs a query covers: those of these tenants, or of these workloads."""

    tenants: Collection[UUID] = ()
    workloads: Collection[UUID] = ()


RunSource: TypeAlias = Callable[[Whose, datetime], Sequence[ObservedRun]]
"""Every run that began and whose meter is not closed, as far as it was observed at that time."""
run_sources: list[RunSource] = []
"""The rooms above fill it when they are ready: this room cannot see pods."""


@dataclass(frozen=True, slots=True)
class OpenRun:
    """A run whose end is not metered. `meter` is its row, or the row it will get; `until` is the last time it was
    observed to run.
    """

    meter: Meter
    until: datetime

    @property
    def recorded_until(self) -> datetime:
        """Everything before this time is in segments."""
        return self.meter.metered_until


@dataclass(frozen=True, slots=True)
class Provisional:
    """A part of an open run that is not recorded, priced as it would be now."""

    meter: Meter
    piece: Piece


def open_runs(whose: Whose, at: datetime) -> tuple[OpenRun, ...]:
    """The runs that are not metered to their end, in the order of their keys.

    Read them before any segments: their provisional part contains what is recorded later, which must not count twice.
    """
    at = whole_milliseconds(at)
    seen = {run.key: run for source in run_sources for run in source(whose, at)}
    meters = {(m.cluster_id, m.source_uid): m for m in Meter.objects.filter(_of(whose), is_closed=False)}
    unmet = [run for key, run in seen.items() if key not in meters]
    closed = _metered_meanwhile(unmet)
    for meter in meters_for(run for run in unmet if run.key not in closed):
        meters[meter.cluster_id, meter.source_uid] = meter
    return tuple(
        OpenRun(meter, max(meter.metered_until, whole_milliseconds(seen[key].until_at) if key in seen else at))
        for key, meter in sorted(meters.items())
    )


def closed_until(cluster_id: UUID, source_uids: Collection[str]) -> dict[str, datetime]:
    """The end of metering of each of these sources whose meter is closed."""
    rows = Meter.objects.filter(cluster_id=cluster_id, source_uid__in=source_uids, is_closed=True)
    return dict(rows.values_list("source_uid", "metered_until"))


def assumed_beyond(ends: Mapping[MeterKey, datetime]) -> list[MeterKey]:
    """Those of these meters that are closed and assume a later end than the given one."""
    if not ends:
        return []
    clusters, uids = zip(*ends, strict=True)
    with connection.cursor() as cursor:
        cursor.execute(ASSUMED_BEYOND, [list(clusters), list(uids), list(ends.values())])
        return [(cluster_id, uid) for cluster_id, uid in cursor.fetchall()]


ASSUMED_BEYOND = """
SELECT m.cluster_id, m.source_uid
FROM unnest(%s::uuid[], %s::text[], %s::timestamptz[]) AS reported(cluster_id, source_uid, at)
JOIN billing_meter AS m ON m.cluster_id = reported.cluster_id AND m.source_uid = reported.source_uid
WHERE m.is_closed AND m.certain_until < m.metered_until AND m.metered_until > reported.at
"""


def provisional_parts(
    runs: Sequence[OpenRun], start: datetime | None = None, until: datetime | None = None
) -> list[Provisional]:
    """The unrecorded parts of these runs within [start, until), cut and priced like segments."""
    spans = [
        (run.meter, max(run.recorded_until, start or run.recorded_until), min(run.until, until or run.until))
        for run in runs
    ]
    spans = [(meter, begins, ends) for meter, begins, ends in spans if begins < ends]
    if not spans:
        return []
    prices = price_spans(
        {meter.cluster_id for meter, _, _ in spans},
        min(begins for _, begins, _ in spans),
        max(ends for _, _, ends in spans),
    )
    return [Provisional(meter, piece) for meter, begins, ends in spans for piece in rated(meter, begins, ends, prices)]


def positions(running: Sequence[OpenRun]) -> tuple[list[UUID], list[str], list[object]]:
    """How far each open run was recorded when it was read, as columns for `unnest`."""
    return (
        [run.meter.cluster_id for run in running],
        [run.meter.source_uid for run in running],
        [run.recorded_until for run in running],
    )


def rated(
    meter: Meter, start: datetime, until: datetime, prices: Mapping[RateKey, Sequence[PriceSpan]]
) -> tuple[Piece, ...]:
    """What the meter counts in [start, until), priced by these prices of its cluster."""
    own = prices.get((meter.cluster_id, meter.flavor, meter.capacity_type), ())
    stand_ins = prices.get((meter.cluster_id, meter.cpu_flavor, meter.capacity_type), ())
    return rate(meter.load, start, until, own, stand_ins)


def meters_for(runs: Iterable[ObservedRun]) -> list[Meter]:
    """The meter that each run gets when it is first recorded; not saved. Times become whole milliseconds."""
    runs = list(runs)
    gpu_flavors, cpu_flavors = _flavors_of_guests(runs)
    meters = []
    for run in runs:
        started_at = whole_milliseconds(run.started_at)
        share = gpu_per_unit(run.sharing, run.gpu_model)
        is_guest = run.gpu_units == 0 and (run.cluster_id, run.flavor) in gpu_flavors
        meters.append(
            Meter(
                cluster_id=run.cluster_id,
                source_uid=run.source_uid,
                tenant_id=run.tenant_id,
                user_id=run.user_id,
                user_name=run.user_name[:254],
                workload_id=run.workload_id,
                workload_name=run.workload_name[:254],
                run_id=run.run_id,
                node=run.node[:253],
                flavor=run.flavor,
                capacity_type=run.capacity_type,
                unit=Meter.Unit.GPU if run.gpu_units or is_guest else Meter.Unit.CORE,
                gpu_units=run.gpu_units,
                gpu_model=run.gpu_model[:63],
                sharing=run.sharing[:40],
                gpu_numerator=share.numerator,
                gpu_denominator=share.denominator,
                cpu_millicores=run.cpu_millicores,
                memory_mib=run.memory_mib,
                cpu_flavor=cpu_flavors.get((run.cluster_id, run.capacity_type), "") if is_guest else "",
                metered_from=started_at,
                metered_until=started_at,
            )
        )
    return meters


def _of(whose: Whose) -> Q:
    return Q(tenant_id__in=whose.tenants) if whose.tenants else Q(workload_id__in=whose.workloads)


def _metered_meanwhile(runs: Sequence[ObservedRun]) -> set[MeterKey]:
    """Runs whose meter closed after their source read them: their segments are complete."""
    if not runs:
        return set()
    rows = Meter.objects.filter(source_uid__in=[run.source_uid for run in runs])
    return set(rows.filter(cluster_id__in={run.cluster_id for run in runs}).values_list("cluster_id", "source_uid"))


def _flavors_of_guests(runs: Iterable[ObservedRun]) -> tuple[set[tuple[UUID, str]], Mapping[tuple[UUID, str], str]]:
    """Flavors with GPUs whose runs use none, and the CPU-only flavor per cluster and capacity type whose price such a
    guest pays if the flavor has no price for cores or memory: the first by name.
    """
    names = {run.flavor for run in runs if run.gpu_units == 0}
    if not names:
        return set(), {}
    hosts = set(Flavor.objects.filter(name__in=names).exclude(gpu_model="").values_list("cluster_id", "name"))
    if not hosts:
        return set(), {}
    cpu_only = Flavor.objects.filter(cluster_id__in={cluster_id for cluster_id, _ in hosts}, gpu_model="")
    rows = cpu_only.order_by("-name").values_list("cluster_id", "capacity_type", "name")
    return hosts, {(cluster_id, capacity_type): name for cluster_id, capacity_type, name in rows}
