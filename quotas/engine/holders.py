"""Who holds the quota that work waits for."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from .borrowing import Book, Obstacle, obstacle
from .holds import Limit, UserLimit, own_lines, parents
from .kept_at_times import Kept
from .reserved import Reserves


@dataclass(frozen=True, slots=True)
class Holder:
    """A part of what a limit counts, in base units: what the next limit of a tenant below it holds, or what work holds right at
    the limit itself (`is_direct`). `kept` is guaranteed to that tenant and not held.
    """

    tenant_path: str
    held: int
    kept: int
    nominal: int
    is_direct: bool

    @property
    def borrowed(self) -> int:
        """What of `held` is above the nominal amount of that tenant."""
        return 0 if self.is_direct else max(0, self.held - self.nominal)


@dataclass(frozen=True, slots=True)
class InTheWay:
    """A limit that has too little left for work: `lacking` more would have to be free there. `holders` are all that it counts;
    besides, `reserved` is kept from the work for reservations that are in force at `reserved_from`.
    """

    limit: Limit
    lacking: int
    holders: tuple[Holder, ...]
    reserved: int = 0
    reserved_from: datetime | None = None


def in_the_way(
    tenant_path: str,
    options: Iterable[tuple[str, Mapping[str, int]]],
    limits: Sequence[Limit],
    per_user: Sequence[UserLimit] = (),
    user: UUID | None = None,
    reserved: Sequence[Kept] = (),
) -> tuple[InTheWay, ...]:
    """The limits that refuse each option (cluster name, amounts) now, each once with the least that it lacks; empty if one
    option fits. Limits on each user, and those of the class of the work, if they are among `limits`, are left out: only that
    user's work, and that of the class, is in the way there. `reserved` is the quota that is kept from the work.
    """
    book = Book(limits, per_user)
    class_name = next((one.class_name for one in limits if one.class_name), "")
    reserves = Reserves(book, reserved)
    found: dict[UUID, Obstacle[Limit]] = {}
    for cluster_name, amounts in options:
        chains = book.chains(tenant_path, cluster_name, user, class_name)
        blocking = obstacle(reserves.beside(chains, tenant_path, reserved), amounts)
        if blocking is None:
            return ()
        limit = blocking.line.limit
        if limit.user is None and not limit.class_name:
            known = found.get(limit.id)
            found[limit.id] = blocking if known is None or blocking.lacking < known.lacking else known
    return tuple(
        InTheWay(
            one.line.limit,
            one.lacking,
            holders(one.line.limit, limits),
            one.line.reserved,
            one.line.reserved_from,
        )
        for one in found.values()
    )


def holders(limit: Limit, limits: Sequence[Limit]) -> tuple[Holder, ...]:
    """All that a limit counts, the largest part first. The parts add up to what it holds."""
    above = parents(limits)
    below = [one for one in limits if above[one.id] == limit.id]
    parts = [
        Holder(one.tenant_path, one.held, max(0, one.guaranteed - one.held), one.nominal, is_direct=False)
        for one in below
    ]
    parts.append(Holder(limit.tenant_path, own_lines(limits)[limit.id], 0, limit.nominal, is_direct=True))
    counted = [one for one in parts if one.held or one.kept]
    return tuple(sorted(counted, key=lambda one: (-one.held - one.kept, one.tenant_path)))
