"""Which holds fit under which limits. Earlier requests win; each request gets its whole amount or nothing."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from .amounts import format_amount

Code = Literal["quota_exceeded", "already_held", "tenant_moved"]


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit and the amount held against it, in base units. Empty `clusters` means the whole fleet.

    `cap` bounds `held`. It equals `nominal`; if the limit was reduced below use, it starts at the amount then held and
    shrinks as holds end.
    """

    id: UUID
    tenant_path: str
    resource: str
    clusters: tuple[str, ...]
    nominal: int
    cap: int
    held: int

    def covers(self, cluster_name: str) -> bool:
        """Whether work on that cluster counts against this limit."""
        return not self.clusters or cluster_name in self.clusters


@dataclass(frozen=True, slots=True)
class HoldRequest:
    """What a holder (an attempt) requests for one tenant on one cluster, in base units by resource."""

    holder_id: UUID
    tenant_id: UUID
    tenant_path: str
    cluster_name: str
    amounts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class HoldRefusal:
    """Why a hold was refused. With `quota_exceeded`, the other fields name the limit that was exceeded."""

    code: Code
    message: str
    limit_id: UUID | None = None
    tenant_path: str = ""
    resource: str = ""
    cap: int = 0
    held: int = 0
    asked: int = 0


@dataclass(frozen=True, slots=True)
class Take:
    """One journal line."""

    holder_id: UUID
    limit_id: UUID
    amount: int


class Book:
    """Limits by tenant and resource; `taken` grows as requests are granted."""

    def __init__(self, limits: Iterable[Limit]) -> None:
        self._limits: dict[tuple[str, str], list[Limit]] = defaultdict(list)
        self.taken: dict[UUID, int] = defaultdict(int)
        for limit in limits:
            self._limits[limit.tenant_path, limit.resource].append(limit)

    def concerned(self, tenant_path: str, cluster_name: str, amounts: Mapping[str, int]) -> list[tuple[Limit, int]]:
        """The limits that this work counts against, root first, each with the amount."""
        wanted = [(resource, amount) for resource, amount in amounts.items() if amount > 0]
        return [
            (limit, amount)
            for path in path_prefixes(tenant_path)
            for resource, amount in wanted
            for limit in self._limits.get((path, resource), ())
            if limit.covers(cluster_name)
        ]

    def obstacle(self, concerned: Sequence[tuple[Limit, int]]) -> HoldRefusal | None:
        """The first limit from the root that the amounts exceed now."""
        for limit, amount in concerned:
            held = limit.held + self.taken[limit.id]
            if held + amount > limit.cap:
                return _exceeded(limit, held, amount)
        return None


def grant(
    requests: Sequence[HoldRequest], limits: Iterable[Limit]
) -> tuple[dict[UUID, HoldRefusal | None], tuple[Take, ...]]:
    """The outcome of each request in order (None = granted), and the journal lines of the granted ones."""
    book = Book(limits)
    outcomes: dict[UUID, HoldRefusal | None] = {}
    takes: list[Take] = []
    for request in requests:
        concerned = book.concerned(request.tenant_path, request.cluster_name, request.amounts)
        refusal = outcomes[request.holder_id] = book.obstacle(concerned)
        if refusal is None:
            for limit, amount in concerned:
                book.taken[limit.id] += amount
                takes.append(Take(request.holder_id, limit.id, amount))
    return outcomes, tuple(takes)


def never_fits(
    tenant_path: str, options: Sequence[tuple[str, Mapping[str, int]]], limits: Iterable[Limit]
) -> tuple[HoldRefusal, ...] | None:
    """None if an option (cluster name, amounts) fits under the nominal limits with nothing held; otherwise the reason
    per option.

    Without options there is no cluster to check, so nothing is refused.
    """
    book = Book(limits)
    refusals: list[HoldRefusal] = []
    for cluster_name, amounts in options:
        concerned = book.concerned(tenant_path, cluster_name, amounts)
        too_small = [(limit, amount) for limit, amount in concerned if amount > limit.nominal]
        if not too_small:
            return None
        refusals.append(_too_small(*too_small[0]))
    return tuple(refusals) or None


def path_prefixes(tenant_path: str) -> list[str]:
    """Paths of the tenant and all its ancestors, root first."""
    names = tenant_path.split("/")
    return ["/".join(names[:length]) for length in range(1, len(names) + 1)]


def _exceeded(limit: Limit, held: int, asked: int) -> HoldRefusal:
    def shown(amount: int) -> str:
        return format_amount(limit.resource, amount)

    where = f" on {', '.join(limit.clusters)}" if limit.clusters else ""
    return HoldRefusal(
        code="quota_exceeded",
        message=f"{limit.tenant_path} has a limit of {shown(limit.nominal)} {limit.resource}{where}: "
        f"{shown(held)} held, {shown(asked)} requested",
        limit_id=limit.id,
        tenant_path=limit.tenant_path,
        resource=limit.resource,
        cap=limit.cap,
        held=held,
        asked=asked,
    )


def _too_small(limit: Limit, asked: int) -> HoldRefusal:
    where = f" on {', '.join(limit.clusters)}" if limit.clusters else ""
    return HoldRefusal(
        code="quota_exceeded",
        message=f"{limit.tenant_path} has a limit of {format_amount(limit.resource, limit.nominal)} {limit.resource}"
        f"{where}, {format_amount(limit.resource, asked)} requested",
        limit_id=limit.id,
        tenant_path=limit.tenant_path,
        resource=limit.resource,
        cap=limit.nominal,
        asked=asked,
    )
