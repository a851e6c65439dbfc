"""Splits the hours of commitments between those who used them and what was unused, and posts it: a day of an organisation at a
time, by difference, so that a step may be repeated, interrupted, or run by two workers.
"""

from collections.abc import Sequence
from datetime import date
from uuid import UUID

from django.db import connection, transaction

from billing import locks
from billing.engine.commitment_entries import entries_of
from billing.engine.commitments import DaySplit, HourSplit, split_day
from billing.engine.ledger import money
from billing.engine.months import midnight
from billing.engine.rating import DAY
from billing.engine.shared_entries import missing_entries
from billing.models import CommitmentDay, CommitmentDueDay, CommitmentHour
from billing.queries.commitments import (
    commitments_in,
    is_counted,
    newest_splits,
    newest_versions,
    runs_in,
    standing_entries,
)
from billing.queries.sharing import policy_for
from foundation.rows import insert_rows
from foundation.transactions import retried
from foundation.turns import Turn, endless_turn

from .failures import done_in_turn
from .posting import post

MARK_ENDED = """
INSERT INTO billing_commitmentdueday (organisation_id, day)
SELECT DISTINCT c.organisation_id, at::date
FROM billing_commitment AS c CROSS JOIN LATERAL billing_newest_commitment(c.id) AS v
CROSS JOIN LATERAL (SELECT
    greatest(date_trunc('day', v.start AT TIME ZONE 'UTC'), date_trunc('day', v.created_at AT TIME ZONE 'UTC') - interval '1 day') AS first,
    least(v.until AT TIME ZONE 'UTC' - interval '1 hour', (clock_timestamp() AT TIME ZONE 'UTC')::date - 1) AS last) AS ended
CROSS JOIN LATERAL generate_series(date_trunc('month', ended.first), ended.last, interval '1 month') AS its_month
CROSS JOIN LATERAL generate_series(
    greatest(ended.first, its_month), least(ended.last, its_month + interval '1 month' - interval '1 day'), interval '1 day') AS at
WHERE NOT v.is_withdrawn
    AND NOT EXISTS (
        SELECT 1 FROM billing_ledgerperiod AS p
        WHERE p.organisation_id = c.organisation_id AND p.month = its_month::date AND p.state = 'closed')
    AND NOT EXISTS (SELECT 1 FROM billing_commitmentday AS d WHERE d.commitment_id = c.id AND d.day = at::date)
ORDER BY 1, 2
ON CONFLICT DO NOTHING
"""
"""The days before a version was made are marked by its trigger. A month closes only when all its days are split (trigger)."""


def split_commitments(turn: Turn | None = None) -> int:
    """Splits the days that wait for it; the number of those that are done. Another worker may have a day, and a day whose usage
    the ledger has not counted remains. A day that fails keeps no other from being split; its error is raised at the end.
    """
    with connection.cursor() as cursor:
        cursor.execute(MARK_ENDED)
    waiting = CommitmentDueDay.objects.order_by("day", "id").values_list("id", "day")
    rows = ((id_, f"the commitments of {day} in the row {id_} were not split") for id_, day in waiting)
    return done_in_turn(turn or endless_turn(), rows, split_due_day)


@retried
def split_due_day(id_: int) -> bool:
    """Whether a waiting day is split now. False if another worker has it, or the ledger has yet to count its usage."""
    with transaction.atomic():
        locks.read_price_book()
        row = locks.claim_commitment_day(id_)
        if row is None:
            return False
        organisation_id, day = row.organisation_id, row.day
        commitments = commitments_in(organisation_id, day, (midnight(day) + DAY).date())
        if not is_counted(organisation_id, day, commitments):
            return False
        runs = runs_in(organisation_id, day, (midnight(day) + DAY).date(), commitments) if commitments else {}
        splits = split_day(day, commitments, runs.get(day, []))
        wanted = entries_of(organisation_id, splits, policy_for(organisation_id, day.replace(day=1)).idle)
        for entry in missing_entries(wanted, *standing_entries(organisation_id, day)):
            post(entry)
        _record(organisation_id, day, splits)
        row.delete()
        return True


def _record(organisation_id: UUID, day: date, splits: Sequence[DaySplit]) -> None:
    """Writes how the day is split, where that differs from what is recorded. Hours come last: their trigger compares all."""
    split = {one.commitment.id: one for one in splits}
    known = {row.commitment_id: row for row in newest_splits(organisation_id, day, (midnight(day) + DAY).date())}
    versions = {row.commitment_id: row for row in newest_versions(organisation_id)}
    hours: list[CommitmentHour] = []
    for id_ in sorted({*split, *known}):
        before, one, version = known.get(id_), split.get(id_), versions[id_]
        fresh = _hours(one.hours if one else ())
        if before is not None and before.version_id == version.id and _same(before, fresh):
            continue
        row = CommitmentDay.objects.create(
            commitment_id=id_,
            version=version,
            day=day,
            revision=before.revision + 1 if before else 1,
            quantity=sum(each.quantity for each in fresh),
            used_quantity=sum(each.used_quantity for each in fresh),
            amortised=money(one.amortised if one else 0),
            used=money(one.amortised - one.unused if one else 0),
            unused=money(one.unused if one else 0),
        )
        for each in fresh:
            each.day = row
        hours += fresh
    insert_rows(hours)


def _same(before: CommitmentDay, fresh: Sequence[CommitmentHour]) -> bool:
    kept = before.hours.order_by("hour").values_list("hour", "quantity", "used_quantity", "amortised", "used")
    return list(kept) == [(one.hour, one.quantity, one.used_quantity, one.amortised, one.used) for one in fresh]


def _hours(splits: Sequence[HourSplit]) -> list[CommitmentHour]:
    return [
        CommitmentHour(
            hour=one.hour, quantity=one.quantity, used_quantity=one.used_quantity, amortised=money(one.amortised),
            used=money(one.used), unused=money(one.unused),
        )
        for one in splits
    ]  # fmt: skip
