"""The ledger's entries of commitments: what was paid, and who bears each day of it.

A payment is debited to the organisation's account `commitment`, and each day of the term credits it: what tenants used is
debited to them, and what was unused to `commitment_unused`, or to `idle` if the organisation shares idle capacity. What the
same usage was charged at its price is taken back from the tenants, to `commitment_covered`. So charges of usage, pools and
idle capacity remain as they are, and once a term has ended, `commitment` is at zero.
"""

from collections.abc import Iterable, Sequence
from datetime import date
from hashlib import sha256
from uuid import UUID

from .commitments import Amounts, DaySplit, User
from .idle import IdleSplit
from .ledger import Entry, Line, ShareOf, money

COMMITMENT = "commitment"
PURCHASE = "purchase"
USED_SHARE = "used commitment"
COVERED_SHARE = "covered by commitment"
UNUSED_SHARE = "unused commitment"
PURCHASE_SHARE = "purchased commitment"
"""What takes the place of a flavor. No flavor has such a name: it contains a space."""


def account_of_unused(policy: IdleSplit) -> str:
    """Where the unused part stands. Tenants who bear idle capacity bear these nodes with it, at their price; charging them the
    unused part too would charge the same hour twice.
    """
    return "commitment_unused" if policy is IdleSplit.CENTRAL else "idle"


def entries_of(organisation_id: UUID, splits: Iterable[DaySplit], policy: IdleSplit) -> tuple[Entry, ...]:
    """The entries that the ledger should have of a day's splits, without ordinals."""
    found = []
    for one in splits:
        of = _Of(organisation_id, one)
        currency, paid = one.commitment.currency, one.paid
        if paid:
            found.append(
                of.entry(
                    PURCHASE, "paid", ShareOf(flavor=PURCHASE_SHARE), _lines(COMMITMENT, "purchases", {currency: paid})
                )
            )
        for user, amount in sorted(one.used.items()):
            quantity = None if one.commitment.is_plan else one.quantities[user]
            lines = _lines(f"tenant_expense:{user[2]}", COMMITMENT, {currency: amount}, quantity)
            found.append(of.entry(COMMITMENT, f"used/{_named(user)}", _share(user, USED_SHARE), lines))
        for user, amounts in sorted(one.covered.items()):
            lines = _lines("commitment_covered", f"tenant_expense:{user[2]}", amounts)
            found.append(of.entry(COMMITMENT, f"covered/{_named(user)}", _share(user, COVERED_SHARE), lines))
        if one.unused:
            quantity = None if one.commitment.is_plan else one.unused_quantity
            lines = _lines(account_of_unused(policy), COMMITMENT, {currency: one.unused}, quantity)
            found.append(of.entry(COMMITMENT, "unused", ShareOf(flavor=UNUSED_SHARE), lines))
    return tuple(entry for entry in found if entry.lines)


class _Of:
    """Makes the entries of one split."""

    def __init__(self, organisation_id: UUID, split: DaySplit) -> None:
        self._organisation_id = organisation_id
        self._name = f"{split.commitment.id}/{split.day}"
        self._day: date = split.day
        self._reason = f"{split.commitment.name}, version {split.commitment.number}"

    def entry(self, kind: str, what: str, of: ShareOf, lines: Sequence[Line]) -> Entry:
        """An entry of this commitment and day."""
        return Entry(
            f"{kind}/{self._name}/{what}", kind, self._organisation_id, self._day, tuple(lines), of, reason=self._reason
        )


def _lines(debit: str, credit: str, amounts: Amounts, quantity: int | None = None) -> list[Line]:
    return [
        line
        for currency, amount in sorted(amounts.items())
        if amount
        for line in (Line(debit, currency, money(amount), quantity), Line(credit, currency, money(-amount)))
    ]


def _share(user: User, flavor: str) -> ShareOf:
    return ShareOf(UUID(user[0]), flavor, user[1])


def _named(user: User) -> str:
    cluster, path, tenant_id = user
    return f"{cluster}/{tenant_id}/{sha256(path.encode()).hexdigest()[:12]}"
