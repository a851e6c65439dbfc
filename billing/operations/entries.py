"""Writes entries of the ledger: each once under its key, into a period that is not closed."""

from datetime import date
from typing import Any
from uuid import UUID

from billing import locks
from billing.engine.ledger import Entry, Line
from billing.engine.months import next_month
from billing.models import LedgerAccount, LedgerEntry, LedgerLine, LedgerPeriod, PostingConflict
from billing.queries.charges import month_of
from foundation.ids import new_id
from foundation.rows import insert_rows

OWNED_BY_TENANTS = frozenset({LedgerAccount.Kind.TENANT_EXPENSE, LedgerAccount.Kind.TENANT_CONVERTED})


def write(entry: Entry) -> bool:
    """Writes an entry in the caller's transaction: into the period of its day, or the first open one after it.

    False if its key was written before: with the same content nothing happens, with another the conflict is kept for
    people to resolve, and the first entry remains.
    """
    known = LedgerEntry.objects.filter(key=entry.key).values_list("digest", flat=True).first()
    if known is None and _write(entry):
        return True
    known = known or LedgerEntry.objects.values_list("digest", flat=True).get(key=entry.key)
    if known != entry.digest:
        conflict = PostingConflict(
            id=new_id(),
            organisation_id=entry.organisation_id,
            key=entry.key,
            month=month_of(entry.charge_day),
            standing_digest=known,
            offered_digest=entry.digest,
            offered=entry.text,
        )
        PostingConflict.objects.bulk_create([conflict], ignore_conflicts=True)
    return False


def _write(entry: Entry) -> bool:
    """Whether it was written; False if another transaction posted the same key meanwhile."""
    day = entry.day
    row = LedgerEntry(
        organisation_id=entry.organisation_id,
        period_id=period_for(entry.organisation_id, entry.charge_day)[0],
        key=entry.key,
        kind=entry.kind,
        tenant_id=day.tenant_id if day else None,
        tenant_path=day.tenant_path if day else "",
        cluster_id=day.cluster_id if day else None,
        flavor=day.flavor if day else "",
        charge_day=entry.charge_day,
        reverses_id=_id_of(entry.reverses),
        converts_id=_id_of(entry.converts),
        correction_id=entry.correction,
        reason=entry.reason,
        line_count=len(entry.lines),
        digest=entry.digest,
    )
    LedgerEntry.objects.bulk_create([row], ignore_conflicts=True)
    id_, digest = LedgerEntry.objects.values_list("id", "digest").get(key=entry.key)
    if digest != entry.digest or LedgerLine.objects.filter(entry=id_).exists():
        return False
    insert_rows([_line(id_, entry.organisation_id, line) for line in entry.lines])
    return True


def _id_of(key: str) -> int | None:
    return LedgerEntry.objects.values_list("id", flat=True).get(key=key) if key else None


def _line(entry_id: int, organisation_id: UUID, line: Line) -> LedgerLine:
    row = LedgerLine(
        entry_id=entry_id,
        account_id=_account(organisation_id, line.account),
        currency=line.currency,
        amount=line.amount,
        quantity=line.quantity,
    )
    if line.priced:
        row.priced_amount, row.priced_currency = line.priced.amount, line.priced.currency
        row.rate, row.rate_day, row.rate_source = line.priced.rate, line.priced.rate_day, line.priced.source
    return row


def period_for(organisation_id: UUID, charge_day: date) -> tuple[UUID, date]:
    """The id and month of the period that takes entries of a day: its own, or the first one after it that is not closed."""
    month = month_of(charge_day)
    while True:
        LedgerPeriod.objects.bulk_create(
            [LedgerPeriod(organisation_id=organisation_id, month=month)], ignore_conflicts=True
        )
        id_, state = locks.keep_period(organisation_id, month)
        if state != LedgerPeriod.State.CLOSED:
            return id_, month
        month = next_month(month)


def _account(organisation_id: UUID, name: str) -> int:
    """The account of this name, opened if need be."""
    kind, _, owner = name.partition(":")
    tenant: Any = owner if kind in OWNED_BY_TENANTS else None
    cluster: Any = owner if kind == LedgerAccount.Kind.CLUSTER_POOL else None
    account = LedgerAccount(organisation_id=organisation_id, kind=kind, tenant_id=tenant, cluster_id=cluster)
    LedgerAccount.objects.bulk_create([account], ignore_conflicts=True)
    wanted = LedgerAccount.objects.filter(organisation_id=organisation_id, kind=kind)
    return wanted.values_list("id", flat=True).get(tenant_id=tenant, cluster_id=cluster)
