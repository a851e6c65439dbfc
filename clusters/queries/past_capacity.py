"""What clusters had in the past, as the exponentially weighted mean of what their nodes offered. Nothing is stored for it."""

from typing import NamedTuple

from django.db import connection

from clusters.engine.gpu_share import gpu_per_unit

MOST_HALF_LIVES = 20
"""What is older counts less than a millionth."""

# Newer time weighs more, as in past use. The weights of the time since the history began add up to 1.
MEAN = """
WITH part AS MATERIALIZED (
    SELECT s.offer_id, s.sharing, s.gpu_model, sum(s.units * at.weight) AS units, sum(s.cpu_millicores * at.weight) AS cpu,
           sum(s.memory_mib * at.weight) AS memory, min(at.older) AS oldest
      FROM clusters_nodespan AS s
     CROSS JOIN LATERAL (SELECT
           exp(-ln(2.0::float8) * greatest(0.0, date_part('epoch', now() - coalesce(upper(s.period), now()))) / %(life)s) AS newer,
           exp(-ln(2.0::float8) * least(%(most)s, greatest(0.0, date_part('epoch', now() - lower(s.period))) / %(life)s)) AS older
     ) AS counted
     CROSS JOIN LATERAL (SELECT counted.newer - counted.older AS weight, counted.older) AS at
     WHERE upper_inf(s.period) OR upper(s.period) > now() - make_interval(secs => %(life)s * %(most)s)
     GROUP BY s.offer_id, s.sharing, s.gpu_model
)
SELECT o.cluster_id, t.path, p.sharing, p.gpu_model, sum(p.units) / whole.weight, sum(p.cpu) / whole.weight,
       sum(p.memory) / whole.weight
  FROM part AS p
  JOIN clusters_nodeoffer AS o ON o.id = p.offer_id
  JOIN clusters_cluster AS c ON c.id = o.cluster_id
  JOIN tenancy_tenant AS t ON t.id = c.owner_id
 CROSS JOIN (SELECT greatest(1 - min(oldest), 1e-12) AS weight FROM part) AS whole
 GROUP BY o.cluster_id, t.path, p.sharing, p.gpu_model, whole.weight ORDER BY o.cluster_id, p.sharing, p.gpu_model
"""
MILLI = 1000


class PastCluster(NamedTuple):
    """A cluster's mean in milli-GPU, millicores and MiB, and the tenant that owns it."""

    owner_path: str
    gpu_milli: float
    cpu_millicores: float
    memory_mib: float


def past_capacity(half_life_seconds: float) -> tuple[PastCluster, ...]:
    """By cluster, also those that have left. It reads the spans of the last twenty half-lives."""
    with connection.cursor() as cursor:
        cursor.execute(MEAN, {"life": float(half_life_seconds), "most": float(MOST_HALF_LIVES)})
        rows = cursor.fetchall()
    found: dict[object, PastCluster] = {}
    for cluster_id, owner_path, sharing, gpu_model, units, cpu, memory in rows:
        before = found.get(cluster_id, PastCluster(owner_path, 0.0, 0.0, 0.0))
        milli = units * MILLI * float(gpu_per_unit(sharing, gpu_model)) if gpu_model else 0.0
        found[cluster_id] = PastCluster(
            owner_path, before.gpu_milli + milli, before.cpu_millicores + cpu, before.memory_mib + memory
        )
    return tuple(found.values())
