"""What quota that is reserved for a period keeps of limits.

While it is in force, the part of a reserved amount that its own work does not hold counts at the limits of its tenant as
held. Work that may still run when it begins leaves room for it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Generic
from uuid import UUID

from .borrowing import Book, Chains, L, Line, rises
from .kept_at_times import K, Kept, KeptAtTimes


class Reserves(Generic[L]):
    """What reserved quota keeps of the limits of a book, beside what is held there. What its work uses grows and shrinks."""

    def __init__(self, book: Book[L], kept: Iterable[Kept]) -> None:
        self._book = book
        self._used: dict[UUID, Counter[str]] = {one.id: Counter(dict(one.used)) for one in kept if one.reserved}
        self._uses: Counter[UUID] = Counter()
        """How often that has changed."""
        self._times: dict[tuple[int, str], tuple[Sequence[Kept], KeptAtTimes[L] | None]] = {}
        """What is kept of an organisation's limits for these reservations, which are held so that their identity stays theirs; None
        if nothing counts there.
        """

    def __bool__(self) -> bool:
        return bool(self._used)

    def use(self, reserved_id: UUID, amounts: Mapping[str, int], times: int = 1) -> None:
        """Counts amounts that work takes within reserved quota; with `times` -1, that it returns."""
        used = self._used.get(reserved_id)
        if used is not None:
            self._uses[reserved_id] += 1
            for resource, amount in amounts.items():
                used[resource] += amount * times

    def unused(self, one: Kept) -> dict[str, int]:
        """What is reserved and not held by its own work, by resource."""
        used = self._used.get(one.id, Counter())
        return {resource: left for resource, amount in one.reserved if (left := amount - used[resource]) > 0}

    def beside(self, chains: Chains[L], tenant_path: str, counted: Sequence[Kept]) -> Chains[L]:
        """The chains that apply to work of a tenant, and the same as they are at each time at which some of the `counted`
        reservations are in force together. Work must fit under all. The identical object if nothing reserved counts there.

        What is taken counts at the given chains; the others are computed from them, and only for this moment.
        """
        key = id(counted), tenant_path.partition("/")[0]
        if key not in self._times:
            near = [one for one in counted if one.reserved and one.tenant_path.partition("/")[0] == key[1]]
            times = KeptAtTimes(self._book, in_force_together(near), self.unused, self._uses) if near else None
            self._times[key] = counted, times
        times = self._times[key][1]
        if times is None or not chains:
            return chains
        times.update()
        return {
            resource: [*each, *(then for chain in each for then in times.beside(chain))]
            for resource, each in chains.items()
        }

    def kept(self, together: Iterable[Kept], at: datetime) -> dict[UUID, int]:
        """By limit, what these reservations keep there while they are in force together."""
        return {line.limit.id: line.reserved for line in self._shadows(together, at).values()}

    def _shadows(self, together: Iterable[Kept], at: datetime) -> dict[int, Line[L]]:
        """The lines at which these reservations count, by the identity of the line of the book."""
        shadows: dict[int, Line[L]] = {}
        for one in together:
            chains = self._book.chains(one.tenant_path, one.cluster)
            for resource, amount in self.unused(one).items():
                for chain in chains.get(resource, ()):
                    own = [shadows.get(id(line)) or replace(line, of=line, reserved_from=at) for line in chain]
                    for line, rise in rises(own, amount):
                        assert line.of is not None
                        shadows[id(line.of)] = line
                        line.held += rise
                        line.reserved += rise
        return shadows


def in_force_together(kept: Sequence[K]) -> list[tuple[datetime, list[K]]]:
    """The largest sets of reservations that are in force at the same time, each with the earliest such time."""
    found: list[tuple[datetime, list[K]]] = []
    for at in sorted({one.starts_at for one in kept}):
        together = [one for one in kept if one.starts_at <= at < one.until_at]
        ids = {one.id for one in together}
        while found and {one.id for one in found[-1][1]} <= ids:
            found.pop()
        found.append((at, together))
    return found
