"""Quota limits in a cycle: the remainder of each limit on the path from the root of the tenant tree to a leaf."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from placement.values.model import LimitState

from .policies import prefixes_of


@dataclass(slots=True)
class LimitLine:
    """A quota limit in a cycle, with its remainder."""

    limit: LimitState
    left: int


Lines: TypeAlias = Mapping[str, Sequence[LimitLine]]
"""By resource, the limits that apply to a tenant on a cluster, from the root of the tree down."""
Charges: TypeAlias = Iterable[tuple[LimitLine, int]]
Refusal: TypeAlias = tuple[LimitLine, int]
"""A limit with too little left, and the requested amount."""


class LimitBook:
    """The quota limits of all tenants, by path."""

    def __init__(self, limits: Iterable[LimitState]) -> None:
        self._of_tenant: dict[str, list[LimitLine]] = {}
        self._of_path: dict[str, Lines] = {}
        self._of_place: dict[tuple[str, str], Lines] = {}
        for limit in sorted(limits, key=lambda one: one.id):
            self._of_tenant.setdefault(limit.tenant_path, []).append(LimitLine(limit, limit.cap - limit.held))

    def lines(self, tenant_path: str, cluster: str) -> Lines:
        """The limits from the root to the tenant that apply to its jobs on this cluster."""
        place = tenant_path, cluster
        lines = self._of_place.get(place)
        if lines is None:
            lines = self._of_place[place] = _on(cluster, self._path(tenant_path))
        return lines

    def _path(self, tenant_path: str) -> Lines:
        """The limits from the root to the tenant, on any cluster."""
        known = self._of_path.get(tenant_path)
        if known is not None:
            return known
        lines: dict[str, list[LimitLine]] = {}
        for path in prefixes_of(tenant_path):
            for line in self._of_tenant.get(path, ()):
                lines.setdefault(line.limit.resource, []).append(line)
        self._of_path[tenant_path] = lines
        return lines


def _on(cluster: str, lines: Lines) -> Lines:
    """The limits that apply on the cluster; the identical object if all apply everywhere."""
    if not any(line.limit.clusters for each in lines.values() for line in each):
        return lines
    return {
        resource: [line for line in each if not line.limit.clusters or cluster in line.limit.clusters]
        for resource, each in lines.items()
    }


def charges(lines: Lines, amounts: Mapping[str, int]) -> Charges:
    """What a job takes from each limit, by resource and then from the root down."""
    for resource, amount in amounts.items():
        if amount:
            for line in lines.get(resource, ()):
                yield line, amount


def refusing(lines: Lines, amounts: Mapping[str, int]) -> Refusal | None:
    """The first limit that does not allow the amounts."""
    for resource, amount in amounts.items():
        for line in lines.get(resource, ()):
            if line.left < amount and amount:
                return line, amount
    return None


def charge(lines: Lines, amounts: Mapping[str, int]) -> None:
    """Deducts the amounts from the limits."""
    for resource, amount in amounts.items():
        for line in lines.get(resource, ()):
            line.left -= amount
