"""Writes entries of the ledger: each once under its key, into a period that is not closed."""

from collections.abc import Collection, Mapping
from datetime import date
from typing import Any
from uuid import UUID

from django.db import connection

from billing import locks
from billing.engine.ledger import Entry, Line
from billing.engine.months import next_month
from billing.models import LedgerAccount, LedgerEntry, LedgerLine, LedgerPeriod, PostingConflict
from billing.queries.charges import month_of
from foundation.ids import new_id
from foundation.rows import insert_missing, insert_rows

OWNED_BY_TENANTS = frozenset({LedgerAccount.Kind.TENANT_EXPENSE, LedgerAccount.Kind.TENANT_CONVERTED})
KNOWN_ACCOUNTS = """
SELECT concat_ws(':', kind, tenant_id, cluster_id), id FROM billing_ledgeraccount
WHERE organisation_id = %(organisation)s AND kind = ANY(%(kinds)s)
  AND (tenant_id IS NULL OR tenant_id = ANY(%(owners)s::uuid[])) AND (cluster_id IS NULL OR cluster_id = ANY(%(owners)s::uuid[]))
"""


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
    id_ = insert_missing(row)
    if id_ is None:
        return False
    accounts = _accounts(entry.organisation_id, {line.account for line in entry.lines})
    insert_rows([_line(id_, accounts[line.account], line) for line in entry.lines])
    return True


def _id_of(key: str) -> int | None:
    return LedgerEntry.objects.values_list("id", flat=True).get(key=key) if key else None


def _line(entry_id: int, account_id: int, line: Line) -> LedgerLine:
    row = LedgerLine(
        entry_id=entry_id,
        account_id=account_id,
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
        id_, state = locks.keep_period(organisation_id, month) or _opened(organisation_id, month)
        if state != LedgerPeriod.State.CLOSED:
            return id_, month
        month = next_month(month)


def _opened(organisation_id: UUID, month: date) -> tuple[UUID, str]:
    """The id and state of a period that did not exist a moment ago."""
    insert_missing(LedgerPeriod(organisation_id=organisation_id, month=month))
    found = locks.keep_period(organisation_id, month)
    assert found is not None, "periods are never deleted"
    return found


def _accounts(organisation_id: UUID, names: Collection[str]) -> Mapping[str, int]:
    """The ids of the accounts with these names, opened if need be: in one order, so that two transactions never wait for each
    other's.
    """
    found = _known_accounts(organisation_id, names)
    missing = sorted(set(names).difference(found))
    for name in missing:
        insert_missing(_account(organisation_id, name))
    return {**found, **_known_accounts(organisation_id, missing)} if missing else found


def _known_accounts(organisation_id: UUID, names: Collection[str]) -> dict[str, int]:
    parts = [name.partition(":") for name in names]
    values: dict[str, Any] = {
        "organisation": organisation_id,
        "kinds": sorted({kind for kind, _, _ in parts}),
        "owners": sorted({owner for _, _, owner in parts if owner}),
    }
    with connection.cursor() as cursor:
        cursor.execute(KNOWN_ACCOUNTS, values)
        return {name: id_ for name, id_ in cursor.fetchall() if name in names}


def _account(organisation_id: UUID, name: str) -> LedgerAccount:
    kind, _, owner = name.partition(":")
    tenant: Any = owner if kind in OWNED_BY_TENANTS else None
    cluster: Any = owner if kind == LedgerAccount.Kind.CLUSTER_POOL else None
    return LedgerAccount(organisation_id=organisation_id, kind=kind, tenant_id=tenant, cluster_id=cluster)
