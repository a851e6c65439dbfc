"""Which nodes could be reserved for a period, and what prevents it on the others."""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from django.db import connection

import clusters.queries
from clusters.queries import NodeView
from federation.engine.lifecycle import AttemptState
from federation.models import IS_LIVE
from federation.queries.offered import foreign_use, node_of
from federation.queries.reservations import load_reservations, visible_reservations
from federation.queries.snapshot import load_fleet
from federation.queries.windows import load_windows
from foundation.problems import FieldError
from placement.cycle.timeline import instant_text
from placement.values.advance import TURNOVER, AdvanceReservation, latest_end
from placement.values.model import FleetCluster, FleetNode
from tenancy.queries import Actor, visible_tenants

RESERVED = "reserved for others in that period"
BUSY = "in use by jobs that may run past its start"
MAINTENANCE = "in maintenance in that period"
MOST_NAMED = 10

LIVE = f"""
SELECT attempt.cluster_id, attempt.state, attempt.released_at, job.id, job.name, tenant.path,
       (job.spec->>'deadline_seconds')::int, object.assumed_nodes::text,
       (SELECT array_agg(pod.node) FROM federation_podrun AS pod
         WHERE pod.attempt_id = attempt.id AND pod.position = object.position AND pod.node <> ''
           AND pod.finished_at IS NULL AND NOT pod.is_gone)
  FROM federation_attempt AS attempt
  JOIN federation_job AS job ON job.id = attempt.job_id
  JOIN tenancy_tenant AS tenant ON tenant.id = job.tenant_id
  JOIN federation_remoteobject AS object ON object.attempt_id = attempt.id AND object.outcome = ''
 WHERE attempt.state {IS_LIVE}
 ORDER BY attempt.id, object.position
"""


@dataclass(frozen=True, slots=True)
class Occupation:
    """Nodes that a job occupies, and until when at the latest; None if unknown."""

    cluster_id: UUID
    job_id: UUID
    job: str
    tenant_path: str
    until: datetime | None
    nodes: frozenset[str]


@dataclass(frozen=True, slots=True)
class Vacancies:
    """The clusters as they are without our jobs, with nodes that are not free in time marked unusable."""

    clusters: tuple[FleetCluster, ...]
    reserved: tuple[AdvanceReservation, ...]
    """The reservations that overlap."""
    busy: tuple[Occupation, ...]
    """Jobs that may run past the start."""
    now: datetime

    def conflicts(self, actor: Actor, names: Collection[str]) -> list[FieldError]:
        """The reservations and jobs on nodes of the named clusters that the actor may see; the
        others are only counted.
        """
        shown = set(visible_reservations(actor).values_list("id", flat=True))
        paths = set(visible_tenants(actor).values_list("path", flat=True))
        found = []
        for cluster in (one for one in self.clusters if one.name in names):
            reserved = [one for one in self.reserved if one.cluster_id == cluster.id]
            busy = [one for one in self.busy if one.cluster_id == cluster.id]
            told = [_reserved_text(one, self.now) for one in reserved if one.id in shown]
            hidden = sum(len(one.nodes) for one in reserved if one.id not in shown)
            found += _told(f"clusters.{cluster.name}.reservations", "reserved", told, hidden, "reserved for others")
            told = [_busy_text(one, self.now) for one in busy if one.tenant_path in paths]
            hidden = len(frozenset().union(*(one.nodes for one in busy if one.tenant_path not in paths)))
            found += _told(f"clusters.{cluster.name}.jobs", "busy", told, hidden, "in use by others' jobs")
        return found


def vacancies(starts_at: datetime, until_at: datetime, now: datetime) -> Vacancies:
    """What could be reserved from a start to an end."""
    reserved = tuple(one for one in load_reservations(now) if one.starts_at < until_at and starts_at < one.until_at)
    busy = tuple(one for one in _occupations(now) if one.until is None or one.until > starts_at)
    why: dict[tuple[UUID, str], str] = {(one.cluster_id, node): BUSY for one in busy for node in one.nodes}
    why |= {(one.cluster_id, node): RESERVED for one in reserved for node in one.nodes}
    views = {view.id: view.nodes for view in clusters.queries.fleet()}
    for one in load_windows(now):
        if one.starts_at < until_at and starts_at < one.until_at:
            names = [node.name for node in views.get(one.cluster_id, ())] if one.is_whole else one.nodes
            why |= {(one.cluster_id, node): MAINTENANCE for node in names}
    found = (replace(one, nodes=_vacant(one.id, views.get(one.id, ()), why)) for one in load_fleet(now))
    return Vacancies(tuple(found), reserved, busy, now)


def _occupations(now: datetime) -> Iterable[Occupation]:
    with connection.cursor() as cursor:
        cursor.execute(LIVE)
        rows = cursor.fetchall()
    for cluster_id, state, released_at, job_id, job, path, deadline_seconds, assumed, seen in rows:
        # an attempt on a silent cluster may be released when the cluster reconnects
        is_lost = released_at is None and state == AttemptState.UNKNOWN
        until = None if is_lost else latest_end(released_at or now, deadline_seconds)
        if until is not None and until <= now:
            until = now + TURNOVER  # overdue, and still running
        yield Occupation(cluster_id, job_id, job, path, until, frozenset(json.loads(assumed)) | frozenset(seen or ()))


def _vacant(cluster_id: UUID, nodes: Sequence[NodeView], why: Mapping[tuple[UUID, str], str]) -> tuple[FleetNode, ...]:
    return tuple(node_of(node, foreign_use(node), why_not=why.get((cluster_id, node.name), "")) for node in nodes)


def _reserved_text(one: AdvanceReservation, now: datetime) -> str:
    times = f"{instant_text(one.starts_at, now)} to {instant_text(one.until_at, now)}"
    return f"reservation {one.name} of {one.tenant_path} holds {_nodes(len(one.nodes))} from {times}"


def _busy_text(one: Occupation, now: datetime) -> str:
    until = "for an unknown time" if one.until is None else f"until {instant_text(one.until, now)}"
    return f"job {one.job} ({one.job_id}) of {one.tenant_path} may run {until} on {_nodes(len(one.nodes))}"


def _told(field: str, code: str, told: Sequence[str], hidden: int, by_others: str) -> list[FieldError]:
    counted = Counter(told)
    found = [FieldError(field, code, text) for text in list(counted)[:MOST_NAMED]]
    if len(counted) > MOST_NAMED:
        found.append(FieldError(field, code, f"and {len(counted) - MOST_NAMED} more"))
    return found + [FieldError(field, code, f"{_nodes(hidden)} {by_others}")] * bool(hidden)


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"
