"""Allocations and assets as OpenCost shows them. Allocations are rows of the usage report, so both agree to the last digit."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

from billing.engine.idle import IdleSplit, by_day, split, worth_of
from billing.engine.ledger import SCALE
from billing.engine.rating import MILLISECOND, READINGS_AN_HOUR, whole_milliseconds
from billing.engine.shares import shown_parts
from clusters.queries import visible_clusters
from foundation.clock import database_now
from foundation.problems import Invalid
from tenancy.queries import Actor, visible_tenants

from .one_currency import Converted, Cost, Exchange, by_currency, shown_currency
from .pools import corrected_prices, nodes_offered
from .sharing import Policy
from .sharing_report import computed
from .usage import DEFAULT_CURRENCY, SHOWN_PLACES, UsageReport, UsageRow, usage_report

IDLE = "__idle__"
AGGREGATES: Mapping[str, str] = {
    "namespace": "tenant",
    "cluster": "cluster",
    "controller": "job",
    "label:flavor": "flavor",
    "label:user": "user",
}
"""OpenCost's words, and the groups of the usage report that they are here."""
MOST_DAYS = 366


@dataclass(frozen=True, slots=True)
class Allocation:
    """A row of a set. `usage` is None for idle capacity; `shared` is what a row bears of it."""

    name: str
    properties: Mapping[str, str]
    usage: UsageRow | None
    cost: Decimal
    shared: Decimal = Decimal(0)


@dataclass(frozen=True, slots=True)
class Asset:
    """What a node offered of a flavor, and what that cost by the price book."""

    cluster: str
    node: str
    uid: str
    flavor: str
    provider: str
    minutes: Fraction = Fraction(0)
    unit_milliseconds: int = 0
    core_milliseconds: int = 0
    """Thousandths of a core times milliseconds."""
    mib_milliseconds: int = 0
    cost: Decimal = field(default_factory=Decimal)
    is_gpu: bool = False


@dataclass(frozen=True, slots=True)
class Allocations:
    """The rows of a window, in one currency. `converted`: by currency of the price, if one is another."""

    rows: list[Allocation]
    currency: str
    converted: list[Converted]


def allocations(
    actor: Actor, start: datetime, until: datetime, aggregate: Sequence[str], *, with_idle: bool, shares_idle: bool
) -> Allocations:
    """The rows of [start, until) by these words of AGGREGATES. Idle capacity is that of organisations that the actor sees as a whole.

    With `shares_idle`, it is shared in proportion to use, whatever the organisation's policy. What is priced in another currency than
    organisations are billed in is converted, at the rate of each day. Raises Invalid, as the report does, `not_whole_days` and
    `no_exchange_rate`.
    """
    words = [AGGREGATES[word] for word in aggregate]
    report = usage_report(actor, "", start, until, words)
    has_idle = with_idle or shares_idle
    if has_idle and any(at != at.replace(hour=0, minute=0, second=0, microsecond=0) for at in (start, until)):
        raise Invalid.field("window", "not_whole_days", "idle capacity is of whole days in UTC")
    unused = _idle(actor, start, until) if has_idle else []
    used = {one.currency for one in report.totals if one.cost or len(report.totals) > 1}
    currency = shown_currency(actor, {*used, *(one.currency for one in unused)}, until)
    rows: list[Allocation] = _rows(report, words)
    costs: list[Converted] = []
    if currency:
        rows, costs = _converted_rows(actor, report, words, currency)
    exchange = Exchange(currency, unused)
    idle = round(_decimal(sum((exchange.worth(one) for one in unused), Fraction(0))), SHOWN_PLACES)
    shown = currency or next(iter(sorted(used)), report.totals[0].currency)
    return Allocations(_with_idle(rows, idle, shares_idle=shares_idle) if has_idle else rows, shown, costs)


def _with_idle(rows: list[Allocation], idle: Decimal, *, shares_idle: bool) -> list[Allocation]:
    if shares_idle and (
        weights := {(f"{number:06d}", ""): _scaled(row.cost) for number, row in enumerate(rows) if row.cost > 0}
    ):
        parts = split(_scaled(idle), weights) if idle > 0 else {}
        return [
            Allocation(row.name, row.properties, row.usage, row.cost, _amount(parts.get((f"{number:06d}", ""), 0)))
            for number, row in enumerate(rows)
        ]
    return [*rows, Allocation(IDLE, {}, None, idle)] if idle else rows


def _rows(report: UsageReport, words: Sequence[str]) -> list[Allocation]:
    return [Allocation(_name(row.keys, words), row.keys, row, row.cost) for row in report.rows]


def _converted_rows(
    actor: Actor, report: UsageReport, words: Sequence[str], currency: str
) -> tuple[list[Allocation], list[Converted]]:
    """One row for each name, although its costs are in several currencies; the amounts add up to their rounded sum."""
    details = usage_report(actor, "", report.start, report.until, list(dict.fromkeys([*words, "tenant", "day"]))).rows
    costs = [
        Cost(
            row.keys["tenant"].partition("/")[0], row.currency, date.fromisoformat(row.keys["day"]), Fraction(row.cost)
        )
        for row in details
    ]
    exchange = Exchange(currency, costs)
    worth: dict[str, Fraction] = defaultdict(Fraction)
    for row, cost in zip(details, costs, strict=True):
        worth[_name(row.keys, words)] += exchange.worth(cost)
    usage: dict[str, UsageRow] = {}
    for row in report.rows:
        name = _name(row.keys, words)
        usage[name] = _together(usage[name], row) if name in usage else row
    amounts, _ = shown_parts([worth[name] for name in usage], SHOWN_PLACES)
    rows = [Allocation(name, row.keys, row, amount) for (name, row), amount in zip(usage.items(), amounts, strict=True)]
    return rows, by_currency(exchange, costs)


def _together(one: UsageRow, other: UsageRow) -> UsageRow:
    """What both used. Their costs are not added up."""
    return replace(
        one,
        gpu_milliseconds=one.gpu_milliseconds + other.gpu_milliseconds,
        gpu_hours=one.gpu_hours + other.gpu_hours,
        cpu_core_hours=one.cpu_core_hours + other.cpu_core_hours,
        memory_gib_hours=one.memory_gib_hours + other.memory_gib_hours,
    )


def _idle(actor: Actor, start: datetime, until: datetime) -> list[Cost]:
    """The idle cost and overhead of whole organisations, by day and currency."""
    policy = Policy(idle=IdleSplit.CENTRAL)
    found = []
    for root in visible_tenants(actor).filter(parent=None).order_by("path"):
        of_month, *_ = computed(root, start, until, policy)
        found += [
            Cost(root.path, one.key.currency, one.key.day, Fraction(one.balance.idle + one.balance.overhead, SCALE))
            for one in of_month.days
        ]
    return found


def _decimal(exact: Fraction) -> Decimal:
    """With twelve decimals, which all amounts have, or the nearest."""
    return Decimal(round(exact * SCALE)) / SCALE


def _scaled(amount: Decimal) -> int:
    return int(amount.scaleb(SHOWN_PLACES))


def _amount(units: int) -> Decimal:
    return Decimal(units).scaleb(-SHOWN_PLACES)


def _name(keys: Mapping[str, str], words: Sequence[str]) -> str:
    return "/".join(keys[word] for word in words) or "total"


@dataclass(frozen=True, slots=True)
class Assets:
    """The nodes of a window, in one currency. `converted`: by currency of the price, if one is another."""

    rows: list[Asset]
    currency: str
    converted: list[Converted]


def assets(actor: Actor, start: datetime, until: datetime) -> Assets:
    """The nodes of the clusters that the actor sees, in [start, until). Their costs add up to those of their pools, without what pods
    without GPUs pay beside. Converted as allocations are.
    """
    until = min(until, whole_milliseconds(database_now().astimezone(UTC)))
    if until <= start:
        return Assets([], DEFAULT_CURRENCY, [])
    if until - start > timedelta(days=MOST_DAYS):
        raise Invalid.field("window", "span_too_large", f"at most {MOST_DAYS} days")
    clusters = {one.id: one for one in visible_clusters(actor).select_related("owner")}
    prices = corrected_prices(list(clusters), start, until)
    nodes: dict[tuple[str, str, str, str], Asset] = {}
    costs: dict[tuple[str, str, str, str], list[Cost]] = {}
    for key, offers in nodes_offered(list(clusters), start, until).items():
        cluster = clusters[key[0]]
        for one in offers:
            place = (cluster.name, one.node, one.uid, key[1])
            known = nodes.get(place, Asset(*place, cluster.provider, is_gpu=one.offered.unit == "gpu"))
            length = (one.offered.until - one.offered.start) // MILLISECOND
            nodes[place] = Asset(
                *place, known.provider, known.minutes + Fraction(length, 60_000),
                known.unit_milliseconds + one.offered.units * length,
                known.core_milliseconds + one.offered.cpu_millicores * length,
                known.mib_milliseconds + one.offered.memory_mib * length, is_gpu=known.is_gpu,
            )  # fmt: skip
            root, own = cluster.owner.path.partition("/")[0], costs.setdefault(place, [])
            for day, pieces in by_day([one.offered]).items():
                own += [
                    Cost(root, currency, day, Fraction(part.whole, READINGS_AN_HOUR * SCALE))
                    for currency, part in worth_of(pieces, prices.get(key, ())).items()
                ]
    return _valued(actor, nodes, costs, until)


def _valued(
    actor: Actor,
    nodes: Mapping[tuple[str, str, str, str], Asset],
    costs: Mapping[tuple[str, str, str, str], list[Cost]],
    until: datetime,
) -> Assets:
    every = [one for own in costs.values() for one in own]
    found = {one.currency for one in every}
    currency = shown_currency(actor, found, until)
    exchange = Exchange(currency, every)
    places = sorted(nodes)
    exact = [sum((exchange.worth(one) for one in costs.get(place, ())), Fraction(0)) for place in places]
    amounts, _ = shown_parts(exact, SHOWN_PLACES)
    rows = [_with_cost(nodes[place], cost) for place, cost in zip(places, amounts, strict=True)]
    shown = currency or next(iter(found), DEFAULT_CURRENCY)
    return Assets(rows, shown, by_currency(exchange, every) if currency else [])


def _with_cost(one: Asset, cost: Decimal) -> Asset:
    return Asset(
        one.cluster, one.node, one.uid, one.flavor, one.provider, one.minutes, one.unit_milliseconds, one.core_milliseconds,
        one.mib_milliseconds, cost, one.is_gpu,
    )  # fmt: skip
