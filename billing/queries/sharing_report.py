"""The report of a month's pools: what they cost, what tenants are charged before and after idle capacity and the platform are
shared. A team sees its own rows; the pools are for users who see the whole organisation.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from uuid import UUID

from django.db.models import Sum

from billing.engine.idle import Balance, Shared, Sharer
from billing.engine.ledger import units
from billing.engine.months import midnight, next_month
from billing.engine.rating import whole_milliseconds
from billing.engine.shared_entries import IDLE_SHARE, PLATFORM_SHARE
from billing.models import LedgerLine, LedgerPeriod, PoolDay
from clusters.models import Cluster
from foundation.clock import database_now
from foundation.problems import Invalid, NotFound
from tenancy.models import Tenant
from tenancy.queries import Actor, visible_tenants

from .commitment_report import borne_in, unused_in
from .paths import Scope, organisation_named
from .pools import PoolDayKey, pools_of
from .progress import OpenRun, Whose, open_runs, provisional_parts
from .recorded import recorded
from .sharing import (
    MonthOfPools,
    Policy,
    PoolBalance,
    clusters_of,
    month_of_pools,
    policy_for,
    posted_charges,
    posted_credits,
)
from .usage import MOST_PARTS, provisional_lines

WORDS = ("tenant", "cluster", "flavor", "day")


@dataclass(frozen=True, slots=True)
class TenantShare:
    """What one tenant bears, in 10**-12: `direct` before, `total` after sharing, credits and commitments. `credits` is not positive;
    `commitment` is what it bears of commitments, less what the usage that they covered was charged.
    """

    tenant: str
    currency: str
    direct: int
    idle: int
    platform: int
    credits: int = 0
    commitment: int = 0

    @property
    def total(self) -> int:
        """After sharing, credits and commitments."""
        return self.direct + self.idle + self.platform + self.credits + self.commitment


@dataclass(frozen=True, slots=True)
class PoolShown:
    """A pool's day, with the name of its cluster and what of its idle cost tenants bear."""

    cluster: str
    key: PoolDayKey
    balance: Balance
    shared: int


@dataclass(frozen=True, slots=True)
class Bridge:
    """From what was used to what it all costs, in one currency: `charged + overhead + idle == cost`, and
    `charged + commitment + credits + infrastructure + idle_shared + idle_central + overhead + platform + commitment_unused == total`.
    Credits for lost work, which are negative, move a part of what is charged from the tenants to the organisation:
    `infrastructure` is their opposite. `commitment` is what tenants used of commitments, less what that usage was charged.
    """

    currency: str
    charged: int
    cost: int
    overhead: int
    idle_shared: int
    idle_central: int
    platform_shared: int
    platform_central: int
    outside: int
    """Charged for days or pools that the history of the fleet does not contain."""
    credits: int = 0
    commitment: int = 0
    commitment_unused: int = 0

    @property
    def infrastructure(self) -> int:
        """What the organisation bears because infrastructure lost the work."""
        return -self.credits

    @property
    def total(self) -> int:
        """All of it."""
        return (
            self.outside + self.cost + self.platform_shared + self.platform_central + self.commitment + self.commitment_unused
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class SharingReport:
    """An organisation's month. `is_final`: it is closed with these numbers. `pools` and `bridges` are empty for those who do not
    see the whole organisation.
    """

    organisation: str
    month: date
    is_final: bool
    policy: Policy
    tenants: tuple[TenantShare, ...]
    pools: tuple[PoolShown, ...]
    bridges: tuple[Bridge, ...]


def visible_organisations(actor: Actor) -> list[str]:
    """The organisations of which the actor sees a tenant."""
    return sorted({path.split("/")[0] for path in visible_tenants(actor).values_list("path", flat=True)})


def sharing_report(actor: Actor, organisation_path: str, month: date, supposed: Policy | None = None) -> SharingReport:
    """The report; with a `supposed` policy, of everything recorded and running as that one would share it, also of a closed month.
    Raises NotFound if the actor sees no tenant of the organisation; Invalid `in_the_future`.
    """
    root = organisation_named(organisation_path)
    if root is None:
        raise NotFound
    seen = dict(visible_tenants(actor).values_list("id", "path"))
    if not any(path == root.path or path.startswith(f"{root.path}/") for path in seen.values()):
        raise NotFound
    if midnight(month) > database_now():
        raise Invalid.field("month", "in_the_future", "give a month that has begun")
    closed = LedgerPeriod.objects.filter(organisation=root, month=month, state=LedgerPeriod.State.CLOSED)
    period = closed.first() if supposed is None else None
    kept = list(PoolDay.objects.filter(period=period, revision=period.revision).order_by("id")) if period else []
    found = _as_closed(period, kept) if period and kept else _as_of_now(root, month, supposed)
    of_month, direct, idle, platform, credited = found
    within = period if kept else None
    committed = {key: its.net for key, its in borne_in(root.id, month, within).items()}
    sees_all = root.id in seen
    paths = set(seen.values())
    ids = {str(id_) for id_ in seen}
    keys = sorted({*direct, *idle, *platform, *credited, *committed})
    rows: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for who, currency in keys:
        if sees_all or who[1] in ids or (not who[1] and _is_at_or_below(who[0], paths)):
            row = rows[who[0], currency]
            row["direct"] += direct.get((who, currency), 0)
            row["idle"] += idle.get((who, currency), 0)
            row["platform"] += platform.get((who, currency), 0)
            row["credits"] += credited.get((who, currency), 0)
            row["commitment"] += committed.get((who, currency), 0)
    shares = tuple(
        TenantShare(path, currency, row["direct"], row["idle"], row["platform"], row["credits"], row["commitment"])
        for (path, currency), row in sorted(rows.items())
    )
    names = dict(
        Cluster.everything.filter(id__in={one.key.cluster_id for one in of_month.days}).values_list("id", "name")
    )
    pools = tuple(
        PoolShown(names[one.key.cluster_id], one.key, one.balance, sum(one.shared.parts.values()))
        for one in of_month.days
    )
    return SharingReport(
        root.path, month, bool(kept), of_month.policy, shares, pools if sees_all else (),
        _bridges(of_month, direct, credited, committed, unused_in(root.id, month, within)) if sees_all else (),
    )  # fmt: skip


Sums = Mapping[tuple[Sharer, str], int]
"""By who bears it and currency."""
Found = tuple[MonthOfPools, Sums, Sums, Sums, Sums]
"""The pools, and what tenants are charged, bear of idle capacity and of the platform, and are credited."""


def _is_at_or_below(path: str, paths: set[str]) -> bool:
    parts = path.split("/")
    return any("/".join(parts[:count]) in paths for count in range(1, len(parts) + 1))


def _as_of_now(root: Tenant, month: date, supposed: Policy | None) -> Found:
    """Everything recorded and running, up to now."""
    return computed(root, midnight(month), midnight(next_month(month)), supposed or policy_for(root.id, month))


def computed(root: Tenant, start: datetime, until: datetime, policy: Policy) -> Found:
    """The pools of [start, until), between midnights, with everything recorded and running up to now; what tenants are charged,
    what of idle capacity and of the platform they bear, and their credits.
    """
    at = whole_milliseconds(database_now())
    pools = pools_of(clusters_of(root), start, min(until, at))
    below = Tenant.objects.filter(path__startswith=f"{root.path}/") | Tenant.objects.filter(id=root.id)
    scope = Scope("", dict(below.values_list("id", "path")))
    running = [
        run for run in open_runs(Whose(tenants=scope.tenants), at) if max(run.recorded_until, start) < min(until, at)
    ]
    lines = recorded(WORDS, scope, running, start, until, MOST_PARTS)
    lines += provisional_lines(WORDS, scope, running, start, until)
    charges: dict[PoolDayKey, Counter[Sharer]] = defaultdict(Counter)
    credited: Counter[tuple[Sharer, str]] = Counter()
    for line in lines:
        if line.credits:
            credited[(line.keys["tenant"], ""), line.currency] += int(line.credits * 10**12)
            continue
        if line.currency:
            key = PoolDayKey(
                UUID(line.keys["cluster_id"]), line.keys["flavor"], date.fromisoformat(line.keys["day"]), line.currency
            )
            charges[key][line.keys["tenant"], ""] += int(line.cost * 10**12)
    weights = {(path, ""): weight for (path, _), weight in policy.platform_weights.items()}
    policy = Policy(
        policy.number, policy.idle, policy.platform, policy.platform_cost, policy.platform_currency, weights
    )
    guests = _running_guests(running, pools.prices, start, until)
    of_month = month_of_pools(root, pools, charges, policy, guests=guests)
    direct: Counter[tuple[Sharer, str]] = Counter()
    idle: Counter[tuple[Sharer, str]] = Counter()
    for key, by in charges.items():
        for who, amount in by.items():
            direct[who, key.currency] += amount
    for one in of_month.days:
        for who, part in one.shared.parts.items():
            idle[who, one.key.currency] += part
    platform = {(who, policy.platform_currency): part for who, part in of_month.platform.parts.items()}
    return of_month, direct, idle, platform, credited


def _running_guests(
    running: list[OpenRun], prices: Mapping[tuple[UUID, str, str], object], start: datetime, until: datetime
) -> Mapping[PoolDayKey, int]:
    """What running pods without GPUs pay on nodes with GPUs, where these have no price for cores or memory."""
    found: Counter[PoolDayKey] = Counter()
    for part in provisional_parts(running, start, until):
        own = prices.get((part.meter.cluster_id, part.meter.flavor, part.meter.capacity_type), ())
        if part.meter.load.is_guest and part.piece.currency and part.piece.price_id not in {each.id for each in own}:  # type: ignore[attr-defined]
            key = PoolDayKey(part.meter.cluster_id, part.meter.flavor, part.piece.start.date(), part.piece.currency)
            found[key] += units(part.piece.cost)
    return found


def _as_closed(period: LedgerPeriod, kept: list[PoolDay]) -> Found:
    """As the month was closed."""
    policy = policy_for(period.organisation_id, period.month)
    days = []
    for row in kept:
        its = Balance(units(row.cost), units(row.charged), units(row.overhead), units(row.idle), units(row.assumed))
        shared = Shared(units(row.idle - row.shared), {("", ""): units(row.shared)})
        days.append(PoolBalance(PoolDayKey(row.cluster_id, row.flavor, row.day, row.currency), its, {}, shared))
    direct: Counter[tuple[Sharer, str]] = Counter()
    for key, by in posted_charges(period.organisation_id, period.month, kept[0].last_entry).items():
        for who, amount in by.items():
            direct[who, key.currency] += amount
    idle: Counter[tuple[Sharer, str]] = Counter()
    platform: Counter[tuple[Sharer, str]] = Counter()
    lines = LedgerLine.objects.filter(
        entry__period=period, entry__flavor__in=[IDLE_SHARE, PLATFORM_SHARE], account__kind="tenant_expense"
    )
    for path, tenant_id, flavor, currency, amount in (
        lines.values_list("entry__tenant_path", "account__tenant_id", "entry__flavor", "currency")
        .annotate(sum=Sum("amount"))
        .order_by()
    ):
        (idle if flavor == IDLE_SHARE else platform)[(path, str(tenant_id)), currency] += units(amount)
    parts = {who: part for (who, _), part in platform.items()}
    central = policy.platform_cost - sum(parts.values())
    credited = posted_credits(period.organisation_id, period.month, kept[0].last_entry)
    return MonthOfPools(policy, tuple(days), Shared(central, parts)), direct, idle, platform, credited


def _bridges(
    of_month: MonthOfPools, direct: Sums, credited: Sums, committed: Sums, unused: Mapping[str, int]
) -> tuple[Bridge, ...]:
    sums: dict[str, Counter[str]] = defaultdict(Counter)
    for one in of_month.days:
        its = sums[one.key.currency]
        its["cost"] += one.balance.cost
        its["in_pools"] += one.balance.charged
        its["overhead"] += one.balance.overhead
        its["shared"] += sum(one.shared.parts.values())
        its["central"] += one.balance.idle - sum(one.shared.parts.values())
    for (_, currency), amount in direct.items():
        sums[currency]["charged"] += amount
    for (_, currency), amount in credited.items():
        sums[currency]["credits"] += amount
    for (_, currency), amount in committed.items():
        sums[currency]["commitment"] += amount
    for currency, amount in unused.items():
        sums[currency]["unused"] += amount
    if of_month.policy.platform_currency:
        sums[of_month.policy.platform_currency]["platform"] += sum(of_month.platform.parts.values())
        sums[of_month.policy.platform_currency]["platform_central"] += of_month.platform.central
    return tuple(
        Bridge(
            currency, its["charged"], its["cost"], its["overhead"], its["shared"], its["central"], its["platform"],
            its["platform_central"], its["charged"] - its["in_pools"], its["credits"], its["commitment"], its["unused"],
        )
        for currency, its in sorted(sums.items())
    )  # fmt: skip
