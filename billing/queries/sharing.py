"""What the pools of an organisation cost in a month, who bears idle capacity and the platform, and the policy of it.

Of a month that is not closed, everything is computed when it is asked; of a closed one, it is read as it was closed.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import Max, QuerySet

from billing.engine.idle import (
    Balance,
    IdleSplit,
    PlatformSplit,
    Shared,
    Sharer,
    Worth,
    balance,
    share_idle,
    share_platform,
)
from billing.engine.ledger import units
from billing.engine.months import midnight, next_month
from billing.models import LedgerEntry, NegativeIdle, PriceCorrection, SharingPolicy
from clusters.models import Cluster
from foundation.problems import NotFound
from tenancy.engine.roles import Permission
from tenancy.models import Tenant
from tenancy.queries import Actor, NotAllowedHere, permissions_at, visible_tenants

from .paths import organisation_named
from .pools import PoolDayKey, Pools, charged_to_guests, pools_of, reserved_worth

Charges = Mapping[PoolDayKey, Mapping[Sharer, int]]
"""What tenants are charged, by pool and day, in 10**-12."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Who bears what from a month on. `number` is its row; 0: no policy, and everything stays central."""

    number: int = 0
    idle: IdleSplit = IdleSplit.CENTRAL
    platform: PlatformSplit = PlatformSplit.PROPORTIONAL
    platform_cost: int = 0
    platform_currency: str = ""
    platform_weights: Mapping[Sharer, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PoolBalance:
    """A pool's day: what it cost, and who bears what no job paid."""

    key: PoolDayKey
    balance: Balance
    charged: Mapping[Sharer, int]
    shared: Shared


@dataclass(frozen=True, slots=True)
class MonthOfPools:
    """An organisation's month. `last_entry` and `last_correction` are the newest that it counts."""

    policy: Policy
    days: tuple[PoolBalance, ...]
    platform: Shared
    last_entry: int = 0
    last_correction: int = 0

    @staticmethod
    def nothing() -> "MonthOfPools":
        """Of an organisation without a policy: nothing is posted."""
        return MonthOfPools(Policy(), (), Shared(0))


def policies_of(organisation_id: UUID) -> QuerySet[SharingPolicy]:
    """The policies of an organisation, the latest first."""
    return SharingPolicy.objects.filter(organisation=organisation_id).order_by("-effective_from", "-id")


def visible_policies(actor: Actor) -> QuerySet[SharingPolicy]:
    """The policies of the organisations that the actor may see as a whole."""
    return SharingPolicy.objects.filter(organisation__in=visible_tenants(actor)).select_related("organisation")


def policy_for(organisation_id: UUID, month: date) -> Policy:
    """The policy that applies to a month."""
    row = policies_of(organisation_id).filter(effective_from__lte=month).first()
    if row is None:
        return Policy()
    paths = dict(Tenant.objects.filter(id__in=row.platform_weights).values_list("id", "path"))
    return Policy(
        row.id,
        IdleSplit(row.idle),
        PlatformSplit(row.platform),
        units(row.platform_cost),
        row.platform_currency,
        {(path, str(id_)): int(row.platform_weights[str(id_)]) for id_, path in paths.items()},
    )


def organisation_at(actor: Actor, path: str, *, may_close: bool = False) -> Tenant:
    """The organisation, for users who see it as a whole. Raises NotFound, and NotAllowedHere with `may_close`."""
    found = organisation_named(path)
    if found is None or not visible_tenants(actor).filter(id=found.id).exists():
        raise NotFound
    if may_close and Permission.CLOSE_PERIOD not in permissions_at(actor, found):
        raise NotAllowedHere(found, Permission.CLOSE_PERIOD)
    return found


def visible_whole_organisations(actor: Actor) -> list[str]:
    """The organisations that the actor sees as a whole, by path."""
    return list(visible_tenants(actor).filter(parent=None).order_by("path").values_list("path", flat=True))


def clusters_of(organisation: Tenant) -> list[UUID]:
    """The clusters that the organisation owns or owned, also below it."""
    owned = Cluster.everything.filter(owner=organisation) | Cluster.everything.filter(
        owner__path__startswith=f"{organisation.path}/"
    )
    return list(owned.order_by("id").values_list("id", flat=True))


def posted_month(organisation: Tenant, month: date) -> MonthOfPools:
    """The month by what the ledger charges. The caller has locked its period, so that no entry of its days comes meanwhile."""
    charges = posted_charges(organisation.id, month)
    return month_of_pools(
        organisation,
        pools_of(clusters_of(organisation), midnight(month), midnight(next_month(month))),
        charges,
        policy_for(organisation.id, month),
        last_entry=LedgerEntry.objects.aggregate(last=Max("id"))["last"] or 0,
    )


def posted_charges(organisation_id: UUID, month: date, last_entry: int | None = None) -> Charges:
    """What the ledger charges for the days of a month, by its entries up to one of them if given."""
    charges: dict[PoolDayKey, dict[Sharer, int]] = defaultdict(dict)
    values: dict[str, Any] = {
        "organisation": organisation_id,
        "start": month,
        "until": next_month(month),
        "last": last_entry,
    }
    with connection.cursor() as cursor:
        cursor.execute(CHARGED, values)
        for cluster_id, flavor, day, currency, path, tenant_id, amount in cursor.fetchall():
            if amount:
                charges[PoolDayKey(cluster_id, flavor, day, currency)][path, str(tenant_id)] = units(amount)
    return charges


def posted_credits(
    organisation_id: UUID, month: date, last_entry: int | None = None
) -> Mapping[tuple[Sharer, str], int]:
    """What is credited for lost work of a month's days, likewise: negative, in 10**-12, by tenant and currency."""
    values: dict[str, Any] = {
        "organisation": organisation_id, "start": month, "until": next_month(month), "last": last_entry,
    }  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute(CREDITED, values)
        return {
            ((path, str(id_)), currency): units(amount) for path, id_, currency, amount in cursor.fetchall() if amount
        }


def month_of_pools(
    organisation: Tenant,
    pools: Pools,
    charges: Charges,
    policy: Policy,
    *,
    guests: Mapping[PoolDayKey, int] | None = None,
    last_entry: int = 0,
) -> MonthOfPools:
    """The balances of all pools whose days the history contains, and what each tenant bears. `guests`: what pods without GPUs paid
    beside what is recorded.
    """
    ids = clusters_of(organisation)
    by_guests = charged_to_guests(ids, pools.start.date(), pools.until.date())
    reserved = reserved_worth(ids, pools) if policy.idle is IdleSplit.RESERVATIONS else {}
    days = []
    for key in sorted({*pools.worth, *charges}):
        if not pools.is_known(key):
            continue
        charged = charges.get(key, {})
        beside = by_guests.get(key, 0) + (guests or {}).get(key, 0)
        its = balance(pools.worth.get(key, Worth()), sum(charged.values()), beside)
        unused = _unused(reserved.get(key, {}), charged)
        days.append(PoolBalance(key, its, charged, share_idle(its.idle, policy.idle, charged, unused)))
    paid: dict[Sharer, int] = defaultdict(int)
    for key, by in charges.items():
        for who, amount in by.items():
            if key.currency == policy.platform_currency:
                paid[who] += amount
    platform = share_platform(policy.platform_cost, policy.platform, paid, policy.platform_weights)
    newest = PriceCorrection.objects.aggregate(last=Max("id"))["last"] or 0
    return MonthOfPools(policy, tuple(days), platform, last_entry, newest)


def _unused(reserved: Mapping[tuple[str, UUID], int], charged: Mapping[Sharer, int]) -> Mapping[Sharer, int]:
    """What of its reserved nodes' worth a tenant, with all below it, was not charged in the same pool."""
    found = {}
    for (path, tenant_id), worth in reserved.items():
        used = sum(
            amount for (user, id_), amount in charged.items()
            if user == path or user.startswith(f"{path}/") or id_ == str(tenant_id)
        )  # fmt: skip
        who = next(
            (each for each in charged if each[1] == str(tenant_id) or each == (path, "")), (path, str(tenant_id))
        )
        found[who] = max(0, worth - used)
    return found


def unresolved_negative_idle(organisation_id: UUID, month: date) -> QuerySet[NegativeIdle]:
    """The pools' days of a month for which a person has to decide."""
    return NegativeIdle.objects.filter(
        period__organisation=organisation_id, period__month=month, state=NegativeIdle.State.OPEN
    )


def visible_negative_idle(actor: Actor) -> QuerySet[NegativeIdle]:
    """Those of the organisations that the actor may see as a whole."""
    rows = NegativeIdle.objects.filter(period__organisation__in=visible_tenants(actor))
    return rows.select_related("period__organisation", "cluster")


def negative_idle_by_id(actor: Actor, id_: UUID) -> NegativeIdle:
    """The row, for users who may close months there. Raises NotFound, NotAllowedHere."""
    found = visible_negative_idle(actor).filter(id=id_).first()
    if found is None:
        raise NotFound
    if Permission.CLOSE_PERIOD not in permissions_at(actor, found.period.organisation):
        raise NotAllowedHere(found.period.organisation, Permission.CLOSE_PERIOD)
    return found


CHARGED = """
SELECT e.cluster_id, e.flavor, e.charge_day, l.currency, e.tenant_path, e.tenant_id, sum(l.amount)
FROM billing_ledgerentry AS e JOIN billing_ledgerline AS l ON l.entry_id = e.id
JOIN billing_ledgeraccount AS a ON a.id = l.account_id AND a.kind = 'tenant_expense'
WHERE e.organisation_id = %(organisation)s AND e.charge_day >= %(start)s AND e.charge_day < %(until)s
    AND e.tenant_id IS NOT NULL AND NOT billing_is_credit(e.kind, e.reverses_id) AND (%(last)s::bigint IS NULL OR e.id <= %(last)s)
GROUP BY 1, 2, 3, 4, 5, 6
"""
CREDITED = """
SELECT e.tenant_path, e.tenant_id, l.currency, sum(l.amount)
FROM billing_ledgerentry AS e JOIN billing_ledgerline AS l ON l.entry_id = e.id
JOIN billing_ledgeraccount AS a ON a.id = l.account_id AND a.kind = 'tenant_expense'
WHERE e.organisation_id = %(organisation)s AND e.charge_day >= %(start)s AND e.charge_day < %(until)s
    AND billing_is_credit(e.kind, e.reverses_id) AND (%(last)s::bigint IS NULL OR e.id <= %(last)s)
GROUP BY 1, 2, 3
"""
