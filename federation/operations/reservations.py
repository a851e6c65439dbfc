"""Makes, shortens and cancels advance reservations. Placement uses no node while a reservation is being made."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import F
from django.db.models.functions import Greatest, Least, Now

import quotas.operations
from federation.engine.intake.normal_form import request_of, shape_of, spec_json
from federation.engine.intake.reading import Faults, Fields, Refused
from federation.engine.intake.reservation_reading import Wanted, read_reservation
from federation.locks import rewrite_reservations
from federation.models import Reservation, ReservedNode
from federation.queries.feasibility import NeverFits, refuse_beyond_limits, refuse_unknown_clusters, wholes
from federation.queries.policies import policy_at
from federation.queries.reservations import OVER, may_change, no_shows, reservation_of, state_of
from federation.queries.submissions import field_errors
from federation.queries.vacancies import Vacancies, vacancies
from foundation import clock
from foundation.ids import new_id
from foundation.outbox import announce
from foundation.plain_json import instant
from foundation.problems import Conflict, FieldError, Invalid, Problem
from foundation.transactions import retried
from placement.answers.booking import Booking, book
from placement.fleet.policies import Policy
from placement.values.decisions import Reason
from placement.values.model import FleetCluster, JobRequest
from quotas.engine.amounts import format_amount
from tenancy.engine.roles import Permission
from tenancy.models import Tenant, User
from tenancy.operations import Answer, answer_once, record_audit
from tenancy.queries import SYSTEM, Actor, NotAllowedHere, tenant_by_path

from .submission import submitter_of

ROUTE = "reservations"
MOST_OPEN = 200
"""The most reservations of a tenant that have not ended."""
MOST_TOLD = 10


class NodesNotFree(Conflict):
    """No cluster has enough free nodes in that period."""

    code, title = "nodes_not_free", "The nodes are not free"


def make_reservation(
    actor: Actor, body: object, *, show: Callable[[Reservation], dict[str, Any]], key: str = "", raw: bytes = b""
) -> Answer:
    """201 and the new reservation as rendered by `show`, or the first answer to this key again.

    Its nodes are chosen now and do not change. Raises Invalid with every field at fault, NotFound or NotAllowedHere for
    the tenant, NeverFits and QuotaExceededForGood for a request that could never be honoured, NodesNotFree with
    what is missing on each cluster and who uses it, as far as the actor may see that, and ReservedBeyondQuota with what is
    reserved already of the limit that is too small.
    """
    now = clock.database_now()
    wanted = _read(body, now)
    tenant = tenant_by_path(actor, wanted.tenant_path, Permission.RESERVE)
    creator = submitter_of(actor)

    def produce() -> tuple[int, dict[str, Any]]:
        rewrite_reservations()
        _refuse_taken(tenant, wanted, now)
        booking = _booked(actor, tenant, wanted, now)
        row = _store(creator, tenant, wanted, booking)
        detail = {
            **_times(row),
            "name": row.name,
            "cluster": booking.cluster,
            "nodes": list(booking.nodes),
            "quota": {name: format_amount(name, amount) for name, amount in sorted(booking.amounts.items())},
        }
        _record(actor, "reservation.create", row, detail)
        return 201, show(reservation_of(actor, row.id))

    return answer_once(actor, tenant_id=tenant.id, route=ROUTE, key=key, body=raw, produce=produce)


def _read(body: object, now: datetime) -> Wanted:
    try:
        return read_reservation(body, now)
    except Refused as refused:
        raise Invalid(errors=field_errors(refused.faults)) from None


def _refuse_taken(tenant: Tenant, wanted: Wanted, now: datetime) -> None:
    kept = Reservation.objects.filter(tenant=tenant, cancelled_at__isnull=True)
    if kept.filter(name=wanted.name).exists():
        raise Conflict(f"{tenant.path} already has or had a reservation of this name.", code="reservation_name_taken")
    if kept.filter(until_at__gt=now).count() >= MOST_OPEN:
        raise Conflict(f"{tenant.path} has {MOST_OPEN} reservations that have not ended.", code="too_many_reservations")


@dataclass(frozen=True, slots=True)
class _Asked:
    """The request, in the terms of placement."""

    shape: JobRequest
    copies: int
    policy: Policy

    def on(self, clusters: Sequence[FleetCluster]) -> Booking | tuple[Reason, ...]:
        """The nodes to reserve on these clusters, or why none holds it."""
        return book(self.shape, self.copies, clusters, self.policy)

    def together(self, cluster: str) -> JobRequest:
        """All copies as one job on a cluster."""
        pod_sets = tuple(replace(pods, count=pods.count * self.copies) for pods in self.shape.pod_sets)
        return replace(self.shape, pod_sets=pod_sets, constraints=replace(self.shape.constraints, clusters=(cluster,)))


def _booked(actor: Actor, tenant: Tenant, wanted: Wanted, now: datetime) -> Booking:
    """The nodes, or the refusal."""
    asked = _Asked(_shape_request(tenant, wanted), wanted.count, policy_at(tenant.path))
    refuse_unknown_clusters(asked.shape)
    free = vacancies(wanted.starts_at, wanted.ends_at, now)
    booking = asked.on(free.clusters)
    if not isinstance(booking, Booking):
        raise _refusal(actor, asked, free, booking)
    refuse_beyond_limits(asked.together(booking.cluster), asked.policy)
    return booking


def _shape_request(tenant: Tenant, wanted: Wanted) -> JobRequest:
    stored = spec_json(wanted.shape)
    return request_of(stored, job_id=new_id(), tenant_path=tenant.path, shape=shape_of(stored))


def _refusal(actor: Actor, asked: _Asked, free: Vacancies, reasons: Sequence[Reason]) -> Problem:
    """Why no cluster could ever hold it, or why none has enough free nodes, with the reservations
    and jobs in conflict.
    """
    hopeless = asked.on(wholes())
    if not isinstance(hopeless, Booking):
        return NeverFits(
            f"No cluster can hold this reservation, even when empty. {_told(hopeless)}", errors=_errors(hopeless)
        )
    errors = [*_errors(reasons), *free.conflicts(actor, {reason.cluster for reason in reasons})]
    return NodesNotFree(f"No cluster has enough free nodes in that period. {_told(reasons)}", errors=errors)


def _told(reasons: Sequence[Reason]) -> str:
    return (
        "; ".join(f"{reason.cluster}: {reason.message}" for reason in reasons[:MOST_TOLD])
        or "There are no clusters yet."
    )


def _errors(reasons: Sequence[Reason]) -> list[FieldError]:
    return [FieldError(f"clusters.{reason.cluster}", reason.code, reason.message) for reason in reasons]


def _store(creator: User, tenant: Tenant, wanted: Wanted, booking: Booking) -> Reservation:
    quota = quotas.operations.reserve_quota(
        tenant, booking.cluster, booking.amounts, wanted.starts_at, wanted.ends_at, new=new_id()
    )
    row = Reservation.objects.create(
        id=quota.id,
        quota=quota,
        recall_seconds=wanted.recall_seconds,
        no_show_seconds=settings.RESERVATION_NO_SHOW_SECONDS or None,
        tenant=tenant,
        created_by=creator,
        cluster_id=booking.cluster_id,
        name=wanted.name,
        shape=_shape_json(wanted),
        count=wanted.count,
        starts_at=wanted.starts_at,
        ends_at=wanted.ends_at,
        until_at=wanted.ends_at,
    )
    ReservedNode.objects.bulk_create(
        ReservedNode(
            reservation=row,
            cluster_id=booking.cluster_id,
            node=node,
            starts_at=wanted.starts_at,
            until_at=wanted.ends_at,
        )
        for node in booking.nodes
    )
    return row


def _shape_json(wanted: Wanted) -> dict[str, Any]:
    stored = spec_json(wanted.shape)
    asked = ("name", "count", "cpu", "memory", "gpu")
    pod_sets = [{part: pods[part] for part in asked} for pods in stored["pod_sets"]]
    return {"pod_sets": pod_sets, "topology": stored["topology"], "constraints": stored["constraints"]}


def shorten_reservation(actor: Actor, reservation_id: UUID, body: object) -> Reservation:
    """The reservation with an earlier end: `{"ends_at": …}`. Jobs that run beyond it continue where they are.

    Raises NotFound, NotAllowedHere, Invalid, and Conflict if it has ended.
    """
    ends_at = _read_end(body)
    with transaction.atomic():
        return _shorten(actor, reservation_id, ends_at)


def _shorten(actor: Actor, reservation_id: UUID, ends_at: datetime) -> Reservation:
    rewrite_reservations()
    row = _changeable(actor, reservation_id)
    was = row.until_at
    if not max(clock.database_now(), row.starts_at) < ends_at <= was:
        told = "must be in the future, after the start and no later than the current end: a reservation can only be shortened"
        raise Invalid.field("ends_at", "out_of_range", told)
    if ends_at != was:
        _end(row, ends_at)
        row = reservation_of(actor, reservation_id)
        _record(actor, "reservation.shorten", row, {**_times(row), "before": instant(was)})
    return row


def cancel_reservation(actor: Actor, reservation_id: UUID) -> None:
    """Frees its nodes immediately; the row remains as history. Jobs that run there continue.

    Raises NotFound, NotAllowedHere, and Conflict if it has ended.
    """
    with transaction.atomic():
        rewrite_reservations()
        row = _changeable(actor, reservation_id)
        was = row.until_at
        _end(row, Greatest(Now(), F("starts_at")))
        Reservation.objects.filter(id=row.id).update(cancelled_at=Least(Now(), F("until_at")))
        row.refresh_from_db()
        _record(actor, "reservation.cancel", row, {**_times(row), "before": instant(was)})


def release_no_shows() -> int:
    """The number of reservations that end now because none of their jobs has come in the time that was set for that."""
    return sum(_release(reservation_id) for reservation_id in no_shows())


@retried
def _release(reservation_id: UUID) -> bool:
    with transaction.atomic():
        rewrite_reservations()
        if reservation_id not in no_shows():
            return False
        row = Reservation.objects.get(id=reservation_id)
        _end(row, Now())
        Reservation.objects.filter(id=row.id).update(released_at=F("until_at"))
        was = row.until_at
        row.refresh_from_db()
        detail = {**_times(row), "before": instant(was), "no_show_seconds": row.no_show_seconds}
        _record(SYSTEM, "reservation.release", row, detail)
    return True


def _end(row: Reservation, until_at: Any) -> None:
    """Ends the reservation, its nodes and its quota at an earlier time, or at that of an expression of the database."""
    if row.quota_id is None:
        Reservation.objects.filter(id=row.id).update(until_at=until_at)
    else:
        quotas.operations.end_reserved_quota(row.quota_id, until_at)


def _read_end(body: object) -> datetime:
    faults = Faults()
    ends_at = Fields(body, "", faults, frozenset(["ends_at"])).instant("ends_at", required=True)
    if ends_at is None or faults.found:
        raise Invalid(errors=field_errors(faults.found))
    return ends_at


def _changeable(actor: Actor, reservation_id: UUID) -> Reservation:
    row = reservation_of(actor, reservation_id)
    if not may_change(actor, row):
        raise NotAllowedHere(row.tenant, Permission.RESERVE)
    state = state_of(row, clock.database_now())
    if state in OVER:
        raise Conflict(f"The reservation is {state}.", code="state_conflict")
    return row


def _times(row: Reservation) -> dict[str, Any]:
    return {"starts_at": instant(row.starts_at), "ends_at": instant(row.until_at)}


def _record(actor: Actor, action: str, row: Reservation, detail: dict[str, Any]) -> None:
    record_audit(actor, action, object_kind="reservation", object_id=row.id, tenant_id=row.tenant_id, detail=detail)
    announce("cycle")
