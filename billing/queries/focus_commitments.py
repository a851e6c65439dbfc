"""What FOCUS has of commitments: payments, what was unused, and the contracts. For readers who see the whole organisation."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, date, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.db import connection

from billing.engine.commitment_entries import COVERED_SHARE, PURCHASE_SHARE, UNUSED_SHARE, USED_SHARE
from billing.engine.commitments import HOUR, QUANTITY_AN_HOUR, payment_times
from billing.engine.focus import Posted
from billing.engine.focus_commitments import PLAN, Applied, Contract, Part
from billing.engine.ledger import units
from billing.engine.months import midnight, next_month
from billing.models import CommitmentVersion
from clusters.models import Cluster, Flavor

from .commitments import newest_versions

if TYPE_CHECKING:
    from .focus_ledger import Account

PARTS: Mapping[str, Part] = {
    USED_SHARE: "used", COVERED_SHARE: "covered", UNUSED_SHARE: "unused", PURCHASE_SHARE: "purchase",
}  # fmt: skip
WORDS: Mapping[Part, str] = {
    "used": "Used part of", "covered": "Price of the usage that was covered by", "unused": "Unused part of",
    "purchase": "Payment for",
}  # fmt: skip


class Commitments:
    """The commitments that the entries of an organisation name, read when the first one is."""

    def __init__(self, organisation_id: UUID) -> None:
        self._organisation_id = organisation_id
        self._rows: dict[tuple[str, int], CommitmentVersion] | None = None
        self._cores: set[str] = set()

    def applied(
        self, flavor: str, key: str, reason: str, quantity: int | None, amount: Decimal
    ) -> tuple[Applied, str] | None:
        """Which part of which commitment an entry is of, and its description; None if it is of none."""
        part = PARTS.get(flavor)
        if part is None:
            return None
        row = self._row(key.removeprefix("reversal/").split("/")[1], int(reason.rpartition(" ")[2]))
        is_plan, is_recurring = row.kind == PLAN, row.recurring > 0
        if is_plan:
            quantity, is_recurring = None if part == "covered" else units(amount), row.upfront < row.total
        if part == "purchase":
            quantity = _bought(row, key)
        name, unit = row.commitment.name, row.currency if is_plan else self.unit_of(row.flavor)
        found = Applied(part, str(row.commitment_id), name, row.kind, unit, quantity, is_recurring)
        return found, f"{WORDS[part]} {name}"

    def _row(self, id_: str, number: int) -> CommitmentVersion:
        if self._rows is None:
            rows = CommitmentVersion.objects.filter(commitment__organisation=self._organisation_id)
            self._rows = {(str(row.commitment_id), row.number): row for row in rows.select_related("commitment")}
            self._cores = core_flavors(self._rows.values())
        return self._rows[id_, number]

    def unit_of(self, flavor: str) -> str:
        """What a unit of a flavor is counted in."""
        return "Core-Hours" if flavor in self._cores else "GPU-Hours"


def _bought(row: CommitmentVersion, key: str) -> int:
    """The quantity that a payment is for: until the next payment, or of the whole term if there is only one; less than 0 if it
    was reversed. Of a savings plan, what is spent in these hours.
    """
    day = date.fromisoformat(key.removeprefix("reversal/").split("/")[2])
    is_recurring = row.upfront < row.total if row.kind == PLAN else row.recurring
    times = [
        *(payment_times(row.start.astimezone(UTC), row.until.astimezone(UTC)) if is_recurring else [row.start]),
        row.until,
    ]
    number = next(index for index, at in enumerate(times) if at.astimezone(UTC).date() == day)
    an_hour = units(row.hourly) if row.kind == PLAN else row.units * QUANTITY_AN_HOUR
    quantity = an_hour * int((times[number + 1] - times[number]) // HOUR)
    return -quantity if key.startswith("reversal/") else quantity


def _unit_of(row: CommitmentVersion, cores: set[str]) -> str:
    return row.currency if row.kind == PLAN else "Core-Hours" if row.flavor in cores else "GPU-Hours"


def core_flavors(rows: Collection[CommitmentVersion]) -> set[str]:
    """Their flavors that are sold by the core. Other clusters may have flavors of the same names."""
    clusters = {id_ for row in rows for id_ in row.clusters}
    own = Flavor.objects.filter(cluster__in=clusters, name__in={row.flavor for row in rows}, gpu_model="")
    return set(own.values_list("name", flat=True))


def payments_and_unused(account: "Account", commitments: Commitments) -> Iterator[Posted]:
    """The entries of the period that no tenant bears."""
    if account.period is None or not account.is_whole:
        return
    with connection.cursor() as cursor:
        cursor.execute(ENTRIES, {"period": account.period.id})
        rows: Sequence[tuple[Any, ...]] = cursor.fetchall()
    for id_, key, day, flavor, currency, amount, quantity, reason, is_reversal in rows:
        applied = commitments.applied(flavor, key, reason, quantity, amount)
        assert applied is not None
        yield Posted(
            account.period.month, day, day + timedelta(days=1), account.organisation.id, account.organisation.path,
            account.issuer, currency, amount, applied[1], "Purchase" if flavor == PURCHASE_SHARE else "Usage",
            is_reversal or day.replace(day=1) != account.period.month, flavor=flavor, entry_id=id_, commitment=applied[0],
        )  # fmt: skip


def contracts_in(accounts: Sequence["Account"], month: date) -> Iterator[Contract]:
    """The commitments whose term touches the month, of organisations that the reader sees whole."""
    for account in accounts:
        if not account.is_whole:
            continue
        rows = list(
            newest_versions(account.organisation.id).filter(
                start__lt=midnight(next_month(month)), until__gt=midnight(month)
            )
        )
        names = dict(
            Cluster.everything.filter(id__in={id_ for row in rows for id_ in row.clusters}).values_list("id", "name")
        )
        cores = core_flavors(rows)
        for row in rows:
            yield Contract(
                str(row.commitment_id), row.commitment.name, row.kind, _unit_of(row, cores),
                row.units, sorted(names[id_] for id_ in row.clusters), row.flavor, row.start, row.until, row.upfront,
                row.recurring, row.total, row.currency, account.issuer, account.organisation.path, row.commitment.created_at,
                row.created_at, row.is_withdrawn, row.rates, row.hourly,
            )  # fmt: skip


ENTRIES = """
SELECT e.id, e.key, e.charge_day, e.flavor, l.currency, l.amount, l.quantity, coalesce(r.reason, e.reason), r.id IS NOT NULL
FROM billing_ledgerentry AS e LEFT JOIN billing_ledgerentry AS r ON r.id = e.reverses_id
JOIN billing_ledgerline AS l ON l.entry_id = e.id JOIN billing_ledgeraccount AS a ON a.id = l.account_id
WHERE e.period_id = %(period)s AND (
    (coalesce(r.kind, e.kind) = 'purchase' AND a.kind = 'commitment')
    OR (coalesce(r.kind, e.kind) = 'commitment' AND a.kind IN ('commitment_unused', 'idle')))
ORDER BY e.id
"""
