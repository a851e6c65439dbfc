"""The ledger's entries of idle capacity and of the platform, at the close of a month.

A pool's idle cost is debited to the account `idle`, and its overhead to `overhead`; the cluster's cost pool is credited. So the
pool's account shows its whole cost. Shares are moved from `idle` and `platform` to the tenants; what stays is central.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from hashlib import sha256
from typing import TypeAlias
from uuid import UUID

from .idle import Balance, Shared, Sharer
from .ledger import Entry, Line, ShareOf, money, reversal_of

IDLE_SHARE = "idle capacity"
PLATFORM_SHARE = "shared platform"
"""What takes the place of a flavor in tenants' shares. No flavor has such a name: it contains a space."""
Amounts: TypeAlias = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class SharedMonth:
    """Whose month it is, its last day, and the text that names the policy."""

    organisation_id: UUID
    last_day: date
    reason: str

    @property
    def name(self) -> str:
        """The middle of its entries' keys."""
        return f"{self.last_day:%Y-%m}/{self.organisation_id}"


def wanted_entries(
    month: SharedMonth,
    pools: Iterable[tuple[UUID, str, str, Balance, Shared]],
    platform: Shared,
    platform_currency: str,
) -> tuple[Entry, ...]:
    """What the ledger should have: an entry for each pool (cluster, flavor, currency), one for each tenant and cluster, and one
    for each tenant's share of the platform. Without ordinals, in one order.
    """
    left: dict[tuple[UUID, str], Counter[tuple[str, str]]] = defaultdict(Counter)
    shares: dict[tuple[UUID, Sharer], Counter[str]] = defaultdict(Counter)
    for cluster_id, flavor, currency, balance, shared in pools:
        left[cluster_id, flavor]["idle", currency] += balance.idle
        left[cluster_id, flavor]["overhead", currency] += balance.overhead
        for who, part in shared.parts.items():
            shares[cluster_id, who][currency] += part
    entries = [
        _entry(month, "idle", f"{cluster_id}/{flavor}", ShareOf(cluster_id, flavor), _pool_lines(cluster_id, amounts))
        for (cluster_id, flavor), amounts in sorted(left.items())
    ]
    entries += [
        _entry(
            month, "idle", f"{cluster_id}/share/{_named(who)}", ShareOf(cluster_id, IDLE_SHARE, who[0]),
            _share_lines("idle", who, amounts),
        )
        for (cluster_id, who), amounts in sorted(shares.items())
    ]  # fmt: skip
    entries += [
        _entry(
            month, "platform", _named(who), ShareOf(None, PLATFORM_SHARE, who[0]),
            _share_lines("platform", who, {platform_currency: part}),
        )
        for who, part in sorted(platform.parts.items())
    ]  # fmt: skip
    return tuple(entry for entry in entries if entry.lines)


def missing_entries(wanted: Sequence[Entry], standing: Sequence[Entry], posted: Mapping[str, int]) -> tuple[Entry, ...]:
    """What to post so that exactly the wanted entries stand: reversals first. None if they do.

    `standing` are the entries that nothing reversed, `posted` is how often each name was posted.
    """
    by_name = {name_of(entry): entry for entry in standing}
    kept = {name for entry in wanted if (name := entry.key) in by_name and _content(by_name[name]) == _content(entry)}
    reversals = [reversal_of(entry) for name, entry in sorted(by_name.items()) if name not in kept]
    fresh = [
        replace(entry, key=f"{entry.key}/{posted.get(entry.key, 0) + 1}") for entry in wanted if entry.key not in kept
    ]
    return (*reversals, *fresh)


def name_of(entry: Entry) -> str:
    """The key of a posted entry without its ordinal."""
    return entry.key.rpartition("/")[0]


def _content(entry: Entry) -> tuple[object, ...]:
    lines = sorted((line.account, line.currency, line.amount, line.quantity or 0) for line in entry.lines)
    return (entry.kind, entry.reason, entry.charge_day, *lines)


def _entry(month: SharedMonth, kind: str, name: str, of: ShareOf, lines: tuple[Line, ...]) -> Entry:
    return Entry(
        f"{kind}/{month.name}/{name}", kind, month.organisation_id, month.last_day, lines, of, reason=month.reason
    )


def _pool_lines(cluster_id: UUID, amounts: Mapping[tuple[str, str], int]) -> tuple[Line, ...]:
    moved = {key: amount for key, amount in sorted(amounts.items()) if amount}
    whole: Counter[str] = Counter()
    for (_, currency), amount in moved.items():
        whole[currency] += amount
    debits = [Line(account, currency, money(amount)) for (account, currency), amount in moved.items()]
    pool = [
        Line(f"cluster_pool:{cluster_id}", currency, money(-amount)) for currency, amount in whole.items() if amount
    ]
    return (*debits, *pool)


def _share_lines(account: str, who: Sharer, amounts: Amounts) -> tuple[Line, ...]:
    return tuple(
        line
        for currency, amount in sorted(amounts.items())
        if amount
        for line in (
            Line(f"tenant_expense:{who[1]}", currency, money(amount)),
            Line(account, currency, money(-amount)),
        )
    )


def _named(who: Sharer) -> str:
    return f"{who[1]}/{sha256(who[0].encode()).hexdigest()[:12]}"
