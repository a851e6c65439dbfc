"""Which part of the fleet a job may use while nodes are reserved or in maintenance: one visible fleet for all jobs that
see the same part.

A job that names no reservation sees the fleet without the nodes of reservations that it would overlap. A job that names
one sees only its nodes. No job sees the nodes of maintenance windows that it would overlap. Each visible fleet has its
own state, so that within a cycle it only shrinks; what is taken in one is taken in all. Without reservations and
windows there is one visible fleet, of all nodes.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import NamedTuple, TypeAlias
from uuid import UUID

from placement.fleet.budgets import BudgetBook
from placement.fleet.eligibility import ELSEWHERE, OUTSIDE, as_of
from placement.fleet.fleet import Fleet
from placement.fleet.fleet_state import FleetState
from placement.fleet.limits import LimitBook
from placement.fleet.policies import PolicyBook
from placement.fleet.siting import Need, Site
from placement.ranking.contest import Verdict
from placement.values.advance import (
    AdvanceReservation,
    closed_to,
    counted_beside,
    kept_from,
    latest_end,
    longest_inside,
    named_by,
)
from placement.values.decisions import Closure, Placement, Reason
from placement.values.maintenance import MaintenanceWindow
from placement.values.model import JobRequest, Snapshot
from placement.values.preemption import RoomClaim, claims_of_others
from placement.values.quantities import duration_text
from placement.values.reason_codes import ReasonCode

from .backfill import Backfill
from .holding_out import patient
from .idle_nodes import idle_on
from .scopes import Scope, Scopes
from .timeline import instant_text
from .verdicts import WAITING_FOR_ROOM, verdict_on


class Gate(NamedTuple):
    """Why jobs that name a reservation cannot run at all now."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Sight:
    """What a job sees: the reservations whose nodes are `closed` to it, or, if it names one, the
    one it is `inside` of; less the nodes of `windows`, and those that it avoids.
    """

    closed: tuple[AdvanceReservation, ...] = ()
    inside: AdvanceReservation | None = None
    gate: Gate | None = None
    avoided: tuple[tuple[UUID, str], ...] = ()
    """Nodes, each with its cluster, that the job avoids."""
    windows: tuple[MaintenanceWindow, ...] = ()
    """The maintenance windows that it could run into, the earliest first."""
    claims: tuple[RoomClaim, ...] = ()
    """The nodes that are kept for other jobs, for which running ones are being stopped."""
    others: tuple[AdvanceReservation, ...] = ()
    """If it is inside of one, the other reservations that it would overlap, as far as they keep quota."""
    within: RoomClaim | None = None
    """The place that is kept for it, if it sees nothing else: where it failed and starts again."""

    @property
    def counted(self) -> tuple[AdvanceReservation, ...]:
        """The reservations whose quota is kept from the job."""
        return self.closed if self.inside is None else self.others


def sight_of(job: JobRequest, snapshot: Snapshot) -> Sight:
    """What the job sees now. Jobs that name the same reservation, or none, and have equal tenants and deadlines see the
    same.
    """
    reservations, now = snapshot.reservations, snapshot.now
    avoided, end = job.constraints.avoid_nodes, latest_end(now, job.deadline_seconds)
    windows, claims = closed_to(snapshot.windows, end, now), claims_of_others(snapshot.claims, job.id, end)
    if not job.constraints.reservation:
        return Sight(kept_from(reservations, end, now), avoided=avoided, windows=windows, claims=claims)
    inside = named_by(job.constraints.reservation, job.tenant_path, reservations)
    if inside is None or inside.until_at <= now:
        return Sight(gate=Gate(ReasonCode.RESERVATION_OVER, "the reservation that it names has ended or was cancelled"))
    others = counted_beside(job.constraints.reservation, job.tenant_path, end, reservations, now)
    gate = _gate(job, inside, now)
    return Sight(inside=inside, gate=gate, avoided=avoided, windows=windows, claims=claims, others=others)


def horizon(queue: Iterable[JobRequest], now: datetime) -> datetime | None:
    """The time by which a job has ended that starts when another one ends, which starts now, if both run as long as the
    longest in the queue; None if some job has no deadline.
    """
    longest = 0
    for job in queue:
        if job.deadline_seconds is None:
            return None
        longest = max(longest, job.deadline_seconds)
    return latest_end(now, 2 * longest)


def seen_through(sight: Sight, job: JobRequest, now: datetime) -> JobRequest:
    """The job with its constraints as they are now, narrowed to the cluster of the reservation that it names."""
    job = as_of(job, now)
    if sight.inside is None:
        return job
    return replace(job, constraints=replace(job.constraints, reserved_on=sight.inside.cluster_id))


def _gate(job: JobRequest, inside: AdvanceReservation, now: datetime) -> Gate | None:
    if not inside.is_in_force(now):
        begins = instant_text(inside.starts_at, now)
        return Gate(
            ReasonCode.WAITING_FOR_RESERVATION, f"its reservation {inside.name} begins {begins} on {inside.cluster}"
        )
    longest = longest_inside(inside, now)
    if job.deadline_seconds is None or job.deadline_seconds > longest:
        until = instant_text(inside.until_at, now)
        if job.deadline_seconds is None:
            limit = "has no deadline_seconds"
        else:
            limit = f"may run for {duration_text(job.deadline_seconds)} by its deadline_seconds"
        return Gate(ReasonCode.RESERVATION_TOO_SHORT, f"it {limit}, but its reservation {inside.name} ends {until}")
    return None


def respects(job: JobRequest, placement: Placement, snapshot: Snapshot) -> bool:
    """Whether a placement that was decided on an older snapshot respects the reservations and windows of this one."""
    sight = sight_of(job, snapshot)
    used = {name for placed in placement.pod_sets for name in placed.nodes}
    if any(one.covers(placement.cluster_id, used) for one in sight.windows):
        return False
    if sight.inside is not None:
        on_it = placement.cluster_id == sight.inside.cluster_id and used <= set(sight.inside.nodes)
        return on_it and sight.gate is None
    closed = (one for one in sight.closed if one.cluster_id == placement.cluster_id)
    return sight.gate is None and not any(used & set(one.nodes) for one in closed)


def state_seen(fleet: Fleet, sight: Sight, now: datetime) -> FleetState:
    """The fleet as seen before the cycle allocates anything."""
    state = FleetState(fleet)
    for reservation in sight.closed:
        words = f"until {instant_text(reservation.until_at, now)}"
        if reservation.starts_at > now:
            begins = instant_text(reservation.starts_at, now)
            words = f"from {begins} on; a job whose deadline_seconds ends before that can use it"
        for number, positions in _positions(fleet, reservation).items():
            why = Closure(ReasonCode.KEPT_FOR_RESERVATION, f"has room, but it is reserved {words}")
            state.reserve(number, dict.fromkeys(positions, why))
    if sight.inside is not None:
        own = _positions(fleet, sight.inside)
        for number in own:
            everything = range(len(fleet.pools[number].node_names))
            state.close(number, set(everything) - set(own[number]))
    if sight.avoided:
        _close_avoided(sight.avoided, state)
    if sight.within is not None:
        _close_all_but(sight.within, state)
    for claim in sight.claims:
        _keep_claimed(claim, state)
    for window in reversed(sight.windows):  # the earliest window has the last word on nodes of several
        _close_for(window, state, now)
    return state


def _close_avoided(avoided: Iterable[tuple[UUID, str]], state: FleetState) -> None:
    for number, pool in enumerate(state.fleet.pools):
        names = {node for cluster_id, node in avoided if cluster_id == pool.cluster.id}
        if positions := [position for position, name in enumerate(pool.node_names) if name in names]:
            state.close(number, positions)


def _close_all_but(claim: RoomClaim, state: FleetState) -> None:
    for number, cluster in enumerate(state.fleet.clusters):
        if cluster.id != claim.cluster_id:
            state.close_cluster(number, Closure(ReasonCode.KEPT_FOR_URGENT, "its place is on another cluster"))
    for number, positions in _positions(state.fleet, claim).items():
        state.close(number, set(range(len(state.fleet.pools[number].node_names))) - set(positions))


STOPPED_FOR = "others are being stopped for"
WHOM = {
    "shrunk": "is stopped for a more urgent one",
    "grows": "goes on with more pods",
    "moves": "is being moved there",
    "again_here": "failed there and starts again",
}
"""For which job a place is kept, by the kind of its claim."""


def _keep_claimed(claim: RoomClaim, state: FleetState) -> None:
    why = Closure(
        ReasonCode.KEPT_FOR_URGENT, f"has room, but it is kept for a job that {WHOM.get(claim.kind, STOPPED_FOR)}"
    )
    for number, positions in _positions(state.fleet, claim).items():
        state.reserve(number, dict.fromkeys(positions, why))


def _close_for(window: MaintenanceWindow, state: FleetState, now: datetime) -> None:
    """Closes the nodes of a maintenance window."""
    if window.starts_at > now:
        when = f"begins {instant_text(window.starts_at, now)}; the job could run into it"
        when = f"{when}, unless its deadline_seconds ends before"
    else:
        when = f"lasts until {instant_text(window.until_at, now)}"
    if not window.is_whole:
        why = Closure(ReasonCode.MAINTENANCE, f"has room, but on nodes whose maintenance {when}")
        for number, positions in _positions(state.fleet, window).items():
            state.reserve(number, dict.fromkeys(positions, why))
        return
    for number, cluster in enumerate(state.fleet.clusters):
        if cluster.id == window.cluster_id:
            state.close_cluster(number, Closure(ReasonCode.MAINTENANCE, f"its maintenance {when}"))


def _positions(fleet: Fleet, closed: AdvanceReservation | MaintenanceWindow | RoomClaim) -> Mapping[int, list[int]]:
    """The positions of its nodes in the pools of its cluster; the result has every pool of the cluster."""
    names = set(closed.nodes)
    return {
        number: [position for position, name in enumerate(pool.node_names) if name in names]
        for number, pool in enumerate(fleet.pools)
        if pool.cluster.id == closed.cluster_id
    }


class VisibleFleet:
    """The fleet as some jobs see it, with what a cycle has learned about them."""

    def __init__(self, snapshot: Snapshot, fleet: Fleet, book: LimitBook, budgets: BudgetBook, sight: Sight) -> None:
        self.sight = sight
        self.state = state_seen(fleet, sight, snapshot.now)
        self.scopes = Scopes(snapshot, self.state)
        self.lender = Backfill(snapshot, self.state, book, budgets, self.scopes, sight.counted)
        self._fleet = fleet
        self._now = snapshot.now

    @cached_property
    def beginning(self) -> FleetState:
        """The fleet as it was before the cycle."""
        return state_seen(self._fleet, self.sight, self._now)

    def scope(self, job: JobRequest) -> Scope:
        """The job's scope; with the verdict of those that cannot run at all now."""
        scope = self.scopes.of(job)
        if self.sight.gate is not None and scope.verdict is None:
            reasons = tuple(gate_reason(self.sight, self._fleet, number) for number in scope.contest.audience.clusters)
            scope.verdict = Verdict(*self.sight.gate, reasons)
        return scope

    def verdict(self, job: JobRequest, scope: Scope) -> Verdict:
        """Why a job that found no place waits."""
        found, inside = verdict_on(job, scope.contest, scope.refusals, self.beginning), self.sight.inside
        if inside is None or found.code not in WAITING_FOR_ROOM:
            return found
        return found._replace(
            code=ReasonCode.RESERVATION_FULL, message=f"in its reservation {inside.name}: {found.message}"
        )


def gate_reason(sight: Sight, fleet: Fleet, number: int) -> Reason:
    """Why a job does not run on cluster `number` that cannot run at all now."""
    assert sight.gate is not None
    cluster = fleet.clusters[number]
    if sight.inside is not None and cluster.id != sight.inside.cluster_id:
        return Reason(cluster.name, OUTSIDE, ELSEWHERE, is_for_good=True)
    return Reason(cluster.name, *sight.gate)


Change: TypeAlias = Callable[[FleetState], None]
_Kind: TypeAlias = tuple[str, str, int | None, tuple[tuple[UUID, str], ...], UUID | None]


class Visibility:
    """All visible fleets of a cycle, each made for the first job that sees it."""

    def __init__(self, snapshot: Snapshot, fleet: Fleet, book: LimitBook, budgets: BudgetBook) -> None:
        self._snapshot, self._fleet, self._book, self._budgets = snapshot, fleet, book, budgets
        self._fleets: dict[Sight, VisibleFleet] = {}
        self._fleets_by_kind: dict[_Kind, VisibleFleet] = {}
        self._policies = PolicyBook(snapshot.policies)
        self._holders = {claim.job_id for claim in snapshot.claims}
        self._places = {claim.job_id: claim for claim in snapshot.claims if claim.kind == "again_here"}
        self._all_see_all = not snapshot.reservations and not snapshot.windows and not snapshot.claims
        self._are_several = not self._all_see_all or any(job.constraints.avoid_nodes for job in snapshot.queue)
        self._changes: list[Change] = []
        """What has been taken and kept so far, for visible fleets that are made later."""

    def of(self, job: JobRequest) -> tuple[JobRequest, VisibleFleet]:
        """The job with its constraints as they are now, and the fleet that it sees."""
        named, avoided = job.constraints.reservation, job.constraints.avoid_nodes
        if self._all_see_all and not named and not avoided:
            seen = self.strictest
        else:
            holder = job.id if job.id in self._holders else None
            kind = (named, job.tenant_path if named else "", job.deadline_seconds, avoided, holder)
            found = self._fleets_by_kind.get(kind)
            seen = self._fleets_by_kind[kind] = found or self._fleet_of(sight_of(job, self._snapshot))
        return patient(seen_through(seen.sight, job, self._snapshot.now), self._snapshot, self._policies), seen

    def kept_place(self, job: JobRequest) -> VisibleFleet | None:
        """What is kept of the fleet for the job where it failed, to start again; None if nothing is."""
        claim = self._places.get(job.id)
        return None if claim is None else self._fleet_of(replace(self.of(job)[1].sight, within=claim))

    def idle_places(self, placed: Collection[UUID]) -> dict[UUID, dict[str, int]]:
        """What is free, by claim, on the nodes that are kept for other jobs than these to start again, in base units; of those
        whose attempts are settled: until then, what these hold counts.
        """
        state = self.strictest.state if self._places else None
        return {
            claim.id: idle_on(_positions(self._fleet, claim), state)
            for job_id, claim in self._places.items()
            if state is not None and job_id not in placed and not (claim.leaving and claim.leaving.amounts)
        }

    def counted(self, job: JobRequest) -> tuple[AdvanceReservation, ...]:
        """The reservations whose quota is kept from the job."""
        return self.of(job)[1].sight.counted if self._snapshot.reservations else ()

    @cached_property
    def strictest(self) -> VisibleFleet:
        """The fleet without reserved nodes, and without those of windows before the horizon: every job of the queue that
        names no reservation sees at least this part.
        """
        now, windows = self._snapshot.now, self._snapshot.windows
        met = closed_to(windows, horizon(self._snapshot.queue, now), now) if windows else ()
        closed = kept_from(self._snapshot.reservations, None, now)
        return self._fleet_of(Sight(closed, windows=met, claims=self._snapshot.claims))

    def holds_claim(self, job: JobRequest) -> bool:
        """Whether nodes are kept for the job because others are being stopped for it."""
        return job.id in self._holders

    def _fleet_of(self, sight: Sight) -> VisibleFleet:
        seen = self._fleets.get(sight)
        if seen is None:
            seen = self._fleets[sight] = VisibleFleet(self._snapshot, self._fleet, self._book, self._budgets, sight)
            for change in self._changes:
                change(seen.state)
        return seen

    def take(self, number: int, need: Need, found: Site) -> None:
        """Deducts a pod set from its nodes in every visible fleet."""
        self._change(lambda state: state.take(number, need, found))

    def hide(self, number: int, nodes: tuple[int, ...], until: datetime | None) -> None:
        """Keeps nodes from every later job."""
        self._change(lambda state: state.hide(number, nodes, until))

    def _change(self, change: Change) -> None:
        for seen in self._fleets.values():
            change(seen.state)
        if self._are_several:
            self._changes.append(change)
