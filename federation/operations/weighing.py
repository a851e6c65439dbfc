"""Weighs how attempts ended recently: nodes that make jobs fail are avoided, and retries wait while too much fails."""

import logging
from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from django.db import transaction
from django.db.models.functions import Now

import clusters.operations
from federation.engine.failures.brake import WINDOW, is_pulled
from federation.engine.failures.lemons import MOST_PERCENT, Lemon, find_lemons
from federation.models import RetryBrake
from federation.queries.failure_rates import NODE_PERIOD, latest_ends, node_runs, nodes_of_clusters
from foundation import clock
from foundation.outbox import announce
from foundation.transactions import retried

from .lost_work import record_missed, record_work_lost_on

log = logging.getLogger(__name__)
AVOIDED_FOR = timedelta(hours=12)


def weigh_failures() -> int:
    """The number of nodes that jobs avoid from now on."""
    now = clock.database_now()
    clusters.operations.end_avoidances(now)
    nodes = nodes_of_clusters()
    found = sum(_avoid(lemon, nodes.get(lemon.cluster, 0)) for lemon in find_lemons(node_runs(now), nodes))
    ends = latest_ends(now)
    pulled = {brake.cluster_id: brake for brake in RetryBrake.objects.filter(ended_at=None)}
    for cluster_id in {*ends.by_cluster, *(one for one in pulled if one is not None)}:
        _set_brake(cluster_id, ends.by_cluster.get(cluster_id, []), pulled.get(cluster_id))
    _set_brake(None, ends.overall, pulled.get(None))
    record_missed()
    return found


@retried
def _avoid(lemon: Lemon, nodes: int) -> bool:
    hours = int(NODE_PERIOD.total_seconds() // 3600)
    reason = (
        f"{lemon.failures} of its last {lemon.runs} runs failed, of {lemon.jobs} jobs and {lemon.groups} groups of tenants"
        f" ({lemon.expected:.1f} were to be expected in {hours} hours)."
    )
    evidence = {
        "failures": lemon.failures,
        "runs": lemon.runs,
        "jobs": lemon.jobs,
        "groups": lemon.groups,
        "expected": round(lemon.expected, 3),
        "chance": f"{lemon.chance:.1e}",
    }
    most = max(1, nodes * MOST_PERCENT // 100)
    cluster_id = UUID(lemon.cluster)
    with transaction.atomic():  # a kill in between would charge what the node made fail
        is_new = clusters.operations.avoid_node(cluster_id, lemon.node, reason, evidence, AVOIDED_FOR, most=most)
        if is_new:
            record_work_lost_on(cluster_id, lemon.node, NODE_PERIOD)
    return is_new


def _set_brake(cluster_id: UUID | None, failed: Sequence[bool], brake: RetryBrake | None) -> None:
    """Pulls or releases the brake, if what happened recently says so."""
    if is_pulled(failed, was_pulled=brake is not None) == (brake is not None):
        return
    with transaction.atomic():
        if brake is not None:
            RetryBrake.objects.filter(id=brake.id, ended_at=None).update(ended_at=Now())
        else:
            latest = failed[:WINDOW]
            row = RetryBrake(cluster_id=cluster_id, failures=sum(latest), attempts=len(latest))
            RetryBrake.objects.bulk_create([row], ignore_conflicts=True)
            where = f"on cluster {cluster_id}" if cluster_id else "everywhere"
            log.warning("retries wait %s: %d of the latest %d attempts failed", where, row.failures, row.attempts)
        announce("cycle")
