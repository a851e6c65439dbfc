"""Which holds fit under which limits. Earlier requests win; each request gets its whole amount or nothing."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal
from uuid import UUID

from .amounts import MAX_AMOUNT, format_amount
from .borrowing import Book, Chains, Obstacle, obstacle, path_prefixes, take
from .kept_at_times import Kept
from .reserved import Reserves

Code = Literal["quota_exceeded", "user_limit_exceeded", "class_limit_exceeded", "already_held", "tenant_moved"]
ANY_USER = UUID(int=0)
"""A user who holds nothing."""


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit and the amount held against it, in base units. Empty `clusters` means the whole fleet.

    `cap` bounds `held`. It equals `nominal` with what may be borrowed; if the limit was reduced below use, it starts at
    the amount then held and shrinks as holds end. `guaranteed` counts at the limit above even if it is not held.
    """

    id: UUID
    tenant_path: str
    resource: str
    clusters: tuple[str, ...]
    nominal: int
    cap: int
    held: int
    borrowing_limit: int | None = 0
    guaranteed: int = 0
    reclaims: bool = False
    """Whether jobs within `nominal` may stop jobs of tenants that borrow from it."""
    user: UUID | None = None
    """Whose share of a limit on each user it is; None for a limit on the tenant."""
    class_name: str = ""
    """The class whose work it limits, at the tenant and below it or, without a path, in all tenants together. Empty for a limit on
    all work of a tenant or on users.
    """


def class_limit(limit_id: UUID, class_name: str, resource: str, most: int, held: int, tenant_path: str = "") -> Limit:
    """A limit on what all work of a class holds together at a tenant and below it; without a path, in all tenants. If it was
    reduced below use, `held` is more than `cap`: the class takes nothing more there until enough has ended.
    """
    return Limit(limit_id, tenant_path, resource, (), most, most, held, class_name=class_name)


@dataclass(frozen=True, slots=True)
class UserLimit:
    """How much of a resource each user may hold at a tenant and below it, and what users hold there, in base units.

    If the limit was reduced below what a user holds, that user takes nothing more until enough holds have ended.
    """

    id: UUID
    tenant_path: str
    resource: str
    most: int
    held: Mapping[UUID, int]
    """Without users who hold nothing."""

    def of(self, user: UUID) -> Limit:
        """The limit as it stands for this user. What the user's own work gives back makes no room above `most`."""
        held = self.held.get(user, 0)
        return Limit(self.id, self.tenant_path, self.resource, (), self.most, self.most, held, user=user)


@dataclass(frozen=True, slots=True)
class Borrowing:
    """How much a limit may borrow from the next one above, and lend to it, in base units; None is no bound. `reclaims`: jobs
    within the nominal amount may stop jobs of tenants that borrow what it lent.
    """

    borrowing_limit: int | None = 0
    lending_limit: int | None = None
    reclaims: bool = False


CEILING = Borrowing()
"""A limit that borrows nothing and guarantees nothing."""


@dataclass(frozen=True, slots=True)
class HoldRequest:
    """What a holder (an attempt) requests for one tenant on one cluster, in base units by resource."""

    holder_id: UUID
    tenant_id: UUID
    tenant_path: str
    cluster_name: str
    amounts: Mapping[str, int]
    user_id: UUID | None = None
    """Whose work it is. Without, no limit on users applies."""
    within_id: UUID | None = None
    """The reserved quota that it is part of."""
    beside: tuple[UUID, ...] = ()
    """The reserved quota that it has to leave room for, because it may still hold when that begins."""
    class_name: str = ""
    """The class of the work. Without, no limit of a class applies."""


@dataclass(frozen=True, slots=True)
class HoldRefusal:
    """Why a hold was refused. With `quota_exceeded`, `user_limit_exceeded` or `class_limit_exceeded`, the other fields name the
    limit that was exceeded. The limit of a class in all tenants has no `tenant_path`.

    `asked` is what the hold would add there. `borrowing_helps`: with a larger borrowing limit it would fit.
    """

    code: Code
    message: str
    limit_id: UUID | None = None
    tenant_path: str = ""
    resource: str = ""
    cap: int = 0
    held: int = 0
    asked: int = 0
    borrowing_helps: bool = False

    @property
    def is_of_user(self) -> bool:
        """Whether a limit on each user refused it."""
        return self.code == "user_limit_exceeded"

    @property
    def is_of_class(self) -> bool:
        """Whether a limit of its class refused it."""
        return self.code == "class_limit_exceeded"


@dataclass(frozen=True, slots=True)
class Take:
    """One journal line, at the nearest limit of its resource and scope."""

    holder_id: UUID
    limit_id: UUID
    amount: int


def grant(
    requests: Sequence[HoldRequest],
    limits: Iterable[Limit],
    per_user: Iterable[UserLimit] = (),
    reserved: Sequence[Kept] = (),
) -> tuple[dict[UUID, HoldRefusal | None], tuple[Take, ...]]:
    """The outcome of each request in order (None = granted), and the journal lines of the granted ones: one for each
    resource and scope, at the nearest limit. Limits on users and of classes have no lines. `reserved` is all that requests are within or beside.
    """
    book = Book(limits, per_user)
    reserves, beside = Reserves(book, reserved), dict[tuple[UUID, ...], list[Kept]]()
    outcomes: dict[UUID, HoldRefusal | None] = {}
    takes: list[Take] = []
    for request in requests:
        chains = book.chains(request.tenant_path, request.cluster_name, request.user_id, request.class_name)
        if request.beside not in beside:
            beside[request.beside] = [one for one in reserved if one.id in request.beside]
        counted = beside[request.beside]
        blocking = obstacle(reserves.beside(chains, request.tenant_path, counted), request.amounts)
        outcomes[request.holder_id] = None if blocking is None else _exceeded(blocking)
        if blocking is None:
            take(chains, request.amounts)
            if request.within_id is not None:
                reserves.use(request.within_id, request.amounts)
            takes += [
                Take(request.holder_id, limit_id, amount) for limit_id, amount in lines_of(chains, request.amounts)
            ]
    return outcomes, tuple(takes)


def lines_of(chains: Chains[Limit], amounts: Mapping[str, int]) -> list[tuple[UUID, int]]:
    """The limits where a hold of these amounts has its lines, each with the amount."""
    return [
        (chain[0].limit.id, amount)
        for resource, amount in amounts.items()
        if amount > 0
        for chain in chains.get(resource, ())
        if chain[0].limit.user is None and not chain[0].limit.class_name
    ]


def asked_at(requests: Iterable[HoldRequest], limits: Iterable[Limit]) -> dict[UUID, int]:
    """The sum of all that is asked at each limit where a request would have a line."""
    book = Book(limits)
    sums: dict[UUID, int] = defaultdict(int)
    for request in requests:
        for limit_id, amount in lines_of(book.chains(request.tenant_path, request.cluster_name), request.amounts):
            sums[limit_id] += amount
    return dict(sums)


def never_fits(
    tenant_path: str,
    options: Sequence[tuple[str, Mapping[str, int]]],
    limits: Iterable[Limit],
    per_user: Iterable[UserLimit] = (),
    class_name: str = "",
) -> tuple[HoldRefusal, ...] | None:
    """None if an option (cluster name, amounts) fits under the limits with nothing held; otherwise the reason per
    option.

    Guarantees of other tenants remain when nothing is held, as far as their limits are among `limits`. Without options
    there is no cluster to check, so nothing is refused.
    """
    book = Book(at_rest(limits), [replace(each, held={}) for each in per_user])
    refusals: list[HoldRefusal] = []
    for cluster_name, amounts in options:
        blocking = obstacle(book.chains(tenant_path, cluster_name, ANY_USER, class_name), amounts)
        if blocking is None:
            return None
        refusals.append(_too_small(blocking))
    return tuple(refusals) or None


def at_rest(limits: Iterable[Limit]) -> list[Limit]:
    """The limits as they are when no work holds anything: only guarantees count at the limits above them."""
    return recounted(limits, {})


def recounted(limits: Iterable[Limit], own: Mapping[UUID, int]) -> list[Limit]:
    """The limits with `held` and `cap` counted again from the leaves up. `own` is what their own lines hold."""
    ordered = sorted(limits, key=lambda limit: limit.tenant_path.count("/"), reverse=True)
    above = parents(ordered)
    held: dict[UUID, int] = defaultdict(int, own)
    found = []
    for limit in ordered:
        parent = above[limit.id]
        if parent is not None:
            held[parent] += max(held[limit.id], limit.guaranteed)
        most = max(bound(limit, has_parent=parent is not None), held[limit.id])
        found.append(replace(limit, held=held[limit.id], cap=most))
    return found


def own_lines(limits: Sequence[Limit]) -> dict[UUID, int]:
    """What the limits hold apart from the claims of the limits below them."""
    own = {limit.id: limit.held for limit in limits}
    above = parents(limits)
    for limit in limits:
        parent = above[limit.id]
        if parent is not None:
            own[parent] -= max(limit.held, limit.guaranteed)
    return own


def parents(limits: Sequence[Limit]) -> dict[UUID, UUID | None]:
    """For each limit, the nearest one of equal resource and scope above it. A limit of a class is below none."""
    known = {(limit.tenant_path, limit.resource, limit.clusters): limit.id for limit in limits if not limit.class_name}
    found: dict[UUID, UUID | None] = {}
    for limit in limits:
        if limit.class_name:
            found[limit.id] = None
            continue
        above = (known.get((path, limit.resource, limit.clusters)) for path in path_prefixes(limit.tenant_path)[-2::-1])
        found[limit.id] = next((one for one in above if one is not None), None)
    return found


def overcommitted(limits: Iterable[Limit]) -> list[tuple[Limit, int]]:
    """The limits below which more is guaranteed than their nominal amount, each with what is guaranteed."""
    return [(limit, limit.held) for limit in at_rest(limits) if limit.held > limit.nominal]


def bound(limit: Limit, *, has_parent: bool) -> int:
    """The most that may be held at a limit, apart from a surplus. Without a parent there is no limit to borrow from."""
    borrowed = MAX_AMOUNT if limit.borrowing_limit is None else limit.borrowing_limit
    return limit.nominal + (borrowed if has_parent else 0)


def _exceeded(blocking: Obstacle[Limit]) -> HoldRefusal:
    line, limit = blocking.line, blocking.line.limit
    asked = _shown(limit, blocking.rise)
    if blocking.rise < blocking.asked:
        asked = f"{asked} of {_shown(limit, blocking.asked)}"
    held = "held by the job's user" if limit.user is not None else "held by its jobs" if limit.class_name else "held"
    reserved = ""
    if line.reserved_from is not None:
        reserved = f", {_shown(limit, line.reserved)} reserved from {line.reserved_from:%Y-%m-%d %H:%M} UTC on"
    counts = f"{_shown(limit, line.held - line.reserved)} {held}{reserved}"
    return _refusal(blocking, f"{_limit_text(limit)}: {counts}, {asked} requested")


def _too_small(blocking: Obstacle[Limit]) -> HoldRefusal:
    limit = blocking.line.limit
    guarantees = f", {_shown(limit, blocking.line.held)} guaranteed to others" if blocking.line.held else ""
    return _refusal(blocking, f"{_limit_text(limit)}{guarantees}, {_shown(limit, blocking.rise)} requested")


def _refusal(blocking: Obstacle[Limit], message: str) -> HoldRefusal:
    line, limit = blocking.line, blocking.line.limit
    if blocking.borrowing_helps:
        message = f"{message}; it would fit if {limit.tenant_path} could borrow {_shown(limit, blocking.lacking)} more"
    elif blocking.is_borrowing:
        message = f"{message}; too little is left to borrow"
    return HoldRefusal(
        code=_code_of(limit),
        message=message,
        limit_id=limit.id,
        tenant_path=limit.tenant_path,
        resource=limit.resource,
        cap=limit.cap,
        held=line.held,
        asked=blocking.rise,
        borrowing_helps=blocking.borrowing_helps,
    )


def _code_of(limit: Limit) -> Code:
    if limit.class_name:
        return "class_limit_exceeded"
    return "quota_exceeded" if limit.user is None else "user_limit_exceeded"


def _limit_text(limit: Limit) -> str:
    if limit.class_name:
        place = f" in {limit.tenant_path}" if limit.tenant_path else ""
        return f"the class {limit.class_name} has a limit of {_shown(limit, limit.nominal)} {limit.resource}{place}"
    where = f" on {', '.join(limit.clusters)}" if limit.clusters else ""
    borrowing = ""
    if limit.cap > limit.nominal and limit.borrowing_limit:
        borrowing = f" and a borrowing limit of {_shown(limit, limit.borrowing_limit)}"
    each = " for each user" if limit.user is not None else ""
    return f"{limit.tenant_path} has a limit of {_shown(limit, limit.nominal)} {limit.resource}{each}{borrowing}{where}"


def _shown(limit: Limit, amount: int) -> str:
    return format_amount(limit.resource, amount)
