"""The usage report: usage by user and place, and its cost. Totals are the sums of the displayed rows."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from operator import add
from typing import TypeAlias
from uuid import UUID

from django.db.models import QuerySet

from billing.engine.carbon import Footprint
from billing.engine.shares import shown_parts
from billing.models import Meter
from clusters.models import Cluster
from foundation.clock import now
from foundation.problems import Invalid
from tenancy.models import Tenant
from tenancy.queries import Actor

from .carbon_report import CarbonRow, carbon_rows
from .carbon_use import footprints_of
from .paths import Scope, tenants_now_under, tenants_under
from .progress import OpenRun, Provisional, Whose, open_runs, provisional_parts
from .recorded import GROUPS, ZERO, Line, Quantities, key_columns, recorded

MOST_ROWS = 50_000
MOST_PARTS = 4 * MOST_ROWS
"""The maximum number of row parts: a row has one for each currency and kind of unit of its usage."""
MILLISECONDS_AN_HOUR = 3_600_000
MIB_A_GIB = 1024
SHOWN_PLACES = 6
DEFAULT_CURRENCY = "USD"
"""The currency of a report without any price."""

NAMES_OF_IDS = frozenset({"user", "job_name"})
"""Columns that only label a row that another column already identifies."""


@dataclass(frozen=True, slots=True)
class UsageRow:
    """One line. `keys` are the columns of its groups; hours and cost have six decimals and add up to the totals. `currency` is
    that of its amounts: if there are several for the same keys, each has a line.

    Memory has hours only: in MiB-milliseconds, a year of a large fleet is more than the 64 bits that JSON parsers read.
    GPU-hours are of physical GPUs; GPU-milliseconds are of units (GPUs, MIG slices, shares), which prices apply to. The
    `provisional` quantities are included in the others: they come from `running_jobs` and are not recorded yet. So are
    the `lost` ones: their work was lost and done again. `corrections` is the part of the cost that corrections of
    prices made; it may be negative. `credits`, which is not positive, is the part of the cost that is not charged because
    infrastructure lost the work. `carbon` is the energy and emissions, if the report was asked for them.
    """

    keys: Mapping[str, str]
    currency: str
    gpu_hours: Decimal
    unpriced_gpu_hours: Decimal
    provisional_gpu_hours: Decimal
    lost_gpu_hours: Decimal
    gpu_milliseconds: int
    cpu_millicore_milliseconds: int
    cpu_core_hours: Decimal
    memory_gib_hours: Decimal
    unpriced_gpu_milliseconds: int
    unpriced_cpu_millicore_milliseconds: int
    unpriced_memory_gib_hours: Decimal
    cost: Decimal
    corrections: Decimal
    credits: Decimal
    provisional_gpu_milliseconds: int
    provisional_cpu_millicore_milliseconds: int
    provisional_memory_gib_hours: Decimal
    provisional_cost: Decimal
    running_jobs: int
    carbon: CarbonRow | None = None


Shown: TypeAlias = tuple[list[UsageRow], UsageRow]
"""The rows of one currency, and their sums."""


@dataclass(frozen=True, slots=True)
class UsageReport:
    """Usage in [start, until) as of `as_of`. It is complete if every run in it has its final metering.

    `totals` has the sums of the rows of each currency. Without any row it has one, of nothing.
    """

    tenant_path: str
    start: datetime
    until: datetime
    group_by: tuple[str, ...]
    rows: tuple[UsageRow, ...]
    totals: tuple[UsageRow, ...]
    running_jobs: int
    as_of: datetime
    as_is: bool = False
    """Whether usage is under the current paths of its tenants, not under those of then."""

    @property
    def total(self) -> UsageRow:
        """The sum of all rows. Raises Invalid `mixed_currencies`: amounts in several currencies are not added up."""
        if len(self.totals) > 1:
            several = " and ".join(one.currency for one in self.totals)
            raise Invalid.field("tenant", "mixed_currencies", f"costs in {several} cannot be added up")
        return self.totals[0]

    @property
    def currency(self) -> str:
        """Of all costs. Raises Invalid as `total`."""
        return self.total.currency

    @property
    def is_complete(self) -> bool:
        """Whether every job of the period has ended and is metered to its end."""
        return not self.running_jobs

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the key columns, in order."""
        return key_columns(self.group_by)


def usage_report(  # noqa: PLR0913 - each says what the report contains
    actor: Actor,
    tenant_path: str,
    start: datetime,
    until: datetime,
    group_by: Sequence[str] = (),
    *,
    among: QuerySet[Tenant] | None = None,
    with_carbon: bool = False,
    as_is: bool = False,
) -> UsageReport:
    """Usage of a tenant and its descendants in [start, until); if the path is empty, of everything that the actor may
    see.

    Usage belongs to the path that its tenant had then, and `tenant_path` may be such a former path. Who may see it
    depends on the tenant's current place. A segment that crosses an end of the period counts by its part inside. Raises
    NotFound, Invalid (`unknown_group`, `report_too_large`, `empty_period`). With `among`, the
    report covers these tenants instead; the caller has checked that the actor may see them. `with_carbon` takes longer.
    `as_is`: all usage belongs to the path that its tenant has now, and `tenant_path` is a current one.
    """
    words = tuple(dict.fromkeys(group_by))
    unknown = [word for word in words if word not in GROUPS]
    if unknown:
        raise Invalid.field("group_by", "unknown_group", f"group by {', '.join(GROUPS)}; not by {unknown[0][:50]}")
    if start >= until:
        raise Invalid.field("to", "empty_period", "the period ends before it begins")
    at = now().astimezone(UTC)
    scope = _scope(actor, tenant_path, among, as_is=as_is)
    running = [
        run
        for run in open_runs(Whose(tenants=scope.tenants), at)
        if max(run.recorded_until, start) < min(until, at) and scope.covers(run.meter)
    ]
    lines = recorded(words, scope, running, start, until, MOST_PARTS + 1)
    if len(lines) > MOST_PARTS:
        raise _too_large()
    lines += provisional_lines(words, scope, running, start, until)
    shown = _by_currency(_merged(_in_currencies(lines)))
    if with_carbon:
        shown = _with_carbon(shown, words, scope, running, (start, until))
    rows = sorted((row for rows, _ in shown for row in rows), key=lambda row: tuple(row.keys.values()))
    jobs = len({run.meter.workload_id for run in running})
    totals = tuple(total for _, total in shown)
    if len(totals) == 1:
        totals = (replace(totals[0], running_jobs=jobs),)  # with those that have used nothing yet
    return UsageReport(tenant_path, start, until, words, tuple(rows), totals, jobs, at, as_is)


def _scope(actor: Actor, path: str, among: QuerySet[Tenant] | None, *, as_is: bool) -> Scope:
    if among is not None:
        return Scope("", dict(among.values_list("id", "path")), as_is)
    if as_is:
        return Scope("", tenants_now_under(actor, path), is_current=True)
    return Scope(path, tenants_under(actor, path))


def provisional_lines(
    words: Sequence[str], scope: Scope, running: Sequence[OpenRun], start: datetime, until: datetime
) -> list[Line]:
    """Usage that is not in segments yet: a line for each open run and each piece of it."""
    keys = _keys_of(words, scope, running)
    return [
        _provisional_line(keys(part.meter, part.piece.start), part) for part in provisional_parts(running, start, until)
    ]


def _keys_of(
    words: Sequence[str], scope: Scope, running: Sequence[OpenRun]
) -> Callable[[Meter, datetime], Mapping[str, str]]:
    """The keys of the use of an open run at a time."""
    names = key_columns(words)
    clusters = dict(
        Cluster.everything.filter(id__in={run.meter.cluster_id for run in running}).values_list("id", "name")
    )

    def keys(meter: Meter, at: datetime) -> dict[str, str]:
        known = {
            "tenant": scope.path_of(meter),
            "cluster": clusters[meter.cluster_id],
            "cluster_id": str(meter.cluster_id),
            "flavor": meter.flavor,
            "user": meter.user_name,
            "user_id": str(meter.user_id),
            "job": str(meter.workload_id),
            "job_name": meter.workload_name,
            "day": f"{at:%Y-%m-%d}",
            "month": f"{at:%Y-%m}",
        }
        return {name: known[name] for name in names}

    return keys


def _key_of(keys: Mapping[str, str]) -> tuple[str, ...]:
    """What identifies a row."""
    return tuple(value for name, value in keys.items() if name not in NAMES_OF_IDS)


def _with_carbon(
    shown: Sequence[Shown], words: Sequence[str], scope: Scope, running: Sequence[OpenRun],
    span: tuple[datetime, datetime],
) -> list[Shown]:  # fmt: skip
    """Energy has no currency: of several rows with the same keys, the first one has it."""
    found = dict(footprints_of(words, scope, running, span, _keys_of(words, scope, running), _key_of))
    result = []
    for rows, total in shown:
        carbon, whole = carbon_rows([found.pop(_key_of(row.keys), Footprint()) for row in rows])
        own = [replace(row, carbon=one) for row, one in zip(rows, carbon, strict=True)]
        result.append((own, replace(total, carbon=whole)))
    return result


def _provisional_line(keys: Mapping[str, str], part: Provisional) -> Line:
    piece = part.piece
    gpu, cpu, memory = piece.gpu_milliseconds, piece.cpu_millicore_milliseconds, piece.memory_mib_milliseconds
    is_unpriced = piece.price_id is None
    without_price = (gpu, cpu) if is_unpriced else (0, 0)
    gpus = gpu * part.meter.gpu_share
    return Line(
        keys=keys,
        currency=piece.currency,
        quantities=(gpu, cpu, *without_price, gpu, cpu),
        memory=(memory, memory if is_unpriced else 0, memory),
        gpus=(gpus, gpus if is_unpriced else Fraction(0), gpus, Fraction(0)),
        cost=Fraction(piece.cost),
        provisional_cost=Fraction(piece.cost),
        running=frozenset((part.meter.workload_id,)),
    )


def _in_currencies(lines: Sequence[Line]) -> Iterator[Line]:
    """The lines, each with a currency. What has no price joins a line of its keys, else of the report's first currency."""
    of_keys: dict[tuple[str, ...], str] = {}
    currencies = sorted({line.currency for line in lines if line.currency})
    if len(currencies) > 1:
        for line in lines:
            key = _key_of(line.keys)
            if line.currency and line.currency < of_keys.get(key, "~"):
                of_keys[key] = line.currency
    usual = currencies[0] if currencies else DEFAULT_CURRENCY
    for line in lines:
        yield line if line.currency else replace(line, currency=of_keys.get(_key_of(line.keys), usual))


def _merged(lines: Iterable[Line]) -> list[Line]:
    """Joins priced and unpriced, recorded and provisional parts of the same keys and currency into one line, in the order
    of their keys.
    """
    merged: dict[tuple[str, ...], Line] = {}
    for line in lines:
        key = (line.currency, *_key_of(line.keys))
        known = merged.get(key)
        if known is not None:
            line = Line(  # noqa: PLW2901 - the line so far
                keys=known.keys,
                currency=line.currency,
                quantities=tuple(map(add, known.quantities, line.quantities)),
                memory=tuple(map(add, known.memory, line.memory)),
                gpus=tuple(map(add, known.gpus, line.gpus)),
                cost=known.cost + line.cost,
                provisional_cost=known.provisional_cost + line.provisional_cost,
                corrections=known.corrections + line.corrections,
                credits=known.credits + line.credits,
                running=known.running | line.running,
            )
        merged[key] = line
    if len(merged) > MOST_ROWS:
        raise _too_large()
    return sorted(merged.values(), key=lambda line: tuple(line.keys.values()))


def _too_large() -> Invalid:
    return Invalid.field("group_by", "report_too_large", f"more than {MOST_ROWS} rows; group by fewer keys")


def _by_currency(lines: Sequence[Line]) -> list[Shown]:
    """The rows of each currency with their sums, the currencies in order."""
    groups: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        groups[line.currency].append(line)
    return [_shown(currency, groups[currency]) for currency in sorted(groups)] or [_shown(DEFAULT_CURRENCY, ())]


def _shown(currency: str, lines: Sequence[Line]) -> Shown:
    hours, core_hours, gib_hours = MILLISECONDS_AN_HOUR, MILLISECONDS_AN_HOUR * 1000, MILLISECONDS_AN_HOUR * MIB_A_GIB
    exact: dict[str, tuple[list[Fraction] | list[int], int]] = {
        "gpu_hours": ([line.gpus[0] for line in lines], hours),
        "unpriced_gpu_hours": ([line.gpus[1] for line in lines], hours),
        "provisional_gpu_hours": ([line.gpus[2] for line in lines], hours),
        "lost_gpu_hours": ([line.gpus[3] for line in lines], hours),
        "cpu_core_hours": ([line.quantities[1] for line in lines], core_hours),
        "memory_gib_hours": ([line.memory[0] for line in lines], gib_hours),
        "unpriced_memory_gib_hours": ([line.memory[1] for line in lines], gib_hours),
        "provisional_memory_gib_hours": ([line.memory[2] for line in lines], gib_hours),
        "cost": ([line.cost + line.credits for line in lines], 1),
        "provisional_cost": ([line.provisional_cost for line in lines], 1),
        "corrections": ([line.corrections for line in lines], 1),
        "credits": ([line.credits for line in lines], 1),
    }
    shown = {name: shown_parts(parts, SHOWN_PLACES, per=per) for name, (parts, per) in exact.items()}
    rows = [
        _row(line, line.quantities, {name: parts[number] for name, (parts, _) in shown.items()})
        for number, line in enumerate(lines)
    ]
    sums: Quantities = tuple(sum(line.quantities[n] for line in lines) for n in range(6))  # type: ignore[assignment]
    running = frozenset[UUID]().union(*(line.running for line in lines))
    whole = Line({}, currency, sums, (0, 0, 0), (ZERO, ZERO, ZERO, ZERO), ZERO, running=running)
    return rows, _row(whole, sums, {name: total for name, (_, total) in shown.items()})


def _row(line: Line, quantities: Quantities, shown: Mapping[str, Decimal]) -> UsageRow:
    return UsageRow(
        keys=line.keys,
        currency=line.currency,
        gpu_milliseconds=quantities[0],
        cpu_millicore_milliseconds=quantities[1],
        unpriced_gpu_milliseconds=quantities[2],
        unpriced_cpu_millicore_milliseconds=quantities[3],
        provisional_gpu_milliseconds=quantities[4],
        provisional_cpu_millicore_milliseconds=quantities[5],
        running_jobs=len(line.running),
        carbon=None,
        **shown,
    )
