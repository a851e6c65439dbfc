"""What the ledger still has to post, and everything that decides on it."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from uuid import UUID

from django.db import connection

from billing.engine.conversion import CONVERSION
from billing.engine.corrected import Correction, correction_id
from billing.engine.credits import CREDIT, CreditPolicy, Loss
from billing.engine.ledger import DayKey, Entry, Line, PriceBook, Priced, RatedSegment, ShareOf, Standing
from billing.engine.rating import Load, PriceSpan
from billing.models import CreditPolicy as CreditPolicyRow
from billing.models import LedgerEntry, LedgerLine, LostWork, PriceCorrection

from .prices import RateKey, price_spans

A_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class DayCharge:
    """The arguments of `billing.engine.ledger.postings` and of `billing.engine.credits`: `standing` are the entries of the day
    that are no credits; `credits` those that are, with the keys of the reversed ones.
    """

    key: DayKey
    segments: tuple[RatedSegment, ...]
    books: Mapping[tuple[str, str], PriceBook]
    standing: tuple[Standing, ...]
    losses: Mapping[UUID, Loss]
    policies: tuple[CreditPolicy, ...]
    credits: tuple[Entry, ...]
    reversed_credits: frozenset[str]
    replaced: int


def days_to_post(most: int, after: DayKey | None = None, *, organisation_id: UUID | None = None) -> list[DayKey]:
    """Days that have ended, are fully metered as far as known, and have something that the ledger did not count yet.

    In one order, beginning after `after`.
    """
    values: dict[str, Any] = {
        "organisation": organisation_id, "most": most, "day": after and after.day, "tenant": after and after.tenant_id,
        "cluster": after and after.cluster_id, "flavor": after and after.flavor, "path": after and after.tenant_path,
    }  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute(DUE, values)
        return [DayKey(*row) for row in cursor.fetchall()]


def day_charge(key: DayKey) -> DayCharge:
    """Everything about a tenant's day, as this transaction sees it."""
    start = datetime.combine(key.day, time(), UTC)
    values: dict[str, Any] = {
        "tenant": key.tenant_id, "cluster": key.cluster_id, "flavor": key.flavor, "path": key.tenant_path, "start": start,
        "until": start + A_DAY,
    }  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute(SEGMENTS, values)
        segments = tuple(_segment(*row) for row in cursor.fetchall())
        cursor.execute(REPLACED, values)
        replaced = cursor.fetchone()[0]
    books = _books(
        key.cluster_id, start, start + A_DAY, {s.flavor for s in segments} | {s.cpu_flavor for s in segments}
    )
    policies = credit_policies(key.organisation_id, key.day)
    losses = losses_of({segment.run_id for segment in segments if segment.run_id}) if policies else {}
    posted = _posted(key)
    undone = frozenset(entry.reverses for entry, _ in posted if entry.reverses)
    return DayCharge(
        key, segments, books,
        tuple(Standing(entry, not entry.reverses and entry.key not in undone) for entry, is_credit in posted if not is_credit),
        losses, policies,
        tuple(entry for entry, is_credit in posted if is_credit and not entry.reverses),
        undone, replaced,
    )  # fmt: skip


def corrections_of(
    cluster_ids: Collection[UUID], start: datetime, until: datetime
) -> Mapping[RateKey, tuple[Correction, ...]]:
    """The corrections of the rates of these clusters in [start, until)."""
    found: dict[RateKey, tuple[Correction, ...]] = defaultdict(tuple)
    rows = PriceCorrection.objects.filter(rate__cluster__in=cluster_ids, span__overlap=(start, until))
    for row in rows.select_related("rate").order_by("id"):
        span = PriceSpan(
            correction_id(row.id), row.unit_price, row.currency, row.span.lower, row.span.upper, row.cpu_price,
            row.memory_price,
        )  # fmt: skip
        found[row.rate.cluster_id, row.rate.flavor, row.rate.capacity_type] += (Correction(row.id, span),)
    return found


def _posted(key: DayKey) -> list[tuple[Entry, bool]]:
    """The posted entries of a tenant's day without conversions, in the order of posting, and whether each is of a credit."""
    rows = LedgerEntry.objects.filter(
        tenant=key.tenant_id, charge_day=key.day, cluster=key.cluster_id, flavor=key.flavor, tenant_path=key.tenant_path
    )
    rows = rows.exclude(kind=CONVERSION).exclude(reverses__kind=CONVERSION)
    rows = rows.select_related("reverses").prefetch_related("lines__account").order_by("id")
    return [(entry_of(row, key), CREDIT in {row.kind, row.reverses.kind if row.reverses else ""}) for row in rows]


def credit_policies(organisation_id: UUID, day: date) -> tuple[CreditPolicy, ...]:
    """The policies of an organisation that have begun on a day."""
    rows = CreditPolicyRow.objects.filter(organisation=organisation_id, effective_from__lte=day).order_by("id")
    return tuple(CreditPolicy(row.id, row.effective_from, frozenset(row.causes)) for row in rows)


def losses_of(run_ids: Collection[UUID]) -> Mapping[UUID, Loss]:
    """What infrastructure lost of these runs, as it is known now."""
    rows = LostWork.objects.filter(run_id__in=list(run_ids)).order_by("run_id", "-id").distinct("run_id")
    return {row.run_id: Loss(row.cause, row.lost_from) for row in rows if row.lost_from is not None}


def entry_of(row: LedgerEntry, key: DayKey | ShareOf | None) -> Entry:
    """A posted entry as a value."""
    return Entry(
        row.key, row.kind, row.organisation_id, row.charge_day, tuple(_line(each) for each in row.lines.all()), key,
        row.reverses.key if row.reverses else "", row.correction_id, row.reason,
        row.converts.key if row.converts else "",
    )  # fmt: skip


def _line(row: LedgerLine) -> Line:
    account = row.account
    name = ":".join(str(part) for part in (account.kind, account.tenant_id, account.cluster_id) if part)
    priced = None
    if row.priced_amount is not None and row.rate is not None and row.rate_day is not None:
        priced = Priced(row.priced_amount, row.priced_currency, row.rate, row.rate_day, row.rate_source)
    return Line(name, row.currency, row.amount, row.quantity, priced)


def _books(
    cluster_id: UUID, start: datetime, until: datetime, flavors: set[str]
) -> Mapping[tuple[str, str], PriceBook]:
    prices = price_spans({cluster_id}, start, until)
    corrections = corrections_of({cluster_id}, start, until)
    return {
        (flavor, capacity): PriceBook(tuple(prices.get(key, ())), corrections.get(key, ()))
        for key in {*prices, *corrections}
        for _, flavor, capacity in [key]
        if flavor in flavors
    }


def _segment(start: datetime, until: datetime, cost: Any, currency: str, *meter: Any) -> RatedSegment:
    unit, gpu_units, cpu, memory, since, capacity_type, flavor, cpu_flavor, run_id = meter
    load = Load(unit, gpu_units, cpu, since, memory)
    return RatedSegment(load, capacity_type, flavor, cpu_flavor, start, until, cost, currency, run_id)


def month_of(day: date) -> date:
    """The first day of its month."""
    return day.replace(day=1)


DUE = """
SELECT DISTINCT d.organisation_id, d.tenant_id, d.tenant_path, d.cluster_id, d.flavor, d.day
FROM billing_tenantday AS d
WHERE d.is_due AND (d.day + 1)::timestamp AT TIME ZONE 'UTC' <= clock_timestamp()
    AND (%(organisation)s::uuid IS NULL OR d.organisation_id = %(organisation)s)
    AND (%(day)s::date IS NULL OR (d.day, d.tenant_id, d.cluster_id, d.flavor, d.tenant_path)
        > (%(day)s, %(tenant)s::uuid, %(cluster)s::uuid, %(flavor)s::text, %(path)s::text))
    AND NOT EXISTS (
        SELECT 1 FROM billing_meter AS m
        WHERE m.tenant_id = d.tenant_id AND m.cluster_id = d.cluster_id AND m.flavor = d.flavor AND NOT m.is_closed
            AND m.metered_from < (d.day + 1)::timestamp AT TIME ZONE 'UTC'
            AND m.metered_until < (d.day + 1)::timestamp AT TIME ZONE 'UTC')
ORDER BY d.day, d.tenant_id, d.cluster_id, d.flavor, d.tenant_path LIMIT %(most)s
"""
SEGMENTS = """
SELECT lower(s.period), upper(s.period), s.cost, s.currency, m.unit, m.gpu_units, m.cpu_millicores, m.memory_mib,
    m.metered_from, m.capacity_type, m.flavor, m.cpu_flavor, m.run_id
FROM billing_meter AS m JOIN billing_usagesegment AS s
    ON s.meter_id = m.id AND lower(s.period) >= %(start)s AND lower(s.period) < %(until)s
WHERE m.tenant_id = %(tenant)s AND m.cluster_id = %(cluster)s AND m.flavor = %(flavor)s AND m.tenant_path = %(path)s
    AND m.metered_from < %(until)s AND m.metered_until > %(start)s
ORDER BY lower(s.period), s.id
"""
REPLACED = """
SELECT count(*) FROM billing_replacedsegment AS s JOIN billing_meter AS m ON m.id = s.meter_id
WHERE m.tenant_id = %(tenant)s AND m.cluster_id = %(cluster)s AND m.flavor = %(flavor)s AND m.tenant_path = %(path)s
    AND lower(s.period) >= %(start)s AND lower(s.period) < %(until)s
"""
