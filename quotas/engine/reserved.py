"""What quota that is reserved for a period keeps of limits.

While it is in force, the part of a reserved amount that its own work does not hold counts at the limits of its tenant as
held. Work that may still run when it begins leaves room for it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Generic, Protocol, TypeVar
from uuid import UUID

from .borrowing import Book, Chain, Chains, L, Line, rises


class Kept(Protocol):
    """Reserved quota, as the rule reads it. Amounts are in base units by resource; `used` is what its own work holds now."""

    @property
    def id(self) -> UUID: ...
    @property
    def tenant_path(self) -> str: ...
    @property
    def cluster(self) -> str: ...
    @property
    def starts_at(self) -> datetime: ...
    @property
    def until_at(self) -> datetime: ...
    @property
    def reserved(self) -> Sequence[tuple[str, int]]: ...
    @property
    def used(self) -> Sequence[tuple[str, int]]: ...


K = TypeVar("K", bound=Kept)


@dataclass(slots=True)
class _Times(Generic[L]):
    """When some reservations are in force together, and what they keep of limits then. `counted` is kept so that its identity
    stays its own.
    """

    counted: Sequence[Kept]
    together: Sequence[tuple[datetime, Sequence[Kept]]]
    guaranteeing: Sequence[Line[L]]
    """The limits that count them and guarantee something. What is kept above them depends on what they hold, up to that."""
    known_for: object = None
    """For which amounts used, and held within guarantees, `later` is known."""
    later: Sequence[dict[int, Line[L]]] = ()
    """For each time, by the identity of the line of the book, the line with what is kept there. Without guarantees all times in
    one: each limit with the most that is kept there.
    """


class Reserves(Generic[L]):
    """What reserved quota keeps of the limits of a book, beside what is held there. What its work uses grows and shrinks."""

    def __init__(self, book: Book[L], kept: Iterable[Kept]) -> None:
        self._book = book
        self._used: dict[UUID, Counter[str]] = {one.id: Counter(dict(one.used)) for one in kept if one.reserved}
        self._uses = 0
        """How often that has changed."""
        self._times: dict[tuple[int, str], _Times[L]] = {}

    def __bool__(self) -> bool:
        return bool(self._used)

    def use(self, reserved_id: UUID, amounts: Mapping[str, int], times: int = 1) -> None:
        """Counts amounts that work takes within reserved quota; with `times` -1, that it returns."""
        used = self._used.get(reserved_id)
        if used is not None:
            self._uses += 1
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
        times = self._times.get(key)
        if times is None:
            times = self._times[key] = self._times_of(counted, key[1])
        if not times.together or not chains:
            return chains
        found: dict[str, list[Chain[L]]] = {resource: list(each) for resource, each in chains.items()}
        for shadows in self._later(times):
            for resource, each in chains.items():
                found[resource] += [
                    [_as_now(shadows[id(line)]) if id(line) in shadows else line for line in chain]
                    for chain in each
                    if any(id(line) in shadows for line in chain)
                ]
        return found

    def _times_of(self, counted: Sequence[Kept], root: str) -> _Times[L]:
        near = [one for one in counted if one.reserved and one.tenant_path.partition("/")[0] == root]
        guaranteeing = {
            id(line): line
            for one in near
            for chains in self._book.chains(one.tenant_path, one.cluster).values()
            for chain in chains
            for line in chain
            if line.limit.guaranteed
        }
        return _Times(counted, in_force_together(near), list(guaranteeing.values()))

    def _later(self, times: _Times[L]) -> Sequence[dict[int, Line[L]]]:
        now = self._uses, [min(line.held, line.limit.guaranteed) for line in times.guaranteeing]
        if times.known_for != now:
            each = [self._shadows(together, at) for at, together in times.together]
            times.later, times.known_for = each if times.guaranteeing else [_most_of(each)], now
        return times.later

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


def _most_of(each: Iterable[Mapping[int, Line[L]]]) -> dict[int, Line[L]]:
    """By line, the one with the most that is kept there."""
    most: dict[int, Line[L]] = {}
    for shadows in each:
        for line_id, line in shadows.items():
            known = most.get(line_id)
            most[line_id] = line if known is None or line.reserved > known.reserved else known
    return most


def _as_now(line: Line[L]) -> Line[L]:
    """A line of a later time, with what is held now."""
    assert line.of is not None
    return replace(line, held=line.of.held + line.reserved)


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
