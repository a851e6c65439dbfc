"""How jobs fared on one node and on each of its devices, beside the other nodes: for people who look for a bad one."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import QuerySet

from clusters.models import AvoidedNode, Cluster, Node, NodeOffer
from clusters.queries.avoided import AvoidedView, view_of
from clusters.queries.visible import cluster_by_id, require_at_owner
from federation.engine.claimed import is_node_name, short_names
from federation.engine.failures.facts import DEVICE_TEXTS
from federation.engine.failures.rates import Rate
from federation.models import PodRun
from federation.queries.failure_rates import BLAME, IS_BLAMED
from federation.queries.failures import taint_text
from foundation.clock import database_now
from foundation.problems import NotFound
from tenancy.engine.roles import Permission
from tenancy.queries import Actor, visible_tenants

PERIOD = timedelta(days=30)
MOST_PODS = 10_000
"""The newest of a node that its summary counts, however many ran there."""
MOST_ATTEMPTS = 10_000
"""The newest of all that the rate of other nodes is of."""
WHOLE_NODE = ""
SUMMARY = f"""
WITH pod AS MATERIALIZED (
    SELECT * FROM (
        SELECT id, attempt_id, cluster_id, uid, part, node, devices, first_seen_at FROM federation_podrun
         WHERE cluster_id = %(cluster)s AND node = %(node)s AND node <> '' ORDER BY id DESC LIMIT %(most)s
    ) AS newest WHERE first_seen_at > %(since)s
), metered AS (
    SELECT pod.id, max(meter.gpu_units) AS units,
           sum(extract(epoch FROM meter.metered_until - meter.metered_from) * meter.gpu_units * meter.gpu_numerator
               / meter.gpu_denominator) / 3600 AS gpu_hours
      FROM pod CROSS JOIN LATERAL generate_series(0, pod.part) AS each(part)
      JOIN billing_meter AS meter ON meter.cluster_id = pod.cluster_id
       AND meter.source_uid = pod.uid || CASE each.part WHEN 0 THEN '' ELSE '~' || each.part END
     GROUP BY pod.id
), ran AS (
    SELECT pod.attempt_id, ended.job_id, ended.finished_at, pod.devices, coalesce(metered.units, 0) AS units,
           coalesce(metered.gpu_hours, 0) AS gpu_hours,
           CASE WHEN diagnosis.node = pod.node THEN diagnosis.own_class END AS class,
           {IS_BLAMED} AS is_blamed
      FROM pod JOIN federation_attempt AS ended ON ended.id = pod.attempt_id AND ended.started_at IS NOT NULL
      LEFT JOIN metered ON metered.id = pod.id
      LEFT JOIN federation_diagnosis AS diagnosis ON diagnosis.attempt_id = ended.id AND diagnosis.judged_at IS NOT NULL
)
SELECT device.name, ran.class, grouping(ran.class) = 1, count(DISTINCT ran.attempt_id),
       count(DISTINCT ran.job_id) FILTER (WHERE ran.finished_at IS NOT NULL),
       count(DISTINCT ran.job_id) FILTER (WHERE ran.is_blamed),
       round(sum(ran.gpu_hours / CASE device.name WHEN '' THEN 1 ELSE cardinality(ran.devices) END), 6),
       max(ran.finished_at) FILTER (WHERE ran.class IS NOT NULL),
       count(DISTINCT ran.attempt_id) FILTER (WHERE ran.units > 0 AND ran.devices = '{{}}')
  FROM ran CROSS JOIN LATERAL unnest(array_prepend('', ran.devices)) AS device(name)
 GROUP BY GROUPING SETS ((device.name), (device.name, ran.class))
"""
OTHERS = f"""
WITH ended AS (
    SELECT * FROM (
        SELECT id, cluster_id, job_id, settled_at, started_at, finished_at FROM federation_attempt ORDER BY id DESC LIMIT %(most)s
    ) AS newest WHERE settled_at > %(since)s AND started_at IS NOT NULL
), ran AS (
    SELECT pod.cluster_id, pod.node, ended.job_id, bool_or({IS_BLAMED}) AS is_blamed
      FROM ended
      JOIN clusters_cluster AS cluster ON cluster.id = ended.cluster_id AND cluster.owner_id = %(owner)s
      JOIN federation_podrun AS pod ON pod.attempt_id = ended.id AND pod.node <> ''
       AND (pod.cluster_id, pod.node) <> (%(cluster)s, %(node)s)
      LEFT JOIN federation_diagnosis AS diagnosis ON diagnosis.attempt_id = ended.id AND diagnosis.judged_at IS NOT NULL
     GROUP BY 1, 2, 3
)
SELECT count(*) FILTER (WHERE is_blamed), count(*) FROM ran
"""


@dataclass(frozen=True, slots=True)
class Tally:
    """What ran on a node, or with one of its devices. A run with several devices, and its failure, counts for each of them,
    its GPU-hours only in part.
    """

    device: str
    """As driver/pool/name; empty for the whole node."""
    name: str
    runs: int
    gpu_hours: Decimal
    failures: Mapping[str, int]
    """The runs that failed here, by the class that the gateway itself found; the most frequent first."""
    rate: Rate
    """Of the jobs that ended, those with a failure that is blamed on the node."""
    last_failed_at: datetime | None


@dataclass(frozen=True, slots=True)
class NodeSummary:
    """A node of a cluster, also one that left."""

    cluster: Cluster
    name: str
    present: Node | None
    """Its row; None if the cluster has no such node now."""
    faults: tuple[str, ...]
    """Its taints that report a failed device."""
    avoided: AvoidedView | None
    """The period in which jobs avoid it now."""
    since: datetime
    whole: Tally
    devices: tuple[Tally, ...]
    others: Rate
    """Of the jobs on all other nodes of its owner's clusters."""
    runs_without_devices: int
    """Runs with GPUs of which the cluster did not say which."""


def node_of(actor: Actor, cluster_id: UUID, name: str) -> tuple[Cluster, Node | None]:
    """The cluster, and the node's row if it is there. NotFound for a node that the cluster never had, and for a cluster that the actor
    may not see; NotAllowedHere for one that the actor does not manage: what ran there belongs to all its tenants.
    """
    cluster = cluster_by_id(actor, cluster_id)
    require_at_owner(actor, cluster)
    if not is_node_name(name):
        raise NotFound
    node = Node.objects.filter(cluster=cluster, name=name).first()
    was_there = node or NodeOffer.objects.filter(cluster=cluster, node=name).exists()
    if not was_there and not pods_on(cluster_id, name).exists():
        raise NotFound
    return cluster, node


def managed_clusters(actor: Actor, cluster_ids: Collection[UUID]) -> frozenset[UUID]:
    """Those of the clusters that the actor manages. One query, or none without clusters."""
    if not cluster_ids:
        return frozenset()
    owners = visible_tenants(actor, Permission.MANAGE_CLUSTERS)
    return frozenset(Cluster.objects.filter(id__in=cluster_ids, owner__in=owners).values_list("id", flat=True))


def pods_on(cluster_id: UUID, node: str) -> QuerySet[PodRun]:
    """The pods on a node. They are read by index: `exclude` repeats the index's condition."""
    return PodRun.objects.filter(cluster_id=cluster_id, node=node).exclude(node="")


def node_summary(actor: Actor, cluster_id: UUID, name: str) -> NodeSummary:
    """How jobs fared there in the last 30 days, of at most the newest 10,000 pods. Raises as `node_of` does."""
    cluster, node = node_of(actor, cluster_id, name)
    since = database_now() - PERIOD
    asked: dict[str, Any] = {
        "cluster": cluster.id, "node": name, "owner": cluster.owner_id, "since": since, **BLAME,
    }  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute(SUMMARY, {**asked, "most": MOST_PODS})
        rows = cursor.fetchall()
        cursor.execute(OTHERS, {**asked, "most": MOST_ATTEMPTS})
        others = Rate(*cursor.fetchone())
    tallies = _tallies(rows)
    whole = tallies.pop(WHOLE_NODE, Tally(WHOLE_NODE, name, 0, Decimal(0), {}, Rate(0, 0), None))
    avoided = AvoidedNode.objects.filter(cluster=cluster, node=name, ended_at=None).order_by("-id").first()
    return NodeSummary(
        cluster=cluster,
        name=name,
        present=node,
        faults=_faults(node.taints) if node else (),
        avoided=view_of(avoided) if avoided else None,
        since=since,
        whole=whole,
        devices=tuple(sorted(tallies.values(), key=lambda one: _in_order(one.device))),
        others=others,
        runs_without_devices=next((row[-1] for row in rows if row[0] == WHOLE_NODE and row[2]), 0),
    )


def _tallies(rows: Sequence[Sequence[Any]]) -> dict[str, Tally]:
    by_class: dict[str, dict[str, int]] = defaultdict(dict)
    for device, failure_class, is_sum, runs, *_ in rows:
        if not is_sum and failure_class is not None:
            by_class[device][failure_class] = runs
    named = short_names(row[0] for row in rows if row[2] and row[0] != WHOLE_NODE)
    return {
        device: Tally(
            device=device,
            name=named.get(device, ""),
            runs=runs,
            gpu_hours=hours,
            failures=dict(sorted(by_class[device].items(), key=lambda one: (-one[1], one[0]))),
            rate=Rate(blamed, jobs),
            last_failed_at=last,
        )
        for device, _, is_sum, runs, jobs, blamed, hours, last, _ in rows
        if is_sum
    }


def _in_order(device: str) -> tuple[int, str]:
    """`gpu-2` before `gpu-10`."""
    return len(device), device


def _faults(taints: Sequence[Mapping[str, str]]) -> tuple[str, ...]:
    return tuple(one for one in map(taint_text, taints) if any(text in one.lower() for text in DEVICE_TEXTS))
