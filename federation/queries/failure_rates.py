"""How attempts ended recently, per node and per cluster: the input for finding nodes that make jobs fail, and for the brake
on retries.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import Count

import clusters.queries
from clusters.models import Node
from federation.engine.failures.brake import WINDOW
from federation.engine.failures.lemons import NodeRun
from federation.engine.failures.rules import NOT_OURS, FailureClass
from federation.engine.retries import Cause
from federation.models import RetryBrake
from placement.values.reason_codes import ReasonCode

NODE_PERIOD = timedelta(hours=24)
BRAKE_PERIOD = timedelta(hours=1)
FAST = timedelta(minutes=2)
"""A run of an unknown or a program's own failure is blamed on its node only if it ended this soon."""
MOST_ATTEMPTS = 20_000
BLAMED = sorted({FailureClass.NODE.value, FailureClass.DEVICE.value})
BLAMED_IF_FAST = sorted({FailureClass.UNKNOWN.value, FailureClass.PROGRAM.value})
FAILED_BY_INFRASTRUCTURE = sorted(
    {
        ReasonCode.DID_NOT_START,
        ReasonCode.STARTED_IN_PART,
        ReasonCode.CREATE_FAILED,
        ReasonCode.PODS_GONE,
        Cause.INFRASTRUCTURE,
        Cause.NODE_LOST,
    }
)
NO_EVIDENCE = [
    ReasonCode.CANCELLED,
    ReasonCode.CLUSTER_DRAINING,
    ReasonCode.MAINTENANCE_AHEAD,
    ReasonCode.MAINTENANCE_BEGAN,
    ReasonCode.PREEMPTED_FOR_JOB,
    ReasonCode.LIMIT_LOWERED,
    ReasonCode.MIGRATED,
    ReasonCode.BLOCKED_IN_PART,
    ReasonCode.RUN_DEAD,
]
"""Ends that say nothing of the cluster."""

IS_BLAMED = """
       coalesce(diagnosis.node = pod.node AND (diagnosis.failure_class = ANY(%(blamed)s) OR diagnosis.own_class = ANY(%(blamed)s)
                OR diagnosis.own_class = ANY(%(if_fast)s) AND ended.finished_at - ended.started_at < %(fast)s), false)"""
"""A column for a statement on a pod and its attempt, `ended`: whether its failure is blamed on its node."""
BLAME = {"blamed": BLAMED, "if_fast": BLAMED_IF_FAST, "fast": FAST}
RUNS = f"""
WITH ended AS (
    SELECT id, cluster_id, job_id, finished_at, started_at FROM federation_attempt
     WHERE settled_at > %(since)s AND started_at IS NOT NULL ORDER BY settled_at DESC LIMIT %(most)s
)
SELECT DISTINCT ended.cluster_id, pod.node, ended.job_id, tenant.path, owner.path, ended.finished_at,
       {IS_BLAMED}
  FROM ended
  JOIN federation_podrun AS pod ON pod.attempt_id = ended.id AND pod.node <> ''
  JOIN federation_job AS job ON job.id = ended.job_id
  JOIN tenancy_tenant AS tenant ON tenant.id = job.tenant_id
  JOIN clusters_cluster AS cluster ON cluster.id = ended.cluster_id AND cluster.removed_at IS NULL
  JOIN tenancy_tenant AS owner ON owner.id = cluster.owner_id
  LEFT JOIN federation_diagnosis AS diagnosis ON diagnosis.attempt_id = ended.id AND diagnosis.judged_at IS NOT NULL
"""
LATEST = """
WITH ended AS (
    SELECT id, cluster_id, end_reason, finished_at FROM federation_attempt
     WHERE settled_at > %(since)s AND finished_at > %(since)s
     UNION ALL
    SELECT id, cluster_id, end_reason, finished_at FROM federation_attempt
     WHERE settled_at IS NULL AND finished_at > %(since)s
), numbered AS (
    SELECT ended.cluster_id, ended.finished_at,
           ended.end_reason = ANY(%(infrastructure)s) OR coalesce(diagnosis.own_class = ANY(%(ours)s), false) AS failed,
           row_number() OVER (PARTITION BY ended.cluster_id ORDER BY ended.finished_at DESC, ended.id) AS number
      FROM ended
      LEFT JOIN federation_diagnosis AS diagnosis ON diagnosis.attempt_id = ended.id AND diagnosis.judged_at IS NOT NULL
     WHERE ended.end_reason <> ALL(%(no_evidence)s)
)
SELECT cluster_id, failed FROM numbered WHERE number <= %(window)s ORDER BY finished_at DESC
"""


@dataclass(frozen=True, slots=True)
class Ends:
    """Whether the latest attempts failed because of the infrastructure, the newest first: by cluster, and of all."""

    by_cluster: Mapping[UUID, list[bool]]
    overall: list[bool]


def node_runs(now: datetime) -> list[NodeRun]:
    """The runs of the last day on each node. What was seen of a node before jobs last stopped avoiding it does not count."""
    asked: dict[str, Any] = {"since": now - NODE_PERIOD, "most": MOST_ATTEMPTS, **BLAME}
    ends = clusters.queries.last_ends()
    with connection.cursor() as cursor:
        cursor.execute(RUNS, asked)
        rows = cursor.fetchall()
    return [
        NodeRun(str(cluster_id), node, str(job_id), group_of(path, owner), is_blamed)
        for cluster_id, node, job_id, path, owner, finished_at, is_blamed in rows
        if (ended_at := ends.get((cluster_id, node))) is None or finished_at > ended_at
    ]


def group_of(tenant_path: str, owner_path: str) -> str:
    """All tenants below one child of the cluster's owner are one group: only the owner can make another child."""
    below = tenant_path.removeprefix(owner_path).lstrip("/")
    return below.partition("/")[0]


def nodes_of_clusters() -> Mapping[str, int]:
    """The number of nodes of each cluster."""
    rows = Node.objects.values_list("cluster_id").annotate(count=Count("id")).order_by()
    return {str(cluster_id): count for cluster_id, count in rows}


def latest_ends(now: datetime) -> Ends:
    """The latest attempts of the last hour."""
    asked: dict[str, Any] = {
        "since": now - BRAKE_PERIOD, "infrastructure": FAILED_BY_INFRASTRUCTURE, "ours": sorted(NOT_OURS),
        "no_evidence": NO_EVIDENCE, "window": WINDOW,
    }  # fmt: skip
    by_cluster: dict[UUID, list[bool]] = defaultdict(list)
    overall: list[bool] = []
    with connection.cursor() as cursor:
        cursor.execute(LATEST, asked)
        for cluster_id, failed in cursor.fetchall():
            by_cluster[cluster_id].append(failed)
            overall.append(failed)
    return Ends(by_cluster, overall)


@dataclass(frozen=True, slots=True)
class BrakeView:
    """A brake on retries that is pulled: on this cluster, or on all if it names none."""

    cluster: str
    began_at: datetime
    failures: int
    attempts: int


def brakes() -> tuple[BrakeView, ...]:
    """The brakes that are pulled, that on all clusters first."""
    rows = RetryBrake.objects.filter(ended_at=None).select_related("cluster").order_by("cluster__name")
    found = [
        BrakeView(row.cluster.name if row.cluster else "", row.began_at, row.failures, row.attempts) for row in rows
    ]
    return tuple(sorted(found, key=lambda one: one.cluster))
