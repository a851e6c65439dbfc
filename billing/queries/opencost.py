"""Allocations and assets as OpenCost shows them. Allocations are rows of the usage report, so both agree to the last digit."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
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

from .pools import corrected_prices, nodes_offered
from .sharing import Policy
from .sharing_report import computed
from .usage import SHOWN_PLACES, UsageRow, usage_report

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


def allocations(
    actor: Actor, start: datetime, until: datetime, aggregate: Sequence[str], *, with_idle: bool, shares_idle: bool
) -> list[Allocation]:
    """The rows of [start, until) by these words of AGGREGATES. Idle capacity is that of organisations that the actor sees as a whole.

    With `shares_idle`, it is shared in proportion to use, whatever the organisation's policy. Raises Invalid, as the report does, and `not_whole_days`.
    """
    words = [AGGREGATES[word] for word in aggregate]
    report = usage_report(actor, "", start, until, words)
    report.total  # noqa: B018 - its format has no currency: it refuses several
    rows = [Allocation(_name(row, words), row.keys, row, row.cost) for row in report.rows]
    if not (with_idle or shares_idle):
        return rows
    if any(at != at.replace(hour=0, minute=0, second=0, microsecond=0) for at in (start, until)):
        raise Invalid.field("window", "not_whole_days", "idle capacity is of whole days in UTC")
    idle = _idle(actor, start, until)
    if shares_idle and (
        weights := {(f"{number:06d}", ""): _scaled(row.cost) for number, row in enumerate(rows) if row.cost > 0}
    ):
        parts = split(_scaled(idle), weights) if idle > 0 else {}
        return [
            Allocation(row.name, row.properties, row.usage, row.cost, _amount(parts.get((f"{number:06d}", ""), 0)))
            for number, row in enumerate(rows)
        ]
    return [*rows, Allocation(IDLE, {}, None, idle)] if idle else rows


def _idle(actor: Actor, start: datetime, until: datetime) -> Decimal:
    """The idle cost and overhead of whole organisations, with six decimals."""
    policy = Policy(idle=IdleSplit.CENTRAL)
    found = 0
    for root in visible_tenants(actor).filter(parent=None).order_by("path"):
        days, *_ = computed(root, start, until, policy)
        found += sum(one.balance.idle + one.balance.overhead for one in days.days)
    return round(Decimal(found) / SCALE, SHOWN_PLACES)


def _scaled(amount: Decimal) -> int:
    return int(amount.scaleb(SHOWN_PLACES))


def _amount(units: int) -> Decimal:
    return Decimal(units).scaleb(-SHOWN_PLACES)


def _name(row: UsageRow, words: Sequence[str]) -> str:
    return "/".join(row.keys[word] for word in words) or "total"


def assets(actor: Actor, start: datetime, until: datetime) -> list[Asset]:
    """The nodes of the clusters that the actor sees, in [start, until). Their costs add up to those of their pools, without what pods
    without GPUs pay beside.
    """
    until = min(until, whole_milliseconds(database_now().astimezone(UTC)))
    if until <= start:
        return []
    if until - start > timedelta(days=MOST_DAYS):
        raise Invalid.field("window", "span_too_large", f"at most {MOST_DAYS} days")
    clusters = {one.id: one for one in visible_clusters(actor)}
    prices = corrected_prices(list(clusters), start, until)
    nodes: dict[tuple[str, str, str, str], Asset] = {}
    worth: dict[tuple[str, str, str, str], int] = defaultdict(int)
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
            for pieces in by_day([one.offered]).values():
                worth[place] += sum(part.whole for part in worth_of(pieces, prices.get(key, ())).values())
    places = sorted(nodes)
    costs, _ = shown_parts([Fraction(worth[place], READINGS_AN_HOUR * SCALE) for place in places], SHOWN_PLACES)
    return [_with_cost(nodes[place], cost) for place, cost in zip(places, costs, strict=True)]


def _with_cost(one: Asset, cost: Decimal) -> Asset:
    return Asset(
        one.cluster, one.node, one.uid, one.flavor, one.provider, one.minutes, one.unit_milliseconds, one.core_milliseconds,
        one.mib_milliseconds, cost, one.is_gpu,
    )  # fmt: skip
