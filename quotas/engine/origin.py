"""Whose quota it is that work takes: the tenant's own, or borrowed, and from where. And what could be taken next.

This reads the rises that `borrowing` computes, and nothing else. Work takes its own part first: what it takes beyond
a nominal amount is the last of it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Generic
from uuid import UUID

from .borrowing import Book, Chain, L, Line, left, rises


@dataclass(frozen=True, slots=True)
class Borrowed:
    """What one limit borrows from the next one above it for the work, in base units."""

    tenant_path: str
    lender: str
    amount: int


@dataclass(frozen=True, slots=True)
class Origin:
    """Whose quota an amount is, by one chain of limits. `tenant_path` has the nearest of these limits.

    `own` is what stays within the nominal amounts of all of them. `borrowed` names each limit that would hold more than its
    nominal amount because of the work, from the tenant up. One unit can be borrowed at several limits. `reclaimers` are
    the tenants whose jobs may stop the work, because a limit on its path would hold more than its nominal amount.
    """

    tenant_path: str
    resource: str
    clusters: tuple[str, ...]
    amount: int
    own: int
    borrowed: tuple[Borrowed, ...]
    reclaimers: tuple[str, ...]

    @property
    def is_own(self) -> bool:
        """Whether nothing is borrowed."""
        return self.own == self.amount


@dataclass(frozen=True, slots=True)
class Room:
    """What may still be taken under one chain of limits, in base units: `guaranteed`, which no other tenant can take,
    is part of `own`, which stays within all nominal amounts. `borrowable` is the rest of what is free.

    `owed` is the most of what the nearest limit holds that jobs of `reclaimers` may take back.
    """

    tenant_path: str
    resource: str
    clusters: tuple[str, ...]
    guaranteed: int
    own: int
    borrowable: int
    owed: int
    reclaimers: tuple[str, ...]

    @property
    def free(self) -> int:
        """The most that can be taken now."""
        return self.own + self.borrowable


class Lenders(Generic[L]):
    """Who takes back what is borrowed: the limits with `reclaims`, by the limit that they lend to others through."""

    def __init__(self, limits: Iterable[L], book: Book[L]) -> None:
        self._limits, self._book = limits, book

    @cached_property
    def _of(self) -> dict[UUID, list[L]]:
        """Only made if something is borrowed, because it reads every limit."""
        found: dict[UUID, list[L]] = {}
        for limit in self._limits:
            above = self._book.chain(limit)[1:2] if limit.reclaims and limit.nominal else ()
            if above:
                found.setdefault(above[0].limit.id, []).append(limit)
        return found

    def reclaiming(self, borrower: Line[L], lender: Line[L]) -> list[str]:
        """The tenants that take back what this limit borrows from the one above it."""
        return [one.tenant_path for one in self._of.get(lender.limit.id, ()) if one.id != borrower.limit.id]


def origins(
    chains: Mapping[str, Sequence[Chain[L]]], amounts: Mapping[str, int], lenders: Lenders[L]
) -> tuple[Origin, ...]:
    """Whose quota the amounts are, by each chain of limits that counts them. Limits on each user and of
    classes lend nothing and are left out. Of a chain as it is at several times, the one that leaves least to its own counts.
    """
    found: dict[UUID, Origin] = {}
    for resource, amount in sorted(amounts.items()):
        for chain in chains.get(resource, ()) if amount > 0 else ():
            if chain[0].limit.user is None and not chain[0].limit.class_name:
                one, known = origin(chain, amount, lenders), found.get(chain[0].limit.id)
                found[chain[0].limit.id] = one if known is None or one.own < known.own else known
    return tuple(found.values())


def origin(chain: Chain[L], amount: int, lenders: Lenders[L]) -> Origin:
    """Whose quota an amount is that fits under this chain."""
    risen = {id(line): rise for line, rise in rises(chain, amount)}
    borrowed = []
    reclaimers: dict[str, None] = {}
    for line, above in pairwise(chain):
        rise = risen.get(id(line), 0)
        more = _excess(line, rise) - _excess(line)
        if more:
            borrowed.append(Borrowed(line.limit.tenant_path, above.limit.tenant_path, more))
        if _excess(line, rise):
            reclaimers |= dict.fromkeys(lenders.reclaiming(line, above))
    own = amount - max((one.amount for one in borrowed), default=0)
    near = chain[0].limit
    return Origin(
        near.tenant_path, near.resource, near.clusters, amount, own, tuple(borrowed), tuple(sorted(reclaimers))
    )


def room(chain: Chain[L], lenders: Lenders[L]) -> Room:
    """What may still be taken under this chain."""
    free, near = left(chain), chain[0]
    owed, reclaimers = 0, dict[str, None]()
    for line, above in pairwise(chain):
        tenants = lenders.reclaiming(line, above) if _excess(line) else []
        if tenants:
            owed = max(owed, min(near.held, _excess(line)))
            reclaimers |= dict.fromkeys(tenants)
    own = origin(chain, free, lenders).own
    limit = near.limit
    return Room(
        tenant_path=limit.tenant_path,
        resource=limit.resource,
        clusters=limit.clusters,
        guaranteed=min(free, near.unused),
        own=own,
        borrowable=free - own,
        owed=owed,
        reclaimers=tuple(sorted(reclaimers)),
    )


def _excess(line: Line[L], rise: int = 0) -> int:
    """What a limit holds above its nominal amount; 0 if that is not known."""
    nominal = line.limit.nominal
    return 0 if nominal is None else max(0, line.held + rise - nominal)
