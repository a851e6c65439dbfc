"""Advance reservations: nodes of a cluster that a tenant uses exclusively from a start to an end time.

Nodes are reserved whole. A job may use nodes before a reservation only if its deadline, counted from now, plus the
turnover ends before the reservation starts; inside a reservation, only if it ends before the reservation does. A reservation
with a recall time also lends what its jobs do not use to jobs that end within that time. The
deadline is a hard end, because a run is stopped there. Learned run times are not used: one run in ten takes longer.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol, TypeVar
from uuid import UUID

TURNOVER = timedelta(minutes=2)
"""The time to dispatch a job to its cluster, and to stop it there after its deadline."""


class Period(Protocol):
    """What closes nodes from a start to an end time."""

    @property
    def id(self) -> UUID: ...

    @property
    def starts_at(self) -> datetime: ...

    @property
    def until_at(self) -> datetime: ...


_Period = TypeVar("_Period", bound=Period)


@dataclass(frozen=True, slots=True)
class AdvanceReservation:
    """Nodes reserved from `starts_at` until `until_at` for jobs that name the reservation, of a tenant and those below
    it.

    `cluster` is the cluster's name. Nodes that the cluster no longer has are missing. `reserved` is the quota that counts for
    it, by resource in base units, and `used` what its jobs hold of that now; empty if it was made without.
    """

    id: UUID
    name: str
    tenant_path: str
    cluster_id: UUID
    cluster: str
    starts_at: datetime
    until_at: datetime
    nodes: tuple[str, ...]
    recall_seconds: int | None = None
    """Jobs that end within this time may use its unused nodes and quota; None: only its own jobs."""
    reserved: tuple[tuple[str, int], ...] = ()
    used: tuple[tuple[str, int], ...] = field(default=(), compare=False)

    def is_in_force(self, now: datetime) -> bool:
        """Whether it has started and not ended."""
        return self.starts_at <= now < self.until_at

    def serves(self, tenant_path: str) -> bool:
        """Whether jobs of that tenant may name it."""
        return tenant_path == self.tenant_path or tenant_path.startswith(f"{self.tenant_path}/")

    def lends_to(self, end: datetime | None, now: datetime) -> bool:
        """Whether a job that names no reservation, starts now and ends at `end`, ends soon enough to use what is unused."""
        if self.recall_seconds is None or end is None:
            return False
        return end - now <= timedelta(seconds=self.recall_seconds)


def latest_end(now: datetime, deadline_seconds: int | None, turnover: timedelta = TURNOVER) -> datetime | None:
    """The latest time at which a job placed now frees its nodes; None if it has no deadline."""
    return None if deadline_seconds is None else now + timedelta(seconds=deadline_seconds) + turnover


def closed_to(periods: Iterable[_Period], end: datetime | None, now: datetime) -> tuple[_Period, ...]:
    """The maintenance windows that a job which ends at `end` would overlap; the earliest first."""
    met = (one for one in periods if one.until_at > now and (end is None or one.starts_at < end))
    return tuple(sorted(met, key=lambda one: (one.starts_at, one.id)))


def kept_from(
    reservations: Iterable[AdvanceReservation], end: datetime | None, now: datetime
) -> tuple[AdvanceReservation, ...]:
    """The reservations that a job of none of them, which ends at `end`, would overlap and that lend it nothing; the earliest
    first.
    """
    return tuple(one for one in closed_to(reservations, end, now) if not one.lends_to(end, now))


def named_by(named: str, tenant_path: str, reservations: Sequence[AdvanceReservation]) -> AdvanceReservation | None:
    """The reservation with this id; None if there is none, or if it does not serve the tenant."""
    return next((one for one in reservations if str(one.id) == named and one.serves(tenant_path)), None)


def counted_beside(
    named: str, tenant_path: str, end: datetime | None, reservations: Sequence[AdvanceReservation], now: datetime
) -> tuple[AdvanceReservation, ...]:
    """The reservations whose quota is kept from a job that starts now and ends at `end`: all that it would overlap and that
    lend it nothing, except the one that it names.
    """
    inside = named_by(named, tenant_path, reservations)
    kept = kept_from(reservations, end, now)
    return tuple(one for one in kept if one.reserved and (inside is None or one.id != inside.id))


def longest_inside(reservation: AdvanceReservation, now: datetime) -> int:
    """The longest deadline, in seconds, of a job that fits in the reservation now; 0 if none fits."""
    left = reservation.until_at - max(now, reservation.starts_at) - TURNOVER
    return max(0, int(left.total_seconds()))


@dataclass(frozen=True, slots=True)
class Bounds:
    """Nodes by name: `only` these may run the pods (any node, if empty), and these may `never`."""

    only: tuple[str, ...] = ()
    never: tuple[str, ...] = ()

    def without(self, nodes: Iterable[str]) -> "Bounds":
        """Less these nodes, unless that leaves none."""
        avoided = set(nodes)
        if not avoided:
            return self
        if self.only:
            return Bounds(only=tuple(node for node in self.only if node not in avoided) or self.only)
        return Bounds(never=tuple(sorted(avoided.union(self.never))))


def bounds_of(
    named: str, tenant_path: str, end: datetime | None, reservations: Sequence[AdvanceReservation], now: datetime
) -> Bounds:
    """The nodes of a cluster with these reservations that may run a job which is released now and ends at `end`."""
    inside = named_by(named, tenant_path, reservations)
    if inside is not None and inside.is_in_force(now):
        return Bounds(only=inside.nodes)
    return Bounds(never=tuple(sorted({node for one in kept_from(reservations, end, now) for node in one.nodes})))
