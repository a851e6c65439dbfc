"""How much may still be taken under limits that lend to each other. This is the one rule: holds, the scheduling cycle,
quotes and capacity all use it.

Limits of equal resource and scope on one path form a chain. What is held at a limit also counts at the next one above,
and there at least what the limit guarantees: its nominal amount minus what it lends. So taking within a guarantee
changes nothing above. Chains of other resources or scopes are independent: work must fit under each. So is what each user
may hold at a tenant and below it, and what all work of a class may hold there or in all tenants: a chain of one limit, which
neither borrows nor lends.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, NamedTuple, Protocol, TypeAlias, TypeVar
from uuid import UUID


class Bounded(Protocol):
    """What the rule reads of a limit, in base units. `cap` is the most that may be held, borrowed amounts included."""

    @property
    def id(self) -> UUID: ...
    @property
    def tenant_path(self) -> str: ...
    @property
    def resource(self) -> str: ...
    @property
    def clusters(self) -> tuple[str, ...]: ...
    @property
    def cap(self) -> int: ...
    @property
    def held(self) -> int: ...
    @property
    def guaranteed(self) -> int: ...
    @property
    def nominal(self) -> int | None: ...
    @property
    def reclaims(self) -> bool: ...
    @property
    def user(self) -> UUID | None: ...
    @property
    def class_name(self) -> str: ...


L = TypeVar("L", bound=Bounded)
L_co = TypeVar("L_co", bound=Bounded, covariant=True)


class PerUser(Protocol[L_co]):
    """A limit on what each user may hold at a tenant and below it."""

    @property
    def id(self) -> UUID: ...
    @property
    def tenant_path(self) -> str: ...
    def of(self, user: UUID) -> L_co:
        """The limit as it stands for this user."""


@dataclass(slots=True)
class Line(Generic[L]):
    """A limit with what is held there now."""

    limit: L
    held: int
    reserved: int = 0
    """The part of `held` that is reserved and not used, from `reserved_from` on (`reserved`)."""
    reserved_from: datetime | None = None
    of: "Line[L] | None" = None
    """The line of the book, if this one is it as it is at a later time."""

    @property
    def unused(self) -> int:
        """The part of the guarantee that is not held: it is counted above already."""
        return max(0, self.limit.guaranteed - self.held)


Chain: TypeAlias = Sequence[Line[L]]
"""The limits of one resource and scope on a path, from the tenant up. Never empty."""
Chains: TypeAlias = Mapping[str, Sequence[Chain[L]]]
"""By resource, the chains that apply to a tenant's work on a cluster."""


class Obstacle(NamedTuple, Generic[L]):
    """A limit that has too little left: `rise` would be added there for the `asked` amount.

    `borrowing_helps`: a larger borrowing limit there (and at those below it) would allow it, because every limit that
    has too little left has one with room above it. `is_borrowing`: a limit below it would hold more than its nominal
    amount.
    """

    line: Line[L]
    rise: int
    asked: int
    borrowing_helps: bool
    is_borrowing: bool

    @property
    def lacking(self) -> int:
        """How much more the limit would have to allow."""
        return self.line.held + self.rise - self.line.limit.cap


class Standing(NamedTuple):
    """How a limit stands, in base units.

    `borrowed` is what it holds above its nominal amount, `lent` the part of the nominal amount that is neither held nor
    free, because other tenants hold it. `guaranteed_unused` counts at the limit above though it is not held. `free` is
    the most that can still be taken here. `reserved` is kept there now for reservations whose work does not hold it, and
    `reserved_most` the most that is at any time from now on.
    """

    borrowed: int
    lent: int
    guaranteed: int
    guaranteed_unused: int
    free: int
    reserved: int = 0
    reserved_most: int = 0


def standing(chain: Chain[L], nominal: int, borrowed_at_most: int) -> Standing:
    """How the lowest limit of the chain stands."""
    line, free = chain[0], left(chain)
    return Standing(
        borrowed=min(max(0, line.held - nominal), borrowed_at_most),
        lent=max(0, nominal - line.held - free),
        guaranteed=line.limit.guaranteed,
        guaranteed_unused=line.unused,
        free=free,
    )


def rises(chain: Chain[L], amount: int) -> list[tuple[Line[L], int]]:
    """What taking an amount adds to each limit, from the tenant up; it ends where a guarantee covers the rest."""
    found = []
    for line in chain:
        if amount <= 0:
            break
        found.append((line, amount))
        amount -= line.unused
    return found


def falls(chain: Chain[L], amount: int) -> list[tuple[Line[L], int]]:
    """What returning an amount takes from each limit, from the tenant up; it ends where a guarantee stays claimed."""
    found = []
    for line in chain:
        if amount <= 0:
            break
        found.append((line, amount))
        guaranteed = line.limit.guaranteed
        amount = max(line.held, guaranteed) - max(line.held - amount, guaranteed)
    return found


def left(chain: Chain[L]) -> int:
    """The most that work at the lower end of the chain can still take."""
    top, *below = reversed(chain)
    most = max(0, top.limit.cap - top.held)
    for line in below:
        most = min(max(0, line.limit.cap - line.held), line.unused + most)
    return most


def obstacle(chains: Chains[L], amounts: Mapping[str, int]) -> Obstacle[L] | None:
    """The limit nearest to the root that has too little left for the amounts."""
    found: list[Obstacle[L]] = []
    for resource, amount in amounts.items():
        for chain in chains.get(resource, ()):
            rising = rises(chain, amount)
            over = [number for number, (line, rise) in enumerate(rising) if line.held + rise > line.limit.cap]
            if over:
                line, rise = rising[over[-1]]
                is_borrowing = any(_is_borrowing(*below) for below in rising[: over[-1]])
                found.append(Obstacle(line, rise, amount, line is not chain[-1], is_borrowing))
    if not found:
        return None
    nearest = min(found, key=lambda one: one.line.limit.tenant_path.count("/"))
    return nearest._replace(borrowing_helps=all(one.borrowing_helps for one in found))


def take(chains: Chains[L], amounts: Mapping[str, int]) -> None:
    """Adds the amounts to what is held."""
    for resource, amount in amounts.items():
        for chain in chains.get(resource, ()):
            for line, rise in rises(chain, amount):
                line.held += rise


def give_back(chains: Chains[L], amounts: Mapping[str, int]) -> None:
    """Takes the amounts from what is held."""
    for resource, amount in amounts.items():
        for chain in chains.get(resource, ()):
            for line, fall in falls(chain, amount):
                line.held -= fall


class Book(Generic[L]):
    """The limits of all tenants; what is held there grows as amounts are taken."""

    def __init__(self, limits: Iterable[L], per_user: Iterable[PerUser[L]] = ()) -> None:
        self._per_user: dict[str, list[PerUser[L]]] = defaultdict(list)
        self._of_work: dict[tuple[str, str, UUID | None, str], Chains[L]] = {}
        self._lines_of_users: dict[tuple[UUID, UUID], Line[L]] = {}
        for each in sorted(per_user, key=lambda one: one.id):
            self._per_user[each.tenant_path].append(each)
        self._of_tenant: dict[str, list[Line[L]]] = defaultdict(list)
        self._of_path: dict[str, Chains[L]] = {}
        self._of_place: dict[tuple[str, str], Chains[L]] = {}
        self._of_class: dict[str, list[Line[L]]] = defaultdict(list)
        for limit in sorted(limits, key=lambda one: one.id):
            where = self._of_class[limit.class_name] if limit.class_name else self._of_tenant[limit.tenant_path]
            where.append(Line(limit, limit.held))

    def chains(self, tenant_path: str, cluster: str, user: UUID | None = None, class_name: str = "") -> Chains[L]:
        """The limits that apply to the tenant's work on this cluster; also those on each user and those of a class, if these
        are named.
        """
        place = tenant_path, cluster
        chains = self._of_place.get(place)
        if chains is None:
            chains = self._of_place[place] = _on(cluster, self._path(tenant_path))
        user = user if self._per_user else None
        class_name = class_name if class_name in self._of_class else ""
        if user is None and not class_name:
            return chains
        known = self._of_work.get((*place, user, class_name))
        if known is None:
            known = self._of_work[*place, user, class_name] = self._with_own(chains, tenant_path, user, class_name)
        return known

    def chain(self, limit: L) -> Chain[L]:
        """The limit and those that it borrows from."""
        return next(chain for chain in self._path(limit.tenant_path)[limit.resource] if chain[0].limit.id == limit.id)

    def _with_own(self, chains: Chains[L], tenant_path: str, user: UUID | None, class_name: str) -> Chains[L]:
        """These chains and one for each limit on the path that applies to each user, and for each of the class; the identical
        object without any.
        """
        paths = path_prefixes(tenant_path)
        own = [line for line in self._of_class.get(class_name, ()) if line.limit.tenant_path in ("", *paths)]
        if user is not None:
            own += [self._line_of(each, user) for path in paths for each in self._per_user.get(path, ())]
        if not own:
            return chains
        found = {resource: list(each) for resource, each in chains.items()}
        for line in own:
            found.setdefault(line.limit.resource, []).append([line])
        return found

    def _line_of(self, each: PerUser[L], user: UUID) -> Line[L]:
        key = each.id, user
        if key not in self._lines_of_users:
            limit = each.of(user)
            self._lines_of_users[key] = Line(limit, limit.held)
        return self._lines_of_users[key]

    def _path(self, tenant_path: str) -> Chains[L]:
        """The limits that apply to the tenant's work on any cluster."""
        known = self._of_path.get(tenant_path)
        if known is not None:
            return known
        found: dict[str, dict[tuple[str, ...], list[Line[L]]]] = defaultdict(dict)
        for path in reversed(path_prefixes(tenant_path)):
            for line in self._of_tenant.get(path, ()):
                found[line.limit.resource].setdefault(line.limit.clusters, []).append(line)
        chains = self._of_path[tenant_path] = {name: list(by_scope.values()) for name, by_scope in found.items()}
        return chains


def path_prefixes(tenant_path: str) -> list[str]:
    """Paths of the tenant and all its ancestors, root first."""
    names = tenant_path.split("/")
    return ["/".join(names[:length]) for length in range(1, len(names) + 1)]


def _is_borrowing(line: Line[L], rise: int) -> bool:
    return line.limit.nominal is not None and line.held + rise > line.limit.nominal


def _on(cluster: str, chains: Chains[L]) -> Chains[L]:
    """The chains that apply on the cluster; the identical object if all apply everywhere."""
    if not any(chain[0].limit.clusters for each in chains.values() for chain in each):
        return chains
    return {
        resource: [chain for chain in each if not chain[0].limit.clusters or cluster in chain[0].limit.clusters]
        for resource, each in chains.items()
    }
