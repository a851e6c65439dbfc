"""The locking functions of this room. They use one order: the price book, a tenant's day, meters by id, conflicts of
postings, imports of providers' invoices, periods of the ledger, numbers of invoices, then holds of budgets by id, then periods of
budgets from the root down by (depth, id). Hooks of alerts are locked alone, before their deliveries.

The journal's trigger (`sql/budgets.sql`) locks holds and periods in the same order. Takers of holds lock
their tenants first; settlement locks periods of budgets before quota limits, and so do takers.
"""

from collections.abc import Collection
from datetime import date
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import Q

from tenancy.models import Tenant

from .models import (
    AlertHook,
    BudgetHold,
    BudgetPeriod,
    CommitmentDueDay,
    ConversionDay,
    LedgerPeriod,
    Meter,
    PostingConflict,
)

PRICE_BOOK_LOCK = 0x53575950  # "SWYP"
CARBON_LOCK = 0x53574342  # "SWCB"
DAY_LOCK = 0x53574459  # "SWDY": the first of two numbers, which no kind of foundation.advisory has
INVOICE_LOCK = 0x53574956  # "SWIV": likewise
PROVIDER_LOCK = 0x53575049  # "SWPI": likewise; "SWRP" is taken by sql/reconciliation.sql


def read_price_book() -> None:
    """Blocks price changes until commit; any number of readers proceed concurrently."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock_shared(%s)", [PRICE_BOOK_LOCK])


def rewrite_price_book() -> None:
    """Waits for all transactions that rate, and blocks new ones until commit, so that no price changes
    under a segment.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [PRICE_BOOK_LOCK])


def import_carbon() -> None:
    """Waits for every other import of what emissions are computed from, and blocks new ones until commit. Taken alone."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [CARBON_LOCK])


def import_provider_invoices(organisation_id: UUID) -> None:
    """Waits for every other session that imports invoices of providers of this organisation, or accepts their variance, and blocks
    new ones until commit. Taken before its periods.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", [PROVIDER_LOCK, str(organisation_id)])


def lock_meters(keys: Collection[tuple[UUID, str]]) -> list[Meter]:
    """The meters of these pods (cluster, uid), locked until commit, by id."""
    wanted = Q(pk__in=[])
    uids_by_cluster: dict[UUID, list[str]] = {}
    for cluster_id, source_uid in keys:
        uids_by_cluster.setdefault(cluster_id, []).append(source_uid)
    for cluster_id, uids in uids_by_cluster.items():
        wanted |= Q(cluster_id=cluster_id, source_uid__in=uids)
    return list(Meter.objects.filter(wanted).order_by("id").select_for_update(no_key=True))


def stop_spending_at(tenant_id: UUID) -> None:
    """Waits for every transaction that meters, or takes holds at this tenant, and blocks new ones until commit."""
    rewrite_price_book()
    Tenant.objects.select_for_update(no_key=True).get(id=tenant_id)


def lock_budget_holds(holder_ids: Collection[UUID]) -> list[UUID]:
    """The holders whose hold is pending, locked until commit."""
    return list(
        BudgetHold.objects.filter(holder_id__any_of=list(holder_ids), state=BudgetHold.State.PENDING)
        .order_by("holder_id")
        .select_for_update(no_key=True)
        .values_list("holder_id", flat=True)
    )


def lock_budget_holds_below(tenant_path: str) -> list[BudgetHold]:
    """Every pending hold of the tenant and its descendants, locked until commit."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT h.holder_id FROM billing_budgethold AS h JOIN tenancy_tenant AS t ON t.id = h.tenant_id"
            " WHERE h.state = 'pending' AND (t.path = %s OR starts_with(t.path, %s))"
            " ORDER BY h.holder_id FOR NO KEY UPDATE OF h",
            [tenant_path, f"{tenant_path}/"],
        )
        found = [row[0] for row in cursor.fetchall()]
    return list(BudgetHold.objects.filter(holder_id__any_of=found, state=BudgetHold.State.PENDING))


def lock_budget_periods(period_ids: Collection[int]) -> list[BudgetPeriod]:
    """These periods with their budgets and tenants, root first, locked until commit."""
    return list(
        BudgetPeriod.objects.select_related("budget__tenant")
        .filter(id__any_of=list(period_ids))
        .order_by("budget__tenant__depth", "id")
        .select_for_update(of=("self",), no_key=True)
    )


def claim_day(name: str) -> bool:
    """Whether this transaction alone counts the tenant's day of this name, until commit. Never waits."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s, hashtext(%s))", [DAY_LOCK, name])
        return bool(cursor.fetchone()[0])


def keep_period(organisation_id: UUID, month: date) -> tuple[UUID, str] | None:
    """The id and state of an organisation's period, which does not change until commit; None if there is none."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT id, state FROM billing_ledgerperiod WHERE organisation_id = %s AND month = %s FOR SHARE",
            [organisation_id, month],
        )
        found: tuple[UUID, str] | None = cursor.fetchone()
        return found


def lock_period(period_id: UUID) -> LedgerPeriod:
    """The period, locked until commit: postings to it have ended or wait. DoesNotExist if there is none."""
    return LedgerPeriod.objects.select_for_update(of=("self",)).select_related("organisation").get(id=period_id)


def lock_conflict(conflict_id: UUID) -> PostingConflict:
    """The conflict of postings, locked until commit. DoesNotExist if there is none."""
    return PostingConflict.objects.select_for_update(no_key=True).get(id=conflict_id)


def number_invoices(organisation_id: UUID) -> None:
    """Waits for every other session that issues a document of this organisation, and blocks new ones until commit."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", [INVOICE_LOCK, str(organisation_id)])


def claim_conversion_day(id_: int) -> ConversionDay | None:
    """The day that waits for conversion, locked until commit; None if it is done, or another session has it. Never waits."""
    return ConversionDay.objects.select_for_update(skip_locked=True, no_key=True).filter(id=id_).first()


def claim_commitment_day(id_: int) -> CommitmentDueDay | None:
    """The day whose commitments are to be split, locked until commit; None if it is done, or another session marks or has it.
    Never waits.
    """
    return CommitmentDueDay.objects.select_for_update(skip_locked=True).filter(id=id_).first()


def lock_hook(hook_id: UUID) -> AlertHook | None:
    """The hook with its tenant, locked until commit: no session makes or begins a delivery to it. None if there is none."""
    return AlertHook.objects.select_for_update(of=("self",)).select_related("tenant").filter(id=hook_id).first()


def lock_tenant_of_hooks(tenant_id: UUID) -> None:
    """Waits for every other session that makes a hook of this tenant, and blocks new ones until commit."""
    Tenant.objects.select_for_update(no_key=True).get(id=tenant_id)


def claim_hooks() -> list[UUID]:
    """The hooks that are not paused, have a confirmed address if they mail, and that no other session has, locked until commit, by id.
    Never waits.
    """
    with connection.cursor() as cursor:
        cursor.execute(FREE_HOOKS)
        return [row[0] for row in cursor.fetchall()]


def claim_deliveries(most: int, lease_seconds: float) -> list[tuple[Any, ...]]:
    """The next delivery of each of at most `most` hooks: those that waited longest, and to which no other session posts. Until the lease
    ends, the hooks are busy and the deliveries not pending now. Never waits.
    """
    with connection.cursor() as cursor:
        cursor.execute(CLAIM, {"most": most, "lease": lease_seconds})
        return list(cursor.fetchall())


FREE_HOOKS = """
SELECT id FROM billing_alerthook WHERE paused_at IS NULL AND (form <> 'mail' OR confirmed_at IS NOT NULL)
 ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
"""
CLAIM = """
WITH due AS (
    SELECT h.id AS hook_id, d.id, h.tenant_id, h.name, h.form, h.address, h.key_id, h.sealed FROM billing_alerthook AS h
     CROSS JOIN LATERAL (
        SELECT d.id FROM billing_alertdelivery AS d
         WHERE d.hook_id = h.id AND d.state = 'pending' AND d.next_at <= clock_timestamp() ORDER BY d.next_at, d.id LIMIT 1
     ) AS d
     WHERE h.paused_at IS NULL AND h.busy_until <= clock_timestamp()
     ORDER BY h.busy_until, h.id LIMIT %(most)s FOR NO KEY UPDATE OF h SKIP LOCKED
), busy AS (
    UPDATE billing_alerthook AS h SET busy_until = clock_timestamp() + make_interval(secs => %(lease)s) FROM due WHERE h.id = due.hook_id
    RETURNING h.id, h.busy_until
)
UPDATE billing_alertdelivery AS d SET attempts = d.attempts + 1, next_at = busy.busy_until
  FROM due JOIN busy ON busy.id = due.hook_id
 WHERE d.id = due.id AND d.state = 'pending' AND d.next_at <= clock_timestamp()
RETURNING d.id, d.uid, d.hook_id, d.kind, d.attempts, d.tried_since, busy.busy_until, due.tenant_id, due.name, due.form, due.address, due.key_id,
          d.facts::text, due.sealed
"""
