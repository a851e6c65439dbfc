"""Quota limits in a cycle: what is left of each on the way from the root of the tenant tree to a leaf."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from .model import LimitState


@dataclass(slots=True)
class LimitLine:
    """A quota limit in a cycle, with what is left of it."""

    limit: LimitState
    left: int


Charges: TypeAlias = list[tuple[LimitLine, int]]
Refusal: TypeAlias = tuple[LimitLine, int]
"""A limit that has too little left, and the amount asked of it."""


class LimitBook:
    """The quota limits of all tenants, by path."""

    def __init__(self, limits: Iterable[LimitState]) -> None:
        self._of_tenant: dict[str, list[LimitLine]] = {}
        self._of_path: dict[str, dict[str, list[LimitLine]]] = {}
        for limit in sorted(limits, key=lambda one: one.id):
            self._of_tenant.setdefault(limit.tenant_path, []).append(LimitLine(limit, limit.cap - limit.held))

    def charges(self, tenant_path: str, cluster: str, amounts: Mapping[str, int]) -> Charges:
        """What a job of this tenant on this cluster takes from each limit between the root and the tenant."""
        lines = self._path(tenant_path)
        return [
            (line, amount)
            for resource, amount in amounts.items()
            for line in lines.get(resource, ())
            if amount and (not line.limit.clusters or cluster in line.limit.clusters)
        ]

    def _path(self, tenant_path: str) -> dict[str, list[LimitLine]]:
        """The limits from the root to the tenant, by resource."""
        lines = self._of_path.get(tenant_path)
        if lines is None:
            lines = self._of_path[tenant_path] = {}
            steps = tenant_path.split("/")
            for depth in range(1, len(steps) + 1):
                for line in self._of_tenant.get("/".join(steps[:depth]), ()):
                    lines.setdefault(line.limit.resource, []).append(line)
        return lines


def refusing(charges: Charges) -> Refusal | None:
    """The first limit that is in the way: by resource, then from the root."""
    for line, amount in charges:
        if line.left < amount:
            return line, amount
    return None


def charge(charges: Charges) -> None:
    """Takes the amounts."""
    for line, amount in charges:
        line.left -= amount
