"""What a tenant takes along when it moves in the tree: what its work holds, and what its limits guarantee."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias
from uuid import UUID

from .borrowing import path_prefixes
from .holds import Limit, bound, own_lines, parents, recounted

Known: TypeAlias = Mapping[tuple[str, str, tuple[str, ...]], UUID]


class Held(NamedTuple):
    """What work of a tenant holds on a cluster, in base units by resource."""

    tenant_path: str
    cluster: str
    amounts: Mapping[str, int]


class Overrun(NamedTuple):
    """A limit that would hold more than it may after the move."""

    limit: Limit
    """As it would be."""
    held: int
    """What it holds now."""
    most: int
    """What it may hold at its place after the move, borrowed quota included."""


def overruns(limits: Sequence[Limit], work: Iterable[Held], tenant_path: str, new_path: str) -> list[Overrun]:
    """The limits that would count more than now, and more than they may, if the tenant were at `new_path`.

    `limits` are all current ones of its organisation, `work` is all that is held at the tenant and below it.
    """
    before = {limit.id: limit.held for limit in limits}
    after = moved(limits, work, tenant_path, new_path)
    above = parents(after)
    found = ((one, bound(one, has_parent=above[one.id] is not None)) for one in after)
    return [Overrun(one, before[one.id], most) for one, most in found if one.held > max(most, before[one.id])]


def moved(limits: Sequence[Limit], work: Iterable[Held], tenant_path: str, new_path: str) -> list[Limit]:
    """The limits after the move, counted again. Work that counts at a limit that moves along still counts there; other work
    leaves the nearest limit above the old place for the nearest one above the new place.
    """
    there = [replace(one, tenant_path=_path(one.tenant_path, tenant_path, new_path)) for one in limits]
    along = {one.id for one, new in zip(limits, there, strict=True) if one.tenant_path != new.tenant_path}
    own = Counter(own_lines(limits))
    was, becomes = _known(limits), _known(there)
    scopes = {(one.resource, one.clusters) for one in limits}
    for held in work:
        goes_to = _path(held.tenant_path, tenant_path, new_path)
        for resource, clusters in scopes:
            amount = held.amounts.get(resource, 0)
            if not amount or (clusters and held.cluster not in clusters):
                continue
            now = _nearest(was, held.tenant_path, resource, clusters)
            then = _nearest(becomes, goes_to, resource, clusters)
            if now is not None and now not in along:
                own[now] -= amount
            if then is not None and then not in along:
                own[then] += amount
    return recounted(there, own)


def _path(path: str, tenant_path: str, new_path: str) -> str:
    is_below = f"{path}/".startswith(f"{tenant_path}/")
    return f"{new_path}{path.removeprefix(tenant_path)}" if is_below else path


def _known(limits: Iterable[Limit]) -> Known:
    return {(one.tenant_path, one.resource, one.clusters): one.id for one in limits}


def _nearest(known: Known, path: str, resource: str, clusters: tuple[str, ...]) -> UUID | None:
    found = (known.get((prefix, resource, clusters)) for prefix in reversed(path_prefixes(path)))
    return next((one for one in found if one is not None), None)
