"""What reservations keep of limits at each time at which some of them are in force together, while quota is taken and returned.

What a reservation keeps above a limit depends on what that limit guarantees and still does not hold. So the reservations below the same
topmost guaranteeing limit are a group: only what is held within its guarantees, or used of its reservations, changes what it
keeps. A change computes one group again, at the times at which it counts, and adds the difference to the sums.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Generic, Protocol, TypeVar
from uuid import UUID

from .borrowing import Book, Chain, L, Line


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
class _Group(Generic[L]):
    """Reservations with the chains at which they count, that share guarantees."""

    lines: dict[int, Line[L]] = field(default_factory=dict)
    """The limits that guarantee something there, by identity."""
    entries: dict[int, list[tuple[Kept, str, Chain[L]]]] = field(default_factory=dict)
    """By the number of the time: reservation, resource and chain."""
    ids: set[UUID] = field(default_factory=set)
    """The reservations."""
    known_for: object = None
    kept: dict[int, dict[int, int]] = field(default_factory=dict)
    """By the number of the time, what it keeps, by the identity of the line."""


class KeptAtTimes(Generic[L]):
    """The sums. `unused` says what of a reservation its own work does not hold, and `uses` how often that has changed."""

    def __init__(
        self,
        book: Book[L],
        together: Sequence[tuple[datetime, Sequence[Kept]]],
        unused: Callable[[Kept], Mapping[str, int]],
        uses: Mapping[UUID, int],
    ) -> None:
        self._unused, self._uses = unused, uses
        self._at = [at for at, _ in together]
        self._sums: list[dict[int, int]] = [{} for _ in together]
        self._groups: dict[object, _Group[L]] = {}
        self._tops: dict[int, tuple[list[tuple[int, ...]], list[int]]] = {}
        """By the lowest line of a chain: what is kept at its lines at the times that count, and their numbers."""
        chains: dict[tuple[str, str], Mapping[str, Sequence[Chain[L]]]] = {}
        for number, (_, several) in enumerate(together):
            for one in several:
                key = one.tenant_path, one.cluster
                if key not in chains:
                    chains[key] = book.chains(*key)
                for resource, _ in one.reserved:
                    for chain in chains[key].get(resource, ()):
                        self._add(number, one, resource, chain)

    def _add(self, number: int, one: Kept, resource: str, chain: Chain[L]) -> None:
        guaranteeing = [line for line in chain if line.limit.guaranteed]
        group = self._groups.setdefault(id(guaranteeing[-1]) if guaranteeing else one.id, _Group())
        group.lines.update({id(line): line for line in guaranteeing})
        group.ids.add(one.id)
        group.entries.setdefault(number, []).append((one, resource, chain))

    def update(self) -> None:
        """Computes what has changed since."""
        for group in self._groups.values():
            used = sum(self._uses.get(one, 0) for one in group.ids) if self._uses else 0
            now = [min(line.held, line.limit.guaranteed) for line in group.lines.values()], used
            if group.known_for != now:
                group.known_for = now
                self._compute(group)
                self._tops.clear()

    def _compute(self, group: _Group[L]) -> None:
        for number, entries in group.entries.items():
            sums, kept = self._sums[number], dict[int, int]()
            for one, resource, chain in entries:
                amount = self._unused(one).get(resource, 0)
                for line in chain:
                    if amount <= 0:
                        break
                    before = kept.get(id(line), 0)
                    kept[id(line)] = before + amount
                    amount -= max(0, line.limit.guaranteed - line.held - before)
            before_of = group.kept.get(number, {})
            for line_id in before_of.keys() | kept.keys():
                sums[line_id] = sums.get(line_id, 0) + kept.get(line_id, 0) - before_of.get(line_id, 0)
            group.kept[number] = kept

    def beside(self, chain: Chain[L]) -> list[Chain[L]]:
        """The chain as it is at each time that may decide: with what is held now and what is kept then. A time at which less or as much
        is kept at every limit as at another decides nothing.
        """
        if id(chain[0]) not in self._tops:
            self._tops[id(chain[0])] = self._deciding(chain)
        vectors, numbers = self._tops[id(chain[0])]
        if len(vectors) > 1 and not any(line.limit.guaranteed for line in chain):
            # without guarantees, each limit decides alone: the most that is ever kept there
            most = [max(range(len(vectors)), key=lambda n: (vectors[n][k], -n)) for k in range(len(chain))]
            return [[self._then(line, vectors[most[k]][k], numbers[most[k]]) for k, line in enumerate(chain)]]
        return [
            [self._then(line, amount, number) for line, amount in zip(chain, vector, strict=True)]
            for vector, number in zip(vectors, numbers, strict=True)
        ]

    def _deciding(self, chain: Chain[L]) -> tuple[list[tuple[int, ...]], list[int]]:
        first: dict[tuple[int, ...], int] = {}
        for number, sums in enumerate(self._sums):
            vector = tuple([sums.get(id(line), 0) for line in chain])
            if any(vector):
                first.setdefault(vector, number)
        # larger ones first: what follows can only be below or beside them
        found: list[tuple[int, ...]] = []
        for vector in sorted(first, key=sum, reverse=True):
            if not any(all(own <= other for own, other in zip(vector, known, strict=True)) for known in found):
                found.append(vector)
        found.sort(key=first.__getitem__)
        return found, [first[vector] for vector in found]

    def _then(self, line: Line[L], amount: int, number: int) -> Line[L]:
        return Line(line.limit, line.held + amount, amount, self._at[number], line) if amount else line
