"""Checks the splits of commitments by splitting each day again from the segments, and what tenants bear in the ledger."""

from collections import Counter
from collections.abc import Iterator
from datetime import date
from uuid import UUID

from django.db.models import Sum

from billing.engine.commitment_entries import COVERED_SHARE, USED_SHARE
from billing.engine.commitments import Commitment as Terms
from billing.engine.commitments import Run, split_day
from billing.engine.ledger import units
from billing.engine.months import next_month
from billing.models import Commitment, CommitmentDay, CommitmentDueDay, LedgerLine

from .commitments import commitments_in, is_counted, newest_splits, runs_in


def discrepancies() -> list[str]:
    """Errors, as sentences. It reads all segments of covered flavors, so only a full check runs it. Days that wait to be split
    are left out.
    """
    found: list[str] = []
    for organisation_id in (
        Commitment.objects.order_by("organisation").values_list("organisation", flat=True).distinct()
    ):
        days = CommitmentDay.objects.filter(commitment__organisation=organisation_id).dates("day", "month")
        for month in days:
            found += _month(organisation_id, month)
    return found


def _month(organisation_id: UUID, month: date) -> Iterator[str]:
    commitments = commitments_in(organisation_id, month, next_month(month))
    runs = runs_in(organisation_id, month, next_month(month), commitments) if commitments else {}
    due = set(CommitmentDueDay.objects.filter(organisation=organisation_id).values_list("day", flat=True))
    recorded = {row.day: row for row in newest_splits(organisation_id, month, next_month(month))}
    for day in sorted(recorded.keys() - due):
        if is_counted(organisation_id, day, commitments):
            yield from _day(organisation_id, day, commitments, runs.get(day, []))


def _day(organisation_id: UUID, day: date, commitments: list[Terms], runs: list[Run]) -> Iterator[str]:
    wanted: Counter[tuple[str, str, str, str]] = Counter()
    quantities: Counter[UUID] = Counter()
    for split in split_day(day, commitments, runs):
        quantities[split.commitment.id] += sum(split.quantities.values())
        for (cluster, path, _), amount in split.used.items():
            wanted[USED_SHARE, cluster, path, split.commitment.currency] += amount
        for (cluster, path, _), amounts in split.covered.items():
            for currency, amount in amounts.items():
                wanted[COVERED_SHARE, cluster, path, currency] -= amount
    posted = _posted(organisation_id, day)
    for key in sorted({*wanted, *posted}):
        if wanted[key] != posted[key]:
            what, cluster, path, currency = key
            yield (
                f"on {day}, the ledger has {posted[key]}e-12 {currency} of {path} on cluster {cluster} as {what}, but its usage says"
                f" {wanted[key]}e-12"
            )
    for row in newest_splits(organisation_id, day, _after(day)):
        if row.used_quantity != quantities[row.commitment_id]:
            used = quantities[row.commitment_id]
            yield f"on {day}, {row.used_quantity:f} of the commitment {row.commitment.name} was used, but its usage says {used}"


def _posted(organisation_id: UUID, day: date) -> Counter[tuple[str, str, str, str]]:
    lines = LedgerLine.objects.filter(
        entry__organisation=organisation_id, entry__charge_day=day, entry__flavor__in=[USED_SHARE, COVERED_SHARE],
        account__kind="tenant_expense",
    )  # fmt: skip
    sums = lines.values_list("entry__flavor", "entry__cluster_id", "entry__tenant_path", "currency")
    return Counter({
        (flavor, str(cluster_id), path, currency): units(amount)
        for flavor, cluster_id, path, currency, amount in sums.annotate(sum=Sum("amount")).order_by()
    })  # fmt: skip


def _after(day: date) -> date:
    return date.fromordinal(day.toordinal() + 1)
