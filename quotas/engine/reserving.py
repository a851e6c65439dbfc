"""How much may be reserved for a period: at every time in it, what is reserved stays within the nominal amounts of all limits
on the tenant's path.

Reservations are added up as holds are: along the chains of `borrowing`, with what limits guarantee. They never borrow.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from .amounts import format_amount
from .borrowing import Book, obstacle
from .holds import Limit, recounted
from .reserved import in_force_together


@dataclass(frozen=True, slots=True)
class Reserved:
    """Quota that a tenant reserved on a cluster from `starts_at` until `until_at`."""

    id: UUID
    tenant_path: str
    cluster: str
    starts_at: datetime
    until_at: datetime
    reserved: tuple[tuple[str, int], ...]
    used: tuple[tuple[str, int], ...] = field(default=(), compare=False)

    def is_in_force(self, at: datetime) -> bool:
        """Whether it counts at that time."""
        return self.starts_at <= at < self.until_at

    def overlaps(self, other: "Reserved") -> bool:
        """Whether both count at some time."""
        return self.starts_at < other.until_at and other.starts_at < self.until_at


class Excess(NamedTuple):
    """A limit whose nominal amount is too small for what would be reserved at a time, in base units.

    `reserved` is what counts there at that time without the request, guarantees of the limits below included, by
    `reservations` of them. `asked` is what the request adds there.
    """

    limit: Limit
    at: datetime
    reserved: int
    reservations: int
    asked: int

    @property
    def message(self) -> str:
        """The numbers of a refusal as a sentence."""
        reserved, asked = (format_amount(self.limit.resource, amount) for amount in (self.reserved, self.asked))
        by = "1 reservation" if self.reservations == 1 else f"{self.reservations} reservations"
        return f"{self._limit}: {reserved} are reserved or guaranteed at {self._time} ({by}), {asked} requested"

    @property
    def mark(self) -> str:
        """The numbers of what was reserved before the limit was lowered, as a sentence."""
        reserved = format_amount(self.limit.resource, self.reserved + self.asked)
        return f"{self._limit}: {reserved} are reserved or guaranteed at {self._time}"

    @property
    def _limit(self) -> str:
        limit = self.limit
        where = f" on {', '.join(limit.clusters)}" if limit.clusters else ""
        return (
            f"{limit.tenant_path} has a limit of {format_amount(limit.resource, limit.nominal)} {limit.resource}{where}"
        )

    @property
    def _time(self) -> str:
        return f"{self.at:%Y-%m-%d %H:%M} UTC"


def excess(limits: Sequence[Limit], others: Iterable[Reserved], wanted: Reserved) -> Excess | None:
    """The limit that too little can be reserved of, at the earliest such time; None if `wanted` may be reserved beside the
    others. `limits` are all of the tenant's organisation.
    """
    beside = [one for one in others if one.id != wanted.id and one.overlaps(wanted)]
    for at in sorted({wanted.starts_at, *(max(one.starts_at, wanted.starts_at) for one in beside)}):
        together = [one for one in beside if one.is_in_force(at)]
        book = Book(reserved_of(limits, together))
        blocking = obstacle(book.chains(wanted.tenant_path, wanted.cluster), dict(wanted.reserved))
        if blocking is not None:
            limit = blocking.line.limit
            count = sum(_counts(one, limit) for one in together)
            return Excess(limit, at, blocking.line.held, count, blocking.rise)
    return None


def reserved_of(limits: Iterable[Limit], together: Iterable[Reserved]) -> list[Limit]:
    """The limits with what is reserved of them as held, and nothing more than their nominal amounts to reserve."""
    plain = [replace(limit, borrowing_limit=0) for limit in limits]
    book, own = Book(plain), defaultdict[UUID, int](int)
    for one in together:
        chains = book.chains(one.tenant_path, one.cluster)
        for resource, amount in one.reserved:
            for chain in chains.get(resource, ()):
                own[chain[0].limit.id] += amount
    return [replace(limit, cap=limit.nominal) for limit in recounted(plain, own)]


def beyond(limits: Sequence[Limit], reserved: Sequence[Reserved]) -> dict[UUID, Excess]:
    """By reservation that counts at a limit of which more is reserved than its nominal amount, because that was lowered or
    its tenant moved: the limit and the earliest time. `asked` is what the reservation has there.
    """
    found: dict[UUID, Excess] = {}
    for at, together in in_force_together(reserved):
        for limit in reserved_of(limits, together):
            if limit.held <= limit.nominal:
                continue
            counted = [one for one in together if _counts(one, limit)]
            for one in counted:
                amount = dict(one.reserved)[limit.resource]
                found.setdefault(one.id, Excess(limit, at, limit.held - amount, len(counted) - 1, amount))
    return found


def _counts(one: Reserved, limit: Limit) -> bool:
    """Whether it counts against a limit on its path."""
    is_below = f"{one.tenant_path}/".startswith(f"{limit.tenant_path}/")
    is_there = not limit.clusters or one.cluster in limit.clusters
    return is_below and is_there and dict(one.reserved).get(limit.resource, 0) > 0
