"""The nodes that claimed attempts may use if they are released now: those that reservations leave to them, less those that
they avoid and those of maintenance that they could run into.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from clusters.queries import avoided_names
from federation.queries.avoided_nodes import avoided_nodes
from federation.queries.reservations import load_reservations
from federation.queries.windows import load_windows
from placement.values.advance import Bounds, bounds_of, latest_end
from placement.values.maintenance import nodes_closed

MAY_BE_BOUNDED = """(
    EXISTS (SELECT FROM federation_reservation AS reservation WHERE reservation.until_at > statement_timestamp())
    OR EXISTS (SELECT FROM clusters_maintenancewindow AS planned
                WHERE planned.cancelled_at IS NULL AND planned.ends_at > statement_timestamp())
    OR EXISTS (SELECT FROM clusters_avoidednode AS avoided WHERE avoided.ended_at IS NULL)
    OR EXISTS (SELECT FROM federation_attempt AS earlier
                 JOIN federation_diagnosis AS diagnosis ON diagnosis.attempt_id = earlier.id
                WHERE earlier.job_id = attempt.job_id AND diagnosis.avoid = 'node'
                  AND diagnosis.avoid_until > statement_timestamp())
)"""
"""A column for a statement on `attempt`. False, which is usual, saves the four queries that say which nodes."""


@dataclass(frozen=True, slots=True)
class Stay:
    """An attempt on its cluster, from now to its deadline; `reservation`: the id of the one that its job names, or empty."""

    job_id: UUID
    cluster_id: UUID
    tenant_path: str
    reservation: str
    deadline_seconds: int
    now: datetime
    may_be_bounded: bool


def bounds_of_stays(stays: Sequence[Stay]) -> list[Bounds]:
    """The bounds of each. Four queries, or none if no node is kept from any of them."""
    if not any(stay.may_be_bounded for stay in stays):
        return [Bounds()] * len(stays)
    now = stays[0].now
    reservations, windows, lemons = load_reservations(now), load_windows(now), avoided_names()
    by_job = avoided_nodes(now, [stay.job_id for stay in stays])
    found = []
    for stay in stays:
        here = [one for one in reservations if one.cluster_id == stay.cluster_id]
        end = latest_end(stay.now, stay.deadline_seconds)
        closed = nodes_closed(windows, stay.cluster_id, stay.deadline_seconds, stay.now)
        own = {node for cluster_id, node in by_job.get(stay.job_id, ()) if cluster_id == stay.cluster_id}
        bounds = bounds_of(stay.reservation, stay.tenant_path, end, here, stay.now)
        found.append(bounds.without(closed).without(own.union(lemons.get(stay.cluster_id, ()))))
    return found
