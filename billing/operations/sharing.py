"""Sets who bears idle capacity and the platform, records what pools cost when a month closes, and posts the shares."""

from collections import Counter
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import Decimal
from uuid import UUID

from django.db import transaction
from django.db.models.functions import Now

from billing.engine.idle import IdleSplit, PlatformSplit
from billing.engine.ledger import ShareOf, money, units
from billing.engine.months import next_month
from billing.engine.shared_entries import SharedMonth, missing_entries, name_of, wanted_entries
from billing.models import LedgerEntry, LedgerPeriod, NegativeIdle, PoolDay, SharingPolicy
from billing.queries.charges import entry_of
from billing.queries.sharing import (
    MonthOfPools,
    Policy,
    PoolBalance,
    negative_idle_by_id,
    organisation_at,
    policy_for,
    posted_month,
)
from billing.queries.sharing_report import SharingReport, sharing_report
from foundation.problems import Conflict, Invalid
from foundation.rows import insert_rows
from tenancy.models import Tenant
from tenancy.operations import record_audit
from tenancy.queries import Actor

from .dated_policies import in_open_months
from .posting import post

State = NegativeIdle.State
MOST_WEIGHT, MOST_WEIGHTS = 10**9, 1000
"""The largest weight of a tenant, and the most tenants that have one."""


@dataclass(frozen=True, slots=True)
class NewPolicy:
    """A policy from a month on. `platform_weights` by the tenant's path."""

    organisation: str
    effective_from: date
    idle: str
    platform: str = SharingPolicy.Platform.PROPORTIONAL
    platform_cost: Decimal = Decimal(0)
    platform_currency: str = ""
    platform_weights: dict[str, int] = field(default_factory=dict)


def set_policy(actor: Actor, wanted: NewPolicy) -> SharingPolicy:
    """The policy. Raises NotFound, NotAllowedHere, Invalid, Conflict `month_is_closed`."""
    organisation = organisation_at(actor, wanted.organisation, may_close=True)
    weights = _weights(organisation, wanted)
    with in_open_months(), transaction.atomic():
        policy = SharingPolicy.objects.create(
            organisation=organisation,
            effective_from=wanted.effective_from,
            idle=wanted.idle,
            platform=wanted.platform,
            platform_cost=wanted.platform_cost,
            platform_currency=wanted.platform_currency if wanted.platform_cost else "",
            platform_weights=weights,
            made_by_id=actor.user_id,
            made_by_name=actor.name,
        )
        record_audit(
            actor, "sharing_policy.set", object_kind="sharing_policy", object_id=str(policy.id), tenant_id=organisation.id,
            detail={
                "from": f"{wanted.effective_from:%Y-%m}", "idle": wanted.idle, "platform": wanted.platform,
                "platform_cost": f"{wanted.platform_cost:f} {wanted.platform_currency}".strip(),
            },
        )  # fmt: skip
    policy.refresh_from_db()
    return policy


def preview_policy(actor: Actor, wanted: NewPolicy, month: date) -> tuple[SharingReport, SharingReport]:
    """The report of a month as it is, and as it would be by the policy, from everything recorded and running. Writes nothing.

    Raises what setting the policy would raise but `month_is_closed`, and Invalid `in_the_future`.
    """
    organisation = organisation_at(actor, wanted.organisation, may_close=True)
    weights = _weights(organisation, wanted)
    paths = dict(Tenant.objects.filter(id__in=weights).values_list("id", "path"))
    policy = Policy(
        idle=IdleSplit(wanted.idle),
        platform=PlatformSplit(wanted.platform),
        platform_cost=units(wanted.platform_cost),
        platform_currency=wanted.platform_currency if wanted.platform_cost else "",
        platform_weights={(path, str(id_)): weights[str(id_)] for id_, path in paths.items()},
    )
    before = policy_for(organisation.id, month)
    return (
        sharing_report(actor, wanted.organisation, month, before),
        sharing_report(actor, wanted.organisation, month, policy),
    )


def _weights(organisation: Tenant, wanted: NewPolicy) -> dict[str, int]:
    is_fixed = wanted.platform == SharingPolicy.Platform.FIXED
    if is_fixed != bool(wanted.platform_weights):
        raise Invalid.field(
            "platform_weights",
            "required" if is_fixed else "not_for_this_split",
            "give them exactly if the platform is fixed",
        )
    below = Tenant.objects.filter(path__in=wanted.platform_weights)
    known = {
        path: id_ for id_, path in below.values_list("id", "path") if f"{path}/".startswith(f"{organisation.path}/")
    }
    if unknown := sorted(set(wanted.platform_weights) - set(known)):
        raise Invalid.field("platform_weights", "unknown_tenant", f"there is no tenant {unknown[0][:100]} here")
    return {str(known[path]): weight for path, weight in wanted.platform_weights.items()}


def share_month(period: LedgerPeriod) -> bool:
    """Records the pools of a closing month and posts who bears what, in the caller's transaction, which has locked the period.

    False, with a row for people, if a pool has negative idle that no person has accepted. Without a policy it does nothing but
    take earlier shares back.
    """
    month = _month_of(period)
    if month is None:
        _post(period, SharedMonth(period.organisation_id, _last_day(period), "no policy"), MonthOfPools.nothing())
        return True
    if not _are_accepted(period, month):
        return False
    record_pools(period, month)
    reason = f"idle {month.policy.idle}, platform {month.policy.platform}: policy {month.policy.number}"
    _post(period, SharedMonth(period.organisation_id, _last_day(period), reason), month)
    return True


def _month_of(period: LedgerPeriod) -> MonthOfPools | None:
    if not policy_for(period.organisation_id, period.month).number:
        return None
    return posted_month(period.organisation, period.month)


def record_pools(period: LedgerPeriod, month: MonthOfPools) -> None:
    """Writes the balances of the close that is about to happen."""
    insert_rows([_row(period, one, month) for one in month.days])


def _row(period: LedgerPeriod, one: PoolBalance, month: MonthOfPools) -> PoolDay:
    return PoolDay(
        period=period,
        revision=period.revision + 1,
        cluster_id=one.key.cluster_id,
        flavor=one.key.flavor,
        day=one.key.day,
        currency=one.key.currency,
        cost=money(one.balance.cost),
        charged=money(one.balance.charged),
        overhead=money(one.balance.overhead),
        idle=money(one.balance.idle),
        shared=money(sum(one.shared.parts.values())),
        assumed=money(one.balance.assumed),
        last_entry=month.last_entry,
        last_correction=month.last_correction,
    )


def _are_accepted(period: LedgerPeriod, month: MonthOfPools) -> bool:
    """Whether people accepted every negative idle of the month. Rows of numbers that no longer apply are superseded."""
    negative = {
        (*one.key, money(one.balance.cost), money(one.balance.charged)) for one in month.days if one.balance.is_negative
    }
    known = {
        (row.cluster_id, row.flavor, row.day, row.currency, row.cost, row.charged): row
        for row in NegativeIdle.objects.filter(period=period)
    }
    for numbers, row in known.items():
        if row.state == State.OPEN and numbers not in negative:
            NegativeIdle.objects.filter(id=row.id).update(state=State.SUPERSEDED, decided_at=Now())
        elif row.state == State.SUPERSEDED and numbers in negative:
            NegativeIdle.objects.filter(id=row.id).update(state=State.OPEN, decided_at=None)
    for cluster_id, flavor, day, currency, cost, charged in sorted(negative - known.keys()):
        NegativeIdle.objects.create(
            period=period, cluster_id=cluster_id, flavor=flavor, day=day, currency=currency, cost=cost, charged=charged
        )
    return all(numbers in known and known[numbers].state == State.ACCEPTED for numbers in negative)


def accept_negative_idle(actor: Actor, id_: UUID, note: str) -> NegativeIdle:
    """The row, accepted: the month closes with these numbers, and the difference stays central. Raises NotFound,
    NotAllowedHere, Conflict `negative_idle_decided`.
    """
    with transaction.atomic():
        row = negative_idle_by_id(actor, id_)
        changed = NegativeIdle.objects.filter(id=id_, state=State.OPEN).update(
            state=State.ACCEPTED, note=note, decided_by_id=actor.user_id, decided_by_name=actor.name, decided_at=Now()
        )
        if not changed:
            raise Conflict("It was already decided, or its numbers no longer apply.", code="negative_idle_decided")
        record_audit(
            actor, "negative_idle.accept", object_kind="negative_idle", object_id=id_, tenant_id=row.period.organisation_id,
            detail={"flavor": row.flavor, "day": f"{row.day}", "note": note},
        )  # fmt: skip
    row.refresh_from_db()
    return row


def _post(period: LedgerPeriod, of: SharedMonth, month: MonthOfPools) -> None:
    """Posts by difference: the same month posted twice changes nothing."""
    pools = [(one.key.cluster_id, one.key.flavor, one.key.currency, one.balance, one.shared) for one in month.days]
    wanted = wanted_entries(of, pools, month.platform, month.policy.platform_currency)
    rows = LedgerEntry.objects.filter(period=period, kind__in=["idle", "platform"])
    rows = rows.select_related("reverses", "reversed_by").prefetch_related("lines__account").order_by("id")
    standing, posted = [], Counter[str]()
    for row in rows:
        entry = entry_of(row, ShareOf(row.cluster_id, row.flavor, row.tenant_path))
        posted[name_of(entry)] += 1
        if not hasattr(row, "reversed_by"):
            standing.append(entry)
    for entry in missing_entries(wanted, standing, posted):
        post(entry)


def _last_day(period: LedgerPeriod) -> date:
    return next_month(period.month) - timedelta(days=1)
