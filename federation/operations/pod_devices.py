"""Records which devices claims gave to pods: a cluster can say so only of its own pods."""

from collections.abc import Mapping, Sequence
from uuid import UUID

from django.db import connection

from federation.engine.claimed import MOST_DEVICES

RECORD_DEVICES = f"""
UPDATE federation_podrun AS pod
   SET devices = (SELECT array_agg(DISTINCT one ORDER BY one) FROM unnest(pod.devices || said.devices) AS one)
  FROM (SELECT uid, array_agg(device::varchar) AS devices FROM unnest(%s::text[], %s::text[]) AS each(uid, device) GROUP BY uid) AS said
 WHERE pod.cluster_id = %s AND pod.uid = said.uid AND NOT pod.devices @> said.devices
   AND cardinality(pod.devices) + cardinality(said.devices) <= {MOST_DEVICES}
"""


def record_devices(cluster_id: UUID, devices: Mapping[str, Sequence[str]]) -> int:
    """The number of pods of which new devices are known. What was recorded of a pod is never taken back (trigger)."""
    pairs = [(uid, device) for uid, names in sorted(devices.items()) for device in names]
    if not pairs:
        return 0
    with connection.cursor() as cursor:
        cursor.execute(RECORD_DEVICES, [*(list(column) for column in zip(*pairs, strict=True)), cluster_id])
        return int(cursor.rowcount)
