"""Maintenance windows: whole clusters, or nodes, that no job may use from a start to an end time.

A window is like an advance reservation that serves no tenant: a job may use the nodes before it only if its deadline,
counted from now, plus the turnover ends before the window starts. Jobs that name a reservation are no exception.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from .advance import closed_to, latest_end

STOPPING = timedelta(minutes=1)
"""The part of the turnover that stopping a job takes. The rest is for the way to its cluster: at its end, a job that was
placed in time may still be released.
"""


@dataclass(frozen=True, slots=True)
class MaintenanceWindow:
    """No job uses the nodes from `starts_at` until `until_at`; all nodes of the cluster, if it `is_whole`.

    `cluster` is the cluster's name.
    """

    id: UUID
    cluster_id: UUID
    cluster: str
    starts_at: datetime
    until_at: datetime
    is_whole: bool = True
    nodes: tuple[str, ...] = ()

    def covers(self, cluster_id: UUID, nodes: Collection[str]) -> bool:
        """Whether it concerns one of these nodes of a cluster."""
        return cluster_id == self.cluster_id and (self.is_whole or not set(self.nodes).isdisjoint(nodes))


def nodes_closed(
    windows: Iterable[MaintenanceWindow], cluster_id: UUID, deadline_seconds: int | None, now: datetime
) -> set[str]:
    """The nodes of a cluster that pods of a job which is released now must not use; those of windows of the whole cluster
    are not named: the job is not released.
    """
    parts = (one for one in windows if one.cluster_id == cluster_id and not one.is_whole)
    end = latest_end(now, deadline_seconds, STOPPING)
    return {node for one in closed_to(parts, end, now) for node in one.nodes}
