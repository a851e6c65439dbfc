"""Advance reservations: nodes of a cluster that a tenant has to itself from one instant to another.

Nodes are reserved whole. What keeps others off is an end that nothing can pass: a run is stopped at its deadline, so a job
may use nodes before they are reserved only if its deadline, counted from now, and the turnover lie before; inside a
reservation only if they lie before its end. What history tells of run times is not asked: one run in ten takes longer.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

TURNOVER = timedelta(minutes=2)
"""To hand a job to its cluster, and to stop it there once its deadline is over."""


@dataclass(frozen=True, slots=True)
class AdvanceReservation:
    """Nodes kept for jobs of a tenant, and of those below it, that name the reservation, from `starts_at` until `until_at`.

    `cluster` is the cluster's name; nodes that it does not have any more are missing.
    """

    id: UUID
    name: str
    tenant_path: str
    cluster_id: UUID
    cluster: str
    starts_at: datetime
    until_at: datetime
    nodes: tuple[str, ...]

    def is_in_force(self, now: datetime) -> bool:
        """Whether it has begun and is not over."""
        return self.starts_at <= now < self.until_at

    def serves(self, tenant_path: str) -> bool:
        """Whether jobs of that tenant may name it."""
        return tenant_path == self.tenant_path or tenant_path.startswith(f"{self.tenant_path}/")


def latest_end(now: datetime, deadline_seconds: int | None) -> datetime | None:
    """When nodes are free again at the latest of a job that is placed now; None if nothing ever stops it."""
    return None if deadline_seconds is None else now + timedelta(seconds=deadline_seconds) + TURNOVER


def closed_to(
    reservations: Iterable[AdvanceReservation], end: datetime | None, now: datetime
) -> tuple[AdvanceReservation, ...]:
    """Those that a job which names none, and is over at `end`, would run into; the soonest first."""
    met = (one for one in reservations if one.until_at > now and (end is None or one.starts_at < end))
    return tuple(sorted(met, key=lambda one: (one.starts_at, one.id)))


def named_by(named: str, tenant_path: str, reservations: Sequence[AdvanceReservation]) -> AdvanceReservation | None:
    """The reservation of this id as a job of the tenant sees it; None if it is not there for it."""
    return next((one for one in reservations if str(one.id) == named and one.serves(tenant_path)), None)


def longest_inside(reservation: AdvanceReservation, now: datetime) -> int:
    """How long a job that it serves may be allowed to run at most: by its deadline, in seconds; 0 for not at all."""
    left = reservation.until_at - max(now, reservation.starts_at) - TURNOVER
    return max(0, int(left.total_seconds()))


@dataclass(frozen=True, slots=True)
class Bounds:
    """Nodes by name: those on which pods may stand `only` (any, if empty), and those on which they may `never`."""

    only: tuple[str, ...] = ()
    never: tuple[str, ...] = ()


def bounds_of(
    named: str, tenant_path: str, end: datetime | None, reservations: Sequence[AdvanceReservation], now: datetime
) -> Bounds:
    """Where on a cluster with these reservations a job's pods may stand that is released now and is over at `end`."""
    inside = named_by(named, tenant_path, reservations)
    if inside is not None and inside.is_in_force(now):
        return Bounds(only=inside.nodes)
    return Bounds(never=tuple(sorted({node for one in closed_to(reservations, end, now) for node in one.nodes})))
