"""Posts the cost of ended days to the ledger: one transaction for each tenant's day, so that a kill loses nothing.

Any number of workers post side by side, any number of times: an entry has a natural key, and the day's sums are locked
while they are counted.
"""

from typing import Any
from uuid import UUID

from django.db import transaction

from billing import locks
from billing.engine.credits import credits_due, missing_credits
from billing.engine.ledger import DayKey, Entry, postings
from billing.engine.months import next_month
from billing.models import LedgerAccount, LedgerEntry, LedgerLine, LedgerPeriod, LedgerStep, PostingConflict
from billing.queries.charges import day_charge, days_to_post, month_of
from foundation.ids import new_id
from foundation.rows import insert_rows
from foundation.transactions import retried
from foundation.turns import Turn, endless_turn

from .failures import FirstFailure

MOST_DAYS = 200


def post_days(turn: Turn | None = None, *, organisation_id: UUID | None = None) -> int:
    """Posts the days that `days_to_post` names, of one organisation if given; the number of days that it counted. Another
    worker may have a day. A day that fails keeps no other from being posted; its error is raised at the end.
    """
    turn = turn or endless_turn()
    counted, last, failure = 0, None, FirstFailure()
    while keys := days_to_post(MOST_DAYS, last, organisation_id=organisation_id):
        for key in keys:
            if turn.is_over:
                turn.has_more = True
                return counted
            turn.beat()
            with failure.kept(f"the day {key.name} was not posted"):
                counted += post_day(key)
        last = keys[-1]
    failure.raise_it()
    return counted


@retried
def post_day(key: DayKey) -> bool:
    """Counts a tenant's day and posts what is missing. False if another worker counts it now."""
    with transaction.atomic():
        locks.read_price_book()
        if not locks.claim_day(key.name):
            return False
        LedgerStep.objects.create(
            tenant_id=key.tenant_id,
            tenant_path=key.tenant_path,
            cluster_id=key.cluster_id,
            flavor=key.flavor,
            day=key.day,
        )
        charge = day_charge(key)
        for entry in postings(charge.key, charge.segments, charge.books, charge.standing):
            post(entry)
        due = credits_due(charge.key, charge.segments, charge.books, charge.losses, charge.policies)
        for entry in missing_credits(due, charge.credits, charge.reversed_credits):
            post(entry)
    return True


def post(entry: Entry) -> bool:
    """Posts an entry in the caller's transaction: into the period of its day, or the first open one after it.

    False if its key was posted before: with the same content nothing happens, with another the conflict is kept for
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
        period_id=_period_for(entry),
        key=entry.key,
        kind=entry.kind,
        tenant_id=day.tenant_id if day else None,
        tenant_path=day.tenant_path if day else "",
        cluster_id=day.cluster_id if day else None,
        flavor=day.flavor if day else "",
        charge_day=entry.charge_day,
        reverses_id=LedgerEntry.objects.values_list("id", flat=True).get(key=entry.reverses)
        if entry.reverses
        else None,
        correction_id=entry.correction,
        reason=entry.reason,
        line_count=len(entry.lines),
        digest=entry.digest,
    )
    LedgerEntry.objects.bulk_create([row], ignore_conflicts=True)
    id_, digest = LedgerEntry.objects.values_list("id", "digest").get(key=entry.key)
    if digest != entry.digest or LedgerLine.objects.filter(entry=id_).exists():
        return False
    insert_rows(
        [
            LedgerLine(
                entry_id=id_,
                account_id=_account(entry.organisation_id, line.account),
                currency=line.currency,
                amount=line.amount,
                quantity=line.quantity,
            )
            for line in entry.lines
        ]
    )
    return True


def _period_for(entry: Entry) -> UUID:
    month = month_of(entry.charge_day)
    while True:
        LedgerPeriod.objects.bulk_create(
            [LedgerPeriod(organisation_id=entry.organisation_id, month=month)], ignore_conflicts=True
        )
        id_, state = locks.keep_period(entry.organisation_id, month)
        if state != LedgerPeriod.State.CLOSED:
            return id_
        month = next_month(month)


def _account(organisation_id: UUID, name: str) -> int:
    """The account of this name, opened if need be."""
    kind, _, owner = name.partition(":")
    tenant: Any = owner if kind == LedgerAccount.Kind.TENANT_EXPENSE else None
    cluster: Any = owner if kind == LedgerAccount.Kind.CLUSTER_POOL else None
    account = LedgerAccount(organisation_id=organisation_id, kind=kind, tenant_id=tenant, cluster_id=cluster)
    LedgerAccount.objects.bulk_create([account], ignore_conflicts=True)
    wanted = LedgerAccount.objects.filter(organisation_id=organisation_id, kind=kind)
    return wanted.values_list("id", flat=True).get(tenant_id=tenant, cluster_id=cluster)
