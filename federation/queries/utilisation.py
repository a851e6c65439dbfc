"""The pods of an hour whose GPUs a cluster's Prometheus may be asked about: those that the gateway started and meters."""

from datetime import datetime
from uuid import UUID

from django.db import connection

from billing.engine.utilisation import MeteredPod
from clusters.engine.telemetry import PodName


def metered_pods(cluster_id: UUID, hour: datetime) -> list[MeteredPod]:
    """Every pod with GPUs that a meter of the cluster counts in the hour, and how much of it is measured already."""
    with connection.cursor() as cursor:
        cursor.execute(METERED_PODS, {"cluster": cluster_id, "hour": hour})
        return [
            MeteredPod(meter, PodName(namespace, name), units, sharing, int(seconds), seen)
            for meter, namespace, name, units, sharing, seconds, seen in cursor.fetchall()
        ]


METERED_PODS = """
SELECT m.id, a.namespace, pod.name, m.gpu_units, m.sharing,
       extract(epoch FROM least(m.metered_until, %(hour)s::timestamptz + interval '1 hour') - greatest(m.metered_from, %(hour)s::timestamptz)),
       COALESCE(known.coverage_seconds, 0)
  FROM (
    SELECT DISTINCT meter_id FROM billing_usagesegment
     WHERE lower(period) > %(hour)s::timestamptz - interval '1 day' AND lower(period) < %(hour)s::timestamptz + interval '1 hour' AND upper(period) > %(hour)s::timestamptz
  ) AS counted JOIN billing_meter AS m ON m.id = counted.meter_id AND m.cluster_id = %(cluster)s AND m.gpu_units > 0
  JOIN federation_podrun AS pod ON pod.attempt_id = m.run_id AND pod.cluster_id = m.cluster_id
   AND (pod.uid = m.source_uid OR starts_with(m.source_uid, pod.uid || '~'))
  JOIN federation_attempt AS a ON a.id = pod.attempt_id
  LEFT JOIN billing_utilisationhour AS known ON known.meter_id = m.id AND known.hour = %(hour)s::timestamptz
 WHERE m.metered_from < %(hour)s::timestamptz + interval '1 hour' AND m.metered_until > %(hour)s::timestamptz
 ORDER BY m.id
"""
"""A segment lies within one day, so none that reaches into the hour begins more than a day before it."""
