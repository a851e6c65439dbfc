"""Clusters that answer no call of a visit: dispatch leaves them alone, for longer after each such visit in a row.

The rest belongs to the cluster and not to its attempts. So a silent visit costs the same however many jobs wait there,
and jobs that are placed there meanwhile do not end the rest.
"""

from typing import Any
from uuid import UUID

from django.db import connection

from foundation.host import host

REST_SECONDS = 14.0
"""The least rest after the first silent visit. At most it is twice as long, at random: visits to several such clusters
that once began together do not go on to begin and end together.
"""
MOST_DOUBLINGS = 2
FORGET_SECONDS = 600.0
"""A rest that ended so long ago says nothing about a cluster that is silent now."""
IN_A_ROW = (
    "CASE WHEN upkeep.rests_until > now() - make_interval(secs => %(forget)s) THEN upkeep.silent_visits ELSE 0 END"
)
BEGIN_REST = f"""
INSERT INTO federation_clusterupkeep AS upkeep (cluster_id, silent_visits, rests_until)
VALUES (%(cluster)s, 1, clock_timestamp() + make_interval(secs => %(seconds)s))
    ON CONFLICT (cluster_id) DO UPDATE
   SET silent_visits = least({IN_A_ROW}, 1000) + 1,
       rests_until = clock_timestamp() + make_interval(secs => %(seconds)s * 2 ^ least({IN_A_ROW}, %(most_doublings)s))
RETURNING silent_visits
"""
END_REST = """
UPDATE federation_clusterupkeep SET silent_visits = 0, rests_until = NULL WHERE cluster_id = %s AND silent_visits > 0
"""


def begin_rest(cluster_id: UUID) -> int:
    """The number of silent visits in a row, with the one that just ended."""
    values: dict[str, Any] = {
        "cluster": cluster_id,
        "seconds": REST_SECONDS * (1 + host().chance().random()),
        "most_doublings": MOST_DOUBLINGS,
        "forget": FORGET_SECONDS,
    }
    with connection.cursor() as cursor:
        cursor.execute(BEGIN_REST, values)
        return int(cursor.fetchone()[0])


def end_rest(cluster_id: UUID) -> None:
    """The cluster answered."""
    with connection.cursor() as cursor:
        cursor.execute(END_REST, [cluster_id])
