"""Advance reservations as placement needs them, and as their tenants see them."""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import Exists, OuterRef, Q, QuerySet, Value
from django.db.models.functions import Concat

import quotas.queries
from billing.engine.rating import whole_milliseconds
from billing.queries.pools import ReservedTime
from clusters.models import Flavor
from clusters.queries import fleet
from federation.engine.intake.spec import JobSpec
from federation.models import IS_LIVE, Reservation, ReservedNode
from foundation import clock
from foundation.problems import FieldError, Invalid, NotFound
from placement.fleet.policies import prefixes_of
from placement.values.advance import AdvanceReservation, longest_inside
from quotas.engine.reserving import Reserved, beyond
from quotas.models import Hold
from tenancy.engine.roles import Permission
from tenancy.models import Tenant
from tenancy.queries import Actor, permissions_at, tenant_by_path, visible_tenants

RESERVATION_FILTERS = ("tenant", "cluster", "state")
STATES = ("scheduled", "active", "ended", "released", "cancelled")
OVER = ("ended", "released", "cancelled")

OPEN = """
SELECT reservation.id, reservation.name, tenant.path, reservation.cluster_id, cluster.name, reservation.starts_at,
       reservation.until_at,
       (SELECT array_agg(reserved.node ORDER BY reserved.node) FROM federation_reservednode AS reserved
         WHERE reserved.reservation_id = reservation.id),
       reservation.recall_seconds, reservation.quota_id
  FROM federation_reservation AS reservation
  JOIN tenancy_tenant AS tenant ON tenant.id = reservation.tenant_id
  JOIN clusters_cluster AS cluster ON cluster.id = reservation.cluster_id
 WHERE reservation.until_at > %s AND reservation.until_at > reservation.starts_at
 ORDER BY reservation.starts_at, reservation.id
"""


def load_reservations(now: datetime) -> tuple[AdvanceReservation, ...]:
    """The reservations that have not ended, the earliest first. Two queries, one if there are none."""
    with connection.cursor() as cursor:
        cursor.execute(OPEN, [now])
        rows = cursor.fetchall()
    states = quotas.queries.reserved_states([quota_id for *_, quota_id in rows if quota_id is not None])
    found = []
    for row_id, name, path, cluster_id, cluster, starts_at, until_at, nodes, recall, quota_id in rows:
        kept = states.get(quota_id)
        one = AdvanceReservation(
            row_id, name, path, cluster_id, cluster, starts_at, until_at, tuple(nodes or ()), recall
        )
        found.append(one if kept is None else replace(one, reserved=kept.reserved, used=kept.used))
    return tuple(found)


NO_SHOWS = """
SELECT reservation.id FROM federation_reservation AS reservation
 WHERE reservation.until_at > statement_timestamp()
   AND reservation.starts_at <= statement_timestamp() - make_interval(secs => reservation.no_show_seconds)
   AND NOT EXISTS (SELECT FROM quotas_hold AS hold WHERE hold.within_id = reservation.quota_id)
   AND NOT EXISTS (SELECT FROM federation_job AS job
                    WHERE job.state = 'queued' AND job.spec->'constraints'->>'reservation' = reservation.id::text)
 ORDER BY reservation.id
"""


def no_shows() -> list[UUID]:
    """The reservations in force of which no job has taken quota or waits, though their time for that has passed."""
    with connection.cursor() as cursor:
        cursor.execute(NO_SHOWS)
        return [row_id for (row_id,) in cursor.fetchall()]


def quota_within(named: str, tenant_path: str, cluster: str) -> UUID | None:
    """The reserved quota that a job of a tenant which names this reservation is part of on this cluster; None if it is of none."""
    if not named:
        return None
    kept = quotas.queries.reserved_states([UUID(named)]).get(UUID(named))
    if kept is None or kept.cluster != cluster or not f"{tenant_path}/".startswith(f"{kept.tenant_path}/"):
        return None
    return kept.id


def with_reservation(spec: JobSpec, tenant: Tenant) -> JobSpec:
    """The spec with the id of the reservation that it names, by name or id: the tenant's own, or of the nearest tenant
    above it.

    Raises NotFound if there is none or it has ended, Invalid for a job whose deadline leaves no time to run in it.
    """
    wanted = spec.constraints.reservation
    if not wanted:
        return spec
    now = clock.database_now()
    found = _named(wanted, tenant.path, now)
    if found is None:
        error = FieldError(
            "constraints.reservation", "not_found", "this tenant has no such reservation, or it has ended"
        )
        raise NotFound("The constraints name a reservation that this tenant does not have.", errors=[error])
    longest = longest_inside(found, now)
    if spec.deadline_seconds > longest:
        told = f"a job in the reservation {found.name} can run for at most {longest} seconds"
        raise Invalid.field("deadline_seconds", "out_of_range", told)
    return replace(spec, constraints=replace(spec.constraints, reservation=str(found.id)))


def _named(wanted: str, tenant_path: str, now: datetime) -> AdvanceReservation | None:
    serving = [one for one in load_reservations(now) if one.serves(tenant_path)]
    by_id = next((one for one in serving if str(one.id) == wanted), None)
    named = [one for one in serving if one.name == wanted]
    return by_id or max(named, key=lambda one: len(one.tenant_path), default=None)


def reserved_on(reservation_id: str) -> UUID | None:
    """The cluster of a reservation."""
    return Reservation.objects.filter(id=reservation_id).values_list("cluster_id", flat=True).first()


def reserved_times(cluster_ids: Collection[UUID], start: datetime, until: datetime) -> tuple[ReservedTime, ...]:
    """The nodes that tenants had reserved in [start, until), as billing needs them."""
    rows = ReservedNode.objects.filter(cluster__in=cluster_ids, starts_at__lt=until, until_at__gt=start)
    return tuple(
        ReservedTime(
            row.cluster_id, row.node, row.reservation.tenant_id, row.reservation.tenant.path,
            whole_milliseconds(row.starts_at), whole_milliseconds(row.until_at),
        )
        for row in rows.select_related("reservation__tenant").order_by("id")
        if row.starts_at < row.until_at
    )  # fmt: skip


def visible_reservations(actor: Actor) -> QuerySet[Reservation]:
    """Reservations of the tenants that the actor may see, and of those above them, which serve them."""
    seen = visible_tenants(actor)
    below = seen.filter(path__startswith=Concat(OuterRef("tenant__path"), Value("/")))
    rows = Reservation.objects.filter(Q(tenant__in=seen) | Exists(below))
    return rows.select_related("tenant", "created_by", "cluster").prefetch_related("reserved_nodes")


def reservation_of(actor: Actor, reservation_id: UUID) -> Reservation:
    """The reservation; NotFound if there is none or the actor may not see it."""
    row = visible_reservations(actor).filter(id=reservation_id).first()
    if row is None:
        raise NotFound
    return row


def filtered_reservations(actor: Actor, query: Mapping[str, str]) -> QuerySet[Reservation]:
    """Visible reservations narrowed by `RESERVATION_FILTERS`: those that serve a tenant or one below it, a cluster's
    name, states (comma-separated).
    """
    rows = visible_reservations(actor)
    if "tenant" in query:
        path = tenant_by_path(actor, query["tenant"]).path
        rows = rows.filter(Q(tenant__path__in=prefixes_of(path)) | Q(tenant__path__startswith=f"{path}/"))
    if "cluster" in query:
        rows = rows.filter(cluster__name=query["cluster"])
    if "state" in query:
        rows = rows.filter(_in_states(query["state"].split(","), clock.database_now()))
    return rows


def _in_states(states: Iterable[str], now: datetime) -> Q:
    kept = Q(cancelled_at__isnull=True)
    conditions = {
        "scheduled": kept & Q(starts_at__gt=now),
        "active": kept & Q(starts_at__lte=now, until_at__gt=now),
        "ended": kept & Q(until_at__lte=now, released_at__isnull=True),
        "released": Q(released_at__isnull=False),
        "cancelled": ~kept,
    }
    wanted = Q(pk__in=[])
    for state in states:
        if state not in conditions:
            raise Invalid.field("state", "unknown_value", f"one or more of: {', '.join(STATES)}")
        wanted |= conditions[state]
    return wanted


def state_of(row: Reservation, now: datetime) -> str:
    """One of STATES: it follows only from the times, so a reservation ends automatically."""
    if row.cancelled_at is not None:
        return "cancelled"
    if row.released_at is not None:
        return "released"
    if row.until_at <= now:
        return "ended"
    return "scheduled" if row.starts_at > now else "active"


def has_been_used(row: Reservation) -> bool:
    """Whether one of its jobs has taken quota of it."""
    return row.quota_id is not None and Hold.objects.filter(within=row.quota_id).exists()


def may_change(actor: Actor, row: Reservation) -> bool:
    """Whether the actor may shorten or cancel it."""
    return Permission.RESERVE in permissions_at(actor, row.tenant)


@dataclass(frozen=True, slots=True)
class NodeStanding:
    """A reserved node, with why it cannot be used; empty if it can."""

    name: str
    trouble: str


@dataclass(frozen=True, slots=True)
class Amounts:
    """Devices, millicores, MiB."""

    gpus: int = 0
    cpu_millicores: int = 0
    memory_mib: int = 0

    def plus(self, other: "Amounts", times: int = 1) -> "Amounts":
        """The sum."""
        return Amounts(
            self.gpus + other.gpus * times,
            self.cpu_millicores + other.cpu_millicores * times,
            self.memory_mib + other.memory_mib * times,
        )


@dataclass(frozen=True, slots=True)
class QuotaLine:
    """Reserved quota of one resource, in base units, and what pending holds of the reservation's jobs use of it."""

    resource: str
    reserved: int
    used: int


@dataclass(frozen=True, slots=True)
class ReservationView:
    """A reservation with its nodes as they are now, and what its jobs use of them.

    `room` is the total of the usable nodes, `used` is what the reservation's jobs use of it, and `idle_nodes` is the
    number of usable nodes that run none of its jobs. `quota` is what counts for it, and `beyond` says which limit allows less
    than what is reserved, because it was lowered; empty if none.
    """

    row: Reservation
    state: str
    nodes: tuple[NodeStanding, ...]
    room: Amounts
    used: Amounts
    jobs: int
    idle_nodes: int
    quota: tuple[QuotaLine, ...] = ()
    beyond: str = ""

    @property
    def release_at(self) -> datetime | None:
        """When it is released, unless one of its jobs comes before; None if it is not, or has ended."""
        row = self.row
        if row.no_show_seconds is None or self.state in OVER:
            return None
        return row.starts_at + timedelta(seconds=row.no_show_seconds)

    @property
    def unused(self) -> Amounts:
        """The part of the room that jobs do not use; 0 if nodes went down under them."""
        left = self.room.plus(self.used, times=-1)
        return Amounts(max(0, left.gpus), max(0, left.cpu_millicores), max(0, left.memory_mib))

    @property
    def shortage(self) -> str:
        """`2 of 4 nodes are down`; empty if none is."""
        down = [node for node in self.nodes if node.trouble]
        are = "is" if len(down) == 1 else "are"
        return f"{len(down)} of {len(self.nodes)} nodes {are} down" if down else ""


USED = f"""
SELECT job.spec->'constraints'->>'reservation', attempt.id, object.gpu_units, object.cpu_millicores, object.memory_mib,
       object.assumed_nodes::text
  FROM federation_attempt AS attempt
  JOIN federation_job AS job ON job.id = attempt.job_id
  JOIN federation_remoteobject AS object ON object.attempt_id = attempt.id AND object.outcome = ''
 WHERE attempt.state {IS_LIVE} AND attempt.cluster_id = ANY(%s)
   AND job.spec->'constraints'->>'reservation' = ANY(%s)
"""


@dataclass(slots=True)
class _Use:
    amounts: Amounts
    attempts: set[UUID]
    nodes: set[str]


def views_of(rows: Sequence[Reservation], now: datetime) -> list[ReservationView]:
    """The current state of the reservations. A few queries, whatever their number."""
    going = [row for row in rows if state_of(row, now) in ("scheduled", "active")]
    uses = _uses(going) if going else {}
    known = {view.id: {node.name: node for node in view.nodes} for view in fleet()} if going else {}
    gpu_flavors = set(
        Flavor.objects.filter(cluster__in={row.cluster_id for row in going})
        .exclude(gpu_model="")
        .values_list("cluster_id", "name")
    )
    quota = quotas.queries.reserved_states([row.quota_id for row in rows if row.quota_id is not None])
    beyond = _beyond({row.tenant.path for row in going if row.quota_id is not None}, now)
    views = [_view(row, now, uses.get(str(row.id)), known.get(row.cluster_id, {}), gpu_flavors) for row in rows]
    return [
        replace(view, quota=_quota_lines(quota.get(view.row.id)), beyond=beyond.get(view.row.id, "")) for view in views
    ]


def _quota_lines(kept: Reserved | None) -> tuple[QuotaLine, ...]:
    if kept is None:
        return ()
    used = dict(kept.used)
    return tuple(QuotaLine(resource, amount, used.get(resource, 0)) for resource, amount in kept.reserved if amount)


def _beyond(tenant_paths: Collection[str], now: datetime) -> dict[UUID, str]:
    """By reservation from now on, in the organisations of these tenants, the limit that allows less than what is reserved."""
    found: dict[UUID, str] = {}
    for path in sorted({path.partition("/")[0] for path in tenant_paths}):
        limits = quotas.queries.limits_of_organisation(path)
        if limits:
            over = beyond(limits, quotas.queries.reserved_in(path, now))
            found |= {reservation_id: one.mark for reservation_id, one in over.items()}
    return found


def _view(
    row: Reservation, now: datetime, use: _Use | None, known: Mapping[str, Any], gpu_flavors: set[tuple[UUID, str]]
) -> ReservationView:
    state, use = state_of(row, now), use or _Use(Amounts(), set(), set())
    names = sorted(reserved.node for reserved in row.reserved_nodes.all())
    if state in OVER:
        return ReservationView(row, state, tuple(NodeStanding(name, "") for name in names), Amounts(), Amounts(), 0, 0)
    standings: list[NodeStanding] = []
    room = Amounts()
    for name in names:
        node = known.get(name)
        trouble = "no longer on its cluster" if node is None else "" if node.is_usable else node.why_unusable
        standings.append(NodeStanding(name, trouble))
        if node is not None and not trouble:
            gpus = sum(units for flavor, units in node.devices.items() if (row.cluster_id, flavor) in gpu_flavors)
            room = room.plus(Amounts(gpus, node.cpu_millicores, node.memory_mib))
    usable = {standing.name for standing in standings if not standing.trouble}
    idle = len(usable - use.nodes)
    return ReservationView(row, state, tuple(standings), room, use.amounts, len(use.attempts), idle)


def _uses(rows: Sequence[Reservation]) -> Mapping[str, _Use]:
    """By reservation, what the live attempts of jobs that name it use."""
    uses: dict[str, _Use] = defaultdict(lambda: _Use(Amounts(), set(), set()))
    with connection.cursor() as cursor:
        ids = [str(row.id) for row in rows]
        cursor.execute(USED, [list({row.cluster_id for row in rows}), ids])
        for reservation, attempt, *each, assumed in cursor.fetchall():
            use, nodes = uses[reservation], json.loads(assumed)
            use.amounts = use.amounts.plus(Amounts(*map(int, each)), sum(nodes.values()))
            use.attempts.add(attempt)
            use.nodes |= set(nodes)
    return uses


def names_of(reservation_ids: Iterable[str]) -> Mapping[str, str]:
    """Names by id. One query, or none."""
    ids = list(reservation_ids)
    rows = Reservation.objects.filter(id__in=ids).values_list("id", "name") if ids else ()
    return {str(row_id): name for row_id, name in rows}


def reservation_ids(spec: Mapping[str, Any]) -> list[str]:
    """The reservation that a stored spec names, if any."""
    named = (spec.get("constraints") or {}).get("reservation")
    return [named] if named else []
