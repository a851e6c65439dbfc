"""Lets the history of the demo's nodes begin before its past jobs, which are made up. Without it, their hours would be charged for
nodes that are not known.

Only the owner of the tables can write that history; the gateway's processes read it.
"""

from typing import Any

import psycopg

EARLIER = """
WITH past AS (
    SELECT split_part(t.path, '/', 1) AS organisation, date_trunc('day', min(j.created_at) AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' AS since
    FROM federation_job AS j JOIN tenancy_tenant AS t ON t.id = j.tenant_id
    WHERE j.labels @> '{"demo": "history"}' GROUP BY 1
)
INSERT INTO clusters_nodespan (offer_id, period, uid, capacity_type, gpu_model, sharing, units, cpu_millicores, memory_mib,
    is_available, is_assumed)
SELECT o.id, tstzrange(past.since, lower(s.period)), s.uid, s.capacity_type, s.gpu_model, s.sharing, s.units, s.cpu_millicores,
    s.memory_mib, true, false
FROM past JOIN tenancy_tenant AS t ON t.path = past.organisation
JOIN clusters_cluster AS c ON c.owner_id = t.id AND c.driver = 'simulated'
JOIN clusters_nodeoffer AS o ON o.cluster_id = c.id
CROSS JOIN LATERAL (SELECT * FROM clusters_nodespan WHERE offer_id = o.id ORDER BY lower(period) LIMIT 1) AS s
WHERE past.since < lower(s.period)
"""


def begin_earlier(cursor: Any) -> int:
    """With a cursor of psycopg or of Django. The number of nodes' offers whose history begins earlier now; none if it did already."""
    cursor.execute(EARLIER)
    return int(cursor.rowcount)


def begin_earlier_at(address: str) -> None:
    """The same, in the database at an address."""
    with psycopg.connect(address) as connection, connection.cursor() as cursor:
        begin_earlier(cursor)
